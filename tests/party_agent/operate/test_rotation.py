"""A party replaces its key, or leaves: agents over the real coordinator, in this process."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from commingle.coordinator.members import revoke
from commingle.party_agent.errors import ConflictError
from commingle.party_agent.home.home import Home
from commingle.party_agent.operate.compose import compose_agents
from commingle.party_agent.operate.membership import leave, rotate_key
from commingle.party_agent.rounds.agent import Agent
from commingle.party_agent.rounds.linkage import publish_identity, receive_linkage_key, send_linkage_key
from commingle.party_agent.rounds.proposals import Decision
from commingle.shared.documents.dsse import Envelope, seal
from commingle.shared.documents.keys import Fingerprint
from commingle.shared.documents.linkage import IdentityStatement
from commingle.shared.documents.model import decode
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.errors import CommingleError
from commingle.shared.release.charge import ChargeState
from commingle.shared.runtime.errors import RemoteProblemError, UnreachableError
from tests.world.consortium import BY_HAND, Consortium, consortium_of, strictly
from tests.world.coordinator import Hub, Proposed
from tests.world.documents import enrolment
from tests.world.transport import InProcess


@dataclass(frozen=True)
class World:
    """Clinic and insurer as `party_agent.operate.compose` puts them together."""

    consortium: Consortium

    @property
    def hub(self) -> Hub:
        return self.consortium.coordinator.hub

    @property
    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self.consortium.coordinator.handle)

    def lose(self, lost: Callable[[httpx.Request], bool]) -> None:
        """Answers to these requests do not come back."""

        def fault(request: httpx.Request) -> None:
            if lost(request):
                raise httpx.ReadError("lost", request=request)

        self.consortium.coordinator.after = fault

    @contextmanager
    def agent(self, name: str) -> Iterator[Agent]:
        home = self.consortium.homes[name]
        with compose_agents(home, transport=self.transport, clock=self.hub.clock) as agents:
            yield agents.consortia[0]

    def step(self, name: str) -> None:
        with self.agent(name) as agent:
            agent.step(strictly)

    def rotate(self, name: str = "clinic", *, abandon_open: bool = False) -> Fingerprint:
        with compose_agents(self.consortium.homes[name], transport=self.transport, clock=self.hub.clock) as agents:
            return rotate_key(agents, abandon_open=abandon_open)

    def spec(self) -> ReleaseSpec:
        return self.consortium.spec(proposer=self.hub.key, now=self.hub.clock(), title=str(self.hub.clock()))

    def propose(self) -> Proposed:
        self.hub.clock.move(seconds=1)
        proposed = Proposed(self.spec(), seal(self.spec(), kind="spec", key=self.hub.key))
        assert self.hub.propose(proposed).status_code == 201
        return proposed

    def decision(self, name: str, proposed: Proposed) -> Decision:
        with self.agent(name) as agent:
            return agent.proposals.get(proposed.id).decision

    def charge(self, name: str, proposed: Proposed) -> ChargeState | None:
        with self.agent(name) as agent:
            charge = agent.ledger.charge(proposed.id)
            return None if charge is None else charge.state


@pytest.fixture
def world(tmp_path: Path) -> World:
    consortium = consortium_of(tmp_path, "clinic", "insurer")
    consortium.enrol_everybody()
    return World(consortium)


def key_of(home: Home) -> Fingerprint:
    return home.identity().signing_key.fingerprint


def test_proposals_wait_until_fellow_members_have_pinned_the_new_key(world: World) -> None:
    clinic = world.consortium.homes["clinic"]
    new = world.rotate()
    assert key_of(clinic) == new
    assert not clinic.next_key.exists()
    proposed = world.propose()
    for name in ("clinic", "insurer"):
        world.step(name)
    assert world.decision("clinic", proposed) is Decision.APPROVED
    assert world.decision("insurer", proposed) is Decision.WAITING
    world.consortium.homes["insurer"].consortium().pin("clinic", new, replace=True)
    for name in ("insurer", "clinic", "insurer"):
        world.step(name)
    world.hub.publisher.run_once()
    assert world.hub.state(proposed) == "published"


def shown_sealing_keys(world: World) -> set[str]:
    shown = world.hub.http.get("/v1/parties/clinic").json()
    envelope = Envelope.model_validate(shown["identity"], strict=False)
    return {shown["sealing_key"], decode(IdentityStatement, envelope.payload_bytes).sealing_key}


def test_sealing_key_is_replaced_with_the_signing_key_and_can_be_sealed_to(world: World) -> None:
    clinic, insurer = world.consortium.homes["clinic"], world.consortium.homes["insurer"]
    old = clinic.sealing_key()
    world.rotate()
    assert clinic.sealing_key() != old
    assert shown_sealing_keys(world) == {clinic.sealing_key().hex()}
    assert not clinic.next_sealing_key.exists()
    clinic.consortium().linkage_file.unlink()
    insurer.consortium().pin("clinic", key_of(clinic), replace=True)
    coordinator = world.hub.key.fingerprint
    with world.agent("insurer") as agent:
        publish_identity(insurer, agent.client)
        sent = send_linkage_key(
            insurer, insurer.consortium(), agent.client, coordinator=coordinator, now=world.hub.clock()
        )
    with world.agent("clinic") as agent:
        received = receive_linkage_key(clinic, clinic.consortium(), agent.client, coordinator=coordinator)
    assert received is not None
    assert (received.check, clinic.consortium().linkage_key()) == (sent.check, insurer.consortium().linkage_key())


@pytest.mark.parametrize("point", ["/keys", "/identity"])
def test_sealing_key_is_one_and_the_same_after_an_interruption(world: World, point: str) -> None:
    clinic = world.consortium.homes["clinic"]
    world.lose(lambda request: request.url.path.endswith(point))
    with pytest.raises(UnreachableError):
        world.rotate()
    prepared = clinic.next_sealing_key.read_bytes()
    world.lose(lambda _: False)
    world.rotate()
    assert (clinic.root / "keys" / "sealing.key").read_bytes() == prepared
    assert shown_sealing_keys(world) == {clinic.sealing_key().hex()}


def test_kill_between_the_two_keys_is_finished_by_repeating_it(world: World) -> None:
    clinic = world.consortium.homes["clinic"]
    world.lose(lambda request: request.url.path.endswith("/identity"))
    with pytest.raises(UnreachableError):
        world.rotate()
    world.lose(lambda _: False)
    clinic.next_sealing_key.rename(clinic.root / "keys" / "sealing.key")  # as far as adopt_next_key got
    sealing_key = clinic.sealing_key()
    world.rotate()
    assert (clinic.sealing_key(), shown_sealing_keys(world)) == (sealing_key, {sealing_key.hex()})
    assert not clinic.next_key.exists()


def test_open_approval_under_the_old_key_is_given_back_when_asked_to_abandon_it(world: World) -> None:
    proposed = world.propose()
    world.step("clinic")
    with pytest.raises(ConflictError, match="1 approved releases are open"):
        world.rotate()
    assert world.charge("clinic", proposed) is ChargeState.RESERVED
    world.rotate(abandon_open=True)
    assert world.hub.state(proposed) == "aborted"
    for name in ("clinic", "insurer"):
        world.step(name)
    assert world.charge("clinic", proposed) is ChargeState.RELEASED


def test_interrupted_rotation_is_finished_by_repeating_it(world: World) -> None:
    clinic = world.consortium.homes["clinic"]
    old = key_of(clinic)
    world.lose(lambda request: request.url.path.endswith("/keys"))
    with pytest.raises(UnreachableError):
        world.rotate()
    assert key_of(clinic) == old
    world.lose(lambda _: False)
    new = world.rotate()
    assert new == key_of(clinic) == world.hub.http.get("/v1/parties/clinic").json()["fingerprint"]
    assert len(world.hub.http.get("/v1/parties/clinic/keys").json()["items"]) == 2
    assert [key.fingerprint for key in clinic.identity().former_keys] == [old]


def test_rotation_the_coordinator_never_got_is_taken_up_with_the_same_key(world: World) -> None:
    clinic = world.consortium.homes["clinic"]
    world.lose(lambda _: True)
    with pytest.raises(UnreachableError):
        world.rotate()
    prepared = clinic.prepare_next_key().fingerprint
    world.lose(lambda _: False)
    assert world.rotate() == prepared


def test_interruption_while_the_key_is_adopted_is_finished_by_repeating_it(world: World) -> None:
    clinic = world.consortium.homes["clinic"]
    old = key_of(clinic)
    secret = (clinic.root / "keys" / "signing.key").read_bytes()
    new = world.rotate()
    assert (clinic.root / "keys" / "signing.key").read_bytes() != secret
    (clinic.next_key).write_bytes((clinic.root / "keys" / "signing.key").read_bytes())
    clinic.next_key.chmod(0o600)
    assert world.rotate() == new
    assert [key.fingerprint for key in clinic.identity().former_keys] == [old]
    assert len(world.hub.http.get("/v1/parties/clinic/keys").json()["items"]) == 2


def test_ledger_set_back_before_a_release_under_a_former_key_is_still_noticed(world: World) -> None:
    clinic = world.consortium.homes["clinic"]
    before = clinic.database.read_bytes()
    proposed = world.propose()
    for name in ("clinic", "insurer", "clinic", "insurer"):
        world.step(name)
    world.hub.publisher.run_once()
    assert world.hub.state(proposed) == "published"
    world.step("clinic")
    world.rotate()
    for extra in clinic.root.glob("ledger.sqlite-*"):
        extra.unlink()
    clinic.database.write_bytes(before)
    with world.agent("clinic") as agent, pytest.raises(CommingleError, match="does not know"):
        agent.step(strictly)


def test_revoked_agent_is_told_so_and_spends_nothing(world: World) -> None:
    clinic = world.consortium.homes["clinic"]
    clinic.save_policy(BY_HAND)
    proposed = world.propose()
    world.step("clinic")
    revoke(world.hub.coordinator, "clinic")
    with world.agent("clinic") as agent, pytest.raises(RemoteProblemError, match="not a member") as refused:
        agent.step(strictly)
    assert refused.value.problem == "revoked"
    assert world.charge("clinic", proposed) is None


def test_agent_with_a_wrong_clock_is_told_what_to_do(world: World) -> None:
    home = world.consortium.homes["clinic"]
    with (
        compose_agents(
            home, transport=InProcess(world.hub.app)
        ) as agents,  # lives in the present, unlike the coordinator
        pytest.raises(RemoteProblemError, match="seconds apart") as refused,
    ):
        agents.consortia[0].step(strictly)
    assert (refused.value.problem, "NTP" in refused.value.remedy) == ("clock-skew", True)


def leave_consortium(world: World) -> None:
    with compose_agents(world.consortium.homes["clinic"], transport=world.transport, clock=world.hub.clock) as agents:
        leave(agents, agents.consortia[0].membership.name)


def test_party_leaves_once_nothing_of_its_is_open_and_comes_back_with_its_budget(world: World) -> None:
    home, proposed = world.consortium.homes["clinic"], world.propose()
    former = home.consortium()
    pinned = former.coordinator()
    world.step("clinic")
    with pytest.raises(ConflictError, match="1 approved releases are open"):
        leave_consortium(world)
    for name in ("insurer", "clinic", "insurer"):
        world.step(name)
    world.hub.publisher.run_once()
    world.step("clinic")
    world.lose(lambda request: request.url.path.endswith("/departure"))
    with pytest.raises(UnreachableError) as lost:
        leave_consortium(world)
    assert "--unannounced" in lost.value.remedy
    assert home.consortia()
    world.lose(lambda _: False)
    leave_consortium(world)  # its coordinator says that it is no member any more
    assert not home.consortia()
    shown = world.hub.http.get("/v1/parties/clinic").json()
    assert shown["departure"]["signatures"][0]["keyid"] == key_of(home)
    with pytest.raises(AssertionError):
        world.propose()
    again = enrolment(
        world.hub.invited("clinic"), "clinic", home.identity().signing_key, sealing_key=home.sealing_key().hex()
    )
    assert world.hub.enrol(again).status_code == 201
    home.join(pinned, name=former.name)
    world.propose()
    world.step("clinic")
    assert world.charge("clinic", proposed) is ChargeState.ACKED
