"""rmgm and dgm: rows that behave like draws of a normal law with covariance S/rows + V.

See docs/design/estimation.md#second-moments.

Everything is computed in a basis in which the features are uncorrelated and their noise is white: z = T^T x with
T^T xx T = diag(lambda) and T^T V T = noise I, slopes beta with b = T beta. A published row then has feature variances
omega = kappa lambda + noise, kappa = n / rows. The learner's fits are b_hat = H g with H = (X - R)^-1 for some
subtracted noise R; here h stands for its expectation per row, diagonal in this basis.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import exp, inf, log1p, sqrt

import numpy as np
from scipy.special import fdtri

from commingle.shared.documents.terms import Terms
from commingle.shared.dp.fixed_point import FRACTION_BITS, SCALE, presence
from commingle.shared.estimation.diagnostics import SIGNIFICANCE
from commingle.shared.estimation.entry_noise import Array
from commingle.shared.mechanisms.prediction import Planner, Prediction, RegressionTask, encoded_noise, noise_variance
from commingle.shared.mechanisms.rows.fit import bound_of, enough_signal

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(7)
_LEAST_DEGREES = 4  # of the F statistic, which has no variance at them
_LEAST_RELATIVE = 1e-9  # noise of a column beside the noisiest: white noise needs some everywhere
_MOST_K = 1_000_000  # what a spec allows
_ROWS_PER_COLUMN = 3
_STEPS = 400
_NO_NOISE = 1e12  # stands for an infinite root


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """A task as published, in the basis of the module."""

    task: RegressionTask
    # lam, beta: (q,) variances of the features and slopes
    lam: Array
    beta: Array
    noise: float  # variance of the features' noise; `noise_y` of the label's
    noise_y: float
    columns_per_noise: float  # sum of V over its largest entry
    n: int
    rows: int

    @property
    def kappa(self) -> float:
        return self.n / self.rows

    @property
    def omega(self) -> Array:
        return self.kappa * self.lam + self.noise

    @property
    def degrees(self) -> int:
        return self.rows - 1 - len(self.lam)


@dataclass(frozen=True, slots=True)
class RowPlanner(Planner):
    """Predicts `measurement_error` and `shrunken` on noisy rows, mixed (with a k to choose) or one per subject."""

    mixed: bool

    def predict(self, terms: Terms, task: RegressionTask) -> Prediction:
        # Expected figures of the learner's `measurement_error` and `shrunken` on a release of these terms.
        # The covariance is that of docs/design/estimation.md#planning, with rows - q - 2 for rows; around the table
        # plain rows have no part from the sampling of rows.
        T, p = _published(terms, task)
        constant = _constant(p)
        if p.degrees <= _LEAST_DEGREES:
            return Prediction(
                covariance=None,
                level_variance=inf,
                r_squared=constant,
                r_squared_constant=constant,
                told_apart=False,
                reliable=False,
            )
        q, root = len(p.lam), _feature_root(p)
        h = _operator(p, 1 - (q + 1) / p.rows)
        centre, plain, along = _spread(p, h)
        level = p.noise_y + p.noise * float(centre @ centre)
        if self.mixed:
            level += p.kappa * task.residual
        else:
            plain = plain - p.kappa * task.residual * h**2 * p.lam / (p.degrees - 1)
        expected, deviation = _f_statistic(p)
        threshold = float(fdtri(q, p.degrees, 1 - SIGNIFICANCE))
        return Prediction(
            covariance=T * plain @ T.T + np.outer(T @ along, T @ along),
            level_variance=level / p.n,
            r_squared=_shrunken(p, root, expected, deviation, threshold),
            r_squared_constant=constant,
            told_apart=expected > threshold and self.fits_across(terms),
            reliable=root > enough_signal(p.rows - 1),
        )

    def count_error(self, terms: Terms) -> float:
        # Var S[1_i, 1_j] = (G_ii G_jj + G_ij^2) / k with G_ii = P^2 n + k v_i (docs/proofs/keyed-subjects.md, 3.2).
        unit = (presence(FRACTION_BITS) / SCALE) ** 2
        widths = np.cumsum([0, *(len(party.columns) for party in terms.parties[:-1])])
        own = np.sort(unit * terms.n + terms.rows * noise_variance(terms)[widths])[-2:]
        return sqrt((own.prod() + (unit * terms.n) ** 2) / terms.rows) / unit

    def sketch_bounds(self, terms: Terms) -> tuple[int, int] | None:
        # Least and largest k to consider: three rows per published column, and n^(2/3) (Wu et al. 2022, theorem 2).
        if not self.mixed:
            return None
        least = min(terms.n, _ROWS_PER_COLUMN * (1 + len(terms.columns)))
        return least, min(terms.n, _MOST_K, max(least, round(terms.n ** (2 / 3))))

    def best_k(self, terms: Terms, task: RegressionTask) -> int | None:
        # The k with the least summed variance of the standardised slopes (docs/design/estimation.md#planning).
        # Cov(b) = (k / (k - q - 2)) (A / k + B + C k): few rows lose information (A), many rows drown in noise (C).
        # With W = xx^-1, e = W V b and nu2 = v_y + b^T V b: A = residual W,  B = (nu2 W + residual W V W) / n,  C =
        # (nu2 W V W + e e^T) / n^2.
        bounds = self.sketch_bounds(terms)
        if bounds is None:
            return None
        V = encoded_noise(terms, task.law)
        noise_x, weight = V[np.ix_(task.x, task.x)], np.diag(task.xx)
        W = task.inverse
        nu2 = float(V[task.y, task.y] + task.b @ noise_x @ task.b)
        plain, noisy = float(weight @ np.diag(W)), float(weight @ np.diag(W @ noise_x @ W))
        attenuated = float(weight @ (W @ (noise_x @ task.b)) ** 2)
        k = np.unique(np.geomspace(*bounds, _STEPS).astype(np.int64)).astype(np.float64)
        per_row = task.residual * plain / k
        fixed = (nu2 * plain + task.residual * noisy) / terms.n
        variance = per_row + fixed + (nu2 * noisy + attenuated) / terms.n**2 * k
        lost = np.maximum(k - len(task.b) - 2, np.finfo(float).eps) / k
        return int(k[np.argmin(variance / lost)])


PLAIN_ROWS = RowPlanner(mixed=False)
MIXED_ROWS = RowPlanner(mixed=True)


def _published(terms: Terms, task: RegressionTask) -> tuple[Array, _Rows]:
    V = encoded_noise(terms, task.law)
    noise_x = V[np.ix_(task.x, task.x)]
    top = float(np.diag(noise_x).max())
    relative = noise_x / top + _LEAST_RELATIVE * np.eye(len(noise_x)) if top > 0 else np.eye(len(noise_x))
    T, lam, beta = _basis(task, relative.round(12).tobytes())
    noise_y = float(V[task.y, task.y])
    return T, _Rows(task, lam, beta, top, noise_y, float(np.trace(relative)), terms.n, terms.rows)


@lru_cache(maxsize=8)  # epsilon, n and k do not change it: one for a whole plan
def _basis(task: RegressionTask, relative: bytes) -> tuple[Array, Array, Array]:
    """T (q, q), lambda (q,) and beta (q,), for a covariance V of the noise up to a factor, as bytes.

    W^-1 xx W^-T = Q diag(lambda) Q^T with V = W W^T: T = W^-T Q and beta = Q^T W^T b.
    """
    W = np.linalg.cholesky(np.frombuffer(relative).reshape(task.xx.shape))
    back = np.linalg.inv(W)
    lam, Q = np.linalg.eigh(back @ task.xx @ back.T)
    return back.T @ Q, np.maximum(lam, 0.0), Q.T @ (W.T @ task.b)


def _operator(p: _Rows, part: float) -> Array:
    """(omega - part noise)^-1: the inverse of what is left when that part of the noise is subtracted."""
    return 1 / (p.kappa * p.lam + (1 - part) * p.noise)


def _spread(p: _Rows, h: Array) -> tuple[Array, Array, Array]:
    """Mean beta* (q,) of b_hat = H g and its covariance as diag(first) + second second^T.

    With z = y - x b*: tau2 = Var z, delta = E[x z] = kappa lambda beta - omega beta*, and
    Cov(b_hat) = h (omega tau2 + delta delta^T) h / (rows - q - 2), the last as for an inverse Wishart matrix.
    """
    cross = p.kappa * p.lam * p.beta
    centre = h * cross
    error = centre - p.beta
    tau2 = p.kappa * (p.task.residual + float(p.lam @ error**2)) + p.noise_y + p.noise * float(centre @ centre)
    delta = cross - p.omega * centre
    return centre, h**2 * p.omega * tau2 / (p.degrees - 1), h * delta / sqrt(p.degrees - 1)


def _feature_root(p: _Rows) -> float:
    """Expected smallest root of X against (rows - 1) V: the population's, less what q columns of noise take off it."""
    root = float(p.omega.min()) / p.noise if p.noise > 0 else inf
    return min(root, _NO_NOISE) * _edge(p)


def _edge(p: _Rows) -> float:
    """The least eigenvalue of white noise lies near (1 - sqrt(q / rows))^2 (Marchenko and Pastur 1967)."""
    return (1 - sqrt(len(p.lam) / (p.rows - 1))) ** 2


def _f_statistic(p: _Rows) -> tuple[float, float]:
    """Mean and relative standard deviation of the F statistic of plain least squares on the release.

    Noncentral F with shift = (rows - 1) r2 / (1 - r2), r2 of the noisy columns; the shift itself varies by 2 / rows.
    """
    q, df = len(p.lam), p.degrees
    r2 = float((p.kappa * p.lam * p.beta) ** 2 @ (1 / p.omega)) / (p.kappa * p.task.yy + p.noise_y)
    shift = (p.rows - 1) * r2 / max(1 - r2, np.finfo(float).eps)
    mean = df / (df - 2) * (1 + shift / q)
    scale = (df / q / (df - 2)) ** 2
    variance = scale * 2 * ((q + shift) ** 2 + (q + 2 * shift) * (df - 2)) / (df - 4) + scale * 2 * shift**2 / p.rows
    return mean, sqrt(variance) / mean


def _shrunken(p: _Rows, root: float, expected: float, deviation: float, threshold: float) -> float:
    """Expected R^2 of s b_e + (1 - s) j b_r, averaged over the F statistic that s and j depend on (log-normal).

    That blend of an undone attenuation (b_e) and a damped fit (b_r) stands for the learner's `shrunken`, whose weights
    have no expectation in closed form; docs/forecasts.md measures how near it comes.
    """
    q, df = len(p.lam), p.degrees
    eager, damped = _eager(p, root), _damped(p)
    spread = sqrt(log1p(deviation**2))
    total = 0.0
    for node, weight in zip(_NODES.tolist(), (_WEIGHTS / _WEIGHTS.sum()).tolist(), strict=True):
        F = expected * exp(spread * node - spread**2 / 2)
        s = max(0.0, 1 - (threshold / F) ** 2)
        j = min(1.0, max(0.0, 1 - (q - 2) * df / (q * (df + 2) * F)))
        total += weight * _r_squared(p, s * eager + (1 - s) * j * damped)
    return total


def _eager(p: _Rows, root: float) -> Array:
    gamma = (len(p.lam) + 1) / (p.rows - 1)
    return _operator(p, max(0.0, min(1 - gamma, root * (1 - 2 * sqrt(gamma)))))


def _damped(p: _Rows) -> Array:
    """(kappa lambda + l)^-1, l the learner's bound on the noise less the least eigenvalue left, per row.

    The learner damps all columns alike; this damps them in proportion to their noise.
    """
    m = p.rows - 1
    least = float(p.omega.min()) * _edge(p) - p.noise
    bound = bound_of(top=p.noise, trace=p.columns_per_noise * p.noise, rows=m) / m
    damping = max(0.0, bound - least)
    return 1 / (p.kappa * p.lam + damping)


def _r_squared(p: _Rows, h: Array) -> float:
    """1 - (L + level) / yy, L = residual + E (b_hat - b)^T xx (b_hat - b) being the loss of the slopes.

    The level is off by (kappa L + v_y + E b_hat^T V b_hat) / n. The learner draws the released mean of the label, of
    variance s2, towards the centre of its bounds: f = 1 / (1 + 3 s2) of it is left under a uniform prior.
    """
    centre, plain, along = _spread(p, h)
    second = (centre - p.beta) ** 2 + plain + along**2
    loss = p.task.residual + float(p.lam @ second)
    noise = p.noise_y + p.noise * float(np.sum(centre**2 + plain + along**2))
    f = 1 / (1 + 3 * _of_rows(p) * (p.kappa * p.task.yy + p.noise_y) / p.n)
    level = f**2 * _of_rows(p) * (p.kappa * loss + noise) / p.n + ((1 - f) * p.task.mean_y) ** 2
    return 1 - (loss + level) / p.task.yy


def _constant(p: _Rows) -> float:
    """- (1/rows + v_y / (n yy)): the loss of the private mean of the label."""
    return -_of_rows(p) * (1 / p.rows + p.noise_y / (p.n * p.task.yy))


def _of_rows(p: _Rows) -> float:
    """E[rows / chi2_rows]: the intercept's own norm varies."""
    return p.rows / max(1, p.rows - 2)
