"""The law of a moments release, drawn without running the protocol (docs/design/exchange.md#allocation)."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from commingle.services.fit import PreparedMoments
from commingle.services.simulation.dataset import PartyShare
from commingle.shared.documents.manifest import SecondMoments
from commingle.shared.documents.schema import Attribute, encoded_columns
from commingle.shared.documents.spec import INTERCEPT, PartySpec, ReleaseSpec
from commingle.shared.dp.calibration import rho_of_epsilon
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.release.plan import plan_blocks

Array = NDArray[np.float64]


def spec_of(
    shares: Sequence[PartyShare], *, row_norm: float | None = None, epsilon: float, delta: float
) -> ReleaseSpec:
    """A moments release of these parties; `row_norm` is C^2 as a share of the largest squared norm of a row."""
    parties = tuple(
        PartySpec(
            name=f"party-{number}",
            signing_key=f"{number:064x}",
            sealing_key=f"{number:064x}",
            dataset="data",
            attributes=share.attributes,
            row_norm=None if row_norm is None else sqrt(norm_squared(share, row_norm)),
        )
        for number, share in enumerate(shares)
    )
    now = datetime.now(UTC)
    return ReleaseSpec(
        study="Benchmark",
        created=now,
        expires=now + timedelta(days=1),
        mechanism="moments",
        fraction_bits=14,
        seed="00" * 32,
        epsilon=epsilon,
        delta=delta,
        n=1000,
        parties=parties,
        proposer="00" * 32,
    )


def norm_squared(share: PartyShare, row_norm: float) -> float:
    """C^2 of one party."""
    return row_norm * sum(a.geometry.radius_squared for a in share.attributes)


def entry_variance(
    shares: Sequence[PartyShare], *, row_norm: float | None = None, epsilon: float, delta: float
) -> Array:
    """What the mechanism states: variances (p, p) of the noise in S_hat, the intercept first and its count exact."""
    spec = spec_of(shares, row_norm=row_norm, epsilon=epsilon, delta=delta)
    nothing = np.zeros((len(spec.columns),) * 2, np.int64)
    stated = mechanism_of(spec).moments(spec, [plan.sigma for plan in plan_blocks(spec)], nothing).entry_variance
    assert stated is not None  # noqa: S101 - this mechanism states it
    return stated


def clipped(rows: Array, shares: Sequence[PartyShare], row_norm: float | None) -> Array:
    """Encoded rows (n, p), the intercept first, every party's part cut to its norm."""
    if row_norm is None:
        return rows
    result, start = rows.copy(), 1
    for share in shares:
        C2 = norm_squared(share, row_norm)
        part = result[:, start : start + sum(len(a.columns) for a in share.attributes)]
        start += part.shape[1]
        part *= np.minimum(1.0, np.sqrt(C2 / np.maximum((part**2).sum(axis=1), C2)))[:, None]
    return result


def noisy_moments(
    S: Array, variance: Array, attributes: tuple[Attribute, ...], random: np.random.Generator
) -> SecondMoments:
    """S + noise as it is published."""
    upper = np.triu(random.standard_normal(S.shape) * np.sqrt(variance))
    return SecondMoments(
        release="0" * 64,
        mechanism="moments",
        columns=(INTERCEPT, *(c.name for c in encoded_columns(attributes))),
        gram=tuple(map(tuple, (S + upper + np.triu(upper, 1).T).tolist())),
        noise_variance=(0.0,) * len(S),
        rows=round(S[0, 0]),
        n=round(S[0, 0]),
        entry_variance=tuple(map(tuple, variance.tolist())),
    )


def moments_release(
    S: Array, variance: Array, attributes: tuple[Attribute, ...], random: np.random.Generator
) -> PreparedMoments:
    """The same as a learner reads it."""
    return PreparedMoments.of(noisy_moments(S, variance, attributes, random), attributes)


def rmgm_release(
    S: Array, shares: Sequence[PartyShare], k: int, random: np.random.Generator, *, epsilon: float, delta: float
) -> PreparedMoments:
    """G of rmgm: its k rows behave like draws of N(0, S/k + V) (docs/design/estimation.md#second-moments)."""
    attributes = tuple(a for party in shares for a in party.attributes)
    noise = [0.0]
    for party in shares:
        moved = sum(a.geometry.diameter_squared for a in party.attributes)
        noise += [moved / (2 * rho_of_epsilon(epsilon, delta))] * sum(len(a.columns) for a in party.attributes)
    eigenvalues, vectors = np.linalg.eigh(S / k)
    root = vectors * np.sqrt(np.maximum(eigenvalues, 0))
    P = random.standard_normal((k, len(S))) @ root.T + random.standard_normal((k, len(S))) * np.sqrt(noise)
    document = SecondMoments(
        release="0" * 64,
        mechanism="rmgm",
        columns=(INTERCEPT, *(c.name for c in encoded_columns(attributes))),
        gram=tuple(map(tuple, (P.T @ P).tolist())),
        noise_variance=tuple(noise),
        rows=k,
        n=round(S[0, 0]),
    )
    return PreparedMoments.of(document, attributes)
