"""What one release of the story answers, beside what all rows in one place say: as tables, and as a picture."""

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
from commingle.services.simulation import story
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.runtime.console import figures

Array = NDArray[np.float64]
People = Mapping[str, NDArray[Any]]
GROUP, ABOUT = "smoker", ("age", "sex", "hba1c", "emergency", "readmitted")


@dataclass(frozen=True, slots=True, eq=False)
class Beside:
    """Figures of a release for L lines and G groups, and what all rows say.

    Attributes:
        form: of a figure, as `format` takes it.
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
        """A line for each, yellow where an interval does not hold what all rows say; one group has its intervals."""
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
    """Who is in the data, what goes with readmission, and who is alive, each by smoking."""

    first: Beside
    ratios: Beside
    alive: Beside
    curves: Survival
    deaths: Mapping[str, tuple[Array, Array]]
    """Of all rows, by group: when somebody died, and the share alive after that."""

    @classmethod
    def of(cls, release: Release, people: People) -> "Answers":
        curves = release.survival("outcome", by=GROUP)
        rows = {group: people[GROUP] == group for group in curves.groups}
        deaths = {
            group: story.kaplan_meier(people["followup"][own], people["died"][own] == "yes")
            for group, own in rows.items()
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
        """Write the picture; of who is in the data each attribute's last level. Raises ImportError: no matplotlib."""
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
    found = release.glm(story.FORMULA)
    terms = found.terms[1:]
    X = np.column_stack([_has(people, term.removesuffix("]").replace("[", " = ", 1)) for term in terms]).astype(float)
    truth = np.exp(story.logistic(X, people["readmitted"] == "yes"))
    intervals = found.ratio_intervals[1:, None]
    about = "Odds ratios of readmission, adjusted for each other"
    return Beside(about, terms, ("release",), ".2f", found.ratios[1:, None], intervals, truth[:, None])


def _has(people: People, line: str) -> NDArray[np.bool_]:
    """Who has the level of `attribute = level`."""
    name, _, level = line.partition(" = ")
    [attribute] = (a for own in story.ASKED.values() for a in own if a.name == name)
    cells = people[name]
    if isinstance(attribute, NumericAttribute) or attribute.intervals is None:
        return np.asarray(cells == level)
    return np.asarray(np.digitize(cells, attribute.intervals.cuts) == attribute.levels.index(level))
