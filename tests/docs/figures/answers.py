"""The README's picture: one release's answers beside the truth (python -m tests.docs.figures.answers).

A consortium of real agents publishes the release; the truth is that of all the made-up people. It draws
docs/pictures/answers.svg and writes docs/figures/answers.json. Noise is drawn anew each time.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from statsmodels.formula.api import logit

from commingle import Release
from commingle.services.analysis.survival import Survival
from commingle.services.plotting import COLOURS, INK, tidy
from commingle.services.simulation import story
from commingle.services.testing.consortium import Consortium
from tests.docs.figures.data import DOCS

SEED, EPSILON = 1, 1.0
SMOKER = ("never", "former", "current")
TERMS = {"smoker[former]": "former smokers", "smoker[current]": "current smokers", "emergency[yes]": "emergencies"}
Rows = tuple[tuple[str, float, tuple[float, float], float], ...]
"""What is estimated, its interval, and the truth."""


def released(people: Mapping[str, NDArray[Any]]) -> Release:
    tables = story.tables(people, seed=SEED + 1)
    with Consortium(tables, schemas=story.SCHEMAS, links=False, network=False) as consortium:
        asked = consortium.study(epsilon=EPSILON, parties=story.parties(), **story.STUDY)
        return consortium.release(asked, seconds=1200)


def shares(release: Release, frame: pd.DataFrame) -> Rows:
    found = release.describe(by="smoker", attributes=["readmitted"])
    line, values = found.lines.index("readmitted = yes"), np.asarray(found.values)
    truth = frame.groupby("smoker").readmitted.apply(lambda cells: (cells == "yes").mean())
    return tuple(
        (f"{name} smokers", 100 * values[line, g], tuple(100 * found.intervals[line, g]), 100 * truth[name])
        for g, name in enumerate(found.groups)
    )


def ratios(release: Release, frame: pd.DataFrame) -> Rows:
    table = release.glm(story.FORMULA).table()
    column = next(one for one in table.columns if one.heading == "odds ratio")
    cut = {"age": [0, 40, 60, 75, 100], "hba1c": [0, 5.7, 6.5, 20]}
    given = frame.assign(**{name: pd.cut(frame[name], ends, right=False) for name, ends in cut.items()})
    given["y"] = (given.readmitted == "yes").astype(int)
    fit = logit("y ~ C(smoker, Treatment('never')) + C(age) + C(hba1c) + C(emergency)", given).fit(disp=0)
    truth = {name: np.exp(value) for name, value in fit.params.items()}
    exact = {
        "smoker[former]": truth["C(smoker, Treatment('never'))[T.former]"],
        "smoker[current]": truth["C(smoker, Treatment('never'))[T.current]"],
        "emergency[yes]": truth["C(emergency)[T.yes]"],
    }
    assert column.interval is not None
    at = {label: i for i, label in enumerate(table.labels)}
    return tuple(
        (said, float(column.numbers[at[term]]), tuple(column.interval[at[term]].tolist()), float(exact[term]))
        for term, said in TERMS.items()
    )


def draw_rows(ax: Axes, rows: Rows, *, title: str, null: float | None) -> None:
    if null is not None:
        ax.axvline(null, color=INK, linewidth=0.9)
    for place, (_, value, (low, high), truth) in enumerate(rows):
        ax.hlines(place, low, high, color=COLOURS[0], linewidth=6, alpha=0.35)
        ax.scatter(value, place, s=42, color=COLOURS[0], zorder=3, label=None if place else "the release")
        ax.scatter(
            truth, place + 0.24, s=40, marker="^", color=INK, zorder=3, label=None if place else "all rows in one place"
        )
    ax.set_yticks(range(len(rows)), [row[0] for row in rows])
    ax.set_ylim(len(rows) - 0.45, -0.55)
    tidy(ax)
    ax.grid(visible=False, axis="y")
    ax.set_title(title, fontsize=11, color=INK, loc="left")


def draw_curves(ax: Axes, found: Survival, frame: pd.DataFrame) -> None:
    found.plot(ax)
    for colour, name in zip(COLOURS, found.groups, strict=False):
        own = frame[frame.smoker == name]
        times, share = story.kaplan_meier(own.followup.to_numpy(), (own.died == "yes").to_numpy())
        within = times <= found.ends[-2]
        ax.step(times[within], 100 * share[within], where="post", color=INK, linewidth=0.8, linestyle="--")
        ax.annotate(name, (times[within][-1] + 0.7, 100 * share[within][-1]), color=colour, va="center", fontsize=10)
    if (legend := ax.get_legend()) is not None:
        legend.remove()
    ax.set_ylim(60, 101)
    ax.set_xlim(0, 60)
    ax.set_xticks([0, 12, 24, 36, 48])
    ax.set_title("")
    ax.set_title("Alive after months, in %", fontsize=11, color=INK, loc="left")
    ax.set_xlabel("")
    ax.set_ylabel("")


def main() -> None:
    people = story.everybody(seed=SEED)
    frame = pd.DataFrame(people)
    release = released(people)
    rows, odds, curves = shares(release, frame), ratios(release, frame), release.survival("outcome", by="smoker")
    mpl.rcParams |= {"svg.fonttype": "none", "font.family": "sans-serif", "svg.hashsalt": "answers"}
    figure = Figure(figsize=(11.0, 3.3), layout="constrained", facecolor="white")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1, 1.05))
    draw_rows(left, rows, title="Readmitted, in %", null=None)
    draw_rows(middle, odds, title="Odds ratios, adjusted", null=1.0)
    draw_curves(right, curves, frame)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=2, frameon=False, fontsize=10)
    figure.savefig(DOCS / "pictures/answers.svg", metadata={"Date": None})
    told = {"epsilon": EPSILON, "people": story.SUBJECTS, "shares": rows, "odds_ratios": odds}
    Path(DOCS / "figures/answers.json").write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
