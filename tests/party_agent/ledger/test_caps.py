"""How much is charged and how much may be: caps, and the figures that they are about."""

from functools import partial

import pytest

from commingle.party_agent.errors import LedgerError
from commingle.party_agent.ledger.ledger import Cap
from commingle.party_agent.ledger.store import AgentStore
from commingle.party_agent.private.snapshot import Debit
from commingle.shared.dp.accounting import FREE, RHO_UNITS, ZERO, Cost, Loss, Rho
from commingle.shared.dp.calibration import rho_of_epsilon
from commingle.shared.release.charge import Charge
from commingle.shared.release.rounds import Refused
from tests.party_agent.ledger.book import (
    APPROVALS,
    CAP,
    COORDINATOR,
    LATER,
    TERMS,
    Book,
    R,
    debit,
    debited,
    of,
    reserve,
    reserve_loss,
    share,
    state,
    withdraw,
)
from tests.world.waiting import at_once


@pytest.mark.parametrize("units", [0, -1, -(1 << 70)])
def test_charge_that_is_not_positive_is_refused(ledger: Book, units: int) -> None:
    assert reserve(ledger, "r", Rho(units)) == Refused("a charge must be positive")
    assert ledger.spent() == ZERO


def test_cap_holds_exactly_and_one_unit_more_is_refused(ledger: Book) -> None:
    assert isinstance(reserve(ledger, "most", Rho(CAP.rho.units - 1)), Charge)
    assert isinstance(reserve(ledger, "over", Rho(2)), Refused)
    assert isinstance(reserve(ledger, "fits", Rho(1)), Charge)
    refused = reserve(ledger, "none", Rho(1))
    assert isinstance(refused, Refused)
    assert "budget of population default does not suffice" in refused.reason
    assert ledger.spent() == CAP.rho
    assert ledger.shortfall(of(Rho(1))) is not None


def test_refusal_says_what_it_costs_and_what_is_left(ledger: Book) -> None:
    reserve(ledger, "r", share(2))
    refused = ledger.shortfall(of(CAP.rho))
    assert refused is not None
    assert "costs epsilon 1 and 0.684 is left of 1 " in refused.reason


def test_debit_of_an_expired_spec_is_refused(ledger: Book) -> None:
    reserve(ledger, "r")
    refused = ledger.debit(R, approvals=APPROVALS, now=LATER)
    assert refused == Refused("the spec has expired")
    assert state(ledger, "r") == "reserved"


def test_debit_above_a_cap_that_was_lowered_is_refused(ledger: Book) -> None:
    reserve(ledger, "r", CAP.rho)
    lowered = Book(ledger.store, cap=Cap("default", 0.5, 1e-5))
    assert isinstance(debit(lowered, "r"), Refused)
    assert state(ledger, "r") == "reserved"
    shortfall = lowered.shortfall(of(Rho(1)))
    assert shortfall is not None
    assert "and 0 is left" in shortfall.reason


def test_cap_is_the_populations_over_every_coordinator(ledger: Book) -> None:
    reserve(ledger, "r", share(2))
    assert isinstance(reserve(ledger, "s", share(2), coordinator="e" * 64), Charge)
    assert ledger.spent() == share(2) + share(2)
    assert isinstance(reserve(ledger, "t", share(2), coordinator="f" * 64), Refused)
    assert [charge.terms.coordinator for charge in ledger.charges().values()] == [COORDINATOR, "e" * 64]


def test_population_under_another_name_has_no_budget_of_its_own(ledger: Book) -> None:
    reserve(ledger, "a" * 64, share(2))
    renamed = Book(ledger.store, cap=Cap("staff", 1.0, 1e-5))
    assert renamed.spent() == share(2)
    refused = reserve(renamed, "b" * 64)
    assert isinstance(refused, Refused)
    assert "belongs to population default, not to staff" in refused.reason
    with pytest.raises(LedgerError, match="population default, and the settings name staff") as told:
        renamed.verify()
    assert "Set population back to default" in told.value.remedy


def test_losses_beyond_64_bits_are_kept_exactly(store: AgentStore) -> None:
    ledger = Book(store, cap=Cap("default", 1e8, 1e-5))
    huge = Rho(10**7 * RHO_UNITS + 1)
    assert huge.units.bit_length() > 64
    reserve(ledger, "a", huge)
    reserve(ledger, "b", huge)
    assert ledger.spent().units == 2 * huge.units
    assert ledger.shortfall(of(Rho(RHO_UNITS << 64))) is not None


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 1.0, 10.0, 1e3])
def test_cap_never_allows_more_epsilon_than_was_said(epsilon: float) -> None:
    assert Cap("p", epsilon, 1e-5).rho.epsilon(1e-5) <= epsilon


def test_exchange_at_the_whole_cap_fits_under_it_once(ledger: Book) -> None:
    """Its noise is that of the cap's epsilon at what its own delta leaves: no rounding refuses it."""
    taken = 1e-12
    rho = CAP.rho_beside(Loss(ZERO, taken))
    assert ledger.shortfall(Cost(Loss(CAP.rho, taken))) is not None
    assert ledger.shortfall(Cost(Loss(rho, taken))) is None
    answer = reserve_loss(ledger, "r", Loss(rho, taken))
    assert isinstance(answer, Charge)
    assert (answer.loss.delta, ledger.lost().loss.delta) == (taken, taken)
    assert ledger.lost().loss.epsilon(CAP.delta) <= CAP.epsilon
    assert isinstance(reserve(ledger, "another", Rho(1)), Refused)


def test_reservations_of_many_threads_do_not_pass_a_cap_that_holds_one(ledger: Book) -> None:
    answers = at_once(*(partial(reserve, ledger, f"r{i}", CAP.rho) for i in range(8)))
    assert sum(isinstance(answer, Charge) for answer in answers) == 1
    assert ledger.spent() == CAP.rho


def test_cap_holds_for_rhos_and_deltas_together(ledger: Book) -> None:
    half = Loss(Rho(CAP.rho_beside(Loss(ZERO, CAP.delta / 2)).units // 2), CAP.delta / 4)
    assert isinstance(reserve_loss(ledger, "a", half), Charge)
    assert isinstance(debit(ledger, "a"), Debit)
    assert isinstance(reserve_loss(ledger, "b", half), Charge)
    assert ledger.lost() == Cost(half + half)
    assert ledger.lost().loss.epsilon(CAP.delta) <= CAP.epsilon
    assert ledger.lost().loss.epsilon(CAP.delta) == pytest.approx(CAP.epsilon, rel=1e-6)
    # the rho alone would fit under the cap at its whole delta
    assert half.rho + half.rho + Rho(RHO_UNITS // 1000) <= CAP.rho
    assert isinstance(reserve(ledger, "c", Rho(RHO_UNITS // 1000)), Refused)


def test_cap_beside_a_charge_that_is_not_known_to_be_gaussian_is_that_of_zcdp(ledger: Book) -> None:
    older = Loss(Rho(int(rho_of_epsilon(CAP.epsilon, CAP.delta) * RHO_UNITS) // 2), gaussian=False)
    ledger.adopt([("a" * 64, Cost(older), TERMS)], [], ["e" * 64], height=1)
    assert (ledger.lost().loss.gaussian, next(iter(ledger.charges().values())).loss) == (False, older)
    rest = Rho(int(rho_of_epsilon(CAP.epsilon, CAP.delta) * RHO_UNITS)) - older.rho
    assert older.rho + rest < CAP.rho
    assert isinstance(reserve(ledger, "b" * 64, rest + Rho(1)), Refused)
    assert isinstance(reserve(ledger, "b" * 64, rest), Charge)
    assert ledger.lost().loss.epsilon(CAP.delta) <= CAP.epsilon
    ledger.verify()


def test_own_charge_that_a_lost_branch_used_too_is_not_known_to_be_gaussian_any_more(ledger: Book) -> None:
    assert isinstance(reserve(ledger, "a" * 64), Charge)
    ledger.adopt([("a" * 64, Cost(Loss(share(4), gaussian=False)), TERMS)], [], ["e" * 64], height=1)
    assert ledger.lost() == Cost(Loss(share(4), gaussian=False))
    ledger.verify()


def test_ledger_of_gaussian_charges_reaches_the_cap_by_the_exact_curve(ledger: Book) -> None:
    debited(ledger, "a")
    assert isinstance(reserve(ledger, "b", CAP.rho - share(4)), Charge)
    assert ledger.lost().loss.epsilon(CAP.delta) == pytest.approx(CAP.epsilon, rel=1e-9)
    assert float(CAP.rho) > 1.1 * rho_of_epsilon(CAP.epsilon, CAP.delta)


def test_delta_that_is_used_up_is_refused_in_words(ledger: Book) -> None:
    refused = reserve_loss(ledger, "a", Loss(Rho(1), CAP.delta))
    assert isinstance(refused, Refused)
    assert "takes a delta of 1e-05 in full, and 1e-05 is left of 1e-05" in refused.reason
    assert isinstance(reserve_loss(ledger, "a", Loss(Rho(1), CAP.delta * 0.9)), Charge)
    assert isinstance(reserve_loss(ledger, "b", Loss(Rho(1), CAP.delta * 0.2)), Refused)


def test_released_charge_gives_its_delta_back(ledger: Book) -> None:
    reserve_loss(ledger, "a", Loss(Rho(1), CAP.delta / 2))
    withdraw(ledger, "a")
    assert ledger.lost() == FREE


def test_sums_of_both_figures_are_those_of_their_charges(ledger: Book) -> None:
    """Of keyed data sets each by itself; of a listed one both are what it was charged."""
    keyed = [(Loss(Rho(5), 1e-7), Loss(Rho(9), 2e-7)), (Loss(Rho(4)), Loss(Rho(1)))]
    for place, (loss, replacement) in enumerate(keyed):
        assert isinstance(reserve_loss(ledger, str(place) * 64, loss, replacement), Charge)
    assert ledger.lost() == Cost(Loss(Rho(9), 1e-7), Loss(Rho(10), 2e-7))
    assert isinstance(reserve_loss(ledger, "a" * 64, Loss(Rho(100))), Charge)
    assert ledger.lost() == Cost(Loss(Rho(109), 1e-7), Loss(Rho(110), 2e-7))
    ledger.adopt([("1" * 64, Cost(*keyed[1]), TERMS)], [], ["e" * 64], height=1)
    assert [charge.cost for charge in ledger.charges().values()][1] == Cost(*keyed[1]).approximate()
    assert ledger.summit().spent == Cost(*keyed[1]).approximate()
    ledger.verify()


@pytest.mark.parametrize(("loss", "replacement"), [(3, 1), (1, 3)])
@pytest.mark.parametrize("counts", [False, True])
def test_cap_counts_the_second_figure_where_the_policy_says_so_and_the_first_always(
    ledger: Book, loss: int, replacement: int, *, counts: bool
) -> None:
    book = Book(ledger.store, cap=CAP, counts_replacement=lambda: counts)
    quarter = share(4).units
    for release in "ab":
        answer = reserve_loss(book, release, Loss(Rho(loss * quarter)), Loss(Rho(replacement * quarter)))
        if release == "a" or (loss == 1 and not counts):
            assert isinstance(answer, Charge)
        else:
            assert isinstance(answer, Refused)
            assert ("add_remove" if loss == 3 else "replace_one") in answer.reason


def test_debit_of_a_second_figure_that_the_policy_has_come_to_count_is_refused(ledger: Book) -> None:
    assert isinstance(reserve_loss(ledger, "r", Loss(share(4)), Loss(share(1) + share(4))), Charge)
    stricter = Book(ledger.store, cap=CAP, counts_replacement=lambda: True)
    assert isinstance(debit(stricter, "r"), Refused)
    assert isinstance(debit(ledger, "r"), Debit)
