"""Bytes and seconds of an exchange, and what of delta is no noise's (docs/proofs/delta.md)."""

from datetime import UTC, datetime
from fractions import Fraction
from math import erfc, exp, inf, log, log2, nextafter, sqrt
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.dp.accounting import Cost, Loss, delta_left, rho_left
from commingle.shared.dp.calibration import DRAWN, Calibration
from commingle.shared.errors import DocumentError, VerificationError
from commingle.shared.forecast.forecast import exchange_of
from commingle.shared.forecast.result import exchange_words
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.mechanisms.moments.block import MOMENTS, TAIL, exchange_delta
from commingle.shared.mechanisms.moments.exchange.sizes import exchange_cost
from commingle.shared.proving.ciphertexts import segments
from commingle.shared.proving.lengths import proved_noise
from commingle.shared.release.audit import PartyAudit, PartyHistory, confirm_by_party
from commingle.shared.release.charge import Charge, ChargeState, ChargeTerms
from commingle.shared.release.checks import closed
from commingle.shared.release.ledger_fold import LedgerFold, SignedEntry
from commingle.shared.release.plan import plan_block, plan_blocks, privacy_statement
from commingle.shared.release.verification import verify_release
from commingle.shared.ring.parameters import ROWS_LIMIT, STANDARD, Layout
from tests.golden import world
from tests.shared.mechanisms.moments.exchange.world import THREE, spec_of
from tests.world.side import approved, traffic

COLUMNS_OF_THREE = {"a": 2, "b": 17, "c": 1}
COLUMNS = st.lists(st.integers(1, 60), min_size=2, max_size=6)
ROWS = st.integers(2, ROWS_LIMIT)
TERMS = ChargeTerms(dataset="main", study="s", kind="release", expires=datetime(2026, 1, 5, tzinfo=UTC), coordinator="")


@pytest.mark.parametrize("bounds", ["trusted", "proved"])
def test_bytes_of_all_parties_are_those_of_the_messages_up_once_and_down_to_who_reads_them(
    bounds: Literal["trusted", "proved"],
) -> None:
    exchange = approved(9_000, 3, 3, bounds=bounds).exchange
    cost = exchange_cost(9_000, dict.fromkeys(exchange.parties, 3), proved=exchange.proved)
    assert cost.bytes == sum(p.bytes_sent + p.bytes_received for p in cost.parties) == traffic(exchange)
    for party in cost.parties:
        assert party.bytes_sent == exchange.columns_size(party.name) + exchange.reply_size(party.name)


def test_proofs_cost_what_trusted_bounds_would_save() -> None:
    proved, trusted = (exchange_cost(100_000, COLUMNS_OF_THREE, proved=proved) for proved in (True, False))
    assert (proved.bounds, trusted.bounds) == ("proved", "trusted")
    assert proved.proof_bytes == proved.bytes - trusted.bytes > 0
    assert proved.proof_seconds == pytest.approx(proved.seconds - trusted.seconds)
    assert proved.proof_seconds > trusted.seconds > 0
    assert (trusted.proof_bytes, trusted.proof_seconds) == (0, 0)


def test_costs_grow_with_rows_and_columns() -> None:
    least, *more = (exchange_cost(n, {"a": d, "b": d}, proved=True) for n, d in [(10**4, 5), (10**5, 5), (10**4, 40)])
    assert all(cost.bytes > least.bytes and cost.seconds > least.seconds for cost in more)


@pytest.mark.parametrize(("n", "columns", "proved"), [(ROWS_LIMIT + 1, 1, False), (ROWS_LIMIT, 20, True)])
def test_exchange_that_a_spec_may_not_ask_for_has_no_cost(n: int, columns: int, *, proved: bool) -> None:
    assert MOMENTS.exchange_cost(n, {"a": columns, "b": columns}, proved=proved) is None
    assert MOMENTS.exchange_cost(10_000, {"a": columns, "b": columns}, proved=proved) is not None


def exchanging(bounds: str = "proved", **changes: Any) -> ReleaseSpec:
    return spec_of(THREE, bounds=bounds, **changes)


@pytest.mark.parametrize("n", [2**22, 3 * 2**22, ROWS_LIMIT])
def test_party_proves_its_columns_in_no_more_segments_than_delta_counts(n: int) -> None:
    admitted = [d for d in range(1, 256) if MOMENTS.exchange_cost(n, {"a": d, "b": 1}, proved=True) is not None]
    assert 2 ** (22 - 15) >= max(sum(1 for _ in segments(Layout(b"", n, d))) for d in admitted) > 50


@given(ROWS, COLUMNS, st.booleans())
def test_delta_of_an_exchange_is_the_sum_of_the_proof_and_rounded_up(n: int, columns: list[int], proved: bool) -> None:
    parties = len(columns)
    trusted = 21 * (n * 2**14 + 2**14)
    noise = max(proved_noise(Layout(b"", n, count)) for count in columns[:-1]) if proved else trusted
    assert noise >= trusted - 21 * 2**13
    openings = sum(columns[i] * columns[j] for i in range(parties) for j in range(i))
    proofs = Fraction(1, 2**40) + parties * (parties + 1) * Fraction(1, 2**172)
    exact = openings * Fraction(noise, 2**88) + (proofs if proved else openings * Fraction(1, 2**60))
    assert exchange_delta(n, columns, proved=proved) == exact
    stated = mechanism_of(exchanging()).delta_implementation(n, columns, proved=proved)
    assert exact <= Fraction(stated) <= exact * (1 + Fraction(1, 2**51))


@given(ROWS, st.integers(1, 200))
def test_largest_proved_exchange_takes_less_than_2_to_the_minus_38(rows: int, columns: int) -> None:
    noise = proved_noise(Layout(b"", rows, columns))
    most = STANDARD.most_openings(noise) * STANDARD.flood_delta(noise)
    assert most <= Fraction(1, 2**39)
    assert most + exchange_delta(2, [1] * 64, proved=True) < Fraction(1, 2**38)


@given(st.integers(1, 2**45), st.floats(0, 40))
def test_what_is_counted_for_floods_is_never_more_than_their_distance_costs(noise: int, epsilon: float) -> None:
    distance = Fraction(noise, 2 ** (STANDARD.flood_bits + 1))
    assert STANDARD.flood_delta(noise) <= (1 + Fraction(exp(epsilon))) * distance


def test_noise_beyond_its_tail_costs_less_than_is_counted_at_any_epsilon_up_to_41() -> None:
    assert (1 + exp(41)) * erfc(TAIL / sqrt(2)) < 2.0**-60


def test_tail_of_the_noise_is_less_than_what_both_conversions_leave() -> None:
    """In logarithms to base 2, of 2^48 numbers at the largest epsilon and the least delta that are spoken of."""
    tail = 48 + (2**26 - 2**27) / log(2) + 1
    assert tail < log2(DRAWN) - 1 - 1022
    assert tail + 1022 < -106


@pytest.mark.parametrize("bounds", ["proved", "trusted"])
@pytest.mark.parametrize("calibration", Calibration)
def test_release_states_the_delta_of_its_implementation_and_keeps_epsilon_at_all_of_delta(
    calibration: Calibration, bounds: str
) -> None:
    spec = exchanging(calibration=calibration, bounds=bounds)
    taken = mechanism_of(spec).delta_implementation(4100, [2, 3, 1], proved=bounds == "proved")
    statement = privacy_statement(spec)
    assert (statement.delta, statement.delta_implementation) == (spec.delta, taken)
    assert taken > 0
    for party, plan in zip(statement.per_party, plan_blocks(spec), strict=True):
        assert 0.8 < party.loss.own.epsilon <= spec.epsilon * (1 + 1e-12)
        assert plan.cost == Cost(Loss(plan.loss, taken))
        assert plan.cost.loss.epsilon(spec.delta) <= spec.epsilon * (1 + 1e-12)


def test_epsilon_of_a_release_is_read_at_what_its_exchange_leaves_of_a_small_delta() -> None:
    """At a delta of which the exchange takes nearly all, noise is that of what is left, and more than of the whole."""
    small = exchanging(delta=1e-12)
    left = delta_left(1e-12, closed(small).taken_by_exchange)
    assert 0 < left < 1e-13
    plan = plan_blocks(small)[0]
    assert plan.loss.epsilon(left) <= 1.0 < plan.loss.epsilon(left / 1.001)
    assert plan.loss.epsilon(1e-12) < 1.0


def test_delta_that_the_exchange_takes_in_full_is_refused() -> None:
    taken = closed(exchanging()).taken_by_exchange
    for delta in (taken, taken / 2):
        with pytest.raises(DocumentError, match=r"is not above the .* that an exchange of this size takes"):
            exchanging(delta=delta)
    exchanging(delta=2 * taken)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.01, 1e-3), (0.5, 1e-9), (1.0, 1e-5), (3.0, 1e-5), (10.0, 1e-7)])
def test_exchange_at_the_whole_epsilon_and_delta_of_a_cap_is_within_it(epsilon: float, delta: float) -> None:
    for plan in plan_blocks(exchanging(epsilon=epsilon, delta=delta)):
        assert plan.loss <= rho_left(epsilon, delta, beside=plan.cost.loss)


def test_mechanisms_without_an_exchange_take_nothing_of_delta_and_say_nothing() -> None:
    spec = world.signed_spec("rmgm").document
    assert closed(spec).taken_by_exchange == 0
    assert "delta_implementation" not in privacy_statement(spec).model_dump()
    assert exchange_words(None, 0.0) == ()


def test_plan_says_which_part_of_delta_the_exchange_takes() -> None:
    spec = exchanging()
    design = spec.terms
    assert closed(design).delta_implementation == closed(spec).taken_by_exchange
    said = exchange_words(exchange_of(design), closed(spec).taken_by_exchange)
    assert f"Of delta the exchange takes {closed(spec).taken_by_exchange:.2g}" in " ".join(said)


def test_ledger_debited_without_the_delta_of_the_implementation_confirms_no_release() -> None:
    made = world.release("moments", world.load("drawn"))
    release = verify_release(*made.files, trusted_coordinator=None)
    party = release.spec.parties[0]
    cost = plan_block(release.spec, party).cost
    assert cost.loss.delta > 0

    def history(cost: Cost) -> PartyHistory:
        kinds = {"approval": release.manifest.approvals, "block": release.manifest.blocks}
        return PartyHistory(
            audit=PartyAudit(
                party=party.name,
                coordinator=release.coordinator,
                exported=release.manifest.published,
                head="0" * 64,
                entries=(),
                documents=(),
            ),
            signer=party.verifying_key.fingerprint,
            told=LedgerFold(
                charges={release.release: Charge(population="p", cost=cost, terms=TERMS, state=ChargeState.ACKED)},
                signed={(release.release, kind): SignedEntry(of[party.name].digest, 1) for kind, of in kinds.items()},
            ),
            keys=(party.verifying_key,),
        )

    assert "debit of rho" in confirm_by_party(history(cost), release)
    for wrong in (0.0, nextafter(cost.loss.delta, 0), nextafter(cost.loss.delta, inf)):
        with pytest.raises(VerificationError, match="debited another loss"):
            confirm_by_party(history(Cost(Loss(cost.loss.rho, wrong))), release)
