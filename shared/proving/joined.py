"""Two relations in one matrix, which costs less than two: bits of both first, then squares, then all other rows."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from commingle.shared.proving.parameters import Sizes
from commingle.shared.proving.relation import Relation, Squares, Term
from commingle.shared.proving.transcript import Challenge


class WithoutSquares:
    """A relation that has no rows whose squares sum up."""

    squares: Sequence[Squares] = ()


@dataclass(frozen=True)
class Joined:
    """Both statements hold, their linear equations in sum."""

    parts: Sequence[Relation]

    @property
    def sizes(self) -> Sizes:
        """Of the ring."""
        return self.parts[0].sizes

    @cached_property
    def digest(self) -> bytes:
        """Names both statements: 32 bytes."""
        return sha256(b"joined" + b"".join(part.digest for part in self.parts)).digest()

    @property
    def bits(self) -> int:
        """Rows of bits."""
        return sum(part.bits for part in self.parts)

    @property
    def squares(self) -> tuple[Squares, ...]:
        """Of both."""
        return tuple(each for part in self.parts for each in part.squares)

    @property
    def rows(self) -> int:
        """Of the matrix."""
        return sum(part.rows for part in self.parts)

    @property
    def largest(self) -> int:
        """What honest rows sum up to, at most."""
        return sum(part.largest for part in self.parts)

    def places(self, number: int) -> NDArray[np.intp]:
        """Where the rows of one part are."""
        counts = np.array([_counts(part) for part in self.parts])
        starts = np.concatenate([[0], counts.T.ravel().cumsum()[:-1]]).reshape(counts.T.shape)[:, number]
        return np.concatenate([start + np.arange(count) for start, count in zip(starts, counts[number], strict=True)])

    def linear(self, challenge: Challenge, k: int) -> tuple[Iterable[Term], Sequence[int]]:
        """The terms of both, and the sums of their constants."""
        found = [part.linear(challenge, k) for part in self.parts]

        def terms() -> Iterator[Term]:
            for number, (own, _) in enumerate(found):
                places = self.places(number)
                for term in own:
                    yield replace(term, rows=places[term.rows])

        return terms(), [sum(numbers) for numbers in zip(*(constants for _, constants in found), strict=True)]


def _counts(part: Relation) -> tuple[int, int, int]:
    """Rows of bits, of squares, and others."""
    squared = sum(each.rows for each in part.squares)
    return part.bits, squared, part.rows - part.bits - squared
