"""One checked reading of a table, for the two functions that may let something of it out."""

from collections.abc import Callable

import numpy as np
from commingle.party_agent.private.request import BlockRequest, CommittedCharge
from numpy.typing import NDArray

from commingle.party_agent.errors import DataChangedError
from commingle.party_agent.private.table import Progress, Table
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.dp.fixed_point import clip_rows, coarsen, squared_row_limit
from commingle.shared.dp.whitening import WHITENED_LIMIT
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
    bounded = bounded_rows(spec, party)
    accumulator = mechanism_of(spec).accumulator(spec, len(request.plan.columns))
    start = 0
    for batch in table.batches(charge.table, progress):
        end = start + len(batch.subjects)
        if end > spec.n:
            raise DataChangedError("the number of subjects has changed", remedy="Register the changed table again.")
        rows = np.hstack([batch.attributes[a.name] for a in party.attributes])
        accumulator.add(ranks[start:end], bounded(rows))
        start = end
    return accumulator.total()


def bounded_rows(spec: ReleaseSpec, party: PartySpec) -> Callable[[NDArray[np.int64]], NDArray[np.int64]]:
    """Encoded rows (m x d) to the rows whose distances `squared_sensitivity` bounds: whitened, then clipped."""
    bits = spec.fraction_bits
    if party.row_norm is None:
        return lambda rows: coarsen(rows, bits)
    limit = squared_row_limit(party.row_norm, bits)
    if party.whitening is None:
        return lambda rows: clip_rows(coarsen(rows, bits), limit)
    whiten = party.whitening.integer_map().rows
    return lambda rows: clip_rows(whiten(rows), limit, largest=WHITENED_LIMIT)
