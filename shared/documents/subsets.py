"""The people whom a member contributes: those in public subsets, each defined by levels of one attribute."""

from collections import defaultdict
from collections.abc import Iterable
from itertools import accumulate
from math import inf
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from commingle.shared.documents.model import WireModel
from commingle.shared.documents.schema import Level, Levelled


class Subset(WireModel):
    """People who have one of some levels of an attribute. A person without the attribute is not among them.

    Attributes:
        attribute: as the agent has it, or intervals of a number that it has; it need not be released.
        levels: those of the people who count.
    """

    attribute: Levelled
    levels: Annotated[tuple[Level, ...], Field(min_length=1, max_length=255, fail_fast=True)]

    @model_validator(mode="after")
    def _chooses(self) -> Self:
        name, known = self.attribute.name, self.attribute.levels
        if strange := [level for level in self.levels if level not in known]:
            raise ValueError(f"attribute {name!r} has no level {strange[0]!r}, but {' | '.join(known)}")
        if len(set(self.levels)) < len(self.levels):
            raise ValueError(f"a level of {name!r} is named twice")
        if len(self.levels) == len(known) and self.attribute.missing == "error":
            raise ValueError(f"all levels of {name!r} are named, so everybody is in it: leave it out")
        if self.attribute.missing == "midpoint":
            raise ValueError(
                f'missing cells of {name!r} would count as a level; its member registers it with "missing": "indicator"'
            )
        return self

    @property
    def chooses_by(self) -> str:
        """The name of its line: subsets by one number share a line even if their cuts differ."""
        cut = self.attribute.intervals
        return self.attribute.model_dump_json() if cut is None else f"{self.attribute.name} ({cut.unit or ''})"

    @property
    def pieces(self) -> tuple[tuple[float, float], ...]:
        """Its levels as intervals (begin, end) of one line; the outer levels of a number reach to infinity."""
        cut, at = self.attribute.intervals, map(self.attribute.levels.index, self.levels)
        ends = (-inf, *cut.cuts, inf) if cut is not None else range(len(self.attribute.levels) + 1)
        return tuple((ends[i], ends[i + 1]) for i in at)

    def __str__(self) -> str:
        return f"{self.attribute.name} is {' or '.join(self.levels)}"


def require_people(subsets: tuple[Subset, ...] | None) -> tuple[Subset, ...] | None:
    """These subsets, if somebody can be in all. Raises ValueError: two share no level of an attribute."""
    if by := contradiction(subsets or ()):
        raise ValueError(f"nobody is in two subsets by {by!r}: name all its levels in one")
    return subsets


def contradiction(subsets: Iterable[Subset]) -> str | None:
    """The attribute by which nobody can be in all of these, whatever its cuts are in each; None if there is none."""
    alike = defaultdict[str, list[Subset]](list)
    for subset in subsets:
        alike[subset.chooses_by].append(subset)
    for several in alike.values():
        # one walk along the line: at a point what ends there is left before what begins there is entered
        steps = sorted(step for one in several for low, high in one.pieces for step in ((low, 1), (high, -1)))
        if max(accumulate(step for _, step in steps)) < len(several):
            return several[0].attribute.name
    return None


Subsets = Annotated[tuple[Subset, ...] | None, Field(min_length=1, max_length=8), AfterValidator(require_people)]


def subset_words(party: str, subsets: Iterable[Subset] | None) -> str | None:
    """The people whom a member's share is about, as a sentence; None if it is all that it holds."""
    said = " and whose ".join(map(str, subsets or ()))
    return f"Only those of {party}'s people count whose {said}." if said else None
