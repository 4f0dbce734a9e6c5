"""Second moments of a release, drawn from their law given the private table's, in place of making the release.

rmgm: the k rows of B A + N are independent, with covariance S/k + V (S = A^T A). Each is a sum over n subjects, so for
any but tiny n they are normal and G is Wishart of k degrees of freedom. That normality is the only approximation;
`exact_moments` makes the release for real, to compare.
dgm: G = (A + N)^T (A + N) with F^T F = S depends on N only through its part in the p-dimensional span of A and the
rest: G = (F + Z)^T (F + Z) + W, Z of p rows of noise, W Wishart of n - p degrees. This is exact.
Integer noise is drawn as continuous noise of the same variance: sigma is above 10^4 steps in all that is run here.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.keys import Fingerprint
from commingle.shared.documents.manifest import SecondMoments
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.study import Member, Study, build_spec
from commingle.shared.dp.fixed_point import SCALE, clip_rows, quantise, squared_row_limit
from commingle.shared.dp.noise import Sampler
from commingle.shared.forecast.forecast import with_sketch
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.release.matrix import assemble, second_moments
from commingle.shared.release.plan import plan_blocks

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
_RELEASE = "0" * 64
_PROPOSED = datetime(2026, 1, 1, tzinfo=UTC)


def wishart(covariance: Array, degrees: int, draw: np.random.Generator) -> Array:
    """Z^T Z, (p, p), of `degrees` rows of N(0, covariance): L T T^T L^T, T of Bartlett's decomposition."""
    p, factor = len(covariance), np.linalg.cholesky(covariance)
    if degrees < p:
        rows = draw.normal(size=(degrees, p)) @ factor.T
        return np.asarray(rows.T @ rows)
    triangle = np.tril(draw.normal(size=(p, p)), -1)
    triangle += np.diag(np.sqrt(draw.chisquare(degrees - np.arange(p))))
    root = factor @ triangle
    return np.asarray(root @ root.T)


def rmgm_gram(S: Array, noise: Array, k: int, draw: np.random.Generator) -> Array:
    """G of rmgm, (p, p): Wishart of k rows of N(0, S/k + V), `noise` (p,) being the diagonal of V."""
    return wishart(S / k + np.diag(noise), k, draw)


def dgm_gram(S: Array, noise: Array, n: int, draw: np.random.Generator) -> Array:
    """G of dgm, (p, p), for n rows."""
    values, vectors = np.linalg.eigh(S)
    deviation = np.sqrt(noise)
    within = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T + draw.normal(size=S.shape) * deviation
    rest = wishart(np.eye(len(S)), n - len(S), draw) * np.outer(deviation, deviation)
    return np.asarray(within.T @ within + rest)


def proposed(study: Study, seed: bytes = bytes(32)) -> ReleaseSpec:
    """The release spec that the product makes of a study, with keys that nobody holds."""
    keys = (f"{number:064x}" for number in range(1, len(study.parties) + 1))
    members = {party.name: Member(key, key) for party, key in zip(study.parties, keys, strict=True)}
    planned = with_sketch(study)
    return build_spec(planned, members=members, proposer=Fingerprint("0" * 64), seed=seed, now=_PROPOSED)


def integer_rows(spec: ReleaseSpec, encoded: Array) -> tuple[Integers, ...]:
    """Each party's integer rows of encoded values (n, columns) in [-1, 1]: fixed point, then row clipping."""
    ends = np.cumsum([len(party.columns) for party in spec.parties])[:-1]
    blocks = [quantise(block) for block in np.split(encoded, ends, axis=1)]
    return tuple(
        block if party.row_norm is None else clip_rows(block, squared_row_limit(party.row_norm))
        for party, block in zip(spec.parties, blocks, strict=True)
    )


def private_moments(blocks: Sequence[Integers]) -> Array:
    """S = A^T A, (p, p), of the parties' integer rows behind the intercept."""
    A = np.column_stack([np.ones(len(blocks[0])), *(block / SCALE for block in blocks)])
    return np.asarray(A.T @ A)


def noise_variances(spec: ReleaseSpec) -> Array:
    """V's diagonal, (p,), as the product calibrates it: 0 for the intercept, (sigma step)^2 for the rest."""
    step = mechanism_of(spec).step(spec)
    return np.array([0.0, *((plan.sigma * step) ** 2 for plan in plan_blocks(spec) for _ in plan.columns)])


def drawn_gram(spec: ReleaseSpec, S: Array, noise: Array, draw: np.random.Generator) -> Array:
    """G, (p, p), of one release of this spec; `noise` as of `noise_variances`."""
    rows = mechanism_of(spec).rows(spec)
    return (rmgm_gram if spec.mechanism == "rmgm" else dgm_gram)(S, noise, rows, draw)


def drawn_moments(spec: ReleaseSpec, S: Array, draw: np.random.Generator) -> SecondMoments:
    """The moments of one release of this spec, from their law."""
    noise = noise_variances(spec)
    gram = drawn_gram(spec, S, noise, draw)
    return SecondMoments(
        release=_RELEASE,
        mechanism=spec.mechanism,
        columns=tuple(column.name for column in spec.columns),
        gram=tuple(map(tuple, gram.tolist())),
        noise_variance=tuple(noise.tolist()),
        rows=mechanism_of(spec).rows(spec),
        n=spec.n,
    )


def exact_moments(spec: ReleaseSpec, blocks: Sequence[Integers], sampler: Sampler) -> SecondMoments:
    """The moments of one release of this spec, made as agents and coordinator make it."""
    mechanism, uploads = mechanism_of(spec), []
    for plan, rows in zip(plan_blocks(spec), blocks, strict=True):
        accumulator = mechanism.accumulator(spec, rows.shape[1])
        accumulator.add(np.arange(len(rows)), rows)
        mixed = accumulator.total()
        uploads.append(mixed + sampler(plan.sigma, mixed.size).reshape(mixed.shape))
    return second_moments(spec, _RELEASE, assemble(spec, uploads))
