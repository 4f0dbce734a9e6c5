"""What the demo says and draws once its release is published."""

from functools import cache
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from statsmodels.api import Logit, add_constant

from commingle.services.client.release import Release
from commingle.services.simulation import story
from commingle.services.simulation.story import Answers, Beside
from tests.world.categorical import release_of

PEOPLE = 4000
GROUPS = ("never", "former", "current")


@cache
def answers() -> tuple[Answers, dict[str, Any]]:
    """Of a release without noise; and all rows."""
    people, asked = story.everybody(seed=0, subjects=PEOPLE), story.ASKED.values()
    cells = {name: column.tolist() for name, column in people.items()}
    prepared = release_of(list(chain(*asked)), [len(own) for own in asked], cells, epsilon=1e5, overlap=1.0)
    nothing: Any = None
    return Answers.of(Release(nothing, prepared, pinned=False, files=nothing), people), people


def shown(beside: Beside) -> str:
    text = StringIO()
    beside.show(Console(file=text, width=200))
    return text.getvalue()


def test_every_figure_has_its_interval_and_is_near_that_of_all_rows() -> None:
    found, _ = answers()
    for beside in (found.first, found.ratios, found.alive):
        low, high = np.moveaxis(beside.intervals, 2, 0)
        assert ((low < beside.values) & (beside.values < high)).all(), beside.title
        assert beside.values == pytest.approx(beside.truth, rel=0.15), beside.title
    assert found.first.groups == found.alive.groups == GROUPS


def test_truth_is_that_of_all_rows() -> None:
    found, people = answers()
    first = dict(zip(found.first.lines, found.first.truth, strict=True))
    of = [people["smoker"] == group for group in GROUPS]
    assert first["readmitted = yes"] == pytest.approx([(people["readmitted"][own] == "yes").mean() for own in of])
    assert first["age = [60, 75)"] == pytest.approx(
        [((people["age"][own] >= 60) & (people["age"][own] < 75)).mean() for own in of]
    )
    assert first["hba1c = [6.5, 12]"] == pytest.approx([(people["hba1c"][own] >= 6.5).mean() for own in of])


def test_odds_ratios_of_all_rows_are_those_of_statsmodels() -> None:
    draw = np.random.default_rng(0)
    x = draw.integers(0, 2, (500, 3)).astype(float)
    y = draw.random(500) < 1 / (1 + np.exp(1 - x @ [0.5, -0.5, 1.0]))
    assert story.logistic(x, y) == pytest.approx(Logit(y.astype(int), add_constant(x)).fit(disp=0).params[1:])


def test_text_has_each_figure_beside_that_of_all_rows_and_says_how_many_intervals_hold() -> None:
    found, _ = answers()
    text = shown(found.ratios)
    line = next(line for line in text.splitlines() if "smoker[current]" in line)
    low, high = found.ratios.intervals[1, 0]
    figures = f"{found.ratios.values[1, 0]:.2f}", f"{low:.2f} to {high:.2f}", f"{found.ratios.truth[1, 0]:.2f}"
    assert [cell.strip() for cell in line.split("│")[2:5]] == [*figures]
    assert f"{found.ratios.held.sum()} of 8 95 % intervals hold" in text
    assert f"{found.alive.values[-1, 2]:.1%}" in shown(found.alive)


def test_interval_that_does_not_hold_all_rows_is_counted() -> None:
    intervals, truth = np.array([[[0.1, 0.3]], [[0.1, 0.3]]]), np.array([[0.2], [0.31]])
    one = Beside("Shares", ("a", "b"), ("release",), ".2f", np.full((2, 1), 0.2), intervals, truth)
    assert one.held.tolist() == [[True], [False]]
    assert "1 of 2 95 % intervals hold" in shown(one)


def test_picture_has_a_table_odds_ratios_and_curves(tmp_path: Path) -> None:
    found, _ = answers()
    found.draw(tmp_path / "answers.svg")
    drawn = (tmp_path / "answers.svg").read_text()
    assert all(f"<!-- {title} -->" in drawn for title in (found.first.title, found.ratios.title, found.alive.title))
