"""DP-PMTOLSE: rows whitened by public second moments, then bounded, then least squares from noisy moments.

Source: Enhancing DP linear regression via public second-moment, 2025. Nothing here reads private rows but row by row:
`transform` maps each row and label by public numbers, and the bounds of its sample follow from d, n and eta.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite, log, nextafter, sqrt
from typing import Self

import numpy as np

from commingle.party_agent.private.regression.calibration import NoiseCalibration, Privacy, require_calibration
from commingle.party_agent.private.regression.measuring import Measure, multiplier_within, planned_loss
from commingle.party_agent.private.regression.problem import Estimate, Floats, Sample
from commingle.shared.dp.accounting import Loss
from commingle.shared.dp.calibration import rho_of_epsilon
from commingle.shared.dp.errors import ParameterError
from commingle.shared.dp.gaussian import gaussian_rho

ETA = 0.05
SampleMaker = Callable[..., Sample]
"""`problem.on_grid` for the product, `problem.clip_sample` for benchmarks."""


@dataclass(frozen=True, slots=True)
class PublicMoments:
    """Second moments about zero from PUBLIC rows or another publication.

    Attributes:
        features: Sigma_B, d x d, positive definite.
        label: sigma_B^2, positive.
    """

    features: Floats
    label: float

    def __post_init__(self) -> None:
        """Check the domains."""
        finite = bool(np.isfinite(self.features).all()) and isfinite(self.label) and self.label > 0
        if not (finite and np.linalg.eigvalsh(self.features)[0] > 0):
            raise ParameterError(
                "the public second moments are not positive definite",
                remedy="Use more public rows than columns, or leave out a column that follows from others.",
            )

    @classmethod
    def of(cls, x: Floats, y: Floats) -> Self:
        """B^T B / n_B of public rows x (n_B x d), and the mean square of their labels y (n_B).

        Raises:
            ParameterError: too few rows, or columns that follow from each other.
        """
        return cls((x.T @ x / len(x)).astype(np.float64), float(np.mean(y**2)))

    def root(self, power: float) -> Floats:
        """Sigma_B^power, symmetric."""
        values, vectors = np.linalg.eigh(self.features)
        return np.asarray((vectors * values**power) @ vectors.T, np.float64)


def tail(n: int, eta: float = ETA) -> float:
    """1 + ln(2n/eta): squared radius per unit of second moment that n sub-Gaussian rows leave with probability eta.

    Raises:
        ParameterError: eta outside (0, 1), or no rows.
    """
    if not (0 < eta < 1 and n >= 1):
        raise ParameterError(f"no tail for eta {eta!r} and {n} rows", remedy="Use 0 < eta < 1 and at least one row.")
    return 1 + log(2 * n / eta)


def transform(x: Floats, y: Floats, public: PublicMoments, *, make: SampleMaker, eta: float = ETA) -> Sample:
    """x~ = Sigma_B^-1/2 x and y~ = y / sigma_B, clipped to sqrt(d (1 + ln(2n/eta))) and sqrt(1 + ln(2n/eta)).

    Raises:
        SampleError, ParameterError: as `make` and `tail`.
    """
    t = tail(len(y), eta)
    rows, labels = x @ public.root(-0.5), y / sqrt(public.label)
    return make(rows, labels, row_bound=sqrt(x.shape[1] * t), label_bound=sqrt(t))


def measured_loss(rho: float, parts: int) -> Loss:
    """What `parts` measurements at `rho` each cost; public."""
    one = Loss(planned_loss(multiplier_within(rho)))
    return sum((one for _ in range(parts - 1)), start=one)


def noisy_second_moment(sample: Sample, rho: float, measure: Measure) -> Floats:
    """X^T X / n + G, d x d, G symmetric with sd sqrt(2) R^2 / (sqrt(2 rho) n).

    ||u u^T - v v^T||_F^2 = |u|^4 + |v|^4 - 2 (u.v)^2 <= 2 R^4; the paper's triangle inequality has 2 R^2.

    Privacy: replace_one; rho-zCDP (Bun, Steinke 2016, lemma 2.5).
    """
    sensitivity = nextafter(sqrt(2), inf) * sample.row_bound**2
    total = measure.measure(
        sample.x.T @ sample.x, sensitivity=sensitivity, multiplier=multiplier_within(rho), symmetric=True
    )
    return total / sample.n


def noisy_cross_moment(sample: Sample, rho: float, measure: Measure) -> Floats:
    """X^T y / n + g, d, with sd 2 R L / (sqrt(2 rho) n): ||u y - v w|| <= 2 R L, attained by v = u, w = -y.

    Privacy: replace_one; rho-zCDP.
    """
    sensitivity = 2 * sample.row_bound * sample.label_bound
    total = measure.measure(sample.x.T @ sample.y, sensitivity=sensitivity, multiplier=multiplier_within(rho))
    return total / sample.n


PMTOLSE_SOUND = frozenset({NoiseCalibration.ANALYTIC, NoiseCalibration.ZCDP})
PMTOLSE_GUARANTEE = (
    "Gaussian measurements of a second moment and of a cross moment; 2 rho-zCDP under replace_one (Bun, Steinke 2016, "
    "lemmas 2.3 and 2.5)."
)


def share_of(privacy: Privacy) -> float:
    """The rho of each of the two measurements at (epsilon, delta).

    Raises:
        ParameterError: another calibration, or another adjacency than replace_one.
    """
    require_calibration(privacy, PMTOLSE_SOUND)
    if not privacy.replaces:
        raise ParameterError("this method is proved under replace_one only", remedy="Use adjacency replace_one.")
    calibrate = gaussian_rho if privacy.calibration is NoiseCalibration.ANALYTIC else rho_of_epsilon
    return calibrate(privacy.epsilon, privacy.delta) / 2


def dp_pmtolse_loss(rho: float) -> Loss:
    """What `dp_pmtolse` costs, 2 rho; public."""
    return measured_loss(rho, 2)


def dp_pmtolse(sample: Sample, public: PublicMoments, rho: float, measure: Measure) -> Estimate:
    """Coefficients sigma_B Sigma_B^-1/2 (X~^T X~/n + G)^-1 (X~^T y~/n + g).

    Privacy: replace_one; `dp_pmtolse_loss(rho)`. `sample` is made by `transform` with the same public moments;
    published moments are those of the transformed rows.
    """
    moment = noisy_second_moment(sample, rho, measure)
    cross = noisy_cross_moment(sample, rho, measure)
    beta = sqrt(public.label) * public.root(-0.5) @ np.linalg.lstsq(moment, cross)[0]
    published = {"second_moment": moment.ravel().tolist(), "cross_moment": cross.tolist()}
    return Estimate(beta.astype(np.float64), dp_pmtolse_loss(rho), published)
