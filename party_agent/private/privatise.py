"""The one door from rows to what leaves for a release: a privatised block, or masked rows (docs/adr/0011).

Both come from one checked reading of a table under a committed debit. Adversary of `privatise`: whoever reads the
block, that is everybody. They see integers that are the mixed rows plus Gaussian noise on a lattice; what they learn
about one subject's values is bounded by the charge that was debited before. Adversary of `mask_rows`: whoever lacks the
pad. U = X - A mod 2^64 is uniform whatever X is; the coordinator, which knows A, gets U encrypted for the parties only,
and the parties do not know A. Both together would see X.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commingle.party_agent.errors import SubjectsChangedError
from commingle.party_agent.private.digest import CommittedCharge
from commingle.party_agent.private.table import PrivateTable, Progress
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.dp.noise import Sampler
from commingle.shared.encoding import bounded_rows
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.mechanisms.moments.exchange.ring import Rows, Words, row_blocks
from commingle.shared.release.plan import BlockPlan


@dataclass(frozen=True, slots=True)
class BlockRequest:
    """What to privatise: a spec, one party's share of it, and the plan both imply."""

    spec: ReleaseSpec
    party: PartySpec
    plan: BlockPlan


def privatise(
    table: PrivateTable,
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
        draw: sampler of Gaussian noise on a lattice, seeded by the operating system.
        progress: told the rows read.

    Raises:
        SubjectsChangedError: the table has other subjects than those that were debited; no noise has been drawn then.
        ValueError: the charge does not cover the plan, or parties exchange rows first (faults of the caller).
    """
    if request.spec.interactive:
        raise ValueError("the block of an interactive release comes from its exchange")
    mixed = _mix_rows(table, request, charge=charge, progress=progress)
    mechanism = mechanism_of(request.spec)
    mixed += mechanism.noise(request.spec, request.party, sigma=request.plan.sigma, draw=draw)
    return mixed


def mask_rows(
    table: PrivateTable,
    request: BlockRequest,
    *,
    charge: CommittedCharge,
    pad: Rows,
    progress: Progress = lambda _: None,
) -> Words:
    """U = X - A (n x d words) of one party, from one checked reading of its table, the last of this release.

    Nothing is masked before the last row has been read and the subjects been found to be those that were debited. X
    is overwritten, row block by row block.

    Args:
        table: the registered table, restricted to the party's attributes in the spec's order.
        request: spec, share and plan.
        charge: the committed debit. It must cover the plan.
        pad: the party's pad A of this release, never used for another table or release.
        progress: told the rows read.

    Raises:
        SubjectsChangedError: the table has other subjects than those that were debited.
        ValueError: the charge does not cover the plan, or parties exchange nothing (faults of the caller).
    """
    if not request.spec.interactive:
        raise ValueError("only an interactive release has masked rows")
    words = _mix_rows(table, request, charge=charge, progress=progress).view(np.uint64)
    for start, stop in row_blocks(request.spec.n):
        words[start:stop] -= pad(start, stop)
    return words


def _mix_rows(
    table: PrivateTable, request: BlockRequest, *, charge: CommittedCharge, progress: Progress
) -> NDArray[np.int64]:
    """What the mechanism makes of the rows, not private yet (rows x columns integers).

    Raises:
        SubjectsChangedError: the table has other subjects than those that were debited.
        ValueError: the charge does not cover the plan (a fault of the caller).
    """
    if charge.rho_units < request.plan.charge.units:
        raise ValueError("the charge does not cover the block")
    spec, party = request.spec, request.party
    ranks = table.ranks(charge.table).by_row
    if len(ranks) != spec.n:
        raise SubjectsChangedError("the number of subjects has changed", remedy="Register the changed table again.")
    bounded = bounded_rows(party, spec.fraction_bits)
    accumulator = mechanism_of(spec).accumulator(spec, len(request.plan.columns))
    start = 0
    for batch in table.batches(charge.table, progress):
        end = start + len(batch.subjects)
        if end > spec.n:
            raise SubjectsChangedError("the number of subjects has changed", remedy="Register the changed table again.")
        rows = np.hstack([batch.attributes[a.name] for a in party.attributes])
        accumulator.add(ranks[start:end], bounded(rows))
        start = end
    return accumulator.total()
