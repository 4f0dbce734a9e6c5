"""The comparison behind `--method auto`, in small."""

import pytest

from benchmarks.regression_choice import measure


@pytest.mark.parametrize(
    ("shape", "n", "best"),
    [("even", 50_000, "adassp"), ("narrow", 5_000, "two_stage"), ("even", 1_000, "boosted_adassp")],
)
def test_choice_is_the_method_that_is_measured_to_be_best(shape: str, n: int, best: str) -> None:
    cell = measure(shape, n, 3, 1.0, repeats=5)
    assert cell.chosen == best
    assert cell.measured[cell.chosen] < 1.3 * min(cell.measured.values())
