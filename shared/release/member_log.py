"""The log of member keys: which key a coordinator has ever had for which member, in a chain of its own.

A coordinator could invent a member, or a key for one, and everything signed with it would verify. It cannot do so
unseen: a release names keys that must be in this log, each entry holds the digest of the one before, and whoever kept
an earlier log notices one that does not continue it. A member sees whether a key was entered in its name.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Generic, Literal, TypeAlias, TypeVar

from pydantic import AwareDatetime

from commingle.shared.documents.dsse import Verified
from commingle.shared.documents.errors import require
from commingle.shared.documents.keys import Fingerprint
from commingle.shared.documents.model import Digest, Name, decode
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.release.charge import GENESIS, ExportedChain, Link, first_altered, link_digest, link_text

Change = Literal["enrolment", "rotation", "revocation", "departure"]
_REMEDY = "Do not use this coordinator; keep both logs and show them to the members they name."
_require = partial(require, remedy=_REMEDY)


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
    """What a history has told so far: the keys of each member, and all keys that ever were.

    Attributes:
        left: those of them who ended it themselves.
    """

    keys: dict[str, list[str]] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    revoked: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)

    def follow(self, kind: str, party: str, key: str) -> bool:
        """Go on by one change: enrolment, rotations to keys nobody had before, an end. False if it is none.

        Who left can be enrolled again, with the key it left with.
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
    """A coordinator's chain that holds together, and the memberships that it tells.

    Attributes:
        chain: as it was exported.
        signer: fingerprint of the key it is signed with.
        members: fingerprints of the keys each member had, the present one last.
    """

    chain: Chain
    signer: Fingerprint
    entries: tuple[Entry, ...]
    members: Mapping[str, tuple[str, ...]]
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

    Args:
        opened: the chain, its signature verified.
        kind: of its entries.
        follow: goes on by one entry; False if it cannot be.
        called: what errors call the chain.
        require: refuses what does not hold.
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

    Args:
        data: JSON of a signed document.
        trusted_coordinator: fingerprint of the key it must be signed with; None accepts any.

    Raises:
        VerificationError, SignatureError, DocumentError: naming the first thing that does not hold.
    """
    opened = decode(SignedDocument, data).open(MemberLog)
    _require(trusted_coordinator in {None, opened.signer}, "the log of member keys is signed by another coordinator")
    return verify_chain(
        opened,
        KeyEntry,
        lambda known, entry: known.follow(entry.kind, entry.party, entry.key),
        called="log of member keys",
        require=_require,
    )


def require_continues(earlier: VerifiedLog, later: VerifiedLog) -> None:
    """Check that a log goes on from an earlier one of the same coordinator. Raises VerificationError."""
    same = later.chain.entries[: len(earlier.entries)] == earlier.chain.entries
    _require(same, "the log of member keys does not continue the one seen before: its history was rewritten")


def require_pinned(known: VerifiedLog, members: Mapping[str, str]) -> None:
    """Check that members of these names have or had the keys with these fingerprints. Raises VerificationError."""
    for name, key in members.items():
        listed = key in known.members.get(name, (key,))
        _require(listed, f"{name} is pinned with key {key}, which the log of member keys never had for it")


def confirm_by_log(known: VerifiedLog, spec: ReleaseSpec) -> str:
    """Check that a release names only keys of the log, and say so. Raises VerificationError."""
    for party in spec.parties:
        listed = party.verifying_key.fingerprint in known.members.get(party.name, ())
        _require(listed, f"the log of member keys never had the key that the release names for {party.name}")
    return f"every member's key is in the coordinator's log of member keys, head {known.chain.head}"
