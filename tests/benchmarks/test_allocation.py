import numpy as np
import pytest

from benchmarks.allocation import gain


@pytest.mark.parametrize(
    ("widths", "square", "most"), [((4, 4, 4), 0.25, 1.0), ((4, 4, 4), 0.0, 1.06), ((1, 8), 0.25, 1.0)]
)
def test_allocation_gains_where_columns_are_off_centre_and_loses_little_elsewhere(
    widths: tuple[int, ...], square: float, most: float
) -> None:
    assert 0.7 < gain(widths, np.full(sum(widths), square**0.5)) < most
