"""One posterior sample, balanced variant (Wang 2018, section 3.1; Wang, Fienberg, Smola 2015)."""

from math import log, sqrt

from numpy.random import Generator

from commingle.party_agent.private.regression.calibration import Calibration, Privacy, require_calibration
from commingle.party_agent.private.regression.posterior import loss_tail, positive_root, proved_root, sample_posterior
from commingle.party_agent.private.regression.problem import Estimate, Sample
from commingle.shared.dp.accounting import Loss

SOUND = frozenset({Calibration.CLASSICAL})
GUARANTEE = "(epsilon, delta)-DP by a bound on the tail of the privacy loss of a Gaussian posterior sample."
_FAILURE = 0.05


def ops_loss(privacy: Privacy) -> Loss:
    """What `ops` costs; public."""
    require_calibration(privacy, SOUND | {Calibration.PUBLISHED})
    return Loss.approximate(privacy.epsilon, privacy.delta)


def ops(sample: Sample, privacy: Privacy, generator: Generator) -> Estimate:
    """A sample of the ridge posterior with lambda and gamma from public quantities.

    Privacy: add_remove as in the paper, replace_one by group privacy; the number of rows is public.
    classical: (epsilon, delta)-DP (docs/proofs/regression.md, 4.4). published: the paper's gamma, benchmark only.
    Floating-point noise.
    """
    loss = ops_loss(privacy)
    asked = privacy.as_add_remove()
    ridge = _ridge(sample, asked)
    root = _published_root(sample, asked, ridge)
    if asked.calibration is Calibration.CLASSICAL:
        residual = _coefficient_bound(sample, ridge) * sample.row_bound + sample.label_bound
        leverage = sample.row_bound**2 / ridge
        root = proved_root(residual=residual, leverage=leverage, tail=loss_tail(asked.delta), epsilon=asked.epsilon)
    theta = sample_posterior(sample, generator, ridge=ridge, inverse_variance=root**2)
    return Estimate(theta, loss, {"ridge": ridge, "inverse_variance": root**2})


def _ridge(sample: Sample, asked: Privacy) -> float:
    epsilon, tail, d = asked.epsilon, log(2 / asked.delta), sample.d
    # C1 = (d/2 + sqrt(d ln(1/rho)) + ln(1/rho)) ln(2/delta) / min(eps/2, sqrt(eps/2))^2
    c1 = (d / 2 + sqrt(d * log(1 / _FAILURE)) + log(1 / _FAILURE)) * tail / min(epsilon / 2, sqrt(epsilon / 2)) ** 2
    balanced = (c1 * sample.row_bound**4 * sample.label_bound**2 * sample.n / 2) ** (1 / 3)
    return float(max(balanced, (1 + tail) * sample.row_bound**2 / epsilon))


def _coefficient_bound(sample: Sample, ridge: float) -> float:
    """||theta_hat|| <= min(sqrt(n) Y / sqrt(2 lambda), n C Y / lambda)."""
    n, bound = sample.n, sample.label_bound
    return min(sqrt(n) * bound / sqrt(2 * ridge), n * sample.row_bound * bound / ridge)


def _published_root(sample: Sample, asked: Privacy, ridge: float) -> float:
    tail, square = log(2 / asked.delta), sample.row_bound**2
    lipschitz = sample.row_bound * (_coefficient_bound(sample, ridge) * sample.row_bound + sample.label_bound)
    # g^2 L^2/(lambda + C^2) + g L sqrt(ln(2/delta)/lambda) = epsilon - (1 + ln(2/delta)) C^2/(2 lambda)
    return positive_root(
        lipschitz**2 / (ridge + square),
        lipschitz * sqrt(tail / ridge),
        asked.epsilon - (1 + tail) * square / (2 * ridge),
    )
