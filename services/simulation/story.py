"""A question that three owners of data are asked, as the demo in a browser and the README's picture tell it.

The people are made up. Smoking, age and sugar go with readmission and with death by logits that are written here.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.schema import Attribute, BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.documents.study import Crossed, CutNumber

QUESTION = "Are smokers readmitted more often, once age and HbA1c are accounted for?"
STUDY: Mapping[str, Any] = {
    "study": "Readmission 2026",
    "purpose": QUESTION,
    "requester": "Institute of Health Services Research (made up)",
    "ethics_reference": "EA1/123/26 (made up)",
    "target": "readmitted",
    "features": ("smoker", "age", "hba1c", "emergency"),
}
FORMULA = "readmitted ~ smoker + age + hba1c + emergency"
SUBJECTS = 10_000
_HELD = 0.9  # of all people, by each owner, drawn by itself
_MONTHS = 60
_AGE = CutNumber(name="age", lower=20, upper=90, unit="years", cuts=(40, 60, 75))
_SUGAR = CutNumber(name="hba1c", lower=4, upper=12, unit="%", cuts=(5.7, 6.5))
_FOLLOWED = CutNumber(name="followup", lower=0, upper=_MONTHS, unit="months", cuts="every 12")
_DIED = BinaryAttribute(name="died", levels=("no", "yes"))
_SEX = BinaryAttribute(name="sex", levels=("female", "male"))
_SMOKER = CategoricalAttribute(name="smoker", levels=("never", "former", "current"))
_EMERGENCY, _READMITTED = (BinaryAttribute(name=name, levels=("no", "yes")) for name in ("emergency", "readmitted"))

ASKED: Mapping[str, tuple[Attribute, ...]] = {
    "registry": (_AGE.as_levels, _SEX, _SMOKER),
    "laboratory": (_SUGAR.as_levels,),
    "hospital": (_EMERGENCY, _READMITTED, Crossed(name="outcome", cross=(_FOLLOWED.as_levels, _DIED)).as_levels),
}
"""By owner, what the study asks."""


def _number(asked: CutNumber) -> NumericAttribute:
    return NumericAttribute(name=asked.name, lower=asked.lower, upper=asked.upper, unit=asked.unit)


SCHEMAS: Mapping[str, tuple[Attribute, ...]] = {
    "registry": (_number(_AGE), _SEX, _SMOKER),
    "laboratory": (_number(_SUGAR),),
    "hospital": (_EMERGENCY, _READMITTED, _number(_FOLLOWED), _DIED),
}
"""By owner, what it registers."""


def everybody(*, seed: int, subjects: int = SUBJECTS) -> dict[str, NDArray[Any]]:
    """All columns of all made-up people, who exist nowhere at one place."""
    draw = np.random.default_rng(seed)
    age = draw.uniform(20, 90, subjects)
    smoker = draw.choice(3, subjects, p=(0.5, 0.28, 0.22))
    sugar = np.clip(5.5 + 0.012 * (age - 55) + draw.gamma(1.5, 0.5, subjects), 4, 12)
    emergency = draw.binomial(1, 0.4, subjects).astype(bool)
    smoking = np.array([0.0, 0.2, 0.55])[smoker]
    logit = -2.2 + smoking + 0.018 * (age - 55) + 0.15 * (sugar - 6) + 0.6 * emergency
    readmitted = draw.random(subjects) < 1 / (1 + np.exp(-logit))
    death = draw.exponential(1 / (0.004 * np.exp(1.1 * smoking + 0.035 * (age - 55))))
    left = draw.uniform(24, 2 * _MONTHS, subjects)
    yes = np.array(["no", "yes"])
    return {
        "subject": np.char.add("patient-", np.char.zfill(np.arange(subjects).astype(str), 6)),
        "age": np.round(age),
        "sex": np.array(["female", "male"])[draw.choice(2, subjects)],
        "smoker": np.array(_SMOKER.levels)[smoker],
        "hba1c": np.round(sugar, 1),
        "emergency": yes[emergency.astype(int)],
        "readmitted": yes[readmitted.astype(int)],
        "followup": np.round(np.minimum(np.minimum(death, left), _MONTHS), 1),
        "died": yes[(death <= np.minimum(left, _MONTHS)).astype(int)],
    }


def tables(people: Mapping[str, NDArray[Any]], *, seed: int) -> dict[str, dict[str, NDArray[Any]]]:
    """What each owner holds: its columns of the people whom it has, in an order of its own."""
    draw, count = np.random.default_rng(seed), len(people["subject"])
    found = {}
    for owner, attributes in SCHEMAS.items():
        rows = draw.permutation(count)[: round(_HELD * count)]
        found[owner] = {name: people[name][rows] for name in ("subject", *(a.name for a in attributes))}
    return found


def parties() -> list[dict[str, Any]]:
    return [{"name": owner, "dataset": "main", "attributes": asked} for owner, asked in ASKED.items()]


def kaplan_meier(months: NDArray[np.float64], died: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[Any]]:
    """When somebody died, and the share alive after that, of rows in one place."""
    times = np.unique(months[died])
    at_risk = np.array([(months >= t).sum() for t in times])
    return times, np.cumprod(1 - np.array([(died & (months == t)).sum() for t in times]) / at_risk)


def logistic(x: NDArray[np.float64], y: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(p,) log odds ratios of an event, (n,), on columns, (n, p): Newton's steps b + (X' W X)^-1 X' (y - p)."""
    X = np.column_stack([np.ones(len(x)), x])
    b = np.zeros(X.shape[1])
    for _ in range(8):
        p = 1 / (1 + np.exp(-X @ b))
        b += np.linalg.solve((X * (p * (1 - p))[:, None]).T @ X, X.T @ (y - p))
    return b[1:]
