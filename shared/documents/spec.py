"""The release spec: everything public that defines a release, and its purpose (docs/design/documents.md#spec).

The SHA-256 digest of the spec's bytes, as the proposer signed them, is the release's id, and all other documents refer
to it. The proposer's own words state the purpose: they are optional, signed with the rest, and shown to the people who
decide.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, NewType, Self

from pydantic import AwareDatetime, Field, StringConstraints, ValidationInfo, model_validator

from commingle.shared.documents.dsse import VerifyingKey
from commingle.shared.documents.model import LEFT_OUT, Checks, Count, Digest, Hex32, Name, Version, WireModel
from commingle.shared.documents.schema import (
    Attribute,
    AttributeName,
    CategoricalAttribute,
    EncodedColumn,
    as_registered,
    parts_of,
    weight_problems,
)
from commingle.shared.documents.subject_ids import EXACT, IdRules
from commingle.shared.documents.subsets import contradiction
from commingle.shared.documents.terms import (
    Bounds,
    CrossWeight,
    FirstStageShare,
    MechanismName,
    PartyTerms,
    Projection,
    Terms,
)
from commingle.shared.dp.calibration import Calibration
from commingle.shared.errors import SpecError
from commingle.shared.text import hidden_text, quoted

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
    """The question that a study asks, if it is short enough; else its title."""
    purpose = str(stated.get("purpose") or "")
    return purpose if 0 < len(purpose) <= _LONGEST_HEADLINE else study


class StatedPurpose(WireModel):
    """The purpose of a study and of its spec. Only the people who decide check it.

    Attributes:
        purpose: the question, and what will be done with the answer.
        requester: who asks, by name and institution.
        ethics_reference: of the vote or the approval it is done under.
        target: the attribute that is to be explained: numeric or binary. Forecasts are about it.
        features: the attributes that explain the target; left out, all others.
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
        values = ((name, getattr(self, name)) for name in StatedPurpose.model_fields)
        return {name: value for name, value in values if value is not None}

    @property
    def stated_sentences(self) -> tuple[str, ...]:
        """The statements as people are shown them: somebody else's words in quotation marks."""
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
        advice = "name no target for tables and odds ratios, or do not cut it"
        found.append(f"the target {asked.target!r} has more than two levels: {advice}")
    target = None if asked.target is None else known.get(asked.target)
    if target is not None and target.missing == "midpoint":
        found.append(f"missing cells of the target {asked.target!r} would count as its midpoint; mark them instead")
    if asked.target in features or len(set(features)) < len(features):
        found.append("a feature is named twice, or is the target")
    return found


ReleaseId = NewType("ReleaseId", str)
INTERCEPT = "(intercept)"
MAX_PARTIES = 64
MAX_COLUMNS = 256
_SHOWN_FIELDS = 5


Sketch = Annotated[int, Field(ge=2, le=1_000_000)]
Buckets = Annotated[int, Field(ge=2, lt=1 << 31)]


class PartySpec(PartyTerms):
    """One member's share of a release: its terms with nothing open, and the keys of the member.

    Attributes:
        signing_key: its Ed25519 public key, hex.
        sealing_key: its X25519 public key, hex.
        dataset: the name under which its agent registered the data.
    """

    signing_key: Hex32
    sealing_key: Hex32
    dataset: Name
    attributes: Annotated[tuple[Attribute, ...], Field(min_length=1, max_length=MAX_COLUMNS)]
    row_norm: Annotated[float, Field(gt=0, le=1e3)] | None = None
    first_stage_share: Annotated[FirstStageShare | None, LEFT_OUT] = None
    cross_weight: Annotated[CrossWeight | None, LEFT_OUT] = None

    @property
    def verifying_key(self) -> VerifyingKey:
        return VerifyingKey.from_hex(self.signing_key)


class Asked(StatedPurpose):
    """The common part of a study and its spec, about all members together.

    Attributes:
        study: its title.
        mechanism: rmgm, dgm or moments.
        k: rows of the published matrix, if the mechanism has such a number; the planner chooses it if a study leaves it
            out.
        projection: if the mechanism has a k, rows are mixed with this: `sparse` is one signed entry for each person;
            left out, k signs.
        calibration: how noise follows from epsilon and delta.
        epsilon: of each member's block; for keyed data sets about presence (`add_remove`), for listed ones about values
            (`replace_one`).
        delta: of each member's block, all of it.
        id_rules: every member writes each column that identifies a person by these; left out, one column, exactly.
        n: people, as many as every member has; for keyed people about as many as a member holds, for planning.
        bounds: where members exchange, whether each proves that it keeps its rows within bounds and follows the
            exchange, or is trusted to.
        buckets: where keyed rows are exchanged, how many buckets there are for them.
    """

    study: Words
    mechanism: MechanismName
    k: int | None = None
    projection: Annotated[Projection | None, LEFT_OUT] = None
    calibration: Annotated[Calibration, Field(strict=False)] = Calibration.ANALYTIC
    epsilon: float
    delta: float
    id_rules: Annotated[IdRules | None, LEFT_OUT] = None
    n: Annotated[Count, Field(ge=2)]
    bounds: Annotated[Bounds | None, LEFT_OUT] = None
    buckets: Annotated[Buckets | None, LEFT_OUT] = None

    def terms_of(self, parties: tuple[PartyTerms, ...], **others: Any) -> Terms:  # noqa: ANN401 - fields of Terms
        """Its terms, with these parties and these changes."""
        said = {name: getattr(self, name) for name in _TERMS}
        return Terms(parties=parties, **{**said, **others})


_TERMS = ("mechanism", "k", "projection", "calibration", "epsilon", "delta", "n", "bounds", "buckets")


class ReleaseSpec(Asked):
    """A proposed release.

    It is parsed without its mechanism: the checks it is validated with (`release.checks`) find what the mechanism
    refuses. Where members exchange and it does not say so, bounds are trusted.
    """

    largest_bytes: ClassVar[int] = 2 << 20  # the whitening of 255 columns is most of it
    type: Literal["commingle/release-spec"] = "commingle/release-spec"
    version: Version = 1
    created: AwareDatetime
    expires: AwareDatetime
    k: Sketch | None = None
    calibration: Annotated[Calibration, Field(strict=False)] = Calibration.ZCDP  # what leaving it out has always meant
    fraction_bits: Literal[12, 13, 14, 15] = 15
    seed: Hex32
    alignment: Literal["exact", "keyed"] = "exact"
    parties: Annotated[tuple[PartySpec, ...], Field(min_length=1, max_length=MAX_PARTIES)]
    proposer: Digest

    @classmethod
    def signed_as(cls) -> str:
        return "spec"

    @model_validator(mode="after")
    def _makes_sense(self, info: ValidationInfo) -> Self:
        if problems := _problems(self, info.context):
            raise ValueError("; ".join(problems))
        return self

    @property
    def intercept(self) -> tuple[EncodedColumn, ...]:
        """The published column without noise, if any: keyed data sets have presences, whose sum is noisy."""
        return () if self.keyed else (EncodedColumn(INTERCEPT, INTERCEPT, 0.0, 1.0),)

    @property
    def matrix_columns(self) -> tuple[EncodedColumn, ...]:
        """All published columns in order, the intercept first."""
        return (*self.intercept, *(column for party in self.parties for column in party.block_columns))

    @property
    def keyed(self) -> bool:
        """Whether people are keyed; they are at all members or at none."""
        return self.parties[0].keyed

    @property
    def terms(self) -> Terms:
        """Its terms; only what its mechanism adds is still open."""
        bounds, bits = self.bounds or "trusted", self.fraction_bits
        return self.terms_of(self.parties, seed=self.seed, bounds=bounds, fraction_bits=bits)

    @property
    def stated_sentences(self) -> tuple[str, ...]:
        """Its purpose, and the people whom members contribute if that is not everybody."""
        return (*super().stated_sentences, *self.terms.subset_words)

    @property
    def id_rules_in_force(self) -> IdRules:
        return EXACT if self.id_rules is None else self.id_rules

    def party(self, name: str) -> PartySpec:
        """Raises SpecError: the spec does not name that member."""
        for party in self.parties:
            if party.name == name:
                return party
        raise SpecError(f"{name} is not a member of this release", remedy="Check the release id.")

    def expired(self, now: datetime) -> bool:
        """From then on nobody may spend budget on it."""
        return now >= self.expires


def require_plain_text(spec: ReleaseSpec) -> None:
    """Refuse a new release whose title or names have invisible characters (`shared.text`).

    The model does not check this: older signed documents can still be read, and are shown without such characters.
    Raises SpecError: naming the fields.
    """
    if found := list(hidden_text(spec.model_dump())):
        raise SpecError(
            f"control or invisible characters in {', '.join(found[:_SHOWN_FIELDS])}",
            remedy="Write titles, names, levels and units in visible characters.",
        )


def _problems(spec: ReleaseSpec, checks: Checks | None) -> list[str]:
    found, attributes = [], spec.terms.attributes
    width = len(spec.matrix_columns)
    if spec.expires <= spec.created:
        found.append("expires must be later than created")
    if len({p.keyed for p in spec.parties}) > 1:
        return ["subjects are keyed at all members or at none"]
    if spec.keyed is not (spec.alignment == "keyed"):
        found.append("alignment is keyed where people are, and exact otherwise")
    found += [problem for party in spec.parties for problem in _map_problems(party)]
    if not spec.keyed and spec.terms.subset_words:
        found.append("where chooses among keyed people, and these are listed: leave one of the two out")
    if by := contradiction(subset for party in spec.parties for subset in party.where or ()):
        found.append(
            f"nobody is in the subsets of all members by {by!r}: choose the same people at each, "
            "or give the attributes two names if they are two things"
        )
    found += purpose_problems(spec, attributes)
    found += _duplicates("party", [p.name for p in spec.parties])
    found += _duplicates("signing key", [p.signing_key for p in spec.parties])
    found += _duplicates("attribute", [INTERCEPT, *(a.name for a in attributes)])
    found += _part_problems(spec, attributes)
    if width > MAX_COLUMNS:
        found.append(f"{width} encoded columns; at most {MAX_COLUMNS} fit one release")
    return found if checks is None else found + checks(spec)


def _map_problems(party: PartySpec) -> list[str]:
    if party.mapped_by_sums and (party.whitening is not None or party.row_norm != 1):
        return [f"the first stage of {party.name} needs a row_norm of 1 and no whitening"]
    found = weight_problems(party.name, party.weighted, party.attributes, whitened=party.whitening is not None)
    if party.whitening is None:
        return found
    columns = len(party.columns)
    if len(party.whitening.centre) != columns:
        found.append(f"the whitening of {party.name} is not for its {columns} encoded columns")
    if party.row_norm is None or party.row_norm > 1:
        # blocks are exact for entries within [-1, 1]; the matrix can bring rows to any scale
        found.append(f"the whitening of {party.name} needs a row_norm of at most 1")
    return found


def _part_problems(spec: ReleaseSpec, attributes: Iterable[Attribute]) -> list[str]:
    made = [attribute for attribute in attributes if parts_of(attribute)]
    parts = {part.name for attribute in made for part in as_registered(attribute)}
    held = Counter(name for p in spec.parties for name in {r.name for a in p.attributes for r in as_registered(a)})
    found = [f"attribute {a.name!r} is made of others, and a part of another" for a in made if a.name in parts]
    return found + [f"part {name!r} is at two members" for name in sorted(parts) if held[name] > 1]


def _duplicates(what: str, names: list[str]) -> list[str]:
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    return [f"{what} {name!r} appears twice" for name in twice]
