"""A result as rows and columns: what every way of showing it starts from."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commingle.services.display.frame import to_frame
from commingle.services.display.html import to_html


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """Numbers under one heading, NaN where there are none; `form` is how people are shown them."""

    heading: str
    numbers: NDArray[np.float64]
    form: str = ".4g"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One result.

    Attributes:
        title: what it is.
        facts: name and value of what holds for the whole table.
        heading: of the labels.
        labels: one for each row.
        columns: as long as `labels` each.
        notes: sentences below the table.
        warnings: sentences that must not be overlooked.
    """

    title: str
    heading: str
    labels: tuple[str, ...] | tuple[float, ...]
    columns: tuple[Column, ...]
    facts: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Shown(ABC):
    """A result that notebooks render and pandas takes over."""

    __slots__ = ()

    @abstractmethod
    def table(self) -> Table:
        """The result as a table."""

    def to_frame(self) -> Any:  # noqa: ANN401 - pandas is optional, so its types cannot be named here
        """The table as a `pandas.DataFrame`, its labels as the index. Raises MissingExtraError without pandas."""
        return to_frame(self.table())

    def _repr_html_(self) -> str:
        return to_html(self.table())
