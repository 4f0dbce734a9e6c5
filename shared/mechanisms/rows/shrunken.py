"""For prediction: as much of the measurement-error fit as there is reason to believe (docs/proofs/prediction.md).

In the basis in which noise and moments are both diagonal every direction of the features gets its own factor: what
undoes the attenuation there, times what is left of a normal prior, times the probability that there is any signal
(`belief`). The means of label and features are pulled from what was released towards the centre of their public bounds.
"""

import math

import numpy as np

from commingle.shared.estimation.bounded import most_variance, posterior_mean, variance_levels
from commingle.shared.estimation.errors import SingularError
from commingle.shared.estimation.estimator import Signal, inverse
from commingle.shared.estimation.prepared import Array
from commingle.shared.estimation.system import Centred, System
from commingle.shared.mechanisms.rows.belief import Belief, Directions, Label, shrinkage

# prior belief about columns encoded into [-1, 1], whose variance is 1/3 when uniform: mean of an exponential law
FEATURE_VARIANCE = 0.15
_LEAST = 1e-9


def shrunken(system: System, signal: Signal) -> Array:
    """H of T diag(w / (share + noise/m)) T^T and the intercept at the means that are believed."""
    c = signal.centred
    if not c.V.any():
        return c.with_intercept(inverse(c.X))
    d = directions(system, c)
    label, means = believed_means(c)
    left = shrinkage(Belief.of(d, c.rows, label_variance(system, c, label * c.label_mean)), c.yy)
    slopes = d.basis / d.price(c.rows) @ left @ d.basis.T
    if c.means is None:
        return slopes
    # b = slopes (G_xy - G_1y c.means), b_0 = label G_1y / G_11 - means^T b
    all_slopes = np.column_stack([-slopes @ c.means, slopes])
    first = -means @ all_slopes
    first[0] += label / c.weight
    return np.vstack([first, all_slopes])


def believed_means(c: Centred) -> tuple[float, Array]:
    """The label's mean over what was released of it, and the features' means, (q,); without intercept there are none.

    A mean of k noisy rows is off by N(0, (X_jj/m) / G_11); encoded, it lies in [-1, 1].
    """
    if c.means is None:
        return 1.0, np.empty(0)
    moments = np.append(c.yy, np.diag(c.X))
    released = np.append(c.label_mean, c.means)
    believed = posterior_mean(released, np.sqrt(moments / c.rows / c.weight), -1.0, 1.0)
    return float(believed[0] / released[0]) if released[0] else 1.0, believed[1:]


def directions(system: System, c: Centred) -> Directions:
    """The basis, and how much of every direction is signal.

    1 - noise is off by about sqrt(2/m). Its prior is exponential about what features of variance FEATURE_VARIANCE
    would show, which shifts a normal posterior by -s^2 / mean, cut off to [0, 1].
    """
    from scipy.linalg import eigh  # noqa: PLC0415 - loads slowly, and no other estimator needs it

    try:
        noise, basis = eigh(c.rows * c.V, c.X)
    except np.linalg.LinAlgError:
        raise SingularError("the moments cannot be inverted", remedy="Name fewer features.") from None
    noise = np.maximum(noise, _LEAST)
    v = np.diag(c.V)
    expected = FEATURE_VARIANCE * system.n / system.rows * float(np.mean(1 / v[v > 0]))
    share = posterior_mean(1 - noise - 2 / c.rows / expected, math.sqrt(2 / c.rows), 0.0, 1.0)
    share = np.maximum(share, _LEAST)
    alone = (share[:, None] * (basis.T @ c.X)).T  # T^-1 = T^T X
    alone /= np.linalg.norm(alone, axis=1, keepdims=True)
    return Directions(basis, noise, share, basis.T @ (c.g - c.rows * c.v), alone)


def label_variance(system: System, c: Centred, mean: float) -> Label:
    """What the variance of a published label may be, given its mean.

    yy/m = v_y + s with s = (n/k) Var(y), off by sqrt(2/m) of itself. Encoded into [-1, 1], Var(y) is bounded; without
    an intercept the units are others and it is not.
    """
    bound = most_variance(mean) * system.n / system.rows if system.intercept else math.inf
    total = c.yy / c.rows
    error = math.sqrt(2 / c.rows) * max(total, system.v_yy)
    signal = np.maximum(variance_levels(total - system.v_yy, error, bound), _LEAST * system.v_yy)
    return Label(system.v_yy + signal, signal)
