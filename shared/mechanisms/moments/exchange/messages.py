"""Messages of an exchange as bytes that were received and are what their party signed: where what lies in them.

Columns: public key, then for each segment of rows its ciphertexts, block by block, and the proof of the segment; of the
last party nothing. A reply: for each owner the evaluator's columns, then the proofs of the reply. Where bounds are
trusted, proofs are empty.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, overload

from commingle.shared.mechanisms.moments.exchange.terms import Exchange
from commingle.shared.proving.ciphertexts import segments
from commingle.shared.proving.lengths import column_proofs, reply_proofs
from commingle.shared.ring.parameters import byte_count


class Stored(Protocol):
    """A whole message, or a file that holds it: its bytes, and parts of them."""

    def __len__(self) -> int: ...
    def __getitem__(self, part: slice, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Pieces(Sequence[bytes]):
    """Parts of a message, each read when it is asked for.

    Attributes:
        whole: the message.
        places: start and stop of each.
    """

    whole: Stored
    places: tuple[tuple[int, int], ...]

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> "Pieces": ...
    def __getitem__(self, index: int | slice) -> "bytes | Pieces":
        """One part, or some of them."""
        if isinstance(index, slice):
            return Pieces(self.whole, self.places[index])
        start, stop = self.places[index]
        return self.whole[start:stop]

    def __len__(self) -> int:
        """How many."""
        return len(self.places)

    @classmethod
    def of(cls, whole: Stored, sizes: Sequence[int], start: int = 0) -> "Pieces":
        """Parts of these sizes, one after the other."""
        ends = [start]
        for size in sizes:
            ends.append(ends[-1] + size)
        return cls(whole, tuple(pairwise(ends)))


@dataclass(frozen=True, slots=True)
class Segment:
    """Some of a party's encrypted rows.

    Attributes:
        rows: start and stop.
        blocks: their ciphertexts.
        proof: of them; none where nothing is proved.
    """

    rows: tuple[int, int]
    blocks: Pieces
    proof: Pieces


@dataclass(frozen=True, slots=True)
class Columns:
    """What a party sent to all.

    Attributes:
        exchange: spec and approvals.
        party: whose columns they are.
        whole: of `Exchange.columns_size`.
    """

    exchange: Exchange
    party: str
    whole: Stored

    @property
    def public_key(self) -> bytes:
        """Of its key of this release."""
        return self.whole[: byte_count(self.exchange.layout(self.party).key_shape)]

    @property
    def blocks(self) -> Pieces:
        """All ciphertexts, in order."""
        return Pieces(self.whole, tuple(place for segment in self.segments() for place in segment.blocks.places))

    def segments(self) -> Iterator[Segment]:
        """What is proved together."""
        layout = self.exchange.layout(self.party)
        at = byte_count(layout.key_shape)
        proofs = column_proofs(layout) if self.exchange.proved else [0] * len(list(segments(layout)))
        for (start, stop), proof in zip(segments(layout), proofs, strict=True):
            held = [block for block in layout.blocks() if start <= block[0] < stop]
            blocks = Pieces.of(self.whole, [byte_count(layout.block_shape(*block)) for block in held], at)
            at = blocks.places[-1][1] + proof
            yield Segment((start, stop), blocks, Pieces.of(self.whole, [proof], at - proof))


@dataclass(frozen=True, slots=True)
class Reply:
    """What an evaluator replied to all parties before it.

    Attributes:
        exchange: spec and approvals.
        party: the evaluator.
        whole: of `Exchange.reply_size`.
    """

    exchange: Exchange
    party: str
    whole: Stored

    def columns(self, owner: str) -> Pieces:
        """To one owner, for each of the evaluator's columns."""
        exchange, count = self.exchange, self.exchange.columns(self.party)
        start = sum(exchange.part_size(name, self.party) for name in exchange.owners(owner))
        return Pieces.of(self.whole, [exchange.part_size(owner, self.party) // count] * count, start)

    @property
    def proofs(self) -> Pieces:
        """Of all of it together."""
        exchange, owners = self.exchange, self.exchange.owners(self.party)
        layouts = [exchange.layout(owner) for owner in owners]
        sizes = reply_proofs(exchange.layout(self.party), layouts, encrypted=exchange.encrypts(self.party))
        return Pieces.of(self.whole, sizes, sum(exchange.part_size(owner, self.party) for owner in owners))
