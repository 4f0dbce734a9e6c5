"""The function that turns rows into a privatised block; where parties exchange first, `masking` reads them instead.

Adversary: whoever reads the block, that is everybody. They see integers that are the mixed rows plus exact discrete
Gaussian noise; what they learn about one subject's values is bounded by the charge that was debited before.
"""

import numpy as np
from numpy.typing import NDArray

from commingle.party_agent.private.mixing import mixed_rows
from commingle.party_agent.private.request import BlockRequest, CommittedCharge
from commingle.party_agent.private.table import Progress, Table
from commingle.shared.dp.noise import Sampler
from commingle.shared.mechanisms import mechanism_of


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
        ValueError: the charge does not cover the plan, or parties exchange rows first (faults of the caller).
    """
    if request.spec.interactive:
        raise ValueError("the block of an interactive release comes from its exchange")
    mixed = mixed_rows(table, request, charge=charge, progress=progress)
    mechanism = mechanism_of(request.spec)
    mixed += mechanism.noise(request.spec, request.party, sigma=request.plan.sigma, draw=draw)
    return mixed
