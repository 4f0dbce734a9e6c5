"""Whom a member contributes: those of its people who are in public subsets, each told by levels of one attribute."""

from collections.abc import Iterable
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from commingle.shared.documents.model import WireModel
from commingle.shared.documents.schema import Level, Levelled


class Subset(WireModel):
    """People who have one of some levels of an attribute. Who lacks the attribute is not among them.

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

    def __str__(self) -> str:
        return f"{self.attribute.name} is {' or '.join(self.levels)}"


def require_people(subsets: tuple[Subset, ...] | None) -> tuple[Subset, ...] | None:
    """These subsets, if somebody can be in all. Raises ValueError: two share no level of an attribute."""
    levels = dict[str, set[str]]()
    for subset in subsets or ():
        own = levels.setdefault(subset.attribute.model_dump_json(), set(subset.attribute.levels))
        own &= set(subset.levels)
        if not own:
            raise ValueError(f"nobody is in two subsets by {subset.attribute.name!r}: name all its levels in one")
    return subsets


Subsets = Annotated[tuple[Subset, ...] | None, Field(min_length=1, max_length=8), AfterValidator(require_people)]


def subset_words(party: str, subsets: Iterable[Subset] | None) -> str | None:
    """Whom a member's share speaks of, as a sentence; None where that is everybody whom it holds."""
    said = " and whose ".join(map(str, subsets or ()))
    return f"Only those of {party}'s people count whose {said}." if said else None
