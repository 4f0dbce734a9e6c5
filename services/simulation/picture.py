"""`coefficients.png`: slopes of every release with their intervals, beside the fit without privacy."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from commingle.services.plotting import INK, Intervals
from commingle.services.simulation.evaluate import Numbers, Reference, ScoredFit
from commingle.shared.documents.spec import ReleaseSpec

_LABELS = {  # as in the report
    "measurement_error": "measurement_error",
    "debiased": "debiased",
    "shrunken": "shrunken, to predict",
    "ols": "plain ols",
}
_ROOM = 1.8
_ROW_INCHES, _LOW_ROW_INCHES, _PANEL_INCHES = 0.36, 0.26, 3.6  # low rows keep two rows of panels on a screen
_IN_A_ROW, _DPI = 4, 110
_MIN_INCHES, _LETTERS_PER_INCH, _LABEL_LENGTH = 8.4, 9, 30


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """One release; `slopes` (p, 3) has, by fit, standardised slopes and both ends of their intervals, or NaN."""

    title: str
    slopes: Mapping[str, Numbers]

    @classmethod
    def of(cls, spec: ReleaseSpec, fits: Sequence[ScoredFit], judge: Reference) -> Self:
        """The fits of a release to draw, below its parameters."""
        sketch = f", k = {spec.k:,}" if spec.k is not None else ""
        beats = [f for f in fits if f.name != "constant" and f.score.test_mse < judge.constant.test_mse]
        said = "" if beats else "\nno fit beats predicting the mean"
        people = f"each about {spec.n:,} people of its own" if spec.keyed else f"n = {spec.n:,}"
        title = f"{spec.mechanism}, ε = {spec.epsilon:g} per member, δ = {spec.delta:g}\n{people}{sketch}{said}"
        there = {fit.name: fit for fit in fits}
        left_out = {"shrunken"} if "measurement_error" in there else set()  # three to a row can be told apart
        drawn = [there[name] for name in _LABELS if name in there and name not in left_out]
        return cls(title, {fit.name: _slopes(fit, judge) for fit in drawn})


def _slopes(fit: ScoredFit, judge: Reference) -> Numbers:
    low, high = ({term: ends[side] for term, ends in fit.intervals.items()} for side in (0, 1))
    return np.column_stack([judge.standardised(values) for values in (fit.coefficients, low, high)])


def draw(path: Path, *, title: str, terms: Sequence[str], ols: Numbers, panels: Sequence[Panel]) -> None:
    figure_of(title=title, terms=terms, ols=ols, panels=panels).savefig(path)


def figure_of(*, title: str, terms: Sequence[str], ols: Numbers, panels: Sequence[Panel]) -> Figure:
    """A panel for each release, a row for each term, and the same axis in all.

    The fit without privacy sets the axis, so that noise looks as large as it is; arrows show what lies beyond.
    """
    rows = ceil(len(panels) / _IN_A_ROW)
    columns = ceil(len(panels) / rows)
    height = rows * (len(terms) * (_ROW_INCHES if rows == 1 else _LOW_ROW_INCHES) + 1.2) + 1.3
    width = max(_MIN_INCHES, columns * _PANEL_INCHES + 1.8)
    figure = Figure(figsize=(width, height), dpi=_DPI, layout="constrained")
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    limit = _ROOM * float(np.max(np.abs(ols), initial=0.05))
    names = [name for name in _LABELS if any(name in panel.slopes for panel in panels)]
    for ax, panel in zip(axes, panels, strict=False):
        _draw_panel(ax, panel, [_short(term) for term in terms], names, limit)
        ax.scatter(ols, np.arange(len(ols)), marker="|", s=380, linewidths=2.4, color=INK, label="not private")
    for ax in axes[len(panels) :]:
        ax.set_visible(False)
    figure.suptitle(textwrap.fill(title, int(width * _LETTERS_PER_INCH)), fontsize=12, fontweight="bold", color=INK)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=len(handles),
        frameon=False,
        fontsize=9,
        title="standardised slope with 95 % interval; arrows lie beyond the axis",
        title_fontsize=9,
    )
    return figure


def _draw_panel(ax: Axes, panel: Panel, labels: Sequence[str], names: Sequence[str], limit: float) -> None:
    nothing = np.full((len(labels), 3), np.nan)
    found = np.array([panel.slopes.get(name, nothing) for name in names]).reshape(len(names), len(labels), 3)
    picture = Intervals(
        title="",
        axis="",
        labels=labels,
        groups=[_LABELS[name] for name in names],
        values=found[:, :, 0].T,
        intervals=found[:, :, 1:].swapaxes(0, 1),
        of="effects",
        limit=limit,
    )
    picture.draw(ax)
    ax.set_title(panel.title, fontsize=9.5, color=INK)  # in several lines
    if (legend := ax.get_legend()) is not None:
        legend.remove()  # one is for all panels


def _short(term: str) -> str:
    return term if len(term) <= _LABEL_LENGTH else f"{term[: _LABEL_LENGTH - 1]}…"
