"""Principal components of the private table: those of the posterior mode."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from commingle.services.analysis.moments import Covariance, columns_of, estimate
from commingle.services.results import Result, ResultColumn, ResultTable
from commingle.shared.estimation.prepared import Array, PreparedMoments


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


def pca(
    prepared: PreparedMoments, attributes: Sequence[str] | None = None, *, standardise: bool = True
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
        n=prepared.n,
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
