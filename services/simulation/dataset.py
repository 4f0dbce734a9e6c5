"""The data of a simulation: rows, the members that hold their attributes, and the target.

The built-in cohort has made-up patients of three clinics, with public bounds that clinics would agree on; nothing in it
comes from a person. The length of a stay is linear in the other attributes, with R^2 about 0.5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from commingle.services.tables import Table
from commingle.shared.documents.schema import (
    Attribute,
    BinaryAttribute,
    CategoricalAttribute,
    NumericAttribute,
    words_for_missing,
)
from commingle.shared.documents.subject_ids import IdRules

TRAINING_SHARE = 0.8
TARGET = "length_of_stay"
SUBJECTS = 20_000

_REGISTRATION = (
    NumericAttribute(name="age", lower=20, upper=90, unit="years"),
    BinaryAttribute(name="sex", levels=("female", "male")),
    CategoricalAttribute(name="smoker", levels=("never", "former", "current")),
    CategoricalAttribute(name="education", levels=("secondary", "primary", "university")),
)
_LABORATORY = (
    NumericAttribute(name="glucose", lower=60, upper=200, unit="mg/dL"),
    NumericAttribute(name="hba1c", lower=4, upper=9, unit="%"),
    NumericAttribute(name="cholesterol", lower=120, upper=280, unit="mg/dL"),
    NumericAttribute(name="haemoglobin", lower=9, upper=18, unit="g/dL"),
    NumericAttribute(name="creatinine", lower=0.4, upper=2.0, unit="mg/dL"),
)
_WARD = (
    NumericAttribute(name="systolic_pressure", lower=90, upper=180, unit="mmHg"),
    BinaryAttribute(name="emergency", levels=("no", "yes")),
    NumericAttribute(name=TARGET, lower=0, upper=20, unit="days"),
)
_CLINICS = {"registration": _REGISTRATION, "laboratory": _LABORATORY, "ward": _WARD}


@dataclass(frozen=True, slots=True, eq=False)
class StudyTable:
    """Rows that fit their attributes.

    Attributes:
        table: the columns of `attributes`, of people whom every party holds, in values that the attributes encode
            (`services.tables`).
        parties: the attributes of each; no attribute is at two of them.
        target: a numeric or binary attribute.
        notices: how this table was made of the one given, a sentence each.
        id_rules: the rules of ids, here and at the parties; None for ids as they are.
        others: by party, its own columns of the people whom it holds and not all do; only for keyed data sets.
    """

    table: Table
    parties: Mapping[str, tuple[Attribute, ...]]
    target: str
    notices: tuple[str, ...] = ()
    id_rules: IdRules | None = None
    others: Mapping[str, Table] = field(default_factory=dict)

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        return tuple(attribute for own in self.parties.values() for attribute in own)

    @property
    def features(self) -> tuple[Attribute, ...]:
        return tuple(attribute for attribute in self.attributes if attribute.name != self.target)


def missing_words(attributes: Sequence[Attribute], table: Table) -> list[str]:
    """Sentences on the cells that these columns of a table lack."""
    counted = ((a, table.columns[a.name].null_count) for a in attributes)
    return [words for attribute, count in counted if (words := words_for_missing(attribute, count)) is not None]


def training_size(n: int) -> int:
    """How many of n rows the parties get."""
    return int(TRAINING_SHARE * n)


def holdout(n: int, *, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row numbers for training, and of the other 20 % for evaluation."""
    shuffled = np.random.default_rng(seed).permutation(n)
    return shuffled[: training_size(n)], shuffled[training_size(n) :]


def cohort(*, seed: int, subjects: int = SUBJECTS) -> StudyTable:
    """That many made-up patients; the same seed gives the same ones."""
    draw = np.random.default_rng(seed)
    age = draw.uniform(20, 90, subjects)
    years = (age - 55) / 20
    male = draw.binomial(1, 0.5, subjects).astype(bool)
    smoker = _levels(draw, ("never", "former", "current"), (0.45, 0.3, 0.25), subjects)
    education = _levels(draw, ("secondary", "primary", "university"), (0.4, 0.3, 0.3), subjects)
    sugar = draw.normal(size=subjects)
    glucose = 125 + 8 * years + 26 * (0.6 * sugar + 0.8 * draw.normal(size=subjects))
    hba1c = 6.3 + 0.3 * years + 0.9 * (0.6 * sugar + 0.8 * draw.normal(size=subjects))
    cholesterol = 200 + 8 * years + 32 * draw.normal(size=subjects)
    haemoglobin = 13.2 + 0.8 * male + 1.8 * draw.normal(size=subjects)
    creatinine = 1.1 + 0.1 * male + 0.1 * years + 0.28 * draw.normal(size=subjects)
    pressure = 133 + 6 * years + 17 * draw.normal(size=subjects)
    emergency = draw.binomial(1, 0.4, subjects).astype(bool)
    stay = (
        8.5
        + 1.4 * years
        + 0.3 * male
        + 0.5 * (smoker == "former")
        + 1.2 * (smoker == "current")
        - 0.4 * (education == "university")
        + 0.5 * (education == "primary")
        + 0.030 * (glucose - 125)
        + 0.60 * (hba1c - 6.3)
        + 0.004 * (cholesterol - 200)
        - 0.45 * (haemoglobin - 13.6)
        + 1.8 * (creatinine - 1.15)
        + 0.018 * (pressure - 133)
        + 1.6 * emergency
        + 2.6 * draw.normal(size=subjects)
    )
    columns = {
        "age": np.round(age),
        "sex": np.where(male, "male", "female"),
        "smoker": smoker,
        "education": education,
        "glucose": np.round(glucose),
        "hba1c": np.round(hba1c, 1),
        "cholesterol": np.round(cholesterol),
        "haemoglobin": np.round(haemoglobin, 1),
        "creatinine": np.round(creatinine, 2),
        "systolic_pressure": np.round(pressure),
        "emergency": np.where(emergency, "yes", "no"),
        TARGET: np.round(np.maximum(stay, 0), 1),
    }
    identifiers = np.char.add("patient-", np.char.zfill(np.arange(1, subjects + 1).astype(str), 6))
    cells = {name: pa.array(values) for name, values in columns.items()}
    return StudyTable(Table(identifiers, cells), _CLINICS, TARGET)


def _levels(draw: np.random.Generator, levels: Sequence[str], shares: Sequence[float], count: int) -> NDArray[np.str_]:
    return np.array(levels)[draw.choice(len(levels), size=count, p=shares)]
