"""What the demo says once its release is published."""

import re
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import pytest

from commingle.services.client.release import Release
from commingle.services.simulation import story
from commingle.services.simulation.demo_cli import _beside_the_truth
from tests.world.categorical import release_of

PEOPLE = 4000
PERCENT, GROUPS = 100.0, ("never", "former", "current")


@cache
def said() -> tuple[list[tuple[str, list[float]]], dict[str, Any]]:
    """What each line is of, and its value, ends and truth; beside all rows. Noise is nothing."""
    people, asked = story.everybody(seed=0, subjects=PEOPLE), story.ASKED.values()
    cells = {name: column.tolist() for name, column in people.items()}
    prepared = release_of(list(chain(*asked)), [len(own) for own in asked], cells, epsilon=1e5, overlap=1.0)
    nothing: Any = None
    text = _beside_the_truth(Release(nothing, prepared, pinned=False, files=nothing), people)
    lines = [re.fullmatch(r"  (.+?) +(\S+) \( *(\S+) to +(\S+)\) +(\S+)", line) for line in text.splitlines()[1:]]
    return [(line[1], [float(figure.rstrip("%")) for figure in line.groups()[1:]]) for line in lines if line], people


def test_every_figure_has_its_interval_and_is_near_that_of_all_rows() -> None:
    lines, _ = said()
    alike = [f"{group}, {what}" for what in ("readmitted", "alive at 48 months") for group in GROUPS]
    assert [name for name, _ in lines] == [*alike, *(f"{group}, odds ratio of readmission" for group in GROUPS[1:])]
    for name, (value, low, high, truth) in lines:
        assert low < value < high, name
        assert value == pytest.approx(truth, rel=0.15), name


def test_truth_is_that_of_all_rows() -> None:
    lines, people = said()
    truth = {name: figures[-1] for name, figures in lines}
    share = [(people["readmitted"][people["smoker"] == group] == "yes").mean() for group in GROUPS]
    assert [truth[f"{group}, readmitted"] for group in GROUPS] == pytest.approx(PERCENT * np.array(share), abs=0.051)
    odds = np.array(share) / (1 - np.array(share))
    assert truth["current, odds ratio of readmission"] == pytest.approx(odds[2] / odds[0], abs=0.0051)
