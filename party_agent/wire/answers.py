"""What the local API answers: models that `views` builds, OpenAPI shows, and commands, pages and `PartyClient` read."""

from enum import StrEnum
from typing import Any, Literal, TypeAlias

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from commingle.party_agent.wire.owner_words import cell_words, miscounted
from commingle.shared.documents.schema import Attribute
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.wire import examples_beside, shown_by

ARROW, CSV, JSON_LINES = "application/vnd.apache.arrow.stream", "text/csv", "application/x-ndjson"
"""How rows may be sent."""
ForecastState: TypeAlias = Literal["computed", "not_yet", "too_costly", "failed"]
DecisionName: TypeAlias = Literal["waiting", "approved", "rejected"]
EXAMPLES = examples_beside(__file__)
"""Examples of answers and requests, by the name of the model or the media type."""


def _optional(description: str) -> Any:  # noqa: ANN401 - as `Field`
    return Field(None, exclude_if=lambda value: value is None, description=description)


class Shown(BaseModel):
    """A response body or a part of one. A reader ignores fields that a newer agent adds."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        json_schema_extra=shown_by(EXAMPLES, additionalProperties=False),  # described as it is served
    )


class Health(Shown):
    """How the process is."""

    status: str = Field(description="`ok`, or the code of what is wrong.")


class ConsortiumView(Shown):
    """A consortium that this member belongs to."""

    name: str = Field(description="this member's name for it.")
    coordinator: str = Field(description="its coordinator's address.")
    fingerprint: str = Field(description="the fingerprint of the coordinator's pinned key.")
    trouble: str | None = Field(description="the last failure to reach it, with a remedy; null while it answers.")


class StatusView(Shown):
    """Who this agent is and how it is."""

    name: str = Field(description="the member's name, as its consortia know it.")
    fingerprint: str = Field(description="the fingerprint of the key it signs with.")
    consortia: tuple[ConsortiumView, ...] = Field(description="the consortia it belongs to.")
    running: bool = Field(description="whether the agent's loop runs; false if a command answers in its own process.")
    trouble: str | None = Field(description="what keeps it from its work, with a remedy; null while nothing does.")


class DatasetView(Shown):
    """A data set that its owner declared. The operator, and a system that pushed the rows, see counts of them."""

    name: str = Field(description="the data set's name, as studies ask for it.")
    source: str = Field(description="the file of the rows, or that a query gives them, or that they are pushed.")
    subject_id: str | tuple[str, ...] = Field(
        description="the column that identifies a person, or several that do so together."
    )
    id_rules: tuple[str, ...] | None = _optional("the rule by which each of them is written; absent if exactly.")
    subjects: str = Field(
        description='"keyed" if who is in it is private, "listed" if all members hold the same people.'
    )
    unit: str = Field(description="the unit of its releases, regressions and charges: add_remove or replace_one.")
    people: str = Field(description="the group of its people; caps add up what all data sets of a group lose.")
    attributes: tuple[Attribute, ...] = Field(description="the columns it offers, with their public bounds or levels.")
    derived: tuple[str, ...] | None = _optional("how the columns that its source lacks are made; absent if none is.")
    n: int | None = _optional("the number of people; 0 if the rows have not been read.")
    ids_changed: int | None = _optional("how many ids their rule writes otherwise than the table.")
    id_forms: tuple[str, ...] | None = _optional("how ids are written by their rule, in words, the most common first.")
    clipped: dict[str, int] | None = _optional("by attribute, how many values outside the bounds count as the bound.")
    missing: dict[str, int] | None = _optional("by attribute, how many cells have no value.")
    filled: dict[str, int] | None = _optional(
        "by number, the fewest neighbouring hundredths of its bounds that hold all but one in 1,000 values."
    )
    read: AwareDatetime | None = _optional("when its rows were read.")

    @property
    def cell_words(self) -> list[str]:
        """What to look at in its cells, in sentences, if counts are shown."""
        return cell_words(self.attributes, self.n or 0, self.clipped or {}, self.filled or {}, self.missing)


class DatasetList(Shown):
    """Data sets."""

    items: tuple[DatasetView, ...] = Field(description="by name.")


class UploadView(Shown):
    """Rows on their way into a data set."""

    dataset: str = Field(description="the data set they are for.")
    upload: str = Field(description="what the caller calls this upload.")
    pieces: tuple[int, ...] = Field(description="the numbers of the pieces that have arrived.")


class PieceView(Shown):
    """A piece that has arrived."""

    number: int = Field(description="its number.")
    rows: int = Field(description="its number of rows.")


class LossView(Shown):
    """A privacy loss: rho of zCDP, a delta beside it, and both as epsilon."""

    rho: float = Field(description="the loss in zCDP, which ledgers add up.")
    delta: float = Field(description="added up beside it; for a cap and what is left of it, the delta of epsilon.")
    epsilon: float = Field(description="of rho, at the delta of the release, or of the cap in a ledger.")


class CostView(LossView):
    """What a release or a regression takes from this member's ledger."""

    unit: str = Field(
        description="the neighbouring relation: add_remove of keyed data sets, replace_one of listed ones."
    )
    replacement: LossView | None = Field(
        description="for keyed data sets, the same under replace_one: if a person who stays has other values."
    )


class WhiteningView(Shown):
    """The public map that a release applies to this member's columns."""

    columns: int = Field(description="how many columns it maps.")
    condition_number: float = Field(description="the condition number of its matrix.")


class FirstStageView(LossView):
    """The noisy sums that a release publishes of this member's columns before its rows, and their part of its cost."""

    sums: int = Field(description="how many sums.")


class DecidedView(Shown):
    """A decision of a person or of a system of this member."""

    document: str = Field(
        description="`approval` or `rejection`; `first-approval` if two people have to approve and this is the first."
    )
    by: str = Field(description="the person or system that decided, with the name of the token that was used.")
    why: str = Field(description="the reason given.")


class ProposalView(Shown):
    """A release that this member was asked for: what is asked, what it costs and brings, what speaks against it."""

    id: str = Field(description="the digest of the spec, which names the release everywhere.")
    study: str = Field(description="the study's title.")
    stated: dict[str, Any] = Field(
        description="what it is for, by field: purpose, requester, ethics_reference, target, features, attachments."
    )
    stated_sentences: tuple[str, ...] = Field(description="the same in sentences.")
    state: str = Field(
        description="where the coordinator last said it stands: proposed, approved, collecting, published, or how "
        "it ended."
    )
    reason: str | None = Field(None, description="why it ended, as the coordinator said, with a member's own words.")
    agreed: tuple[str, ...] = Field((), description="the members that have approved it, as the coordinator last said.")
    decision: DecisionName = Field(description="this member's decision: waiting, approved or rejected.")
    decided: tuple[DecidedView, ...] = Field(
        description="who decided so here, and why, the first approval of two among them."
    )
    approvals_needed: int = Field(1, description="how many people's approvals the policy asks for.")
    approvals_given: int = Field(0, description="how many there are; one if the policy has approved by itself.")
    findings: tuple[str, ...] = Field(
        description="what speaks against it here, in sentences; it cannot be approved before they are put right."
    )
    mechanism: str = Field(description="rmgm, dgm or moments.")
    k: int | None = Field(description="rows of the published matrix, for rmgm.")
    projection: str | None = Field(description="how rmgm mixes rows: null for signs of every row, or sparse.")
    subjects: str = Field(description="whether all members hold the same people, listed, or each its own, keyed.")
    n: int = Field(description="the number of people; if they are keyed, about as many as a member holds.")
    buckets: int | None = Field(description="how many buckets keyed rows are exchanged in; null if they are not.")
    kept: int | None = Field(description="how many of n count, as they meet nobody in their bucket; null if all do.")
    epsilon: float = Field(description="the epsilon of each member's block.")
    delta: float = Field(description="the delta of each member's block.")
    adjacency: str = Field(description="the unit of every epsilon here: add_remove or replace_one.")
    calibration: str = Field(description="how noise follows from epsilon and delta.")
    id_rules: tuple[str, ...] = Field(description="the rules by which subject ids are written.")
    dataset: str = Field(description="this member's data set that it asks for.")
    attributes: tuple[str, ...] = Field(description="the names of this member's columns that it asks for.")
    missing: tuple[str, ...] = Field(
        description="what becomes of missing cells, in sentences; with counts for the operator."
    )
    wide: tuple[str, ...] | None = _optional(
        "numbers with bounds much wider than their values, in sentences; for the operator alone."
    )
    held: int | None = _optional("how many people the data set holds; for the operator alone.")
    leaves: str = Field(description="what leaves this member, in a sentence.")
    columns: tuple[Attribute, ...] = Field(description="this member's columns, with bounds or levels.")
    row_norm: float | None = Field(description="the norm that this member's rows are clipped to; null if they are not.")
    whitening: WhiteningView | None = Field(
        description="the public map of this member's columns; null if there is none."
    )
    first_stage: FirstStageView | None = Field(description="the noisy sums that come first; null if there are none.")
    parties: tuple[str, ...] = Field(description="all members that are asked.")
    proposer: str = Field(description="the fingerprint of the proposer's key.")
    expires: str = Field(description="when it lapses unless everybody approved, ISO 8601.")
    cost: CostView = Field(description="its cost to this ledger.")
    guess_percent: int = Field(
        description="of 100 guesses at even odds whether a person is in the data (keyed) or which of two records is "
        "theirs (listed), at most so many are right, from what all members publish in this release."
    )
    guess_after_percent: int | None = Field(
        description="the same with everything that this member has released before; null once it is decided."
    )
    per_subject_epsilon: float = Field(description="what a person loses by all members together, to everybody.")
    per_subject_outsiders_epsilon: float = Field(description="the same, to outsiders.")
    protects: str = Field(description="what it protects, in a sentence.")
    trust: str = Field(description="whom it trusts, in a sentence.")
    exchange: dict[str, Any] | None = Field(
        description="what it costs its members besides budget, in bytes and seconds; null if they exchange nothing."
    )
    forecast: dict[str, Any] | None = Field(
        description="what fits of it will be worth, as `commingle plan` says it; null if nothing can be "
        "predicted, or if it is not computed."
    )
    forecast_state: ForecastState = Field(
        description="computed; not_yet, if it will be while the release is open; too_costly or failed."
    )
    outlook: tuple[str, ...] = Field(description="the same in sentences.")

    @property
    def miscounted(self) -> str | None:
        """That it holds twice as many people as n, half as many, or is farther off; None if nobody may be told."""
        keyed = self.held is not None and self.subjects == "keyed"
        return miscounted(self.dataset, self.held, self.n) if keyed and self.held is not None else None


class ProposalList(Shown):
    """Some of the proposals."""

    items: tuple[ProposalView, ...] = Field(description="the newest first.")
    next: str | None = Field(description="`after` of the page that follows; null if none does.")


class ProposedView(Shown):
    """A release that this member has proposed."""

    id: str = Field(description="the digest of the spec, which names the release everywhere.")
    study: str = Field(description="the study's title.")
    state: str = Field(description="where it stands at the coordinator.")
    parties: tuple[str, ...] = Field(description="the members that decide on it.")
    expires: str = Field(description="when it lapses unless everybody approved, ISO 8601.")
    trust: str = Field(description="whom it trusts, in a sentence.")


class Stage(StrEnum):
    """The last thing that was begun or done for a release."""

    WAITING = "waiting for a person"
    CHECKING = "checking"
    APPROVED = "approved"
    PRIVATISING = "privatising"
    EXCHANGING = "waiting for the other members"
    UPLOADING = "uploading"
    UPLOADED = "uploaded"
    PUBLISHED = "published"
    ENDED = "ended"


class JobView(Shown):
    """Work on one release since the agent started."""

    release: str = Field(description="its id.")
    stage: str = Field(description="the last thing that was begun or done.")
    done: int | None = _optional("for the operator: rows read while checking and privatising, bytes while uploading.")
    total: int | None = _optional("for the operator: of them in all.")
    error: str | None = Field(description="what stopped it last, with a remedy for the operator; null if nothing did.")


class JobList(Shown):
    """Jobs."""

    items: tuple[JobView, ...] = Field(description="in the order in which they began.")


class ChargeView(CostView):
    """What a release or a regression has cost or reserved."""

    release: str = Field(description="its id.")
    kind: str = Field(description="release, regression, or unexplained, which a lost branch of the ledger spent.")
    study: str = Field(description="the study's title.")
    dataset: str = Field(description="this member's data set that it is about.")
    state: str = Field(description="reserved, debited, stored, acked, released, withdrawn or adopted.")
    attempt: int = Field(description="how often noise was drawn so far.")
    coordinator: str = Field(description="the fingerprint of its consortium's coordinator; empty for a regression.")
    decided: tuple[DecidedView, ...] = Field(
        (), description="who approved, rejected or withdrew, and why, if people did."
    )


class LedgerView(Shown):
    """This member's budget and what has been taken from it."""

    population: str = Field(description="the population whose data it is for.")
    unit: str = Field(description="the data sets' unit, in which cap, spent and remaining are stated.")
    cap: LossView = Field(description="the most that may ever be lost.")
    spent: LossView = Field(description="lost or set aside.")
    replacement: LossView = Field(description="the same under replace_one.")
    remaining: LossView = Field(description="what is left.")
    charges: tuple[ChargeView, ...] = Field(description="some of them, in the order in which they were made.")
    entries: int = Field(description="how many entries the ledger's chain has.")
    next: str | None = Field(description="`before` of the page with earlier ones; null if there are none.")


class RegressionCharge(Shown):
    """What a regression took from the ledger."""

    unit: str = Field(description="the unit of its data set, and so of epsilon: add_remove or replace_one.")
    rho: float = Field(description="the loss in zCDP.")
    delta: float = Field(description="the delta beside it.")


class RegressionLine(Shown):
    """A regression that was paid for."""

    id: str = Field(description="digest of the request.")
    state: str = Field(description="published, or why it is not published yet.")
    dataset: str = Field(description="the data set that it is on.")
    target: str = Field(description="the attribute that is explained.")
    method: str = Field(description="the method asked for.")
    epsilon: float = Field(description="the epsilon of the whole regression.")
    delta: float = Field(description="the delta of the whole regression.")
    charge: RegressionCharge = Field(description="what it took from the ledger.")


class RegressionList(Shown):
    """Regressions."""

    items: tuple[RegressionLine, ...] = Field(description="the newest first.")


class RegressionView(RegressionLine):
    """A regression with its result."""

    request: dict[str, Any] = Field(description="as it was asked.")
    result: dict[str, Any] | None = Field(description="the result, as plain JSON; null while there is none.")
    document: SignedDocument | None = Field(
        description="the signed result, for others to verify; null while there is none."
    )


CHARGE_STATES = {  # of a charge, as people say it
    "reserved": "reserved",
    "debited": "spent, nothing made yet",
    "stored": "spent",
    "acked": "spent, delivered",
    "released": "given back",
    "withdrawn": "spent, then it ended",
    "adopted": "spent, taken over from witnesses",
}


def risk_in_words(item: ProposalView) -> tuple[str, ...]:
    """What a person risks, in the share of right guesses (docs/proofs/noise-and-accounting.md, 5.4); first of this."""
    keyed = item.subjects == "keyed"
    what = "whether a person is in the data" if keyed else "which of two records is a person's"
    said = (
        f"Somebody who knows everything else and guesses {what} is right at most {item.guess_percent} times in 100, "
        "from what all members publish here."
    )
    coin = "A coin is right 50 times."
    if item.guess_after_percent is None:
        return said, coin
    return said, f"{coin} With all that this member has released before: {item.guess_after_percent} times."


def words_for_decision(item: ProposalView) -> str:
    """What this member has said, and how many of its people if it takes two."""
    needed, given = item.approvals_needed, item.approvals_given
    counted = needed > 1 and item.decision != "rejected"
    return f"{item.decision}, {given} of {needed} approvals" if counted else item.decision
