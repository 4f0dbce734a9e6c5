"""What may be read of a table, and the proof that it has been paid for. Holds no row."""

from dataclasses import dataclass
from typing import Protocol

from commingle.party_agent.private.digest import TableDigest
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.release.plan import BlockPlan


class CommittedCharge(Protocol):
    """Proof that the ledger has been debited; only the ledger makes one."""

    @property
    def release(self) -> str: ...
    @property
    def rho_units(self) -> int: ...
    @property
    def table(self) -> TableDigest: ...


@dataclass(frozen=True, slots=True)
class BlockRequest:
    """What to privatise: a spec, one party's share of it, and the plan both imply."""

    spec: ReleaseSpec
    party: PartySpec
    plan: BlockPlan
