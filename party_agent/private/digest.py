"""Whose rows a table has, and the proof that reading them was paid for. Holds no row; stays at the party."""

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class TableDigest:
    """Whose rows a table has and in which order. Says nothing of their values, and never leaves the agent.

    Attributes:
        subjects: digest of the subject ids in the order of the source.
    """

    subjects: str = field(repr=False)


NO_TABLE = TableDigest("")
"""No reading has it: a debit with it lets nobody read rows."""


class CommittedCharge(Protocol):
    """Proof that the ledger has been debited; only the ledger makes one."""

    @property
    def release(self) -> str: ...
    @property
    def rho_units(self) -> int: ...
    @property
    def table(self) -> TableDigest: ...
