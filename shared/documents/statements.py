"""The documents that parties sign besides a spec: about a release, about themselves, and about their ledgers.

See docs/design/documents.md#statements. The alignment statement is apart from the approval because approvals are
published and alignment digests are not.

Witnesses keep a ledger's head, so that a ledger that was set back is noticed. A witness takes a statement only if it
goes further than the newest it has and names that as its predecessor. So two copies of one ledger cannot both go on
before the same witness: the second would have to name a head it does not have.
"""

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256
from typing import Annotated, ClassVar, Literal, Self, TypeAlias, TypeVar

from pydantic import AwareDatetime, Field, StringConstraints

from commingle.shared.documents.dsse import Envelope, SigningKey, Verified, VerifyingKey, open_envelope, seal
from commingle.shared.documents.model import LEFT_OUT, Count, Digest, Hex32, Model, Name, Version, WireModel
from commingle.shared.documents.spec import MAX_COLUMNS, Paragraph, PartySpec, ReleaseSpec
from commingle.shared.dp.accounting import Loss, Rho
from commingle.shared.errors import DocumentError, ExchangeError

Sums = Annotated[
    tuple[Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)], ...], Field(min_length=1, max_length=2 * MAX_COLUMNS)
]
RejectionReason = Literal["policy", "operator", "budget", "dataset", "subjects", "block_lost", "exchange", "expired"]
REJECTED_BECAUSE: Mapping[RejectionReason, str] = {
    "policy": "its policy does not allow it",
    "operator": "a person decided so",
    "budget": "it would go beyond a cap on its budget",
    "dataset": "its data set is not what the study asks for",
    "subjects": "its data set holds another number of people",
    "block_lost": "its agent no longer has its block",
    "exchange": "messages of the exchange do not follow it",
    "expired": "the proposal expired",
}


class DeviationError(ExchangeError):
    """A member signed something in an exchange that no honest member would sign; the release ends.

    Attributes:
        evidence: two statements that it signed, although only one was allowed.
    """

    code = "deviation"

    def __init__(self, party: str, fault: str, evidence: tuple[Envelope, Envelope] | None = None) -> None:
        super().__init__(
            f"what {party} sent does not follow the exchange: {fault}",
            remedy="Ask that member. Propose a new release once it is explained.",
        )
        self.party, self.evidence = party, evidence


class Enrolment(WireModel):
    """A party introduces itself with the invite it was given."""

    type: Literal["commingle/enrolment"] = "commingle/enrolment"
    version: Version = 1
    invite: Annotated[str, Field(min_length=16, max_length=200, repr=False)]
    name: Name
    signing_key: Hex32
    sealing_key: Hex32


class PartyStatement(WireModel):
    """A party's statement about one release.

    Attributes:
        spec: the release.
        party: the party that makes the statement.
    """

    spec: Digest
    party: Name


Statement = TypeVar("Statement", bound=PartyStatement)


class Approval(PartyStatement):
    """A party agrees to this very spec and has reserved its budget."""

    type: Literal["commingle/approval"] = "commingle/approval"
    version: Version = 1
    created: AwareDatetime
    ledger_head: Digest


class FirstApproval(PartyStatement):
    """The first of two people of a party agrees to this very spec: nothing is reserved, and it stays in the ledger."""

    type: Literal["commingle/first-approval"] = "commingle/first-approval"
    version: Version = 1
    created: AwareDatetime
    ledger_head: Digest


FIRST_APPROVAL = FirstApproval.signed_as()  # this kind of document never leaves its party


class AlignmentStatement(PartyStatement):
    """How many subjects a party holds, and the keyed digest of their sorted list."""

    type: Literal["commingle/alignment"] = "commingle/alignment"
    version: Version = 1
    subjects: Count
    digest: Digest


class Rejection(PartyStatement):
    """A party declines, or withdraws after its debit. The reason is a code: local error text never travels.

    Attributes:
        said: why, in the words of the person who decided; they are meant for the proposer.
        about: the member whose message does not follow the exchange, if that is the reason.
        evidence: two statements that it signed, although it may sign only one; everybody can verify them.
    """

    largest_bytes: ClassVar[int] = 256 << 10  # two statements with sums
    type: Literal["commingle/rejection"] = "commingle/rejection"
    version: Version = 1
    reason: RejectionReason
    created: AwareDatetime
    ledger_head: Digest
    said: Annotated[Paragraph | None, LEFT_OUT] = None
    about: Annotated[Name | None, LEFT_OUT] = None
    evidence: Annotated[tuple[Envelope, Envelope] | None, LEFT_OUT] = None


class Rotation(WireModel):
    """A party replaces its signing key. Both keys sign: the old one hands over, the new one is held."""

    type: Literal["commingle/rotation"] = "commingle/rotation"
    version: Version = 1
    party: Name
    old_key: Hex32
    new_key: Hex32
    created: AwareDatetime


class Departure(WireModel):
    """A party leaves the consortium of this coordinator: from then on it answers no proposal."""

    type: Literal["commingle/departure"] = "commingle/departure"
    version: Version = 1
    party: Name
    coordinator: Digest
    created: AwareDatetime


class BlockStatement(PartyStatement):
    """A party's signature under its privatised block.

    Attributes:
        approvals: digest of the set of approvals under which the debit was made.
        rows, columns: the block's shape and its encoded columns, in order.
        sigma: standard deviation of the integer noise, in steps.
        body_sha256: of the Arrow IPC bytes that are uploaded.
        content_sha256: of the integers themselves (`shared.release.matrix.content_digest`): the published matrix can be
            checked against it, whatever wrote its file.
        transcript: digest of the exchange the block comes from, if there was one.
        sums: noisy sums of its columns, from which the map of its rows follows (`shared.documents.row_maps`), if the
            spec asks for a first stage.
    """

    largest_bytes: ClassVar[int] = 256 << 10  # it names 255 columns
    type: Literal["commingle/block"] = "commingle/block"
    version: Version = 1
    approvals: Digest
    rows: Count
    columns: Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_COLUMNS)]
    sigma: Count
    body_sha256: Digest
    content_sha256: Digest
    ledger_head: Digest
    transcript: Digest | None = None
    sums: Annotated[Sums | None, LEFT_OUT] = None


class SignedDocument(WireModel):
    """An envelope with the key that signed it, for documents whose signer the receiver may not know yet.

    Attributes:
        signing_key: public, 32 bytes, hex.
        envelope: the signed document.
    """

    signing_key: Hex32
    envelope: Envelope

    @classmethod
    def of(cls, document: WireModel, key: SigningKey) -> Self:
        return cls(signing_key=key.verifying_key.raw.hex(), envelope=seal(document, key=key))

    def open(self, model: type[Model]) -> Verified[Model]:
        """Verify under the enclosed key. The caller decides whether to trust that key."""
        return open_envelope(self.envelope, model, keys=[VerifyingKey.from_hex(self.signing_key)])


class ApprovalRequest(WireModel):
    """An agent sends this to approve; it says nothing about its subjects if they are keyed."""

    approval: Envelope
    alignment: Annotated[Envelope | None, LEFT_OUT] = None


class RotationRequest(WireModel):
    """One `Rotation`, the same bytes signed under each key."""

    by_old: Envelope
    by_new: Envelope


def open_statement(envelope: Envelope, model: type[Statement], party: PartySpec, *, spec: str) -> Verified[Statement]:
    """A verified statement of that kind by that party about that spec. Raises SignatureError, DocumentError."""
    opened = open_envelope(envelope, model, keys=[party.verifying_key])
    return require_about(opened, party=party.name, spec=spec)


def open_rotation(request: RotationRequest, *, party: str, old_key: VerifyingKey) -> Verified[Rotation]:
    """The verified rotation of that party away from that key.

    Raises SignatureError: not signed under both keys; DocumentError: of another party or key, or the two signatures are
    under different documents.
    """
    rotation = open_envelope(request.by_old, Rotation, keys=[old_key])
    document = rotation.document
    new_key = VerifyingKey.from_hex(document.new_key)
    confirmed = open_envelope(request.by_new, Rotation, keys=[new_key])
    named = (document.party, document.old_key) == (party, old_key.raw.hex()) and new_key != old_key
    if not named or confirmed.payload != rotation.payload:
        raise DocumentError("the rotation is about another member or key", remedy="Rotate again from the agent.")
    return rotation


def open_departure(envelope: Envelope, *, party: str, key: VerifyingKey, coordinator: str) -> Verified[Departure]:
    """The verified departure of that party from that coordinator. Raises SignatureError, DocumentError."""
    departure = open_envelope(envelope, Departure, keys=[key])
    if (departure.document.party, departure.document.coordinator) != (party, coordinator):
        raise DocumentError("the departure is another member's or from another coordinator", remedy="Leave again.")
    return departure


def open_approvals(envelopes: Mapping[str, Envelope], spec: Verified[ReleaseSpec]) -> dict[str, Verified[Approval]]:
    """The verified approvals of every party of a spec, by name.

    Raises DocumentError: a party's approval is missing; SignatureError: one does not verify.
    """
    missing = [party.name for party in spec.document.parties if party.name not in envelopes]
    if missing:
        raise DocumentError(f"no approval by {', '.join(missing)}", remedy="Wait until every member has approved.")
    return {
        party.name: open_statement(envelopes[party.name], Approval, party, spec=spec.digest)
        for party in spec.document.parties
    }


def approval_set_digest(approvals: Mapping[str, Verified[Approval]]) -> str:
    """SHA-256 over the approvals' digests in order of party names, hex: names the exact set that a debit relied on."""
    digests = b"".join(bytes.fromhex(approvals[name].digest) for name in sorted(approvals))
    return sha256(b"commingle/v1/approvals" + digests).hexdigest()


def require_about(statement: Verified[Statement], *, party: str, spec: str) -> Verified[Statement]:
    """The statement itself, if it is by that party about that spec. Raises DocumentError otherwise."""
    if (statement.document.party, statement.document.spec) != (party, spec):
        raise DocumentError(
            "the signed statement is about another release or member",
            remedy="Sign a statement for this release.",
        )
    return statement


NO_HEAD = "0" * 64  # the predecessor that a first statement names


Spent: TypeAlias = tuple[int, Fraction]  # rho in units, and delta
Units = Annotated[str, StringConstraints(pattern=r"^(0|[1-9][0-9]{0,98})$")]


class ChargedLoss(WireModel):
    """A loss as it was charged.

    Attributes:
        rho_units: rho times 2^64.
        loss_delta: delta of a delta-approximate rho-zCDP loss; 0 for Gaussian noise.
    """

    rho_units: Units
    loss_delta: Annotated[float, Field(ge=0, lt=1)]

    @staticmethod
    def of(loss: Loss) -> "ChargedLoss":
        return ChargedLoss(rho_units=str(loss.rho.units), loss_delta=loss.delta)

    @property
    def loss(self) -> Loss:
        return Loss(Rho(int(self.rho_units)), self.loss_delta)


class LedgerHead(WireModel):
    """A party's statement about its ledger.

    Attributes:
        height: entries that lead to the head; if lost branches were rejoined, beyond the longest of them.
        head: digest of the chain's last entry.
        rho_units, delta: what was debited so far and can never come back, each in the unit of its data set, without
            reservations.
        replacement_units, replacement_delta: the same under replace_one.
    """

    type: Literal["commingle/ledger-head"] = "commingle/ledger-head"
    version: Version = 1
    party: Name
    height: Count
    head: Digest
    rho_units: Units
    delta: Annotated[float, Field(ge=0)]
    replacement_units: Units
    replacement_delta: Annotated[float, Field(ge=0)]
    created: AwareDatetime

    @property
    def spent(self) -> tuple[Spent, Spent]:
        """What was debited, and the same under replace_one."""
        replaced = int(self.replacement_units), Fraction(self.replacement_delta)
        return (int(self.rho_units), Fraction(self.delta)), replaced


def open_head(signed: SignedDocument, *, party: str | None = None) -> tuple[LedgerHead, VerifyingKey]:
    """The statement and its key, which the caller decides to trust or not. Raises SignatureError, DocumentError."""
    head = _open(signed)
    if party not in {None, head.party}:
        raise DocumentError("the ledger head is another member's", remedy="Send it under its member's name.")
    return head, VerifyingKey.from_hex(signed.signing_key)


@lru_cache(maxsize=512)  # each release looks again at the head that is kept of a member
def _open(signed: SignedDocument) -> LedgerHead:
    return signed.open(LedgerHead).document
