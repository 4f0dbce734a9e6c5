"""One checked reading of a table, for the two functions that may let something of it out."""

import numpy as np
from numpy.typing import NDArray

from commingle.party_agent.errors import DataChangedError
from commingle.party_agent.private.request import BlockRequest, CommittedCharge
from commingle.party_agent.private.table import Progress, Table
from commingle.shared.encoding import bounded_rows
from commingle.shared.mechanisms import mechanism_of


def mixed_rows(
    table: Table, request: BlockRequest, *, charge: CommittedCharge, progress: Progress
) -> NDArray[np.int64]:
    """What the mechanism makes of the rows, not private yet (rows x columns integers).

    Raises:
        DataChangedError: the table is not the one that was debited.
        ValueError: the charge does not cover the plan (a fault of the caller).
    """
    if charge.rho_units < request.plan.charge.units:
        raise ValueError("the charge does not cover the block")
    spec, party = request.spec, request.party
    ranks = table.ranks().by_row
    if len(ranks) != spec.n:
        raise DataChangedError("the number of subjects has changed", remedy="Register the changed table again.")
    bounded = bounded_rows(party, spec.fraction_bits)
    mixer = mechanism_of(spec).mixer(spec, len(request.plan.columns))
    start = 0
    for batch in table.batches(charge.table, progress):
        end = start + len(batch.subjects)
        if end > spec.n:
            raise DataChangedError("the number of subjects has changed", remedy="Register the changed table again.")
        rows = np.hstack([batch.attributes[a.name] for a in party.attributes])
        mixer.add(ranks[start:end], bounded(rows))
        start = end
    return mixer.total()
