"""Real tables as attributes with levels: the question of each, and made-up people if a table is not at hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.harness import generator
from commingle.shared.documents.schema import Attribute, BinaryAttribute, CategoricalAttribute, NumericAttribute

Codes = NDArray[np.intp]
LABEL, TIME = "outcome", "time"
_LEAST, _MOST = 0.02, 5
"""The least share of a level, and the most levels of an attribute beside all others together."""


@dataclass(frozen=True, slots=True)
class Question:
    """A model of one table.

    Attributes:
        table: of docs/tables.md.
        outcome: its column.
        event: the text or the least number of an event; or levels in order.
        levels: columns taken as they are, with rare levels together.
        cut: columns cut at quartiles.
        family: of the model; a `poisson` outcome is a count.
        time: column of the time of a count; empty if there is none.
    """

    table: str
    outcome: str
    levels: str
    cut: str
    event: str | float | tuple[Any, ...] = ()
    family: str = "binomial"
    time: str = ""

    def read(self, data: Path) -> "Labelled":
        """The table, or made-up people if it is not at hand."""
        path = data / f"{self.table}.parquet"
        if not path.is_file():
            people = made_up(self.family)
            return replace(people, time=np.asarray(1 + people.codes[:, 0], np.float64)) if self.time else people
        levels, cut = self.levels.split(), self.cut.split()
        held = columns_of(path, [self.outcome, *levels, *cut, *self.time.split()])
        time = held[self.time].astype(np.float64) if self.time else None
        return Labelled(self.family, _outcome(held[self.outcome], self.event), codes_of(held, levels, cut), time)


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """N people: outcomes (N,), each an event, a level or a count; places of levels (N, d); times (N,) of counts."""

    family: str
    y: NDArray[np.int64]
    codes: Codes
    time: NDArray[np.float64] | None = None

    @property
    def attributes(self) -> list[Attribute]:
        counted = NumericAttribute(name=LABEL, lower=0, upper=float(self.y.max()))
        found: list[Attribute] = [_levelled(f"x{j}", int(column.max()) + 1) for j, column in enumerate(self.both.T)]
        found[0] = counted if self.family == "poisson" else found[0].model_copy(update={"name": LABEL})
        if self.time is not None:
            found.insert(1, NumericAttribute(name=TIME, lower=0, upper=float(self.time.max())))
        return found

    @property
    def both(self) -> Codes:
        return np.column_stack([self.y, self.codes])

    @property
    def design(self) -> NDArray[np.float64]:
        blocks = (np.eye(int(column.max()) + 1)[column, 1:] for column in self.codes.T)
        return np.hstack([np.ones((len(self.y), 1)), *blocks])

    def cells(self, chosen: NDArray[np.intp]) -> dict[str, list[Any]]:
        columns = [self.y, *([] if self.time is None else [self.time]), *self.codes.T]
        held = ((a, c[chosen]) for a, c in zip(self.attributes, columns, strict=True))
        return {a.name: (c if isinstance(a, NumericAttribute) else np.array(a.levels)[c]).tolist() for a, c in held}

    def as_counted(self, terms: Sequence[str]) -> "Labelled":
        """The people with levels merged as in a fit with these terms, such as `x3[other (l2, l4)]`."""
        if not any("[other (" in term for term in terms):
            return self
        columns = []
        for j, column in enumerate(self.codes.T, start=1):
            own = [term.removeprefix(f"x{j}[") for term in terms if term.startswith(f"x{j}[")]
            parts = [label.removeprefix("other (").rstrip(")]").split(", ") for label in own]
            place = {level: i for i, levels in enumerate(parts, start=1) for level in levels}
            columns.append(np.array([place.get(f"l{i}", 0) for i in range(int(column.max()) + 1)])[column])
        return replace(self, codes=np.column_stack(columns))

    def first(self, attributes: int) -> "Labelled":
        return replace(self, codes=self.codes[:, : attributes - 1])


def _levelled(name: str, size: int) -> Attribute:
    levels = tuple(f"l{i}" for i in range(size))
    if size == 2:
        return BinaryAttribute(name=name, levels=(levels[0], levels[1]))
    return CategoricalAttribute(name=name, levels=levels)


def columns_of(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    frame = pq.read_table(path, columns=list(dict.fromkeys(names))).to_pandas()
    return {name: column.to_numpy() for name, column in frame.items()}


def codes_of(held: Mapping[str, NDArray[Any]], levels: Sequence[str], cut: Sequence[str]) -> Codes:
    return np.column_stack([*(_places(held[name]) for name in levels), *(quarters(held[name]) for name in cut)])


def _outcome(values: NDArray[Any], event: str | float | tuple[Any, ...]) -> NDArray[np.int64]:
    if isinstance(event, tuple):
        places = {level: i for i, level in enumerate(event)}
        return np.array([places[value] for value in values.tolist()]) if event else values.astype(np.int64)
    return np.asarray(values == event if isinstance(event, str) else values >= event, np.int64)


def _places(values: NDArray[Any]) -> Codes:
    # the most frequent levels first, and then all others together if they are not few
    levels, at, counts = np.unique(values.astype(str), return_inverse=True, return_counts=True)
    order = np.argsort(-counts)
    kept = [i for i in order[:_MOST].tolist() if counts[i] >= _LEAST * len(values)]
    others = counts.sum() - counts[kept].sum()
    place = np.full(len(levels), len(kept) if others >= _LEAST * len(values) else len(kept) - 1)
    place[kept] = np.arange(len(kept))
    return place[at].astype(np.intp)


def quarters(values: NDArray[Any]) -> Codes:
    """The place of the quartile that each number is in; missing numbers have the highest place."""
    known = values[~np.isnan(values)]
    cuts = np.unique(np.quantile(known, [0.25, 0.5, 0.75]))
    many = [cut for cut in cuts.tolist() if np.mean(known > cut) >= _LEAST]
    return np.asarray(np.digitize(values, many, right=True), np.intp)


def made_up(family: str) -> Labelled:
    draw = generator(40)
    health = draw.normal(size=(8000, 1))
    features = np.digitize(health + draw.normal(size=(8000, 4)), [-0.8, 0.8]).astype(np.intp)
    score = features @ [0.5, 0.3, -0.2, 0.1] - 1
    if family == "poisson":
        return Labelled(family, np.minimum(draw.poisson(np.exp(score)), 8), features)
    latent = score + draw.logistic(size=8000)
    return Labelled(family, np.digitize(latent, [0.0] if family == "binomial" else [0.0, 1.5]), features)


DIABETES = Question(
    "diabetes130_raw",
    "readmitted",
    "age gender race admission_type_id discharge_disposition_id admission_source_id A1Cresult metformin insulin change "
    "diabetesMed",
    "time_in_hospital num_lab_procedures num_procedures num_medications number_outpatient number_emergency "
    "number_inpatient number_diagnoses",
    event="NO",
)
SUPPORT = Question(
    "support2_raw",
    "hospdead",
    "sex race dzgroup ca diabetes dementia",
    "age num_co scoma meanbp hrt resp temp sod",
    event=1,
)
NHANES = Question(
    "nhanes_bp",
    "smoked_100",
    "male race_eth_1 race_eth_4 married_or_partner education wave_2015",
    "age household_size income_poverty_ratio bmi height_cm systolic_bp",
    event=1,
)
BINARY = (
    DIABETES,
    SUPPORT,
    NHANES,
    Question("bike", "cnt", "season yr workingday weathersit", "hr temp hum windspeed", event=200),
    Question("insurance", "smoker", "sex region", "age bmi children", event="yes"),
    Question("gpu_sgemm", "run_mean_ms", "STRM STRN SA SB KWG KWI", "MWG NWG MDIMC NDIMC VWM VWN", event=100),
)
OTHERS = (
    replace(SUPPORT, outcome="num_co", event=(), cut="age scoma meanbp", family="poisson"),
    replace(NHANES, outcome="household_size", event=(), cut="age income_poverty_ratio bmi", family="poisson"),
    replace(
        DIABETES,
        event=("NO", ">30", "<30"),
        levels="gender race insulin change",
        cut="time_in_hospital number_inpatient number_diagnoses",
        family="ordinal",
    ),
    replace(
        NHANES,
        outcome="education",
        event=(1, 2, 3, 4, 5),
        levels="male race_eth_1 race_eth_4 married_or_partner",
        cut="age income_poverty_ratio bmi",
        family="ordinal",
    ),
)
