"""`moments.png`: test R^2 by table, moments beside rmgm and least squares."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

_ROWS = (
    ("moments", "shrunken", "#1f6fb4", "moments, shrunken"),
    ("moments", "adaptive_ridge", "#2a9d57", "moments, adaptive_ridge"),
    ("rmgm", "shrunken", "#d9772b", "rmgm, shrunken (best k)"),
    ("rmgm", "adaptive_ridge", "#a45ab8", "rmgm, adaptive_ridge (best k)"),
)
_LEAST = -0.25
_INK, _GRID = "#222222", "#e4e4e4"


def draw(path: Path, results: dict[str, dict[str, Any]]) -> None:
    """One panel per table; dots are means, lines reach from the least to the greatest of all runs."""
    figure = Figure(figsize=(9.2, 1.0 + 1.45 * len(results)), dpi=150, layout="constrained")
    axes = figure.subplots(len(results), 1, sharex=True, squeeze=False).ravel()
    for ax, (name, result) in zip(axes, results.items(), strict=True):
        _panel(ax, name, result)
    axes[-1].set_xlabel("test R² (0: predicting the mean; arrows: below the axis)", color=_INK)
    figure.suptitle("Three parties, ε = 1 per party, δ = 1e-5", color=_INK, fontsize=12)
    figure.savefig(path)


def _panel(ax: Axes, name: str, result: dict[str, Any]) -> None:
    ax.axvline(result["ols_test_r2"], color=_INK, linewidth=1.6)
    ax.axvline(0, color="#999999", linewidth=0.9, linestyle="--")
    ax.annotate(
        f" least squares {result['ols_test_r2']:.3f}",
        (result["ols_test_r2"], 0.97),
        xycoords=("data", "axes fraction"),
        va="top",
        fontsize=8,
        color=_INK,
    )
    for place, (kind, estimator, colour, _) in enumerate(reversed(_ROWS)):
        found = result[kind][estimator]
        ax.hlines(place, max(found["min"], _LEAST), max(found["max"], _LEAST), color=colour, linewidth=2, alpha=0.5)
        inside = found["mean"] >= _LEAST
        marker = "o" if inside else "<"
        ax.scatter(max(found["mean"], _LEAST + 0.005), place, color=colour, marker=marker, s=34, zorder=3)
    ax.set_yticks(range(len(_ROWS)), [label for *_, label in reversed(_ROWS)], fontsize=8)
    ax.set_xlim(_LEAST, 0.55)
    ax.set_ylim(-0.6, len(_ROWS) - 0.4)
    ax.set_title(f"{name}: n = {result['n']:,}, {result['features']} features", loc="left", fontsize=9, color=_INK)
    ax.grid(axis="x", color=_GRID)
    ax.set_axisbelow(True)
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
