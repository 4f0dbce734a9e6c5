"""What an exchange is about, who sends what, and its messages: bytes that were received and that their party signed.

Columns: public key, then for each segment of rows its ciphertexts, block by block, and the proof of the segment; of the
last party nothing. A reply: for each owner the evaluator's columns, then the proofs of the reply. Where bounds are
trusted, proofs are empty.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol, Self, overload

from commingle.shared.documents.dsse import Envelope, Verified
from commingle.shared.documents.errors import ExchangeError
from commingle.shared.documents.row_maps import row_bound
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import Approval, approval_set_digest, open_approvals
from commingle.shared.documents.terms import Terms
from commingle.shared.mechanisms.moments.exchange.sizes import Sizes
from commingle.shared.mechanisms.registry import mechanism_of
from commingle.shared.proving.ciphertexts import segments
from commingle.shared.proving.lengths import column_proofs, reply_proofs
from commingle.shared.ring.parameters import Layout, byte_count

_CONTEXT = b"commingle/v2/exchange"


@dataclass(frozen=True)
class Exchange:
    """The verified spec of an interactive release and every party's verified approval of it."""

    spec: Verified[ReleaseSpec]
    approvals: Mapping[str, Verified[Approval]]

    @classmethod
    def of(cls, spec: Verified[ReleaseSpec], approvals: Mapping[str, Envelope]) -> Self:
        """The exchange after every party has approved.

        Raises:
            ExchangeError: the release is of a kind without an exchange.
            DocumentError, SignatureError: an approval is missing or forged.
        """
        if not mechanism_of(spec.document).interactive:
            raise ExchangeError("this release needs no exchange", remedy="Upload the block.")
        return cls(spec, open_approvals(approvals, spec))

    @property
    def terms(self) -> Terms:
        return self.spec.document.terms

    @property
    def parties(self) -> tuple[str, ...]:
        """Names in the spec's order, which decides who owns and who evaluates."""
        return tuple(party.name for party in self.spec.document.parties)

    @property
    def approved(self) -> str:
        return approval_set_digest(self.approvals)

    def owners(self, party: str) -> tuple[str, ...]:
        """Whose columns that party multiplies with its own: all before it."""
        return self.parties[: self.parties.index(party)]

    def evaluators(self, party: str) -> tuple[str, ...]:
        """Who replies to that party: all after it."""
        return self.parties[self.parties.index(party) + 1 :]

    def encrypts(self, party: str) -> bool:
        """Whether others multiply that party's columns: those of all but the last."""
        return party != self.parties[-1]

    def senders(self, party: str) -> tuple[str, ...]:
        """Whose columns that party works with, its own too.

        A proof of replies is about all columns that they are made of, so where there are proofs everybody reads all.
        """
        read = self.parties[:-1] if self.proved else self.owners(party)
        return tuple(dict.fromkeys((*read, party)))

    def width(self, party: str) -> int:
        """How many columns that party's rows have, their presence among them."""
        return self.sizes.layouts[self.parties.index(party)].columns

    def layout(self, owner: str) -> Layout:
        """The layout of that party's ciphertexts: no other release, and no other set of approvals, has the same."""
        return Layout(self.info("columns", owner), self.terms.table_rows, self.width(owner))

    @property
    def proved(self) -> bool:
        """Whether everybody proves that its rows are within bounds and its replies are evaluations of them."""
        return self.terms.proved

    def bound(self, party: str) -> int:
        """The largest squared norm of a row of that party, in steps."""
        return row_bound(self.terms, self.spec.document.party(party))

    @cached_property
    def sizes(self) -> Sizes:
        return Sizes.of(self.terms.table_rows, list(self.terms.widths.values()), proved=self.proved)

    def columns_size(self, party: str) -> int:
        """Bytes of its public key and ciphertexts, and a proof after each segment of rows; the last party has none."""
        return self.sizes.columns(self.parties.index(party))

    def part_size(self, owner: str, evaluator: str) -> int:
        """Bytes of what an evaluator replies to one owner: its columns one after the other."""
        return self.sizes.part(self.parties.index(owner), self.parties.index(evaluator))

    def reply_size(self, party: str) -> int:
        """Bytes of all that a party replies: the parts in the order of owners, then their proofs."""
        return self.sizes.reply(self.parties.index(party))

    def info(self, purpose: str, *facts: str | int) -> bytes:
        """What a hash of this exchange is for; different facts, different bytes."""
        return _CONTEXT + json.dumps([purpose, self.spec.digest, self.approved, *facts], separators=(",", ":")).encode()


class Stored(Protocol):
    """A whole message, or a file that holds it: its bytes, and parts of them."""

    def __len__(self) -> int: ...
    def __getitem__(self, part: slice, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Pieces(Sequence[bytes]):
    """Parts of a message, each read when it is asked for, by their starts and stops."""

    whole: Stored
    places: tuple[tuple[int, int], ...]

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> "Pieces": ...
    def __getitem__(self, index: int | slice) -> "bytes | Pieces":
        if isinstance(index, slice):
            return Pieces(self.whole, self.places[index])
        start, stop = self.places[index]
        return self.whole[start:stop]

    def __len__(self) -> int:
        return len(self.places)

    @classmethod
    def of(cls, whole: Stored, sizes: Sequence[int], start: int = 0) -> "Pieces":
        ends = [start]
        for size in sizes:
            ends.append(ends[-1] + size)
        return cls(whole, tuple(pairwise(ends)))


@dataclass(frozen=True, slots=True)
class Segment:
    """Some of a party's encrypted rows, from start to stop: their ciphertexts, and their proof, if there is one."""

    rows: tuple[int, int]
    blocks: Pieces
    proof: Pieces


@dataclass(frozen=True, slots=True)
class Columns:
    """What a party sent to all, of `Exchange.columns_size`."""

    exchange: Exchange
    party: str
    whole: Stored

    @property
    def public_key(self) -> bytes:
        return self.whole[: byte_count(self.exchange.layout(self.party).key_shape)]

    @property
    def blocks(self) -> Pieces:
        return Pieces(self.whole, tuple(place for segment in self.segments() for place in segment.blocks.places))

    def segments(self) -> Iterator[Segment]:
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
    """What an evaluator replied to all parties before it, of `Exchange.reply_size`."""

    exchange: Exchange
    party: str
    whole: Stored

    def columns(self, owner: str) -> Pieces:
        """To one owner, for each of the evaluator's columns."""
        exchange, count = self.exchange, self.exchange.width(self.party)
        start = sum(exchange.part_size(name, self.party) for name in exchange.owners(owner))
        return Pieces.of(self.whole, [exchange.part_size(owner, self.party) // count] * count, start)

    @property
    def proofs(self) -> Pieces:
        exchange, owners = self.exchange, self.exchange.owners(self.party)
        layouts = [exchange.layout(owner) for owner in owners]
        sizes = reply_proofs(exchange.layout(self.party), layouts, encrypted=exchange.encrypts(self.party))
        return Pieces.of(self.whole, sizes, sum(exchange.part_size(owner, self.party) for owner in owners))
