"""Buckets of keyed subjects: one subject changes one row, from nothing or to nothing; what that costs, and how many."""

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import product
from math import exp, inf, log
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from benchmarks.coverage import SCHEMA, SIZES
from benchmarks.release_law import proposed, study_of
from commingle.shared.documents.row_maps import row_bound, row_sensitivity
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.terms import expected_kept
from commingle.shared.dp.accounting import RHO_UNITS
from commingle.shared.dp.calibration import Calibration, calibrated_rho
from commingle.shared.dp.fixed_point import presence
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.encoding import bounded_rows
from commingle.shared.errors import SpecError
from commingle.shared.forecast.forecast import forecast_of
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.mechanisms.moments.block import LEAST, MOMENTS, MOST, Buckets, chosen_buckets
from commingle.shared.mechanisms.moments.entries import (
    block_sensitivity,
    bounds_of,
    entry_variances,
    outsider_loss,
    own_weight,
    places,
    scales,
)
from commingle.shared.release.checks import closed
from commingle.shared.release.plan import plan_block, plan_blocks
from tests.shared.mechanisms.moments.exchange.world import numbers
from tests.shared.mechanisms.rows.test_keyed_rows import X, spec_of

Integers = NDArray[np.int64]
Names = NDArray[np.uint8]
Table = dict[bytes, Integers]
"""Of one party: rows by pseudonym, presence first."""
BUCKETS = 7
"""So few that most subjects meet others."""


def filled(names: Names, rows: Integers, *, count: int, batch: int = 100) -> Integers:
    buckets = Buckets(range(count), count=count, d=rows.shape[1])
    for start in range(0, len(rows), batch):
        buckets.add(names[start : start + batch], rows[start : start + batch])
    return buckets.total()


def people(n: int, seed: int) -> tuple[Names, Integers]:
    draw = np.random.default_rng(seed)
    rows = np.column_stack([np.full(n, 2**13), draw.integers(-(2**14), 2**14 + 1, (n, 2))])
    return np.frombuffer(draw.bytes(32 * n), np.uint8).reshape(n, 32), rows


@given(seed=st.integers(0, 999), n=st.integers(1, 40), count=st.integers(2, 30), gone=st.integers(0, 39))
def test_one_subject_more_changes_one_bucket_from_nothing_or_to_nothing(
    seed: int, n: int, count: int, gone: int
) -> None:
    names, rows = people(n, seed)
    left = np.delete(np.arange(n), gone % n)
    more, less = filled(names, rows, count=count), filled(names[left], rows[left], count=count)
    [moved] = np.nonzero((more != less).any(axis=1))
    assert len(moved) <= 1
    assert not (more[moved].any() and less[moved].any())


@given(seed=st.integers(0, 999), n=st.integers(1, 40), count=st.integers(2, 30), batch=st.integers(1, 7))
def test_order_and_batches_do_not_matter_and_two_close_a_bucket(seed: int, n: int, count: int, batch: int) -> None:
    names, rows = people(n, seed)
    found = filled(names, rows, count=count)
    order = np.random.default_rng(seed).permutation(n)
    assert np.array_equal(filled(names[order], rows[order], count=count, batch=batch), found)
    for bucket in range(count):
        own = [i for i in range(n) if int.from_bytes(names[i, :8].tobytes(), "big") % count == bucket]
        alone = sum(rows[i] * (-1 if names[i, 8] & 1 else 1) for i in own) if len(own) == 1 else 0
        assert np.array_equal(found[bucket], np.broadcast_to(alone, 3))


def consortium(*widths: int, row_norm: float | None = None) -> ReleaseSpec:
    facts: dict[str, Any] = {"mechanism": "moments", "subjects": "keyed", "buckets": BUCKETS}
    return proposed(
        study_of(numbers("x", sum(widths)), widths, 3, 1.0, first_stage_share=None, row_norm=row_norm, **facts)
    )


CONSORTIA = [
    consortium(1),
    consortium(2, 1),
    consortium(1, 3, 2),
    consortium(2, 2, 2, row_norm=0.5),
    consortium(2, 1, row_norm=1.0),
]


@cache
def hard_rows(spec: ReleaseSpec, party: int) -> Integers:
    """Rows at the ends of the bounds, bounded as an agent does, behind their presence."""
    share = spec.parties[party]
    ends = np.array(list(product((-(2**14), 0, 2**14), repeat=len(share.attributes))), np.int64)
    rows = bounded_rows(share, fraction_bits=14)(2 * ends)
    return np.column_stack([np.full(len(rows), presence(14)), rows])


def pseudonym(bucket: int, number: int, *, negative: bool) -> bytes:
    return bucket.to_bytes(8, "big") + bytes([negative]) + number.to_bytes(23, "big")


def crowded(spec: ReleaseSpec, draw: np.random.Generator) -> list[Table]:
    """A few people at each party, some at several, most of whom meet somebody."""
    found = [Table() for _ in spec.parties]
    for number in range(int(draw.integers(0, 9))):
        name = pseudonym(int(draw.integers(BUCKETS)), number, negative=bool(draw.integers(2)))
        for party, table in enumerate(found):
            if draw.random() < 0.6:
                table[name] = draw.choice(hard_rows(spec, party))
    return found


def moments(tables: Sequence[Table], spec: ReleaseSpec) -> Integers:
    """What is opened but for noise."""
    made = []
    for party, table in zip(spec.parties, tables, strict=True):
        names = np.frombuffer(b"".join(table), np.uint8).reshape(-1, 32)
        rows = np.array(list(table.values()), np.int64).reshape(-1, len(party.block_columns))
        made.append(filled(names, rows, count=BUCKETS))
    everything = np.hstack(made)
    return everything.T @ everything


def by_one(spec: ReleaseSpec, party: int, change: Integers, sigma: int) -> float:
    """mu^2 of what that party adds noise to: own block and cross blocks."""
    share = spec.parties[party]
    own, scale = places(spec.terms)[share.name], scales(spec.terms, share, sigma)
    block = change[own, own]
    squares = float(np.sum(np.diag(block).astype(float) ** 2)) / scale.diagonal**2
    squares += float(np.sum(np.triu(block, 1).astype(float) ** 2)) / scale.off_diagonal**2
    others = np.delete(change[own], np.arange(own.start, own.stop), axis=1)
    return squares + float(np.sum(others.astype(float) ** 2)) / scale.cross**2


def by_all(spec: ReleaseSpec, change: Integers, sigmas: Sequence[int]) -> float:
    """mu^2 of the release to whoever holds no noise; two equal entries are one."""
    real = np.triu(change).astype(float) * 4.0**-14
    variance = entry_variances(spec.terms, sigmas)
    return float(np.sum(real**2 / variance))


@given(seed=st.integers(0, 2**32), place=st.sampled_from(range(len(CONSORTIA))))
def test_no_subject_more_moves_a_block_farther_than_is_charged_and_the_longest_rows_as_far(
    seed: int, place: int
) -> None:
    """Whole tables in which people meet: whoever comes, among whomever, at whichever party."""
    spec, draw = CONSORTIA[place], np.random.default_rng(seed)
    party = int(draw.integers(len(spec.parties)))
    plan, tables = plan_block(spec, spec.parties[party]), crowded(spec, draw)
    bound = float(Fraction(2 * plan.loss.units, RHO_UNITS))
    name = pseudonym(int(draw.integers(BUCKETS)), 99, negative=bool(draw.integers(2)))
    more = [dict(table) for table in tables]
    more[party][name] = draw.choice(hard_rows(spec, party))
    assert by_one(spec, party, moments(more, spec) - moments(tables, spec), plan.sigma) <= bound * (1 + 1e-9)
    alone: list[Table] = [{name: hard_rows(spec, other)[-1]} for other in range(len(spec.parties))]
    without = [table if other != party else {} for other, table in enumerate(alone)]
    attained = by_one(spec, party, moments(alone, spec) - moments(without, spec), plan.sigma)
    assert 0.99 * bound <= attained <= bound * (1 + 1e-9)


@given(seed=st.integers(0, 2**32), place=st.sampled_from(range(len(CONSORTIA))))
def test_no_change_of_values_moves_a_block_farther_than_the_replacement_that_is_stated(seed: int, place: int) -> None:
    """Values of a subject that stays, alone in its bucket or not: its sign and its presence stay too."""
    spec, draw = CONSORTIA[place], np.random.default_rng(seed)
    party = int(draw.integers(len(spec.parties)))
    share, tables = spec.parties[party], crowded(spec, draw)
    name = pseudonym(int(draw.integers(BUCKETS)), 99, negative=bool(draw.integers(2)))
    one, other = ([dict(table) for table in tables] for _ in range(2))
    for changed in (one, other):
        changed[party][name] = draw.choice(hard_rows(spec, party))
    sigma = plan_block(spec, share).sigma
    bound = block_sensitivity(spec.terms, share, Adjacency.REPLACE_ONE) / sigma**2
    assert by_one(spec, party, moments(one, spec) - moments(other, spec), sigma) <= bound * (1 + 1e-9)


@given(seed=st.integers(0, 2**32), place=st.sampled_from(range(len(CONSORTIA))))
def test_no_subject_that_comes_or_goes_at_all_parties_is_told_apart_by_more_than_outsiders_are_said_to_see(
    seed: int, place: int
) -> None:
    """It may fill a bucket here and close it there; or its values change at several parties at once."""
    spec, draw = CONSORTIA[place], np.random.default_rng(seed)
    sigmas, tables = [plan.sigma for plan in plan_blocks(spec)], crowded(spec, draw)
    name = pseudonym(int(draw.integers(BUCKETS)), 99, negative=bool(draw.integers(2)))
    more, changed = ([dict(table) for table in tables] for _ in range(2))
    for party in range(len(spec.parties)):
        if draw.random() < 0.8:
            more[party][name], changed[party][name] = draw.choice(hard_rows(spec, party), 2)
    comes, changes = moments(more, spec) - moments(tables, spec), moments(more, spec) - moments(changed, spec)
    bounds = [2 * float(outsider_loss(spec.terms, sigmas, a)) for a in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE)]
    assert by_all(spec, comes, sigmas) <= bounds[0] * (1 + 1e-9)
    assert by_all(spec, changes, sigmas) <= bounds[1] * (1 + 1e-9)
    longest: list[Table] = [{name: hard_rows(spec, party)[-1]} for party in range(len(spec.parties))]
    empty = [Table() for _ in longest]
    assert by_all(spec, moments(longest, spec) - moments(empty, spec), sigmas) >= 0.99 * bounds[0]


@pytest.mark.parametrize("spec", CONSORTIA)
def test_charge_is_the_form_of_a_row_that_comes_or_goes(spec: ReleaseSpec) -> None:
    for party in spec.parties:
        bounds, own = bounds_of(spec.terms, party), own_weight(spec.terms, party)
        c = row_bound(spec.terms, party)
        assert bounds.c == c
        assert bounds.k == sum(row_bound(spec.terms, other) for other in spec.parties) - c
        assert bounds.e == min(row_sensitivity(spec.terms, party, Adjacency.REPLACE_ONE), 4 * c)
        assert block_sensitivity(spec.terms, party, Adjacency.ADD_REMOVE) == own * c * c + bounds.k * c


def test_study_says_how_many_buckets_there_are_between_two_and_sixteen_for_each_subject() -> None:
    assert spec_of(X, mechanism="moments", buckets=200).terms.table_rows == 200
    assert spec_of(X, mechanism="moments", buckets=1600).terms.table_rows == 1600
    with pytest.raises(SpecError, match="1601 buckets are too many for about 100 people: at most 1600"):
        spec_of(X, mechanism="moments", buckets=1601)
    with pytest.raises(SpecError, match="199 buckets are too few for about 100 people: at least 200"):
        spec_of(X, mechanism="moments", buckets=199)
    found = spec_of(X, mechanism="moments")
    assert mechanism_of(found).intercept(found.terms).shape == (2, 0)


@given(
    n=st.integers(100, 10**6),
    rho=st.floats(1e-3, 10),
    columns=st.lists(st.integers(2, 12), min_size=2, max_size=4).map(tuple),
    proved=st.booleans(),
)
def test_no_other_number_of_buckets_is_better_by_the_stated_formula(
    n: int, rho: float, columns: tuple[int, ...], *, proved: bool
) -> None:
    """Variances of drawing people and of noise, against seconds: a half of the logarithm of ten more."""
    noise = 9 * len(columns) * (sum(columns) / len(columns)) ** 2 / (rho * n)

    def cost(each: int) -> float:
        found = MOMENTS.exchange_cost(each * n, {str(i): d for i, d in enumerate(columns)}, proved=proved)
        seconds = inf if found is None else found.seconds  # of no size of an exchange
        return log(noise * exp(2 / each) + exp(1 / each)) + log(10 + seconds) / 2

    chosen = chosen_buckets(n, rho=rho, columns=columns, proved=proved)
    assert chosen % n == 0
    assert LEAST <= chosen // n <= MOST
    assert all(cost(chosen // n) <= cost(each) for each in (2, 3, 4, 6, 8, 12, 16))


def test_buckets_are_fewer_the_more_people_and_the_less_noise_there_are() -> None:
    rho = {epsilon: calibrated_rho(Calibration.ANALYTIC, epsilon=epsilon, delta=1e-5) for epsilon in (0.3, 1.0, 10.0)}

    def each(n: int, epsilon: float = 1.0, *, proved: bool = True) -> int:
        return chosen_buckets(n, rho=rho[epsilon], columns=(11, 11, 11), proved=proved) // n

    assert [each(n) for n in (100, 10_000, 100_000, 10**6)] == [16, 12, 4, 2]
    assert [each(100_000, epsilon) for epsilon in (0.3, 1.0, 10.0)] == [6, 4, 3]
    assert each(100_000, proved=False) == 6
    assert each(10**9) == LEAST, "an exchange has no such size"


def test_study_its_spec_and_their_forecast_mean_the_same_buckets_and_people() -> None:
    asked = study_of(SCHEMA, SIZES, 20_000, 1.0, mechanism="moments", subjects="keyed")
    spec = proposed(asked)
    assert spec.buckets == closed(asked).table_rows == closed(spec).table_rows
    assert spec.buckets is not None
    assert spec.terms.kept == closed(asked).kept == round(float(expected_kept(20_000.0, spec.buckets)))
    found = forecast_of(spec)
    assert found is not None
    assert found.kept == spec.terms.kept
    said = f"About {found.kept:,} of a member's 20,000 people count: those alone in their bucket, of {spec.buckets:,}."
    assert said in found.sentences
    listed = proposed(study_of(SCHEMA, SIZES, 20_000, 1.0, mechanism="moments"))
    assert listed.terms.kept is None


@pytest.mark.parametrize(("n", "buckets"), [(500, 1000), (4000, 16_000)])
def test_so_many_people_count_as_is_said(n: int, buckets: int) -> None:
    draw = np.random.default_rng(3)
    alone = [(np.bincount(draw.integers(0, buckets, n)) == 1).sum() for _ in range(400)]
    assert expected_kept(float(n), buckets) == pytest.approx(np.mean(alone), abs=4 * np.std(alone) / 20)
