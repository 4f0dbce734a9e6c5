from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.methods.mapping import (
    Mapping,
    Scales,
    ceilings_from_rows,
    clip_above,
    map_rows,
    scales_from_rows,
    unstandardised,
)
from commingle.party_agent.private.regression.problem import Floats
from commingle.party_agent.private.regression.sums import solve
from commingle.shared.dp.errors import ParameterError

SEEDS = st.integers(0, 2**32)


def table(seed: int, noise: float = 0.0) -> tuple[Floats, Floats]:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(50, 3)) * [1, 20, 0.1] + [5, -40, 0]
    return x, 3 + x @ [2.0, -0.1, 7.0] + noise * generator.normal(size=50)


@given(SEEDS, st.sampled_from(Mapping), st.booleans())
def test_mapped_rows_and_labels_are_within_their_bounds(seed: int, mapping: Mapping, intercept: bool) -> None:
    x, y = table(seed, noise=1.0)
    mapped = map_rows(
        x, y, mapping=mapping, scales=scales_from_rows(x, y, mapping=mapping, intercept=intercept), intercept=intercept
    )
    assert mapped.x.shape == (50, 3 + intercept)
    assert float(np.linalg.norm(mapped.x, axis=1).max()) == pytest.approx(mapped.row_bound)
    assert float(np.abs(mapped.y).max()) == pytest.approx(1)


@given(SEEDS, st.sampled_from([Mapping.MAXIMUM, Mapping.PER_ROW_WITH_LABEL]), st.booleans())
def test_unstandardised_coefficients_are_those_of_the_raw_data(seed: int, mapping: Mapping, centre_label: bool) -> None:
    x, y = table(seed)  # without noise weighting rows changes nothing
    scales = scales_from_rows(x, y, mapping=mapping, intercept=True, centre_label=centre_label)
    mapped = map_rows(x, y, mapping=mapping, scales=scales, intercept=True)
    intercept, slopes = unstandardised(solve(mapped.x, mapped.y), mapping=mapping, scales=scales)
    assert intercept == pytest.approx(3, abs=1e-6)
    assert np.allclose(slopes, [2.0, -0.1, 7.0])


def test_maximum_norm_keeps_least_squares_with_noise_too() -> None:
    x, y = table(1, noise=2.0)
    scales = scales_from_rows(x, y, mapping=Mapping.MAXIMUM, intercept=True)
    mapped = map_rows(x, y, mapping=Mapping.MAXIMUM, scales=scales, intercept=True)
    intercept, slopes = unstandardised(solve(mapped.x, mapped.y), mapping=Mapping.MAXIMUM, scales=scales)
    raw = np.linalg.lstsq(np.column_stack([np.ones(50), x]), y)[0]
    assert np.allclose([intercept, *slopes], raw)


def test_coefficients_after_dividing_rows_but_not_labels_are_refused() -> None:
    x, y = table(1)
    scales = scales_from_rows(x, y, mapping=Mapping.PER_ROW, intercept=True)
    with pytest.raises(ParameterError, match="norms"):
        unstandardised(np.zeros(4), mapping=Mapping.PER_ROW, scales=scales)


@pytest.mark.parametrize("mapping", Mapping)
def test_row_mapped_by_given_scales_does_not_depend_on_the_other_rows(mapping: Mapping) -> None:
    x, y = table(2)
    scales = Scales(means=np.zeros(3), sds=np.full(3, 100.0), label_mean=0.0, label_max=50.0, row_max=sqrt(3))
    whole, alone = (map_rows(x[:m], y[:m], mapping=mapping, scales=scales, intercept=True) for m in (50, 1))
    assert np.array_equal(whole.x[0], alone.x[0])
    assert whole.y[0] == alone.y[0]


def test_constant_columns_and_rows_of_zeros_are_no_fault() -> None:
    x, y = np.full((4, 2), 3.0), np.full(4, 2.0)
    for mapping in Mapping:
        scales = scales_from_rows(x, y, mapping=mapping, intercept=False)
        mapped = map_rows(x, y, mapping=mapping, scales=scales, intercept=False)
        assert np.array_equal(mapped.x, np.zeros((4, 2)))
        assert np.array_equal(mapped.y, np.zeros(4))


def test_clipping_is_one_sided_at_mean_plus_c_sds() -> None:
    x = np.array([[-9.0], [0.0], [9.0]])
    ceilings = ceilings_from_rows(x, 0.5)
    assert ceilings[0] == pytest.approx(0.5 * x.std())
    assert clip_above(x, ceilings).ravel().tolist() == [-9.0, 0.0, pytest.approx(0.5 * x.std())]
