"""The question of the demo and of the README's picture, which three owners of data are asked.

The people are made up: smoking, age and sugar go with readmission and death by the logits here. `Answers` sets the
answers of one release beside those of all rows in one place, as tables and as a picture.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

from commingle.services.analysis import Survival
from commingle.services.client.release import Release
from commingle.services.plotting import INK, Intervals
from commingle.shared.documents.schema import Attribute, BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.documents.study import Crossed, CutNumber
from commingle.shared.runtime.console import figures

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
_HELD = 0.9  # share of all people at each owner, drawn for itself
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
"""The attributes that the study asks of each owner."""


def _number(asked: CutNumber) -> NumericAttribute:
    return NumericAttribute(name=asked.name, lower=asked.lower, upper=asked.upper, unit=asked.unit)


SCHEMAS: Mapping[str, tuple[Attribute, ...]] = {
    "registry": (_number(_AGE), _SEX, _SMOKER),
    "laboratory": (_number(_SUGAR),),
    "hospital": (_EMERGENCY, _READMITTED, _number(_FOLLOWED), _DIED),
}
"""The attributes that each owner registers."""


def everybody(*, seed: int, subjects: int = SUBJECTS) -> dict[str, NDArray[Any]]:
    """All columns of all made-up people; no owner has all of them."""
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
    """Each owner's columns of its own people, in an order of its own."""
    draw, count = np.random.default_rng(seed), len(people["subject"])
    found = {}
    for owner, attributes in SCHEMAS.items():
        rows = draw.permutation(count)[: round(_HELD * count)]
        found[owner] = {name: people[name][rows] for name in ("subject", *(a.name for a in attributes))}
    return found


def parties() -> list[dict[str, Any]]:
    return [{"name": owner, "dataset": "main", "attributes": asked} for owner, asked in ASKED.items()]


def kaplan_meier(months: NDArray[np.float64], died: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The times of deaths, and the share alive after each, of rows in one place."""
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


Array = NDArray[np.float64]
People = Mapping[str, NDArray[Any]]
GROUP, ABOUT = "smoker", ("age", "sex", "hba1c", "emergency", "readmitted")


@dataclass(frozen=True, slots=True, eq=False)
class Beside:
    """Figures of a release for L lines and G groups, and those of all rows.

    Attributes:
        form: the form of a figure for `format`.
        values, truth: (L, G).
        intervals: (L, G, 2), of 95 %.
    """

    title: str
    lines: tuple[str, ...]
    groups: tuple[str, ...]
    form: str
    values: Array
    intervals: Array
    truth: Array

    @property
    def held(self) -> NDArray[np.bool_]:
        low, high = np.moveaxis(self.intervals, 2, 0)
        return np.asarray((low <= self.truth) & (self.truth <= high))

    def show(self, console: Console) -> None:
        """Print a line for each, yellow if the interval misses the figure of all rows; show intervals for one group."""
        holding = f"{self.held.sum()} of {self.held.size} 95 % intervals hold what all rows say"
        console.print(Text(f"\n{self.title}: {holding}", style="bold cyan"))
        intervals = ("interval",) if len(self.groups) == 1 else ()
        table = figures("", *(head for group in self.groups for head in (group, *intervals, "all rows")))
        for line, *row in zip(self.lines, self.values, self.intervals, self.truth, self.held, strict=True):
            cells = list[Text]()
            for value, ends, truth, held in zip(*row, strict=True):
                low, high = (format(end, self.form) for end in ends)
                said = (format(value, self.form), *([f"{low} to {high}"] if intervals else []))
                cells += [*(Text(words, style="" if held else "yellow") for words in said)]
                cells.append(Text(format(truth, self.form), style="dim"))
            table.add_row(Text(line), *cells)
        console.print(table)

    def picture(self, lines: Sequence[int]) -> Intervals:
        chosen = np.asarray(lines)
        return Intervals(
            title=self.title,
            axis="% of the group" if "%" in self.form else "",
            labels=[self.lines[i] for i in lines],
            values=self.values[chosen],
            intervals=self.intervals[chosen],
            of="shares" if "%" in self.form else "ratios",
            groups=self.groups if len(self.groups) > 1 else ("",),
            truth=self.truth[chosen],
        )


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """The people, the odds of readmission and the survivors, by smoking."""

    first: Beside
    ratios: Beside
    alive: Beside
    curves: Survival
    deaths: Mapping[str, tuple[Array, Array]]
    """The times of deaths and the share alive after each, of all rows, by group."""

    @classmethod
    def of(cls, release: Release, people: People) -> "Answers":
        curves = release.survival("outcome", by=GROUP)
        rows = {group: people[GROUP] == group for group in curves.groups}
        deaths = {
            group: kaplan_meier(people["followup"][own], people["died"][own] == "yes") for group, own in rows.items()
        }
        K = len(curves.ends) - 1
        ends = curves.ends[:K]
        alive = Beside(
            title=f"Alive, by {curves.unit}",
            lines=tuple(f"{end:g}" for end in ends),
            groups=curves.groups,
            form=".1%",
            values=curves.survival[:, :K].T,
            intervals=np.moveaxis(curves.survival_intervals[:, :K], 0, 1),
            truth=np.array([[share[months < end][-1] for months, share in deaths.values()] for end in ends]),
        )
        return cls(_first(release, people), _ratios(release, people), alive, curves, deaths)

    def show(self, console: Console) -> None:
        for each in (self.first, self.ratios, self.alive):
            each.show(console)

    def draw(self, path: Path, **options: Any) -> None:  # noqa: ANN401 - of a file
        """Write the picture, with the last level of each attribute. Raises ImportError: there is no matplotlib."""
        from matplotlib.figure import Figure  # noqa: PLC0415 - optional, and slow to import

        figure = Figure(figsize=(12.0, 3.9), layout="constrained", facecolor="white")
        left, middle, right = figure.subplots(1, 3)
        last = {line.partition(" = ")[0]: i for i, line in enumerate(self.first.lines)}
        for ax, picture in (
            (left, self.first.picture([*last.values()])),
            (middle, self.ratios.picture(range(len(self.ratios.lines)))),
        ):
            picture.draw(ax)
            if (legend := ax.get_legend()) is not None:
                legend.remove()
        self.curves.plot(right)
        for months, share in self.deaths.values():
            within = months <= self.curves.ends[-2]
            right.step(months[within], 100 * share[within], where="post", color=INK, linewidth=0.8, linestyle="--")
        right.set_title(self.alive.title, fontsize=11, color=INK)
        right.set_ylim(bottom=60)
        figure.supxlabel(
            "bars and bands: 95 % intervals · triangles and dashed lines: all rows in one place", fontsize=9
        )
        figure.savefig(path, **options)


def _first(release: Release, people: People) -> Beside:
    found = release.describe(by=GROUP, attributes=ABOUT)
    rows = [people[GROUP] == group for group in found.groups]
    truth = [[_has(people, line)[own].mean() for own in rows] for line in found.lines]
    return Beside(
        "Who is in the data, by smoking",
        found.lines,
        found.groups,
        ".1%",
        found.values,
        found.intervals,
        np.array(truth),
    )


def _ratios(release: Release, people: People) -> Beside:
    found = release.glm(FORMULA)
    terms = found.terms[1:]
    X = np.column_stack([_has(people, term.removesuffix("]").replace("[", " = ", 1)) for term in terms]).astype(float)
    truth = np.exp(logistic(X, people["readmitted"] == "yes"))
    intervals = found.ratio_intervals[1:, None]
    about = "Odds ratios of readmission, adjusted for each other"
    return Beside(about, terms, ("release",), ".2f", found.ratios[1:, None], intervals, truth[:, None])


def _has(people: People, line: str) -> NDArray[np.bool_]:
    name, _, level = line.partition(" = ")
    [attribute] = (a for own in ASKED.values() for a in own if a.name == name)
    cells = people[name]
    if isinstance(attribute, NumericAttribute) or attribute.intervals is None:
        return np.asarray(cells == level)
    return np.asarray(np.digitize(cells, attribute.intervals.cuts) == attribute.levels.index(level))
