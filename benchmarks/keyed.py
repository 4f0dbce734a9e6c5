"""Releases over different, overlapping people: how often intervals hold, and how much R^2 is left.

Each of three parties holds a person with the same chance, the overlap, independently. The product's own code makes the
releases from encoded rows and random pseudonyms, with noise of its scale. Releases of moments have no encryption, which
changes nothing, and as many buckets as a study of proved bounds.

Coverage: N people with normal rows, ten correlated features and a label with R^2 one half; parties of 4, 4 and 3
columns; 95 % intervals for the population, which count noise and sampling, of fits that have intervals. R^2: of real
tables, on a fifth that no party got, beside the same release with listed subjects.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.coverage import SCHEMA, SIZES, TABLES, TARGET, population
from benchmarks.harness import Asked, Experiment, Report, covers, generator
from benchmarks.release_law import Array, Integers, drawn_by, of_parties, party_sizes, proposed, study_of
from benchmarks.tables import at_hand, scaled
from commingle.services.fit import PreparedMoments, fit_prepared
from commingle.shared.documents.row_maps import row_map
from commingle.shared.documents.schema import Attribute, NumericAttribute, Weighted
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import Sums
from commingle.shared.documents.study import Study
from commingle.shared.dp.fixed_point import presence, quantise
from commingle.shared.dp.noise import Sampler, rounded_gaussian
from commingle.shared.encoding import bounded_rows, encode_attribute
from commingle.shared.errors import NoOverlapError
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.mechanisms.moments.entries import block_noise, first_place, places
from commingle.shared.release.checks import closed
from commingle.shared.release.matrix import assemble, prepared_release, second_moments
from commingle.shared.release.plan import plan_blocks

OVERLAPS = (1.0, 0.9, 0.7, 0.5)
_RELEASE = "0" * 64


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


def released(spec: ReleaseSpec, parties: Sequence[Party], draw: Sampler) -> PreparedMoments:
    """A release of these tables as agents and coordinator make it, in the form that a learner reads."""
    mechanism, terms, plans = mechanism_of(spec), spec.terms, plan_blocks(spec)
    sums: dict[str, Sums] = {}
    made: list[Integers] = []
    for share, plan, held in zip(spec.parties, plans, parties, strict=True):
        rows = quantise(held.rows)
        if plan.first_stage is not None:
            sums[share.name] = tuple((plan.first_stage.sums(rows) + plan.first_stage.noise(draw)).tolist())
        applied = row_map(closed(spec), share, sums.get(share.name))
        bounded = bounded_rows(share, applied, fraction_bits=spec.fraction_bits)(rows)
        if spec.keyed:
            bounded = np.column_stack([np.full(len(rows), presence(spec.fraction_bits)), bounded])
        accumulator = mechanism.accumulator(terms, len(plan.columns))
        accumulator.add(held.names, bounded)
        made.append(accumulator.total())
    if mechanism_of(spec).interactive:
        blocks = exchanged(spec, made, [plan.sigma for plan in plans], draw)
    else:
        pairs = zip(terms.parties, plans, strict=True)
        drawn = (mechanism.noise(terms, party, sigma=plan.sigma, draw=draw) for party, plan in pairs)
        blocks = [rows + noise for rows, noise in zip(made, drawn, strict=True)]
    moments = second_moments(spec, _RELEASE, assemble(spec, blocks))
    return prepared_release(moments, spec, sums)


def exchanged(spec: ReleaseSpec, made: Sequence[Integers], sigmas: Sequence[int], draw: Sampler) -> list[Integers]:
    """The blocks at the end of an exchange of these rows; each cross block is in the columns of its first party."""
    at, first, blocks = places(spec.terms), first_place(spec.terms), []
    real = [rows.astype(np.float64) for rows in made]
    for i, (share, sigma) in enumerate(zip(spec.parties, sigmas, strict=True)):
        later = spec.parties[i + 1 :]
        block = block_noise(spec.terms, share, sigma=sigma, draw=draw, others=[p.name for p in later])
        if first:
            block[0] += made[i].sum(axis=0) << spec.fraction_bits
        for j, other in enumerate(spec.parties[i:], start=i):
            block[at[other.name]] += np.rint(real[j].T @ real[i]).astype(np.int64)
        for j, other in enumerate(later, start=i + 1):
            twice = block_noise(spec.terms, other, sigma=sigmas[j], draw=draw, others=[share.name])
            block[at[other.name]] += twice[at[share.name]].T
        blocks.append(block)
    return blocks


def study(
    attributes: Sequence[NumericAttribute],
    sizes: Sequence[int],
    *,
    mechanism: str,
    n: int,
    epsilon: float,
    keyed: bool,
    buckets: int | None = None,
    two_stages: bool = True,
) -> Study:
    subjects = "keyed" if keyed else "listed"
    asked = study_of(attributes, sizes, n, epsilon, mechanism=mechanism, subjects=subjects, buckets=buckets)
    return of_parties(asked, first_stage_share="auto" if two_stages else None)


def release_of(
    attributes: Sequence[Attribute],
    cells: Sequence[Sequence[Any]],
    sizes: Sequence[int],
    *,
    epsilon: float,
    overlap: float | None,
    draw: np.random.Generator,
    seed: bytes | None = None,
    weighted: Weighted | None = None,
) -> PreparedMoments:
    """Moments of people with these cells; without an overlap subjects are listed. The first party gets `weighted`.

    A crossed attribute has a tuple of cells, one for each part.
    """
    n, subjects = len(cells[-1]), "listed" if overlap is None else "keyed"
    asked = study_of(attributes, sizes, n, epsilon, mechanism="moments", subjects=subjects)
    first, *others = of_parties(asked, first_stage_share=None).parties
    asked = asked.model_copy(update={"parties": (first.model_copy(update={"weighted": weighted}), *others)})
    parts = [of if isinstance(of, tuple) else (of,) for of in cells]
    encoded = [encode_attribute(a, *map(pa.array, of)).exact for a, of in zip(attributes, parts, strict=True)]
    ends = np.cumsum(sizes)[:-1]
    columns = [int(part.sum()) for part in np.split(np.array([block.shape[1] for block in encoded]), ends)]
    parties = tables(np.hstack(encoded), columns, overlap, draw)
    if overlap is None:
        draw.random((len(sizes), n))  # the page's figures were drawn so
    spec = proposed(asked, seed or draw.bytes(32))
    return released(spec, parties, drawn_by(draw))


def people(n: int, draw: np.random.Generator) -> Array:
    """Encoded rows (n, 11) of the population of `benchmarks.coverage`."""
    mean, covariance, _ = population()
    return np.clip(mean + draw.normal(size=(n, len(mean))) @ np.linalg.cholesky(covariance).T, -1, 1)


@dataclass(frozen=True, slots=True)
class Setting:
    mechanism: str
    people: int
    epsilon: float
    overlap: float
    two_stages: bool = False


COVERED = tuple(
    Setting(mechanism, n, epsilon, overlap, two_stages)
    for mechanism, n, epsilon in (
        ("rmgm", 50_000, 30.0),
        *(("moments", 20_000, epsilon) for epsilon in (1.0, 3.0, 10.0)),
    )
    for two_stages in (False, True)
    for overlap in OVERLAPS
)


def covered(setting: Setting, *, releases: int) -> dict[str, float | None]:
    """How often intervals for the population hold its slopes, and how often fits have intervals."""
    draw = generator(*sha256(repr(setting).encode()).digest())
    _, _, truth = population()
    asked = study(
        SCHEMA,
        SIZES,
        mechanism=setting.mechanism,
        n=round(setting.people * setting.overlap),
        epsilon=setting.epsilon,
        keyed=True,
        two_stages=setting.two_stages,
    )
    within, warned, selected = [], 0, 0
    for _ in range(releases):
        spec = proposed(asked, draw.bytes(32))
        prepared = released(spec, tables(people(setting.people, draw), SIZES, setting.overlap, draw), rounded_gaussian)
        fit = fit_prepared(prepared, TARGET, interval_for="population")
        if np.isfinite(fit.intervals[1:, 0]).all():
            within.append(covers(fit.intervals[1:], truth))
        warned += bool(fit.warnings)
        selected += any("differ" in warning for warning in fit.warnings)
    found = np.array(within)
    return {
        "answered": len(within) / releases,
        "coverage": float(found.mean()) if within else None,
        "least": float(found.mean(axis=0).min()) if within else None,
        "warned": warned / releases,
        "selected": selected / releases,
    }


def real(values: Array, setting: Setting, *, keyed: bool, seed: int) -> float:
    """R^2 of `shrunken` on a fifth that no party got, of a table (n, p) within [0, 1] whose label is last.

    0, the R-squared of the mean, if the fit is refused.
    """
    draw = generator(seed)
    shuffled = 2 * values[draw.permutation(len(values))] - 1
    training, test = np.split(shuffled, [4 * len(values) // 5])
    guess = predicted(training, test, setting, parties=3, keyed=keyed, draw=draw)
    return 0.0 if guess is None else float(1 - np.mean((test[:, -1] - guess) ** 2) / np.var(test[:, -1]))


def predicted(
    training: Array, test: Array, setting: Setting, *, parties: int, keyed: bool, draw: np.random.Generator
) -> Array | None:
    """Labels of tested rows by `shrunken` on a two-stage release of rows (n, p) within [-1, 1], the label last.

    None if the fit is refused: noise leaves open whether parties share enough people.
    """
    attributes = [NumericAttribute(name=f"x{i}", lower=-1, upper=1) for i in range(training.shape[1])]
    sizes = party_sizes(training.shape[1], parties)
    n = round(len(training) * setting.overlap)
    asked = study(attributes, sizes, mechanism=setting.mechanism, n=n, epsilon=setting.epsilon, keyed=keyed)
    held = tables(training, sizes, setting.overlap if keyed else None, draw)
    prepared = released(proposed(asked, draw.bytes(32)), held, rounded_gaussian)
    try:
        fit = fit_prepared(prepared, attributes[-1].name, estimator="shrunken")
    except NoOverlapError:
        return None
    found = fit.predictor.of({a.name: test[:, i] for i, a in enumerate(attributes[:-1])})
    return np.asarray(found.values, np.float64)


def measure(asked: Asked) -> Report:
    settings = [s for s in COVERED if s.overlap == OVERLAPS[1] and s.epsilon != 1] if asked.quick else COVERED
    coverage = [{**asdict(s), **covered(s, releases=asked.times(2, 100))} for s in settings]
    goals: list[dict[str, Any]] = []
    for name in () if asked.quick else at_hand(asked.data, TABLES):
        values = scaled(asked.data, name)
        for mechanism in ("rmgm", "moments"):
            kinds = [("listed", 1.0), *(("keyed", overlap) for overlap in OVERLAPS)]
            for subjects, overlap in kinds:
                setting = Setting(mechanism, len(values), 1.0, overlap)
                seeds = range(asked.times(1, 20))
                found = [real(values, setting, keyed=subjects == "keyed", seed=seed) for seed in seeds]
                facts = {"table": name, "subjects": subjects, "r_squared": float(np.mean(found))}
                goals.append({**asdict(setting), **facts})
    return {"coverage": coverage, "tables": goals}


EXPERIMENT = Experiment("keyed", __doc__, measure)

if __name__ == "__main__":
    EXPERIMENT.command()
