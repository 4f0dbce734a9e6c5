"""Survival of one release beside `lifelines` on the rows: how often curves and hazard ratios of the people are held.

Tables are support2_raw, and two of the package `lifelines` from an environment that has it (--lifelines PYTHON);
without these, it makes people up. A trial draws n rows of a table with replacement, and three members release them as
`moments` of keyed subjects: each member holds each person with the same chance, the overlap, independently. Intervals
are for the population, the whole table. Curves, by the levels of another member's feature, compare with the
Kaplan-Meier curves of all rows at the ends of intervals. Hazard ratios compare with the same method on all rows without
noise, which is what they estimate, and so do those of single intervals if a release gives them. Beside it stands Cox's
model of all rows with exact times and the same levels. *Quiet* terms are those that no warning names. The last feature
is a rare exposure, of one person in a hundred, that goes with nothing; *rare marked* is how often a release marks its
ratio or gives none.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Asked, Experiment, Report, covers, generator, means
from benchmarks.labelled import Codes, Labelled, codes_of, columns_of
from benchmarks.peers import by_peer
from benchmarks.release_law import Array, party_sizes, release_of
from commingle.services.analysis import survival
from commingle.services.fit import PreparedMoments
from commingle.services.models import HazardRatios, hazard_ratios
from commingle.shared.documents.schema import BinaryAttribute, CategoricalAttribute
from commingle.shared.documents.study import Crossed, CutNumber

N, OVERLAP, EPSILONS, WITHOUT = 10_000, 0.9, (1.0, 3.0), 1e5
"""At the last epsilon noise is far below one person."""
OUTCOME, RARE = "end", 0.01
_PARTIES = 3


@dataclass(frozen=True, slots=True)
class Question:
    """The time until an event in one table.

    Attributes:
        cuts: of time; curves end at the last one.
        levels, cut: columns of features, as `labelled.Question` has them; curves are by the last one of `levels`.
    """

    table: str
    time: str
    event: str
    cuts: tuple[float, ...]
    levels: str
    cut: str

    @property
    def columns(self) -> list[str]:
        return [self.time, self.event, *self.levels.split(), *self.cut.split()]

    def read(self, data: Path, python: str | None, draw: np.random.Generator) -> "Followed | None":
        """The table with a rare exposure, or None if it is not at hand."""
        path, held = data / f"{self.table}.parquet", dict[str, NDArray[Any]]()
        if path.is_file():
            held = columns_of(path, self.columns)
        elif python is not None:
            rows = by_peer(f"lifelines-{self.table}", python, {"columns": self.columns})
            held = {name: np.array(column) for name, column in zip(self.columns, rows, strict=True)}
        if not held:
            return None
        codes = codes_of(held, self.levels.split(), self.cut.split())
        times, events = held[self.time].astype(float), held[self.event].astype(bool)
        return Followed(times, events, with_rare(codes, draw), self.cuts, len(self.levels.split()) - 1)


@dataclass(frozen=True, slots=True, eq=False)
class Followed:
    """N people: when each was last seen, with the event or not; places of levels (N, d); the feature of the curves."""

    times: Array
    events: NDArray[np.bool_]
    codes: Codes
    cuts: tuple[float, ...]
    by: int

    @property
    def labelled(self) -> Labelled:
        return Labelled("binomial", self.events.astype(np.int64), self.codes)

    @property
    def outcome(self) -> CategoricalAttribute:
        upper = float(max(self.times.max(), self.cuts[-1] + 1))
        time = CutNumber(name="time", lower=0, upper=upper, cuts=self.cuts).as_levels
        return Crossed(name=OUTCOME, cross=(time, BinaryAttribute(name="came", levels=("no", "yes")))).as_levels

    def release(self, chosen: NDArray[np.intp], draw: np.random.Generator, **asked: Any) -> PreparedMoments:  # noqa: ANN401
        people = self.labelled
        times, came = self.times[chosen].tolist(), np.where(self.events[chosen], "yes", "no").tolist()
        attributes, cells = [self.outcome, *people.attributes[1:]], people.cells(chosen) | {"time": times, "came": came}
        return release_of(attributes, party_sizes(len(attributes), _PARTIES), cells, draw=draw, **asked)

    def ratios(self, prepared: PreparedMoments) -> HazardRatios:
        return hazard_ratios(prepared, OUTCOME, [a.name for a in self.labelled.attributes[1:]])


QUESTIONS = (
    Question("support2_raw", "d_time", "death", (30, 90, 180, 365, 730), "sex diabetes ca", "age num_co meanbp"),
    Question("ACTG175", "days", "cens", (240, 480, 720, 960), "gender race symptom drugs arms", "age cd40"),
    Question("gbsg2", "time", "cens", (365, 730, 1095, 1460, 1825), "menostat tgrade horTh", "age pnodes"),
)


def with_rare(codes: Codes, draw: np.random.Generator) -> Codes:
    return np.column_stack([codes, draw.random(len(codes)) < RARE]).astype(np.intp)


def made_up(draw: np.random.Generator) -> Followed:
    """Proportional hazards; some leave without the event."""
    health = draw.normal(size=(8000, 1))
    codes = np.digitize(health + draw.normal(size=(8000, 3)), [-0.8, 0.8]).astype(np.intp)
    event, left = draw.exponential(40 / np.exp(codes @ [0.4, 0.2, -0.3])), draw.uniform(0, 80, 8000)
    return Followed(np.minimum(event, left), event < left, with_rare(codes, draw), (6, 12, 24, 36), 1)


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """Figures of all rows: the method's ratios, and curves and ratios of `lifelines`, or else the method's curves."""

    ratios: HazardRatios
    curves: Array
    cox: Array | None

    @classmethod
    def of(cls, people: Followed, python: str | None, draw: np.random.Generator) -> "Truth":
        everybody = np.arange(len(people.times))
        often = np.tile(everybody, -(-N // len(everybody)))  # of as many people, the prior says as little
        prepared = people.release(often, draw, epsilon=WITHOUT, overlap=None)
        if python is None:
            found = survival(prepared, OUTCOME, by=f"x{people.by + 1}")
            return cls(people.ratios(prepared), found.survival[:, :-1], None)
        # the end of an interval is not in it
        ends = np.nextafter(people.cuts, 0).tolist()
        given = {"times": people.times.tolist(), "events": people.events.tolist(), "ends": ends}
        given |= {"x": people.labelled.design[:, 1:].tolist(), "groups": people.codes[:, people.by].tolist()}
        cox, *curves = by_peer("lifelines", python, given)
        return cls(people.ratios(prepared), np.array(curves), np.array(cox))


def _held(intervals: Array, truth: Array) -> Array:
    # 1 or 0, and NaN where there is no interval or no truth
    return np.where(np.isnan(intervals[..., 0]) | np.isnan(truth), np.nan, covers(intervals, truth))


def trial(people: Followed, truth: Truth, epsilon: float, draw: np.random.Generator) -> dict[str, float]:
    """Figures of one release; NaN where it has none."""
    chosen = draw.integers(0, len(people.times), N)
    prepared = people.release(chosen, draw, epsilon=epsilon, overlap=OVERLAP)
    curves, found = survival(prepared, OUTCOME, by=f"x{people.by + 1}"), people.ratios(prepared)
    if found.terms != truth.ratios.terms:
        raise ValueError(f"levels count as one: {found.terms}")
    said, H = " ".join(found.warnings), len(found.intervals)
    quiet = np.array([term not in said for term in found.terms])
    within = _held(found.ratio_intervals, truth.ratios.ratios)
    single = _held(found.interval_ratio_intervals, truth.ratios.interval_ratios[:, :H])
    figures = {
        "bands": np.nanmean(_held(curves.survival_intervals[:, :-1], truth.curves)),
        "band width": np.nanmean(np.diff(curves.survival_intervals[:, :-1])),
        "ratios": np.nanmean(within[:-1]),
        "quiet ratios": np.nanmean(within[:-1][quiet[:-1]]),
        "of intervals": np.nan if np.isnan(single).all() else np.nanmean(single[:-1]),
        "standard error": np.nanmean(found.standard_errors[:-1]),
        "change found": found.p_value < 0.05,
        "share of quiet": quiet[:-1].mean(),
        "rare held": within[-1],
        "rare marked": not quiet[-1],
    }
    if truth.cox is not None:
        cox = _held(found.ratio_intervals, np.exp(truth.cox))
        figures["ratios of Cox"] = np.nanmean(cox[:-1])
    return {name: float(value) for name, value in figures.items()}


def measure(asked: Asked) -> Report:
    python, times = asked.given["lifelines"], asked.times(1, 60)
    questions = ((q.table, q.read(asked.data, python, generator(80, i))) for i, q in enumerate(QUESTIONS))
    tables = [(name, people) for name, people in questions if people is not None]
    results, differences = [], []
    for number, (name, people) in enumerate(tables or [("made-up", made_up(generator(81)))]):
        truth = Truth.of(people, python, generator(82, number))
        about = {"table": name, "people": len(people.times), "events": int(people.events.sum())}
        if truth.cox is not None:
            differences.append(about | _beside_cox(truth.ratios, truth.cox))
        for epsilon in EPSILONS[: 1 if asked.quick else None]:
            trials = [trial(people, truth, epsilon, generator(83, number, t)) for t in range(times)]
            results.append({"table": name, "n": N, "epsilon": epsilon, "releases": times, **means(trials)})
    return {"overlap": OVERLAP, "results": results, "differences": differences}


def _beside_cox(ours: HazardRatios, cox: Array) -> Report:
    # log ratios of the method without noise less Cox's, without the rare exposure, and their p of change
    apart = (ours.coefficients - cox)[:-1]
    terms = [
        {"term": t, "ratio": float(r), "cox": float(np.exp(c)), "p of change": float(p)}
        for t, r, c, p in zip(ours.terms[:-1], ours.ratios, cox, ours.change_p_values, strict=False)
    ]
    return {"rms": float(np.sqrt(np.mean(apart**2))), "largest": float(np.abs(apart).max()), "terms": terms}


OPTIONS = (click.Option(["--lifelines"], help="Python of an environment that has the package."),)
EXPERIMENT = Experiment("survival", __doc__, measure, options=OPTIONS)

if __name__ == "__main__":
    EXPERIMENT.command()
