"""The matrices S that rows can be mixed with: dense signs, or one signed entry a column (docs/design/encoding.md).

A spec names one by its `projection`. Privacy needs nothing of S but the norm of its columns
(docs/proofs/projection.md, 1).
"""

from abc import ABC, abstractmethod

from commingle.shared.documents.terms import Projection as ProjectionName
from commingle.shared.loops import available
from commingle.shared.mechanisms.rows.compiled_projection import CompiledProjection
from commingle.shared.mechanisms.rows.mixed_rows import MixedRows
from commingle.shared.mechanisms.rows.projection import Projection
from commingle.shared.mechanisms.rows.sparse import SparseProjection


class Sketch(ABC):
    """One kind of S, (k, n), whose columns all have one norm."""

    @abstractmethod
    def squared_norm(self, k: int) -> int:
        """||S e_i||^2 of every column: what one row counts for in a block's squared sensitivity."""

    @abstractmethod
    def mixed_rows(self, seed: bytes, *, k: int, d: int) -> MixedRows:
        """An empty sum of d columns.

        Raises:
            MixingError: an argument is out of range.
        """


class DenseSketch(Sketch):
    """Entries +-1, the paper's (Wu et al. 2022)."""

    def squared_norm(self, k: int) -> int:
        """One for each of k entries."""
        return k

    def mixed_rows(self, seed: bytes, *, k: int, d: int) -> MixedRows:
        """By loops where the package was built with them; the integers are the same."""
        return CompiledProjection(seed, k, d) if available() else Projection(seed, k, d)


class SparseSketch(Sketch):
    """One entry +-1 in each column."""

    def squared_norm(self, k: int) -> int:  # noqa: ARG002 - the same question is put to every sketch
        """One."""
        return 1

    def mixed_rows(self, seed: bytes, *, k: int, d: int) -> MixedRows:
        """Without a matrix."""
        return SparseProjection(seed, k, d)


SKETCHES: dict[ProjectionName | None, Sketch] = {None: DenseSketch(), "sparse": SparseSketch()}
