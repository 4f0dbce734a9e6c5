"""Attributes with levels, as columns of a release."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from commingle.services.analysis.tables import counted_as_one
from commingle.shared.estimation.cells import Cells
from commingle.shared.estimation.cross_products import CrossProducts
from commingle.shared.estimation.entry_noise import Array


@dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """One attribute of the rows.

    Attributes:
        indicators: (L, q) of each, as combinations of a release's columns.
        present: (q,) who is at the party that holds it.
    """

    name: str
    labels: tuple[str, ...]
    indicators: Array
    present: Array

    @classmethod
    def of(cls, sums: CrossProducts, name: str) -> Self:
        """An attribute of a release. Raises NoTablesError, UnknownAttributeError."""
        labels, indicators = sums.levels(name)
        return cls(name, labels, indicators, sums.present(name))

    def together(self, sums: CrossProducts, others: Array) -> tuple[Self, NDArray[np.intp], list[str]]:
        """With levels that hardly anybody may have as one (`Cells.merged`), but for the first, the reference.

        Counted are the people who are among `others` (q,) too. Besides: which place each level has come to, and what
        to say of it.
        """
        cells = Cells.between(sums, (self.labels, self.indicators), (("",), others[None]))
        labels, each = cells.together(0, self.labels[0])
        said = counted_as_one((self.name, ""), cells, cells.merged(self.labels[0], ""))
        return replace(self, labels=labels, indicators=each @ self.indicators), each.argmax(axis=0), said

    @property
    def names(self) -> tuple[str, ...]:
        """The levels with the attribute's name, as `age[old]`."""
        return tuple(f"{self.name}[{label}]" for label in self.labels)

    def at(self, columns: NDArray[np.intp]) -> Self:
        return replace(self, indicators=self.indicators[:, columns], present=self.present[columns])


def terms_of(factors: Sequence[Factor]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the terms of all levels but the first are called, and the level that each is compared with."""
    pairs = [(name, f.names[0]) for f in factors for name in f.names[1:]]
    return tuple(term for term, _ in pairs), tuple(first for _, first in pairs)


def in_use(
    sums: CrossProducts, factors: Sequence[Factor], others: Iterable[Array] = (), names: Iterable[str] = ()
) -> tuple[CrossProducts, list[Factor], NDArray[np.intp]]:
    """Sums and attributes in the columns that these and `others` (q,) use, and which those are.

    Forms are as large as the square of the columns. `names` are attributes besides those of `factors`.

    Raises NoOverlapError: two parties share too few subjects.
    """
    prepared = sums.prepared
    if prepared.pairs is not None:
        used = [i for name in (*names, *(f.name for f in factors)) for i in prepared.columns[name]]
        prepared.pairs.require(np.array(used, np.intp) - 1)
    fewer, kept = sums.using(np.vstack([*others, *(f.indicators for f in factors)]))
    return fewer, [f.at(kept) for f in factors], kept
