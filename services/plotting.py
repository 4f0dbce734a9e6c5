"""What pictures of results share: matplotlib is optional, and slow to import, so only who draws loads it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from commingle.services.errors import OutputError
from commingle.shared.errors import MissingExtraError
from commingle.shared.text import printable

if TYPE_CHECKING:
    import matplotlib.axes

Array = NDArray[np.float64]
Axes: TypeAlias = "matplotlib.axes.Axes"
INK, GRID, OTHERS = "#16202b", "#e4e9ec", "#c4c4c4"
COLOURS = ("#0b6475", "#cc6f1a", "#7b4fa3", "#14693a", "#b8860b", "#c2406e", "#3b8ea5", "#6b6b6b")
_GROUPED = 0.6  # of a row, over which its groups spread
_REACH, _LEAST_REACH, _EDGE = 8.0, 1.2, 1.1  # of a log axis: beyond values, around 1, beyond all
_TICKS = tuple(base * 10.0**exponent for exponent in range(-9, 10) for base in (1, 2, 5))
_ROW_INCHES, _MARGIN_INCHES, _WIDTH_INCHES = 0.38, 1.3, 7.0


def axes_on(ax: "Axes | None", *, rows: int, width_inches: float = _WIDTH_INCHES) -> "Axes":
    """`ax`, or axes on a new figure that is high enough for so many rows of text."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot as plt  # noqa: PLC0415 - as above
    except ImportError:
        raise MissingExtraError("matplotlib", extra="plot") from None
    height = _MARGIN_INCHES + _ROW_INCHES * rows
    return plt.subplots(figsize=(width_inches, height), dpi=110, layout="constrained")[1]


def plain_label(name: str) -> str:
    """A name for a picture, in which dollars would begin a formula."""
    return printable(name).replace("$", r"\$")


def entitle(ax: "Axes", title: str, x: str, y: str = "") -> None:
    ax.set_title(plain_label(title), fontsize=11, color=INK)
    ax.set_xlabel(plain_label(x), fontsize=9)
    ax.set_ylabel(plain_label(y), fontsize=9)


def tidy(ax: "Axes") -> None:
    ax.tick_params(length=0)
    ax.set_axisbelow(True)
    ax.grid(color=GRID)
    ax.spines[:].set_visible(False)


def draw_intervals(
    ax: "Axes | None", labels: Sequence[str], values: Array, intervals: Array, *, title: str, x: str
) -> "Axes":
    """One row for each label: values (q,), intervals (q, 2); on `ax` or a new figure."""
    ax = axes_on(ax, rows=len(labels))
    ax.axvline(0, color=INK, linewidth=0.9, zorder=1)
    _draw_rows(ax, np.arange(len(labels), dtype=np.float64), values, intervals, COLOURS[0])
    _label_rows(ax, labels)
    entitle(ax, title, x)
    return ax


def draw_groups(ax: "Axes", labels: Sequence[str], groups: Sequence[str], values: Array, intervals: Array) -> None:
    """One row for each label, in it a point for each of G groups: values (q, G), intervals (q, G, 2)."""
    size = len(groups)
    for g, name in enumerate(groups):
        places = np.arange(len(labels), dtype=np.float64) + _GROUPED * ((g + 0.5) / size - 0.5)
        _draw_rows(ax, places, values[:, g], intervals[:, g], COLOURS[g % len(COLOURS)], plain_label(name))
    _label_rows(ax, labels)
    if size > 1:
        ax.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def draw_ratios(
    ax: "Axes | None", labels: Sequence[str], values: Array, intervals: Array, *, title: str, x: str
) -> "Axes":
    """A forest plot: ratios (q,) with intervals (q, 2) about 1 on a log axis, an arrow where an end is out of reach."""
    ax = axes_on(ax, rows=len(labels))
    places, near = np.arange(len(labels), dtype=np.float64), values[np.isfinite(values) & (values > 0)]
    ends = intervals[np.isfinite(intervals) & (intervals > 0)]
    ends = ends[(ends >= near.min(initial=1.0) / _REACH) & (ends <= near.max(initial=1.0) * _REACH)]
    shown = np.concatenate([near, ends, [1 / _LEAST_REACH, _LEAST_REACH]])
    least, most = shown.min() / _EDGE, shown.max() * _EDGE
    ax.set_xscale("log")
    ax.axvline(1, color=INK, linewidth=0.9, zorder=1)
    drawn = np.clip(intervals, least, most)
    inside = (values >= least) & (values <= most)
    _draw_rows(ax, places, np.where(inside, values, np.nan), drawn, COLOURS[0])
    for beyond, at, mark in ((intervals[:, 0] < least, least, "<"), (intervals[:, 1] > most, most, ">")):
        ax.scatter(np.full(int(beyond.sum()), at), places[beyond], marker=mark, s=40, color=COLOURS[0], zorder=3)
    ax.set_xlim(least / _EDGE**0.3, most * _EDGE**0.3)
    _label_rows(ax, labels)
    ticks = [tick for tick in _TICKS if least <= tick <= most]
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    entitle(ax, title, x)
    return ax


def save(ax: "Axes", path: Path) -> None:
    """Write a picture that stands alone, in the form that its name says."""
    figure: Any = ax.figure
    try:
        figure.savefig(path, bbox_inches="tight")
    except (OSError, ValueError) as error:
        raise OutputError(
            f"cannot draw to {path} ({error})", remedy="Name a file that ends in .png, .svg or .pdf."
        ) from None


def _draw_rows(  # noqa: PLR0917 - of one module
    ax: "Axes", places: Array, values: Array, intervals: Array, colour: str, label: str | None = None
) -> None:
    ax.hlines(places, *intervals.T, color=colour, linewidth=2, alpha=0.6, zorder=2)
    ax.scatter(values, places, s=28, color=colour, zorder=3, label=label)


def _label_rows(ax: "Axes", labels: Sequence[str]) -> None:
    ax.set_yticks(np.arange(len(labels)), list(map(plain_label, labels)))
    ax.set_ylim(max(1, len(labels)) - 0.5, -0.5)
    tidy(ax)
    ax.grid(visible=False, axis="y")
