"""Pictures of results. matplotlib is optional and slow to import, so only drawing loads it."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

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
_MARKERS = "osD^"
_INTERVAL = re.compile(r"\[(\[[^\[\]()]*[\])])]")
_GROUPED = 0.6  # of a row, over which its groups spread
_REACH, _LEAST_REACH, _EDGE = 8.0, 1.2, 1.1  # of a log axis: beyond values, around 1, beyond all
_MOST_TICKS = 4  # that a phone is wide enough for
_CURVE_ROWS = 9
_APART = 0.14  # of the width: numbers of nearer times would overlap on a phone
_ROW_INCHES, _MARGIN_INCHES, _WIDTH_INCHES = 0.38, 1.3, 7.0


def axes_on(ax: "Axes | None", *, rows: int, width_inches: float = _WIDTH_INCHES) -> "Axes":
    """`ax`, or axes on a new figure that is high enough for so many rows of text."""
    return _stack([rows], width_inches)[0] if ax is None else ax


def _stack(rows: Sequence[int], width_inches: float) -> "list[Axes]":
    try:
        from matplotlib import pyplot as plt  # noqa: PLC0415 - as above
    except ImportError:
        raise MissingExtraError("matplotlib", extra="plot") from None
    size = (width_inches, _MARGIN_INCHES * len(rows) + _ROW_INCHES * sum(rows))
    _, axes = plt.subplots(len(rows), figsize=size, dpi=110, layout="constrained", squeeze=False)
    return list(axes[:, 0])


def term_text(said: str) -> str:
    """Terms as people read them: `age[45, 60)` for `age[[45, 60)]`."""
    return _INTERVAL.sub(r"\1", said)


def plain_label(name: str) -> str:
    """A name for a picture, in which dollars would begin a formula."""
    return term_text(printable(name)).replace("$", r"\$")


def entitle(ax: "Axes", title: str, x: str, y: str = "") -> None:
    ax.set_title(plain_label(title), fontsize=11, color=INK)
    ax.set_xlabel(plain_label(x), fontsize=9)
    ax.set_ylabel(plain_label(y), fontsize=9)


def tidy(ax: "Axes") -> None:
    ax.tick_params(length=0)
    ax.set_axisbelow(True)
    ax.grid(color=GRID)
    ax.spines[:].set_visible(False)


def _round_ratios(least: float, most: float) -> Iterator[list[float]]:
    """1, 2 and 5 times powers of ten, then powers of ten, of which ever fewer are left."""
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    for bases, apart in chain([((1, 2, 5), 1)], zip(repeat((1,)), count(1))):
        ticks = (base * 10.0**power for power in powers if power % apart == 0 for base in bases)
        yield [tick for tick in ticks if least <= tick <= most]


def _round_numbers(least: float, most: float) -> Iterator[list[float]]:
    """Multiples of 1, 2 or 5 times a power of ten, ever farther apart."""
    finest = math.floor(math.log10(((most - least) or 1.0) / _MOST_TICKS))
    for step in (base * 10.0**power for power in count(finest) for base in (1, 2, 5)):
        yield [step * k for k in range(math.ceil(least / step), math.floor(most / step) + 1)]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Intervals:
    """A picture with a row for each label: for each group a value with its interval, all on one axis.

    Attributes:
        axis: the title of the axis.
        values: (q, G), or (q,) for one group; NaN draws nothing.
        intervals: (q, G, 2) or (q, 2).
        of: effects, with a line at 0; shares, in percent; or ratios, on a log axis with a line at 1.
        groups: G names.
        limit: where the axis of effects ends on both sides; an arrow shows what lies beyond.
        truth: the true values, if known, as dark triangles.
    """

    title: str
    axis: str
    labels: Sequence[str]
    values: Array
    intervals: Array
    of: Literal["effects", "shares", "ratios"]
    groups: Sequence[str] = ("",)
    limit: float | None = None
    truth: Array | None = None

    @property
    def reach(self) -> tuple[float, float]:
        """Both ends of the axis; for ratios near the values, however far intervals go."""
        if self.limit is not None:
            return -self.limit, self.limit
        near, ends = (each[np.isfinite(each)] for each in (self.values, self.intervals))
        if self.of != "ratios":
            shown = np.concatenate([near, ends, [0.0]])
            return float(shown.min()), float(shown.max())
        near = near[near > 0]
        ends = ends[(ends >= near.min(initial=1.0) / _REACH) & (ends <= near.max(initial=1.0) * _REACH)]
        shown = np.concatenate([near, ends, [1 / _LEAST_REACH, _LEAST_REACH]])
        return float(shown.min()), float(shown.max())

    @property
    def ticks(self) -> list[float]:
        """A few round values within reach."""
        least, most = self.reach
        if self.of == "ratios":
            return next(found for found in _round_ratios(least, most) if len(found) <= _MOST_TICKS)
        return next(found for found in _round_numbers(least, most) if len(found) <= _MOST_TICKS)

    def draw(self, ax: "Axes | None" = None) -> "Axes":
        """Draw on `ax` or a new figure; arrows show ends that are out of reach."""
        count, size = len(self.labels), len(self.groups)
        ax = axes_on(ax, rows=max(1, round(count * max(1.0, size / 2))))
        if self.of == "ratios":
            self._draw_log_axis(ax)
        elif self.of == "effects":
            ax.axvline(0, color=INK, linewidth=0.9, zorder=1)
        for g in range(size):
            self._draw_group(ax, g)
        ax.set_yticks(np.arange(count), list(map(plain_label, self.labels)))
        ax.set_ylim(max(1, count) - 0.5, -0.5)
        tidy(ax)
        ax.grid(visible=False, axis="y")
        entitle(ax, self.title, self.axis)
        if self.of == "shares":
            ax.set_xlim(left=0)
        elif self.limit is not None:
            ax.set_xlim(-_EDGE * self.limit, _EDGE * self.limit)
        if size > 1:
            ax.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
        return ax

    def _draw_group(self, ax: "Axes", g: int) -> None:
        count, size, scale = len(self.labels), len(self.groups), 100 if self.of == "shares" else 1
        values = scale * self.values.reshape(count, size)[:, g]
        intervals = scale * self.intervals.reshape(count, size, 2)[:, g]
        places, colour = np.arange(count) + _GROUPED * ((g + 0.5) / size - 0.5), COLOURS[g % len(COLOURS)]
        if self.of == "ratios" or self.limit is not None:
            least, most = self.reach
            low, high = np.fmin(values, intervals[:, 0]) < least, np.fmax(values, intervals[:, 1]) > most
            for beyond, at, mark in ((low, least, "<"), (high, most, ">")):
                ax.scatter(np.full(int(beyond.sum()), at), places[beyond], marker=mark, s=40, color=colour, zorder=3)
            values = np.where((values >= least) & (values <= most), values, np.nan)
            intervals = np.clip(intervals, least, most)
        ax.hlines(places, *intervals.T, color=colour, linewidth=2, alpha=0.6, zorder=2)
        marker, label = _MARKERS[g % len(_MARKERS)], plain_label(self.groups[g])
        ax.scatter(values, places, s=28, marker=marker, color=colour, zorder=3, label=label or None)
        if self.truth is not None:
            truth = scale * self.truth.reshape(count, size)[:, g]
            ax.scatter(truth, places + _GROUPED / (2 * size), s=22, marker="^", color=INK, zorder=4)

    def _draw_log_axis(self, ax: "Axes") -> None:
        least, most = self.reach
        ax.set_xscale("log")
        ax.axvline(1, color=INK, linewidth=0.9, zorder=1)
        ax.set_xlim(least / _EDGE, most * _EDGE)
        ax.set_xticks(self.ticks, [f"{tick:g}" for tick in self.ticks])
        ax.minorticks_off()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Curves:
    """A picture of a share over time for each of G groups, with its band, and numbers at risk below.

    Attributes:
        share: the title of the axis of shares, without the "%" that precedes it.
        time: the title of the axis of time.
        by: the attribute whose levels are the groups; None if everybody is one group.
        times: (K + 1,) from the time when everybody is at risk to the last one at which a group has a share.
        shares: (G, K + 1), NaN where there is none.
        bands: (G, K + 1, 2).
        at_risk: (G, K + 1) people.
        top: where the axis of shares ends.
    """

    title: str
    share: str
    time: str
    by: str | None
    groups: tuple[str, ...]
    times: Array
    shares: Array
    bands: Array
    at_risk: Array
    top: float = 1.0

    @property
    def along(self) -> Array:
        """(K + 1,) times, from 0 to 1."""
        return np.asarray((self.times - self.times[0]) / (self.times[-1] - self.times[0] or 1.0))

    @property
    def told(self) -> list[int]:
        """Places of the times that the axis shows."""
        found = [0]
        for k, x in enumerate(self.along.tolist()):
            found += [k] if x - self.along[found[-1]] >= _APART else []
        return found

    @classmethod
    def stacked(cls, pictures: "Sequence[Curves]") -> "Axes":
        """Draw all on one new figure, one below another; return the axes of the first."""
        axes = _stack([_CURVE_ROWS + len(one.groups) for one in pictures], _WIDTH_INCHES)
        drawn = [one.draw(ax) for one, ax in zip(pictures, axes, strict=True)]
        return drawn[0]

    def draw(self, ax: "Axes | None" = None) -> "Axes":
        ax = axes_on(ax, rows=_CURVE_ROWS + len(self.groups))
        for g, name in enumerate(self.groups):
            colour = COLOURS[g % len(COLOURS)]
            ax.plot(self.times, 100 * self.shares[g], color=colour, marker="o", markersize=4, label=plain_label(name))
            ax.fill_between(self.times, *(100 * self.bands[g]).T, color=colour, alpha=0.15, linewidth=0)
        tidy(ax)
        ax.set_ylim(0, 101 * self.top)
        entitle(ax, self.title, self.time, f"% {self.share}")
        self._write_at_risk(ax)
        if self.by:
            ax.legend(frameon=False, title=plain_label(self.by))
        return ax

    def _write_at_risk(self, ax: "Axes") -> None:
        risk = [[f"{n:z,.0f}" for n in self.at_risk[:, k].tolist()] for k in self.told]
        times = self.times[self.told]
        ax.set_xticks(times, ["\n".join([f"{time:g}", *each]) for time, each in zip(times, risk, strict=True)])
        names = "\n".join(["", *(f"at risk, {plain_label(name)}" for name in self.groups)])
        ax.annotate(
            names,
            (0, 0),
            xytext=(-42, -5),
            xycoords="axes fraction",
            textcoords="offset points",
            va="top",
            ha="right",
            fontsize=8,
        )
        ax.tick_params(axis="x", labelsize=8)


def save(ax: "Axes", path: Path) -> None:
    """Write a picture in the format of its suffix. Raises OutputError."""
    figure: Any = ax.figure
    try:
        figure.savefig(path, bbox_inches="tight")
    except (OSError, ValueError) as error:
        raise OutputError(
            f"cannot draw to {path} ({error})", remedy="Name a file that ends in .png, .svg or .pdf."
        ) from None
