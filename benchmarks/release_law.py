"""Releases for measurements: made as the product makes them, or as second moments drawn from their law.

The law is that given S = A^T A of the private table.
rmgm: the k rows of B A + N are independent, with covariance S/k + V. Each is a sum over n subjects, so for all but tiny
n they are normal, and G is Wishart of k degrees of freedom. This normality is the only approximation.
dgm: G = (A + N)^T (A + N) with F^T F = S depends on N only through its part in the p-dimensional span of A and the
rest: G = (F + Z)^T (F + Z) + W, Z of p rows of noise, W Wishart of n - p degrees. This is exact.
moments: S_hat = S + noise of the variances that the mechanism states, one number for each entry on and above the
diagonal (docs/design/exchange.md#allocation).
Integer noise is drawn as continuous noise of the same variance: sigma is above 10^4 steps in all that is run here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from commingle.services.fit import PreparedMoments
from commingle.shared.documents.dsse import Fingerprint
from commingle.shared.documents.manifest import SecondMoments
from commingle.shared.documents.row_maps import row_map
from commingle.shared.documents.schema import Attribute, Weighted, encoded_columns
from commingle.shared.documents.spec import INTERCEPT, PartySpec, ReleaseSpec
from commingle.shared.documents.statements import Sums
from commingle.shared.documents.study import Study, StudyParty
from commingle.shared.documents.terms import AUTO, AskedShare
from commingle.shared.dp.calibration import Calibration
from commingle.shared.dp.fixed_point import SCALE, presence, quantise
from commingle.shared.dp.noise import Sampler
from commingle.shared.encoding import bounded_rows, cells_for, encode_attribute
from commingle.shared.forecast.forecast import with_sketch
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.mechanisms.moments.entries import block_noise, first_place, places
from commingle.shared.release.checks import Member, build_spec, closed
from commingle.shared.release.matrix import assemble, prepared_release, second_moments
from commingle.shared.release.plan import BlockPlan, plan_blocks

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


def study_of(
    attributes: Sequence[Attribute],
    sizes: Sequence[int],
    n: int,
    epsilon: float,
    *,
    first_stage_share: AskedShare = AUTO,
    row_norm: float | None = None,
    **changes: Any,  # noqa: ANN401 - fields of a study
) -> Study:
    """A study of listed subjects with delta 1e-5; `sizes` are the numbers of attributes of its parties."""
    ends, of_each = np.cumsum([0, *sizes]).tolist(), {"first_stage_share": first_stage_share, "row_norm": row_norm}
    parties = tuple(
        StudyParty.model_validate({"name": f"p{i}", "dataset": "d", "attributes": tuple(attributes[a:b]), **of_each})
        for i, (a, b) in enumerate(pairwise(ends))
    )
    facts = {"mechanism": "rmgm", "subjects": "listed", "epsilon": epsilon, "delta": 1e-5, "n": n, "parties": parties}
    return Study.model_validate({"study": "benchmark", **facts, **changes})


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
    if mechanism_of(spec).interactive:
        nothing = _stated(spec)
        noisy = _noisy(S, np.array(nothing.entry_variance), draw)
        return nothing.model_copy(update={"gram": tuple(map(tuple, noisy.tolist()))})
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


@dataclass(frozen=True, slots=True, eq=False)
class Party:
    """A party's pseudonyms (n, 32), or ranks (n,) if subjects are listed, and its encoded rows (n, d)."""

    names: NDArray[Any]
    rows: Array


def tables(encoded: Array, sizes: Sequence[int], overlap: float | None, draw: np.random.Generator) -> list[Party]:
    """The parties' tables of everybody's encoded rows (N, p); subjects are listed without an overlap."""
    n, parts = len(encoded), np.split(np.arange(encoded.shape[1]), np.cumsum(sizes)[:-1])
    if overlap is None:
        return [Party(np.arange(n), encoded[:, columns]) for columns in parts]
    pseudonyms = np.frombuffer(draw.bytes(32 * n), np.uint8).reshape(-1, 32)
    held = (np.flatnonzero(draw.random(n) < overlap) for _ in parts)
    return [Party(pseudonyms[own], encoded[np.ix_(own, columns)]) for own, columns in zip(held, parts, strict=True)]


def made(spec: ReleaseSpec, parties: Sequence[Party], draw: Sampler) -> tuple[SecondMoments, dict[str, Sums | None]]:
    """The moments of one release, made as agents and coordinator make it, and the sums of its first stages."""
    mechanism, terms, plans = mechanism_of(spec), spec.terms, plan_blocks(spec)
    sums: dict[str, Sums | None] = {}
    blocks: list[Integers] = []
    for share, plan, held in zip(spec.parties, plans, parties, strict=True):
        sums[share.name], bounded = _staged(spec, share, plan, quantise(held.rows), draw)
        if spec.keyed:
            bounded = np.column_stack([np.full(len(bounded), presence(spec.fraction_bits)), bounded])
        accumulator = mechanism.accumulator(terms, len(plan.columns))
        accumulator.add(held.names, bounded)
        blocks.append(accumulator.total())
    if mechanism.interactive:
        blocks = exchanged(spec, blocks, [plan.sigma for plan in plans], draw)
    else:
        pairs = zip(terms.parties, plans, blocks, strict=True)
        blocks = [rows + mechanism.noise(terms, party, sigma=plan.sigma, draw=draw) for party, plan, rows in pairs]
    return second_moments(spec, _RELEASE, assemble(spec, blocks)), sums


def released(spec: ReleaseSpec, parties: Sequence[Party], draw: Sampler) -> PreparedMoments:
    """A release of these tables in the form that a learner reads."""
    moments, sums = made(spec, parties, draw)
    return prepared_release(moments, spec, sums)


def exchanged(spec: ReleaseSpec, rows: Sequence[Integers], sigmas: Sequence[int], draw: Sampler) -> list[Integers]:
    """The blocks at the end of an exchange of these rows; each cross block is in the columns of its first party."""
    at, first, blocks = places(spec.terms), first_place(spec.terms), []
    real = [own.astype(np.float64) for own in rows]
    for i, (share, sigma) in enumerate(zip(spec.parties, sigmas, strict=True)):
        later = spec.parties[i + 1 :]
        block = block_noise(spec.terms, share, sigma=sigma, draw=draw, others=[p.name for p in later])
        if first:
            block[0] += rows[i].sum(axis=0) << spec.fraction_bits
        for j, other in enumerate(spec.parties[i:], start=i):
            block[at[other.name]] += np.rint(real[j].T @ real[i]).astype(np.int64)
        for j, other in enumerate(later, start=i + 1):
            twice = block_noise(spec.terms, other, sigma=sigmas[j], draw=draw, others=[share.name])
            block[at[other.name]] += twice[at[share.name]].T
        blocks.append(block)
    return blocks


def release_of(
    attributes: Sequence[Attribute],
    sizes: Sequence[int],
    cells: Mapping[str, Sequence[Any]],
    *,
    epsilon: float,
    overlap: float | None,
    draw: np.random.Generator,
    seed: bytes | None = None,
    noise: Sampler | None = None,
    weighted: Weighted | None = None,
) -> PreparedMoments:
    """A release of moments of people with these cells, a column for each attribute or part of one.

    Subjects are listed without an overlap. Draws who is whom, and the seed and the noise that are not given.
    """
    columns = {name: pa.array(list(values)) for name, values in cells.items()}
    n, subjects = len(next(iter(columns.values()))), "listed" if overlap is None else "keyed"
    asked = study_of(attributes, sizes, n, epsilon, first_stage_share=None, mechanism="moments", subjects=subjects)
    if weighted is not None:
        heavy = (weighted if weighted.attribute in {a.name for a in p.attributes} else None for p in asked.parties)
        shares = (p.model_copy(update={"weighted": of}) for p, of in zip(asked.parties, heavy, strict=True))
        asked = asked.model_copy(update={"parties": tuple(shares)})
    blocks = [
        np.hstack([encode_attribute(a, *cells_for(a, columns)).exact for a in party.attributes])
        for party in asked.parties
    ]
    parties = tables(np.hstack(blocks), [block.shape[1] for block in blocks], overlap, draw)
    if overlap is None:
        draw.random((len(sizes), n))  # the pages' figures were drawn so
    return released(proposed(asked, seed or draw.bytes(32)), parties, noise or drawn_by(draw))


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
    asked = study_of(
        attributes, sizes, 1000, epsilon, first_stage_share=None, mechanism="moments", calibration=Calibration.ZCDP
    )
    return np.array(_stated(proposed(asked)).entry_variance)


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
    A, sums = [np.ones((len(rows), 1))], dict[str, Sums | None]()
    ends = np.cumsum([len(party.block_columns) for party in spec.parties])[:-1]
    for party, plan, own in zip(spec.parties, plan_blocks(spec), np.split(rows, ends, axis=1), strict=True):
        sums[party.name], bounded = _staged(spec, party, plan, own, drawn_by(draw))
        A.append(bounded / 2**spec.fraction_bits)
    S = np.hstack(A).T @ np.hstack(A)
    return prepared_release(drawn_moments(spec, S, draw), spec, sums)


def _staged(
    spec: ReleaseSpec, party: PartySpec, plan: BlockPlan, rows: Integers, draw: Sampler
) -> tuple[Sums | None, Integers]:
    # the noisy sums of a party's first stage, and its rows with the map that they give
    stage, sums = plan.first_stage, None
    if stage is not None:
        sums = tuple((stage.sums(rows) + stage.noise(draw)).tolist())
    return sums, bounded_rows(party, row_map(closed(spec), party, sums), fraction_bits=spec.fraction_bits)(rows)
