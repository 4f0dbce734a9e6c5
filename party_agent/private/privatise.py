"""The one door from rows to what leaves for a release: a privatised block, or the rows that an exchange works on.

Both come from the snapshot of a data set under a committed debit that names it. A first stage reads the snapshot once
more, before, for the sums that the map of the rows follows from (docs/proofs/two-stages.md). Adversary of `privatise`:
readers of the block, that is everybody. They see integers that are the mixed rows plus Gaussian noise on a lattice; the
charge that was debited before bounds what they learn about one subject's values.

Rows of an exchange stay on the party's own disk while it runs, and never leave in the clear (`KeptRows`). Adversary:
all other parties and the coordinator together. They get the rows encrypted under a key of this release; replies in
which a fresh encryption of zero and a flood hide them, with noise inside (docs/proofs/linear-encryption.md); and proofs
of both that tell nothing else (docs/proofs/proved-bounds.md). On the disk the rows are encrypted under a key beside
them: who reads both reads rows, and once the key is removed nobody.

A worker that an engine mixes rows on is no adversary: it belongs to the party and reads its rows. It is given the
signed spec, which is public, the ranks of its rows, and the noisy sums of a first stage. What it gives back is not
private yet: exact integers that are linear in the rows, so that any partitions add up to the same block.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from commingle.party_agent.errors import LostError
from commingle.party_agent.private.engine import IN_PROCESS, Engine, Progress
from commingle.party_agent.private.snapshot import Debit, HeldRows, RankedRows, Snapshot
from commingle.party_agent.private.sorting import PlacedRows, nonce
from commingle.shared.documents.linkage import pseudonyms
from commingle.shared.documents.row_maps import row_map
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.documents.statements import Sums
from commingle.shared.dp.fixed_point import presence
from commingle.shared.dp.noise import Sampler
from commingle.shared.dp.two_stages import FirstStage
from commingle.shared.encoding import bounded_rows
from commingle.shared.errors import DomainError
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.mechanisms.interface import Names
from commingle.shared.mechanisms.moments.exchange.messages import Columns, Exchange, Reply
from commingle.shared.mechanisms.moments.exchange.products import (
    encrypted_columns,
    open_part,
    own_moments,
    reply_pieces,
)
from commingle.shared.release.checks import closed
from commingle.shared.release.plan import BlockPlan
from commingle.shared.ring.encryption import SEED_BYTES, Entropy, within_limits
from commingle.shared.runtime.files import write_durably

Mixed = tuple[Names, NDArray[np.integer]]
"""Names (m) and bounded rows (m x d); for a sketch no names, and what it makes of all rows of a partition (k x d)."""


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """All rows of a snapshot, each named by its pseudonym in one release. Not for workers: it holds the key."""

    snapshot: Snapshot
    linkage_key: bytes = field(repr=False)
    release: str

    def rows(self, progress: Progress) -> Iterator[tuple[Names, NDArray[np.int64]]]:
        """Pseudonyms (b, 32) and encoded rows (b x d) of each batch."""
        for subjects, rows in self.snapshot.records(progress):
            ids: list[Any] = subjects.to_pylist()
            yield pseudonyms(self.linkage_key, ids, spec_digest=self.release), rows


NamedRows = RankedRows | HeldRows | KeyedRows
"""Rows whose places are known."""


@dataclass(frozen=True, slots=True)
class SummingColumns:
    """A first stage's exact sums of a partition."""

    stage: FirstStage

    def __call__(self, partition: NamedRows, progress: Progress) -> Iterator[NDArray[np.int64]]:
        for _, rows in partition.rows(progress):
            yield self.stage.sums(rows)


@dataclass(frozen=True, slots=True)
class Mixing:
    """A mechanism's exact work on the rows of one party, before noise."""

    spec: ReleaseSpec
    party: str
    sums: Sums | None = field(repr=False)

    @property
    def _columns(self) -> int:
        return self.spec.terms.widths[self.party]

    def __call__(self, partition: NamedRows, progress: Progress) -> Iterator[Mixed]:
        """The rows of a partition, mapped and clipped; mixed if the mechanism sketches, so that little travels."""
        party, mechanism = self.spec.party(self.party), mechanism_of(self.spec)
        mapped = row_map(closed(self.spec), party, self.sums)
        clipped = bounded_rows(party, mapped, fraction_bits=self.spec.fraction_bits)

        def bounded(rows: NDArray[np.int64]) -> NDArray[np.int64]:
            return with_presence(clipped(rows), self.spec.fraction_bits) if self.spec.keyed else clipped(rows)

        if not mechanism.sketched:
            for names, rows in partition.rows(progress):
                yield names, bounded(rows).astype(np.int32)  # at most 2^15 each
            return
        sketch = mechanism.accumulator(self.spec.terms, self._columns)
        for names, rows in partition.rows(progress):
            sketch.add(names, bounded(rows))
        yield np.empty(0, np.int64), sketch.total()

    def total(self, parts: Iterable[Mixed]) -> NDArray[np.int64]:
        mechanism, terms = mechanism_of(self.spec), self.spec.terms
        if mechanism.sketched:
            block = np.zeros((mechanism.rows(terms), self._columns), np.int64)
            for _, part in parts:
                block += part
            return block
        rows = mechanism.accumulator(terms, self._columns)
        for names, part in parts:
            rows.add(names, part.astype(np.int64))
        return rows.total()

    def in_order(self, parts: Iterable[Mixed]) -> Iterable[NDArray[np.int64]]:
        """The rows (n x d) or buckets that parties exchange, some at a time, each in its place."""
        mechanism, terms = mechanism_of(self.spec), self.spec.terms
        window = partial(mechanism.window, terms, self._columns)
        rows = PlacedRows(terms.table_rows, partial(mechanism.places, terms), window)
        for names, part in parts:
            rows.add(names, part)
        return rows


def with_presence(rows: NDArray[np.int64], fraction_bits: int) -> NDArray[np.int64]:
    """Bounded rows (m x d) behind the presence of each: (m x (1 + d)). Presence is not clipped with the row."""
    return np.column_stack([np.full(len(rows), presence(fraction_bits), np.int64), rows])


@dataclass(frozen=True, slots=True)
class BlockRequest:
    """What to privatise: a spec, one party's share, the plan of both; the linkage key if people are keyed."""

    spec: ReleaseSpec
    party: PartySpec
    plan: BlockPlan
    linkage_key: bytes | None = field(default=None, repr=False)

    @property
    def readings(self) -> int:
        return 1 if self.plan.first_stage is None else 2


@dataclass(frozen=True, slots=True)
class PrivateBlock:
    """What leaves once it is stored: a block (rows x columns), and a first stage's noisy sums.

    Neither is shown before: an interrupted attempt is drawn again, and only one draw of each may be seen.
    """

    integers: NDArray[np.int64] = field(repr=False)
    sums: Sums | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class ExchangedRows:
    """Bounded rows (n x d), some at a time, which never leave in the clear, and a first stage's noisy sums."""

    pieces: Iterable[NDArray[np.int64]] = field(repr=False)
    sums: Sums | None = field(repr=False)

    @property
    def integers(self) -> NDArray[np.int64]:
        return np.concatenate(list(self.pieces))


def privatise(
    snapshot: Snapshot, request: BlockRequest, *, charge: Debit, draw: Sampler, progress: Progress = lambda _: None
) -> PrivateBlock:
    """The block of one party, mixed rows plus noise, and the noisy sums that its rows were mapped by.

    Guarantee: a Gaussian loss of the rho of `charge`, in the unit of the subjects (docs/proofs/noise-and-accounting.md;
    of two stages docs/proofs/two-stages.md, 4). Noise is drawn once, after the debit that `charge` stands for and after
    the last row of the reading that it is for.

    Args:
        snapshot: the data set's, with the party's attributes chosen in the spec's order.
        request: spec, share and plan.
        charge: the committed debit. It must cover the plan.
        draw: sampler of Gaussian noise on a lattice, seeded by the operating system.
        progress: takes the number of rows read.

    Raises:
        LostError: the snapshot is gone or damaged; no noise has been drawn then.
        ValueError: the charge does not cover the plan, or is for another snapshot; or the mechanism is for the other
            function (faults of the caller).
    """
    if mechanism_of(request.spec).interactive:
        raise ValueError("the block of an interactive release comes from its exchange")
    mixing, parts, sums = _mix_rows(snapshot, request, charge=charge, draw=draw, progress=progress)
    mixed, mechanism = mixing.total(parts), mechanism_of(request.spec)
    mixed += mechanism.noise(request.spec.terms, request.party, sigma=request.plan.sigma, draw=draw)
    return PrivateBlock(mixed, sums)


def exchanged_rows(
    snapshot: Snapshot, request: BlockRequest, *, charge: Debit, draw: Sampler, progress: Progress = lambda _: None
) -> ExchangedRows:
    """The bounded rows of one party, from the last reading of its snapshot for this release; and their sums.

    Arguments and errors are those of `privatise`; noise is drawn for the sums only.
    """
    if not mechanism_of(request.spec).interactive:
        raise ValueError("only an interactive release has an exchange")
    mixing, parts, sums = _mix_rows(snapshot, request, charge=charge, draw=draw, progress=progress)
    return ExchangedRows(mixing.in_order(parts), sums)


def _mix_rows(
    snapshot: Snapshot, request: BlockRequest, *, charge: Debit, draw: Sampler, progress: Progress
) -> tuple[Mixing, Iterator[Mixed], Sums | None]:
    """What the mechanism makes of each partition's rows, not private yet, and the first stage's sums.

    If the snapshot is lost, no noise has been drawn, or only for sums that go nowhere. Reading the parts may show that,
    too: use none before the last.
    """
    if charge.rho_units < request.plan.loss.units or charge.snapshot != snapshot.digest:
        raise ValueError("the charge does not cover the block")
    spec, party = request.spec, request.party
    engine, parts = _named_rows(snapshot, request, charge.release)
    sums, read = None, 0
    if (stage := request.plan.first_stage) is not None:
        exact = np.zeros(stage.size, np.int64)
        for _, part in engine.run(SummingColumns(stage), parts, progress):
            exact += part
        sums, read = tuple((exact + stage.noise(draw)).tolist()), snapshot.n
    mixing = Mixing(spec, party.name, sums)
    mixed = engine.run(mixing, parts, lambda seen: progress(read + seen))
    return mixing, (part for _, part in mixed), sums


def _named_rows(snapshot: Snapshot, request: BlockRequest, release: str) -> tuple[Engine, Sequence[NamedRows]]:
    if request.spec.keyed:  # named here: the linkage key is not for workers
        if request.linkage_key is None:
            raise ValueError("rows of keyed data sets have no names without the linkage key")
        return IN_PROCESS, [KeyedRows(snapshot, request.linkage_key, release)]
    if snapshot.where:
        raise ValueError("a list of people has no subset")
    if snapshot.n != request.spec.n:
        raise ValueError("another number of people was approved")
    return snapshot.engine, snapshot.parts()


_BLOCK = 4096  # rows
_TAG = 16


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The rows of one party in one exchange (n x d), and what it makes of them.

    `secret` is 32 bytes of the operating system, for this set of rows alone.
    """

    exchange: Exchange
    party: str
    path: Path
    secret: bytes = field(repr=False)

    def keep(self, pieces: Iterable[NDArray[np.int64]]) -> None:
        """Store the rows (n x d) durably, some at a time: multiples of 4096 but for the last.

        Raises:
            DomainError: they are of another shape, or an entry is beyond 2^14 and would wrap.
            OSError: the disk is full.
        """
        write_durably(self.path, self._sealed(pieces))

    def _sealed(self, pieces: Iterable[NDArray[np.int64]]) -> Iterator[bytes]:
        rows, columns, kept = self.exchange.terms.table_rows, self.exchange.width(self.party), 0
        for piece in pieces:
            whole = len(piece) if kept + len(piece) == rows else len(piece) - len(piece) % _BLOCK
            words = within_limits(piece, (whole, columns)).astype("<i2")
            for start in range(0, whole, _BLOCK):
                yield self._cipher().encrypt(
                    nonce((kept + start) // _BLOCK), words[start : start + _BLOCK].tobytes(), None
                )
            kept += whole
        if kept != rows:
            raise DomainError(f"{rows} rows are asked for, not {kept}")

    def __call__(self, start: int, stop: int) -> NDArray[np.int16]:
        """Rows start..stop. Raises LostError: they are gone or damaged."""
        first = start - start % _BLOCK
        columns, found = self.exchange.width(self.party), []
        try:
            with self.path.open("rb") as file:
                file.seek(first // _BLOCK * (_BLOCK * columns * 2 + _TAG))
                for place in range(first, stop, _BLOCK):
                    count = min(_BLOCK, self.exchange.terms.table_rows - place)
                    found.append(
                        self._cipher().decrypt(nonce(place // _BLOCK), file.read(count * columns * 2 + _TAG), None)
                    )
        except (FileNotFoundError, InvalidTag):
            raise LostError("the rows of an exchange are lost", remedy="Check the disk of the member's home.") from None
        rows = np.frombuffer(b"".join(found), "<i2").reshape(-1, columns)
        return rows[start - first : stop - first].astype(np.int16, copy=False)

    def encrypted(self, entropy: Entropy) -> Iterator[bytes]:
        """What this party encrypts for others (`products.encrypted_columns`). Made once."""
        return encrypted_columns(self.exchange, party=self.party, seed=self.key_for("ring"), rows=self, entropy=entropy)

    def reply(
        self, own: Columns, owners: Mapping[str, Columns], noise: Callable[[str], NDArray[np.int64]], entropy: Entropy
    ) -> Iterator[bytes]:
        """What this party replies to those before it (`products.reply_pieces`). Made once."""
        return reply_pieces(own, owners, seed=self.key_for("ring"), rows=self, noise=noise, entropy=entropy)

    def open(self, reply: Reply, *, largest: int) -> NDArray[np.int64]:
        """The reply of a party after this one (`products.open_part`)."""
        return open_part(reply, owner=self.party, seed=self.key_for("ring"), largest=largest)

    def moments(self) -> NDArray[np.int64]:
        """This party's own (`products.own_moments`), without noise: secret."""
        return own_moments(self.exchange, party=self.party, rows=self)

    def _cipher(self) -> AESGCM:
        return AESGCM(self.key_for("rows"))

    def key_for(self, purpose: str) -> bytes:
        """A key of this party in this exchange, for the rows on its disk or for the ring."""
        return HKDF(SHA256(), SEED_BYTES, salt=None, info=self.exchange.info(purpose, self.party)).derive(self.secret)
