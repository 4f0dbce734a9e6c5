"""A fit for notebooks: as a table and as a picture."""

from typing import TYPE_CHECKING

import numpy as np

from commingle.services.display.table import Column, Table
from commingle.services.fit.summary import COVERED
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.estimation.prepared import Array

if TYPE_CHECKING:  # result.py shows itself through this module; matplotlib is slow to import and only plots need it
    from matplotlib.axes import Axes

    from commingle.services.fit.result import Fit

_COLOUR, _GRID, _INK = "#1f6fb4", "#e4e4e4", "#222222"
_ROW_INCHES, _MARGIN_INCHES, _WIDTH_INCHES = 0.38, 1.3, 7.0


def fit_table(fit: "Fit") -> Table:
    """One row per term."""
    low, high = fit.intervals.T
    level = f"{100 * fit.confidence_level:g} %"
    r_squared = fit.diagnostics.r_squared
    return Table(
        title=f"Linear model of {fit.target}",
        facts=(
            ("estimator", fit.estimator),
            ("mechanism", fit.mechanism),
            ("subjects", f"{fit.n:,}"),
            ("published rows", f"{fit.rows:,}"),
            ("expected R²", "none" if r_squared is None else f"{r_squared:.3f}"),
        ),
        heading="term",
        labels=fit.terms,
        columns=(
            Column("coefficient", fit.coefficients),
            Column("standard error", fit.standard_errors),
            Column("t", fit.t_values, ".2f"),
            Column("p", fit.p_values, ".3f"),
            Column(f"{level} low", low),
            Column(f"{level} high", high),
        ),
        notes=(COVERED[fit.interval_for],),
        warnings=fit.warnings,
    )


def draw(fit: "Fit", ax: "Axes | None") -> "Axes":
    """One row per term but the intercept, scaled to be comparable: see `ranges`. A new figure is pyplot's own."""
    if ax is None:
        from matplotlib import pyplot as plt  # noqa: PLC0415 - slow to import and only plots need it

        height = _MARGIN_INCHES + _ROW_INCHES * len(fit.terms)
        _, ax = plt.subplots(figsize=(_WIDTH_INCHES, height), dpi=110, layout="constrained")
    start, width = int(fit.intercept), ranges(fit)
    places = np.arange(len(width), dtype=np.float64)
    effects = fit.coefficients[start:] * width
    low, high = (fit.intervals[start:] * width[:, None]).T
    ax.axvline(0, color=_INK, linewidth=0.9, zorder=1)
    ax.hlines(places, low, high, color=_COLOUR, linewidth=2, alpha=0.6, zorder=2)
    ax.scatter(effects, places, s=28, color=_COLOUR, zorder=3)
    ax.set_yticks(places, fit.terms[start:])
    ax.set_ylim(max(1, len(width)) - 0.5, -0.5)
    ax.tick_params(length=0)
    ax.set_axisbelow(True)
    ax.grid(axis="x", color=_GRID)
    ax.spines[:].set_visible(False)
    ax.set_title(f"{fit.target} by {fit.estimator}", fontsize=11, color=_INK)
    covered = "no intervals" if np.isnan(low).all() else f"{100 * fit.confidence_level:g} % interval"
    ax.set_xlabel(f"change of {fit.target} over a feature's public range ({covered})", fontsize=9)
    return ax


def ranges(fit: "Fit") -> Array:
    """Public range of each term but the intercept: upper - lower of a number, 1 for a level against the reference."""
    widths = [
        [a.upper - a.lower] if isinstance(a, NumericAttribute) else [1.0] * (len(a.levels) - 1) for a in fit.schema
    ]
    return np.array([width for of_attribute in widths for width in of_attribute])
