"""A published release as arrays, maps of its rows undone: built once, read by every fit of that release.

A first stage says how much the columns of a party vary. The main release, whose rows were mapped by it and then cut,
says how much of that is left. The missing part was in the rows that were shortened
(docs/design/estimation.md#cut-rows). For keyed subjects published moments give counts and pairs
(docs/proofs/keyed-subjects.md, 3 and 5).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from commingle.shared.documents.manifest import SecondMoments
from commingle.shared.documents.row_maps import may_cut, undone
from commingle.shared.documents.schema import Attribute, encoded_columns
from commingle.shared.documents.spec import INTERCEPT, ReleaseSpec
from commingle.shared.documents.statements import Sums
from commingle.shared.documents.subsets import subset_words
from commingle.shared.documents.terms import expected_kept
from commingle.shared.dp.fixed_point import SCALE, IntegerMap, presence
from commingle.shared.dp.two_stages import FirstStage, mean_square_errors, mean_squares
from commingle.shared.errors import MomentsMismatchError, UnknownAttributeError
from commingle.shared.estimation.entry_noise import Array, PairLaw
from commingle.shared.estimation.pairwise import Counts, Pairs

_LEAST = 1e-3  # a column's least mean square, whatever noise says
_STEPS = 60  # of halving
_STEEP = 0.05  # the least slope that a count is traced back along: at its top it says nothing


@dataclass(frozen=True, slots=True)
class Stage:
    """A release's information about the map of one party's rows."""

    planned: FirstStage | None  # the noise of its sums; None if it publishes none
    sums: Sums | None  # as published; None if they are not known
    applied: IntegerMap | None  # the map that follows; None if rows stay as they are encoded


def lost_to_cutting(spec: ReleaseSpec, stages: Sequence[Stage], moments: Array) -> tuple[Array, Array]:
    """(p,) the lost share of each column's mean square about its map's centre, 0 for the intercept; and with an error.

    `moments`, (p, p), is an unbiased estimate of encoded columns' second moments, with cut rows as published. The
    second is larger by one standard error of the first stage's noise, which has the least part of the budget.
    """
    means, squares, start = moments[0] / moments[0, 0], np.diag(moments) / moments[0, 0], 1
    lost, at_most = [0.0], [0.0]
    for party, stage in zip(spec.parties, stages, strict=True):
        own = slice(start, start + len(party.columns))
        applied, start = stage.applied, own.stop
        if stage.planned is None or stage.sums is None or applied is None:
            lost += [0.0] * (own.stop - own.start)
            at_most += [0.0] * (own.stop - own.start)
            continue
        about = applied.centre / SCALE
        left = squares[own] - 2 * about * means[own] + about**2
        whole = np.maximum(mean_squares(stage.planned, stage.sums, applied.centre), _LEAST)
        noise = mean_square_errors(stage.planned, applied.centre, n=stage.planned.count(stage.sums[0]))
        kept = np.clip(left / whole, 0, 1)
        lost += (1 - kept).tolist()
        at_most += np.clip(1 - left / whole + kept * noise / whole, 0, 1).tolist()
    return np.array(lost), np.array(at_most)


def pairs_of(moments: SecondMoments, spec: ReleaseSpec, stages: Sequence[Stage]) -> Pairs:
    """A release's estimates for every pair of its parties, maps of rows undone; `stages` in the order of parties."""
    gram = np.array(moments.gram)
    undo, parties = undoing(spec, [stage.applied for stage in stages]), len(spec.parties)
    party = np.repeat(np.arange(parties), [len(p.columns) for p in spec.parties])
    present = undo[:parties]
    if moments.entry_variance is None:
        published = gram - moments.rows * np.diag(moments.noise_variance)
        noise = PairLaw.of_rows(gram, moments.rows)
        summed = present @ published @ present.T
        counts = Counts(summed, summed, np.sqrt(noise.variances(present, present)), np.zeros((parties, parties)))
    else:
        published, noise = gram, PairLaw.of_entries(np.array(moments.entry_variance))
        errors, known = np.sqrt(noise.variances(present, present)), counted(stages)
        counts = bucket_counts(present @ published @ present.T, errors, buckets=moments.rows, known=known)
    names = tuple(p.name for p in spec.parties)
    sums = undo @ published @ undo.T
    return Pairs.of(sums, undo, names=names, party=party, counts=counts, noise=noise, asked=spec.n)


def counted(stages: Sequence[Stage]) -> Array:
    """(J, 2) how many subjects each party's first stage counted, and the error of that; NaN if it has none.

    They are counted before any two meet in a bucket, so a wrong n of the study does not matter.
    """
    found = np.full((len(stages), 2), np.nan)
    for place, stage in enumerate(stages):
        if stage.planned is not None and stage.sums is not None:
            found[place] = stage.planned.count(stage.sums[0]), stage.planned.sigma / SCALE
    return found


def bucket_counts(summed: Array, errors: Array, *, buckets: int, known: Array | None = None) -> Counts:
    """How many subjects there are if `summed` of them met nobody in their bucket (docs/proofs/keyed-subjects.md, 5).

    Of n subjects n (1 - 1/m)^(n - 1) do, m being the buckets. That grows only up to n = m: if nothing else is known it
    is traced back below. A joint subject meets nobody among all of the union. Errors count noise, who met whom, and
    strangers: a subject of one party alone and one of the other's, who met nobody else. `summed` and its noise's
    `errors` are (J, J); `known` has own counts from elsewhere and their errors, (J, 2), NaN if there are none.
    """
    kept, left = np.maximum(summed, 0.0), -float(np.log1p(-1 / buckets))
    own, noise, met = _own(np.diag(kept), np.diag(errors), buckets, known)
    both = own[:, None] + own
    held = _traced(kept, buckets, most=np.minimum.outer(own, own), of=lambda n: np.maximum(both - n - 1, 0))
    others, single = np.maximum(both - held - 1, 0), own[:, None] - held
    strangers = expected_kept(single * single.T / buckets, buckets, np.maximum(others - 1, 0))
    np.fill_diagonal(strangers, 0.0)
    # d t = share ((1 + n left) d n - n left (d n_i + d n_j)); who met whom goes together at most
    share = expected_kept(np.ones_like(held), buckets, others)
    turned = share * held * left
    together = (np.sqrt(_spread(held, others, buckets)) + turned * (met[:, None] + met)) ** 2
    apart = errors**2 + strangers + turned**2 * (noise[:, None] ** 2 + noise**2)
    found = np.sqrt(together + apart) / (share * (1 + left * held))
    np.fill_diagonal(held, own)
    np.fill_diagonal(found, np.hypot(noise, met))
    traced = known is None or bool(np.isnan(known).any())
    return Counts(kept, held, found, strangers, below=buckets if traced else None)


def _own(kept: Array, errors: Array, buckets: int, known: Array | None) -> tuple[Array, Array, Array]:
    """(J,) own counts, and their errors by noise and by who met whom: d t = share (1 - n left) d n."""
    left = -float(np.log1p(-1 / buckets))
    own = _traced(kept, buckets, most=np.full(len(kept), 1 / left), of=lambda n: np.maximum(n - 1, 0))
    steep = np.exp(-left * own) * np.maximum(1 - left * own, _STEEP)
    found = np.array([own, errors / steep, np.sqrt(_spread(own, own - 1, buckets)) / steep])
    if known is not None:
        counted = ~np.isnan(known[:, 0])
        found[:, counted] = np.column_stack([known, np.zeros(len(known))]).T[:, counted]
    own, noise, met = found
    return own, noise, met


def _traced(kept: Array, buckets: int, *, most: Array, of: Callable[[Array], Array]) -> Array:
    low, high = np.zeros_like(kept), most.copy()
    for _ in range(_STEPS):
        middle = (low + high) / 2
        enough = expected_kept(middle, buckets, of(middle)) >= kept
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


def _spread(n: Array, others: Array, buckets: int) -> Array:
    """The variance of how many of n are alone: t + n (n - 1) (1 - 1/m) (1 - 2/m)^(u - 1) - t^2."""
    alone = expected_kept(n, buckets, others)
    two = n * np.maximum(n - 1, 0) * (1 - 1 / buckets) * np.exp((others - 1) * np.log1p(-2 / buckets))
    found: Array = np.maximum(alone + two - alone**2, 0.0)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class PreparedMoments:
    """Second moments of a release in encoded units, ready to be cut."""

    gram: Array  # (p, p) G = P^T P, the intercept first; S_hat itself if no rows are published
    # (p, p), the covariance of the noise in one row; 0 for the intercept. Diagonal if no party mixes columns.
    V: Array
    root: Array  # (p, p) F with V = F F^T
    # offset, scale: (p,) original value = offset + scale * encoded value
    offset: Array
    scale: Array
    labels: tuple[str, ...]  # p labels in original units
    attributes: dict[str, Attribute]
    columns: dict[str, tuple[int, ...]]  # indices into the p columns, by attribute name
    mechanism: str
    rows: int  # of the published matrix; n if it has none
    n: int
    mixing: Array  # (p, p) T with encoded columns = T @ published ones; the identity if no rows are mapped
    # (p, p) variances of the independent entries of E, if no rows are published; `gram` carries the noise T E T^T
    entry_variance: Array | None = None
    cut: tuple[str, ...] = ()  # parties whose rows may have been cut to a norm, and no figure says how much
    # attributes in rows that may have been cut to a norm, whether or not a figure says how much
    shortened: frozenset[str] = frozenset()
    # (p,) what cutting took of each column's mean square, as far as first stages say; and with one standard error
    lost: Array | None = None
    may_have_lost: Array | None = None
    # for keyed subjects, the source of `gram`; `entry_variance` is then about its means
    pairs: Pairs | None = None
    # by party, the people whom its share is about, in a sentence; no entry if it is all that it holds
    subsets: Mapping[str, str] = field(default_factory=dict)

    @property
    def keyed(self) -> bool:
        return self.pairs is not None

    def shared(self, columns: Sequence[int]) -> int:
        """How many subjects moments of these columns are of; for keyed ones the fewest who count at two parties."""
        return self.n if self.pairs is None else self.pairs.shared(np.array(columns, np.intp) - 1)

    def misjudged(self, columns: Sequence[int]) -> tuple[str, ...]:
        """Warnings if the study's n is far from how many keyed subjects the parties of these columns hold."""
        if self.pairs is None:
            return ()
        parties: list[int] = np.unique(self.pairs.owner[self.pairs.party[np.array(columns, np.intp) - 1]]).tolist()
        whole = [p for p in parties if self.pairs.names[p] not in self.subsets]  # n is of all whom a member holds
        found = filter(None, map(self.pairs.misjudged, whole))
        return tuple(f"{said}: it was planned for that many. Ask for a release with the right n." for said in found)

    @classmethod
    def of_release(cls, moments: SecondMoments, spec: ReleaseSpec, stages: Sequence[Stage]) -> Self:
        """Published moments in encoded units, every map of rows undone (`release.matrix` finds the parties' stages)."""
        _require(moments.columns == tuple(c.name for c in spec.matrix_columns), "columns")
        made = cls._of_keyed(moments, spec, stages) if spec.keyed else cls._of_listed(moments, spec, stages)
        may = [(p, stage) for p, stage in zip(spec.parties, stages, strict=True) if may_cut(p, stage.applied)]
        cut = tuple(p.name for p, stage in may if stage.sums is None)
        made = replace(made, cut=cut, shortened=frozenset(a.name for p, _ in may for a in p.attributes))
        if all(stage.sums is None for stage in stages):
            return made
        lost, at_most = lost_to_cutting(spec, stages, made.gram - made.rows * made.V)
        return replace(made, lost=lost, may_have_lost=at_most)

    @classmethod
    def _of_listed(cls, moments: SecondMoments, spec: ReleaseSpec, stages: Sequence[Stage]) -> Self:
        names = (INTERCEPT, *(c.name for c in encoded_columns(spec.terms.attributes)))
        prepared = cls.of(moments.model_copy(update={"columns": names}), spec.terms.attributes)
        T = undoing(spec, [stage.applied for stage in stages])
        return prepared if np.array_equal(T, np.eye(len(T))) else prepared.map_columns(T)

    @classmethod
    def _of_keyed(cls, moments: SecondMoments, spec: ReleaseSpec, stages: Sequence[Stage]) -> Self:
        _require(moments.keyed == spec.keyed, "subjects")
        _require_shape(moments, len(spec.matrix_columns))
        variance = None if moments.entry_variance is None else np.array(moments.entry_variance)
        words = {p.name: said for p in spec.parties if (said := subset_words(p.name, p.where)) is not None}
        made = replace(cls._of_encoded(moments, spec.terms.attributes), entry_variance=variance, subsets=words)
        return made.with_pairs(pairs_of(moments, spec, stages))

    def with_pairs(self, pairs: Pairs) -> Self:
        """These columns with the moments of pairs of presences; errors are those of the pairs alone."""
        gram = pairs.second_moments()
        nothing = np.zeros_like(gram)
        return replace(
            self,
            gram=gram,
            V=nothing,
            root=nothing,
            rows=self.rows if self.entry_variance is None else pairs.subjects,
            n=pairs.subjects,
            mixing=np.eye(len(gram)),
            entry_variance=pairs.entry_variance(),
            pairs=pairs,
        )

    @classmethod
    def of(cls, moments: SecondMoments, attributes: tuple[Attribute, ...]) -> Self:
        """Moments of encoded columns with the attributes of a spec, in the spec's order."""
        columns = encoded_columns(attributes)
        _require(moments.columns == (INTERCEPT, *(c.name for c in columns)), "columns")
        _require_shape(moments, len(columns) + 1)
        _require(moments.noise_variance[0] == 0, "noise")
        return replace(cls._of_encoded(moments, attributes), entry_variance=_entry_variance(moments))

    @classmethod
    def _of_encoded(cls, moments: SecondMoments, attributes: tuple[Attribute, ...]) -> Self:
        columns = encoded_columns(attributes)
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
            mixing=np.eye(1 + len(columns)),
        )

    def map_columns(self, T: Array) -> Self:
        """Moments and noise of the columns T @ these, T (p, p)."""
        return replace(self, gram=T @ self.gram @ T.T, V=T @ self.V @ T.T, root=T @ self.root, mixing=T @ self.mixing)

    def attribute(self, name: str) -> Attribute:
        """The attribute of that name. Raises UnknownAttributeError: the release does not have it."""
        try:
            return self.attributes[name]
        except (KeyError, TypeError):  # a name is a text; a list has no hash
            raise UnknownAttributeError(name, self.attributes) from None


def undoing(spec: ReleaseSpec, maps: Sequence[IntegerMap | None]) -> Array:
    """T (q, q) with (1, encoded columns) = T @ published columns; for J keyed parties presences stand for the 1.

    Encoded columns are M z + c 1 of published z. The column of ones is published, mixed as all columns are. Of a
    party's presence 1_i, `presence` times it is published. `maps` are in the order of parties.
    """
    lead = len(spec.intercept)
    ends = np.cumsum([lead, *(len(party.block_columns) for party in spec.parties)]).tolist()
    ones, unit = ([0] * len(maps), 1.0) if lead else (ends[:-1], 2**spec.fraction_bits / presence(spec.fraction_bits))
    T, row = np.zeros((ends[-1], ends[-1])), len({*ones})
    T[range(row), ones[:row]] = unit
    for party, applied, one, stop in zip(spec.parties, maps, ones, ends[1:], strict=True):
        M, centre = undone(party, applied, spec.fraction_bits)
        own = slice(row, row := row + len(centre))
        T[own, stop - len(centre) : stop] = M
        T[own, one] = unit * centre
    return T


def _entry_variance(moments: SecondMoments) -> Array | None:
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
