"""`coefficients.png`: every release's slopes with their intervals beside the fit without privacy."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from commingle.services.simulation.evaluate import Numbers, Reference, ScoredFit
from commingle.shared.documents.spec import ReleaseSpec

_STYLES = {
    "measurement_error": ("#1f6fb4", "o"),
    "debiased": ("#2a9d57", "s"),
    "shrunken": ("#7a4fb0", "D"),
    "ols": ("#d9772b", "^"),
}
_LABELS = {  # as in the report
    "measurement_error": "measurement_error",
    "debiased": "debiased",
    "shrunken": "shrunken, to predict",
    "ols": "plain ols",
}
_INK, _GRID = "#222222", "#e4e4e4"
_ROOM = 1.8
_ROW_INCHES, _LOW_ROW_INCHES, _PANEL_INCHES = 0.36, 0.26, 3.6  # low rows keep two rows of panels on a screen
_IN_A_ROW, _DPI = 4, 110
_MIN_INCHES, _LETTERS_PER_INCH, _LABEL_LENGTH = 8.4, 9, 30


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One fit's standardised slopes, (p,), and the ends of their intervals, NaN where there are none."""

    name: str
    slopes: Numbers
    low: Numbers
    high: Numbers

    @classmethod
    def of(cls, fit: ScoredFit, judge: Reference) -> Self:
        """A fit in standard deviations of feature and target."""
        low, high = ({term: ends[side] for term, ends in fit.intervals.items()} for side in (0, 1))
        return cls(fit.name, *(judge.standardised(values) for values in (fit.coefficients, low, high)))


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """One release."""

    title: str
    series: tuple[Series, ...]

    @classmethod
    def of(cls, spec: ReleaseSpec, fits: Sequence[ScoredFit], judge: Reference) -> Self:
        """The fits of a release that are drawn, under its parameters."""
        sketch = f", k = {spec.k:,}" if spec.k is not None else ""
        beats = [f for f in fits if f.name != "constant" and f.score.test_mse < judge.constant.test_mse]
        said = "" if beats else "\nno fit beats predicting the mean"
        people = f"each about {spec.n:,} people of its own" if spec.keyed else f"n = {spec.n:,}"
        title = f"{spec.mechanism}, ε = {spec.epsilon:g} per member, δ = {spec.delta:g}\n{people}{sketch}{said}"
        there = {fit.name: fit for fit in fits}
        left_out = {"shrunken"} if "measurement_error" in there else set()  # three to a row can be told apart
        drawn = [there[name] for name in _STYLES if name in there and name not in left_out]
        return cls(title, tuple(Series.of(fit, judge) for fit in drawn))


def draw(path: Path, *, title: str, terms: Sequence[str], ols: Numbers, panels: Sequence[Panel]) -> None:
    figure_of(title=title, terms=terms, ols=ols, panels=panels).savefig(path)


def figure_of(*, title: str, terms: Sequence[str], ols: Numbers, panels: Sequence[Panel]) -> Figure:
    """A panel per release, a row per term, and the same axis in all.

    The axis is chosen by the fit without privacy, so that noise looks as large as it is; what lies beyond is an arrow
    at the edge.
    """
    rows = ceil(len(panels) / _IN_A_ROW)
    columns = ceil(len(panels) / rows)
    height = rows * (len(terms) * (_ROW_INCHES if rows == 1 else _LOW_ROW_INCHES) + 1.2) + 1.3
    width = max(_MIN_INCHES, columns * _PANEL_INCHES + 1.8)
    figure = Figure(figsize=(width, height), dpi=_DPI, layout="constrained")
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    limit = _ROOM * float(np.max(np.abs(ols), initial=0.05))
    for ax, panel in zip(axes, panels, strict=False):
        _draw_panel(ax, panel, ols, limit)
    for ax in axes[len(panels) :]:
        ax.set_visible(False)
    axes[0].set_yticks(range(len(terms)), [_short(term) for term in terms], fontsize=9)
    axes[0].set_ylim(len(terms) - 0.5, -0.5)
    axes[0].set_xlim(-limit, limit)
    figure.suptitle(textwrap.fill(title, int(width * _LETTERS_PER_INCH)), fontsize=12, fontweight="bold", color=_INK)
    # by label, as one panel may have a series that another lacks
    handles = {name: handle for ax in axes for handle, name in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(
        [*handles.values()],
        [*handles],
        loc="outside lower center",
        ncols=len(handles),
        frameon=False,
        fontsize=9,
        title="standardised slope with 95 % interval; arrows lie beyond the axis",
        title_fontsize=9,
    )
    return figure


def _draw_panel(ax: Axes, panel: Panel, ols: Numbers, limit: float) -> None:
    places = np.arange(len(ols), dtype=np.float64)
    ax.set_title(panel.title, fontsize=9.5, color=_INK)
    ax.tick_params(length=0, labelsize=9, labelbottom=True)
    ax.set_axisbelow(True)
    ax.grid(axis="x", color=_GRID, linewidth=0.8)
    for place in places[::2]:
        ax.axhspan(place - 0.5, place + 0.5, color="#f6f7f9", zorder=0)
    ax.axvline(0, color="#999999", linewidth=0.9, zorder=1)
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.scatter(ols, places, marker="|", s=380, linewidths=2.4, color=_INK, zorder=3, label="not private")
    offsets = np.linspace(-0.26, 0.26, len(panel.series)) if len(panel.series) > 1 else np.zeros(len(panel.series))
    for series, offset in zip(panel.series, offsets, strict=True):
        _draw_series(ax, series, places + offset, limit)


def _draw_series(ax: Axes, series: Series, places: Numbers, limit: float) -> None:
    colour, marker = _STYLES[series.name]
    edge = 0.985 * limit
    low, high = np.clip(series.low, -limit, limit), np.clip(series.high, -limit, limit)
    ax.hlines(places, low, high, color=colour, linewidth=1.6, alpha=0.55, zorder=2)
    inside = np.abs(series.slopes) <= limit
    ax.scatter(
        series.slopes[inside],
        places[inside],
        s=20,
        marker=marker,
        color=colour,
        zorder=4,
        label=_LABELS[series.name],
    )
    for side, arrow in ((-1, "<"), (1, ">")):
        beyond = side * np.where(inside, np.nan_to_num(high if side > 0 else low), series.slopes) >= limit
        ax.scatter(np.full(beyond.sum(), side * edge), places[beyond], s=14, marker=arrow, color=colour, zorder=4)


def _short(term: str) -> str:
    return term if len(term) <= _LABEL_LENGTH else f"{term[: _LABEL_LENGTH - 1]}…"
