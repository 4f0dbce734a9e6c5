"""Principal components of the private table: those of the posterior mode."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from commingle.services.analysis.moments import Covariance, columns_of, estimate
from commingle.services.plotting import COLOURS, INK, new_axes, plain_label, tidy
from commingle.services.results import Result, ResultColumn, ResultTable
from commingle.shared.estimation.prepared import Array, PreparedMoments

if TYPE_CHECKING:  # matplotlib is slow to import and only plots need it
    from matplotlib.axes import Axes

_PLOT_ROWS, _PLOT_INCHES = 16, 7.5
_LABEL_WIDTH, _LABEL_HEIGHT = 0.2, 0.04  # of half an axis


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PrincipalComponents(Result):
    """Components in order of variance. No standard errors: see the warnings and `signal_to_noise`.

    Attributes:
        labels: of the p columns.
        standardised: whether every column was scaled to variance 1; otherwise they are in encoded units.
        variances: (p,).
        shares: (p,) of the sum of variances.
        loadings: (p, p), one component per row, of length 1; its largest entry is positive.
        signal_to_noise: (p,) variance along a component over that of the noise in it; NaN where rows hold no noise.
    """

    labels: tuple[str, ...]
    standardised: bool
    variances: Array
    shares: Array
    loadings: Array
    signal_to_noise: Array
    n: int
    rows: int
    warnings: tuple[str, ...]

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw where each column lies on the first two components; on `ax` or a new figure.

        An arrow ends at loadings times the components' standard deviations: of standardised columns, at correlations.
        """
        if ax is None:
            ax = new_axes(rows=_PLOT_ROWS, width_inches=_PLOT_INCHES)
        ends = np.zeros((2, len(self.labels)))
        ends[: len(self.loadings)] = (self.loadings * np.sqrt(self.variances)[:, None])[:2]
        arrow = {"arrowstyle": "->", "color": COLOURS[0], "shrinkA": 0, "shrinkB": 0}
        reach = 1.3 * (float(np.abs(ends).max()) or 1.0)
        heights = _apart(ends[0], ends[1], reach)
        for label, x, y, height in zip(self.labels, ends[0], ends[1], heights, strict=True):
            ax.annotate("", (x, y), (0, 0), arrowprops=arrow)
            side = "left" if x >= 0 else "right"
            ax.text(x, height, f" {plain_label(label)} ", fontsize=8, color=INK, ha=side, va="bottom")
        ax.set_xlim(-reach, reach)
        ax.set_ylim(-reach, reach)
        tidy(ax)
        ax.set_title("Principal components", fontsize=11, color=INK)
        ax.set_xlabel(self._share_of(0), fontsize=9)
        ax.set_ylabel(self._share_of(1), fontsize=9)
        return ax

    def _share_of(self, component: int) -> str:
        """What stands beside its axis: what it explains, and whether that is more than noise."""
        if component >= len(self.shares):
            return ""
        signal = self.signal_to_noise[component]
        said = "" if np.isnan(signal) else f", signal to noise {signal:.2g}"
        return f"component {component + 1}: {self.shares[component]:.0%} of the variance{said}"

    def table(self) -> ResultTable:
        """One row per component."""
        return ResultTable(
            title="Principal components",
            facts=(("units", "standardised" if self.standardised else "encoded"), ("subjects", f"{self.n:,}")),
            heading="component",
            labels=tuple(str(i + 1) for i in range(len(self.labels))),
            columns=(
                ResultColumn("variance", self.variances),
                ResultColumn("share", self.shares, ".1%"),
                ResultColumn("signal to noise", self.signal_to_noise, ".3g"),
                *(ResultColumn(label, self.loadings[:, i], ".3f") for i, label in enumerate(self.labels)),
            ),
            warnings=self.warnings,
        )


def _apart(x: Array, y: Array, reach: float) -> list[float]:
    """Heights of labels at points (x, y), such that none lies on another; axes reach that far."""
    placed: dict[int, float] = {}
    for i in np.argsort(y, kind="stable"):
        near = [other for j, other in placed.items() if abs(x[i] - x[j]) < _LABEL_WIDTH * reach]
        placed[i] = max([float(y[i]), *(other + _LABEL_HEIGHT * reach for other in near)])
    return [placed[i] for i in range(len(y))]


def pca(
    prepared: PreparedMoments, attributes: str | Sequence[str] | None = None, *, standardise: bool = True
) -> PrincipalComponents:
    """Components of these attributes, or of all; a level of a categorical attribute is a column of its own.

    Raises:
        EstimationError: an unknown attribute, or one of which nothing is left beside the noise.
    """
    covariance = estimate(prepared, columns_of(prepared, attributes))
    units = covariance.deviations if standardise else np.ones(len(covariance.labels))
    _, roots, loadings = np.linalg.svd(covariance.root / units)
    loadings *= np.sign(loadings[np.arange(len(units)), np.abs(loadings).argmax(axis=1)])[:, None]
    variances = roots**2
    signal_to_noise = _against_noise(covariance, loadings / units, variances)
    return PrincipalComponents(
        labels=covariance.labels,
        standardised=standardise,
        variances=variances,
        shares=variances / variances.sum(),
        loadings=loadings,
        signal_to_noise=signal_to_noise,
        n=covariance.n,
        rows=prepared.rows,
        warnings=(*covariance.warnings, *_faint(covariance, signal_to_noise)),
    )


def _against_noise(covariance: Covariance, directions: Array, variances: Array) -> Array:
    noise = np.einsum("ij,jk,ik->i", directions, covariance.noise, directions)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(noise > 0, variances / noise, np.nan)


def _faint(covariance: Covariance, signal_to_noise: Array) -> tuple[str, ...]:
    """Noise alone, of m rows and p columns, has eigenvalues up to (1 + sqrt(p/m))^2 (Marchenko and Pastur 1967)."""
    edge = (1 + np.sqrt(len(covariance.labels) / covariance.rows)) ** 2 - 1
    faint = np.flatnonzero(signal_to_noise < edge)
    if not len(faint):
        return ()
    which = ", ".join(str(i + 1) for i in faint)
    return (f"Components {which} cannot be told from noise, which alone reaches a signal to noise of {edge:.2g}.",)
