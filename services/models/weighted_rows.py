"""Weighted rows of some attributes, whose one- and two-way tables are those of a release, but for noise.

    w(x) ~ w_0(x) exp(theta . phi(x)),        theta minimises log sum w - theta . m + lambda / 2 theta' V theta,

with phi the indicators of levels and their products for two attributes, m their released means, V the covariance of the
noise in m, and w_0 a tree of the strongest pairs (Chow and Liu, 1968). Then m - E_w phi = lambda V theta: rows fit the
release as closely as its noise allows. Evidence chooses lambda, and so how closely (`_ridge`). On three attributes rows
say what follows from pairs (docs/design/inference.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from commingle.services.errors import SeedError
from commingle.services.models.factors import Factor, tree_rows
from commingle.shared import loops as library
from commingle.shared.errors import FeaturesError
from commingle.shared.estimation.cells import Balanced, group, outer, ratios
from commingle.shared.estimation.cross_products import CrossProducts
from commingle.shared.estimation.entry_noise import Array

if TYPE_CHECKING:  # slow to import
    from scipy.sparse import csr_array

SIZE = 40_000
"""How many rows are drawn; if there are no more combinations of levels than that, each is a row."""
MAX_FEATURES = 2000
MAX_ENTRIES = 50_000_000
"""Entries of the forms of all features, and of means that are given again: 400 megabytes."""
LARGEST_RIDGE = 100.0
"""Evidence treats all pairs alike: if most are weak, a larger ridge would smooth away the few that are strong."""
_STILL, _STEPS, _ROUNDS = 1e-7, 20, 50
_NEAR = 1e-3  # of a ridge's logarithm
_FLOOR = 1e-6  # of a feature's variance: the limit of single precision
_LEAST = 1e-9  # of a feature's variance, as noise of its mean: so releases without noise can be fitted


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """N points x of a log-linear law.

    Attributes:
        X: (N, 1 + m) a column of ones, then indicators of all levels but the first, attribute by attribute.
        pairs: (F, 2) columns of X whose products are the features phi.
        phi: (N, F) the features, 0 or 1, and mostly 0.
    """

    X: Array
    pairs: NDArray[np.intp]
    phi: "csr_array"

    @classmethod
    def of(cls, factors: Sequence[Factor], codes: NDArray[np.intp], pairs: NDArray[np.intp]) -> Self:
        """The points of rows with these codes of levels, (N, d)."""
        from scipy.sparse import csr_array  # noqa: PLC0415 - loads slowly

        ends = np.cumsum([1, *(len(f.labels) - 1 for f in factors)])
        levels = (np.eye(len(f.labels))[codes[:, j], 1:] for j, f in enumerate(factors))
        X = np.hstack([np.ones((len(codes), 1)), *levels])
        column = np.where(codes > 0, codes + ends[:-1] - 1, ends[-1])  # the first level has none
        place = np.full((ends[-1] + 1,) * 2, -1, np.int32)
        place[pairs[:, 0], pairs[:, 1]] = np.arange(len(pairs))
        alone = [place[0, each] for each in column.T]
        at = np.column_stack(alone + [place[one, other] for one, other in combinations(column.T, 2)])
        starts = np.append(0, np.cumsum(np.count_nonzero(at >= 0, axis=1))).astype(np.int32)
        found = at[at >= 0]
        return cls(X, pairs, csr_array((np.ones(len(found)), found, starts), shape=(len(codes), len(pairs))))

    def means(self, w: Array) -> Array:
        """E_w phi, (F,)."""
        return np.asarray(self.phi.T @ w)

    def weights(self, log_base: Array, theta: Array) -> tuple[Array, float]:
        """Weights of the law, w (N,) with sum 1, and log sum w_0 exp(theta . phi)."""
        logs = log_base + self.phi @ theta
        most = logs.max()
        w = np.exp(logs - most)
        return w / w.sum(), float(most + np.log(w.sum()))

    def covariance(self, w: Array) -> Array:
        """Cov_w(phi), (F, F)."""
        mean = self.means(w)
        if library.available():
            upper = np.zeros((len(mean),) * 2)
            library.loops("estimation").add_pairs(upper, self.phi.indptr, self.phi.indices, w)
            both = np.add(upper, np.triu(upper, 1).T, out=upper)
        else:
            both = (self.phi.T @ self.phi.multiply(w[:, None])).toarray()
        return np.subtract(both, np.outer(mean, mean), out=both)

    def covariance_with(self, g: Array, w: Array) -> Array:
        """Cov_w(g, phi), (p, F), for g (N, p)."""
        weighted = g * w[:, None]
        return np.asarray((self.phi.T @ weighted).T - np.outer(weighted.sum(axis=0), self.means(w)))


@dataclass(frozen=True, slots=True, eq=False)
class Response:
    """How errors of the released means move a mean over weighted rows.

    Attributes:
        A: (p, F) Cov(g, phi).
        B: (p, F) derivatives by m.
        C: (F, F) Cov(phi).
        G: (p, p) Cov(g).
        bias: (p, p) the errors that the ridge adds.
        beyond: (p, p) Cov(g - A C^-1 phi), the part of g that pairs do not tell. Rows of any law w' with the same pairs
            have (E_w' - E_w) g = (E_w' - E_w)(g - A C^-1 phi), at most the root of this times the root of
            E_w (w' / w - 1)^2.
    """

    A: Array
    B: Array
    C: Array
    G: Array
    bias: Array
    beyond: Array


@dataclass(frozen=True, slots=True, eq=False)
class WeightedRows:
    """N rows with weights.

    Attributes:
        factors: d attributes.
        codes: (N, d) places of levels.
        points: (N, 1 + m) indicators of levels.
        weights: (N,) w, with sum 1.
        means: m.
        V: (F, F) the covariance of the noise in m.
        ridge: lambda.
        tree: (F, F) how theta of the tree moves with m: C_TT^-1 for its features T, and 0 elsewhere.
    """

    factors: tuple[Factor, ...]
    codes: NDArray[np.intp]
    points: Points
    weights: Array
    means: Balanced
    V: Array
    ridge: float
    tree: Array

    def response(self, g: Array) -> "Response":
        """How errors of m move E_w g, for g (N, p).

        With K = (C + lambda V)^-1, D = A K, and the tree, which m makes too, dtheta = tree dm + K (dm - C tree dm), so
        dE_w g = B dm, B = D + U tree, U = A - D C = Cov(g - D phi, phi) = lambda D V. With features R beside the tree's
        T, lambda supposes that what the tree lacks has covariance C_R.T / lambda. Of this the ridge leaves
        (U C^-1 U' - U_T C_TT^-1 U_T') / lambda, at most Var(g - D phi) / lambda, however rare a feature is.
        """
        from scipy.linalg import cho_factor, cho_solve  # noqa: PLC0415 - loads slowly

        C, A, about = (
            self.points.covariance(self.weights),
            self.points.covariance_with(g, self.weights),
            g - self.weights @ g,
        )
        G = (about * self.weights[:, None]).T @ about
        D = cho_solve(cho_factor(_regular(C) + self.ridge * self.V), A.T).T
        along = D @ C
        U, tree = A - along, np.flatnonzero(np.diag(self.tree))
        of_all = U @ cho_solve(cho_factor(_regular(C)), U.T)
        of_tree = U[:, tree] @ cho_solve(cho_factor(_regular(C[np.ix_(tree, tree)])), U[:, tree].T)
        crossed = (U + along / 2) @ D.T
        beyond = G - of_all - crossed - crossed.T  # A C^-1 A' with A = U + D C
        return Response(A, D + U @ self.tree, C, G, (of_all - of_tree) / self.ridge, beyond)


def weighted_rows(
    sums: CrossProducts,
    factors: Sequence[Factor],
    *,
    entropy: int | Sequence[int] = 0,
    size: int = SIZE,
    ridge: float | None = None,
    to_be_drawn: bool = False,
) -> WeightedRows:
    """Make weighted rows of these attributes of a release.

    Args:
        sums: of the release.
        factors: two attributes or more.
        entropy: seeds the drawing of rows.
        size: as `SIZE`.
        ridge: lambda; by evidence where left out.
        to_be_drawn: for answers without intervals: if there are too many pairs of levels, fit those that are farthest
            from independence; the others follow.

    Raises:
        FeaturesError: there are too many levels to fit together.
        SeedError: the entropy is no seed.
    """
    try:
        draw = np.random.default_rng(entropy)
    except (TypeError, ValueError):
        raise SeedError(f"{entropy!r} is no seed", remedy="Give a whole number that is not negative.") from None
    factors = tuple(factors)
    every, elsewhere = level_pairs(factors), _elsewhere(sums, factors)
    least = sum(len(f.labels) - 1 for f in factors) if to_be_drawn else len(every)
    room = MAX_ENTRIES // len(factors[0].present) ** 2
    elsewhere = elsewhere if least + len(elsewhere) <= room else elsewhere[:0]
    most = min(MAX_FEATURES, room - len(elsewhere))
    if least > most:
        what = "levels beside the first ones" if to_be_drawn else "levels and pairs of them"
        raise FeaturesError(
            f"these attributes make {least:,} {what}, and at most {most:,} can be fitted together",
            remedy="Name fewer features, or ask for fewer levels.",
        )
    shares = _shares_of(sums, factors, every)
    fitted = _farthest(every, shares, most)
    pairs = every[fitted]
    means = _released(sums, factors, pairs, elsewhere)
    m = shares[fitted] = means.values
    tables = _tables_of(factors, every, shares)
    codes, base, edges = tree_rows(sums, factors, tables, draw, size)
    points = Points.of(factors, codes, pairs)
    C = points.covariance(base)
    V = means.covariance + _LEAST * np.diag(np.maximum(np.diag(C), _LEAST))
    tree = _features(factors, pairs, edges)
    ridge = _ridge(C, V, m - points.means(base), tree) if ridge is None else ridge
    moving = np.zeros_like(C)
    moving[np.ix_(tree, tree)] = np.linalg.inv(_regular(C[np.ix_(tree, tree)]))
    weights = _tilted(points, base, m, ridge * V, _regular(C) + ridge * V)
    return WeightedRows(factors, codes, points, weights, means, V, ridge, moving)


def level_pairs(factors: Sequence[Factor]) -> NDArray[np.intp]:
    """(F, 2) as `Points.pairs`: all levels but the first with the column of ones, then with each other, by table."""
    ends = np.cumsum([1, *(len(f.labels) - 1 for f in factors)]).tolist()
    blocks = [range(first, last) for first, last in pairwise(ends)]
    alone = [(0, a) for block in blocks for a in block]
    return np.array(alone + [(a, b) for one, other in combinations(blocks, 2) for a in one for b in other], np.intp)


def _columns(factors: Sequence[Factor]) -> tuple[Array, Array]:
    """The columns of X, and the people at the parties of these, as combinations of a release's columns."""
    columns = np.vstack([np.zeros_like(factors[0].present), *(f.indicators[1:] for f in factors)])
    return columns, np.vstack([factors[0].present, *(np.tile(f.present, (len(f.labels) - 1, 1)) for f in factors)])


def _shares_of(sums: CrossProducts, factors: Sequence[Factor], pairs: NDArray[np.intp]) -> Array:
    """(F,) the released share with both levels among those who have both attributes."""
    (columns, present), (left, right) = _columns(factors), pairs.T
    of_one, of_two = columns @ sums.values, present @ sums.values
    alone = np.sum(of_one * present, axis=1) / np.maximum(np.sum(of_two * present, axis=1), 1.0)
    both = of_one @ columns.T / np.maximum(of_two @ present.T, 1.0)
    return np.asarray(np.where(left == 0, alone[right], both[left, right]))


def _farthest(pairs: NDArray[np.intp], shares: Array, most: int) -> NDArray[np.intp]:
    """Places of all single levels, and of the pairs whose shares are farthest from those of independence."""
    left, right = pairs.T
    alone = np.append(1.0, shares[left == 0])
    far = np.where(left == 0, np.inf, np.abs(shares - alone[left] * alone[right]))
    return np.sort(np.argsort(-far, kind="stable")[:most])


def _features(factors: Sequence[Factor], pairs: NDArray[np.intp], edges: set[tuple[int, int]]) -> NDArray[np.intp]:
    whose = np.concatenate([[-1], *(np.full(len(f.labels) - 1, j) for j, f in enumerate(factors))]).tolist()
    kept = [a == 0 or (whose[a], whose[b]) in edges for a, b in pairs.tolist()]
    return np.flatnonzero(kept).astype(np.intp)


def _elsewhere(sums: CrossProducts, factors: Sequence[Factor]) -> NDArray[np.intp]:
    """(D, 2) columns of levels, each with every other party."""
    _, present = _columns(factors)
    parties = sorted({int(f.present.argmax()) for f in factors}) if len(sums.strangers) > 1 else []
    found = [(c, i) for c in range(1, len(present)) for i in parties if i != present[c].argmax()]
    return np.array(found, np.intp).reshape(-1, 2)


def _released(
    sums: CrossProducts, factors: Sequence[Factor], pairs: NDArray[np.intp], elsewhere: NDArray[np.intp]
) -> Balanced:
    """Means m over the people of each pair of parties; those of single levels again with each other party."""
    columns, present = _columns(factors)
    (left, right), (level, party) = pairs.T, elsewhere.T
    alone = (left == 0)[:, None]
    others = np.eye(len(columns[0]))[party]
    one = np.vstack([np.where(alone, present[right], columns[left]), others])
    first = np.vstack([np.where(alone, present[right], present[left]), others])
    other, second = (np.vstack([each[right], each[level]]) for each in (columns, present))
    again = np.eye(len(columns) - 1, len(pairs))[level - 1]
    shares, _ = ratios(sums, outer(columns[level], present[level]), outer(present[level], present[level]))
    groups = [group(*each) for each in zip(first, second, strict=True)]
    spread = np.diag(np.maximum(shares, 0.0))  # of indicators of one attribute, no more than that
    return Balanced.of(sums, outer(one, other), outer(first, second), groups, again=again, spread=spread)


def _tables_of(factors: Sequence[Factor], pairs: NDArray[np.intp], m: Array) -> dict[tuple[int, int], Array]:
    """Shares (L_j, L_k) of each pair of attributes by the means m."""
    ends = np.cumsum([1, *(len(f.labels) - 1 for f in factors)]).tolist()
    M, levels = np.zeros((ends[-1],) * 2), list[Array]()
    M[0, 0] = 1.0
    M[pairs[:, 0], pairs[:, 1]] = M[pairs[:, 1], pairs[:, 0]] = m
    for start, end in pairwise(ends):
        others = np.eye(ends[-1])[start:end]
        levels.append(np.vstack([np.eye(ends[-1])[0] - others.sum(axis=0), others]))
    return {(j, k): levels[j] @ M @ levels[k].T for j, k in combinations(range(len(factors)), 2)}


def _tilted(points: Points, base: Array, m: Array, penalty: Array, curvature: Array) -> Array:
    """Weights (N,); `penalty` is lambda V. With theta = L^-T eta, L L' = C + lambda V, the objective is round at w_0.

    When it is no longer round, C of the weights reached so far takes the place of C.
    """
    from scipy.linalg import solve_triangular  # noqa: PLC0415 - loads slowly
    from scipy.optimize import minimize  # noqa: PLC0415 - loads slowly

    log_base, theta, w = np.log(base), np.zeros(len(m)), base
    solve = partial(solve_triangular, lower=True, check_finite=False)

    def objective(L: Array, eta: Array) -> tuple[float, Array]:
        theta = solve(L, eta, trans="T")
        w, log_sum = points.weights(log_base, theta)
        pull = penalty @ theta
        value = float(log_sum - theta @ m + theta @ pull / 2)
        return value, solve(L, points.means(w) - m + pull)

    for _ in range(_ROUNDS):
        L: Array = np.asarray(np.linalg.cholesky(curvature), np.float64)
        found = minimize(
            partial(objective, L),
            L.T @ theta,
            jac=True,
            method="L-BFGS-B",
            options={"gtol": _STILL, "ftol": 0, "maxiter": _STEPS},
        )
        theta = solve(L, found.x, trans="T")
        w, _ = points.weights(log_base, theta)
        if found.nit < _STEPS:
            break
        curvature = _regular(points.covariance(w)) + penalty
    return w


def _ridge(C: Array, V: Array, gap: Array, tree: NDArray[np.intp]) -> float:
    """The lambda of least surprise, sum log(1 + e / lambda) + z^2 / (1 + e / lambda), beyond what the tree has fitted.

    Of features R beside the tree's T, with G = C_RT C_TT^-1: r = (m - E_w0 phi)_R - G (m - E_w0 phi)_T has noise of
    covariance V_r = (1, -G) V (1, -G)' and what the tree lacks, of covariance (C_RR - G C_TR) / lambda. With e, Q the
    eigenpairs of V_r^-1/2 (C_RR - G C_TR) V_r^-1/2 and z = Q' V_r^-1/2 r, the sums are log |V_r + (C_RR - G C_TR) /
    lambda|, but for a constant, and the form of that matrix's inverse at r: no eigenpair is needed. At most
    `LARGEST_RIDGE`.
    """
    from scipy.linalg import cho_factor, cho_solve  # noqa: PLC0415 - loads slowly
    from scipy.optimize import minimize_scalar  # noqa: PLC0415 - loads slowly

    rest = np.setdiff1d(np.arange(len(gap)), tree)
    if not len(rest):
        return 1.0
    C_TR, V_TR = (M[np.ix_(tree, rest)] for M in (C, V))
    G = np.linalg.solve(_regular(C[np.ix_(tree, tree)]), C_TR).T
    crossed = G @ V_TR
    V_r = _regular(V[np.ix_(rest, rest)] - crossed - crossed.T + G @ V[np.ix_(tree, tree)] @ G.T)
    lacking, r = C[np.ix_(rest, rest)] - G @ C_TR, gap[rest] - G @ gap[tree]

    def surprise(log: float) -> float:
        whole = cho_factor(V_r + lacking * np.exp(-log), lower=True, overwrite_a=True, check_finite=False)
        return float(2 * np.log(np.diag(whole[0])).sum() + r @ cho_solve(whole, r, check_finite=False))

    most = float(np.log(LARGEST_RIDGE))
    if surprise(most) <= surprise(most - _NEAR):
        return LARGEST_RIDGE
    found = minimize_scalar(surprise, bounds=(-5.0, most), method="bounded", options={"xatol": _NEAR})
    return float(np.exp(found.x))


def _regular(C: Array) -> Array:
    """C, with the limit of single precision added to its diagonal."""
    return np.asarray(C + _FLOOR * np.diag(np.maximum(np.diag(C), _LEAST**2)))
