"""TukeyEM and DD-SSP, as far as this comparison needs them: not exact, and not offered by the product.

TukeyEM: Amin, Joseph, Ribero, Vassilvitskii, Easy differentially private linear regression (ICLR 2023), after Brown,
Gaboardi, Smith, Ullman, Zakynthinou 2021. DD-SSP: Ferrando, Sheldon, Private regression via data-dependent sufficient
statistic perturbation (TMLR 2025), on AIM (McKenna, Mullins, Sheldon, Miklau 2022).
"""

from dataclasses import dataclass, field
from math import log, sqrt

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from commingle.party_agent.private.regression.problem import Floats
from commingle.party_agent.private.regression.sums import solve

_MODELS = 2000
_BINS = 8
_REACH = 2.5
"""Columns are cut at this many public standard deviations before they are binned."""
_COMPONENTS = 64
_ROUNDS = 4
_STEPS, _SETTLING = 10, 300
_RATE = 0.1


def tukey_em(x: Floats, y: Floats, *, epsilon: float, delta: float, draw: Generator) -> Floats:
    """A point of high approximate Tukey depth among least-squares fits of disjoint blocks; 0 where the check fails.

    Half of epsilon for the check, half for the draw, as published: an upper bound on what it can do under
    replace_one. Blocks have at least twice as many rows as columns; there are 2000 at most.
    """
    count = min(_MODELS, len(y) // (2 * x.shape[1]))
    blocks = np.array_split(draw.permutation(len(y)), count)
    fits = np.array([np.linalg.lstsq(x[block], y[block])[0] for block in blocks])
    fits = np.sort(fits + 1e-10 * draw.random(fits.shape), axis=0)
    half, deepest = epsilon / 2, count // 2
    # the points of depth k and more are a box: between the k-th least and the k-th largest fit of every coordinate
    volumes = np.log(fits[::-1][:deepest] - fits[:deepest]).sum(axis=1)
    least = deepest // 2
    if _distance(volumes, half, delta, least) + draw.laplace(scale=1 / half) <= log(1 / (2 * delta)) / half:
        return np.zeros(x.shape[1])
    depths = np.arange(least, deepest)
    outer, inner = volumes[least - 1 : -1], volumes[least:]
    scores = outer + np.log1p(-np.exp(inner - outer)) + half * depths
    depth = int(depths[np.argmax(scores + draw.gumbel(size=len(scores)))])
    return _in_shell(fits, depth, draw)


def _distance(volumes: Floats, epsilon: float, delta: float, least: int) -> int:
    """Rows that must change before the draw from depth `least` on is unsafe, at least; -1 where it is already."""
    found = -1
    for k in range(least - 1):
        deeper = volumes[least + k + 1 :]
        margins = volumes[least - k - 2] - deeper - epsilon / 2 * np.arange(1, len(deeper) + 1)
        if margins.min() > log(delta / 8) - epsilon:
            break
        found = k
    return found


def _in_shell(fits: Floats, depth: int, draw: Generator) -> Floats:
    """Uniform among the points of this depth exactly: coordinates at random, one of them outside the inner box."""
    low, high, low_in, high_in = fits[depth - 1], fits[-depth], fits[depth], fits[-depth - 1]
    outer, inner = np.log(high - low), np.log(high_in - low_in)
    # the first coordinate outside the inner box: inside before it, anywhere after it
    before, after = np.cumsum(inner) - inner, np.cumsum(outer[::-1])[::-1] - outer
    first = int(np.argmax(before + np.log(np.exp(outer) - np.exp(inner)) + after + draw.gumbel(size=len(outer))))
    found = draw.uniform(low, high)
    found[:first] = draw.uniform(low_in, high_in)[:first]
    below, above = low_in[first] - low[first], high[first] - high_in[first]
    at = draw.uniform(-below, above)
    found[first] = low_in[first] + at if at < 0 else high_in[first] + at
    return np.asarray(found, np.float64)


@dataclass(slots=True)
class Mixture:
    """A mixture of products over D binned columns, fitted to noisy marginals by Adam.

    Attributes:
        logits: K x D x B.
        weight: D x D, the sum of 1/variance of what was measured of a pair; one-way marginals on the diagonal.
        target: DB x DB, their weighted mean, as shares of the rows.
    """

    logits: Floats
    weight: Floats
    target: Floats
    _first: Floats = field(init=False)
    _second: Floats = field(init=False)

    def __post_init__(self) -> None:
        """Adam's averages start at 0."""
        self._first, self._second = np.zeros_like(self.logits), np.zeros_like(self.logits)

    def shares(self) -> Floats:
        """P, K x DB."""
        weights = np.exp(self.logits - self.logits.max(axis=2, keepdims=True))
        shares: Floats = (weights / weights.sum(axis=2, keepdims=True)).reshape(len(weights), -1)
        return shares

    def marginals(self) -> Floats:
        """DB x DB: P^T P / K for pairs of columns, their means on the diagonal of the diagonal blocks."""
        p = self.shares()
        pairs: Floats = p.T @ p / len(p)
        return np.where(_own_block(self.logits.shape[1]), np.diag(p.mean(axis=0)), pairs)

    def add(self, a: int, b: int, measured: Floats, variance: float) -> None:
        """One measured marginal of a < b (B x B) or of a = b (its diagonal)."""
        before = self.weight[a, b]
        self.weight[a, b] = self.weight[b, a] = after = before + 1 / variance
        rows, columns = _span(a), _span(b)
        self.target[rows, columns] = (before * self.target[rows, columns] + measured / variance) / after
        self.target[columns, rows] = self.target[rows, columns].T

    def fit(self, steps: int = _STEPS) -> None:
        """Gradient steps on sum of weight (marginal - target)^2."""
        weight = np.kron(self.weight / self.weight.max(), np.ones((_BINS, _BINS)))
        own = _own_block(self.logits.shape[1])
        for step in range(1, steps + 1):
            p = self.shares()
            off = weight * (self.marginals() - self.target)
            slope = (p @ np.where(own, 0.0, off) + np.diag(off)).reshape(self.logits.shape)
            p = p.reshape(self.logits.shape)
            gradient = p * (slope - (p * slope).sum(axis=2, keepdims=True))
            self._first = 0.9 * self._first + 0.1 * gradient
            self._second = 0.999 * self._second + 0.001 * gradient**2
            self.logits -= _RATE * self._first / (np.sqrt(self._second) + 1e-12) * min(1.0, 2 - 2 * step / (steps + 1))


def dd_ssp(x: Floats, y: Floats, *, rho: float, draw: Generator) -> Floats:
    """Least squares on the moments of binned columns that AIM's noisy marginals of one and two columns suggest.

    Columns (n x d, standardised) are cut at 2.5, labels at 1, in 8 bins of equal width each. Replace_one: one row
    moves a marginal by sqrt(2) in Euclidean norm and by 2 in sum. The model of the marginals is a mixture of products,
    in the paper a graphical model; 4 rounds a column, where it has 16, did better here.
    """
    columns = np.column_stack([np.clip(x / _REACH, -1, 1), np.clip(y, -1, 1)])
    n, d = columns.shape
    codes = np.minimum(((columns + 1) / 2 * _BINS).astype(np.int64), _BINS - 1)
    indicator = (codes[:, :, None] == np.arange(_BINS)).reshape(n, -1).astype(np.float32)
    truth = (indicator.T @ indicator).astype(np.float64)
    model = aim(truth, n, rho=rho, draw=draw)
    centres = (2 * np.arange(_BINS) + 1) / _BINS - 1
    value = np.kron(np.diag([_REACH] * (d - 1) + [1.0]), centres)
    # E[v_a v_b]; the diagonal blocks of marginals() hold P(a) on their diagonal, which gives E[v_a^2]
    moments = value @ model.marginals() @ value.T
    return solve(moments[:-1, :-1] + 1e-9 * np.eye(d - 1), moments[:-1, -1])


def aim(truth: Floats, n: int, *, rho: float, draw: Generator) -> Mixture:
    """AIM on pairs of columns (its algorithm 1 with its constants): 0.9 of rho measures, 0.1 selects."""
    d = len(truth) // _BINS
    pairs = [(a, b) for a in range(d) for b in range(a, d)]
    model = Mixture(0.1 * draw.normal(size=(_COMPONENTS, d, _BINS)), np.zeros((d, d)), np.zeros_like(truth))
    rounds = _ROUNDS * d
    sigma, epsilon = sqrt(rounds / (1.8 * rho)), sqrt(0.8 * rho / rounds)

    def measure(a: int, b: int) -> None:
        block = truth[_span(a), _span(b)]
        noise = sqrt(2) * sigma * draw.normal(size=block.shape)
        model.add(a, b, (block + (np.diag(np.diag(noise)) if a == b else noise)) / n, sigma**2)

    for a in range(d):
        measure(a, a)
    model.fit(_SETTLING)
    left = rho - d / (2 * sigma**2)
    while left > 0:
        if left < 2 * (1 / (2 * sigma**2) + epsilon**2 / 8):
            sigma, epsilon = sqrt(1 / (1.8 * left)), sqrt(0.8 * left)
        left -= 1 / (2 * sigma**2) + epsilon**2 / 8
        left = 0.0 if left < 1e-9 * rho else left
        before = model.marginals()
        wrong = np.abs(truth - n * before).reshape(d, _BINS, d, _BINS).sum(axis=(1, 3))
        bias = sqrt(2 / np.pi) * sqrt(2) * sigma * np.where(np.eye(d, dtype=bool), _BINS, _BINS**2)
        # a pair shares two columns with itself and one with 2 (d - 2) others, one column is in d - 1 pairs: half that
        score = np.array([(wrong - bias)[a, b] / (2 if a == b else 1) for a, b in pairs])
        a, b = pairs[int(np.argmax(epsilon * score / (2 * 2) + draw.gumbel(size=len(pairs))))]
        measure(a, b)
        model.fit()
        moved = n * np.abs((model.marginals() - before)[_span(a), _span(b)]).sum()
        if moved <= bias[a, b]:
            sigma, epsilon = sigma / 2, 2 * epsilon
    model.fit(_SETTLING)
    return model


def _span(column: int) -> slice:
    return slice(column * _BINS, (column + 1) * _BINS)


def _own_block(d: int) -> NDArray[np.bool_]:
    return np.kron(np.eye(d, dtype=np.bool_), np.ones((_BINS, _BINS), np.bool_))
