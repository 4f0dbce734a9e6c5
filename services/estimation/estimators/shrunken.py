"""For prediction: as much of the measurement-error fit as the release gives reason to believe (docs/prediction.md).

In the basis in which noise and moments are both diagonal every direction of the features gets its own factor: what
undoes the attenuation there, times what is left of a normal prior whose scale the release itself chooses. The means of
label and features are pulled from what was released towards the centre of their public bounds.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, eigh

from services.estimation.errors import SingularError
from services.estimation.linear_algebra import inverse
from services.estimation.prepared import Array
from services.estimation.signal import Signal
from services.estimation.system import Centred, System
from services.estimation.truncated import posterior_levels, posterior_mean

# prior beliefs about columns encoded into [-1, 1], whose variance is 1/3 when uniform: means of exponential laws
FEATURE_VARIANCE = 0.15
LABEL_VARIANCE = 0.3
LABEL_LEVELS = 3
TILT = 0.5  # prior variance of a slope along a direction ~ (signal there)^(TILT - 1): 0 is the g-prior, 1 is ridge
R_SQUARED = np.array([0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99])
NO_SIGNAL = 0.3  # prior probability that the features say nothing of the label; the rest is flat over (0, 1)
_STEPS = np.append(0.0, np.gradient(R_SQUARED)[1:])
_PRIOR = (1 - NO_SIGNAL) * _STEPS / _STEPS.sum() + NO_SIGNAL * (R_SQUARED == 0)
_LEAST = 1e-9
_MOST = 0.999


@dataclass(frozen=True, slots=True, eq=False)
class Directions:
    """The basis T, (q, q), with T^T X T = I and T^T (m V_xx) T = diag(noise).

    Attributes:
        noise: (q,) share of noise in the release's moment; expected at most 1.
        share: (q,) what is believed of 1 - noise, the share of signal; positive.
        z: (q,) T^T g. Given X, z ~ N(zeta, tau^2 I) with tau^2 the variance of a published label given its features.
    """

    basis: Array
    noise: Array
    share: Array
    z: Array


def operator(system: System, signal: Signal) -> Array:
    """H of T diag(w / (share + noise/m)) T^T and the intercept at the means that are believed."""
    c = signal.centred
    if not c.V.any():
        return c.with_intercept(inverse(c.X))
    d = directions(system, c)
    # loss along one direction: f^2 z^2 (share + noise/m) - 2 f z zeta; noise/m is what the noisy means add
    slopes = d.basis * (weights(system, c, d) / (d.share + d.noise / c.rows)) @ d.basis.T
    if c.means is None:
        return slopes
    label, means = believed_means(system, c, c.means)
    # b = slopes (G_xy - G_1y c.means), b_0 = label G_1y / G_11 - means^T b
    all_slopes = np.column_stack([-slopes @ c.means, slopes])
    first = -means @ all_slopes
    first[0] += label / c.weight
    return np.vstack([first, all_slopes])


def believed_means(system: System, c: Centred, released_means: Array) -> tuple[float, Array]:
    """The label's mean over what was released of it, and the features' means, (q,).

    A mean of k noisy rows is off by N(0, (X_jj/m) / G_11); encoded, it lies in [-1, 1].
    """
    moments = np.append(c.yy, np.diag(c.X))
    released = np.append(system.xy[0] / c.weight, released_means)
    believed = posterior_mean(released, np.sqrt(moments / c.rows / c.weight), -1.0, 1.0)
    return float(believed[0] / released[0]) if released[0] else 1.0, believed[1:]


def directions(system: System, c: Centred) -> Directions:
    """The basis, and how much of every direction is signal.

    1 - noise is off by about sqrt(2/m). Its prior is exponential about what features of variance FEATURE_VARIANCE
    would show, which shifts a normal posterior by -s^2 / mean, cut off to [0, 1].
    """
    try:
        noise, basis = eigh(c.rows * c.V, c.X)
    except LinAlgError:
        raise SingularError("the moments cannot be inverted", remedy="Name fewer features.") from None
    noise = np.maximum(noise, _LEAST)
    v = np.diag(c.V)
    expected = FEATURE_VARIANCE * system.n / system.rows * float(np.mean(1 / v[v > 0]))
    share = posterior_mean(1 - noise - 2 / c.rows / expected, math.sqrt(2 / c.rows), 0.0, 1.0)
    return Directions(basis, noise, np.maximum(share, _LEAST), basis.T @ (c.g - c.rows * c.v))


def label_moments(system: System, c: Centred) -> tuple[Array, Array]:
    """Equally likely variances of a published label, (J,), and the share of signal in each.

    yy/m = v_y + s with s = (n/k) Var(y), off by sqrt(2/m) of itself. Where bounds are encoded Var(y) <= 1 and
    its prior is exponential with mean LABEL_VARIANCE; without an intercept the units are others and there is none.
    """
    total, unit = c.yy / c.rows, system.n / system.rows if system.intercept else math.inf
    error = math.sqrt(2 / c.rows) * max(total, system.v_yy)
    x = total - system.v_yy - error**2 / (LABEL_VARIANCE * unit)
    signal = np.maximum(posterior_levels(x, error, 0.0, unit, LABEL_LEVELS), _LEAST * system.v_yy)
    return system.v_yy + signal, signal / (system.v_yy + signal)


def weights(system: System, c: Centred, d: Directions) -> Array:
    """What is left of z: E[zeta | z] / z, (q,), over all variances of the label and all R^2 of the prior.

    Prior: zeta_i ~ N(0, tau^2 h_i), h_i ~ share_i (share_i / noise_i)^TILT, scaled so that the label's signal is
    explained to R^2: sum h_i / share_i = m R^2 (label's share) / (1 - attenuated R^2). Posterior weight h/(1+h).
    """
    total, label_share = label_moments(system, c)
    shape = d.share * (d.share / d.noise) ** TILT
    shape /= np.sum(shape / np.maximum(d.share, 1e-3))
    explained = R_SQUARED[:, None] * label_share  # (R, J)
    attenuated = np.minimum(explained * shape.sum(), _MOST)
    tau2 = total * (1 - attenuated)
    h = (c.rows * explained / (1 - attenuated))[..., None] * shape  # (R, J, q)
    left = max(c.yy - float(d.z @ d.z), 0.0) + np.sum(d.z**2 / (1 + h), axis=-1)
    # the likelihood of z and the residual, over that of yy, which chose the levels
    log = (
        np.log(_PRIOR)[:, None]
        - (np.log1p(h).sum(axis=-1) + c.rows * np.log(1 - attenuated) + left / tau2 - c.yy / total) / 2
    )
    posterior = np.exp(log - log.max())
    return np.tensordot(posterior / posterior.sum(), h / (1 + h), axes=2)
