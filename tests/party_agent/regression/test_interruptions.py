"""Regressions that are interrupted, or whose table changes after they were paid for: one charge, one result."""

from threading import Thread

import pytest

from commingle.party_agent.edge.loop import Loop
from commingle.party_agent.errors import ConflictError, LostError
from commingle.party_agent.home.policy import Policy, RegressionPolicy
from commingle.party_agent.regression.service import Regressions
from commingle.shared.documents.regression import RegressionMethod, RegressionRequest
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.dp.accounting import ZERO
from commingle.shared.release.charge import ChargeState
from commingle.shared.runtime import faults
from commingle.shared.runtime.errors import UnreachableError
from tests.party_agent.regression.asking import ATTRIBUTES, clinic, only_charge, register, request, result_of, table
from tests.party_agent.releasing import dying_at
from tests.world.consortium import Consortium, Noise, write_csv
from tests.world.tampering import charge_less
from tests.world.transport import no_fault, unreachable

DRAWS_OF_TWO_STAGES = 5  # sums, squares; squares, products and sums of mapped rows
POINTS = ("party.regression.debited", "party.regression.drawn", "party.committing", "party.regression.stored")


def interrupt(hospital: Consortium, asked: RegressionRequest, point: str = POINTS[0]) -> None:
    """Power is cut when that regression comes to a point; its debit is on the disk."""
    nth = 2 if point == "party.committing" else 1  # the first is that of the debit
    with hospital.agent("clinic") as agent, dying_at(point, nth=nth):
        Regressions(agent).ask(asked)


@pytest.mark.parametrize("method", ["ssp", "two_stage"])
@pytest.mark.parametrize("point", POINTS)
def test_crash_at_any_step_costs_one_charge_and_leaves_one_result(
    hospital: Consortium, point: str, method: RegressionMethod
) -> None:
    asked = request(method=method)
    interrupt(hospital, asked, point)
    with hospital.agent("clinic") as agent:
        (before,) = Regressions(agent).all()
        assert before.document is None  # what is stored is not shown before it is witnessed
        stored = agent.ledger.signature(asked.id, "regression")
        assert (stored is not None) == (point == "party.regression.stored")
        again = Regressions(agent).ask(asked)
        charge = only_charge(agent)
        assert charge.state is ChargeState.STORED
        assert charge.attempt == (1 if point == "party.regression.stored" else 2)
        assert agent.ledger.spent() == charge.loss.rho
        agent.ledger.verify()
    assert again.document is not None
    assert stored in (None, again.document.envelope)


def test_what_is_stored_and_its_signature_are_one_commit(hospital: Consortium) -> None:
    """Else a power cut could part them. The other commit is that of the debit."""
    reached: list[str] = []
    with hospital.agent("clinic") as agent:
        before = faults.arm(reached.append)
        try:
            Regressions(agent).ask(request())
        finally:
            faults.arm(before)
    debited, drawn, committing, stored = POINTS
    until = reached[: reached.index(stored) + 1]  # a later one notes the witness's receipt
    assert [point for point in until if point in POINTS] == [committing, debited, drawn, committing, stored]


@pytest.mark.parametrize("point", POINTS[:3])
def test_loop_finishes_what_a_crash_interrupted_under_the_same_charge(hospital: Consortium, point: str) -> None:
    interrupt(hospital, request(), point)
    noise = Noise()
    with hospital.agent("clinic", draw=noise) as agent:
        spent = agent.ledger.spent()
        for _ in range(2):
            Loop(agent).turn()
            charge = only_charge(agent)
            assert (charge.state, charge.attempt, agent.ledger.spent()) == (ChargeState.STORED, 2, spent)
        drawn = len(noise.calls)
        assert Regressions(agent).ask(request()).document == Regressions(agent).get(request().id).document is not None
        assert len(noise.calls) == drawn > 0


@pytest.mark.parametrize("point", POINTS[:3])
def test_both_stages_are_drawn_after_the_debit_and_again_after_a_crash(hospital: Consortium, point: str) -> None:
    """In one step: never the second stage of one attempt on the sums of another."""
    first, again, asked = Noise(), Noise(), request(method="two_stage")
    states: list[ChargeState] = []
    with hospital.agent("clinic", draw=first) as agent:
        first.meanwhile = lambda: states.append(only_charge(agent).state)
        with dying_at(point, nth=2 if point == "party.committing" else 1):
            Regressions(agent).ask(asked)
    assert set(states) <= {ChargeState.DEBITED}
    assert len(first.calls) == (0 if point == "party.regression.debited" else DRAWS_OF_TWO_STAGES)
    with hospital.agent("clinic", draw=again) as agent:
        result = result_of(Regressions(agent).ask(asked))
        assert agent.ledger.spent() == result.privacy.loss.rho
    assert len(again.calls) == DRAWS_OF_TWO_STAGES
    assert [sigma for sigma, _ in again.calls[:3]] == [int(sigma) for sigma in result.published["sigmas"]]


def test_regression_that_was_paid_for_at_a_lower_price_is_given_up_before_any_noise(hospital: Consortium) -> None:
    """Nothing is drawn, and the loop does not try for ever."""
    interrupt(hospital, request())
    noise = Noise()
    with hospital.agent("clinic", draw=noise) as agent:
        charge_less(agent.ledger, *agent.ledger.charges())
        with pytest.raises(ConflictError, match="another charge"):
            Regressions(agent).ask(request())
        Loop(agent).turn()
        assert (only_charge(agent).state, only_charge(agent).attempt) == (ChargeState.WITHDRAWN, 1)
    assert noise.calls == []


def test_interrupted_regression_keeps_the_bounds_it_was_paid_for(hospital: Consortium) -> None:
    asked = request(bounds={"age": (25.0, 75.0)})
    interrupt(hospital, asked)
    narrower = (ATTRIBUTES[0], NumericAttribute(name="age", lower=30, upper=70), *ATTRIBUTES[2:])
    with hospital.agent("clinic") as agent:
        register(hospital, agent, replace=True, attributes=narrower)
        assert Regressions(agent).ask(asked).document is not None
        assert only_charge(agent).state is ChargeState.STORED


def test_loop_finishes_regressions_only_when_the_ledgers_witness_is_back(hospital: Consortium) -> None:
    interrupt(hospital, request())
    hospital.coordinator.before = unreachable("GET", "")
    with hospital.agent("clinic") as agent:
        with pytest.raises(UnreachableError):
            Loop(agent).turn()
        assert (only_charge(agent).state, only_charge(agent).attempt) == (ChargeState.DEBITED, 1)
        hospital.coordinator.before = no_fault
        Loop(agent).turn()
        assert only_charge(agent).state is ChargeState.STORED


def test_loop_leaves_what_somebody_is_computing_alone_and_pays_for_nothing(hospital: Consortium) -> None:
    noise, looked = Noise(), list[ChargeState]()

    def look() -> None:
        noise.meanwhile = lambda: None
        looking = Thread(target=Loop(agent).turn)
        looking.start()
        looking.join(60)
        looked.append(only_charge(agent).state)

    with hospital.agent("clinic", draw=noise) as agent:
        Regressions(agent).finish(request().id)
        assert agent.ledger.charges() == {}
        noise.meanwhile = look
        Regressions(agent).ask(request())
        assert (looked, only_charge(agent).attempt) == ([ChargeState.DEBITED], 1)


def test_interrupted_regression_whose_snapshot_is_lost_is_given_up_by_the_loop(hospital: Consortium) -> None:
    interrupt(hospital, request())
    lose_snapshots(hospital)
    with hospital.agent("clinic") as agent:
        loop = Loop(agent)
        loop.turn()
        job = agent.jobs.get(request().id)
        assert (only_charge(agent).state, bool(job and job.error)) == (ChargeState.WITHDRAWN, True)
        assert Regressions(agent).get(request().id).document is None


def test_crash_before_the_debit_is_committed_costs_nothing(hospital: Consortium) -> None:
    with hospital.agent("clinic") as agent, dying_at("party.committing"):
        Regressions(agent).ask(request())
    with hospital.agent("clinic") as agent:
        assert agent.ledger.charges() == {}
        assert Regressions(agent).all() == []


def test_result_of_an_attempt_that_was_overtaken_is_not_recorded(hospital: Consortium) -> None:
    noise = Noise()
    with hospital.agent("clinic", draw=noise) as agent:
        regressions = Regressions(agent)

        def overtake() -> None:
            noise.meanwhile = lambda: None
            regressions.ask(request())

        noise.meanwhile = overtake
        with pytest.raises(ConflictError, match="another attempt"):
            regressions.ask(request())
        assert only_charge(agent).state is ChargeState.STORED
        assert len(regressions.all()) == 1


def lose_snapshots(hospital: Consortium) -> None:
    for path in hospital.homes["clinic"].snapshots.iterdir():
        path.unlink()


def test_snapshot_that_is_lost_after_the_debit_gives_the_regression_up_and_stays_charged(hospital: Consortium) -> None:
    noise = Noise()

    def lose(point: str) -> None:
        if point == "party.regression.debited":
            lose_snapshots(hospital)

    faults.arm(lose)
    try:
        with hospital.agent("clinic", draw=noise) as agent, pytest.raises(LostError):
            Regressions(agent).ask(request())
    finally:
        faults.arm(lambda _: None)
    with hospital.agent("clinic") as agent:
        assert only_charge(agent).state is ChargeState.WITHDRAWN
        assert agent.ledger.spent() > ZERO
        with pytest.raises(ConflictError, match="its charge stays"):
            Regressions(agent).ask(request())
        assert Regressions(agent).get(request().id).document is None
    assert noise.calls == []


@pytest.mark.parametrize("again", [False, True])
def test_rows_that_were_paid_for_are_what_is_computed_with(hospital: Consortium, *, again: bool) -> None:
    """However the table changes meanwhile: here another subject, other cells and no attribute that was asked for."""
    interrupt(hospital, request())
    write_csv(hospital.table("clinic"), [{**row, "subject": f"t{i}"} for i, row in enumerate(table(seed=2))])
    with hospital.agent("clinic", draw=Noise()) as agent:
        if again:
            register(hospital, agent, replace=True, attributes=tuple(a for a in ATTRIBUTES if a.name != "smoker"))
        done = Regressions(agent).ask(request())
        assert only_charge(agent).state is ChargeState.STORED
    untouched = clinic(hospital.root / "untouched")
    with untouched.agent("clinic", draw=Noise()) as agent:
        assert result_of(Regressions(agent).ask(request())).coefficients == result_of(done).coefficients


def test_interrupted_auto_is_finished_by_the_method_that_was_paid_for(hospital: Consortium) -> None:
    asked = request(method="auto", epsilon=0.1)
    interrupt(hospital, asked)
    narrower = Policy(regressions=RegressionPolicy(methods=frozenset({"ssp"})))
    hospital.homes["clinic"].save_policy(narrower)
    with hospital.agent("clinic") as agent:
        result = result_of(Regressions(agent).ask(asked))
        assert only_charge(agent).loss == result.privacy.loss
    assert result.method == "two_stage"
