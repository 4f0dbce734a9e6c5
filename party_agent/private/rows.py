"""Raw rows in memory. Importable only inside this package (import contract); their repr shows sizes only."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from commingle.shared.encoding import Cells


@dataclass(frozen=True, slots=True)
class RawBatch:
    """Some rows as the source holds them, one array per column asked for.

    Attributes:
        columns: by name, `size` cells each.
        size: rows.
        unreadable: records beside them that were passed over, because they could not be read.
        uneven: records among the rows that have fewer or more cells than the source has columns.
    """

    columns: dict[str, Cells] = field(repr=False)
    size: int
    unreadable: int = 0
    uneven: int = 0


RawReader = Callable[[Sequence[str]], Iterator[RawBatch]]
"""Reads the named columns, a batch at a time."""
