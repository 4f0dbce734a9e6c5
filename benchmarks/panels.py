"""The one drawer of pictures: lines or points in panels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

from commingle.services.plotting import entitle, tidy

Points = Sequence[tuple[float, ...]]
_COLOURS = (
    *("#1f6fb4", "#d9622b", "#3a8f5c", "#b3659e", "#c9a227", "#17818c"),
    *("#7a5230", "#9c3210", "#5a5ab5", "#8aa63a", "#444444", "#e08bb0"),
)
_MARKERS = "osD^vP*Xhp<>"
_REFERENCE = "#777777"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Attributes:
        series: name to points (x, y) or (x, y, half of an interval); the same name has the same colour in all panels.
        references: name to points of lines drawn thin and grey, without markers.
        y_limits: least and greatest y shown; what lies outside is cut off.
        joined: whether the points of a series are joined by a line.
    """

    title: str
    x_label: str
    y_label: str
    series: Mapping[str, Points]
    references: Mapping[str, Points]
    log_x: bool = True
    log_y: bool = True
    y_limits: tuple[float, float] | None = None
    joined: bool = True


def draw_panels(path: Path, panels: Sequence[Panel], *, columns: int = 2, legend_each: bool = False) -> None:
    """Panels in rows, one legend below or one beside each; a name keeps its colour where the legend is shared."""
    rows = ceil(len(panels) / columns)
    figure = Figure(
        figsize=((5.6 if legend_each else 4.2) * columns + 0.4, 3.3 * rows + 0.9 * (not legend_each)),
        dpi=120,
        layout="constrained",
    )
    names = list(dict.fromkeys(name for panel in panels for name in panel.series))
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax in grid[len(panels) :]:
        ax.set_visible(False)
    handles: dict[str, Artist] = {}
    for ax, panel in zip(grid, panels, strict=False):
        _plain(ax, panel)
        for dash, (name, points) in zip(("--", ":", "-."), panel.references.items(), strict=False):
            handles[name] = ax.plot(*np.array(points).T, color=_REFERENCE, lw=1.2, ls=dash)[0]
        for order, (name, points) in enumerate(panel.series.items()):
            place = order if legend_each else names.index(name)
            colour, marker = _COLOURS[place % len(_COLOURS)], _MARKERS[place % len(_MARKERS)]
            width = 1.4 if panel.joined else 0.0
            x, y, *half = np.array(points).T
            style = {"color": colour, "marker": marker, "markersize": 4, "lw": width, "elinewidth": 1}
            handles[name] = ax.errorbar(x, y, half[0] if half else None, **style)[0]
        if panel.log_x:
            _sparse_ticks(ax.xaxis)
        if panel.log_y:
            _sparse_ticks(ax.yaxis)
        if legend_each:
            own = (*panel.series, *panel.references)
            beside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "frameon": False, "fontsize": 8}
            ax.legend([handles[name] for name in own], own, **beside)
    if not legend_each:
        own = (*names, *(name for name in handles if name not in names))
        style = {"ncols": min(2 * columns, 6), "frameon": False, "fontsize": 9}
        figure.legend([handles[name] for name in own], own, loc="outside lower center", **style)
    figure.savefig(path)


def _plain(ax: Axes, panel: Panel) -> None:
    entitle(ax, panel.title, panel.x_label, panel.y_label)
    if panel.log_x:
        ax.set_xscale("log")
    if panel.log_y:
        ax.set_yscale("log")
    if panel.y_limits is not None:
        ax.set_ylim(*panel.y_limits)
    tidy(ax)
    ax.tick_params(length=0, which="both", labelsize=8.5)


def _sparse_ticks(axis: Axis) -> None:
    """Plain numbers at 1, 2 and 5 where the axis spans less than two decades; matplotlib's own choice crowds."""
    low, high = axis.get_view_interval()
    if high < 100 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FormatStrFormatter("%g"))
        axis.set_minor_formatter(NullFormatter())
