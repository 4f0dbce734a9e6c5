"""What the local API answers: one set of models for the agent that serves them and for `PartyClient`, which reads them.

Views are written out as plain values (`views`); these models describe every field and are what OpenAPI shows.
"""

import json
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AwareDatetime, BeforeValidator, ConfigDict, TypeAdapter

from commingle.shared.documents.model import Described
from commingle.shared.documents.schema import Attribute
from commingle.shared.documents.statements import SignedDocument

ARROW, CSV, JSON_LINES = "application/vnd.apache.arrow.stream", "text/csv", "application/x-ndjson"
"""How rows may be sent."""
ForecastState: TypeAlias = Literal["computed", "not_yet", "too_costly", "failed"]


def _as_read(kind: Any) -> BeforeValidator:  # noqa: ANN401 - any type
    """Documents are strict about what JSON has no word for, such as tuples: they are read from JSON, here as there."""
    adapter = TypeAdapter[Any](kind)
    return BeforeValidator(lambda value: adapter.validate_json(json.dumps(value)))


Attributes = Annotated[tuple[Attribute, ...], _as_read(tuple[Attribute, ...])]


class Shown(Described):
    """A response body or a part of one. A reader ignores fields that a newer agent adds."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        json_schema_extra={"additionalProperties": False},  # described as it is served
    )


class Health(Shown):
    """How the process is.

    Attributes:
        status: `ok`, or the code of what is wrong.
    """

    status: str


class ConsortiumView(Shown):
    """A consortium that this party belongs to.

    Attributes:
        name: what this party calls it.
        coordinator: its coordinator's address.
        fingerprint: of the coordinator's pinned key.
        trouble: the last failure to reach it, with a remedy; null while it answers.
    """

    name: str
    coordinator: str
    fingerprint: str
    trouble: str | None


class StatusView(Shown):
    """Who this agent is and how it is.

    Attributes:
        name: of the party, as its consortia know it.
        fingerprint: of the key it signs with.
        consortia: those it belongs to.
        running: whether the agent's loop runs; false where a command answers in its own process.
        trouble: what keeps it from its work, with a remedy; null while nothing does.
    """

    name: str
    fingerprint: str
    consortia: tuple[ConsortiumView, ...]
    running: bool
    trouble: str | None


class DatasetView(Shown):
    """A data set that its owner declared. Counts follow from rows: for the operator, and for who pushed those rows.

    Attributes:
        name: of the data set, as studies ask for it.
        source: the file the rows are in, or that they are a query's, or pushed.
        subject_id: the column that identifies a subject, or several that do so together.
        id_rules: how each of them is written; absent where exactly.
        subjects: "keyed" where who is in it is private, "listed" where that is a list which all members hold.
        unit: in which it is released, regressed and charged: add_remove or replace_one.
        people: the group that its subjects are of; caps add up what all data sets of a group lose.
        attributes: the columns it offers, with their public bounds or levels.
        n: subjects; 0 where the rows have not been read.
        ids_changed: ids that their rule writes otherwise than the table.
        clipped: by attribute, values outside the bounds, which count as the bound.
        missing: by attribute, cells without a value.
        read: when its rows were read.
    """

    name: str
    source: str
    subject_id: str | tuple[str, ...]
    id_rules: tuple[str, ...] | None = None
    subjects: str
    unit: str
    people: str
    attributes: Attributes
    n: int | None = None
    ids_changed: int | None = None
    clipped: dict[str, int] | None = None
    missing: dict[str, int] | None = None
    read: AwareDatetime | None = None


class DatasetList(Shown):
    """Data sets.

    Attributes:
        items: by name.
    """

    items: tuple[DatasetView, ...]


class UploadView(Shown):
    """Rows on their way into a data set.

    Attributes:
        dataset: the data set they are for.
        upload: what the caller calls this upload.
        pieces: numbers of the pieces that are in.
    """

    dataset: str
    upload: str
    pieces: tuple[int, ...]


class PieceView(Shown):
    """A piece that is in.

    Attributes:
        number: which one.
        rows: how many rows it has.
    """

    number: int
    rows: int


class LossView(Shown):
    """A loss.

    Attributes:
        rho: in zCDP.
        delta: beside it.
        epsilon: of both, at the delta that is meant.
    """

    rho: float
    delta: float
    epsilon: float


class CostView(Shown):
    """What a release takes from this party's ledger.

    Attributes:
        unit: the neighbouring relation: add_remove of keyed subjects, replace_one of listed ones.
        rho: in zCDP; what ledgers add up.
        epsilon: the same at the release's delta.
        delta_implementation: the part of the release's delta that is no noise's; ledgers add it up too.
        replacement: of keyed subjects, the same under replace_one: if one that stays has other values.
    """

    unit: str
    rho: float
    epsilon: float
    delta_implementation: float
    replacement: LossView | None


class WhiteningView(Shown):
    """The public map that a release applies to this party's columns.

    Attributes:
        columns: how many it maps.
        condition_number: of its matrix.
    """

    columns: int
    condition_number: float


class FirstStageView(Shown):
    """The noisy sums that a release publishes of this party's columns before its rows.

    Attributes:
        sums: how many.
        rho: what they cost, in zCDP, of what the release costs.
        epsilon: the same at the release's delta.
    """

    sums: int
    rho: float
    epsilon: float


class DecidedView(Shown):
    """A decision of a person or of a system of this party.

    Attributes:
        document: `approval` or `rejection`; `first-approval` where two people have to approve and this is the first.
        by: who decided; a token that was used is named beside it.
        why: the reason given.
    """

    document: str
    by: str
    why: str


class ProposalView(Shown):
    """A release that this party was asked for: what is asked, what it costs and brings, what speaks against it.

    Attributes:
        id: digest of the spec; what the release is called everywhere.
        study: its title.
        stated: what it is for, by field: purpose, requester, ethics_reference, target, features, attachments.
        stated_sentences: the same in sentences.
        state: where the coordinator last said it stands: proposed, approved, collecting, published, or how it ended.
        decision: this party's: waiting, approved or rejected.
        decided: who decided so here, and why, the first approval of two among them.
        approvals_needed: how many people's the policy asks for.
        approvals_given: how many there are; one where the policy has approved by itself.
        findings: what speaks against it here, in sentences; it cannot be approved before they are put right.
        mechanism: rmgm, dgm or moments.
        k: rows of the published matrix, for rmgm.
        projection: what rmgm mixes rows with: null for signs of every row, or sparse.
        subjects: whether all parties hold the same people, listed, or each its own, keyed.
        n: subjects; where they are keyed about as many as a party holds.
        buckets: that keyed rows are exchanged in; null where they are not.
        kept: how many of n count, as they meet nobody in their bucket; null where all do.
        epsilon: of each party's block.
        delta: of each party's block.
        adjacency: in which every epsilon of this is meant: add_remove or replace_one.
        calibration: how noise follows from epsilon and delta.
        id_rules: how subject ids are written.
        dataset: of this party, that it asks for.
        attributes: names of this party's columns that it asks for.
        missing: what becomes of missing cells, in sentences; with counts for the operator.
        columns: this party's columns with bounds or levels.
        row_norm: rows of this party are clipped to this norm; null where they are not.
        whitening: the public map of this party's columns; null where there is none.
        first_stage: the noisy sums that come first; null where there are none.
        parties: everybody who is asked.
        proposer: fingerprint of whose proposal it is.
        expires: when it lapses unless everybody approved, ISO 8601.
        cost: what it takes from this ledger.
        per_subject_epsilon: what a subject loses by all parties together, to everybody.
        per_subject_outsiders_epsilon: the same, to outsiders.
        protects: what is protected, in a sentence.
        trust: whom it trusts, in a sentence.
        exchange: what it costs its parties besides budget, in bytes and seconds; null where they exchange nothing.
        forecast: what fits of it will be worth, as `commingle plan` says it; null where nothing can be predicted, and
            where it is not computed.
        forecast_state: computed; not_yet, where it will be while the release is open; too_costly or failed.
        outlook: the same in sentences.
    """

    id: str
    study: str
    stated: dict[str, Any]
    stated_sentences: tuple[str, ...]
    state: str
    decision: Literal["waiting", "approved", "rejected"]
    decided: tuple[DecidedView, ...]
    approvals_needed: int = 1
    approvals_given: int = 0
    findings: tuple[str, ...]
    mechanism: str
    k: int | None
    projection: str | None
    subjects: str
    n: int
    buckets: int | None
    kept: int | None
    epsilon: float
    delta: float
    adjacency: str
    calibration: str
    id_rules: tuple[str, ...]
    dataset: str
    attributes: tuple[str, ...]
    missing: tuple[str, ...]
    columns: Attributes
    row_norm: float | None
    whitening: WhiteningView | None
    first_stage: FirstStageView | None
    parties: tuple[str, ...]
    proposer: str
    expires: str
    cost: CostView
    per_subject_epsilon: float
    per_subject_outsiders_epsilon: float
    protects: str
    trust: str
    exchange: dict[str, Any] | None
    forecast: dict[str, Any] | None
    forecast_state: ForecastState
    outlook: tuple[str, ...]


class ProposalList(Shown):
    """Proposals.

    Attributes:
        items: the newest first.
    """

    items: tuple[ProposalView, ...]


class ProposedView(Shown):
    """A release that this party has proposed.

    Attributes:
        id: digest of the spec; what the release is called everywhere.
        study: its title.
        state: where it stands at the coordinator.
        parties: everybody who is asked, this party's own people among them.
        expires: when it lapses unless everybody approved, ISO 8601.
        exchange: what it costs its parties besides budget, in bytes and seconds; null where they exchange nothing.
        forecast: what fits of it will be worth, as `commingle plan` says it; null where nothing can be predicted.
        outlook: the same in sentences.
        trust: whom it trusts, in a sentence.
    """

    id: str
    study: str
    state: str
    parties: tuple[str, ...]
    expires: str
    forecast: dict[str, Any] | None
    outlook: tuple[str, ...]
    trust: str


class JobView(Shown):
    """Work on one release since the agent started.

    Attributes:
        release: its id.
        stage: the last thing that was begun or done.
        done: for the operator: rows read while checking and privatising, bytes while uploading.
        total: for the operator: of them in all.
        error: what stopped it last, with a remedy for the operator; null where nothing did.
    """

    release: str
    stage: str
    done: int | None = None
    total: int | None = None
    error: str | None


class JobList(Shown):
    """Jobs.

    Attributes:
        items: in the order in which they began.
    """

    items: tuple[JobView, ...]


class Budget(Shown):
    """An amount of privacy loss, in the unit of what it is part of.

    Attributes:
        rho: in zCDP, where it can be said so.
        epsilon: at this delta.
        delta: of the epsilon; of what is spent, the part that was spent beside rho.
    """

    rho: float
    epsilon: float
    delta: float


class ChargeView(Shown):
    """What a release or a regression has cost or reserved.

    Attributes:
        release: its id.
        kind: release or regression.
        study: its title.
        dataset: of this party, that it is about.
        state: reserved, debited, stored, acked, released, withdrawn or adopted.
        unit: that of its data set: add_remove or replace_one.
        rho: in zCDP.
        delta: spent beside it.
        epsilon: of rho, at the cap's delta.
        replacement: of keyed subjects, the same under replace_one.
        attempt: how often it was reserved.
        coordinator: fingerprint of whose consortium it is; empty for a regression.
        decided: who approved, rejected or withdrew, and why, where people did.
    """

    release: str
    kind: str
    study: str
    dataset: str
    state: str
    unit: str
    rho: float
    delta: float
    epsilon: float
    replacement: LossView | None
    attempt: int
    coordinator: str
    decided: tuple[DecidedView, ...] = ()


class LedgerView(Shown):
    """This party's budget and what has been taken from it.

    Attributes:
        population: whose data it is for.
        unit: in which cap, spent and remaining are meant: that of the data sets.
        cap: the most that may ever be lost.
        spent: lost or set aside.
        replacement: the same under replace_one.
        remaining: what is left.
        charges: in the order in which they were made.
        entries: how many entries the ledger's chain has.
    """

    population: str
    unit: str
    cap: Budget
    spent: Budget
    replacement: Budget
    remaining: Budget
    charges: tuple[ChargeView, ...]
    entries: int


class RegressionCharge(Shown):
    """What a regression took from the ledger.

    Attributes:
        unit: that of its data set, as of the regression's epsilon: add_remove or replace_one.
        rho: in zCDP.
        delta: beside it.
    """

    unit: str
    rho: float
    delta: float


class RegressionLine(Shown):
    """A regression that was paid for.

    Attributes:
        id: digest of the request.
        state: published, or why not yet.
        dataset: it is on.
        target: the attribute that is explained.
        method: asked for.
        epsilon: of the whole regression.
        delta: of the whole regression.
        charge: what it took.
    """

    id: str
    state: str
    dataset: str
    target: str
    method: str
    epsilon: float
    delta: float
    charge: RegressionCharge


class RegressionList(Shown):
    """Regressions.

    Attributes:
        items: the newest first.
    """

    items: tuple[RegressionLine, ...]


class RegressionView(RegressionLine):
    """A regression with its result.

    Attributes:
        request: as it was asked.
        result: what came out, in plain; null while there is none.
        document: the signed result, for others to verify; null while there is none.
    """

    request: dict[str, Any]
    result: dict[str, Any] | None
    document: Annotated[SignedDocument | None, _as_read(SignedDocument | None)]
