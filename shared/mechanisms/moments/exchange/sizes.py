"""Bytes and seconds of an exchange, from public numbers: subjects, each party's columns, whether bounds are proved.

Bytes are exact, but for headers and statements, which do not grow with anything. Seconds are an estimate: bytes of each
kind times the measured time to make or read one (`SECONDS`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Self

from commingle.shared.mechanisms.interface import ExchangeCost, PartyCost
from commingle.shared.proving.lengths import column_proofs, reply_proofs
from commingle.shared.ring.parameters import Layout, byte_count

SECONDS = (0.012, 0.28, 0.012, 0.015, 0.00022)
"""Of one processor for a megabyte of each kind of `Sizes.work`, fitted by least squares to the seconds of each party in
docs/moments-cost.md: within two fifths of them from 100 000 subjects on."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of the messages of an exchange, by the layouts of ciphertexts; parties go by their place in the spec."""

    layouts: tuple[Layout, ...]
    proved: bool

    @classmethod
    def of(cls, rows: int, columns: Sequence[int], *, proved: bool) -> Self:
        """The sizes for parties with so many encoded columns each. Raises DomainError: there are too many rows."""
        return cls(tuple(Layout(b"", rows, count) for count in columns), proved)

    @cached_property
    def ciphertexts(self) -> list[int]:
        """Bytes of each party's key and encrypted columns; none of the last, whose columns nobody multiplies."""
        every = [byte_count(own.key_shape) + byte_count(own.block_shape(0, own.rows)) for own in self.layouts]
        return [*every[:-1], 0]

    @cached_property
    def proofs(self) -> list[tuple[int, int]]:
        """Bytes of the proofs of each party's columns, and of its replies. Raises DomainError: too many."""
        if not self.proved:
            return [(0, 0)] * len(self.layouts)
        encrypted = [place < len(self.layouts) - 1 for place in range(len(self.layouts))]
        return [
            (
                sum(column_proofs(own)) if encrypts else 0,
                sum(reply_proofs(own, self.layouts[:place], encrypted=encrypts)) if place else 0,
            )
            for place, (own, encrypts) in enumerate(zip(self.layouts, encrypted, strict=True))
        ]

    def columns(self, party: int) -> int:
        """Bytes of its public key and ciphertexts, and a proof after each segment of rows; the last party has none."""
        return self.ciphertexts[party] + self.proofs[party][0]

    def part(self, owner: int, evaluator: int) -> int:
        """Bytes of an evaluator's reply to one owner: its columns one after the other."""
        layout = self.layouts[owner]
        shape = layout.whole_reply_shape if self.proved else layout.reply_shape
        return byte_count(shape) * self.layouts[evaluator].columns

    def reply(self, party: int) -> int:
        """Bytes of all that a party replies: the parts in the order of owners, then their proofs."""
        return sum(self.part(owner, party) for owner in range(party)) + self.proofs[party][1]

    def received(self, party: int) -> int:
        """Bytes that it fetches: columns of those before it, or of all if they are proved, and replies to it."""
        every = range(len(self.layouts))
        read = every if self.proved else every[:party]
        return sum(self.columns(p) for p in read if p != party) + sum(self.reply(p) for p in every[party + 1 :])

    def work(self, party: int) -> tuple[float, ...]:
        """The causes of that party's seconds: megabytes of each kind, in the order of `SECONDS`.

        They are ciphertexts that it makes; proofs that it makes; proofs that it verifies; ciphertexts that it reads,
        each time; ciphertexts that it multiplies, times its columns.
        """
        own, multiplied, taken = self.ciphertexts[party], sum(self.ciphertexts[:party]), self.ciphertexts
        verified = sum(columns for columns, _ in self.proofs) - self.proofs[party][0]
        verified += sum(replies for _, replies in self.proofs[party + 1 :])
        read = multiplied
        if self.proved:  # all others' for their bounds, and for each proof of replies its maker's and those before
            read += sum(taken) - own + sum([*accumulate(taken)][max(party, 1) :])
        counts = own, sum(self.proofs[party]), verified, read, multiplied * self.layouts[party].columns
        return tuple(count / 1e6 for count in counts)


def exchange_cost(rows: int, columns: Mapping[str, int], *, proved: bool) -> ExchangeCost:
    """The cost of an exchange for each party, for all, and of its proofs.

    Raises DomainError: too many rows or columns.
    """
    found, trusted = (_parties(Sizes.of(rows, list(columns.values()), proved=p), columns) for p in (proved, False))
    moved, seconds = _total(found)
    without_proofs = _total(trusted)
    return ExchangeCost(
        bounds="proved" if proved else "trusted",
        parties=found,
        bytes=moved,
        seconds=seconds,
        proof_bytes=moved - without_proofs[0],
        proof_seconds=seconds - without_proofs[1],
    )


def _parties(sizes: Sizes, names: Iterable[str]) -> tuple[PartyCost, ...]:
    return tuple(
        PartyCost(
            name=name,
            bytes_sent=sizes.columns(party) + sizes.reply(party),
            bytes_received=sizes.received(party),
            seconds=sum(each * count for each, count in zip(SECONDS, sizes.work(party), strict=True)),
        )
        for party, name in enumerate(names)
    )


def _total(parties: Iterable[PartyCost]) -> tuple[int, float]:
    costs = list(parties)
    return sum(c.bytes_sent + c.bytes_received for c in costs), sum(c.seconds for c in costs)
