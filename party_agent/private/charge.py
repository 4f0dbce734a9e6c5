"""The proof that reading a snapshot was paid for."""

from typing import Protocol

NO_SNAPSHOT = ""
"""A debit that names it lets nobody read rows."""


class CommittedCharge(Protocol):
    """Proof that the ledger has been debited; only the ledger makes one."""

    @property
    def release(self) -> str: ...
    @property
    def rho_units(self) -> int: ...
    @property
    def snapshot(self) -> str: ...
