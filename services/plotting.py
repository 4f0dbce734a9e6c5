"""What pictures of results share: matplotlib is optional, and slow to import, so only who draws loads it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from commingle.shared.errors import MissingExtraError
from commingle.shared.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]
INK, GRID, OTHERS = "#222222", "#e4e4e4", "#c4c4c4"
COLOURS = ("#1f6fb4", "#d9772b", "#2a9d57", "#7b4fa3", "#b8860b", "#c2406e", "#3b8ea5", "#6b6b6b")
_ROW_INCHES, _MARGIN_INCHES, _WIDTH_INCHES = 0.38, 1.3, 7.0


def new_axes(*, rows: int, width_inches: float = _WIDTH_INCHES) -> "Axes":
    """Axes on a new figure that is high enough for so many rows of text.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib import pyplot as plt  # noqa: PLC0415 - as above
    except ImportError:
        raise MissingExtraError("matplotlib", extra="plot") from None
    height = _MARGIN_INCHES + _ROW_INCHES * rows
    _, ax = plt.subplots(figsize=(width_inches, height), dpi=110, layout="constrained")
    return ax


def plain_label(name: str) -> str:
    """A name for a picture, in which dollars would begin a formula."""
    return printable(name).replace("$", r"\$")


def tidy(ax: "Axes") -> None:
    """No frame and no ticks, a light grid behind."""
    ax.tick_params(length=0)
    ax.set_axisbelow(True)
    ax.grid(color=GRID)
    ax.spines[:].set_visible(False)


def draw_intervals(ax: "Axes", labels: Sequence[str], values: Array, intervals: Array) -> None:
    """One row for each label: values (q,), intervals (q, 2)."""
    places = np.arange(len(labels), dtype=np.float64)
    ax.axvline(0, color=INK, linewidth=0.9, zorder=1)
    ax.hlines(places, *intervals.T, color=COLOURS[0], linewidth=2, alpha=0.6, zorder=2)
    ax.scatter(values, places, s=28, color=COLOURS[0], zorder=3)
    ax.set_yticks(places, labels)
    ax.set_ylim(max(1, len(labels)) - 0.5, -0.5)
    ax.tick_params(length=0)
    ax.set_axisbelow(True)
    ax.grid(axis="x", color=GRID)
    ax.spines[:].set_visible(False)
