"""From the published moments of keyed subjects to counts and pairs (docs/proofs/keyed-subjects.md, 3 and 5)."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.manifest import SecondMoments
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.dp.fixed_point import presence
from commingle.shared.dp.whitening import IntegerMap
from commingle.shared.estimation.pairwise import Array, Counts, Pairs
from commingle.shared.estimation.published_noise import MixedRows, NoisyEntries, PublishedNoise

_STEPS = 60  # of fixed points and of halving


def pairs_of(moments: SecondMoments, spec: ReleaseSpec, maps: Sequence[IntegerMap | None]) -> Pairs:
    """What a release says of every pair of its parties, every map of rows undone; `maps` in the order of parties."""
    gram = np.array(moments.gram)
    undo, party = undoing(spec, maps)
    parties = len(spec.parties)
    present = undo[:parties]
    if moments.entry_variance is None:
        sums = gram - moments.rows * np.diag(moments.noise_variance)
        noise: PublishedNoise = MixedRows(gram, moments.rows)
        summed = present @ sums @ present.T
        counts = Counts(summed, summed, np.sqrt(noise.variances(present)), np.zeros((parties, parties)))
    else:
        sums, noise = gram, NoisyEntries(np.array(moments.entry_variance))
        errors = np.sqrt(noise.variances(present))
        counts = bucket_counts(present @ sums @ present.T, errors, buckets=moments.rows)
    names = tuple(p.name for p in spec.parties)
    return Pairs.of(sums, undo, names=names, party=party, counts=counts, noise=noise)


def undoing(spec: ReleaseSpec, maps: Sequence[IntegerMap | None]) -> tuple[Array, NDArray[np.intp]]:
    """T (J + m, p), presences and then encoded columns as combinations of published ones; and whose each column is.

    A published z = W (x - c 1_i) gives x = W^-1 z + c 1_i; what is published of 1_i is `presence` of it.
    """
    unit = 2**spec.fraction_bits / presence(spec.fraction_bits)
    widths = [len(p.columns) for p in spec.parties]
    parties, published = len(widths), sum(widths)
    T, start, row = np.zeros((published, published)), 0, len(widths)
    for place, (width, applied) in enumerate(zip(widths, maps, strict=True)):
        own, rows = slice(start + 1, start + width), slice(row, row + width - 1)
        T[place, start] = unit
        T[rows, own] = np.eye(width - 1)
        if applied is not None:
            T[rows, own], centre = applied.undo()
            T[rows, start] = unit * centre
        start, row = start + width, rows.stop
    return T, np.repeat(np.arange(parties), np.array(widths) - 1)


def bucket_counts(summed: Array, errors: Array, *, buckets: int) -> Counts:
    """How many subjects there are where `summed` of them found a bucket to themselves.

    n subjects are in B (1 - (1 - 1/B)^n) buckets, one each. Joint ones are kept with probability kappa(u), u the others
    of the union (docs/proofs/keyed-subjects.md, 5.2). Strangers met where both have taken a bucket and not for one whom
    both hold. Errors count noise, strangers, and who was kept as if each were
    by itself, which is the most.
    """
    kept = np.clip(summed, 0.0, buckets - 0.5)
    left = math.log1p(-1 / buckets)
    own = np.log1p(-np.diag(kept) / buckets) / left
    held = kept.copy()
    for _ in range(_STEPS):
        others = np.maximum(own[:, None] + own - held - 1, 0.0)
        share = -buckets / (others + 1) * np.expm1((others + 1) * left)
        held = np.minimum(kept / share, np.minimum.outer(own, own))
    np.fill_diagonal(held, own)
    taken = np.diag(kept)
    union = -buckets * np.expm1((own[:, None] + own - held) * left)  # buckets that one of two parties has taken
    strangers = np.clip(taken[:, None] + taken - union - kept, 0.0, None)
    np.fill_diagonal(strangers, 0.0)
    share = np.maximum(kept, 1.0) / np.maximum(held, 1.0)
    variance = errors**2 + strangers + kept * np.maximum(1 - share, 0.0)
    return Counts(kept, held, np.sqrt(variance) / share, strangers)
