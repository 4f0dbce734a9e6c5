"""The bound against search: every neighbour over a grid of hard values, on the integers that leave the encoder."""

from fractions import Fraction
from itertools import combinations_with_replacement, product
from math import isqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from commingle.shared.dp.fixed_point import SCALE, clip_rows, quantise, squared_row_limit
from commingle.shared.dp.sensitivity import (
    Adjacency,
    Geometry,
    codebook,
    contrast_geometry,
    indicators,
    largest_gap,
    squared_sensitivity,
)

LISTED = (Adjacency.REPLACE_ONE, Adjacency.ZERO_OUT)  # how a row may change that is there before and after
NUMERIC = Geometry(radius_squared=1, diameter_squared=4)
CONTRASTS = {levels: list(map(tuple, codebook(levels).tolist())) for levels in (3, 4, 5, 7, 40)}
# one attribute -> the integers to try; thirds and near-ones are where truncation bites
_HARD = (-1.0, -1 + 2**-20, -1 / 3, 0.0, 2**-16, 1 / 3, 1 - 2**-16, 1.0)
_NUMBERS = quantise(np.array(_HARD)).tolist()
KINDS: dict[str, tuple[Geometry, list[tuple[int, ...]]]] = {
    "numeric": (NUMERIC, [(v,) for v in _NUMBERS]),
    "binary": (NUMERIC, [(-SCALE,), (SCALE,), (0,)]),
    "three levels": (contrast_geometry(3), CONTRASTS[3]),
    "marked number": (NUMERIC, [*((v, 0) for v in _NUMBERS), (0, SCALE)]),
    "marked binary": (NUMERIC, [(-SCALE, 0), (SCALE, 0), (0, SCALE)]),
    "seven levels": (contrast_geometry(7), CONTRASTS[7]),
}
SETS = [names for size in (1, 2, 3) for names in combinations_with_replacement(KINDS, size)]
NORMS = [None, 1e-6, 2**-15, 0.3, 0.7071067811865475, 0.999999, 1.0, 1.2, 1.4142135623730951, 1.7, 2.0, 5.0]


def bound(names: tuple[str, ...], row_norm: float | None, adjacency: Adjacency) -> int:
    return squared_sensitivity([KINDS[name][0] for name in names], row_norm=row_norm, adjacency=adjacency)


def encoded(names: tuple[str, ...], row_norm: float | None) -> NDArray[np.int64]:
    rows = [sum(parts, ()) for parts in product(*(KINDS[name][1] for name in names))]
    q = np.array(rows, np.int64)
    return q if row_norm is None else clip_rows(q, squared_row_limit(row_norm))


def farthest(q: NDArray[np.int64], adjacency: Adjacency) -> int:
    others = q if adjacency is Adjacency.REPLACE_ONE else np.zeros((1, q.shape[1]), np.int64)
    gram = q @ others.T
    squared = (q**2).sum(1)[:, None] + (others**2).sum(1)[None, :] - 2 * gram
    return int(squared.max())


@pytest.mark.parametrize("adjacency", LISTED)
@pytest.mark.parametrize("row_norm", NORMS)
def test_no_pair_of_encoded_rows_is_farther_apart_than_the_bound(adjacency: Adjacency, row_norm: float | None) -> None:
    for names in SETS:
        assert farthest(encoded(names, row_norm), adjacency) <= bound(names, row_norm, adjacency), names


@pytest.mark.parametrize("row_norm", NORMS)
def test_products_of_hard_rows_are_within_their_limits(row_norm: float | None) -> None:
    """0 <= 2 (c - q.p) <= min(Delta_q^2 + what rounding adds, 4c)."""
    for names in SETS:
        q = encoded(names, row_norm)
        c, apart = (
            bound(names, row_norm, Adjacency.ZERO_OUT),
            largest_gap([KINDS[n][0] for n in names], row_norm=row_norm),
        )
        products = q @ q.T
        assert products.max() <= c, names
        assert 2 * (c - int(products.min())) <= min(apart, 4 * c), names


@pytest.mark.parametrize("row_norm", [None, 0.3, 0.999999, 1.4142135623730951, 3.0, 5.0])
def test_weighted_rows_keep_every_bound_of_rows(row_norm: float | None) -> None:
    """Distances and products (3.4, 3.7) of rows the first attribute of which has a weight, which attain the first."""
    for weight, names in product((2, 3, 4), SETS[: len(KINDS) * 4]):
        bits = 14 - (weight - 1).bit_length()
        plain = encoded(names, None)
        widths = [len(KINDS[name][1][0]) for name in names]
        q = (np.sign(plain) * (np.abs(plain) >> 15 - bits)) * np.repeat([weight, *[1] * (len(names) - 1)], widths)
        assert np.abs(q).max() <= 2**14
        rows = q if row_norm is None else clip_rows(q, squared_row_limit(row_norm, bits))
        first, *others = (KINDS[name][0] for name in names)
        weighed, products = [first.weighted(weight), *others], rows @ rows.T
        apart, c = (squared_sensitivity(weighed, row_norm=row_norm, adjacency=a, fraction_bits=bits) for a in LISTED)
        found = farthest(rows, Adjacency.REPLACE_ONE)
        assert found <= apart, (weight, names)
        assert row_norm is not None or found >= (1 - 2**-9) * apart, (weight, names)
        assert products.max() <= c
        assert 2 * (c - int(products.min())) <= largest_gap(weighed, row_norm=row_norm, fraction_bits=bits)


@pytest.mark.parametrize("adjacency", LISTED)
def test_bound_is_attained_without_clipping(adjacency: Adjacency) -> None:
    for names in SETS:
        found, most = farthest(encoded(names, None), adjacency), bound(names, None, adjacency)
        if any("levels" in name for name in names):  # but for rounding
            assert (1 - 2**-12) * most <= found <= most, names
        else:
            assert found == most, names


@given(st.lists(st.sampled_from(["numeric", "five levels"]), min_size=1, max_size=5), st.floats(1e-5, 3), st.data())
def test_random_pairs_of_clipped_rows_stay_within_the_bound(
    kinds: list[str], row_norm: float, data: st.DataObject
) -> None:
    def row() -> list[int]:
        values: list[int] = []
        for kind in kinds:
            if kind == "numeric":
                values.append(int(quantise(np.array(data.draw(st.floats(-1, 1))))))
            else:
                values += data.draw(st.sampled_from(CONTRASTS[5]))
        return values

    geometries = [NUMERIC if kind == "numeric" else contrast_geometry(5) for kind in kinds]
    pair = clip_rows(np.array([row(), row()], np.int64), squared_row_limit(row_norm)).tolist()
    for adjacency, other in ((Adjacency.REPLACE_ONE, pair[1]), (Adjacency.ZERO_OUT, [0] * len(pair[0]))):
        distance = sum((a - b) ** 2 for a, b in zip(pair[0], other, strict=True))
        assert distance <= squared_sensitivity(geometries, row_norm=row_norm, adjacency=adjacency)


@pytest.mark.parametrize("bits", [14, 15])
@pytest.mark.parametrize("levels", [3, 4, 5, 17, 256])
def test_no_level_is_longer_and_no_two_are_farther_apart_than_without_rounding(levels: int, bits: int) -> None:
    book = codebook(levels, bits)
    norms = (book**2).sum(axis=1)
    apart = norms[:, None] + norms - 2 * book @ book.T
    assert norms.max() <= Fraction(4**bits * (levels - 1), levels)
    assert apart.max() <= 2 * 4**bits
    assert apart[~np.eye(levels, dtype=bool)].min() > 2 * 4**bits - (16 << bits)
    assert book[0].tolist() == [isqrt(4**bits // (k * (k + 1))) for k in range(1, levels)]
    assert np.array_equal(np.sign(codebook(levels)) * (np.abs(codebook(levels)) >> 15 - bits), book)


@pytest.mark.parametrize("levels", [3, 256])
def test_indicators_are_combinations_of_the_contrasts(levels: int) -> None:
    found = np.column_stack([np.ones(levels), codebook(levels, 14) / 2**14]) @ indicators(levels, 14).T
    assert found == pytest.approx(np.eye(levels)[:, 1:], abs=1e-9)


@pytest.mark.parametrize("levels", [3, 7, 40])
def test_no_two_levels_of_rows_that_are_hardly_clipped_are_farther_apart_than_the_bound(levels: int) -> None:
    """Where clipping takes a step or two of one row and nothing of the other, rounding could matter."""
    book, geometry = codebook(levels), contrast_geometry(levels)
    gains = [2**24, 2**24 - 1, 2**24 - 400, 2**24 - 513, 2**24 - 2**14, 2**23, 3]
    rows = np.vstack([np.sign(book) * (np.abs(book) * gain >> 24) for gain in gains])
    assert farthest(rows, Adjacency.REPLACE_ONE) <= 2 * SCALE**2
    most = 2 * (SCALE**2 * (levels - 1) // levels - int((rows @ rows.T).min()))
    assert most <= largest_gap([geometry], row_norm=None)


def test_numeric_only_replace_one_is_the_papers_two_root_d() -> None:
    for d in range(1, 20):
        assert bound(("numeric",) * d, None, Adjacency.REPLACE_ONE) == (2 * SCALE) ** 2 * d


def test_row_norm_that_does_not_bind_changes_nothing() -> None:
    names = ("numeric", "three levels")
    for adjacency in LISTED:
        assert bound(names, 100.0, adjacency) == bound(names, None, adjacency)
