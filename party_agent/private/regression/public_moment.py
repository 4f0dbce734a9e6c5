"""DP-PMTOLSE and DP-PMTSE: rows whitened by public second moments, then bounded, then measured.

Source: Enhancing DP linear regression via public second-moment, 2025. Nothing here reads private rows but row by row:
`transform` maps each row and label by public numbers, and the bounds of its sample follow from d, n and eta.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite, log, sqrt
from typing import Self

import numpy as np

from commingle.party_agent.private.regression.measuring import Measure, Privacy, gaussian_multiplier
from commingle.party_agent.private.regression.problem import Estimate, Floats, Sample
from commingle.party_agent.private.regression.sums import gram_noise, noisy_sums, norm_bound, solve
from commingle.shared.dp.errors import ParameterError

ETA = 0.05
STABLE = 2.0
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

    def whiten(self, x: Floats) -> Floats:
        """X Sigma_B^-1/2 of rows (n x d): one column of x after the other, all rows at once.

        Not a matrix product, which adds up a row's terms in an order that depends on how many rows there are. Here
        each entry takes the same roundings wherever its row stands (docs/proofs/regression.md, 3.5).
        """
        whitened = np.zeros(x.shape)
        for column, weights in zip(x.T, self.root(-0.5), strict=True):
            whitened += column[:, None] * weights
        return whitened

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


def transform(
    x: Floats, y: Floats, public: PublicMoments, *, make: SampleMaker, eta: float = ETA, public_n: int | None = None
) -> Sample:
    """x~ = Sigma_B^-1/2 x and y~ = y / sigma_B, clipped to sqrt(d (1 + ln(2n/eta))) and sqrt(1 + ln(2n/eta)).

    n is `public_n`, or the number of rows where that may be known.

    Raises:
        SampleError, ParameterError: as `make` and `tail`.
    """
    t = tail(len(y) if public_n is None else public_n, eta)
    rows, labels = public.whiten(x), y / sqrt(public.label)
    return make(rows, labels, row_bound=sqrt(x.shape[1] * t), label_bound=sqrt(t), public_n=public_n)


def stability(gram: Floats, deviation: float) -> float:
    """How often the noise in X^T X fits into what is left of its least eigenvalue: STABLE or more are wanted.

    The noise, of that deviation on the diagonal, exceeds deviation norm_bound(d) 5 % of the time at most, and by Weyl
    takes no more off the least eigenvalue. STABLE is the condition ||(X^T X)^-1|| ||noise|| <= 1/2 of the paper's
    theorem 3, with constants in place of O(). Post-processing of the noisy X^T X.
    """
    norm = deviation * norm_bound(len(gram))
    return float(np.linalg.eigvalsh(gram)[0]) / norm - 1


def dp_pmtolse(sample: Sample, public: PublicMoments, privacy: Privacy, measure: Measure) -> Estimate:
    """Coefficients sigma_B Sigma_B^-1/2 (X~^T X~ + noise)^-1 (X~^T y~ + noise).

    Privacy: add_remove or replace_one; `sums_loss(privacy)`. `sample` is made by `transform` with the same public
    moments; published moments are those of the transformed rows, per row, and `stability`.
    """
    gram, cross = noisy_sums(sample, privacy, measure)
    beta = sqrt(public.label) * public.root(-0.5) @ solve(gram, cross)
    n = max(sample.n, 1)
    published: dict[str, float | list[float]] = {
        "second_moment": (gram / n).ravel().tolist(),
        "cross_moment": (cross / n).tolist(),
        "stability": stability(gram, gram_noise(sample, privacy)),
    }
    return Estimate(beta.astype(np.float64), published)


PMTSE_WIDER = 2
"""What the measurement costs under replace_one, over what it costs under add_remove, in rho (proof, 9.2)."""


def dp_pmtse(sample: Sample, public: PublicMoments, privacy: Privacy, measure: Measure) -> Estimate:
    """The second moment Z^T Z / n of rows z = (x~, y~), and the coefficients that follow from it.

    Source: the same paper, algorithm 2, for features and label together; docs/proofs/regression.md, 3.8. Published
    are that moment, of transformed rows and, brought back, of features and label as they are encoded; `stability`.

    Privacy: add_remove or replace_one; `sums_loss(privacy)`. `sample` is made by `transform` with the same public
    moments.
    """
    rows = np.column_stack([sample.x, sample.y])
    longest = sample.row_bound**2 + sample.label_bound**2
    sensitivity = longest * (sqrt(2) if privacy.replaces else 1)
    multiplier = gaussian_multiplier(privacy, 1)
    moment = measure.measure(rows.T @ rows, sensitivity=sensitivity, multiplier=multiplier, symmetric=True)
    gram, cross, n = moment[:-1, :-1], moment[:-1, -1], max(sample.n, 1)
    beta = sqrt(public.label) * public.root(-0.5) @ solve(gram, cross)
    back = np.block([[public.root(0.5), np.zeros((sample.d, 1))], [np.zeros((1, sample.d)), sqrt(public.label)]])
    published: dict[str, float | list[float]] = {
        "transformed_moment": (moment / n).ravel().tolist(),
        "second_moment": (back @ moment @ back / n).ravel().tolist(),
        "stability": stability(gram, multiplier * sensitivity),
    }
    return Estimate(beta.astype(np.float64), published)
