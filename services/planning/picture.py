"""`plan.png`: expected R^2 over k, epsilon and n, with a line for the mean."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from commingle.services.plotting import INK, entitle, tidy
from commingle.shared.forecast.result import Forecast, Plan, Point

_BLUE, _ORANGE = "#1f6fb4", "#d9772b"
_PANEL_INCHES, _HEIGHT_INCHES, _LETTERS_PER_INCH = 4.0, 4.6, 11
_LOWEST = -0.5  # below it a fit is worthless by any measure


def draw(path: Path, plan: Plan) -> None:
    f = plan.forecast
    curves: list[tuple[str, Sequence[Point], float]] = [
        ("epsilon per member", plan.over_epsilon, f.epsilon),
        ("people (n)", plan.over_n, f.n),
    ]
    if plan.over_k and f.k is not None:
        curves.insert(0, ("rows of the sketch (k)", plan.over_k, f.k))
    width = _PANEL_INCHES * len(curves)
    figure = Figure(figsize=(width, _HEIGHT_INCHES), dpi=150, layout="constrained")
    axes = figure.subplots(1, len(curves), sharey=True, squeeze=False).ravel()
    for ax, (title, points, here) in zip(axes, curves, strict=True):
        _draw_panel(ax, title, points, here, f)
    axes[0].set_ylabel("expected R\N{SUPERSCRIPT TWO} on new people", fontsize=9)
    values = [v for _, points, _ in curves for p in points for v in (p.r_squared, p.r_squared_constant)]
    top = max(
        [f.r_squared_assumed, *(p.r_squared_range[1] for _, points, _ in curves for p in points if p.r_squared_range)]
    )
    room = 0.08 * (top - max(_LOWEST, min(values)))
    axes[0].set_ylim(max(_LOWEST, min(values)) - room, top + room)
    title = textwrap.fill(f.sentences[0], int(width * _LETTERS_PER_INCH))
    figure.suptitle(title, fontsize=10.5, fontweight="bold", color=INK)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6 if plan.over_k else 3, frameon=False, fontsize=9)
    figure.savefig(path)


def _tick(value: float, _: object) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _draw_panel(ax: Axes, title: str, points: Sequence[Point], here: float, f: Forecast) -> None:
    at = np.array([p.at for p in points])
    ax.set_xscale("log")
    entitle(ax, "", title)
    ax.minorticks_off()
    tidy(ax)
    ax.axhline(f.r_squared_assumed, color=INK, linewidth=1, linestyle=":", label="without privacy (assumed)")
    ranges = [p.r_squared_range or (p.r_squared, p.r_squared) for p in points]
    if f.r_squared_range is not None:
        low, high = np.array(ranges).T
        ax.fill_between(at, low, high, color=_BLUE, alpha=0.15, linewidth=0, label="nine of ten tables")
    ax.plot(at, [p.r_squared for p in points], color=_BLUE, linewidth=2, label="fit of the release")
    mean = [p.r_squared_constant for p in points]
    ax.plot(at, mean, color=_ORANGE, linewidth=1.6, linestyle="--", label="predicting the private mean")
    useful = [p for p in points if p.useful]
    ax.scatter([p.at for p in useful], [p.r_squared for p in useful], color=_BLUE, s=18, zorder=3, label="useful")
    ax.axvline(here, color="#888888", linewidth=1, label="this release")
    ax.xaxis.set_major_formatter(_tick)
