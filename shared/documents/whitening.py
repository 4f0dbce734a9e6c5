"""A party's public whitening, as it travels in a spec (docs/design/encoding.md#whitening)."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from commingle.shared.documents.model import WireModel
from commingle.shared.documents.schema import EncodedColumn
from commingle.shared.dp.errors import ParameterError
from commingle.shared.dp.whitening import IntegerMap


class Whitening(WireModel):
    """z = matrix (x - centre) of a party's encoded columns x, made from public rows.

    Attributes:
        centre: d encoded values.
        matrix: d rows of d.
    """

    centre: Annotated[tuple[Annotated[float, Field(ge=-1, le=1)], ...], Field(min_length=1, max_length=256)]
    matrix: tuple[tuple[float, ...], ...]

    @model_validator(mode="after")
    def _can_be_applied_and_undone(self) -> Self:
        try:
            self.integer_map()
        except ParameterError as error:
            raise ValueError(error.diagnostics()) from None
        return self

    def integer_map(self) -> IntegerMap:
        """The exact map that agents apply and learners undo."""
        return IntegerMap.of(self.matrix, self.centre)

    def columns(self, encoded: tuple[EncodedColumn, ...]) -> tuple[EncodedColumn, ...]:
        """The published columns: mixtures of the encoded ones, each named after the one in its place.

        A name of an attribute has no bracket, so no other column has such a name.
        """
        return tuple(EncodedColumn(f"whitened[{c.name}]", f"whitened[{c.label}]", 0.0, 1.0) for c in encoded)
