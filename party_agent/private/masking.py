"""The function that turns rows into masked rows, where parties exchange these before there is a block (docs/adr/0011).

Adversary: whoever lacks the pad. U = X - A mod 2^64 is uniform whatever X is; the coordinator, which knows A, gets U
encrypted for the parties only, and the parties do not know A. Both together would see X.
"""

import numpy as np

from commingle.party_agent.private.mixing import mixed_rows
from commingle.party_agent.private.request import BlockRequest, CommittedCharge
from commingle.party_agent.private.table import Progress, Table
from commingle.shared.mechanisms.moments.exchange.ring import Rows, Words, row_blocks


def mask_rows(
    table: Table,
    request: BlockRequest,
    *,
    charge: CommittedCharge,
    pad: Rows,
    progress: Progress = lambda _: None,
) -> Words:
    """U = X - A (n x d words) of one party, from one checked reading of its table, the last of this release.

    Nothing is masked before the last row has been read and the table been found to be the one that was debited. X is
    overwritten, row block by row block.

    Args:
        table: the registered table, restricted to the party's attributes in the spec's order.
        request: spec, share and plan.
        charge: the committed debit. It must cover the plan.
        pad: the party's pad A of this release, never used for another table or release.
        progress: told the rows read.

    Raises:
        DataChangedError: the table is not the one that was debited.
        ValueError: the charge does not cover the plan, or parties exchange nothing (faults of the caller).
    """
    if not request.spec.interactive:
        raise ValueError("only an interactive release has masked rows")
    words = mixed_rows(table, request, charge=charge, progress=progress).view(np.uint64)
    for start, stop in row_blocks(request.spec.n):
        words[start:stop] -= pad(start, stop)
    return words
