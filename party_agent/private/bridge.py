"""The one function that turns rows into a privatised block.

Adversary: whoever reads the block, that is everybody. They see integers that are the mixed rows plus exact discrete
Gaussian noise; what they learn about one subject's values is bounded by the charge that was debited before.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from party_agent.errors import DataChangedError
from party_agent.private.digest import TableDigest
from party_agent.private.table import Progress, Table
from shared.privacy.fixed_point import clip_rows, squared_row_limit
from shared.privacy.noise import Sampler
from shared.protocol.mechanisms import mechanism_of
from shared.protocol.plan import BlockPlan
from shared.protocol.spec import PartySpec, ReleaseSpec


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


def privatise(
    table: Table,
    request: BlockRequest,
    *,
    charge: CommittedCharge,
    draw: Sampler,
    progress: Progress = lambda _: None,
) -> NDArray[np.int64]:
    """The block (rows x columns integers) of one party: mixed rows plus noise.

    Guarantee: rho-zCDP with the rho of `charge` under replace_one (docs/proofs/noise-and-accounting.md). Noise is drawn
    once, after the debit that `charge` stands for and after the last row was read.

    Args:
        table: the registered table, restricted to the party's attributes in the spec's order.
        request: spec, share and plan.
        charge: the committed debit. It must cover the plan.
        draw: exact discrete Gaussian sampler, seeded by the operating system.
        progress: told the rows read.

    Raises:
        DataChangedError: the table is not the one that was debited; no noise has been drawn then.
        ValueError: the charge does not cover the plan (a fault of the caller).
    """
    if charge.rho_units < request.plan.charge.units:
        raise ValueError("the charge does not cover the block")
    mixed = _mix(table, request, expected=charge.table, progress=progress)
    noise = draw(request.plan.sigma, mixed.size)
    mixed += noise.reshape(mixed.shape)
    return mixed


def _mix(table: Table, request: BlockRequest, *, expected: TableDigest, progress: Progress) -> NDArray[np.int64]:
    spec, party = request.spec, request.party
    ranks = table.ranks().by_row
    if len(ranks) != spec.n:
        raise DataChangedError("the number of subjects has changed", remedy="Register the changed table again.")
    limit = None if party.row_norm is None else squared_row_limit(party.row_norm)
    mixer = mechanism_of(spec).mixer(spec, len(request.plan.columns))
    start = 0
    for batch in table.batches(expected, progress):
        end = start + len(batch.subjects)
        if end > spec.n:
            raise DataChangedError("the number of subjects has changed", remedy="Register the changed table again.")
        rows = np.hstack([batch.attributes[a.name] for a in party.attributes])
        mixer.add(ranks[start:end], rows if limit is None else clip_rows(rows, limit))
        start = end
    return mixer.total()
