"""What a table contained, as digests. Holds no row and stays on the party's machine."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256


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
