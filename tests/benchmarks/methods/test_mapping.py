from math import sqrt
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.methods import Scales
from commingle.party_agent.private.regression.problem import Floats
from commingle.party_agent.private.regression.sums import solve
from commingle.shared.documents.regression import RowMapping
from commingle.shared.errors import ParameterError

SEEDS = st.integers(0, 2**32)
MAPPINGS: tuple[RowMapping, ...] = get_args(RowMapping)


def table(seed: int, noise: float = 0.0) -> tuple[Floats, Floats]:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(50, 3)) * [1, 20, 0.1] + [5, -40, 0]
    return x, 3 + x @ [2.0, -0.1, 7.0] + noise * generator.normal(size=50)


@given(SEEDS, st.sampled_from(MAPPINGS), st.booleans())
def test_mapped_rows_and_labels_are_within_their_bounds(seed: int, mapping: RowMapping, intercept: bool) -> None:
    x, y = table(seed, noise=1.0)
    mapped = Scales.of(x, y, mapping=mapping, intercept=intercept).applied(x, y)
    assert mapped.x.shape == (50, 3 + intercept)
    assert float(np.linalg.norm(mapped.x, axis=1).max()) == pytest.approx(mapped.row_bound)
    assert float(np.abs(mapped.y).max()) == pytest.approx(1)


@given(SEEDS, st.sampled_from(["maximum", "per_row_with_label"]), st.booleans())
def test_unstandardised_coefficients_are_those_of_the_raw_data(
    seed: int, mapping: RowMapping, centre_label: bool
) -> None:
    x, y = table(seed)  # without noise weighting rows changes nothing
    scales = Scales.of(x, y, mapping=mapping, intercept=True, centre_label=centre_label)
    mapped = scales.applied(x, y)
    intercept, slopes = scales.undone(solve(mapped.x, mapped.y))
    assert intercept == pytest.approx(3, abs=1e-6)
    assert np.allclose(slopes, [2.0, -0.1, 7.0])


def test_maximum_norm_keeps_least_squares_with_noise_too() -> None:
    x, y = table(1, noise=2.0)
    scales = Scales.of(x, y, mapping="maximum", intercept=True)
    mapped = scales.applied(x, y)
    intercept, slopes = scales.undone(solve(mapped.x, mapped.y))
    raw = np.linalg.lstsq(np.column_stack([np.ones(50), x]), y)[0]
    assert np.allclose([intercept, *slopes], raw)


def test_coefficients_after_dividing_rows_but_not_labels_are_refused() -> None:
    x, y = table(1)
    with pytest.raises(ParameterError, match="norms"):
        Scales.of(x, y, mapping="per_row", intercept=True).undone(np.zeros(4))


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_row_mapped_by_given_scales_does_not_depend_on_the_other_rows(mapping: RowMapping) -> None:
    x, y = table(2)
    scales = Scales(np.zeros(3), np.full(3, 100.0), 0.0, 50.0, sqrt(3), mapping, intercept=True)
    whole, alone = (scales.applied(x[:m], y[:m]) for m in (50, 1))
    assert np.array_equal(whole.x[0], alone.x[0])
    assert whole.y[0] == alone.y[0]


def test_constant_columns_and_rows_of_zeros_are_no_fault() -> None:
    x, y = np.full((4, 2), 3.0), np.full(4, 2.0)
    for mapping in MAPPINGS:
        mapped = Scales.of(x, y, mapping=mapping, intercept=False).applied(x, y)
        assert np.array_equal(mapped.x, np.zeros((4, 2)))
        assert np.array_equal(mapped.y, np.zeros(4))
