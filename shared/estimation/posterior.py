"""What is believed beforehand, and the posterior mode of a release's means and covariance.

Means and variances of columns encoded into [-1, 1] have priors, and so have the odds of signal: they are as large as
what is lost without any signal allows (docs/proofs/prediction.md).

Every regularised view reads the mode. M = S / n = F F^T with F = ((1, 0), (mean, L)) and covariance C = L L^T, which is
positive definite whatever L. R being the correlations of C, it minimises (docs/design/estimation.md#posterior-mode)

    loss(M) - a log|R| + sum (log C_jj - mu)^2 / 2 s^2 + sum mean_j^2 / 2 t^2 + sum [M_jj - 1]_+^2 / 2 w^2

loss(M) being minus the log-likelihood of what the release says.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_ndtr, ndtr, ndtri

from commingle.shared.estimation.entry_noise import Array
from commingle.shared.estimation.prepared import PreparedMoments

_LABEL_VARIANCE = 0.3  # of what a label of that mean can have at most: the mean of an exponential prior
_LEVELS = 3
_LEAST_BOUND = 0.02
_FAR = 8.0  # standard errors outside a bound beyond which a tail probability loses its digits
_LEAST_DEVIATION = 1e-12
NULL_LOSS = 0.024  # of R^2, on average over releases of a table without signal
MOST_ODDS = 9.0  # no signal is never given less than a tenth
_LEAST_LOG_ODDS = -20.0


def most_variance(mean: float) -> float:
    """1 - mean^2, the most that values in [-1, 1] can have (Bhatia and Davis 2000), or a little more near the ends."""
    return max(1 - mean**2, _LEAST_BOUND)


def variance_levels(x: float, error: float, bound: float) -> Array:
    """Three equally likely values of a label's variance in [0, `bound`], given x, the variance with normal error."""
    return posterior_levels(x - error**2 / (_LABEL_VARIANCE * bound), error, 0.0, bound, _LEVELS)


def posterior_mean(x: Array, s: Array | float, low: float, high: float) -> Array:
    """The posterior mean of a number between two bounds, given x, the number with normal error s; shaped as x.

    With a flat prior the posterior is N(x, s^2) cut off at the bounds; for every truth between them its mean has no
    larger mean squared error than x itself (Hartigan 2004, Uniform priors on convex sets improve risk). It is x + s
    (phi(a) - phi(b)) / (Phi(b) - Phi(a)), a = (low - x)/s and b = (high - x)/s.
    """
    s = np.maximum(s, _LEAST_DEVIATION)
    a, b = (low - x) / s, (high - x) / s
    right = a + b > 0  # mirrored, so that the probabilities are those of lower tails, which keep their digits
    a, b = np.where(right, -b, a), np.where(right, -a, b)
    tail = log_ndtr(b)
    densities = [np.exp(-(t**2) / 2 - tail) / math.sqrt(2 * math.pi) for t in (a, b)]
    share = -np.expm1(np.minimum(log_ndtr(a) - tail, -np.finfo(float).eps))
    shift = (densities[0] - densities[1]) / share
    return np.asarray(np.clip(x + s * np.where(right, -shift, shift), low, high))


def posterior_levels(x: float, s: float, low: float, high: float, count: int) -> Array:
    """`count` equally likely values of it: the posterior's quantiles at 1/(2 count), 3/(2 count), ..., (count,)."""
    s = max(s, _LEAST_DEVIATION)
    a, b = min((low - x) / s, _FAR), (high - x) / s
    sign = -1.0 if a > 0 else 1.0
    start, end = ndtr(sign * a), ndtr(sign * b)
    levels = start + (np.arange(count) + 0.5) / count * (end - start)
    return np.asarray(np.clip(x + s * sign * ndtri(levels), low, high))


def largest_log_odds(log_bayes: Array, lost: Array) -> float:
    """The largest log odds o, up to those of MOST_ODDS, whose fits lose at most NULL_LOSS without signal.

    `log_bayes` and `lost`, of one shape, are of fits of releases without signal: logarithms of their Bayes factors for
    signal, and the R^2 that each would lose if signal were certain. A fit that is multiplied by P loses P^2 of that, P
    = 1 / (1 + 1 / (o B)).
    """
    from scipy.optimize import brentq  # noqa: PLC0415 - loads slowly, and no other estimator needs it

    def excess(log_odds: float) -> float:
        return float(np.mean(expit(log_bayes + log_odds) ** 2 * lost)) - NULL_LOSS

    most = math.log(MOST_ODDS)
    if excess(most) <= 0:
        return most
    if excess(_LEAST_LOG_ODDS) >= 0:
        return _LEAST_LOG_ODDS
    return float(brentq(excess, _LEAST_LOG_ODDS, most, xtol=1e-3))


_LEAST_VARIANCE = 1e-16  # of the largest: an entry that is exact among noisy ones counts as nearly so
_VARIANCE, _SPREAD = 0.1, 2.0  # exp(mu) and s: of a column encoded into [-1, 1]
_MEAN_VARIANCE = 0.5  # t^2: the least with which no mean in [-1, 1] is expected to fare worse than as released
_OVERSHOOT = 0.1  # w: an encoded value's square is at most 1
_MEMORY = 20  # steps that L-BFGS remembers
_TOLERANCE = 1e-9
_MOST_STEPS = 120  # 40 suffice but where there are hardly more subjects than columns
_LEAST_SPREAD = 1e-9  # of the largest


@dataclass(frozen=True, slots=True)
class Likelihood(ABC):
    """The likelihood of M = S / n, (p, p), the intercept first."""

    key: bytes  # a digest of the released figures: two likelihoods with one key are the same
    rough: Array = field(compare=False)  # (p, p), an unbiased estimate of M; not always of positive definite covariance
    spread: Array = field(compare=False)  # (p, p), about the standard deviations of its entries

    @abstractmethod
    def loss(self, M: Array) -> tuple[float, Array]:
        """Minus the log-likelihood up to a constant, and its symmetric derivative Q: d loss = tr(Q dM)."""


@dataclass(frozen=True, slots=True)
class EntryLikelihood(Likelihood):
    """The likelihood of noisy moments B M B^T + E, E symmetric with independent normal entries.

    If B mixes columns, entries of the moments in the unmixed columns share noise.
    """

    released: Array = field(compare=False)  # (p, p) per subject
    # (p, p) 1 / Var(E_kl), 0 where the entry is not noisy; halved off the diagonal, where each stands twice
    counted: Array = field(compare=False)
    basis: Array = field(compare=False)  # (p, p) B

    @classmethod
    def of(cls, gram: Array, variance: Array, *, n: int, basis: Array | None = None) -> Self:
        """From n (B M B^T + E) = `gram` and the variances of n E, (p, p); B is the identity unless given."""
        B = np.eye(len(gram)) if basis is None else basis
        undo = np.linalg.inv(B)
        per_subject = np.maximum(variance, _LEAST_VARIANCE * variance.max()) / n**2
        weight = 1 / per_subject
        weight[0, 0] = 0.0  # the count is exact and M has it built in
        return cls(
            key=_key(gram, variance, B, np.array([n])),
            rough=undo @ (gram / n) @ undo.T,
            spread=np.sqrt(undo**2 @ per_subject @ undo.T**2),
            released=gram / n,
            counted=(weight + np.diag(np.diag(weight))) / 2,
            basis=B,
        )

    def loss(self, M: Array) -> tuple[float, Array]:
        # 1/2 sum_{k <= l} (released - B M B^T)_kl^2 / Var(E_kl).
        gap = self.basis @ M @ self.basis.T - self.released
        weighted = self.counted * gap
        return float(np.sum(weighted * gap)) / 2, self.basis.T @ weighted @ self.basis


@dataclass(frozen=True, slots=True)
class WishartLikelihood(Likelihood):
    """The likelihood of G = P^T P for k rows P that behave like draws of N(0, (n/k) M + V), V public.

    The intercept has no noise and its moment is known. So this is the law of the other columns given it, whether it was
    mixed or not.
    """

    gram: Array = field(compare=False)
    V: Array = field(compare=False)
    rows: int = field(compare=False)
    n: int = field(compare=False)

    @classmethod
    def of(cls, gram: Array, V: Array, *, rows: int, n: int) -> Self:
        """From G and V, (p, p), the rows k and the subjects n."""
        kappa, means = n / rows, gram[0] / gram[0, 0]
        total = (gram - gram[0, 0] * np.outer(means, means)) / (rows - 1)
        variances = np.diag(total)
        spread = np.sqrt((np.outer(variances, variances) + total**2) / rows) / kappa
        spread[0] = spread[:, 0] = np.sqrt(variances / gram[0, 0])  # of a mean over G_11 = about n
        return cls(
            key=_key(gram, V, np.array([rows, n])),
            rough=(total - V) / kappa + np.outer(means, means),
            spread=spread,
            gram=gram,
            V=V,
            rows=rows,
            n=n,
        )

    def loss(self, M: Array) -> tuple[float, Array]:
        # 1/2 (k log|Sigma| + tr(Sigma^-1 G)), Sigma = (n/k) M + V.
        kappa = self.n / self.rows
        Sigma = kappa * M + self.V
        triangle, inverse = np.linalg.cholesky(Sigma), np.linalg.inv(Sigma)
        explained = inverse @ self.gram
        value = self.rows * float(np.log(np.diag(triangle)).sum()) + float(np.trace(explained)) / 2
        return value, np.asarray(kappa / 2 * (self.rows * inverse - explained @ inverse))


def _key(*parts: Array) -> bytes:
    digest = sha256()
    for part in parts:
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.digest()


def exponent(columns: int) -> float:
    """The a of the prior |R|^a, that of Lewandowski, Kurowicka and Joe (2009) with eta = 1 + a."""
    return 1 + 0.6 * columns


def regularised(prepared: PreparedMoments) -> PreparedMoments:
    """A release's moments at the posterior mode, as of n rows without noise; unchanged if the release has no noise."""
    if not prepared.V.any() and (prepared.entry_variance is None or not prepared.entry_variance.any()):
        return prepared
    M = posterior_mode(likelihood_of(prepared))
    nothing = np.zeros_like(M)
    entries = None if prepared.entry_variance is None else nothing
    return replace(prepared, gram=prepared.n * M, V=nothing, root=nothing, rows=prepared.n, entry_variance=entries)


def likelihood_of(prepared: PreparedMoments) -> Likelihood:
    """The likelihood of the private table's moments, given a noisy release.

    Published rows count as draws of a normal law, those of dgm too. Moments have independent normal noise of every
    entry in the published columns, B @ encoded ones.
    """
    if prepared.entry_variance is None:
        return WishartLikelihood.of(prepared.gram, prepared.V, rows=prepared.rows, n=prepared.n)
    B = np.linalg.inv(prepared.mixing).astype(np.float64)
    return EntryLikelihood.of(B @ prepared.gram @ B.T, prepared.entry_variance, n=prepared.n, basis=B)


@lru_cache(maxsize=16)  # a release is fitted many times
def posterior_mode(likelihood: Likelihood) -> Array:
    """M at the mode, (p, p), read-only."""
    return search(likelihood, steps=_MOST_STEPS)


def search(likelihood: Likelihood, *, steps: int) -> Array:
    """M, (p, p), after at most so many steps of L-BFGS from a rough mode; ten leave little to gain."""
    from scipy.optimize import minimize  # noqa: PLC0415 - loads slowly, and only regularised views need it

    objective = Objective.of(likelihood)
    found = minimize(
        objective,
        np.zeros(objective.size),
        jac=True,
        method="L-BFGS-B",
        options={"maxcor": _MEMORY, "ftol": _TOLERANCE, "gtol": 0.0, "maxiter": steps, "maxfun": 2 * steps},
    )
    F = objective.factor(found.x)
    mode: Array = F @ F.T
    mode.flags.writeable = False
    return mode


@dataclass(frozen=True, slots=True, eq=False)
class Objective:
    """The function to minimise, of the lower triangle T of F = start T, its diagonal as logarithms."""

    likelihood: Likelihood
    start: Array  # (p, p) a first F
    # rows and columns of the free entries of T: all except the intercept's
    below: tuple[NDArray[np.intp], NDArray[np.intp]]
    unit: Array  # of each free entry, about one over the root of its curvature

    @classmethod
    def of(cls, likelihood: Likelihood) -> "Objective":
        start, unit = first_factor(likelihood)
        rows, columns = np.tril_indices(len(start))
        below = (rows[1:].astype(np.intp), columns[1:].astype(np.intp))
        return cls(likelihood, start, below, unit[below])

    @property
    def size(self) -> int:
        return len(self.unit)

    def factor(self, x: Array) -> Array:
        """F, (p, p)."""
        return self.start @ self._triangle(x)

    def __call__(self, x: Array) -> tuple[float, Array]:
        T = self._triangle(x)
        F = self.start @ T
        value, Q = self.likelihood.loss(F @ F.T)
        prior, slope = prior_loss(F)
        gradient = self.start.T @ (2 * Q @ F + slope)
        diagonal = np.einsum("ii->i", gradient)
        diagonal *= np.diag(T)
        diagonal -= 2 * exponent(len(T) - 1)
        # - a log|C| is linear in the logarithms: its part at `start` is a constant
        logarithms = float(np.log(np.diag(T)).sum())
        return value + prior - 2 * exponent(len(T) - 1) * logarithms, gradient[self.below] * self.unit

    def _triangle(self, x: Array) -> Array:
        T = np.zeros_like(self.start)
        T[self.below] = x * self.unit
        np.fill_diagonal(T, np.exp(np.diag(T)))
        return T


def prior_loss(F: Array) -> tuple[float, Array]:
    """Minus the logarithm of the prior but for the term in log|C|, and its derivative by F, (p, p)."""
    mean, L = F[1:, 0], F[1:, 1:]
    variance = np.sum(L * L, axis=1)
    log = np.log(variance)
    a, off = exponent(len(mean)), (log - math.log(_VARIANCE)) / _SPREAD**2
    over = np.maximum(0.0, variance + mean**2 - 1) / _OVERSHOOT**2
    value = a * log.sum() + _SPREAD**2 * (off @ off) / 2 + (mean @ mean) / (2 * _MEAN_VARIANCE)
    slope = np.zeros_like(F)
    slope[1:, 1:] = 2 * ((a + off) / variance + over)[:, None] * L
    slope[1:, 0] = mean / _MEAN_VARIANCE + 2 * over * mean
    return float(value + _OVERSHOOT**2 * (over @ over) / 2), slope


def first_factor(likelihood: Likelihood) -> tuple[Array, Array]:
    """The F of a rough mode, (p, p), and units of T, (p, p), that make the curvature there about 1.

    If all entries have noise e after scaling and variances have no prior of their own, every eigenvalue c of the rough
    covariance becomes the root r of r (r - c) = 2 a e^2 =: 1, and the curvature along T_kl is a (1 + r_k r_l).
    """
    means, a = likelihood.rough[0, 1:], exponent(len(likelihood.rough) - 1)
    spread = np.maximum(likelihood.spread, _LEAST_SPREAD * likelihood.spread.max())
    mean = np.clip(means, -1, 1) / (1 + spread[0, 1:] ** 2 / _MEAN_VARIANCE)
    log = np.log(spread[1:, 1:] * math.sqrt(2 * a))
    scale = np.exp(log.mean(axis=1) - log.mean() / 2)  # scale_k scale_l is about the noise of entry kl
    C = likelihood.rough[1:, 1:] - np.outer(means, means)
    values, vectors = np.linalg.eigh(C / np.outer(scale, scale))
    lifted = np.hypot(values, 2)
    roots = np.where(values > 0, (values + lifted) / 2, 2 / (lifted - np.minimum(values, 0)))
    F, unit = np.zeros_like(spread), np.ones_like(spread)
    within = np.minimum(scale, math.sqrt(_VARIANCE))  # where noise is all there is, the prior knows the variance
    F[0, 0], F[1:, 0], F[1:, 1:] = 1.0, mean, within[:, None] * vectors * np.sqrt(roots)
    weight = 1 / spread[0, 1:] ** 2 + mean**2 @ (1 / spread[1:, 1:] ** 2)
    unit[1:, 0] = 1 / np.sqrt(1 + weight @ F[1:, 1:] ** 2)
    unit[1:, 1:] = 1 / np.sqrt(a * (1 + np.outer(roots, roots)))
    return F, unit
