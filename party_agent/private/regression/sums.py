"""Least squares from X^T X and X^T y, one Gaussian measurement of both (docs/proofs/regression.md, 2.2 and 3).

SSP, AdaSSP and boosted AdaSSP: Vu, Slavkovic 2009; Foulds et al. 2016; Wang 2018, algorithm 2 is AdaSSP; Tang et al.
2023, Improved differentially private regression via gradient boosting. The papers measure each sum by itself, with a
part of the budget, and AdaSSP the least eigenvalue too; here it is one measurement, and lambda comes from it.

Two stages: the sums of the columns, then the moments of the rows that these centred, scaled and cut
(shared/dp/two_stages.py), then what follows from both without any row: the mode that releases of moments are fitted by
(docs/design/estimation.md), which knows the noise of every entry and undoes the map exactly.

DP-PMTOLSE and DP-PMTSE (Enhancing DP linear regression via public second-moment, 2025): rows whitened by public second
moments, then bounded, then measured. `transform` maps each row and label by public numbers, and the bounds of its
sample follow from d, n and eta.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite, log, sqrt
from typing import Self

import numpy as np
from numpy.typing import NDArray

from commingle.party_agent.private.regression.measuring import (
    Measure,
    Parts,
    Privacy,
    gaussian_multiplier,
    gaussian_plan,
)
from commingle.party_agent.private.regression.problem import Estimate, Floats, Published, Sample, power_of_two_above
from commingle.shared.documents.regression import measured_attributes
from commingle.shared.documents.schema import Attribute
from commingle.shared.dp.accounting import Loss
from commingle.shared.dp.fixed_point import SCALE, IntegerMap, quantise
from commingle.shared.dp.noise import Sampler
from commingle.shared.dp.two_stages import TwoStages, plan_two_stages
from commingle.shared.errors import ParameterError
from commingle.shared.estimation.posterior import EntryLikelihood, posterior_mode

WIDER = Fraction(9, 4)
"""The rho of a measurement of the sums under replace_one, over that under add_remove."""
_FAILURE = 0.05


def sums_loss(privacy: Privacy) -> Loss:
    return gaussian_plan(privacy, 1)


def sums_sensitivity(row_bound: float, *, replaces: bool) -> float:
    """Sensitivity of X^T X and (C/Y) X^T y together: sqrt(2) C^2 if a row comes or goes, 3 C^2 / sqrt(2) if replaced.

    For |x|, |v| <= C at an angle t >= 0 in cosine, and labels Y and -Y, C^2 2 (1 - t^2) + 2 (1 + t) of squares is
    largest at t = 1/2: 9/2, where measuring one beside the other would have to pay for 2 + 4.
    """
    return row_bound**2 * (3 / sqrt(2) if replaces else sqrt(2))


def begin_sums(sample: Sample, privacy: Privacy, measure: Measure, *, rounds: int = 1) -> Parts:
    """A measurement of X^T X, weight 1, and of `rounds` cross sums of `cross_weight`."""
    return measure.begin(
        sensitivity=sums_sensitivity(sample.row_bound, replaces=privacy.replaces),
        multiplier=gaussian_multiplier(privacy, 1),
        entries=sample.d * (sample.d + rounds),
    )


def cross_weight(row_bound: float, label_bound: float, *, rounds: int = 1) -> float:
    """C^2 / (T Y^2), with which T sums X^T r of labels |r| <= Y count as one of (C/Y) X^T y does."""
    return (row_bound / label_bound) ** 2 / rounds


def noisy_sums(sample: Sample, privacy: Privacy, measure: Measure) -> tuple[Floats, Floats]:
    """X^T X + noise, d x d, symmetric, and X^T y + noise, d.

    The noise has sd = s D on the diagonal of X^T X, s the multiplier and D the sensitivity, sd / sqrt(2) beside it, and
    sd Y / C in X^T y.

    Privacy: add_remove or replace_one; `sums_loss(privacy)`.
    """
    parts = begin_sums(sample, privacy, measure)
    gram = parts.part(sample.x.T @ sample.x, symmetric=True)
    weight = cross_weight(sample.row_bound, sample.label_bound)
    return gram, parts.part(sample.x.T @ sample.y, weight=weight)


def gram_noise(sample: Sample, privacy: Privacy) -> float:
    """Standard deviation of the noise on the diagonal of X^T X."""
    return gaussian_multiplier(privacy, 1) * sums_sensitivity(sample.row_bound, replaces=privacy.replaces)


def norm_bound(d: int) -> float:
    """sqrt(2 d) + sqrt(2 ln 20): what the noise's largest eigenvalue exceeds 5 % of the time at most, in its sd.

    Of a symmetric d x d matrix with variance 1 on the diagonal and 1/2 beside it: its mean is at most sqrt(2 d)
    (Slepian), and it moves by no more than the matrix does, in Frobenius norm (Davidson, Szarek 2001, II.11).
    """
    return sqrt(2 * d) + sqrt(2 * log(1 / _FAILURE))


def solve(system: Floats, right: Floats) -> Floats:
    """system^-1 right; the least-norm solution if the noise made the system singular. Post-processing."""
    return np.linalg.lstsq(system, right)[0].astype(np.float64)


def ssp(sample: Sample, privacy: Privacy, measure: Measure) -> Estimate:
    """(X^T X + noise)^-1 (X^T y + noise). Privacy: add_remove or replace_one; `sums_loss(privacy)`."""
    gram, cross = noisy_sums(sample, privacy, measure)
    published = {"gram": gram.ravel().tolist(), "cross": cross.tolist()}
    return Estimate(solve(gram, cross), published)


def adassp(sample: Sample, privacy: Privacy, measure: Measure) -> Estimate:
    """(X^T X + noise + lambda I)^-1 (X^T y + noise), lambda by the least eigenvalue of X^T X + noise.

    Privacy: add_remove or replace_one; `sums_loss(privacy)`. lambda is post-processing.
    """
    gram, cross = noisy_sums(sample, privacy, measure)
    ridge = ridge_of(gram, gram_noise(sample, privacy))
    published: Published = {"gram": gram.ravel().tolist(), "ridge": ridge, "cross": cross.tolist()}
    return Estimate(solve(gram + ridge * np.eye(sample.d), cross), published)


def ridge_of(gram: Floats, sd: float) -> float:
    """Lambda = max(0, B - max(0, lambda_min)), lambda_min of the noisy matrix, B what its noise likely stays below."""
    least = float(np.linalg.eigvalsh(gram)[0])
    return max(0.0, sd * norm_bound(len(gram)) - max(0.0, least))


ROUNDS = 5
_COEFFICIENT_STEPS = 2.0**20
"""Coefficients are rounded to this many steps, so that a row's prediction is a sum of integers below 2^53."""


def boosted_adassp(
    sample: Sample, privacy: Privacy, measure: Measure, *, rounds: int = ROUNDS, clip: float | None = None
) -> Estimate:
    """T times from 0: theta + (X^T X + noise + lambda I)^-1 (X^T r + noise), r = y - X theta cut at [-clip, clip].

    clip is Y/T by default: T rounds reach the label bound, and their noise together is about the one noise of AdaSSP
    where lambda rules, and less elsewhere. The paper has 100 rounds and clips at 1 whatever the labels are. Rounds
    without end would lead to Huber's fit, which is least squares only where large residuals are even.

    Privacy: add_remove or replace_one; `sums_loss(privacy)`: the rounds count together as X^T y does in `adassp`
    (docs/proofs/regression.md, 8).
    """
    bound = sample.label_bound / rounds if clip is None else clip
    parts = begin_sums(sample, privacy, measure, rounds=rounds)
    gram = parts.part(sample.x.T @ sample.x, symmetric=True)
    ridge = ridge_of(gram, gram_noise(sample, privacy))
    weight = cross_weight(sample.row_bound, bound, rounds=rounds)
    theta, crosses = np.zeros(sample.d), []
    for _ in range(rounds):
        left = residuals(sample, theta, bound=bound)
        cross = parts.part(left.x.T @ left.y, weight=weight)
        theta = theta + solve(gram + ridge * np.eye(sample.d), cross)
        crosses += cross.tolist()
    published: Published = {"gram": gram.ravel().tolist(), "ridge": ridge, "cross": crosses}
    return Estimate(theta, published)


def residuals(sample: Sample, theta: Floats, *, bound: float) -> Sample:
    """Rows with labels y - x^T theta, cut at `bound`, on the grid of `problem.on_grid`.

    A row's residual depends on that row and theta only, to the last bit: with theta rounded, x^T theta is exact for
    rows on the grid, whatever the order of summation, and what follows is entry by entry.
    """
    step = power_of_two_above(float(np.abs(theta).max()) or 1.0) / _COEFFICIENT_STEPS
    left = sample.y - sample.x @ (np.rint(theta / step) * step)
    unit = power_of_two_above(bound)
    cut = quantise(np.clip(left, -bound, bound) / unit).astype(np.float64) * (unit / SCALE)
    return Sample(sample.x, cut, sample.row_bound, bound)


def stages_of(privacy: Privacy, target: Attribute, features: tuple[Attribute, ...], n: int) -> TwoStages:
    """Planned for what its calibration allows, so that a reader of that loss can plan them again.

    If a row may be there or not, the number of rows is measured with the sums.

    Raises ParameterError: too little for exact sums in stages.
    """
    rho = sums_loss(privacy).rho
    return plan_two_stages(measured_attributes(target, features), n=n, rho=rho, adjacency=privacy.adjacency)


def two_stage(q: NDArray[np.int64], stages: TwoStages, draw: Sampler, *, intercept: bool = True) -> Estimate:
    """Coefficients of the last column of q by the others, the intercept first if there is one.

    Privacy: add_remove or replace_one; what `stages` were planned for. q is n x d, encoded. The map is post-processing
    of the noisy sums, the coefficients of the noisy moments.
    """
    sums = stages.sums(q, draw)
    mapped = stages.map(sums)
    moments = stages.moments(q, mapped, draw)
    mode = _mode(stages, mapped, moments, n=stages.count(sums))
    first, last = 0 if intercept else 1, len(mode) - 1
    theta = solve(mode[first:last, first:last], mode[first:last, last])
    published = {"sigmas": stages.sigmas, "sums": sums.tolist(), "moments": moments.tolist()}
    return Estimate(theta, published)


def _mode(stages: TwoStages, mapped: IntegerMap, moments: Floats, *, n: int) -> Floats:
    """Second moments of encoded rows (1, x, y), (d + 1, d + 1), at the mode."""
    gram, variance = stages.system(moments, n=n)
    inverse, centre = mapped.undo()
    scales = 1 / np.diag(inverse)
    basis = np.diag(np.append(1.0, scales))  # (1, z) = basis (1, x, y)
    basis[1:, 0] = -scales * centre
    return posterior_mode(EntryLikelihood.of(gram, variance, n=n, basis=basis))


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

        Raises ParameterError: too few rows, or columns that follow from each other.
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

    Raises ParameterError: eta outside (0, 1), or no rows.
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
"""The rho of the measurement under replace_one, over that under add_remove (proof, 9.2)."""


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
