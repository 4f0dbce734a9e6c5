"""Inner products of somebody's encrypted columns with one's own, block by block (docs/proofs/linear-encryption.md, 2).

Of a product of ciphertext and own column, the second half is needed whole; of the first half only the coefficients that
hold inner products, which are sums of its own coefficients times rows: no transform, and no other coefficient is ever
computed. Memory is for sums and one block, whatever the number of rows.
"""

from collections import deque

import numpy as np
from numpy.typing import NDArray

from commingle.shared.ring.encryption import within_limits
from commingle.shared.ring.errors import DomainError
from commingle.shared.ring.layout import Layout, parse_residues
from commingle.shared.ring.randomness import public_slots
from commingle.shared.ring.residues import Residues, kernels, residues, to_slots


class InnerProducts:
    """Sums over the blocks that were added so far: of one owner's ciphertexts with the evaluator's d columns.

    Not to be sent: the second halves are a linear function of the evaluator's rows. `replies.make_reply` hides them.

    Args:
        layout: the owner's.
        columns: d, of the evaluator.
    """

    __slots__ = ("_blocks", "_first", "_second", "_taken", "columns", "layout")

    def __init__(self, layout: Layout, columns: int) -> None:
        ring = layout.parameters
        self.layout, self.columns = layout, columns
        self._blocks, self._taken = deque(layout.blocks()), False
        self._first = np.zeros((len(ring.primes), layout.columns, columns), np.int64)
        self._second = np.zeros((len(ring.primes), layout.groups, columns, ring.degree), np.uint64)

    def __repr__(self) -> str:
        return "InnerProducts(…)"

    def add(self, received: bytes, rows: NDArray[np.integer]) -> None:
        """The next block of ciphertexts, with the evaluator's rows of the same subjects.

        Args:
            received: what the owner's `encrypt` made.
            rows: (stop - start, d), entries at most 2^14 in absolute value.

        Raises:
            CiphertextError: not residues of this block's size. Nothing is added.
            DomainError: rows of another shape or beyond 2^14, or no block is left.
        """
        layout, ring = self.layout, self.layout.parameters
        if not self._blocks:
            raise DomainError("all blocks were added")
        block = self._blocks[0]
        ciphertexts = parse_residues(received, layout.block_shape(*block), ring.primes)
        stripes = self._stripes(block, rows)
        self._blocks.popleft()
        for k, prime in enumerate(ring.primes):
            half = public_slots(layout.label, layout.indices(*block), ring.degree, prime)
            half = half.reshape(ciphertexts.shape[1:])
            kernels().add_products(self._second[k], half, self._reversed_slots(stripes, prime), prime)
            words = ciphertexts[k].view(np.int32)
            kernels().add_windows(self._first[k], words, stripes, layout.width, prime)

    def take(self) -> tuple[Residues, NDArray[np.uint64]]:
        """The sums, once: first halves of the coefficients that hold inner products, and second halves in slots.

        Two replies to one set of ciphertexts would carry two noises, and show more than one.

        Returns:
            (primes, owner's columns, d), and (primes, groups, d, N), not reduced.

        Raises:
            DomainError: blocks are missing, or the sums were taken before.
        """
        if self._taken or self._blocks:
            raise DomainError("one reply is made, when all blocks were added")
        self._taken = True
        return self._first.astype(np.uint32), self._second

    def _stripes(self, block: tuple[int, int], rows: NDArray[np.integer]) -> NDArray[np.int32]:
        """The evaluator's rows of a block by stripe and column: (stripes, d, L), zero behind the last row."""
        count, length = self.layout.stripes(*block), self.layout.stripe_rows
        padded = np.zeros((count * length, self.columns), np.int32)
        padded[: len(rows)] = within_limits(rows, (block[1] - block[0], self.columns))
        return np.ascontiguousarray(padded.reshape(count, length, self.columns).transpose(0, 2, 1))

    def _reversed_slots(self, stripes: NDArray[np.int32], prime: int) -> Residues:
        """The polynomials sum over t of y_t x^(L - 1 - t) in slots: (stripes, d, N)."""
        polynomials = np.zeros((1, *stripes.shape[:2], self.layout.parameters.degree), np.uint32)
        polynomials[..., : stripes.shape[2]] = residues(stripes[..., ::-1], [prime])
        return np.asarray(to_slots(polynomials, [prime])[0])
