"""`scale.png`: CPU seconds and memory by the number of rows, of `benchmarks.scale`."""

from itertools import pairwise
from math import log
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

_INK, _GRID = "#222222", "#e4e4e4"
_STYLES = {  # work: colour, marker, line
    "sparse": ("#1f6fb4", "o", "-"),
    "dense": ("#d9772b", "s", "-"),
    "moments": ("#2a9d57", "D", "-"),
    "exchange": ("#2a9d57", "^", "--"),
    "MPyC": ("#a45ab8", "v", "--"),
    "scikit-learn": ("#8c8c8c", "x", ":"),
    "pandas": ("#8c8c8c", "+", "--"),
}


def draw(report: dict[str, Any], path: Path) -> None:
    """CPU seconds and peak memory over rows, works on the left and agents on the right; slopes are of the last step."""
    agents = [{**a, "peak_megabytes": a["release_megabytes"]} for a in report["agents"]]
    shown = {"One computation, of rows that are made": report["results"], "A whole agent, from file to release": agents}
    panels = {title: found for title, found in shown.items() if found}
    figure = Figure(figsize=(5.0 * len(panels) + 0.4, 6.8), dpi=150, layout="constrained")
    axes = figure.subplots(2, len(panels), sharex=True, sharey="row", squeeze=False)
    for (top, bottom), (title, found) in zip(axes.T, panels.items(), strict=True):
        top.set_title(title, loc="left", fontsize=10, color=_INK)
        for work in dict.fromkeys(one["work"] for one in found):
            _lines(top, bottom, work, [one for one in found if one["work"] == work])
        top.legend(frameon=False, fontsize=8, loc="upper left", ncols=2)
        bottom.set_xlabel("rows", fontsize=9)
        for ax in (top, bottom):
            ax.set(xscale="log", yscale="log")
            ax.grid(color=_GRID)
            ax.set_axisbelow(True)
            ax.tick_params(labelsize=8, length=0, which="both")
            ax.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("CPU seconds", fontsize=9)
    axes[0, 0].set_ylim(top=2000)  # room for the legends
    axes[1, 0].set_ylabel("peak memory, MB", fontsize=9)
    ticks = (100, 200, 300, 500, 1000, 2000)
    axes[1, 0].set_yticks(ticks, map(str, ticks))
    axes[1, 0].minorticks_off()
    figure.savefig(path)


def _lines(top: Axes, bottom: Axes, work: str, found: list[dict[str, Any]]) -> None:
    """One work's line in both panels."""
    colour, marker, line = _STYLES[work]
    style: dict[str, Any] = {"color": colour, "marker": marker, "linestyle": line, "markersize": 4.5, "linewidth": 1.4}
    label = work
    for before, last in list(pairwise(found))[-1:]:
        if min(before["cpu_seconds"], last["cpu_seconds"]) > 0:
            slope = log(last["cpu_seconds"] / before["cpu_seconds"]) / log(last["n"] / before["n"])
            label += f", slope {slope:.2f}"
    sizes = [one["n"] for one in found]
    top.plot(sizes, [one["cpu_seconds"] for one in found], label=label, **style)
    bottom.plot(sizes, [one["peak_megabytes"] for one in found], **style)
