"""The matrices S that rows can be mixed with: dense signs, or one signed entry a column (docs/design/mixing.md).

A spec names one by its `projection`. Privacy needs nothing of S but the norm of its columns
(docs/proofs/projection.md, 1).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from importlib import import_module

from commingle.shared.documents.spec import Projection as ProjectionName
from commingle.shared.mechanisms.rows.mixed_rows import MixedRows
from commingle.shared.mechanisms.rows.projection import Projection
from commingle.shared.mechanisms.rows.sparse import SparseProjection

_WORTH_COMPILING = 1 << 33  # products: from there on NumPy takes longer than loading compiled loops


class Sketch(ABC):
    """One kind of S, (k, n), whose columns all have one norm."""

    @abstractmethod
    def squared_norm(self, k: int) -> int:
        """||S e_i||^2 of every column: what one row counts for in a block's squared sensitivity."""

    @abstractmethod
    def mixed_rows(self, seed: bytes, *, k: int, d: int, n: int) -> MixedRows:
        """An empty sum of d columns, of which n rows are expected.

        Raises:
            MixingError: an argument is out of range.
        """


class DenseSketch(Sketch):
    """Entries +-1, the paper's (Wu et al. 2022)."""

    def squared_norm(self, k: int) -> int:
        """One for each of k entries."""
        return k

    def mixed_rows(self, seed: bytes, *, k: int, d: int, n: int) -> MixedRows:
        """Compiled where that is worth it and possible; the integers are the same."""
        kind = _compiled() if n * k * d >= _WORTH_COMPILING else Projection
        return kind(seed, k, d)


class SparseSketch(Sketch):
    """One entry +-1 in each column."""

    def squared_norm(self, k: int) -> int:  # noqa: ARG002 - the same question is put to every sketch
        """One."""
        return 1

    def mixed_rows(self, seed: bytes, *, k: int, d: int, n: int) -> MixedRows:  # noqa: ARG002 - as above
        """The same for every n."""
        return SparseProjection(seed, k, d)


SKETCHES: dict[ProjectionName | None, Sketch] = {None: DenseSketch(), "sparse": SparseSketch()}


@cache
def _compiled() -> Callable[[bytes, int, int], MixedRows]:
    """The compiled projection, or NumPy's where numba is not installed or compiles nothing here."""
    try:
        module = import_module("commingle.shared.mechanisms.rows.compiled_projection")
        module.kernels()
    except Exception:  # noqa: BLE001 - numba, LLVM and processes raise what they like
        return Projection
    found: Callable[[bytes, int, int], MixedRows] = module.CompiledProjection
    return found
