"""The two pictures of benchmarks.wu2022."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.wu2022_synthetic import THRESHOLD

_ERROR = r"$\|\hat{w}-w\|$"
_NOTES = {"DGM-OLS": "DGM-OLS", "BGM-OLS": "BGM-OLS: all releases near one point, bottom right"}
_INK, _GRID = "#222222", "#e4e4e4"
_STYLES: Mapping[str, tuple[str, str, str, str]] = {  # method: colour, marker, line, label
    "BGM-OLS": ("#8c8c8c", "v", "-", "BGM-OLS"),
    "RMGM-OLS k=sqrt(n)/sigma": ("#e8a15c", "^", ":", r"RMGM-OLS, $k=\sqrt{n}/\sigma$"),
    "RMGM-OLS k=10 sqrt(n)/sigma": ("#e8a15c", "s", "--", r"RMGM-OLS, $k=10\,\sqrt{n}/\sigma$"),
    "RMGM-OLS k=n^(2/3)": ("#d9622b", "D", "-", r"RMGM-OLS, $k=n^{2/3}$"),
    "RMGM-OLS best k": ("#9c3210", "o", "-", "RMGM-OLS, best k of five"),
    "DGM-OLS": ("#b3659e", "x", "-", "DGM-OLS"),
    "Commingle measurement_error": ("#1f6fb4", "o", "--", "Commingle, measurement_error"),
    "Commingle shrunken": ("#1f6fb4", "o", "-", "Commingle, shrunken"),
}


def draw_synthetic(path: Path, cells: Sequence[dict[str, Any]]) -> None:
    """Mean error and P(error > t) over n, a column of panels per epsilon."""
    epsilons = sorted({cell["epsilon"] for cell in cells})
    figure = Figure(figsize=(3.3 * len(epsilons) + 0.6, 7.6), dpi=130, layout="constrained")
    axes = figure.subplots(2, len(epsilons), sharex=True, sharey="row", squeeze=False)
    for column, epsilon in enumerate(epsilons):
        chosen = sorted((c for c in cells if c["epsilon"] == epsilon), key=lambda c: int(c["n"]))
        sizes = [c["n"] for c in chosen]
        top, bottom = axes[0, column], axes[1, column]
        top.set_title(f"ε = {epsilon:g}", fontsize=11, color=_INK)
        top.set_yscale("log")
        top.set_ylim(0.018, 40)
        top.plot(sizes, [c["norm_of_w"] for c in chosen], color="#555555", lw=1, ls=(0, (1, 2)), label="w = 0 for all")
        for method, (colour, marker, line, label) in _STYLES.items():
            style = {"color": colour, "marker": marker, "linestyle": line, "markersize": 4.5, "linewidth": 1.4}
            top.plot(sizes, [c["methods"][method]["mean"] for c in chosen], label=label, **style)
            bottom.plot(sizes, [c["methods"][method]["above_threshold"] for c in chosen], **style)
        for ax in (top, bottom):
            _plain(ax)
        bottom.set_xscale("log")
        bottom.set_xlabel("subjects n", fontsize=9)
    axes[0, 0].set_ylabel(f"mean of {_ERROR}", fontsize=10)
    axes[1, 0].set_ylabel(f"share with {_ERROR} > {THRESHOLD:g}", fontsize=10)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    figure.savefig(path)


def draw_eigenvalues(path: Path, panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]) -> None:
    """The error of each release against the smallest |eigenvalue| of its Hessian, a panel for each title."""
    figure = Figure(figsize=(5.6 * len(panels) + 0.6, 4.4), dpi=130, layout="constrained")
    for ax, (title, points) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for method, found in points.items():
            least, error = np.array(found).T
            ax.scatter(least, error, s=14, color=_STYLES[method][0], alpha=0.6, linewidths=0, label=_NOTES[method])
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("smallest |eigenvalue| of the Hessian", fontsize=9)
        ax.set_ylabel(_ERROR, fontsize=10)
        ax.set_title(title, fontsize=10, color=_INK)
        ax.legend(frameon=False, fontsize=9)
        _plain(ax)
    figure.savefig(path)


def _plain(ax: Axes) -> None:
    ax.grid(color=_GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.tick_params(length=0, which="both", labelsize=8.5)
    for spine in ax.spines.values():
        spine.set_visible(False)
