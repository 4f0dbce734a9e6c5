"""From the published moments of keyed subjects to counts and pairs (docs/proofs/keyed-subjects.md, 3 and 5)."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.manifest import SecondMoments
from commingle.shared.documents.row_maps import undone
from commingle.shared.documents.spec import ReleaseSpec, expected_kept
from commingle.shared.dp.fixed_point import SCALE, presence
from commingle.shared.dp.whitening import IntegerMap
from commingle.shared.estimation.cutting import Stage
from commingle.shared.estimation.pairwise import Array, Counts, Pairs
from commingle.shared.estimation.published_noise import MixedRows, NoisyEntries, PublishedNoise

_STEPS = 60  # of halving
_STEEP = 0.05  # the least slope that a count is traced back along: at its top it says nothing


def pairs_of(moments: SecondMoments, spec: ReleaseSpec, stages: Sequence[Stage]) -> Pairs:
    """What a release says of every pair of its parties, every map of rows undone; `stages` in the order of parties."""
    gram = np.array(moments.gram)
    undo, party = undoing(spec, [stage.applied for stage in stages])
    parties = len(spec.parties)
    present = undo[:parties]
    if moments.entry_variance is None:
        published = gram - moments.rows * np.diag(moments.noise_variance)
        noise: PublishedNoise = MixedRows(gram, moments.rows)
        summed = present @ published @ present.T
        counts = Counts(summed, summed, np.sqrt(noise.variances(present)), np.zeros((parties, parties)))
    else:
        published, noise = gram, NoisyEntries(np.array(moments.entry_variance))
        errors, known = np.sqrt(noise.variances(present)), counted(stages)
        counts = bucket_counts(present @ published @ present.T, errors, buckets=moments.rows, known=known)
    names = tuple(p.name for p in spec.parties)
    sums = undo @ published @ undo.T
    return Pairs.of(sums, undo, names=names, party=party, counts=counts, noise=noise, asked=spec.n)


def counted(stages: Sequence[Stage]) -> Array:
    """(J, 2) how many subjects each party's first stage counted, and the error of that; NaN where it has none.

    They are counted before anybody meets anybody, so a wrong n of the study does not matter.
    """
    found = np.full((len(stages), 2), np.nan)
    for place, stage in enumerate(stages):
        if stage.planned is not None and stage.sums is not None:
            found[place] = stage.planned.count(stage.sums[0]), stage.planned.sigma / SCALE
    return found


def undoing(spec: ReleaseSpec, maps: Sequence[IntegerMap | None]) -> tuple[Array, NDArray[np.intp]]:
    """T (J + m, p), presences and then encoded columns as combinations of published ones; and whose each column is.

    Encoded columns are M z + c 1_i of published z; what is published of 1_i is `presence` of it.
    """
    unit = 2**spec.fraction_bits / presence(spec.fraction_bits)
    widths = [len(p.columns) for p in spec.parties]
    parties, published = len(widths), sum(widths)
    T, start, row = np.zeros((published, published)), 0, len(widths)
    for place, (party, width, applied) in enumerate(zip(spec.parties, widths, maps, strict=True)):
        own, rows = slice(start + 1, start + width), slice(row, row + width - 1)
        T[place, start] = unit
        T[rows, own], centre = undone(party, applied, spec.fraction_bits)
        T[rows, start] = unit * centre
        start, row = start + width, rows.stop
    return T, np.repeat(np.arange(parties), np.array(widths) - 1)


def bucket_counts(summed: Array, errors: Array, *, buckets: int, known: Array | None = None) -> Counts:
    """How many subjects there are where `summed` of them met nobody in their bucket (docs/proofs/keyed-subjects.md, 5).

    Of n subjects n (1 - 1/m)^(n - 1) do, which grows up to n = m alone: where nothing else is known it is traced back
    below. A joint one does among all of the union. Errors count noise, who met whom, and strangers: a subject of one
    party alone and one of the other's, who met nobody else.

    Args:
        summed: (J, J) noisy.
        errors: (J, J) of their noise.
        buckets: m.
        known: (J, 2) own counts from elsewhere and their errors, NaN where there is none.
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
    """The n up to `most` of whom so many are alone among `of(n)` others, by halving: no fewer are, the larger n is."""
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
