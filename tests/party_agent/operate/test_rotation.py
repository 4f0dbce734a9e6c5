"""A party replaces its key, or leaves: agents over the real coordinator, in this process."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from commingle.coordinator.members import revoke
from commingle.party_agent.errors import ConflictError
from commingle.party_agent.home.home import Home
from commingle.party_agent.operate.compose import compose_agents
from commingle.party_agent.operate.membership import leave, rotate_key
from commingle.party_agent.rounds.agents import Agents
from commingle.party_agent.rounds.linkage import publish_identity, receive_linkage_key, send_linkage_key
from commingle.shared.documents.dsse import Envelope, Fingerprint
from commingle.shared.documents.linkage import IdentityStatement
from commingle.shared.documents.model import decode
from commingle.shared.errors import CommingleError
from commingle.shared.release.charge import ChargeState
from commingle.shared.runtime.errors import RemoteProblemError, UnreachableError
from tests.party_agent.releasing import decision_of, look, state_of
from tests.world.consortium import BY_HAND, Consortium, strictly
from tests.world.documents import enrolment
from tests.world.transport import no_fault


@contextmanager
def composed(pair: Consortium) -> Iterator[Agents]:
    """The clinic's agents as every command puts them together."""
    transport = httpx.MockTransport(pair.coordinator.handle)
    with compose_agents(pair.homes["clinic"], transport=transport, clock=pair.coordinator.clock) as agents:
        yield agents


def rotate(pair: Consortium, *, abandon_open: bool = False) -> Fingerprint:
    pair.enrol_everybody()
    with composed(pair) as agents:
        return rotate_key(agents, abandon_open=abandon_open)


def interrupt(pair: Consortium, end: str) -> None:
    """Answers to requests whose path ends so are lost while the clinic changes its keys."""
    lose(pair, end)
    with pytest.raises(UnreachableError):
        rotate(pair)
    pair.coordinator.after = no_fault


def lose(pair: Consortium, end: str) -> None:
    def fault(request: httpx.Request) -> None:
        if request.url.path.endswith(end):
            raise httpx.ReadError("lost", request=request)

    pair.coordinator.after = fault


def key_of(home: Home) -> Fingerprint:
    return home.identity().signing_key.fingerprint


@pytest.fixture
def clinic(pair: Consortium) -> Home:
    return pair.homes["clinic"]


def test_proposals_wait_until_fellow_members_have_pinned_the_new_key(pair: Consortium, clinic: Home) -> None:
    new = rotate(pair)
    assert key_of(clinic) == new
    assert not clinic.next_key.exists()
    release = pair.propose()
    look(pair, "clinic", "insurer")
    assert decision_of(pair, "clinic", release) == "approved"
    assert decision_of(pair, "insurer", release) == "waiting"
    pair.homes["insurer"].consortium().pin({"clinic": new}, replace=True)
    look(pair, "insurer", "clinic", "insurer")
    assert pair.state(release) == "published"


def shown_sealing_keys(pair: Consortium) -> set[str]:
    shown = pair.coordinator.hub.http.get("/v1/parties/clinic").json()
    envelope = Envelope.model_validate(shown["identity"], strict=False)
    return {shown["sealing_key"], decode(IdentityStatement, envelope.payload_bytes).sealing_key}


def test_sealing_key_is_replaced_with_the_signing_key_and_can_be_sealed_to(pair: Consortium) -> None:
    clinic, insurer = pair.homes["clinic"], pair.homes["insurer"]
    old = clinic.sealing_key()
    rotate(pair)
    assert clinic.sealing_key() != old
    assert shown_sealing_keys(pair) == {clinic.sealing_key().hex()}
    assert not clinic.next_sealing_key.exists()
    clinic.consortium().linkage_file.unlink()
    insurer.consortium().pin({"clinic": key_of(clinic)}, replace=True)
    coordinator = pair.coordinator.hub.key.fingerprint
    with pair.agent("insurer") as agent:
        publish_identity(insurer, agent.client)
        sent = send_linkage_key(
            insurer, insurer.consortium(), agent.client, coordinator=coordinator, now=pair.coordinator.hub.clock()
        )
    with pair.agent("clinic") as agent:
        received = receive_linkage_key(clinic, clinic.consortium(), agent.client, coordinator=coordinator)
    assert received is not None
    assert (received.check, clinic.consortium().linkage_key()) == (sent.check, insurer.consortium().linkage_key())


@pytest.mark.parametrize("point", ["/keys", "/identity"])
def test_sealing_key_is_one_and_the_same_after_an_interruption(pair: Consortium, point: str, clinic: Home) -> None:
    interrupt(pair, point)
    prepared = clinic.next_sealing_key.read_bytes()
    rotate(pair)
    assert (clinic.root / "keys" / "sealing.key").read_bytes() == prepared
    assert shown_sealing_keys(pair) == {clinic.sealing_key().hex()}


def test_kill_between_the_two_keys_is_finished_by_repeating_it(pair: Consortium, clinic: Home) -> None:
    interrupt(pair, "/identity")
    clinic.next_sealing_key.rename(clinic.root / "keys" / "sealing.key")  # as far as adopt_next_key got
    sealing_key = clinic.sealing_key()
    rotate(pair)
    assert (clinic.sealing_key(), shown_sealing_keys(pair)) == (sealing_key, {sealing_key.hex()})
    assert not clinic.next_key.exists()


def test_open_approval_under_the_old_key_is_given_back_when_asked_to_abandon_it(pair: Consortium) -> None:
    release = pair.propose()
    pair.step("clinic")
    with pytest.raises(ConflictError, match="1 approved releases are open"):
        rotate(pair)
    assert state_of(pair, release) is ChargeState.RESERVED
    rotate(pair, abandon_open=True)
    assert pair.state(release) == "aborted"
    look(pair, "clinic", "insurer")
    assert state_of(pair, release) is ChargeState.RELEASED


def test_interrupted_rotation_is_finished_by_repeating_it(pair: Consortium, clinic: Home) -> None:
    old = key_of(clinic)
    interrupt(pair, "/keys")
    assert key_of(clinic) == old
    new = rotate(pair)
    assert new == key_of(clinic) == pair.coordinator.hub.http.get("/v1/parties/clinic").json()["fingerprint"]
    assert len(pair.coordinator.hub.http.get("/v1/parties/clinic/keys").json()["items"]) == 2
    assert [key.fingerprint for key in clinic.identity().former_keys] == [old]


def test_rotation_the_coordinator_never_got_is_taken_up_with_the_same_key(pair: Consortium, clinic: Home) -> None:
    interrupt(pair, "")
    prepared = clinic.prepare_next_key().fingerprint
    assert rotate(pair) == prepared


def test_interruption_while_the_key_is_adopted_is_finished_by_repeating_it(pair: Consortium, clinic: Home) -> None:
    old = key_of(clinic)
    secret = (clinic.root / "keys" / "signing.key").read_bytes()
    new = rotate(pair)
    assert (clinic.root / "keys" / "signing.key").read_bytes() != secret
    (clinic.next_key).write_bytes((clinic.root / "keys" / "signing.key").read_bytes())
    clinic.next_key.chmod(0o600)
    assert rotate(pair) == new
    assert [key.fingerprint for key in clinic.identity().former_keys] == [old]
    assert len(pair.coordinator.hub.http.get("/v1/parties/clinic/keys").json()["items"]) == 2


def test_ledger_set_back_before_a_release_under_a_former_key_is_still_noticed(pair: Consortium, clinic: Home) -> None:
    before = clinic.database.read_bytes()
    release = pair.propose()
    look(pair, "clinic", "insurer", "clinic", "insurer")
    assert pair.state(release) == "published"
    pair.step("clinic")
    rotate(pair)
    for extra in clinic.root.glob("ledger.sqlite-*"):
        extra.unlink()
    clinic.database.write_bytes(before)
    with pair.agent("clinic") as agent, pytest.raises(CommingleError, match="does not know"):
        agent.step(strictly)


def test_revoked_agent_is_told_so_and_spends_nothing(pair: Consortium, clinic: Home) -> None:
    clinic.save_policy(BY_HAND)
    release = pair.propose()
    pair.step("clinic")
    revoke(pair.coordinator.hub.coordinator, "clinic")
    with pair.agent("clinic") as agent, pytest.raises(RemoteProblemError, match="not been a member") as refused:
        agent.step(strictly)
    assert refused.value.problem == "revoked"
    assert state_of(pair, release) is None


def test_agent_with_a_wrong_clock_is_told_what_to_do(pair: Consortium) -> None:
    home = pair.homes["clinic"]
    with (
        compose_agents(
            home, transport=pair.coordinator.hub.transport
        ) as agents,  # lives in the present, unlike the coordinator
        pytest.raises(RemoteProblemError, match="seconds apart") as refused,
    ):
        agents.consortia[0].step(strictly)
    assert (refused.value.problem, "NTP" in refused.value.remedy) == ("clock-skew", True)


def leave_consortium(pair: Consortium) -> None:
    with composed(pair) as agents:
        leave(agents, agents.consortia[0].membership.name)


def test_party_leaves_once_nothing_of_its_is_open_and_comes_back_with_its_budget(pair: Consortium) -> None:
    home, release = pair.homes["clinic"], pair.propose()
    former = home.consortium()
    pinned = former.coordinator()
    pair.step("clinic")
    with pytest.raises(ConflictError, match="1 approved releases are open"):
        leave_consortium(pair)
    look(pair, "insurer", "clinic", "insurer")
    pair.step("clinic")
    lose(pair, "/departure")
    with pytest.raises(UnreachableError) as lost:
        leave_consortium(pair)
    assert "--unannounced" in lost.value.remedy
    assert home.consortia()
    pair.coordinator.after = no_fault
    leave_consortium(pair)  # its coordinator says that it is no member any more
    assert not home.consortia()
    shown = pair.coordinator.hub.http.get("/v1/parties/clinic").json()
    assert shown["departure"]["signatures"][0]["keyid"] == key_of(home)
    with pytest.raises(CommingleError):
        pair.propose(title="without it")
    again = enrolment(
        pair.coordinator.hub.invited("clinic"),
        "clinic",
        home.identity().signing_key,
        sealing_key=home.sealing_key().hex(),
    )
    assert pair.coordinator.hub.enrol(again).status_code == 201
    home.join(pinned, name=former.name)
    pair.propose(title="again")
    pair.step("clinic")
    assert state_of(pair, release) is ChargeState.ACKED
