"""Second moments of a release, drawn from their law given the private table's, instead of making the release.

rmgm: the k rows of B A + N are independent, with covariance S/k + V (S = A^T A). Each is a sum over n subjects, so for
all but tiny n they are normal, and G is Wishart of k degrees of freedom. This normality is the only approximation;
`exact_moments` makes the release itself, to compare.
dgm: G = (A + N)^T (A + N) with F^T F = S depends on N only through its part in the p-dimensional span of A and the
rest: G = (F + Z)^T (F + Z) + W, Z of p rows of noise, W Wishart of n - p degrees. This is exact.
moments: S_hat = S + noise of the variances that the mechanism states, one number for each entry on and above the
diagonal (docs/design/exchange.md#allocation).
Integer noise is drawn as continuous noise of the same variance: sigma is above 10^4 steps in all that is run here.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commingle.services.fit import PreparedMoments
from commingle.shared.documents.dsse import Fingerprint
from commingle.shared.documents.manifest import SecondMoments
from commingle.shared.documents.row_maps import first_stage_of, row_map
from commingle.shared.documents.schema import Attribute, encoded_columns
from commingle.shared.documents.spec import INTERCEPT, ReleaseSpec
from commingle.shared.documents.statements import Sums
from commingle.shared.documents.study import Study, StudyParty
from commingle.shared.dp.calibration import Calibration
from commingle.shared.dp.fixed_point import SCALE, quantise
from commingle.shared.dp.noise import Sampler
from commingle.shared.dp.two_stages import column_sums
from commingle.shared.encoding import bounded_rows
from commingle.shared.forecast.forecast import with_sketch
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.release.checks import Member, build_spec, closed
from commingle.shared.release.matrix import assemble, prepared_release, second_moments
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


def drawn_by(draw: np.random.Generator) -> Sampler:
    """Noise of a generator instead of the operating system's."""
    return lambda sigma, count: np.rint(draw.normal(0, sigma, count)).astype(np.int64)


def party_sizes(columns: int, parties: int) -> list[int]:
    return [len(part) for part in np.array_split(np.arange(columns), parties)]


def study_of(attributes: Sequence[Attribute], sizes: Sequence[int], n: int, epsilon: float, **changes: Any) -> Study:  # noqa: ANN401 - fields of a study
    """A study of listed subjects with delta 1e-5; `sizes` are the numbers of attributes of its parties."""
    ends = np.cumsum([0, *sizes]).tolist()
    parties = tuple(
        StudyParty(name=f"p{number}", dataset="d", attributes=tuple(attributes[start:end]))
        for number, (start, end) in enumerate(pairwise(ends))
    )
    facts = {"mechanism": "rmgm", "subjects": "listed", "epsilon": epsilon, "delta": 1e-5, "n": n, "parties": parties}
    return Study.model_validate({"study": "benchmark", **facts, **changes})


def of_parties(study: Study, **changes: Any) -> Study:  # noqa: ANN401 - fields of a study's party
    return study.model_copy(update={"parties": tuple(p.model_copy(update=changes) for p in study.parties)})


def proposed(study: Study, seed: bytes = bytes(32)) -> ReleaseSpec:
    """The spec that the product makes of a study, with keys that nobody holds."""
    keys = (f"{number:064x}" for number in range(1, len(study.parties) + 1))
    members = {party.name: Member(key, key) for party, key in zip(study.parties, keys, strict=True)}
    planned = with_sketch(study)
    return build_spec(planned, members=members, proposer=Fingerprint("0" * 64), seed=seed, now=_PROPOSED)


def integer_rows(spec: ReleaseSpec, encoded: Array) -> tuple[Integers, ...]:
    """Each party's integer rows of encoded values (n, columns) in [-1, 1]: fixed point, contrasts, row clipping."""
    ends = np.cumsum([len(party.block_columns) for party in spec.parties])[:-1]
    blocks = map(quantise, np.split(encoded, ends, axis=1))
    return tuple(bounded_rows(party)(block) for party, block in zip(spec.parties, blocks, strict=True))


def private_moments(blocks: Sequence[Integers]) -> Array:
    """S = A^T A, (p, p), of the parties' integer rows behind the intercept."""
    A = np.column_stack([np.ones(len(blocks[0])), *(block / SCALE for block in blocks)])
    return np.asarray(A.T @ A)


def noise_variances(spec: ReleaseSpec) -> Array:
    """V's diagonal, (p,), as the product calibrates it: 0 for the intercept, (sigma step)^2 for the rest."""
    step = mechanism_of(spec).step(spec.terms)
    return np.array([0.0, *((plan.sigma * step) ** 2 for plan in plan_blocks(spec) for _ in plan.columns)])


def drawn_moments(spec: ReleaseSpec, S: Array, draw: np.random.Generator) -> SecondMoments:
    """The moments of one release of this spec, from their law."""
    rows, noise = mechanism_of(spec).rows(spec.terms), noise_variances(spec)
    gram = (rmgm_gram if spec.mechanism == "rmgm" else dgm_gram)(S, noise, rows, draw)
    names = [c.name for c in spec.matrix_columns]
    return moments_of(spec.mechanism, names, gram, rows=rows, n=spec.n, noise=noise)


def moments_of(
    mechanism: str, names: Sequence[str], gram: Array, *, rows: int, n: int, noise: Array | None = None
) -> SecondMoments:
    """Second moments (p, p) as a release publishes them; `noise` (p,) is the variance of noise in each column."""
    return SecondMoments.model_validate(
        {
            "release": _RELEASE,
            "mechanism": mechanism,
            "columns": tuple(names),
            "gram": tuple(map(tuple, gram.tolist())),
            "noise_variance": (0.0,) * len(gram) if noise is None else tuple(noise.tolist()),
            "rows": rows,
            "n": n,
        }
    )


def exact_moments(spec: ReleaseSpec, blocks: Sequence[Integers], sampler: Sampler) -> SecondMoments:
    """The moments of one release of this spec, made as agents and coordinator make it."""
    mechanism, uploads = mechanism_of(spec), []
    for plan, rows in zip(plan_blocks(spec), blocks, strict=True):
        accumulator = mechanism.accumulator(spec.terms, rows.shape[1])
        accumulator.add(np.arange(len(rows)), rows)
        mixed = accumulator.total()
        uploads.append(mixed + sampler(plan.sigma, mixed.size).reshape(mixed.shape))
    return second_moments(spec, _RELEASE, assemble(spec, uploads))


def _stated(spec: ReleaseSpec) -> SecondMoments:
    # a `moments` release of that spec with figures of 0
    nothing = np.zeros((mechanism_of(spec).rows(spec.terms), len(spec.matrix_columns)), np.int64)
    return second_moments(spec, _RELEASE, nothing)


def _noisy(S: Array, variance: Array, draw: np.random.Generator) -> Array:
    upper = np.triu(draw.standard_normal(S.shape) * np.sqrt(variance))
    return np.asarray(S + upper + np.triu(upper, 1).T)


def entry_variance(attributes: Sequence[Attribute], sizes: Sequence[int], *, epsilon: float) -> Array:
    """Variances (p, p) of the noise in S_hat, as `moments` states them; the intercept is first, and its count is exact.

    They are of one stage and calibration `zcdp`, as on the pages that compare with former figures.
    """
    asked = study_of(attributes, sizes, 1000, epsilon, mechanism="moments", calibration=Calibration.ZCDP)
    return np.array(_stated(proposed(of_parties(asked, first_stage_share=None))).entry_variance)


def moments_release(
    S: Array, variance: Array, attributes: Sequence[Attribute], draw: np.random.Generator
) -> PreparedMoments:
    """One `moments` release of S (p, p) with that noise, as a learner reads it."""
    n = round(S[0, 0])
    names = (INTERCEPT, *(c.name for c in encoded_columns(tuple(attributes))))
    moments = moments_of("moments", names, _noisy(S, variance, draw), rows=n, n=n)
    stated = moments.model_copy(update={"entry_variance": tuple(map(tuple, variance.tolist()))})
    return PreparedMoments.of(stated, tuple(attributes))


def release(spec: ReleaseSpec, rows: Integers, draw: np.random.Generator) -> PreparedMoments:
    """One release of these rows (n, p - 1) with its first stages, as a learner reads it: maps are undone."""
    bits, A, sums = spec.fraction_bits, [np.ones((len(rows), 1))], dict[str, Sums | None]()
    ends = np.cumsum([len(party.block_columns) for party in spec.parties])[:-1]
    for party, own in zip(spec.parties, np.split(rows, ends, axis=1), strict=True):
        sums[party.name] = _noisy_sums(spec, party.name, own, draw)
        bounded = bounded_rows(party, row_map(closed(spec), party, sums[party.name]), fraction_bits=bits)
        A.append(bounded(own) / 2**bits)
    S = np.hstack(A).T @ np.hstack(A)
    if not mechanism_of(spec).interactive:
        return prepared_release(drawn_moments(spec, S, draw), spec, sums)
    nothing = _stated(spec)
    gram = tuple(map(tuple, _noisy(S, np.array(nothing.entry_variance), draw).tolist()))
    return prepared_release(nothing.model_copy(update={"gram": gram}), spec, sums)


def _noisy_sums(spec: ReleaseSpec, name: str, own: Integers, draw: np.random.Generator) -> Sums | None:
    stage = first_stage_of(closed(spec), spec.party(name))
    if stage is None:
        return None
    return tuple((column_sums(own, stage.attributes) + stage.noise(drawn_by(draw))).tolist())
