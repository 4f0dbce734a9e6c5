"""What a table contained, as digests, and the proof that reading it was paid for. Holds no row; stays at the party."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Protocol


@dataclass(frozen=True, slots=True)
class TableDigest:
    """What a table contained when it was read: never leaves the agent.

    Attributes:
        subjects: digest of the subject ids in the order of the source.
        attributes: per attribute, digest of its encoded integers in that order.
    """

    subjects: str = field(repr=False)
    attributes: Mapping[str, str] = field(repr=False)

    def covers(self, other: "TableDigest") -> bool:
        """Whether `other`, a reading of some of the attributes, saw the same rows."""
        same = all(self.attributes.get(name) == digest for name, digest in other.attributes.items())
        return same and self.subjects == other.subjects

    def of(self, attributes: Iterable[str]) -> str:
        """One digest, hex, of the subjects and some of the attributes."""
        return sha256(
            "".join([self.subjects, *(self.attributes.get(name, "") for name in attributes)]).encode()
        ).hexdigest()


NO_TABLE = TableDigest("", {})
"""Covers no reading: a debit with it lets nobody read rows."""


class CommittedCharge(Protocol):
    """Proof that the ledger has been debited; only the ledger makes one."""

    @property
    def release(self) -> str: ...
    @property
    def rho_units(self) -> int: ...
    @property
    def table(self) -> TableDigest: ...
