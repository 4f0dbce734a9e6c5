"""A coordinator that lies about ledger heads and signatures: it may stop its own releases, and no more than those."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from commingle.party_agent.edge.views import export_audit
from commingle.party_agent.errors import ConflictError
from commingle.party_agent.home.policy import AutoApproval, Policy
from commingle.party_agent.operate.backup import adopt_branch, find_lost_branch
from commingle.party_agent.operate.membership import rotate_key
from commingle.party_agent.rounds.agent import Agent
from commingle.party_agent.rounds.proposals import Proposal
from commingle.shared.documents.dsse import SigningKey
from commingle.shared.documents.model import encode
from commingle.shared.documents.statements import SignedDocument, open_head
from commingle.shared.errors import CommingleError
from commingle.shared.release.audit import verify_party_audit
from commingle.shared.release.charge import ChargeState
from commingle.shared.release.ledger_fold import Ruling
from commingle.shared.release.plan import plan_block
from commingle.shared.release.rounds import State
from commingle.shared.runtime.coordinator_client import CoordinatorClient
from commingle.shared.runtime.errors import RemoteError
from commingle.shared.wire import ReleaseDetails
from tests.hostile.actors import HostileCoordinator, LocalUser
from tests.party_agent.releasing import publish
from tests.party_agent.rounds.test_set_back import adopt_all, refuse_to_start, step_everywhere
from tests.world.consortium import EVERY_KIND, Consortium, second_beside, soon, strictly
from tests.world.documents import ledger_head


def set_back(pair: Consortium) -> str:
    """The clinic's home is what it was before a release; its id."""
    backup = LocalUser(pair).back_up()
    release = publish(pair)
    LocalUser(pair).restore(backup)
    return release


def test_head_under_a_key_that_was_never_this_partys_stops_no_other_consortium(pair: Consortium) -> None:
    publish(pair)
    second = second_beside(pair)
    head = ledger_head(10**6, "ab" * 32, created=pair.clock_shows)
    signed = SignedDocument.of(head, SigningKey(b"\x77" * 32))
    with pair.coordinator.hub.store.write() as tx:
        tx.heads.add(open_head(signed)[0], signed)
    with pair.agents("clinic") as agents:
        assert not find_lost_branch(agents)
        hostile, honest = sorted(agents.consortia, key=lambda one: one.membership.name == "second")
        for agent in (honest, hostile):
            agent.step(strictly)
        assert honest.membership.name == second.name
        with pytest.raises(RemoteError):  # of two witnesses both have to accept, and this one does not
            agents.witnesses.accept(agents.ledger.length)
        agents.witnesses.ask()  # and yet nothing is halted


def test_heads_that_do_not_verify_are_passed_over_in_an_adoption(
    pair: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = set_back(pair)
    refuse_to_start(pair)
    honest = CoordinatorClient.head_history

    def history(client: CoordinatorClient, party: str) -> Iterator[SignedDocument]:
        for signed in honest(client, party):
            yield signed.model_copy(update={"signing_key": "ab" * 32})
            yield signed

    monkeypatch.setattr(CoordinatorClient, "head_history", history)
    assert [lost.release for lost in adopt_all(pair).releases] == [release]


def test_signature_that_is_shown_only_after_the_adoption_is_adopted_too(
    pair: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = set_back(pair)
    honest = CoordinatorClient.release

    def hiding(client: CoordinatorClient, asked: str) -> ReleaseDetails:
        view = honest(client, asked)
        return view.model_copy(update={"blocks": {}, "state": State.COLLECTING})

    with monkeypatch.context() as patched:
        patched.setattr(CoordinatorClient, "release", hiding)
        with pair.agents("clinic") as agents:
            adopt_branch(agents, find_lost_branch(agents))
            spent = agents.ledger.spent()
    refuse_to_start(pair)
    adopt_all(pair)
    with pair.agent("clinic") as agent:
        charge = agent.ledger.charge(release)
        assert charge is not None
        assert (charge.state, agent.ledger.spent()) == (ChargeState.ADOPTED, spent)
        agent.step(strictly)


@pytest.mark.slow
@pytest.mark.parametrize("lie", ["another release", "another spec", "no answer"])
def test_coordinator_that_shows_nothing_that_can_be_adopted_is_left_and_the_rest_adopted(
    pair: Consortium, lie: str
) -> None:
    second, backup = second_beside(pair), LocalUser(pair).back_up()
    release, other = pair.propose(), second.propose(title="another study")
    for _ in range(3):
        step_everywhere(pair)
        for consortium in (pair, second):
            consortium.step("insurer")
    assert (pair.state(release), second.state(other)) == ("published", "published")
    with pair.agents("clinic") as agents:
        spent = agents.ledger.spent()
    LocalUser(pair).restore(backup)
    hostile = HostileCoordinator(second)
    match lie:
        case "another release":
            hostile.show(other, id="0" * 64)
        case "another spec":
            hostile.show_spec(other, second.spec(epsilon=0.1))
        case _:
            hostile.refuse(other, 500, detail=lie)
    with pair.agents("clinic") as agents, pytest.raises(CommingleError, match=lie) as refused:
        find_lost_branch(agents)
    assert "commingle party leave --unannounced --consortium second" in refused.value.remedy
    pair.homes["clinic"].leave("second")
    branch = adopt_all(pair)
    assert [lost.release for lost in branch.releases] == [release]
    with pair.agent("clinic") as agent:  # what was witnessed of the other's is charged without its name
        assert agent.ledger.spent() == spent


def test_adopted_release_counts_for_the_day_it_was_approved_on_and_no_other(pair: Consortium) -> None:
    set_back(pair)
    adopt_all(pair)
    counted = []
    for hours in (1, 24):
        soon(pair, hours=hours)
        with pair.agent("clinic") as agent:
            counted.append(agent.spent_on_today())
    assert counted == [1, 0]


def test_automatic_approvals_of_two_consortia_at_once_are_one_total(
    pair: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = second_beside(pair)
    spec = pair.spec()
    cost = float(plan_block(spec, spec.party("clinic")).loss)
    rule = AutoApproval(proposer="*", mechanisms=EVERY_KIND, max_rho=1.5 * cost)
    pair.homes["clinic"].save_policy(Policy(mechanisms=EVERY_KIND, auto_approve=(rule,)))
    pair.propose(title="one")
    second.propose(title="other")
    approve = Agent.approve
    with pair.agents("clinic") as agents:
        one, other = agents.consortia

        def meanwhile(agent: Agent, release: str, note: Ruling | None) -> Proposal:
            monkeypatch.setattr(Agent, "approve", approve)
            other.step(strictly)  # the other loop's thread, between decision and reservation
            return approve(agent, release, note)

        monkeypatch.setattr(Agent, "approve", meanwhile)
        with pytest.raises(ConflictError, match="automatic approval"):
            one.step(strictly)
        assert [charge.state for charge in agents.ledger.charges().values()] == [ChargeState.RESERVED]
    step_everywhere(pair)
    with pair.agents("clinic") as agents:
        assert len(agents.ledger.charges()) == 1


def test_audit_of_a_party_that_joined_a_consortium_after_it_replaced_its_key_verifies(pair: Consortium) -> None:
    publish(pair)
    with pair.agents("clinic") as agents:
        rotate_key(agents)
    later = Consortium(pair.root / "later", key=b"\xc1" * 32, name="alpha")  # comes before the other by its name
    later.join("clinic", pair.homes["clinic"], url="http://later.test")
    later.add("insurer")
    later.equip("insurer")
    later.pin_everybody()
    pair.others.append(later)
    with pair.agents("clinic") as agents:
        assert [agent.membership.name for agent in agents.consortia] == ["alpha", pair.name]
        history = verify_party_audit(encode(export_audit(agents)))
    assert len(history.told.charges) == 1


def test_time_alone_does_not_bring_back_an_adopted_charge(pair: Consortium) -> None:
    set_back(pair)
    adopt_all(pair)
    with pair.agent("clinic") as agent:
        spent = agent.ledger.spent()
        agent.ledger.release_expired(pair.clock_shows + timedelta(days=3650))
        assert agent.ledger.spent() == spent
