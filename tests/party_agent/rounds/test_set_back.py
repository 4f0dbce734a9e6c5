"""Attacks on a party's budget: ledgers that are set back, copied or doubled, and coordinators that are or help."""

import json
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from io import StringIO
from pathlib import Path

import pytest

from commingle.__main__ import main
from commingle.party_agent.edge.loop import Loop
from commingle.party_agent.edge.views import export_audit
from commingle.party_agent.errors import ConflictError, LedgerError, StaleLedgerError, UnwitnessedError
from commingle.party_agent.operate.backup import LostBranch, adopt_branch, find_lost_branch
from commingle.party_agent.operate.compose import compose_agents
from commingle.party_agent.regression.service import Regressions
from commingle.shared.documents.model import encode
from commingle.shared.documents.regression import RegressionRequest
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.dp.accounting import NOTHING, Cost, Rho
from commingle.shared.release.audit import verify_party_audit
from commingle.shared.release.charge import ChargeState
from commingle.shared.release.checks import closed
from commingle.shared.release.plan import plan_block
from commingle.shared.release.rounds import State
from commingle.shared.runtime.settings import system_clock
from tests.hostile.actors import HostileCoordinator, LocalUser
from tests.party_agent.regression.asking import ATTRIBUTES, ROWS, clinic, request
from tests.party_agent.releasing import cut_off, dying_at, look, publish
from tests.world.consortium import BY_A_PERSON, SCHEMAS, Consortium, N, Noise, second_beside, soon, strictly
from tests.world.documents import study_of
from tests.world.transport import no_fault, on_a_socket, unreachable
from tests.world.waiting import at_once


def allow(consortium: Consortium, releases: float) -> None:
    """The clinic's cap is so many releases' worth."""
    spec = consortium.spec()
    rho = Rho(int(plan_block(spec, spec.party("clinic")).loss.units * releases))
    home = consortium.homes["clinic"]
    home.save_settings(home.settings().model_copy(update={"epsilon_cap": rho.epsilon(1e-5)}))


def step_everywhere(consortium: Consortium) -> None:
    """One look of the clinic at each of its consortia."""
    with consortium.agents("clinic") as agents:
        for agent in agents.consortia:
            agent.step(strictly)


def refuse_to_start(pair: Consortium, name: str = "clinic") -> None:
    """A fresh start ends before anything is signed."""
    with pair.agent(name) as agent:
        before = agent.ledger.history()
        with pytest.raises(StaleLedgerError):
            agent.step(strictly)
        assert agent.ledger.history() == before


def other_noise() -> Noise:
    """What a second drawing gives: not what the first gave."""
    return Noise(calls=[(0, 0)])


def answer(consortium: Consortium, wanted: RegressionRequest, *, draw: Noise | None = None) -> SignedDocument | None:
    with consortium.agent("clinic", draw=draw) as agent:
        return Regressions(agent).ask(wanted).document


def adopt_all(consortium: Consortium, name: str = "clinic") -> LostBranch:
    with consortium.agents(name) as agents:
        branch = find_lost_branch(agents)
        adopt_branch(agents, branch)
        agents.ledger.verify()
        assert not find_lost_branch(agents)
        verify_party_audit(encode(export_audit(agents)))
        return branch


# one budget


def test_second_consortium_gives_no_second_cap(pair: Consortium) -> None:
    second = second_beside(pair)
    allow(pair, 1.5)
    first, other = pair.propose(), second.propose(title="another study")
    for _ in range(2):
        step_everywhere(pair)
    with pair.agents("clinic") as agents:
        decisions = {release: agents.proposals.get(release).decision for release in (first, other)}
        assert sorted(decisions.values()) == ["approved", "rejected"]
        (refused,) = (release for release, decision in decisions.items() if decision == "rejected")
        assert "epsilon_cap" in str(agents.proposals.get(refused).findings)
        with pytest.raises(ConflictError):
            agents.approve(refused, BY_A_PERSON)
        assert len(agents.ledger.charges()) == 1


def test_loops_of_two_consortia_do_not_pass_the_cap_together(pair: Consortium) -> None:
    second = second_beside(pair)
    allow(pair, 1.5)
    pair.propose(), second.propose(title="another study")
    with pair.agents("clinic") as agents:

        def attend(_: str, work: Callable[[], None]) -> None:
            with suppress(ConflictError):  # the other one was approved after this one was examined
                work()

        at_once(*(partial(agent.step, attend) for agent in agents.consortia))
        assert len(agents.ledger.charges()) == 1
        assert agents.ledger.spent() <= agents.ledger.cap.rho


def test_population_that_is_renamed_in_the_settings_is_refused(pair: Consortium) -> None:
    publish(pair)
    home = pair.homes["clinic"]
    home.save_settings(home.settings().model_copy(update={"population": "staff"}))
    with pytest.raises(LedgerError, match="population default, and the settings name staff"), compose_agents(home):
        pass


def test_release_of_one_consortium_cannot_be_ended_by_the_coordinator_of_another(pair: Consortium) -> None:
    second = second_beside(pair)
    release = pair.propose()
    step_everywhere(pair)
    with pair.agents("clinic") as agents:
        shown = agents.consortia[0].client.release(release) if agents.consortia[0].membership.name == "trial" else None
        shown = shown or agents.consortia[1].client.release(release)
        other = next(agent for agent in agents.consortia if agent.membership.name == second.name)
        with pytest.raises(ConflictError, match="of another consortium"):
            other.handle(shown.model_copy(update={"state": State.ABORTED}), release)
        assert [charge.state for charge in agents.ledger.charges().values()] == ["reserved"]


# set back


@pytest.fixture
def hospital(tmp_path: Path) -> Consortium:
    return clinic(tmp_path)


def test_backup_restored_four_times_gives_one_answer_to_one_regression(hospital: Consortium) -> None:
    backup = LocalUser(hospital).back_up()
    assert answer(hospital, request()) is not None
    for _ in range(4):
        LocalUser(hospital).restore(backup)
        noise = other_noise()
        with hospital.agent("clinic", draw=noise) as agent:
            with pytest.raises(StaleLedgerError):
                Regressions(agent).ask(request())
            assert (noise.drawn, agent.ledger.charges()) == ([], {})


@pytest.mark.parametrize("newest", ["published", "approved"])
def test_old_backup_with_an_open_proposal_signs_nothing_over_two_starts(pair: Consortium, newest: str) -> None:
    backup = LocalUser(pair).back_up()
    if newest == "published":
        publish(pair)
    else:
        pair.propose()
        pair.step("clinic")
    waiting = pair.propose(title="waits")
    LocalUser(pair).restore(backup)
    for _ in range(2):
        refuse_to_start(pair)
    with pair.agents("clinic") as agents, pytest.raises(StaleLedgerError):
        agents.consortia[0].approve(waiting, BY_A_PERSON)
    assert pair.coordinator.found(waiting).approvals == {}


def test_proposal_over_an_old_ledger_is_not_signed(pair: Consortium) -> None:
    backup = LocalUser(pair).back_up()
    publish(pair)
    before = pair.coordinator.releases()
    LocalUser(pair).restore(backup)
    with pair.agents("clinic") as agents, pytest.raises(StaleLedgerError):
        agents.propose(study_of({name: SCHEMAS[name] for name in pair.homes}, k=16, n=N))
    assert pair.coordinator.releases() == before


def test_restored_ledger_adopts_what_was_spent_and_goes_on(pair: Consortium) -> None:
    backup = LocalUser(pair).back_up()
    release = publish(pair)
    waiting = pair.propose(title="waits")
    with pair.agent("clinic") as agent:
        spent = agent.ledger.spent()
    LocalUser(pair).restore(backup)
    refuse_to_start(pair)
    branch = adopt_all(pair)
    assert [lost.release for lost in branch.releases] == [release]
    assert branch.unexplained == Cost(NOTHING, NOTHING).approximate()
    with pair.agent("clinic") as agent:
        assert agent.ledger.spent() == spent
        assert not agent.ledger.lost().loss.gaussian  # which version of an agent spent it nobody knows
        assert agent.ledger.charge_of(release).state is ChargeState.ADOPTED
    look(pair, "clinic", "insurer", "clinic", "insurer", "clinic")
    assert pair.state(waiting) == "published"


def test_delta_of_a_lost_exchange_is_adopted_once_and_under_its_release(pair: Consortium) -> None:
    backup = LocalUser(pair).back_up()
    release = pair.propose(mechanism="moments")
    look(pair, *8 * ("clinic", "insurer"))
    assert pair.state(release) == "published"
    with pair.agent("clinic") as agent:
        lost = agent.ledger.lost()
        assert lost.loss.delta == closed(agent.proposals.get(release).spec).taken_by_exchange > 0
    LocalUser(pair).restore(backup)
    branch = adopt_all(pair)
    assert branch.unexplained == Cost(NOTHING, NOTHING).approximate()
    with pair.agent("clinic") as agent:
        assert agent.ledger.lost() == lost.approximate()


def test_adopted_release_is_remembered_beyond_the_retention_of_what_was_never_charged(pair: Consortium) -> None:
    backup = LocalUser(pair).back_up()
    release = publish(pair)
    LocalUser(pair).restore(backup)
    adopt_all(pair)
    pair.step("clinic")
    for title in ("a month later", "and one more"):
        soon(pair, hours=24 * 31)
        later = pair.propose(title=title)
        pair.step("clinic")
        assert "clinic" in pair.coordinator.found(later).approvals
    with pair.agent("clinic") as agent:
        assert agent.proposals.get(release).spec.study == "study"


def test_restored_ledger_adopts_a_regression_that_nobody_can_name(hospital: Consortium) -> None:
    answer(hospital, request(1))
    backup = LocalUser(hospital).back_up()
    answer(hospital, request(2))
    with hospital.agent("clinic") as agent:
        lost = agent.ledger.lost()
    LocalUser(hospital).restore(backup)
    branch = adopt_all(hospital)
    assert branch.releases == ()
    with hospital.agent("clinic") as agent:
        assert agent.ledger.spent() == lost.loss.rho
        assert agent.ledger.lost().loss.delta >= lost.loss.delta
        assert agent.lost_by("main")["main"].loss.rho == lost.loss.rho  # it may have been any data set's
    assert answer(hospital, request(3)) is not None


def test_approval_that_came_to_nothing_explains_no_regression_away(hospital: Consortium) -> None:
    backup = LocalUser(hospital).back_up()
    release = hospital.propose(n=ROWS, schemas={"clinic": ATTRIBUTES}, target="charges")
    with hospital.agent("clinic") as agent:
        agent.step(strictly)
        agent.approve(release, BY_A_PERSON)
    assert "clinic" in hospital.coordinator.found(release).approvals
    answer(hospital, request(1))
    with hospital.agent("clinic") as agent:
        of_regression = agent.ledger.charge_of(request(1).id).cost
    LocalUser(hospital).restore(backup)
    branch = adopt_all(hospital)
    assert [found.release for found in branch.releases] == [release]
    assert branch.unexplained.loss.rho == of_regression.loss.rho


def test_restored_ledger_adopts_both_figures_of_keyed_charges_named_or_not(tmp_path: Path) -> None:
    hospital = clinic(tmp_path, keyed=True)
    answer(hospital, request(1, keyed=True))
    backup = LocalUser(hospital).back_up()
    answer(hospital, request(2, keyed=True))
    with hospital.agent("clinic") as agent:
        lost = agent.ledger.lost()
        assert lost.replaced.rho > lost.loss.rho
    LocalUser(hospital).restore(backup)
    adopt_all(hospital)
    with hospital.agent("clinic") as agent:
        assert agent.ledger.lost() == lost.approximate()
        assert agent.lost_by("main")["main"] == lost.approximate()
        agent.ledger.verify()


def test_two_copies_of_a_home_before_one_coordinator_give_one_answer(hospital: Consortium) -> None:
    copy = LocalUser(hospital).copy()
    with hospital.agent("clinic") as one, hospital.agent("clinic", home=copy, draw=other_noise()) as two:
        for agent in (one, two):
            agent.step(strictly)
        assert Regressions(one).ask(request()).document is not None
        with pytest.raises(StaleLedgerError):
            Regressions(two).ask(request())
        assert Regressions(two).get(request().id).document is None
        with pytest.raises(StaleLedgerError):
            two.step(strictly)


def test_coordinator_that_was_set_back_is_corrected_by_the_party_itself(pair: Consortium) -> None:
    backup = LocalUser(pair).back_up()
    publish(pair)
    newest = LocalUser(pair).copy("newest")
    HostileCoordinator(pair).forget_heads()
    pair.step("clinic", home=newest)
    LocalUser(pair).restore(backup)
    refuse_to_start(pair)


def test_ledger_killed_before_its_debit_was_witnessed_has_shown_nothing(hospital: Consortium) -> None:
    backup = LocalUser(hospital).back_up()
    with dying_at("party.regression.stored"):
        answer(hospital, request())
    newest = LocalUser(hospital).copy("newest")
    LocalUser(hospital).restore(backup)
    shown = answer(hospital, request(), draw=other_noise())
    with hospital.agent("clinic", home=newest) as agent, pytest.raises(StaleLedgerError):
        Regressions(agent).ask(request())
    assert answer(hospital, request()) == shown is not None


def test_regression_without_a_witness_is_refused_before_its_debit(hospital: Consortium) -> None:
    hospital.coordinator.before = unreachable("GET", "ledger-heads")
    noise = Noise()
    with hospital.agent("clinic", draw=noise) as agent:
        with pytest.raises(UnwitnessedError, match="nothing was paid for"):
            Regressions(agent).ask(request())
        assert (noise.calls, agent.ledger.charges()) == ([], {})


def test_regression_whose_witness_goes_away_is_kept_and_shown_when_it_is_back(hospital: Consortium) -> None:
    noise = Noise()
    with hospital.agent("clinic", draw=noise) as agent:
        hospital.coordinator.before = unreachable("PUT", "ledger-heads")
        for _ in range(2):
            with pytest.raises(UnwitnessedError, match="the result is kept"):
                Regressions(agent).ask(request())
        assert Regressions(agent).get(request().id).document is None
        drawn = len(noise.calls)
        hospital.coordinator.before = no_fault
        Loop(agent).turn()
        assert Regressions(agent).get(request().id).document is not None
        assert (len(noise.calls), len(agent.ledger.charges())) == (drawn, 1)


def test_block_leaves_only_after_its_debit_was_witnessed(pair: Consortium) -> None:
    release = pair.propose()
    look(pair, "clinic", "insurer")
    cut_off(pair, "clinic", "ledger-heads")
    assert pair.coordinator.received == {}
    look(pair, "clinic", "insurer", "clinic")
    assert pair.state(release) == "published"


def test_majority_of_the_coordinators_has_to_witness(tmp_path: Path, hospital: Consortium) -> None:
    second = Consortium(tmp_path / "second", key=b"\xc1" * 32, name="second")
    second.join("clinic", hospital.homes["clinic"], url="http://second.test")
    hospital.others.append(second)
    second.coordinator.before = unreachable("GET", "ledger-heads")
    with hospital.agent("clinic") as agent, pytest.raises(UnwitnessedError):
        Regressions(agent).ask(request())
    second.coordinator.before = no_fault
    assert answer(hospital, request()) is not None


# damage


@pytest.mark.parametrize("size", [0, 100, 4096, 8192])
def test_truncated_ledger_is_refused_and_never_taken_for_a_new_one(pair: Consortium, size: int) -> None:
    publish(pair)
    home = pair.homes["clinic"]
    for beside in ("ledger.sqlite-wal", "ledger.sqlite-shm"):
        (home.root / beside).unlink(missing_ok=True)
    with home.database.open("r+b") as file:
        file.truncate(size)
    with pytest.raises(LedgerError), compose_agents(home):
        pass
    assert home.database.stat().st_size == size


def test_database_that_is_no_ledger_is_refused(pair: Consortium) -> None:
    home = pair.homes["clinic"]
    home.database.unlink()
    with closing(sqlite3.connect(home.database)) as db:
        db.execute("CREATE TABLE entries (x)")
        db.execute("PRAGMA user_version = 1")
    with pytest.raises(LedgerError), compose_agents(home):
        pass


# commands


def test_adoption_by_command_asks_first_and_finds_nothing_more_afterwards(
    pair: Consortium, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.clock_shows = system_clock()  # commands live in the present
    home = pair.homes["clinic"]
    backup = LocalUser(pair).back_up()
    release = publish(pair)
    LocalUser(pair).restore(backup)

    def run(*arguments: str, said: str = "") -> tuple[int, str]:
        monkeypatch.setattr(sys, "stdin", StringIO(said))
        with pytest.raises(SystemExit) as ended:
            main(["party", "adopt", "--home", str(home.root), *arguments])
        assert isinstance(ended.value.code, int)
        return ended.value.code, capsys.readouterr().out

    with on_a_socket(pair.coordinator.handle) as url:
        known = home.consortium()
        home.join(known.coordinator().model_copy(update={"url": url}), name=known.name)
        assert run(said="n\n")[0] == 130
        assert run("--json", "--yes")[1].count(release) == 1
        assert json.loads(run("--json")[1]) == {
            "adopted": False, "heads": [], "releases": {}, "unexplained": {"rho": 0.0, "delta": 0.0},
        }  # fmt: skip
