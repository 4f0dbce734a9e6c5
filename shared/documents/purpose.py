"""What a study is for, in its proposer's words: all of it optional, signed with the rest, shown to those who decide."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from commingle.shared.documents.model import LEFT_OUT, Digest, WireModel
from commingle.shared.documents.schema import Attribute, AttributeName, CategoricalAttribute
from commingle.shared.text import quoted

MAX_FEATURES = 255
_MAX_ATTACHMENTS, _LONGEST_HEADLINE = 16, 160
_SHOWN_NAMES = 20
_PLAIN = r"^[^\x00-\x1f\x7f]+$"
Words = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=_PLAIN)]
Paragraph = Annotated[str, StringConstraints(min_length=1, max_length=2000, pattern=_PLAIN)]


class Attachment(WireModel):
    """A file that belongs to a study and travels by other ways: a protocol, a vote. Its SHA-256 says which.

    Attributes:
        name: of the file.
        sha256: of its bytes, hex.
    """

    name: Words
    sha256: Digest


def headline_of(study: str, stated: Mapping[str, Any]) -> str:
    """The question that a study asks, where one is said that is short enough; else its title."""
    purpose = str(stated.get("purpose") or "")
    return purpose if 0 < len(purpose) <= _LONGEST_HEADLINE else study


class StatedPurpose(WireModel):
    """The part of a study and of its spec that says what they are for. Nobody checks it but the people who decide.

    Attributes:
        purpose: the question, and what will be done with the answer.
        requester: who asks, by name and institution.
        ethics_reference: of the vote or the approval it is done under.
        target: the attribute that is to be explained: numeric or binary. Forecasts are about it.
        features: by which; without them by all others.
        attachments: files that belong to it.
    """

    purpose: Annotated[Paragraph | None, LEFT_OUT] = None
    requester: Annotated[Words | None, LEFT_OUT] = None
    ethics_reference: Annotated[Words | None, LEFT_OUT] = None
    target: Annotated[AttributeName | None, LEFT_OUT] = None
    features: Annotated[tuple[AttributeName, ...] | None, Field(min_length=1, max_length=MAX_FEATURES), LEFT_OUT] = None
    attachments: Annotated[
        tuple[Attachment, ...] | None, Field(min_length=1, max_length=_MAX_ATTACHMENTS), LEFT_OUT
    ] = None

    @property
    def stated(self) -> dict[str, Any]:
        """What is said of all this, by field."""
        values = ((name, getattr(self, name)) for name in StatedPurpose.model_fields)
        return {name: value for name, value in values if value is not None}

    @property
    def stated_sentences(self) -> tuple[str, ...]:
        """The same as people are shown it, somebody else's words in quotation marks."""
        said = [] if self.purpose is None else [f"Purpose: {quoted(self.purpose, longest=2000)}"]
        if self.requester is not None:
            said.append(f"Requested by {quoted(self.requester)}")
        if self.ethics_reference is not None:
            said.append(f"Ethics reference: {quoted(self.ethics_reference)}")
        if self.target is not None:
            by = "all others" if self.features is None else ", ".join(self.features)
            said.append(f"To explain {self.target} by {by}")
        said += [f"Attachment: {quoted(each.name)}, SHA-256 {each.sha256}" for each in self.attachments or ()]
        return tuple(said)


def purpose_problems(asked: StatedPurpose, attributes: Iterable[Attribute]) -> list[str]:
    """What makes target and features impossible for a release of these attributes, a sentence each."""
    known = {attribute.name: attribute for attribute in attributes}
    features = asked.features or ()
    there = f"there are {', '.join([*known][:_SHOWN_NAMES])}{', …' if len(known) > _SHOWN_NAMES else ''}"
    named = (asked.target, *features)
    found = [f"there is no attribute {name!r} ({there})" for name in named if name not in {None, *known}]
    if asked.target is None and features:
        found.append("features need a target")
    if asked.target is not None and isinstance(known.get(asked.target), CategoricalAttribute):
        found.append(f"the target {asked.target!r} has more than two levels")
    target = None if asked.target is None else known.get(asked.target)
    if target is not None and target.missing == "midpoint":
        found.append(f"missing cells of the target {asked.target!r} would count as its midpoint; mark them instead")
    if asked.target in features or len(set(features)) < len(features):
        found.append("a feature is named twice, or is the target")
    return found
