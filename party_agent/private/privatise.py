"""The one door from rows to what leaves for a release: a privatised block, or the rows that an exchange works on.

Both come from the snapshot of a data set under a committed debit that names it; a first stage reads it once more,
before, for the sums that the map of the rows follows from (docs/proofs/two-stages.md). Adversary of `privatise`:
readers of the block, that is everybody. They see integers that are the mixed rows plus Gaussian noise on a lattice;
what they learn about one subject's values is bounded by the charge that was debited before. What becomes of exchanged
rows is told in `kept_rows`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from commingle.party_agent.private.charge import CommittedCharge
from commingle.party_agent.private.engine import IN_PROCESS, Engine, Progress
from commingle.party_agent.private.mixing import KeyedRows, Mixed, Mixing, NamedRows, SummingColumns
from commingle.party_agent.private.snapshot import Snapshot
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.documents.statements import Sums
from commingle.shared.dp.noise import Sampler
from commingle.shared.mechanisms.registry import mechanism_of
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
        """How often the snapshot is read."""
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
        """All of them, for callers that have room for them."""
        return np.concatenate(list(self.pieces))


def privatise(
    snapshot: Snapshot,
    request: BlockRequest,
    *,
    charge: CommittedCharge,
    draw: Sampler,
    progress: Progress = lambda _: None,
) -> PrivateBlock:
    """The block of one party, mixed rows plus noise, and the noisy sums that its rows were mapped by.

    Guarantee: a Gaussian loss of the rho of `charge`, in the unit of the subjects (docs/proofs/noise-and-accounting.md;
    of two stages docs/proofs/two-stages.md, 4). Noise is drawn once, after the debit that `charge` stands for and after
    the last row of the reading that it is for.

    Args:
        snapshot: of the data set, of which the party's attributes are chosen in the spec's order.
        request: spec, share and plan.
        charge: the committed debit. It must cover the plan.
        draw: sampler of Gaussian noise on a lattice, seeded by the operating system.
        progress: told the rows read.

    Raises:
        LostError: the snapshot is gone or damaged; no noise has been drawn then.
        ValueError: the charge does not cover the plan, or is for another snapshot; or parties exchange rows first
            (faults of the caller).
    """
    if mechanism_of(request.spec).interactive:
        raise ValueError("the block of an interactive release comes from its exchange")
    mixing, parts, sums = _mix_rows(snapshot, request, charge=charge, draw=draw, progress=progress)
    mixed, mechanism = mixing.total(parts), mechanism_of(request.spec)
    mixed += mechanism.noise(request.spec, request.party, sigma=request.plan.sigma, draw=draw)
    return PrivateBlock(mixed, sums)


def exchanged_rows(
    snapshot: Snapshot,
    request: BlockRequest,
    *,
    charge: CommittedCharge,
    draw: Sampler,
    progress: Progress = lambda _: None,
) -> ExchangedRows:
    """The bounded rows of one party, from the last reading of its snapshot for this release; and their sums.

    Args:
        snapshot: of the data set, of which the party's attributes are chosen in the spec's order.
        request: spec, share and plan.
        charge: the committed debit. It must cover the plan.
        draw: as for `privatise`; of the sums only.
        progress: told the rows read.

    Raises:
        LostError: the snapshot is gone or damaged.
        ValueError: the charge does not cover the plan, or is for another snapshot; or parties exchange nothing (faults
            of the caller).
    """
    if not mechanism_of(request.spec).interactive:
        raise ValueError("only an interactive release has an exchange")
    mixing, parts, sums = _mix_rows(snapshot, request, charge=charge, draw=draw, progress=progress)
    return ExchangedRows(mixing.in_order(parts), sums)


def _mix_rows(
    snapshot: Snapshot, request: BlockRequest, *, charge: CommittedCharge, draw: Sampler, progress: Progress
) -> tuple[Mixing, Iterator[Mixed], Sums | None]:
    """What the mechanism makes of each partition's rows, not private yet, and the first stage's sums.

    Raises:
        LostError: the snapshot is gone or damaged; no noise has been drawn then, or only that of sums which go nowhere.
            Reading the parts raises it, too: none may be used before the last.
        ValueError: the charge does not cover the plan, or is for another snapshot (faults of the caller).
    """
    if charge.rho_units < request.plan.loss.units or charge.snapshot != snapshot.digest:
        raise ValueError("the charge does not cover the block")
    spec, party = request.spec, request.party
    engine, parts = _named_rows(snapshot, request, charge.release)
    sums, read = None, 0

    def told(rows: int) -> None:
        nonlocal read
        read = rows
        progress(rows)

    if (stage := request.plan.first_stage) is not None:
        exact = np.zeros(stage.size, np.int64)
        for _, part in engine.run(SummingColumns(stage), parts, told):
            exact += part
        sums = tuple((exact + stage.noise(draw)).tolist())
    before, mixing = read, Mixing(spec, party.name, sums)
    mixed = engine.run(mixing, parts, lambda seen: progress(before + seen))
    return mixing, (part for _, part in mixed), sums


def _named_rows(snapshot: Snapshot, request: BlockRequest, release: str) -> tuple[Engine, Sequence[NamedRows]]:
    """What is read, and where. Keyed subjects are named here: the linkage key is not for workers.

    Raises:
        LostError: the snapshot is gone or damaged.
    """
    if request.spec.keyed:
        if request.linkage_key is None:
            raise ValueError("keyed subjects have no names without the linkage key")
        return IN_PROCESS, [KeyedRows(snapshot, request.linkage_key, release)]
    if snapshot.n != request.spec.n:
        raise ValueError("another number of subjects was approved")
    return snapshot.engine, snapshot.parts()
