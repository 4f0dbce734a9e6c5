"""Attacks by the actors of `tests/hostile/actors.py`, alone and together."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from commingle.party_agent.errors import AgentRunningError, ConflictError, StaleLedgerError
from commingle.party_agent.operate.compose import agent_client
from commingle.party_agent.rounds.agent import Agent
from commingle.shared.documents.model import decode, encode
from commingle.shared.documents.statements import BlockStatement, DeviationError, open_head
from commingle.shared.errors import CommingleError, DocumentError, SignatureError
from commingle.shared.mechanisms.moments.exchange.messages import ColumnsStatement, quotations, require_evidence
from commingle.shared.release.charge import ChargeState
from commingle.shared.runtime.errors import RemoteError, RemoteProblemError
from tests.hostile.actors import AlteredMember, HostileCoordinator, LocalUser, Unclipped, view_of
from tests.party_agent.exchanging import body_of, columned, messages, replace_message, replied, resigned
from tests.party_agent.releasing import approved_by_all, publish, rejection_of, state_of
from tests.party_agent.rounds.test_malicious_coordinator import tampered
from tests.party_agent.rounds.test_set_back import adopt_all, allow, refuse_to_start, step_everywhere
from tests.world.consortium import Consortium, Noise, consortium_of, second_beside, strictly
from tests.world.coordinator import problem
from tests.world.local_api import operator_app, serving_at


def try_step(consortium: Consortium, name: str, *, draw: Noise | None = None) -> None:
    """A look that may fail, as the loop has many."""
    with suppress(CommingleError):
        consortium.step(name, draw=draw)


def _try(_: str, work: Callable[[], None]) -> None:
    with suppress(CommingleError):
        work()


# a hostile coordinator


def test_coordinator_that_comes_with_another_key_gives_no_new_cap(pair: Consortium) -> None:
    publish(pair)
    allow(pair, 1.5)
    second = HostileCoordinator(pair).come_with_another_key()
    assert list(pair.homes["clinic"].consortia()) == ["second"]  # nobody answers for the first any more
    release = second.propose(title="another study")
    step_everywhere(pair)
    with pair.agents("clinic") as agents:
        assert agents.proposals.get(release).decision == "rejected"
        assert [charge.state for charge in agents.ledger.charges().values()] == ["acked"]


def test_two_parties_shown_different_specs_never_debit(pair: Consortium) -> None:
    """Split view: each party sees a spec of its own under an id of its own; approvals of one do not open the other."""
    coordinator, noise = HostileCoordinator(pair), Noise()
    first, second = pair.propose(title="first"), pair.propose(title="second")
    coordinator.hide(second, to="clinic")
    coordinator.hide(first, to="insurer")
    for name in ("clinic", "insurer"):
        with pair.agent(name) as agent:
            agent.step(_try)
    coordinator.tell_the_truth()
    merged = {**pair.coordinator.found(first).approvals, **pair.coordinator.found(second).approvals}
    assert merged.keys() == {"clinic", "insurer"}
    coordinator.show(first, state="approved", approvals=view_of(merged))
    with pair.agent("clinic", draw=noise) as agent, pytest.raises((DocumentError, SignatureError)):
        agent.handle(agent.client.release(first), first)
    assert (state_of(pair, first), noise.calls) == (ChargeState.RESERVED, [])


@pytest.mark.parametrize("what", ["k", "seed", "bounds", "epsilon"])
def test_changed_spec_under_its_own_id_inherits_no_approval(pair: Consortium, what: str) -> None:
    """The approvals of the honest spec, shown with the changed one, open nothing."""
    coordinator, noise = HostileCoordinator(pair), Noise()
    honest = pair.coordinator.found(approved_by_all(pair))
    changed = pair.coordinator.propose(tampered(honest.document, what))
    coordinator.show(changed, state="approved", approvals=view_of(honest.approvals))
    with pair.agent("clinic", draw=noise) as agent, pytest.raises((DocumentError, SignatureError)):
        agent.handle(agent.client.release(changed), changed)
    assert (noise.calls, pair.charge("clinic", changed)) == ([], None)


@pytest.mark.slow
@pytest.mark.parametrize("state", ["aborted", "rejected", "expired", "published"])
def test_release_falsely_said_to_be_over_is_not_taken_up_again(pair: Consortium, state: str) -> None:
    coordinator, noise, release = HostileCoordinator(pair), Noise(), approved_by_all(pair)
    coordinator.show(release, state=state)
    pair.step("clinic")
    coordinator.tell_the_truth()
    for _ in range(2):
        pair.step("clinic", draw=noise)
    assert (state_of(pair, release), noise.calls, pair.coordinator.received) == (ChargeState.RELEASED, [], {})


@pytest.mark.parametrize("what", ["k", "seed", "bounds", "epsilon"])
def test_spec_changed_after_approval_gets_no_block(pair: Consortium, what: str) -> None:
    coordinator, noise, release = HostileCoordinator(pair), Noise(), approved_by_all(pair)
    coordinator.show_spec(release, tampered(pair.coordinator.found(release).document, what))
    with pytest.raises(DocumentError, match="another spec under this id"):
        pair.step("clinic", draw=noise)
    assert (state_of(pair, release), noise.calls, pair.coordinator.received) == (ChargeState.RESERVED, [], {})


@pytest.mark.parametrize("old", [("/v1/releases",), ("/v1/releases", "/v1/ledger-heads")], ids=["list", "heads too"])
def test_end_that_is_withheld_beside_old_answers_makes_nothing_anew(pair: Consortium, old: tuple[str, ...]) -> None:
    coordinator, noise, release = HostileCoordinator(pair), Noise(), publish(pair)
    with pair.agent("clinic") as agent:
        before, sent = agent.ledger.spent(), list(pair.coordinator.received["clinic"])
    pair.coordinator.requests.clear()
    coordinator.withhold_end(release)
    for path in old:
        coordinator.replay(path)
    for _ in range(3):
        try_step(pair, "clinic", draw=noise)
    assert f"GET /v1/releases/{release}" in pair.coordinator.requests
    with pair.agent("clinic") as agent:
        assert (agent.ledger.spent(), noise.calls, pair.coordinator.received["clinic"]) == (before, [], sent)


@pytest.mark.parametrize("status", [404, 500, 503])
def test_coordinator_that_never_shows_a_ledger_head_gets_nothing_signed_or_paid(pair: Consortium, status: int) -> None:
    coordinator, noise, release = HostileCoordinator(pair), Noise(), pair.propose()
    coordinator.refuse("ledger-heads", status, remedy="delete the ledger")
    for _ in range(3):
        with pytest.raises(RemoteError) as refused:
            pair.step("clinic", draw=noise)
        assert "delete the ledger" not in refused.value.diagnostics()
    assert (pair.charge("clinic", release), pair.coordinator.found(release).approvals, noise.calls) == (None, {}, [])
    coordinator.tell_the_truth()
    pair.step("clinic")
    assert set(pair.coordinator.found(release).approvals) == {"clinic"}


def test_one_spec_replayed_in_two_consortia_of_one_operator_is_released_once(pair: Consortium) -> None:
    """The same signed bytes, so the same id: what was debited and sent in the first opens nothing in the second."""
    release = publish(pair)
    second = second_beside(pair)
    other, spec = HostileCoordinator(second), pair.coordinator.found(release)
    with pair.agent("clinic") as agent:
        before, sent = agent.ledger.spent(), list(pair.coordinator.received["clinic"])
    assert other.plant(spec.spec.payload_bytes, key=pair.coordinator.key) == release
    again = other.plant(encode(spec.document.model_copy(update={"proposer": other.real.key.fingerprint})))
    for state in ("proposed", "approved"):
        for replayed in (release, again):
            other.show(replayed, state=state, approvals=view_of(spec.approvals))
        with pair.agents("clinic") as agents:
            agent = next(one for one in agents.consortia if one.membership.name == "second")
            with pytest.raises(ConflictError, match="of another consortium"):
                agent.handle(agent.client.release(release), release)
            with suppress(CommingleError):
                agent.handle(agent.client.release(again), again)
            assert (agents.ledger.spent(), agents.ledger.charge(again)) == (before, None)
    assert (pair.coordinator.received["clinic"], second.coordinator.received) == (sent, {})


# an altered member


def test_party_that_shows_two_sets_of_columns_gets_nobodys_block(pair: Consortium) -> None:
    release = replied(pair)
    first, other = messages(pair, release, "columns")["clinic"], AlteredMember(pair, "clinic").other_columns(release)
    replace_message(pair, release, "clinic", *other, kind="columns")
    with pytest.raises(DeviationError, match="two sets of columns"):
        pair.step("insurer")
    assert (pair.state(release), "insurer" in pair.coordinator.received) == ("aborted", False)
    said = rejection_of(pair, release, "insurer")
    assert (said.about, said.evidence) == ("clinic", (first, other[0]))
    require_evidence(pair.coordinator.exchange(release).spec, said)  # as anybody can who is shown the release


@pytest.mark.parametrize("evidence", ["one twice", "its own", "forged", "of another kind", "of another release"])
def test_member_that_accuses_another_without_two_statements_of_it_is_refused(pair: Consortium, evidence: str) -> None:
    release, accuser = columned(pair), AlteredMember(pair)
    said = messages(pair, release, "columns")["clinic"]
    other, _ = AlteredMember(pair, "clinic").other_columns(release)
    elsewhere = decode(ColumnsStatement, other.payload_bytes).model_copy(update={"spec": "ab" * 32})
    shown = {
        "one twice": (said, said),
        "its own": (messages(pair, release, "columns")["insurer"], accuser.other_columns(release)[0]),
        "forged": (said, accuser.sign(decode(ColumnsStatement, other.payload_bytes))),
        "of another kind": (said, pair.coordinator.found(release).approvals["clinic"]),
        "of another release": (said, AlteredMember(pair, "clinic").sign(elsewhere)),
    }[evidence]
    with pytest.raises(RemoteProblemError):
        accuser.complain(release, about="clinic", evidence=shown)
    assert (pair.state(release), pair.coordinator.found(release).rejections) == ("approved", {})
    accuser.complain(release, about="clinic", evidence=(said, other))
    assert pair.state(release) == "aborted"


@pytest.mark.parametrize("quoted", ["its fellow's second set", "what its fellow never signed"])
def test_reply_to_columns_that_nobody_else_has_seen_is_not_opened(pair: Consortium, quoted: str) -> None:
    """Its fellow is named by its own second signature, and whoever invents one by its own reply."""
    release, noise = replied(pair), Noise()
    exchange, shown = pair.coordinator.exchange(release), messages(pair, release, "columns")
    second, _ = AlteredMember(pair, "clinic").other_columns(release)
    columns = quotations(exchange, {**shown, "clinic": second})
    forged = quoted == "what its fellow never signed"
    if forged:
        sig = quotations(exchange, shown)["clinic"].sig
        columns["clinic"] = columns["clinic"].model_copy(update={"sig": sig})
    other = resigned(pair, release, "insurer", "reply", columns=columns)
    replace_message(pair, release, "insurer", other, body_of(pair, release, "insurer", "reply"), kind="reply")
    with pytest.raises(DeviationError) as found:
        pair.step("clinic", draw=noise)
    assert found.value.party == ("insurer" if forged else "clinic")
    assert found.value.evidence == (None if forged else (second, shown["clinic"]))
    assert (noise.calls, "clinic" in pair.coordinator.received) == ([], False)


@pytest.mark.parametrize("to", ["clinic", "insurer"])
def test_second_approval_that_one_party_is_shown_gives_no_release(pair: Consortium, to: str) -> None:
    """Altered member and coordinator together: two sets of approvals of one spec, and no release of blocks of both."""
    coordinator, release = HostileCoordinator(pair), approved_by_all(pair)
    second = AlteredMember(pair).approval(release, ledger_head="1" * 64)
    both = pair.coordinator.found(release).approvals | {"insurer": second}
    coordinator.show(release, approvals=view_of(both), to=to)
    for _ in range(2):
        for name in ("clinic", "insurer"):
            try_step(pair, name)
    assert pair.state(release) == "collecting"
    assert set(pair.coordinator.found(release).blocks) == {"clinic", "insurer"} - {to}
    assert len({*pair.coordinator.received.get("clinic", ())}) <= 1  # the same bytes, however often they are refused


def test_member_with_another_list_of_subjects_costs_nobody_anything(pair: Consortium) -> None:
    release, noise = pair.propose(), Noise()
    pair.step("clinic")
    AlteredMember(pair).approve(release)
    pair.step("clinic", draw=noise)
    assert (pair.state(release), state_of(pair, release), noise.calls) == ("aborted", ChargeState.RELEASED, [])


def test_block_other_than_the_signed_one_is_not_taken(pair: Consortium) -> None:
    release, member = approved_by_all(pair), AlteredMember(pair)
    pair.step("clinic")
    found = pair.coordinator.found(release)
    with pytest.raises(RemoteProblemError):  # the clinic's, under its statement
        member.upload(release, found.blocks["clinic"], found.body("clinic"))
    said = decode(BlockStatement, found.blocks["clinic"].payload_bytes).model_copy(update={"party": "insurer"})
    with pytest.raises(RemoteProblemError):  # the clinic's, as its own
        member.upload(release, member.sign(said), found.body("clinic"))
    assert set(found.blocks) == {"clinic"}


@pytest.mark.parametrize("mechanism", ["rmgm", "dgm"])
def test_member_that_clips_nothing_changes_no_other_members_block(tmp_path: Path, mechanism: str) -> None:
    sent = {}
    for altered in (Agent, Unclipped):
        pair = consortium_of(tmp_path / altered.__name__, "clinic", "insurer")
        approved_by_all(pair, mechanism=mechanism)
        AlteredMember(pair).step(altered, draw=Noise())
        pair.step("clinic", draw=Noise())
        sent[altered] = pair.coordinator.received
    assert sent[Agent]["insurer"] != sent[Unclipped]["insurer"]
    assert sent[Agent]["clinic"] == sent[Unclipped]["clinic"]


@pytest.mark.parametrize("by", ["member", "coordinator"])
def test_padded_proposal_with_hidden_text_is_taken_by_nobody(pair: Consortium, by: str) -> None:
    """White space holds a message that no signed document may hold, whoever signs it and whoever shows it."""
    coordinator, member = HostileCoordinator(pair), AlteredMember(pair)
    pair.enrol_everybody()
    key = member.key if by == "member" else pair.coordinator.key
    plain = encode(pair.spec(proposer=key, title="padded"))
    assert problem(member.offer(plain + b" \t" * 64)) == (422, "document")
    assert (member.offer(plain).status_code == 201) == (by == "member")  # nothing else speaks against it
    release = coordinator.plant(plain + b" \t" * 64, key=key)
    with pair.agent("clinic") as agent, pytest.raises(DocumentError, match="not in its canonical encoding"):
        agent.handle(agent.client.release(release), release)
    assert pair.charge("clinic", release) is None


@pytest.mark.slow
def test_old_head_of_another_member_is_no_way_back(pair: Consortium) -> None:
    """The coordinator has forgotten, a member brings an old head: the newest comes back at once."""
    coordinator, member, user = HostileCoordinator(pair), AlteredMember(pair), LocalUser(pair)
    publish(pair, title="first")
    old, backup = member.heads()["clinic"], user.back_up()
    publish(pair, title="second")
    with pair.agent("clinic") as agent:
        newest, cap = agent.ledger.summit().head, agent.ledger.spent()
    coordinator.forget_heads()
    member.relay_head("clinic", old)
    pair.step("clinic")  # knows the old one, so it goes on, and brings the newest
    assert open_head(member.heads()["clinic"])[0].head == newest
    with pytest.raises(RemoteProblemError):
        member.relay_head("clinic", old, after=newest)
    user.restore(backup)
    refuse_to_start(pair)
    adopt_all(pair)
    with pair.agent("clinic") as agent:
        assert agent.ledger.spent() == cap


# a local user


def test_no_proxy_sees_anything_of_a_command(pair: Consortium, monkeypatch: pytest.MonkeyPatch) -> None:
    user = LocalUser(pair)
    with (
        user.proxy(monkeypatch) as seen,
        pair.agent("clinic") as agent,
        serving_at(user.home.socket, operator_app(agent)),
        agent_client(user.home) as client,
    ):
        assert client.status().name == "clinic"
        assert client.proposals() == ()
    assert seen == []


def test_process_on_the_port_of_a_killed_agent_is_sent_nothing(pair: Consortium) -> None:
    user = LocalUser(pair)
    with (
        user.old_port() as seen,
        pair.agent("clinic"),
        pytest.raises(AgentRunningError),
        agent_client(user.home) as client,
    ):
        client.proposals()
    assert seen == []


def test_coordinator_that_was_set_back_too_is_corrected_by_a_fellow_member(pair: Consortium) -> None:
    coordinator, user = HostileCoordinator(pair), LocalUser(pair)
    backup = user.back_up()
    publish(pair)
    waiting = pair.propose(title="waits")
    coordinator.forget_heads()
    user.restore(backup)
    pair.step("insurer")  # a fresh start, as after every loss of touch
    refuse_to_start(pair)
    assert "clinic" not in pair.coordinator.found(waiting).approvals


@pytest.mark.slow
def test_newest_ledger_goes_on_after_an_old_copy_has_signed(pair: Consortium) -> None:
    """The old copy was lied to: it was shown no head and nothing of the past. The newest is not halted for ever."""
    coordinator, copy = HostileCoordinator(pair), LocalUser(pair).copy()
    past = publish(pair)
    stolen = pair.propose(title="approved by the copy")
    coordinator.hide_heads()
    coordinator.hide(past)  # or its own signatures there would tell it
    with pair.agent("clinic", home=copy) as agent:
        agent.handle(agent.client.release(stolen), stolen)
    coordinator.tell_the_truth()
    assert set(pair.coordinator.found(stolen).approvals) == {"clinic"}
    refuse_to_start(pair)
    refuse_to_start(pair)
    assert [lost.release for lost in adopt_all(pair).releases] == [stolen]
    pair.step("clinic")  # what the copy approved is given up: it was charged, and its block is not here
    assert pair.state(stolen) in {"rejected", "aborted"}
    publish(pair, title="goes on")


def test_backup_restored_while_one_of_two_coordinators_lies_signs_nothing(pair: Consortium) -> None:
    second, user = second_beside(pair), LocalUser(pair)
    liar, backup, release = HostileCoordinator(second), user.back_up(), pair.propose()
    for _ in range(3):
        step_everywhere(pair)
        pair.step("insurer")
    assert pair.state(release) == "published"
    waiting = second.propose(title="waits")
    liar.hide_heads()
    user.restore(backup)
    for _ in range(2):
        with pair.agents("clinic") as agents:
            for agent in agents.consortia:
                with pytest.raises(StaleLedgerError):
                    agent.step(strictly)
            assert agents.ledger.length == 0
    assert second.coordinator.found(waiting).approvals == {}


@pytest.mark.slow
def test_ledger_cut_back_by_sql_while_the_coordinator_forgets_is_noticed(pair: Consortium) -> None:
    """What is left of the ledger is a whole chain, and neither the home nor the coordinator has a later head."""
    coordinator, user = HostileCoordinator(pair), LocalUser(pair)
    publish(pair, title="first")
    with pair.agent("clinic") as agent:
        length = agent.ledger.length
    release = publish(pair, title="second")
    coordinator.forget_heads()
    user.edit("DELETE FROM heads")
    user.edit("DELETE FROM entries WHERE seq > ?", length)
    for table in ("to_read", "signatures", "proposals"):
        user.edit(f"DELETE FROM {table} WHERE release = ?", release)  # noqa: S608 - names of tables
    user.mend_checks()
    with pair.agent("clinic") as agent:
        agent.ledger.verify()
    waiting = pair.propose(title="waits")
    pair.step("insurer")
    coordinator.hide(release, to="clinic")  # or its own signatures there would tell it
    refuse_to_start(pair)
    assert "clinic" not in pair.coordinator.found(waiting).approvals
