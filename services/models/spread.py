"""How differently the residuals of a linear fit spread by level, from sums of the target's square over levels.

    sigma^2(x) = E(e^2 | x) = x g,   E[x x'] g = E[x e^2],   e = y - f(x) as the fit has it,
    E[x e^2] = E[x y^2] - E[x f^2] - 2 E[x f e].

The first is released if y is an event, whose square is itself, or if its square is a column. The second is over
weighted rows. The last is 0 if the expected target is linear. Weighted rows then give what pairs do not have, the
sandwich E[x x']^-1 E[sigma^2 x x'] E[x x']^-1 (docs/design/estimation.md#residuals-that-spread-unalike).
"""

from collections.abc import Sequence

import numpy as np

from commingle.services.models.factors import Factor, in_use
from commingle.services.models.weighted_rows import weighted_rows
from commingle.shared.documents.schema import Attribute, BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.errors import EstimationError
from commingle.shared.estimation.cells import outer
from commingle.shared.estimation.cross_products import CrossProducts
from commingle.shared.estimation.entry_noise import Array
from commingle.shared.estimation.prepared import PreparedMoments

EXPLAINED = 0.3
"""Up to this R^2 we take E[x f e] as 0; beyond it, nonlinear parts of the target weigh more (docs/coverage.md)."""
_CUT = 0.01
"""The most of a column's variance that cutting rows may take; beyond it, squares are not those of whole rows."""
_LEAST = 0.05
"""The least share of its mean that sigma^2 may have: a line may fall below 0, and a variance cannot."""


def square_of(prepared: PreparedMoments, target: str) -> str | None:
    """The attribute of a release that is the square of this number, if there is one."""
    own = prepared.attribute(target)
    found = (a for a in prepared.attributes.values() if isinstance(a, NumericAttribute) and a.product == (own, own))
    return next((a.name for a in found), None)


def knows_spread(prepared: PreparedMoments, target: str, features: Sequence[str]) -> bool:
    """Whether a release tells how residuals spread: it has the target's square, levels as features, and whole rows."""
    own, square = prepared.attribute(target), square_of(prepared, target)
    named = [prepared.attribute(name) for name in features]
    used = [i for name in (target, *((square,) if square else ()), *features) for i in prepared.columns[name]]
    return (
        prepared.entry_variance is not None
        and own.missing == "error"
        and bool(named)
        and all(isinstance(a, BinaryAttribute | CategoricalAttribute) and a.missing != "midpoint" for a in named)
        and (isinstance(own, BinaryAttribute) or square is not None)
        and not prepared.cut
        and (prepared.lost is None or float(prepared.lost[used].max()) < _CUT)
    )


def spread(prepared: PreparedMoments, target: str, features: Sequence[str], b: Array) -> Array | None:
    """T (p, p) in encoded units: T E[x x']^-1 T' is the sandwich for residuals of variance 1.

    The release `knows_spread`; b (p,) is the fit's in encoded units, the intercept first. None if there are too many
    levels for weighted rows, or noise hides a level or how residuals spread.
    """
    sums, square = CrossProducts.of(prepared), square_of(prepared, target)
    has = sums.present(target)
    y2 = has if square is None else (sums.number(square)[0] + has) / 2  # of an event -1 and 1, and of 2 y^2 - 1
    try:
        factors = [Factor.of(sums, name) for name in features]
        if any(factor.together(sums, has)[2] for factor in factors):
            return None
        fewer, factors, kept = in_use(sums, factors, (y2, has), (target,))
        rows = weighted_rows(fewer, factors)
    except EstimationError:
        return None
    X, w = rows.points.X, rows.weights
    encoded = _encoded([prepared.attribute(name) for name in features])
    shares, noise = _squares(fewer, factors, y2[kept], has[kept])
    sandwich = _sandwich(X, w, shares - (w * (X @ (encoded.T @ b)) ** 2) @ X, noise)
    return None if sandwich is None else np.linalg.solve(encoded.T, sandwich) @ encoded.T


def _squares(sums: CrossProducts, factors: Sequence[Factor], y2: Array, has: Array) -> tuple[Array, Array]:
    """E[x y^2] for x = (1, levels but the first), each over the people of both parties, and its noise (p, p)."""
    columns = np.vstack([has, *(f.indicators[1:] for f in factors)])
    present = np.vstack([has, *(np.tile(f.present, (len(f.labels) - 1, 1)) for f in factors)])
    counts = np.maximum(present @ sums.values @ has, 1.0)
    forms = outer(columns / counts[:, None], np.tile(y2, (len(columns), 1)))
    return np.einsum("tab,ab->t", forms, sums.values), sums.covariance(forms)


def _encoded(attributes: Sequence[Attribute]) -> Array:
    """A (p, p): a fit's encoded terms are A (1, indicators of all levels but the first)."""
    found = np.eye(1)
    for attribute in attributes:
        others = len(attribute.columns)
        own = np.eye(others)
        first = np.zeros(others)
        if isinstance(attribute, BinaryAttribute):  # -1 and 1, and 0 where it is marked
            own[0], first[0] = own[0] * 2, -1.0
            own[0, 1:] = 1.0
        found = np.block([[found, np.zeros((len(found), others))], [np.zeros((others, len(found))), own]])
        found[-others:, 0] = first
    return found


def _sandwich(X: Array, w: Array, squares: Array, noise: Array) -> Array | None:
    """T = L^-T B^(1/2) L' of P = E x x' = L L' and B = L^-1 E[s x x'] L^-T, s = sigma^2 over its mean.

    None if the variance of sigma^2 over people is below twice that of its noise, E[x' P^-1 N P^-1 x] = tr(P^-1 N).
    """
    P = X.T @ (w[:, None] * X)
    s = X @ np.linalg.solve(P, squares)
    mean = float(w @ s)
    if mean <= 0 or w @ (s - mean) ** 2 < 2 * np.trace(np.linalg.solve(P, noise)):
        return None
    s = np.maximum(s / mean, _LEAST)
    s /= w @ s
    L = np.linalg.cholesky(P)
    half = np.linalg.solve(L, X.T * np.sqrt(w * s))
    values, vectors = np.linalg.eigh(half @ half.T)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return np.asarray(np.linalg.solve(L.T, root) @ L.T)
