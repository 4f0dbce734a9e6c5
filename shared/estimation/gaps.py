"""Attributes whose missing cells are nobody's: no value stands in for one that is not there.

Where missing cells are marked, h = 1_i - (the mark) is the presence of those at party i who have a value, published as
other columns are. Products with that attribute's columns sum over them alone, since a missing cell is 0 in these. So
they are a part of i's subjects, and pairwise moments (`pairwise`) say what they and everybody else share: means and
covariances of that attribute over those who have it, of all others over whom they were over. This holds for everybody
if who has a value does not depend on values; that is tested as it is for keyed subjects.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from commingle.shared.estimation.entry_noise import Array, PairLaw
from commingle.shared.estimation.pairwise import ENOUGH_SHARED, Counts, Pairs
from commingle.shared.estimation.prepared import PreparedMoments

LISTED = "the list"
_CLEAR = 4.0
"""How many times sqrt(q) s a mark varies that is clear of noise: twice the norm of q columns of noise s apiece."""


def without_gaps(prepared: PreparedMoments, names: Sequence[str]) -> PreparedMoments:
    """These moments, in which cells of these attributes that are missing count for nobody; they lose their marks."""
    marked = [name for name in names if prepared.attribute(name).missing == "indicator"]
    if not marked:
        return prepared
    pairs = _parted(pairs_of(prepared), {name: tuple(i - 1 for i in prepared.columns[name]) for name in marked})
    plain = {name: prepared.attributes[name].model_copy(update={"missing": "error"}) for name in marked}
    return replace(
        prepared.with_pairs(pairs),
        attributes={**prepared.attributes, **plain},
        columns={**prepared.columns, **{name: prepared.columns[name][:-1] for name in marked}},
    )


def faint_marks(prepared: PreparedMoments, names: Sequence[str]) -> tuple[str, ...]:
    """Attributes among these whose marks vary too little for terms of their own, beside the noise in them.

    A mark of few cells is nearly nothing and noise: solved for, it carries its noise into every coefficient.
    """
    marked = [name for name in names if prepared.attribute(name).missing == "indicator"]
    if not marked:
        return ()
    pairs = pairs_of(prepared)
    reach = _CLEAR * sqrt(sum(len(prepared.columns[name]) for name in names))
    return tuple(name for name in marked if _faint(pairs, prepared.columns[name][-1] - 1, reach))


def pairs_of(prepared: PreparedMoments) -> Pairs:
    """Its pairs; of listed subjects, all of whom a release knows, those of one party that holds the list."""
    if prepared.pairs is not None:
        return prepared.pairs
    n, width = float(prepared.n), len(prepared.gram)
    scale = n / float(prepared.gram[0, 0])  # 1 of moments; a sketch of rows mixes the ones of n subjects too
    sums, undo = scale * (prepared.gram - prepared.rows * prepared.V), np.eye(width)
    noise = PairLaw.of_rows(scale * prepared.gram, prepared.rows)
    if prepared.entry_variance is not None:
        undo, noise = prepared.mixing, PairLaw.of_entries(prepared.entry_variance)
    whole = np.full((1, 1), n)
    counts = Counts(whole, whole, np.zeros((1, 1)), np.zeros((1, 1)))
    party = np.zeros(width - 1, np.intp)
    return Pairs.of(sums, undo, names=(LISTED,), party=party, counts=counts, noise=noise, asked=prepared.n)


def _faint(pairs: Pairs, mark: int, reach: float) -> bool:
    whose, before = pairs.party[mark], len(pairs.names)
    own = float(pairs.counts.summed[whose, whose])
    rows = pairs.centring[before + mark], pairs.undo[whose] - pairs.undo[before + mark]
    varies, counted = (sqrt(float(pairs.noise.variances(row[None], row[None])[0, 0])) for row in rows)
    return own * float(pairs.covariance[mark, mark]) < reach * varies and own > 2 * ENOUGH_SHARED * counted


def _parted(pairs: Pairs, parts: dict[str, tuple[int, ...]]) -> Pairs:
    before, columns = len(pairs.names), len(pairs.party)
    seen = np.eye(before + columns)
    owner, party = pairs.owner, pairs.party.copy()
    present = list(seen[:before])
    for place, (*values, mark) in enumerate(parts.values(), start=before):
        whose = pairs.party[mark]
        present.append(seen[whose] - seen[before + mark])
        party[values], owner = place, np.append(owner, whose)
    R = np.array([*present, *seen[before:]])
    undo = R @ pairs.undo
    return Pairs.of(
        R @ pairs.sums @ R.T,
        undo,
        names=(*pairs.names, *(f"those with {name}" for name in parts)),
        party=party,
        counts=_counts(pairs, R[: len(owner)], undo[: len(owner)], owner),
        noise=pairs.noise,
        asked=pairs.asked,
        owner=owner,
    )


def _counts(pairs: Pairs, R: Array, undo: Array, owner: NDArray[np.intp]) -> Counts:
    whole, before = np.ix_(owner, owner), pairs.counts
    summed = np.maximum(R @ pairs.sums @ R.T, 0.0)
    summed[: len(before.summed), : len(before.summed)] = before.summed
    kept = np.maximum(before.summed[whole], 1.0)
    share, errors = summed / kept, before.errors[whole].copy()
    for i in range(len(before.summed), len(owner)):
        for j in range(i + 1):
            noise = _share_error(pairs, undo[[i, j]], undo[owner[[i, j]]], share[i, j]) / kept[i, j]
            both = np.hypot(share[i, j] * errors[i, j], before.held[owner[i], owner[j]] * noise)
            errors[i, j] = errors[j, i] = both
    strangers = before.strangers[whole] * np.outer(np.diag(share), np.diag(share))
    return Counts(summed, share * before.held[whole], errors, strangers, before.below)


def _share_error(pairs: Pairs, part: Array, whole: Array, share: float) -> float:
    """The noise of part_1 S part_2 - share whole_1 S whole_2, to first order that of the share times what is whole."""
    form = np.outer(*part) - share * np.outer(*whole)
    used = np.flatnonzero((form + form.T).any(axis=0))
    form = (form + form.T)[used[:, None], used] / 2
    return sqrt(max(0.0, float(pairs.noise.on(used).covariances(form[None])[0, 0])))
