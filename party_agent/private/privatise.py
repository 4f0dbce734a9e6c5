"""The one door from rows to what leaves for a release: a privatised block, or the rows that an exchange works on.

Both come from a checked reading of a table under a committed debit; a first stage takes one more, before it, for the
sums that the map of the rows follows from (docs/proofs/two-stages.md). Adversary of `privatise`: whoever reads the
block, that is everybody. They see integers that are the mixed rows plus Gaussian noise on a lattice; what they learn
about one subject's values is bounded by the charge that was debited before. What becomes of exchanged rows is told in
`kept_rows`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from commingle.party_agent.errors import SubjectsChangedError
from commingle.party_agent.private.digest import CommittedCharge
from commingle.party_agent.private.engine import IN_PROCESS, Engine, Progress
from commingle.party_agent.private.mixing import Mixed, Mixing, NamedRows, PresentRows, SummingColumns
from commingle.party_agent.private.sources import Table
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.documents.statements import Sums
from commingle.shared.dp.noise import Sampler
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.release.plan import BlockPlan


@dataclass(frozen=True, slots=True)
class BlockRequest:
    """What to privatise: a spec, one party's share of it, and the plan both imply.

    Attributes:
        linkage_key: the members', where subjects are keyed.
    """

    spec: ReleaseSpec
    party: PartySpec
    plan: BlockPlan
    linkage_key: bytes | None = field(default=None, repr=False)

    @property
    def readings(self) -> int:
        """How often the table is read."""
        return 1 if self.plan.first_stage is None else 2


@dataclass(frozen=True, slots=True)
class PrivateBlock:
    """What leaves once it is stored: a block (rows x columns integers), and a first stage's noisy sums.

    Neither is shown before: an attempt that is interrupted is drawn again, and one draw of each may be seen.
    """

    integers: NDArray[np.int64] = field(repr=False)
    sums: Sums | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class ExchangedRows:
    """Bounded rows, which never leave in the clear, and a first stage's noisy sums.

    Attributes:
        pieces: n x d integers, some rows at a time.
    """

    pieces: Iterable[NDArray[np.int64]] = field(repr=False)
    sums: Sums | None = field(repr=False)

    @property
    def integers(self) -> NDArray[np.int64]:
        """All of them, for whoever has room for them."""
        return np.concatenate(list(self.pieces))


def privatise(
    table: Table,
    request: BlockRequest,
    *,
    charge: CommittedCharge,
    draw: Sampler,
    progress: Progress = lambda _: None,
) -> PrivateBlock:
    """The block of one party, mixed rows plus noise, and the noisy sums that its rows were mapped by.

    Guarantee: a Gaussian loss of the rho of `charge` under replace_one (docs/proofs/noise-and-accounting.md; of two
    stages docs/proofs/two-stages.md, 4). Noise is drawn once, after the debit that `charge` stands for and after the
    last row of the reading that it is for.

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
    mixing, parts, sums = _mix_rows(table, request, charge=charge, draw=draw, progress=progress)
    mixed, mechanism = mixing.total(parts), mechanism_of(request.spec)
    mixed += mechanism.noise(request.spec, request.party, sigma=request.plan.sigma, draw=draw)
    return PrivateBlock(mixed, sums)


def exchanged_rows(
    table: Table,
    request: BlockRequest,
    *,
    charge: CommittedCharge,
    draw: Sampler,
    progress: Progress = lambda _: None,
) -> ExchangedRows:
    """The bounded rows of one party, from a checked reading of its table, the last of this release; and their sums.

    Args:
        table: the registered table, restricted to the party's attributes in the spec's order.
        request: spec, share and plan.
        charge: the committed debit. It must cover the plan.
        draw: as for `privatise`; of the sums only.
        progress: told the rows read.

    Raises:
        SubjectsChangedError: the table has other subjects than those that were debited.
        ValueError: the charge does not cover the plan, or parties exchange nothing (faults of the caller).
    """
    if not request.spec.interactive:
        raise ValueError("only an interactive release has an exchange")
    mixing, parts, sums = _mix_rows(table, request, charge=charge, draw=draw, progress=progress)
    return ExchangedRows(mixing.in_order(parts), sums)


def _mix_rows(
    table: Table, request: BlockRequest, *, charge: CommittedCharge, draw: Sampler, progress: Progress
) -> tuple[Mixing, Iterator[Mixed], Sums | None]:
    """What the mechanism makes of each partition's rows, not private yet, and the first stage's sums.

    Raises:
        SubjectsChangedError: the table has other subjects than those that were debited; no noise has been drawn then,
            or only that of sums which go nowhere. That of the parts, too: none may be used before the last.
        ValueError: the charge does not cover the plan (a fault of the caller).
    """
    if charge.rho_units < request.plan.charge.units:
        raise ValueError("the charge does not cover the block")
    spec, party = request.spec, request.party
    engine, partitions = _named_rows(table, request, charge)
    sums, read = None, 0

    def told(rows: int) -> None:
        nonlocal read
        read = rows
        progress(rows)

    if (stage := request.plan.first_stage) is not None:
        exact = np.zeros(stage.size, np.int64)
        for _, part in engine.run(SummingColumns(stage), partitions, told):
            exact += part
        sums = tuple((exact + stage.noise(draw)).tolist())
    before, mixing = read, Mixing(spec, party.name, sums)
    mixed = engine.run(mixing, partitions, lambda seen: progress(before + seen))
    return mixing, (part for _, part in mixed), sums


def _named_rows(table: Table, request: BlockRequest, charge: CommittedCharge) -> tuple[Engine, Sequence[NamedRows]]:
    """What is read, and where. Keyed subjects are named here: the linkage key is not for workers.

    Raises:
        SubjectsChangedError: listed subjects are not those that were debited.
    """
    if request.spec.keyed:
        if request.linkage_key is None:
            raise ValueError("keyed subjects have no names without the linkage key")
        return IN_PROCESS, [PresentRows(table, request.linkage_key, charge.release)]
    ranked = table.ranked(charge.table)
    if sum(len(partition.ranks) for partition in ranked) != request.spec.n:
        raise SubjectsChangedError("the number of subjects has changed", remedy="Register the changed table again.")
    return table.engine, ranked
