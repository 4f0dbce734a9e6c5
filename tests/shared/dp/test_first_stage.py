"""Noisy sums of a party's columns and the map that follows: bounds against search, the map for any sums at all."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from commingle.shared.dp.accounting import RHO_UNITS, SIGMA_LIMIT, Rho, gaussian_loss
from commingle.shared.dp.fixed_point import (
    CONDITION_LIMIT,
    ROW_SUM_LIMIT,
    SCALE,
    WHITENED_LIMIT,
    clip_rows,
    coarsen,
    quantise,
    squared_row_limit,
)
from commingle.shared.dp.sensitivity import Adjacency, squared_sensitivity
from commingle.shared.dp.two_stages import (
    MOMENTS_ARE_NOISY,
    ROWS_ARE_NOISY,
    FirstStage,
    Kind,
    MeasuredAttribute,
    RadiusRule,
    column_sums,
    first_stage_loss,
    mean_square_errors,
    mean_squares,
    plan_first_stage,
    radius_squared_for,
    scaling,
)
from commingle.shared.errors import ParameterError
from tests.shared.dp.test_sensitivity import LISTED

Rows = NDArray[np.int64]
NUMBER, BINARY = MeasuredAttribute(Kind.NUMERIC), MeasuredAttribute(Kind.BINARY)
LEVELS = MeasuredAttribute(Kind.CATEGORICAL, 3)
MARKED, MARKED_BINARY = MeasuredAttribute(Kind.NUMERIC, 2), MeasuredAttribute(Kind.BINARY, 2)
MIXED = (NUMBER, LEVELS, BINARY, NUMBER)
RHO = Rho(1 << 58)  # 1/64
# where a change of the sums and one of their squares together come nearest to the bound: |q - p| = 1.2352 S
WORST = round(1.2352 * SCALE) - SCALE
STEPS = st.one_of(st.integers(-SCALE, SCALE), st.sampled_from([-SCALE, 1 - SCALE, -1, 0, 1, WORST, SCALE - 1, SCALE]))
RADII = st.one_of(st.fractions(Fraction(1, 4), 6), st.fractions(6, 10**9))
ANY_SUM = st.one_of(st.integers(-(2**62), 2**62), st.integers(-(2**45), 2**45))


def encoded_row(attributes: Sequence[MeasuredAttribute]) -> st.SearchStrategy[list[int]]:
    """What one subject's integers can be (docs/proofs/sensitivity.md, 1)."""
    parts = []
    for attribute in attributes:
        if attribute.kind is Kind.CATEGORICAL:
            one_of = [[0] * attribute.columns, *(np.eye(attribute.columns, dtype=np.int64) * SCALE).tolist()]
            parts.append(st.sampled_from(one_of))
        elif attribute.columns > 1:
            parts.append(st.one_of(STEPS.map(lambda step: [step, 0]), st.just([0, SCALE])))
        else:
            parts.append(STEPS.map(lambda step: [step]))
    return st.tuples(*parts).map(lambda chosen: [step for part in chosen for step in part])


def moved(stage: FirstStage, row: Sequence[int], other: Sequence[int]) -> Fraction:
    """Sum of squared changes over variances, when one subject's row changes."""
    change = column_sums(np.array([row]), stage.attributes) - column_sums(np.array([other]), stage.attributes)
    sums, squares = change[: stage.columns], change[stage.columns :]
    of_squares = Fraction(sum(int(v) ** 2 for v in squares), stage.square_sigma**2)
    return Fraction(sum(int(v) ** 2 for v in sums), stage.sigma**2) + of_squares


@pytest.mark.parametrize("adjacency", LISTED)
@pytest.mark.parametrize("kinds", [MIXED, (MARKED, LEVELS, MARKED_BINARY, NUMBER), (MARKED,)], ids=len)
@given(data=st.data())
def test_no_change_of_a_row_moves_the_sums_farther_than_is_charged(
    adjacency: Adjacency, kinds: tuple[MeasuredAttribute, ...], data: st.DataObject
) -> None:
    stage = plan_first_stage(kinds, n=1000, rho=RHO, adjacency=adjacency)
    row, other = data.draw(encoded_row(kinds)), data.draw(encoded_row(kinds))
    zeros = [0] * stage.columns
    own = moved(stage, row, zeros if adjacency is Adjacency.ZERO_OUT else other)
    assert own <= Fraction(2 * first_stage_loss(stage, adjacency).units, 1 << 64)
    charge = first_stage_loss(stage, Adjacency.REPLACE_ONE)
    assert moved(stage, row, other) <= Fraction(2 * charge.units, 1 << 64)


GRID = [*np.linspace(-SCALE, SCALE, 129).astype(np.int64).tolist(), WORST, -WORST, 1 - SCALE]


@pytest.mark.parametrize("adjacency", LISTED)
@pytest.mark.parametrize(
    ("kind", "rows"),
    [(NUMBER, [[q] for q in GRID]), (MARKED, [*([q, 0] for q in GRID), [0, SCALE]])],
    ids=["number", "marked number"],
)
def test_bound_of_a_number_is_attained_and_no_pair_of_a_grid_exceeds_it(
    kind: MeasuredAttribute, rows: list[list[int]], adjacency: Adjacency
) -> None:
    stage = plan_first_stage((kind,), n=1000, rho=RHO, adjacency=adjacency)
    others = rows if adjacency is Adjacency.REPLACE_ONE else [[0] * kind.columns]
    farthest = max(moved(stage, row, other) for row, other in product(rows, others))
    loss = Fraction(2 * first_stage_loss(stage, adjacency).units, 1 << 64)
    assert Fraction(999, 1000) * loss <= farthest <= loss


def test_mark_is_measured_and_scaled_as_a_level_is() -> None:
    draw = np.random.default_rng(0)
    gone = draw.uniform(size=20_000) < 0.3
    number = np.where(gone, 0, quantise(draw.uniform(-1, 1, 20_000)))
    q = np.column_stack([number, gone * SCALE]).astype(np.int64)
    found = [
        scaling(FirstStage(kinds, len(q), 1, 1), column_sums(q, kinds), radius_squared=Fraction(9, 4))
        for kinds in ((MARKED,), (NUMBER, MeasuredAttribute(Kind.CATEGORICAL, 1)))
    ]
    assert np.array_equal(found[0].centre, found[1].centre)
    assert np.array_equal(found[0].matrix, found[1].matrix)


def test_squares_cost_nothing_under_replace_one_and_a_little_less_noise_would_cost() -> None:
    """(q - p)^2 / s^2 + (q^2 - p^2)^2 / t^2 with t^2 = s^2 4^15 / w stays below 4 S^2 / s^2 up to w = 2.7725."""
    q, p = SCALE, -WORST
    for weight, within in ((Fraction(11, 4), True), (Fraction(14, 5), False)):
        found = (q - p) ** 2 + weight * Fraction(q * q - p * p, SCALE) ** 2
        assert (found <= 4 * SCALE**2) is within


@pytest.mark.parametrize("adjacency", LISTED)
@given(units=st.integers(1 << 40, 1 << 70))
def test_noise_is_the_least_that_keeps_the_share(adjacency: Adjacency, units: int) -> None:
    stage = plan_first_stage(MIXED, n=1000, rho=Rho(units), adjacency=adjacency)
    assert first_stage_loss(stage, adjacency) <= Rho(units)
    less = FirstStage(stage.attributes, stage.n, stage.sigma - 1, stage.square_sigma)
    assert stage.sigma == 1 or first_stage_loss(less, adjacency) > Rho(units)
    weight = {Adjacency.REPLACE_ONE: Fraction(11, 4), Adjacency.ZERO_OUT: Fraction(1)}[adjacency]
    assert weight * (stage.square_sigma - 1) ** 2 < (stage.sigma * SCALE) ** 2 <= weight * stage.square_sigma**2


@pytest.mark.parametrize(
    ("n", "rho", "said"), [(1000, Rho(1 << 10), "too much noise"), (2**31 + 1, RHO, "cannot be summed")]
)
def test_what_exact_arithmetic_cannot_hold_is_refused(n: int, rho: Rho, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        plan_first_stage(MIXED, n=n, rho=rho, adjacency=Adjacency.REPLACE_ONE)


def test_noise_of_sums_and_of_squares_is_drawn_once_at_its_scale() -> None:
    stage, calls = plan_first_stage(MIXED, n=1000, rho=RHO, adjacency=Adjacency.REPLACE_ONE), []

    def draw(sigma: int, count: int) -> Rows:
        calls.append((sigma, count))
        return np.full(count, sigma)

    assert stage.noise(draw).tolist() == [stage.sigma] * 6 + [stage.square_sigma] * 2
    assert calls == [(stage.sigma, 6), (stage.square_sigma, 2)]


@given(
    sums=st.lists(ANY_SUM, min_size=8, max_size=8),
    n=st.integers(1, 2**31),
    sigma=st.sampled_from([1, 2**20, 2**33]),
    radius=RADII,
    weight=st.sampled_from([Fraction(1), Fraction(16)]),
)
def test_any_sums_give_a_map_that_can_be_applied_and_undone(
    sums: list[int], n: int, sigma: int, radius: Fraction, weight: Fraction
) -> None:
    """Else a refusal would be a fact about noise and rows that nobody has paid for."""
    attributes = (*MIXED[:3], MeasuredAttribute(Kind.NUMERIC, weight=weight))
    stage = FirstStage(attributes, n, sigma, min(sigma * SCALE, SIGMA_LIMIT))
    made = scaling(stage, np.array(sums), radius_squared=radius)
    gains = np.diag(made.matrix)
    assert np.array_equal(np.diag(gains), made.matrix)
    assert 0 < gains.min() <= gains.max() <= ROW_SUM_LIMIT << 20
    assert gains.max() <= 5 * sqrt(weight) * gains.min() < CONDITION_LIMIT * gains.min()
    assert np.abs(made.centre).max() <= SCALE
    assert made.centre[1:4].min() >= 0
    ends = np.array([[SCALE] * 6, [-SCALE, 0, 0, 0, -SCALE, -SCALE]])
    assert np.abs(made.rows(ends)).max() <= WHITENED_LIMIT


@given(data=st.data(), fraction_bits=st.sampled_from([14, 15]), radius=RADII)
def test_mapped_and_cut_rows_are_no_farther_apart_than_two_row_norms(
    data: st.DataObject, fraction_bits: int, radius: Fraction
) -> None:
    stage = plan_first_stage(MIXED, n=1000, rho=RHO, adjacency=Adjacency.REPLACE_ONE)
    sums = np.array(data.draw(st.lists(ANY_SUM, min_size=8, max_size=8)))
    made = scaling(stage, sums, radius_squared=radius)
    rows = np.array([data.draw(encoded_row(MIXED)), data.draw(encoded_row(MIXED))])
    mapped = coarsen(made.rows(rows), fraction_bits)
    z = clip_rows(mapped, squared_row_limit(1.0, fraction_bits), largest=WHITENED_LIMIT)
    for adjacency, change in ((Adjacency.REPLACE_ONE, z[0] - z[1]), (Adjacency.ZERO_OUT, z[0])):
        bound = squared_sensitivity(None, row_norm=1.0, adjacency=adjacency, fraction_bits=fraction_bits)
        assert int(change @ change) <= bound


@given(data=st.data(), fraction_bits=st.sampled_from([14, 15]))
def test_no_row_is_cut_where_the_radius_holds_all_of_them(data: st.DataObject, fraction_bits: int) -> None:
    """Columns at the ends of their bounds: s is 1, so r^2 = 2 is beyond the longest row."""
    attributes = (
        BINARY,
        data.draw(st.sampled_from([NUMBER, MeasuredAttribute(Kind.NUMERIC, weight=Fraction(3))])),
        BINARY,
    )
    stage = FirstStage(attributes, 8, 1, 1)
    q = np.array(list(product((-SCALE, SCALE), repeat=3)))
    made = scaling(stage, column_sums(q, attributes), radius_squared=Fraction(2))
    assert not made.centre.any()
    row = np.array([data.draw(encoded_row(attributes))])
    mapped = coarsen(made.rows(row), fraction_bits)
    assert int((mapped**2).sum()) <= squared_row_limit(1.0, fraction_bits)


def table(n: int, seed: int = 0) -> Rows:
    """Rows of a number off centre, three levels and a reference, a lopsided binary and a wide number."""
    random = np.random.default_rng(seed)
    levels = np.eye(4)[random.choice(4, n, p=[0.5, 0.3, 0.15, 0.05])][:, 1:]
    sex = np.where(random.uniform(size=n) < 0.3, 1.0, -1.0)
    number = np.clip(random.normal(-0.4, 0.25, n), -1, 1)
    return quantise(np.column_stack([number, levels, sex, random.uniform(-1, 1, n)]))


def test_exact_sums_centre_the_rows_and_give_them_the_norm_that_was_asked() -> None:
    q = table(20_000)
    stage = FirstStage(MIXED, len(q), 1, 1)
    made = scaling(stage, column_sums(q, MIXED), radius_squared=Fraction(9, 4))
    z = made.rows(q) / SCALE
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-4)
    assert (z**2).sum(axis=1).mean() == pytest.approx(4 / 9, rel=1e-3)
    s = (q / SCALE).std(axis=0)
    assert s.min() > 1 / 5
    np.testing.assert_allclose(z.std(axis=0) / np.sqrt(s), z.std(axis=0)[0] / np.sqrt(s[0]), rtol=1e-3)


def test_rare_level_is_scaled_as_one_of_deviation_a_fifth_and_a_narrow_number_as_it_is() -> None:
    draw = np.random.default_rng(0)
    numbers = quantise(draw.uniform(-1, 1, (20_000, 2)) * [0.15, 0.8])
    rare = (draw.uniform(size=(20_000, 1)) < 0.01) * 2 * SCALE - SCALE
    q = np.hstack([numbers, rare]).astype(np.int64)
    stage = FirstStage((NUMBER, NUMBER, BINARY), len(q), 1, 1)
    gains = np.diag(scaling(stage, column_sums(q, stage.attributes), radius_squared=Fraction(1)).matrix)
    narrow, wide = (numbers / SCALE).std(axis=0)
    assert gains[:2] / gains[2] == pytest.approx(np.sqrt(0.2 / np.array([narrow, wide])), rel=1e-3)


def test_heavier_attribute_is_spread_by_the_root_of_its_weight() -> None:
    q, heavier = table(20_000), (*MIXED[:3], MeasuredAttribute(Kind.NUMERIC, weight=Fraction(4)))
    plain, weighted = (
        scaling(FirstStage(kinds, len(q), 1, 1), column_sums(q, kinds), radius_squared=Fraction(9, 4))
        for kinds in (MIXED, heavier)
    )
    ratios = np.diag(weighted.matrix) / np.diag(plain.matrix)
    assert ratios[-1] == pytest.approx(2 * ratios[0], rel=1e-4)
    assert ratios[:-1] == pytest.approx(ratios[0], rel=1e-4)
    assert ((weighted.rows(q) / SCALE) ** 2).sum(axis=1).mean() == pytest.approx(4 / 9, rel=1e-3)


@given(hnp.arrays(np.int64, (5, 2), elements=STEPS), RADII)
def test_undone_rows_are_the_rows_but_for_truncation(q: Rows, radius: Fraction) -> None:
    stage = FirstStage((NUMBER, NUMBER), len(q), 2**10, 2**25)
    made = scaling(stage, column_sums(q, stage.attributes), radius_squared=radius)
    back, centre = made.undo()
    errors = np.abs(made.rows(q) / SCALE @ back.T + centre - q / SCALE)
    assert (errors <= np.diag(back) / SCALE + 1e-9).all()


def test_noisier_sums_draw_the_map_towards_that_of_columns_nobody_knows() -> None:
    q = table(2_000)
    sums, previous = column_sums(q, MIXED), np.full(6, 2.0)
    for sigma in (1, 2**24, 2**27, 2**31):
        stage = FirstStage(MIXED, len(q), sigma, sigma * SCALE)
        centre = np.abs(scaling(stage, sums, radius_squared=Fraction(1)).centre)
        assert (centre <= previous * SCALE).all()
        previous = centre / SCALE
    assert not previous.any()


def test_exact_sums_give_mean_squares_about_any_centre_where_cells_are_marked_missing_too() -> None:
    marked, draw = (*MIXED, MeasuredAttribute(Kind.BINARY, 2)), np.random.default_rng(1)
    missing = draw.uniform(size=2_000) < 0.2
    q = np.column_stack([table(2_000), np.where(missing, 0, SCALE * draw.choice([-1, 1], 2_000)), missing * SCALE])
    stage, centre = FirstStage(marked, len(q), 1, 1), draw.integers(-SCALE, SCALE, 8)
    found = mean_squares(stage, column_sums(q, marked).tolist(), centre)
    np.testing.assert_allclose(found, (((q - centre) / SCALE) ** 2).mean(axis=0), rtol=1e-9)
    keyed = FirstStage(marked, 7, 1, 1, keyed=True)
    np.testing.assert_allclose(mean_squares(keyed, keyed.sums(q).tolist(), centre), found, rtol=1e-12)


def test_errors_of_mean_squares_are_those_of_their_noise_for_every_kind_of_column() -> None:
    marked, draw = (
        (*MIXED, MeasuredAttribute(Kind.BINARY, 2), MeasuredAttribute(Kind.NUMERIC, 2)),
        np.random.default_rng(3),
    )
    stage = FirstStage(marked, 2_000, 40 * SCALE, 50 * SCALE**2)
    centre = (SCALE * np.linspace(-0.9, 0.8, stage.columns)).astype(np.int64)
    size = np.append(np.full(stage.columns, stage.sigma), np.full(stage.size - stage.columns, stage.square_sigma))
    found = [mean_squares(stage, (size * draw.normal(size=stage.size)).tolist(), centre) for _ in range(4_000)]
    # 4,000 repetitions: standard error of a deviation 0.011 of it
    assert mean_square_errors(stage, centre, n=stage.n) == pytest.approx(np.std(found, axis=0), rel=0.06)


def test_sums_add_over_batches() -> None:
    q = table(300)
    parts = [column_sums(part, MIXED) for part in np.array_split(q, 7)]
    assert np.array_equal(sum(parts), column_sums(q, MIXED))


@pytest.mark.parametrize(("rule", "least"), [(MOMENTS_ARE_NOISY, Fraction(1, 2)), (ROWS_ARE_NOISY, Fraction(1, 4))])
def test_radius_grows_from_its_least_with_what_there_is_to_spend(rule: RadiusRule, least: Fraction) -> None:
    found = [radius_squared_for(rule, rho=Rho(1 << 58), n=n, columns=Fraction(5)) for n in (2, 10**4, 10**5, 10**7)]
    assert found == sorted(set(found))
    assert found[0] == least


def test_radius_of_moments_is_proportional_and_that_of_rows_grows_as_the_root() -> None:
    # of rho 1/16: n sqrt(rho) / columns^1.5 is the unit, nine times as much, and the unit again with more columns
    for n, columns, expected in ((240, 1, 1), (2160, 1, 9), (1920, 4, 1)):
        radius = radius_squared_for(MOMENTS_ARE_NOISY, rho=Rho(1 << 60), n=n, columns=Fraction(columns))
        assert float(radius) == pytest.approx(expected, rel=1e-6)
    for n, columns, expected in ((4000, 1, 1), (36_000, 1, 3), (32_000, 4, 1)):
        radius = radius_squared_for(ROWS_ARE_NOISY, rho=Rho(1 << 60), n=n, columns=Fraction(columns))
        assert float(radius) == pytest.approx(expected, rel=1e-6)


def test_where_there_is_enough_to_spend_no_row_is_cut() -> None:
    """Else bias would be left where noise is none, and intervals around it would miss."""
    q = table(300)
    stage = FirstStage(MIXED, len(q), 1, 1)
    for rule in (MOMENTS_ARE_NOISY, ROWS_ARE_NOISY):
        radius = radius_squared_for(rule, rho=Rho(1 << 64), n=10**8, columns=Fraction(6))
        z = scaling(stage, column_sums(q, MIXED), radius_squared=radius).rows(q)
        assert int((z**2).sum(axis=1).max()) <= SCALE**2


def test_sums_of_keyed_subjects_begin_with_their_number_and_cost_its_presence() -> None:
    attributes = (MeasuredAttribute(Kind.NUMERIC), MeasuredAttribute(Kind.CATEGORICAL, 2))
    stage = plan_first_stage(attributes, n=50, rho=Rho(RHO_UNITS // 8), adjacency=Adjacency.ADD_REMOVE)
    rows = np.random.default_rng(3).integers(-SCALE, SCALE + 1, (70, 3))
    sums = stage.sums(rows)
    assert sums[0] == 70 * SCALE
    assert np.array_equal(sums[1:], column_sums(rows, attributes))
    assert len(sums) == stage.size == len(stage.noise(lambda _, count: np.zeros(count, np.int64)))
    # the count, a number with its square, and a level: 1 + 2 + 1
    expected = gaussian_loss(squared_sensitivity=4 * SCALE**2, sigma=stage.sigma)
    assert first_stage_loss(stage, Adjacency.ADD_REMOVE) == expected <= Rho(RHO_UNITS // 8)
    listed = replace(stage, keyed=False, n=70)
    found, said = (scaling(one, of, radius_squared=Fraction(1)) for one, of in ((stage, sums), (listed, sums[1:])))
    assert np.array_equal(found.matrix, said.matrix)
    assert np.array_equal(found.centre, said.centre)


@given(data=st.data())
def test_other_values_of_keyed_subjects_move_their_sums_as_those_of_listed_ones(data: st.DataObject) -> None:
    """Their number cancels; one more or less moves it, and the rest by as much as its row."""
    kinds = (MARKED, LEVELS, MARKED_BINARY, NUMBER)
    stage = plan_first_stage(kinds, n=1000, rho=RHO, adjacency=Adjacency.ADD_REMOVE)
    row, other = data.draw(encoded_row(kinds)), data.draw(encoded_row(kinds))
    sums = [stage.sums(np.array(rows, np.int64).reshape(-1, stage.columns)) for rows in ([row], [other], [])]
    scales = np.array([stage.sigma] * (1 + stage.columns) + [stage.square_sigma] * (stage.size - 1 - stage.columns))

    def apart(one: Rows, another: Rows) -> Fraction:
        changes = zip((one - another).tolist(), scales.tolist(), strict=True)
        return sum((Fraction(change, scale) ** 2 for change, scale in changes), start=Fraction(0))

    assert apart(sums[0], sums[1]) <= Fraction(2 * first_stage_loss(stage, Adjacency.REPLACE_ONE).units, 1 << 64)
    assert apart(sums[0], sums[2]) <= Fraction(2 * first_stage_loss(stage, Adjacency.ADD_REMOVE).units, 1 << 64)
