"""What the local API answers: models that `views` builds, OpenAPI shows, and commands, pages and `PartyClient` read."""

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
"""Of answers, and of what is sent by the name of its model or its media type."""


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

    name: str = Field(description="what this member calls it.")
    coordinator: str = Field(description="its coordinator's address.")
    fingerprint: str = Field(description="of the coordinator's pinned key.")
    trouble: str | None = Field(description="the last failure to reach it, with a remedy; null while it answers.")


class StatusView(Shown):
    """Who this agent is and how it is."""

    name: str = Field(description="of the member, as its consortia know it.")
    fingerprint: str = Field(description="of the key it signs with.")
    consortia: tuple[ConsortiumView, ...] = Field(description="those it belongs to.")
    running: bool = Field(
        description="whether the agent's loop runs; false where a command answers in its own process."
    )
    trouble: str | None = Field(description="what keeps it from its work, with a remedy; null while nothing does.")


class DatasetView(Shown):
    """A data set that its owner declared. Counts follow from rows: for the operator, and for who pushed those rows."""

    name: str = Field(description="of the data set, as studies ask for it.")
    source: str = Field(description="the file the rows are in, or that they are a query's, or pushed.")
    subject_id: str | tuple[str, ...] = Field(
        description="the column that identifies a person, or several that do so together."
    )
    id_rules: tuple[str, ...] | None = _optional("how each of them is written; absent where exactly.")
    subjects: str = Field(
        description='"keyed" where who is in it is private, "listed" where that is a list which all members hold.'
    )
    unit: str = Field(description="in which it is released, regressed and charged: add_remove or replace_one.")
    people: str = Field(description="the group that its people are of; caps add up what all data sets of a group lose.")
    attributes: tuple[Attribute, ...] = Field(description="the columns it offers, with their public bounds or levels.")
    derived: tuple[str, ...] | None = _optional(
        "how those are made that its source does not have; absent where none is."
    )
    n: int | None = _optional("people; 0 where the rows have not been read.")
    ids_changed: int | None = _optional("ids that their rule writes otherwise than the table.")
    id_forms: tuple[str, ...] | None = _optional("how ids are written by their rule, in words, the most common first.")
    clipped: dict[str, int] | None = _optional("by attribute, values outside the bounds, which count as the bound.")
    missing: dict[str, int] | None = _optional("by attribute, cells without a value.")
    filled: dict[str, int] | None = _optional(
        "by number, the fewest neighbouring hundredths of its bounds that hold all but one in 1,000 values."
    )
    read: AwareDatetime | None = _optional("when its rows were read.")

    @property
    def cell_words(self) -> list[str]:
        """What is to be looked at in its cells, in sentences: where counts are shown."""
        return cell_words(self.attributes, self.n or 0, self.clipped or {}, self.filled or {}, self.missing)


class DatasetList(Shown):
    """Data sets."""

    items: tuple[DatasetView, ...] = Field(description="by name.")


class UploadView(Shown):
    """Rows on their way into a data set."""

    dataset: str = Field(description="the data set they are for.")
    upload: str = Field(description="what the caller calls this upload.")
    pieces: tuple[int, ...] = Field(description="numbers of the pieces that are in.")


class PieceView(Shown):
    """A piece that is in."""

    number: int = Field(description="which one.")
    rows: int = Field(description="how many rows it has.")


class LossView(Shown):
    """A privacy loss: rho of zCDP, a delta beside it, and both as epsilon."""

    rho: float = Field(description="in zCDP; what ledgers add up.")
    delta: float = Field(description="beside it, added up too; of a cap and what is left of it the delta of epsilon.")
    epsilon: float = Field(description="of rho, at the delta of the release, or of the cap where a ledger shows it.")


class CostView(LossView):
    """What a release or a regression takes from this member's ledger."""

    unit: str = Field(
        description="the neighbouring relation: add_remove of keyed data sets, replace_one of listed ones."
    )
    replacement: LossView | None = Field(
        description="of keyed data sets, the same under replace_one: if one that stays has other values."
    )


class WhiteningView(Shown):
    """The public map that a release applies to this member's columns."""

    columns: int = Field(description="how many it maps.")
    condition_number: float = Field(description="of its matrix.")


class FirstStageView(LossView):
    """The noisy sums that a release publishes of this member's columns before its rows, and their part of its cost."""

    sums: int = Field(description="how many.")


class DecidedView(Shown):
    """A decision of a person or of a system of this member."""

    document: str = Field(
        description="`approval` or `rejection`; `first-approval` where two people have to approve and this is the "
        "first."
    )
    by: str = Field(description="who decided; a token that was used is named beside it.")
    why: str = Field(description="the reason given.")


class ProposalView(Shown):
    """A release that this member was asked for: what is asked, what it costs and brings, what speaks against it."""

    id: str = Field(description="digest of the spec; what the release is called everywhere.")
    study: str = Field(description="its title.")
    stated: dict[str, Any] = Field(
        description="what it is for, by field: purpose, requester, ethics_reference, target, features, attachments."
    )
    stated_sentences: tuple[str, ...] = Field(description="the same in sentences.")
    state: str = Field(
        description="where the coordinator last said it stands: proposed, approved, collecting, published, or how "
        "it ended."
    )
    reason: str | None = Field(None, description="why it ended, as the coordinator said, with a member's own words.")
    agreed: tuple[str, ...] = Field((), description="members that have approved it, as the coordinator last said.")
    decision: DecisionName = Field(description="this member's: waiting, approved or rejected.")
    decided: tuple[DecidedView, ...] = Field(
        description="who decided so here, and why, the first approval of two among them."
    )
    approvals_needed: int = Field(1, description="how many people's the policy asks for.")
    approvals_given: int = Field(0, description="how many there are; one where the policy has approved by itself.")
    findings: tuple[str, ...] = Field(
        description="what speaks against it here, in sentences; it cannot be approved before they are put right."
    )
    mechanism: str = Field(description="rmgm, dgm or moments.")
    k: int | None = Field(description="rows of the published matrix, for rmgm.")
    projection: str | None = Field(description="what rmgm mixes rows with: null for signs of every row, or sparse.")
    subjects: str = Field(description="whether all members hold the same people, listed, or each its own, keyed.")
    n: int = Field(description="people; where they are keyed about as many as a member holds.")
    buckets: int | None = Field(description="that keyed rows are exchanged in; null where they are not.")
    kept: int | None = Field(description="how many of n count, as they meet nobody in their bucket; null where all do.")
    epsilon: float = Field(description="of each member's block.")
    delta: float = Field(description="of each member's block.")
    adjacency: str = Field(description="in which every epsilon of this is meant: add_remove or replace_one.")
    calibration: str = Field(description="how noise follows from epsilon and delta.")
    id_rules: tuple[str, ...] = Field(description="how subject ids are written.")
    dataset: str = Field(description="of this member, that it asks for.")
    attributes: tuple[str, ...] = Field(description="names of this member's columns that it asks for.")
    missing: tuple[str, ...] = Field(
        description="what becomes of missing cells, in sentences; with counts for the operator."
    )
    wide: tuple[str, ...] | None = _optional(
        "numbers with bounds much wider than their values, in sentences; for the operator alone."
    )
    held: int | None = _optional("people that the data set holds; for the operator alone.")
    leaves: str = Field(description="what leaves this member, in a sentence.")
    columns: tuple[Attribute, ...] = Field(description="this member's columns with bounds or levels.")
    row_norm: float | None = Field(description="rows of this member are clipped to this norm; null where they are not.")
    whitening: WhiteningView | None = Field(
        description="the public map of this member's columns; null where there is none."
    )
    first_stage: FirstStageView | None = Field(description="the noisy sums that come first; null where there are none.")
    parties: tuple[str, ...] = Field(description="everybody who is asked.")
    proposer: str = Field(description="fingerprint of whose proposal it is.")
    expires: str = Field(description="when it lapses unless everybody approved, ISO 8601.")
    cost: CostView = Field(description="what it takes from this ledger.")
    guess_percent: int = Field(
        description="of 100 guesses at even odds whether a person is in the data (keyed) or which of two records is "
        "theirs (listed), at most so many are right, from what all members publish in this release."
    )
    guess_after_percent: int | None = Field(
        description="the same with everything that this member has released before; null once it is decided."
    )
    per_subject_epsilon: float = Field(description="what a person loses by all members together, to everybody.")
    per_subject_outsiders_epsilon: float = Field(description="the same, to outsiders.")
    protects: str = Field(description="what is protected, in a sentence.")
    trust: str = Field(description="whom it trusts, in a sentence.")
    exchange: dict[str, Any] | None = Field(
        description="what it costs its members besides budget, in bytes and seconds; null where they exchange nothing."
    )
    forecast: dict[str, Any] | None = Field(
        description="what fits of it will be worth, as `commingle plan` says it; null where nothing can be "
        "predicted, and where it is not computed."
    )
    forecast_state: ForecastState = Field(
        description="computed; not_yet, where it will be while the release is open; too_costly or failed."
    )
    outlook: tuple[str, ...] = Field(description="the same in sentences.")

    @property
    def miscounted(self) -> str | None:
        """That it holds twice as many people as n, half as many, or more apart; None where nobody may be told."""
        keyed = self.held is not None and self.subjects == "keyed"
        return miscounted(self.dataset, self.held, self.n) if keyed and self.held is not None else None


class ProposalList(Shown):
    """Some of the proposals."""

    items: tuple[ProposalView, ...] = Field(description="the newest first.")
    next: str | None = Field(description="`after` of the page that follows; null where none does.")


class ProposedView(Shown):
    """A release that this member has proposed."""

    id: str = Field(description="digest of the spec; what the release is called everywhere.")
    study: str = Field(description="its title.")
    state: str = Field(description="where it stands at the coordinator.")
    parties: tuple[str, ...] = Field(description="everybody who is asked, this member's own people among them.")
    expires: str = Field(description="when it lapses unless everybody approved, ISO 8601.")
    trust: str = Field(description="whom it trusts, in a sentence.")


class JobView(Shown):
    """Work on one release since the agent started."""

    release: str = Field(description="its id.")
    stage: str = Field(description="the last thing that was begun or done.")
    done: int | None = _optional("for the operator: rows read while checking and privatising, bytes while uploading.")
    total: int | None = _optional("for the operator: of them in all.")
    error: str | None = Field(
        description="what stopped it last, with a remedy for the operator; null where nothing did."
    )


class JobList(Shown):
    """Jobs."""

    items: tuple[JobView, ...] = Field(description="in the order in which they began.")


class ChargeView(CostView):
    """What a release or a regression has cost or reserved."""

    release: str = Field(description="its id.")
    kind: str = Field(description="release, regression, or unexplained, which a lost branch of the ledger spent.")
    study: str = Field(description="its title.")
    dataset: str = Field(description="of this member, that it is about.")
    state: str = Field(description="reserved, debited, stored, acked, released, withdrawn or adopted.")
    attempt: int = Field(description="drawings of noise so far.")
    coordinator: str = Field(description="fingerprint of whose consortium it is; empty for a regression.")
    decided: tuple[DecidedView, ...] = Field(
        (), description="who approved, rejected or withdrew, and why, where people did."
    )


class LedgerView(Shown):
    """This member's budget and what has been taken from it."""

    population: str = Field(description="whose data it is for.")
    unit: str = Field(description="in which cap, spent and remaining are meant: the unit of the data sets.")
    cap: LossView = Field(description="the most that may ever be lost.")
    spent: LossView = Field(description="lost or set aside.")
    replacement: LossView = Field(description="the same under replace_one.")
    remaining: LossView = Field(description="what is left.")
    charges: tuple[ChargeView, ...] = Field(description="some of them, in the order in which they were made.")
    entries: int = Field(description="how many entries the ledger's chain has.")
    next: str | None = Field(description="`before` of the page with those made earlier; null where there are none.")


class RegressionCharge(Shown):
    """What a regression took from the ledger."""

    unit: str = Field(description="the unit of its data set, and so of epsilon: add_remove or replace_one.")
    rho: float = Field(description="in zCDP.")
    delta: float = Field(description="beside it.")


class RegressionLine(Shown):
    """A regression that was paid for."""

    id: str = Field(description="digest of the request.")
    state: str = Field(description="published, or why not yet.")
    dataset: str = Field(description="it is on.")
    target: str = Field(description="the attribute that is explained.")
    method: str = Field(description="asked for.")
    epsilon: float = Field(description="of the whole regression.")
    delta: float = Field(description="of the whole regression.")
    charge: RegressionCharge = Field(description="what it took.")


class RegressionList(Shown):
    """Regressions."""

    items: tuple[RegressionLine, ...] = Field(description="the newest first.")


class RegressionView(RegressionLine):
    """A regression with its result."""

    request: dict[str, Any] = Field(description="as it was asked.")
    result: dict[str, Any] | None = Field(description="what came out, in plain; null while there is none.")
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
    """What this member has said, and how many of its people where it takes two."""
    needed, given = item.approvals_needed, item.approvals_given
    counted = needed > 1 and item.decision != "rejected"
    return f"{item.decision}, {given} of {needed} approvals" if counted else item.decision
