"""What two stages explain beside boosted AdaSSP, on a made-up table."""

import numpy as np
from numpy.random import default_rng

from benchmarks.regression_goal import explain_table


def made_up(n: int = 3000) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.float64]], ...]:
    """Columns of long tails, of which bounds by extremes leave little."""
    draw = default_rng(1)
    x = draw.standard_t(5, (n, 6))
    return x, x @ np.linspace(1, -1, 6) + draw.normal(size=n)


def test_two_stages_explain_more_of_a_table_whose_columns_are_narrow() -> None:
    x, y = made_up()
    found = explain_table((x, y), "made up", runs=6)
    assert found is not None
    assert found.boosted_adassp + 0.05 < found.two_stage < found.not_private < 1
    assert (found.auto, found.part, found.features) == ("two_stage", "reporting", 6)


def test_table_whose_public_label_does_not_vary_is_left_out() -> None:
    x, _ = made_up(200)
    assert explain_table((x, np.ones(200)), "constant", runs=1) is None
