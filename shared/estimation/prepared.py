"""Moments and schema of one release as arrays: built once, read by every fit of that release."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.manifest import SecondMoments
from commingle.shared.documents.row_maps import may_cut, undone
from commingle.shared.documents.schema import Attribute, encoded_columns
from commingle.shared.documents.spec import INTERCEPT, ReleaseSpec
from commingle.shared.dp.whitening import IntegerMap
from commingle.shared.estimation.cutting import Stage, lost_to_cutting
from commingle.shared.estimation.errors import MomentsMismatchError, UnknownAttributeError
from commingle.shared.estimation.keyed import pairs_of
from commingle.shared.estimation.pairwise import Pairs

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class PreparedMoments:
    """Second moments of a release in encoded units, ready to be cut.

    Attributes:
        gram: (p, p) G = P^T P, the intercept first; S_hat itself where no rows are published.
        V: (p, p), the covariance of the noise in one row; 0 for the intercept. Diagonal where no party mixes columns.
        root: (p, p) F with V = F F^T.
        offset, scale: (p,) original value = offset + scale * encoded value.
        labels: p labels in original units.
        attributes: by name.
        columns: indices into the p columns, by attribute name.
        rows: of the published matrix; n where it has none.
        n: subjects.
        mixing: (p, p) T with encoded columns = T @ published ones; the identity where no rows are mapped.
        cut: parties whose rows may have been cut to a norm, and nothing says what that took.
        lost: (p,) what cutting took of each column's mean square, as far as first stages say.
        entry_variance: (p, p) variances of the independent entries of E, where no rows are published; `gram` carries
            the noise T E T^T.
        pairs: where subjects are keyed, what `gram` was put together from; `entry_variance` is then about its means.
    """

    gram: Array
    V: Array
    root: Array
    offset: Array
    scale: Array
    labels: tuple[str, ...]
    attributes: dict[str, Attribute]
    columns: dict[str, tuple[int, ...]]
    mechanism: str
    rows: int
    n: int
    mixing: Array
    entry_variance: Array | None = None
    cut: tuple[str, ...] = ()
    lost: Array | None = None
    pairs: Pairs | None = None

    @property
    def keyed(self) -> bool:
        """Whether subjects are."""
        return self.pairs is not None

    def shared(self, columns: Sequence[int]) -> int:
        """How many subjects moments of these columns are of: of keyed ones the fewest who count at two parties."""
        return self.n if self.pairs is None else self.pairs.shared(np.array(columns, np.intp) - 1)

    def misjudged(self, columns: Sequence[int]) -> tuple[str, ...]:
        """Warnings where the study's n is far from how many keyed subjects the parties of these columns hold."""
        if self.pairs is None:
            return ()
        parties: list[int] = np.unique(self.pairs.owner[self.pairs.party[np.array(columns, np.intp) - 1]]).tolist()
        found = filter(None, map(self.pairs.misjudged, parties))
        return tuple(f"{said}: it was planned for that many. Ask for a release with the right n." for said in found)

    @classmethod
    def of_release(cls, moments: SecondMoments, spec: ReleaseSpec, stages: Sequence[Stage]) -> Self:
        """Moments of a release in encoded units, every map of rows undone (`release.matrix` finds the maps).

        Args:
            moments: as published.
            spec: of the release.
            stages: of each party, in order.

        Raises:
            MomentsMismatchError: they are not of that release.
        """
        _require(moments.columns == tuple(c.name for c in spec.columns), "columns")
        made = cls._of_keyed(moments, spec, stages) if spec.keyed else cls._of_listed(moments, spec, stages)
        unsaid = [(p, stage.applied) for p, stage in zip(spec.parties, stages, strict=True) if stage.sums is None]
        cut = tuple(p.name for p, applied in unsaid if may_cut(p, applied))
        if len(unsaid) == len(stages):
            return replace(made, cut=cut)
        return replace(made, cut=cut, lost=lost_to_cutting(spec, stages, made.gram - made.rows * made.V))

    @classmethod
    def _of_listed(cls, moments: SecondMoments, spec: ReleaseSpec, stages: Sequence[Stage]) -> Self:
        names = (INTERCEPT, *(c.name for c in encoded_columns(spec.attributes)))
        prepared = cls.of(moments.model_copy(update={"columns": names}), spec.attributes)
        T = undoing(spec, [stage.applied for stage in stages])
        return prepared if np.array_equal(T, np.eye(len(T))) else prepared.map_columns(T)

    @classmethod
    def _of_keyed(cls, moments: SecondMoments, spec: ReleaseSpec, stages: Sequence[Stage]) -> Self:
        _require(moments.subjects == spec.subjects, "subjects")
        _require_shape(moments, len(spec.columns))
        pairs = pairs_of(moments, spec, stages)
        plain = moments.model_copy(
            update={
                "columns": (INTERCEPT, *(c.name for c in encoded_columns(spec.attributes))),
                "gram": pairs.second_moments().tolist(),
                "noise_variance": (0.0,) * (1 + len(pairs.party)),
                "entry_variance": None,
                "n": pairs.subjects,
                "rows": moments.rows if moments.entry_variance is None else pairs.subjects,
            }
        )
        return replace(cls._of_encoded(plain, spec.attributes), pairs=pairs, entry_variance=pairs.entry_variance())

    @classmethod
    def of(cls, moments: SecondMoments, attributes: tuple[Attribute, ...]) -> Self:
        """Moments of encoded columns with the attributes of a spec, in the spec's order.

        Raises:
            MomentsMismatchError: they are not of one release.
        """
        columns = encoded_columns(attributes)
        _require(moments.columns == (INTERCEPT, *(c.name for c in columns)), "columns")
        _require_shape(moments, len(columns) + 1)
        _require(moments.noise_variance[0] == 0, "noise")
        return replace(cls._of_encoded(moments, attributes), entry_variance=_entry_variance(moments))

    @classmethod
    def _of_encoded(cls, moments: SecondMoments, attributes: tuple[Attribute, ...]) -> Self:
        columns, width = encoded_columns(attributes), len(moments.columns)
        ends = np.cumsum([1, *(len(a.columns) for a in attributes)]).tolist()
        return cls(
            gram=np.array(moments.gram),
            V=np.diag(moments.noise_variance),
            root=np.diag(np.sqrt(moments.noise_variance)),
            offset=np.array([0.0, *(c.offset for c in columns)]),
            scale=np.array([1.0, *(c.scale for c in columns)]),
            labels=(INTERCEPT, *(c.label for c in columns)),
            attributes={a.name: a for a in attributes},
            columns={a.name: tuple(range(ends[i], ends[i + 1])) for i, a in enumerate(attributes)},
            mechanism=moments.mechanism,
            rows=moments.rows,
            n=moments.n,
            mixing=np.eye(width),
        )

    def map_columns(self, T: Array) -> Self:
        """The same moments and noise of the columns T @ these, T (p, p)."""
        return replace(self, gram=T @ self.gram @ T.T, V=T @ self.V @ T.T, root=T @ self.root, mixing=T @ self.mixing)

    def attribute(self, name: str) -> Attribute:
        """The attribute of that name.

        Raises:
            UnknownAttributeError: the release does not have it.
        """
        try:
            return self.attributes[name]
        except KeyError:
            raise UnknownAttributeError(name, self.attributes) from None


def undoing(spec: ReleaseSpec, maps: Sequence[IntegerMap | None]) -> Array:
    """T (p, p) with encoded columns = T @ published columns, the intercept first; `maps` in the order of parties.

    Encoded columns are M z + c 1 of published z, and the column of ones, mixed as all columns are, is published.
    """
    T = np.eye(len(spec.columns))
    start = 1
    for party, applied in zip(spec.parties, maps, strict=True):
        end = start + len(party.columns)
        T[start:end, start:end], T[start:end, 0] = undone(party, applied, spec.fraction_bits)
        start = end
    return T


def _entry_variance(moments: SecondMoments) -> Array | None:
    """The (p, p) variances that a release comes with if it is not of rows."""
    given = moments.entry_variance
    if given is None:
        return None
    _require([len(row) for row in given] == [len(moments.gram)] * len(moments.gram), "noise")
    variance = np.array(given)
    _require(bool(np.isfinite(variance).all() and (variance == variance.T).all()), "noise")
    _require(variance[0, 0] == 0 and moments.gram[0][0] == moments.n == moments.rows, "count")
    return variance


def _require_shape(moments: SecondMoments, width: int) -> None:
    _require([len(row) for row in moments.gram] == [width] * width, "matrix")
    _require(len(moments.noise_variance) == width, "noise")


def _require(fits: bool, what: str) -> None:
    if not fits:
        raise MomentsMismatchError(
            f"the {what} of these moments do not fit the schema", remedy="Take both from the same release."
        )
