"""Releases over different, overlapping people: how often intervals hold, and how much R^2 is left.

Each of three parties holds a person with the same chance, the overlap, independently. The product's own code makes the
releases from encoded rows and random pseudonyms, with noise of its scale. Releases of moments have no encryption, which
changes nothing, and as many buckets as a study of proved bounds.

Coverage: N people with normal rows, ten correlated features and a label with R^2 one half; parties of 4, 4 and 3
columns; 95 % intervals for the population, which count noise and sampling, of fits that have intervals. R^2: of real
tables, on a fifth that no party got, beside the same release with listed subjects.
"""

from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from benchmarks.coverage import SCHEMA, SIZES, TABLES, TARGET, population
from benchmarks.harness import Asked, Experiment, Report, covers, generator
from benchmarks.release_law import Array, party_sizes, proposed, released, study_of, tables
from benchmarks.tables import at_hand, scaled
from commingle.services.fit import fit_prepared
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.terms import AUTO
from commingle.shared.dp.noise import rounded_gaussian
from commingle.shared.errors import NoOverlapError

OVERLAPS = (1.0, 0.9, 0.7, 0.5)


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
    n, share = round(setting.people * setting.overlap), AUTO if setting.two_stages else None
    facts: dict[str, Any] = {"mechanism": setting.mechanism, "subjects": "keyed"}
    asked = study_of(SCHEMA, SIZES, n, setting.epsilon, first_stage_share=share, **facts)
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
    subjects = "keyed" if keyed else "listed"
    asked = study_of(attributes, sizes, n, setting.epsilon, mechanism=setting.mechanism, subjects=subjects)
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
