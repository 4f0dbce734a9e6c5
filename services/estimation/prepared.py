"""Moments and schema of one release as arrays: built once, read by every fit of that release."""

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from services.estimation.errors import MomentsMismatchError, UnknownAttributeError
from shared.protocol.moments import SecondMoments
from shared.protocol.schema import Attribute, encoded_columns
from shared.protocol.spec import INTERCEPT

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class PreparedMoments:
    """Second moments of a release in encoded units, ready to be cut.

    Attributes:
        gram: (p, p) G = P^T P, the intercept first.
        noise: (p,) v, the variance of the noise in one entry of each column; 0 for the intercept.
        offset, scale: (p,) original value = offset + scale * encoded value.
        labels: p labels in original units.
        attributes: by name.
        columns: indices into the p columns, by attribute name.
        rows: k of rmgm, n of dgm.
        n: subjects.
    """

    gram: Array
    noise: Array
    offset: Array
    scale: Array
    labels: tuple[str, ...]
    attributes: dict[str, Attribute]
    columns: dict[str, tuple[int, ...]]
    mechanism: Literal["rmgm", "dgm"]
    rows: int
    n: int

    @classmethod
    def of(cls, moments: SecondMoments, attributes: tuple[Attribute, ...]) -> Self:
        """Moments of a release with the attributes of its spec, in the spec's order.

        Raises:
            MomentsMismatchError: they are not of one release.
        """
        columns = encoded_columns(attributes)
        width = len(columns) + 1
        _require(moments.columns == (INTERCEPT, *(c.name for c in columns)), "columns")
        _require([len(row) for row in moments.gram] == [width] * width, "matrix")
        _require(len(moments.noise_variance) == width and moments.noise_variance[0] == 0, "noise")
        ends = np.cumsum([1, *(len(a.columns) for a in attributes)]).tolist()
        return cls(
            gram=np.array(moments.gram),
            noise=np.array(moments.noise_variance),
            offset=np.array([0.0, *(c.offset for c in columns)]),
            scale=np.array([1.0, *(c.scale for c in columns)]),
            labels=(INTERCEPT, *(c.label for c in columns)),
            attributes={a.name: a for a in attributes},
            columns={a.name: tuple(range(ends[i], ends[i + 1])) for i, a in enumerate(attributes)},
            mechanism=moments.mechanism,
            rows=moments.rows,
            n=moments.n,
        )

    def attribute(self, name: str) -> Attribute:
        """The attribute of that name.

        Raises:
            UnknownAttributeError: the release does not have it.
        """
        try:
            return self.attributes[name]
        except KeyError:
            raise UnknownAttributeError(name, self.attributes) from None


def _require(fits: bool, what: str) -> None:
    if not fits:
        raise MomentsMismatchError(
            f"the {what} of these moments do not fit the schema", remedy="Take both from the same release."
        )
