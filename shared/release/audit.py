"""Hash-chained histories of parties and coordinators, and checking them offline against a published release.

A chain is a list of JSON texts; each holds the SHA-256 of the one before as `previous`. A party's chain is its privacy
ledger, read here by the rules that wrote it (`ledger_fold`). Every approval, block and rejection a party signs names
the head its chain had then, so anyone who holds published documents notices a chain that was rewritten later. The party
or coordinator whose history it is signs an export.

A coordinator could invent a member, or a key for one, and everything signed with it would verify. It cannot do so
unseen: a release names keys that must be in its log of member keys, a chain of its own, and everybody who kept an
earlier log notices one that does not continue it. A member sees whether a key was entered in its name.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from typing import Generic, Literal, TypeAlias, TypeVar

from pydantic import AwareDatetime

from commingle.shared.documents.dsse import Envelope, Fingerprint, Verified, VerifyingKey, open_envelope
from commingle.shared.documents.model import Digest, Name, decode
from commingle.shared.documents.regression import RegressionResult, is_charged
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import (
    FIRST_APPROVAL,
    Approval,
    BlockStatement,
    Rejection,
    Rotation,
    RotationRequest,
    SignedDocument,
    open_rotation,
)
from commingle.shared.errors import VerificationError, require
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.mechanisms.moments.exchange.messages import Exchange, recorded_transcript
from commingle.shared.release.charge import (
    GENESIS,
    SIGNED_BY_PARTIES,
    ChargeState,
    ExportedChain,
    Link,
    adopted_kind,
    first_altered,
    link_digest,
    link_text,
)
from commingle.shared.release.checks import open_spec
from commingle.shared.release.ledger_fold import LedgerFold, fold
from commingle.shared.release.plan import plan_block
from commingle.shared.release.rounds import Refused
from commingle.shared.release.verification import PublishedRelease, called
from commingle.shared.text import quoted

Change = Literal["enrolment", "rotation", "revocation", "departure"]
_require_of_log = partial(
    require, remedy="Do not use this coordinator; keep both logs and show them to the members they name."
)


class KeyEntry(Link):
    """A membership began, changed its key or ended; `key` is the fingerprint."""

    at: AwareDatetime
    kind: Change
    party: Name
    key: Digest


class MemberLog(ExportedChain):
    """All entries."""

    type: Literal["commingle/member-log"] = "commingle/member-log"


@dataclass(slots=True)
class Memberships:
    """The memberships that a history has told so far: each member's keys, all keys, and who `left` by themselves."""

    keys: dict[str, list[str]] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    revoked: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)

    def follow(self, kind: str, party: str, key: str) -> bool:
        """Apply one change: enrolment, rotation to a key that nobody had before, or an end. False if it is impossible.

        A member that left can be enrolled again, with the key it left with.
        """
        present = party in self.keys and party not in self.revoked
        if kind in {"revocation", "departure"}:
            if not present or self.keys[party][-1] != key:
                return False
            self.revoked.add(party)
            if kind == "departure":
                self.left.add(party)
            return True
        if kind == "enrolment" and party in self.left:
            self.revoked.remove(party)
            self.left.remove(party)
            return self.keys[party][-1] == key
        fits = {"enrolment": party not in self.keys, "rotation": present}.get(kind, False)
        if not (fits and party and key) or key in self.seen:
            return False
        self.seen.add(key)
        self.keys.setdefault(party, []).append(key)
        return True


Chain = TypeVar("Chain", bound=ExportedChain)
Entry = TypeVar("Entry", bound=Link)


@dataclass(frozen=True, slots=True)
class VerifiedChain(Generic[Chain, Entry]):
    """A coordinator's chain that holds together, and the memberships that it tells."""

    chain: Chain
    signer: Fingerprint
    entries: tuple[Entry, ...]
    members: Mapping[str, tuple[str, ...]]  # fingerprints of the keys each member had, the present one last
    revoked: frozenset[str]


VerifiedLog: TypeAlias = VerifiedChain[MemberLog, KeyEntry]


def verify_chain(
    opened: Verified[Chain],
    kind: type[Entry],
    follow: Callable[[Memberships, Entry], bool],
    *,
    called: str,
    require: Callable[[bool, str], None],
) -> VerifiedChain[Chain, Entry]:
    """Check that each entry names the one before, that the last one is the head, and that memberships fit.

    `follow` applies one entry, and says False if it is impossible; `called` is the name of the chain in errors;
    `require` refuses what does not hold.
    """
    chain = opened.document
    altered = first_altered(chain.entries)
    require(altered is None, f"entry {(altered or 0) + 1} of the {called} was altered")
    ends = link_digest(chain.entries[-1]) if chain.entries else GENESIS
    require(chain.head == ends, f"the {called} ends elsewhere than its head says")
    known = Memberships()
    entries = tuple(decode(kind, text.encode()) for text in chain.entries)
    for number, entry in enumerate(entries, start=1):
        said = getattr(entry, "kind", "")
        require(follow(known, entry), f"entry {number} of the {called}: a {said} that cannot be")
    members = {name: tuple(keys) for name, keys in known.keys.items()}
    return VerifiedChain(chain, opened.signer, entries, members, frozenset(known.revoked))


def member_log(changes: Iterable[tuple[datetime, str, str, str]], *, exported: datetime) -> MemberLog:
    """The log of these changes, each its time, kind, party and key, the oldest first."""
    entries, head = [], GENESIS
    for at, kind, party, key in changes:
        facts = {"at": at.astimezone(UTC).isoformat(), "kind": kind, "party": party, "key": key}
        entries.append(link_text(head, facts))
        head = link_digest(entries[-1])
    return MemberLog(exported=exported, head=head, entries=tuple(entries))


def verify_member_log(data: bytes, *, trusted_coordinator: str | None = None) -> VerifiedLog:
    """Check a log: its signature, its chain, and that memberships began and ended in order.

    It must be signed with the key of the fingerprint `trusted_coordinator`; None accepts any. Raises VerificationError,
    SignatureError, DocumentError: naming the first thing that does not hold.
    """
    opened = decode(SignedDocument, data).open(MemberLog)
    _require_of_log(
        trusted_coordinator in {None, opened.signer}, "the log of member keys is signed by another coordinator"
    )
    return verify_chain(
        opened,
        KeyEntry,
        lambda known, entry: known.follow(entry.kind, entry.party, entry.key),
        called="log of member keys",
        require=_require_of_log,
    )


def require_continues(earlier: VerifiedLog, later: VerifiedLog) -> None:
    """Check that a log continues an earlier one of the same coordinator. Raises VerificationError."""
    same = later.chain.entries[: len(earlier.entries)] == earlier.chain.entries
    _require_of_log(same, "the log of member keys does not continue the one seen before: its history was rewritten")


def require_pinned(known: VerifiedLog, members: Mapping[str, str]) -> None:
    """Check that members of these names have or had the keys with these fingerprints. Raises VerificationError."""
    for name, key in members.items():
        listed = key in known.members.get(name, (key,))
        _require_of_log(listed, f"{name} is pinned with key {key}, which the log of member keys never had for it")


def confirm_by_log(known: VerifiedLog, spec: ReleaseSpec) -> str:
    """Check that a release names only keys of the log, and report. Raises VerificationError."""
    for party in spec.parties:
        listed = party.verifying_key.fingerprint in known.members.get(party.name, ())
        _require_of_log(listed, f"the log of member keys never had the key that the release names for {party.name}")
    return f"every member's key is in the coordinator's log of member keys, head {known.chain.head}"


_REMEDY = "Ask whose history this is for a fresh export, and compare it with the documents they signed."
_require = partial(require, remedy=_REMEDY)
_SIGNED: Mapping[str, type[Approval | BlockStatement | Rejection | RegressionResult]] = {
    model.signed_as(): model for model in (Approval, BlockStatement, Rejection, RegressionResult)
}
_AFTER_A_BLOCK = frozenset({ChargeState.STORED, ChargeState.ACKED, ChargeState.WITHDRAWN, ChargeState.ADOPTED})


class PartyAudit(ExportedChain):
    """A party's whole ledger chain with the documents it signed.

    Attributes:
        documents: approvals, blocks' statements, rejections, regressions. Alignment statements stay with the
            coordinator.
        rotations: how the party came from each former signing key to the next, the oldest first.
    """

    type: Literal["commingle/party-audit"] = "commingle/party-audit"
    party: Name
    coordinator: Digest
    documents: tuple[Envelope, ...]
    rotations: tuple[RotationRequest, ...] = ()


class CoordinatorAudit(ExportedChain):
    """A coordinator's whole history: what it recorded, in the order in which it did."""

    type: Literal["commingle/coordinator-audit"] = "commingle/coordinator-audit"
    coordinator: str


class EventEntry(Link):
    """One event of a coordinator's chain; `document` is the digest of what was recorded.

    Events about a membership have neither release nor state, and the fingerprint of the member's key as `document`.
    """

    release: Digest | None
    at: str
    kind: str
    party: str | None
    state: str | None
    document: Digest | None


@dataclass(frozen=True, slots=True)
class PartyHistory:
    """A party's export that holds together; `keys` are its own and, by verified rotations, the former ones."""

    audit: PartyAudit
    signer: Fingerprint
    told: LedgerFold
    keys: tuple[VerifyingKey, ...]


CoordinatorHistory: TypeAlias = VerifiedChain[CoordinatorAudit, EventEntry]


def event_body(*, previous: str, at: datetime, **facts: str | None) -> str:
    """The text of an event that is hashed, from the fields of its entry."""
    return link_text(previous, {"at": at.astimezone(UTC).isoformat(), **facts})


def verify_party_audit(data: bytes) -> PartyHistory:
    """Check a party's export: its signature, its chain, the order of its charges, and the documents in it.

    Raises VerificationError, SignatureError, DocumentError: naming the first thing that does not hold.
    """
    signed = decode(SignedDocument, data)
    opened = signed.open(PartyAudit)
    audit = opened.document
    told = fold(audit.entries)
    if isinstance(told, Refused):
        raise VerificationError(told.reason, remedy=_REMEDY)
    _require(audit.head == told.head, "the chain ends elsewhere than its head says")
    kinds = {entry.digest: kind for (_, kind), entry in told.signed.items() if kind in _SIGNED}
    present = {envelope.digest for envelope in audit.documents}
    _require(present == kinds.keys(), "the documents are not those that the chain says were signed")
    history = PartyHistory(audit, opened.signer, told, _keys(audit, VerifyingKey.from_hex(signed.signing_key)))
    for envelope in audit.documents:
        document = _check_document(envelope, history, kind=kinds[envelope.digest])
        if isinstance(document, RegressionResult):
            charged = told.charges.get(document.spec)
            _require(
                charged is not None and is_charged(document, charged.cost),
                "the ledger was debited another loss than a regression states",
            )
    return history


def verify_coordinator_audit(data: bytes) -> CoordinatorHistory:
    """Check a coordinator's export: its signature, its chain, and that memberships began and ended in order.

    Raises VerificationError, SignatureError, DocumentError: naming the first thing that does not hold.
    """
    opened = decode(SignedDocument, data).open(CoordinatorAudit)
    return verify_chain(opened, EventEntry, _follows, called="chain", require=_require)


def _follows(known: Memberships, event: EventEntry) -> bool:
    party = event.party or ""
    if event.release is None:
        return known.follow(event.kind, party, event.document or "")
    return not (party in known.revoked and event.kind in SIGNED_BY_PARTIES)


def confirm_by_party(history: PartyHistory, release: PublishedRelease) -> str:
    """Check a release against the history of one of its parties, and report.

    Raises VerificationError: they disagree.
    """
    name = history.audit.party
    share = next((party for party in release.spec.parties if party.name == name), None)
    if share is None:
        raise VerificationError(f"{name} is not a member of this release", remedy="Leave its audit file out.")
    _require(
        share.verifying_key in history.keys,
        f"the audit of {name} is signed with another key than the release names",
    )
    documents = {"approval": release.manifest.approvals[name], "block": release.manifest.blocks[name]}
    for kind, envelope in documents.items():
        made = history.told.signed.get((release.release, kind))
        adopted = history.told.received.get((release.release, adopted_kind(kind)))
        same = envelope.digest in {made and made.digest, adopted}
        _require(same, f"the published {kind} of {name} is not in its chain")
    charge = history.told.charges.get(release.release)
    if charge is None or charge.state not in _AFTER_A_BLOCK:
        raise VerificationError(f"{name} signed a block that its ledger was not debited for", remedy=_REMEDY)
    # the loss of a lost branch is not known to be Gaussian, and is the same otherwise
    paid = charge.cost.approximate() == plan_block(release.spec, share).cost.approximate()
    _require(paid, f"the ledger of {name} was debited another loss")
    debit = f"debit of rho {float(charge.loss.rho):.6g} ({release.spec.terms.adjacency})"
    whose = called(name, pinned=name in release.pinned)
    said = (history.told.signed.get((release.release, kind)) for kind in (FIRST_APPROVAL, "approval"))
    by = " and then ".join(quoted(entry.ruling.by) for entry in said if entry is not None and entry.ruling is not None)
    approval = f"approval (by {by})" if by else "approval"
    return f"{approval}, {debit} and block are in the chain of {whose}, head {history.audit.head}"


def confirm_by_coordinator(history: CoordinatorHistory, release: PublishedRelease, *, manifest: bytes) -> str:
    """Check a release against its coordinator's history, and report. Raises VerificationError."""
    _require(history.signer == release.coordinator, "the coordinator's audit is signed with another key")
    recorded = {
        (event.kind, event.party, event.document) for event in history.entries if event.release == release.release
    }
    due = {
        ("proposal", None, release.release),
        ("published", None, sha256(manifest).hexdigest()),
        *(("approval", party, envelope.digest) for party, envelope in release.manifest.approvals.items()),
        *(("block", party, envelope.digest) for party, envelope in release.manifest.blocks.items()),
    }
    for party in release.spec.parties:
        known = party.verifying_key.fingerprint in history.members.get(party.name, ())
        _require(known, f"{party.name} never had the key that the release names, by the coordinator's chain")
    if mechanism_of(release.spec).interactive:
        _confirm_exchange(history, release)
    for kind, name, _ in sorted(due - recorded, key=str):
        by = f" by {name}" if name else ""
        raise VerificationError(f"the coordinator's chain does not hold this {kind}{by}", remedy=_REMEDY)
    return f"proposal, approvals, blocks and publication are in the coordinator's chain, head {history.chain.head}"


def _confirm_exchange(history: CoordinatorHistory, release: PublishedRelease) -> None:
    events = [event for event in history.entries if event.release == release.release]
    spec = open_spec(release.manifest.spec, [VerifyingKey.from_hex(release.manifest.proposer_key)])
    exchange = Exchange.of(spec, release.manifest.approvals)
    blocks = {n: decode(BlockStatement, found.payload_bytes) for n, found in release.manifest.blocks.items()}
    sent = {kind: [event for event in events if event.kind == kind] for kind in ("columns", "reply")}
    parties = sorted(blocks)
    for kind, found in sent.items():
        once = sorted(event.party or "" for event in found) == parties
        _require(once, f"the coordinator's chain does not hold one {kind} by each member")
    columns, replies = ({event.party or "": event.document or "" for event in found} for found in sent.values())
    seen = recorded_transcript(exchange, columns=columns, replies=replies)
    same = all(block.transcript == seen for block in blocks.values())
    _require(same, "the blocks do not rely on the exchange in the coordinator's chain")


def _keys(audit: PartyAudit, present: VerifyingKey) -> tuple[VerifyingKey, ...]:
    keys = [present]
    for request in reversed(audit.rotations):
        old = VerifyingKey.from_hex(decode(Rotation, request.by_old.payload_bytes).old_key)
        rotation = open_rotation(request, party=audit.party, old_key=old).document
        _require(rotation.new_key == keys[-1].raw.hex(), "the rotations do not lead to the present key")
        keys.append(old)
    return tuple(keys)


def _check_document(
    envelope: Envelope, history: PartyHistory, *, kind: str
) -> Approval | BlockStatement | Rejection | RegressionResult:
    document = open_envelope(envelope, _SIGNED[kind], keys=history.keys).document
    entry = history.told.signed.get((document.spec, kind))
    if document.party != history.audit.party or entry is None or entry.digest != envelope.digest:
        raise VerificationError(
            f"a signed {kind} is about another member or release than the chain says", remedy=_REMEDY
        )
    before = history.told.places.get(document.ledger_head, entry.place) < entry.place
    _require(before, f"a signed {kind} names a ledger head that the chain never had")
    return document
