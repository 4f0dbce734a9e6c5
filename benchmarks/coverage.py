"""How often 95 % intervals of `measurement_error` hold their coefficients, and how often fits warn.

It draws releases from the law of their second moments (release_law.py), and also makes releases of one real table by
the product's own code. Synthetic tables have normal rows, ten correlated features and a label with R^2 about one half,
and three parties of 4, 4 and 3 columns. Every release has a new table, so that one release serves the intervals for the
table and those for the population. Real tables have three parties, planned k, and intervals for the table.

Coverage is the share of slopes in their intervals: `mean` over slopes, `least` of one slope. If some fits of a setting
warn, `silent` is the coverage of the others.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from benchmarks.harness import Asked, Experiment, Report, covers, generator
from benchmarks.release_law import (
    Array,
    dgm_gram,
    drawn_moments,
    integer_rows,
    made,
    moments_of,
    party_sizes,
    private_moments,
    proposed,
    rmgm_gram,
    study_of,
    tables,
    wishart,
)
from benchmarks.tables import at_hand, scaled
from commingle.services.fit import Fit, PreparedMoments, fit_prepared
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.spec import INTERCEPT
from commingle.shared.dp.noise import Sampler, rounded_gaussian

Mechanism = Literal["rmgm", "dgm"]
IntervalFor = Literal["table", "population"]
SIZES = (4, 4, 3)
FEATURES = 10
SCHEMA = tuple(NumericAttribute(name=f"x{i}", lower=-1, upper=1) for i in range(FEATURES + 1))
NAMES = (INTERCEPT, *(a.name for a in SCHEMA))
TARGET = NAMES[-1]
TABLES = ("bike_hour", "gpu_sgemm", "diabetes130", "nhanes_bp")
_REAL: tuple[tuple[Mechanism, float], ...] = (("rmgm", 3.0), ("rmgm", 10.0), ("rmgm", 100.0), ("dgm", 100.0))
_CHECKED = "bike_hour", ("rmgm", 100.0)  # the release that is also made for real


@dataclass(frozen=True, slots=True)
class Setting:
    """n subjects, and noise of `multiplier` times a party's sensitivity 2 sqrt(d_j); k is None for dgm."""

    n: int
    k: int | None
    multiplier: float


# multipliers 1.39 and 3.73: the exact Gaussian at epsilon 3 and 1, delta 1e-5; dgm needs weaker privacy for any signal
SETTINGS = (
    *(Setting(n, k, 1.39) for n, k in ((50_000, 100), (200_000, 100), (200_000, 300), (10**6, 300), (10**6, 1_000))),
    *(Setting(n, k, 3.73) for n, k in ((200_000, 300), (10**6, 300), (10**6, 1_000), (10**6, 3_000))),
    *(Setting(50_000, None, multiplier) for multiplier in (0.05, 0.1, 0.2)),
    *(Setting(10**6, None, multiplier) for multiplier in (0.1, 0.3, 1.0)),
)


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    fit: Fit
    truth: Array

    @property
    def held(self) -> Array:
        """(q,) 1 for each slope that is in its interval."""
        return covers(self.fit.intervals[1:], self.truth).astype(np.float64)


def summary(trials: Sequence[Trial]) -> dict[str, Any]:
    """Coverage over all trials and over those that do not warn, and the share that warns."""
    within = np.array([trial.held for trial in trials])
    silent = np.array([not trial.fit.warnings for trial in trials])
    return {
        "releases": len(trials),
        "mean": float(within.mean()),
        "least": float(within.mean(axis=0).min()),
        "warned": float(1 - silent.mean()),
        "silent_mean": float(within[silent].mean()) if silent.any() else None,
        "silent_least": float(within[silent].mean(axis=0).min()) if silent.any() else None,
    }


def population() -> tuple[Array, Array, Array]:
    """Mean (11,) and covariance (11, 11) of a row, and the slopes (10,): correlations 0.5^|i-j|, variance 0.1."""
    places = np.arange(FEATURES)
    x = 0.1 * 0.5 ** np.abs(places[:, None] - places)
    b = np.array([0.5, -0.4, 0.3, 0.0, 0.2, -0.2, 0.1, 0.4, -0.3, 0.0])
    xy = x @ b
    return np.full(FEATURES + 1, 0.2), np.block([[x, xy[:, None]], [xy[None], np.array([[2 * b @ xy]])]]), b


def table_moments(n: int, draw: np.random.Generator) -> Array:
    """S, (12, 12), of n normal rows behind the intercept."""
    mean, covariance, _ = population()
    centre = mean + np.linalg.cholesky(covariance) @ draw.normal(size=len(mean)) / np.sqrt(n)
    scatter = wishart(covariance, n - 1, draw) + n * np.outer(centre, centre)
    edge = n * centre
    return np.block([[np.array([[float(n)]]), edge[None]], [edge[:, None], scatter]])


def slopes(S: Array) -> Array:
    """Least squares of the last column of S on the others, without the intercept's coefficient."""
    return np.asarray(np.linalg.solve(S[:-1, :-1], S[:-1, -1])[1:], np.float64)


def released(setting: Setting, S: Array, draw: np.random.Generator) -> PreparedMoments:
    noise = np.array([0.0, *(4 * size * setting.multiplier**2 for size in SIZES for _ in range(size))])
    rows = setting.k or setting.n
    gram = (rmgm_gram if setting.k else dgm_gram)(S, noise, rows, draw)
    mechanism = "rmgm" if setting.k else "dgm"
    return PreparedMoments.of(moments_of(mechanism, NAMES, gram, rows=rows, n=setting.n, noise=noise), SCHEMA)


def synthetic(setting: Setting, *, releases: int) -> dict[IntervalFor, list[Trial]]:
    draw, (_, _, truth) = generator(setting.n, setting.k or 0, round(100 * setting.multiplier)), population()
    found: dict[IntervalFor, list[Trial]] = {"table": [], "population": []}
    for _ in range(releases):
        S = table_moments(setting.n, draw)
        prepared = released(setting, S, draw)
        wanted: dict[IntervalFor, Array] = {"table": slopes(S), "population": truth}
        for interval_for, of in wanted.items():
            fit = fit_prepared(prepared, TARGET, interval_for=interval_for)
            found[interval_for].append(Trial(fit, of))
    return found


def real(
    values: Array, *, mechanism: Mechanism, epsilon: float, releases: int, sampler: Sampler | None = None
) -> tuple[list[Trial], int]:
    """Fits of that many releases of one table (n, p) within [0, 1], and the number of published rows.

    With a sampler the product's code makes the releases; without one they are drawn from their law.
    """
    p = values.shape[1]
    encoded, sizes = 2 * values - 1, party_sizes(p, 3)
    attributes = [NumericAttribute(name=f"x{i}" if i < p - 1 else "y", lower=0, upper=1) for i in range(p)]
    spec = proposed(study_of(attributes, sizes, len(values), epsilon, first_stage_share=None, mechanism=mechanism))
    S, draw = private_moments(integer_rows(spec, encoded)), generator(len(values), round(epsilon))
    held, trials = tables(encoded, sizes, None, draw), []
    for _ in range(releases):
        seeded = spec.model_copy(update={"seed": draw.bytes(32).hex()}) if sampler else spec  # as a study would have
        moments = made(seeded, held, sampler)[0] if sampler else drawn_moments(spec, S, draw)
        fit = fit_prepared(PreparedMoments.of(moments, spec.terms.attributes), "y", interval_for="table")
        trials.append(Trial(fit, slopes(S)))
    return trials, moments.rows


def measure(asked: Asked) -> Report:
    releases = asked.times(20, 2_000)
    results: list[dict[str, Any]] = []
    for setting in SETTINGS[::4] if asked.quick else SETTINGS:
        for interval_for, trials in synthetic(setting, releases=releases).items():
            results.append({"table": "synthetic", **asdict(setting), "for": interval_for, **summary(trials)})
    for name in at_hand(asked.data, TABLES):
        values = scaled(asked.data, name)
        for mechanism, epsilon in _REAL:
            for sampler in (None, rounded_gaussian) if (name, (mechanism, epsilon)) == _CHECKED else (None,):
                count = min(releases, 400) if sampler else releases
                trials, rows = real(values, mechanism=mechanism, epsilon=epsilon, releases=count, sampler=sampler)
                facts = {"n": len(values), "k": rows if mechanism == "rmgm" else None, "epsilon": epsilon}
                results.append(
                    {"table": name, **facts, "exact": sampler is not None, "for": "table", **summary(trials)}
                )
    return {"results": results}


EXPERIMENT = Experiment("coverage", __doc__, measure)

if __name__ == "__main__":
    EXPERIMENT.command()
