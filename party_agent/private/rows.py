"""Raw rows in memory. Importable only inside this package (import contract); their repr shows sizes only."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from commingle.shared.encoding import Cells


@dataclass(frozen=True, slots=True)
class RawBatch:
    """Some rows as the source holds them, one array per column asked for."""

    columns: dict[str, Cells] = field(repr=False)
    size: int


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """Some rows, encoded.

    Attributes:
        subjects: canonical subject ids of the m rows.
        attributes: per attribute its integer columns (m x width), fixed point.
    """

    subjects: Cells = field(repr=False)
    attributes: dict[str, NDArray[np.int64]] = field(repr=False)


RawReader = Callable[[Sequence[str]], Iterator[RawBatch]]
"""Reads the named columns, a batch at a time, always in the same order of rows."""
