"""Rows, labels and public moments of the public second moment paper's design."""

import numpy as np

from commingle.party_agent.private.regression.problem import Floats
from commingle.party_agent.private.regression.public_moment import PublicMoments

RHO = 0.7


def ill_conditioned(n: int, seed: int = 0) -> tuple[Floats, Floats, Floats]:
    """Rows, labels and coefficients of the paper's design: d = 10, N(mu, Psi), noise of 0.05."""
    draw = np.random.default_rng(seed)
    basis = np.linalg.qr(np.random.default_rng(7).normal(size=(10, 10)))[0]
    scales = np.sqrt(np.geomspace(1, 0.01, 10))
    x = 0.3 + draw.normal(size=(n, 10)) @ (basis * scales) @ basis.T
    beta = np.random.default_rng(8).normal(size=10)
    return x, x @ beta + draw.normal(0, 0.05, n), beta


PUBLIC = PublicMoments.of(*ill_conditioned(500, seed=1)[:2])
