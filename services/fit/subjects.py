"""The people that a fit is of. Where cells are missing, these have a target: nobody's target is made up.

For keyed subjects it says how many are shared, and whether these differ from the others.

Where missing cells are marked, h = 1_i - (the mark) is the presence of those at party i who have a value, published as
other columns are. Products with that attribute's columns sum over these people alone, since a missing cell is 0. So
they are a part of i's subjects, and pairwise moments (`shared.estimation.pairwise`) say what they share with others:
means and covariances of that attribute are over those who have it, and all others are over the same people as before.
This holds for everybody if having a value does not depend on values; that is tested as for keyed subjects.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.schema import Attribute, NumericAttribute, words_for_missing
from commingle.shared.errors import ImputedTargetError
from commingle.shared.estimation.diagnostics import cut_rows
from commingle.shared.estimation.entry_noise import Array, PairLaw
from commingle.shared.estimation.pairwise import (
    ENOUGH_SHARED,
    Counts,
    Held,
    Pairs,
    Selection,
    held,
    selections,
    suspicious,
)
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.mechanisms import KEYED
from commingle.shared.text import counted

_NEARLY_ALL = 0.95
"""From this share of people with a value on, those without one are too few to bend sums."""


def usable(prepared: PreparedMoments, target: str, features: Sequence[str]) -> tuple[PreparedMoments, tuple[str, ...]]:
    """Moments for fits of a target by these features, and a sentence on the missing cells of each attribute in use.

    These moments leave out people whose target is missing, or whose feature is, if few people lack it.

    Raises:
        ImputedTargetError: missing cells of the target count as a value, or the release does not tell them apart.
        UnknownAttributeError: the release has no attribute of that name.
    """
    attribute, pairwise = prepared.attribute(target), prepared.mechanism in KEYED
    if attribute.missing == "midpoint":
        raise ImputedTargetError(
            f"missing cells of {target} count as {attribute.stand_in}: a fit would take that for what people have",
            remedy='Propose the study with "missing": "indicator" for it: its fits then use those who have one.',
        )
    if attribute.missing == "indicator" and not pairwise:
        raise ImputedTargetError(
            f"cells of {target} may be missing, and a release of {prepared.mechanism} cannot be fitted without these",
            remedy='Propose the study with another mechanism, such as "moments".',
        )
    faint = faint_marks(prepared, features) if pairwise else ()
    found = without_gaps(prepared, (target, *faint))
    marked = filter(None, (_of_mark(found.attributes[name]) for name in features))
    return found, (*_of_those_with(found, target), *(_of_feature(found, name) for name in faint), *marked)


def _of_mark(attribute: Attribute) -> str | None:
    said = words_for_missing(attribute)
    if said is None or attribute.missing != "indicator" or not isinstance(attribute, NumericAttribute):
        return said
    middle = f"{attribute.name} = {attribute.columns[0].offset:g}, the middle of its bounds"
    return f"{said}, which is compared with {middle}"


def of_those_who_have(prepared: PreparedMoments, names: Sequence[str]) -> tuple[PreparedMoments, tuple[str, ...]]:
    """Moments without the people who lack one of these attributes, where the release tells missing cells apart.

    Returns the moments, and a sentence for each attribute with missing cells. Raises UnknownAttributeError.
    """
    if prepared.mechanism not in KEYED:
        return prepared, ()
    found = without_gaps(prepared, names)
    return found, tuple(said for name in names for said in _of_those_with(found, name))


def _of_those_with(found: PreparedMoments, target: str) -> tuple[str, ...]:
    place = -1 if found.pairs is None else int(found.pairs.party[found.columns[target][0] - 1])
    if found.pairs is None or found.pairs.owner[place] == place:
        return ()
    said = _share(found.pairs, place, target)
    return (f"{said}. Sums with it are of those, and hold for all if who lacks one does not depend on values.",)


def _of_feature(found: PreparedMoments, name: str) -> str:
    if found.pairs is None:
        raise TypeError("an attribute without gaps is of pairs")
    said = _share(found.pairs, int(found.pairs.party[found.columns[name][0] - 1]), name)
    return f"{said}: too few lack one for a term of their own, so sums with it are of those who have one."


def _share(pairs: Pairs, place: int, name: str) -> str:
    whole = int(pairs.owner[place])
    held, everybody, error = pairs.counts.held[place, place], pairs.counts.held[whole, whole], pairs.counts.errors
    subjects = f"about {min(max(held, 0), everybody):,.0f} of {everybody:,.0f} people have one"
    return f"{name}: {subjects}, give or take {2 * error[place, place]:,.0f}"


def words_for_counts(found: Held) -> str:
    """One count in words: with the half width of its 95 % interval, and how many people are alone in their bucket."""
    said = f"about {max(found.subjects, 0):,.0f} people, give or take {2 * found.error:,.0f}"
    if found.kept != found.subjects:
        said += f", of whom about {max(found.kept, 0):,.0f} count"
    if len(found.parties) == 1:
        return f"{found.parties[0]} holds {said}."
    return f"{found.parties[0]} and {found.parties[1]} share {said}."


@dataclass(frozen=True, slots=True)
class Subjects:
    """The people that a fit rests on.

    Attributes:
        counts: how many people each party of its columns holds, how many each two share, and how many have the target;
            or the length of the list.
        notes: these counts in sentences, where they are not exact, and whether these people differ from the others.
        doubts: warnings, where they differ.
    """

    counts: tuple[Held, ...]
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


def about_subjects(prepared: PreparedMoments, columns: NDArray[np.intp]) -> Subjects:
    """The people of the moments of these columns, the target last: who has it is tested, however few lack it."""
    pairs = prepared.pairs
    if pairs is None:
        return Subjects((Held((LISTED,), float(prepared.n), 0.0, float(prepared.n)),))
    places = pairs.party[columns]
    whole = pairs.owner[places]
    have = pairs.counts.held[places, places] / np.maximum(pairs.counts.held[whole, whole], 1.0)
    kept = (whole == places) | (places == places[-1]) | (have < _NEARLY_ALL)
    used = np.union1d(places[kept], pairs.owner[places])
    names = {pairs.names[i] for i in used}
    parts = {pairs.names[i]: {pairs.names[i], pairs.names[pairs.owner[i]]} for i in used if pairs.owner[i] != i}
    counts = tuple(found for found in held(pairs) if names.issuperset(found.parties))
    told = [found for found in counts if found.parties != (LISTED,)]
    told = [found for found in told if not any(whole.issuperset(found.parties) for whole in parts.values())]
    notes = [*whose(prepared, 1 + columns), *(words_for_counts(found) for found in told)]
    if pairs.counts.below is not None:
        notes.append(f"This is so if no member holds more than {pairs.counts.below:,}: more would look like fewer.")
    tests = selections(pairs, columns[kept])
    doubts = suspicious(tests)
    if tests and not doubts:
        least = min(test.p_value for test in tests)
        made = counted(len(tests), "test")
        who = "shared people" if told else "those who have it"
        notes.append(f"Nothing shows that {who} differ from the others ({made}, the least p {least:.2g}).")
    warnings = [
        f"{_differ(test, parts)} (chi-squared {test.statistic:.0f} on {test.degrees}, p = {test.p_value:.1g}; most in "
        f"{prepared.labels[1 + test.column]}): who is missing depends on values, so coefficients may not hold for "
        "everybody and intervals do not count that."
        for test in doubts
    ]
    return Subjects(counts, tuple(notes), (*warnings, *prepared.misjudged((1 + columns).tolist())))


def whose(prepared: PreparedMoments, columns: Sequence[int] | NDArray[np.intp]) -> tuple[str, ...]:
    """Which people a study chose, a sentence for each member of these columns; empty where it chose everybody."""
    if prepared.pairs is None:
        return ()
    owners = prepared.pairs.owner[prepared.pairs.party[np.array(columns, np.intp) - 1]]
    names = dict.fromkeys(prepared.pairs.names[place] for place in owners)
    return tuple(prepared.subsets[name] for name in names if name in prepared.subsets)


def about_tables(prepared: PreparedMoments, names: Iterable[str]) -> Subjects:
    """The people of counts of these attributes. `doubts` also say that rows were cut, which intervals do not count.

    Raises UnknownAttributeError.
    """
    used = np.array([i for name in names for i in prepared.columns[name]], np.intp)
    found = about_subjects(prepared, used - 1)
    return replace(found, doubts=(*cut_words(prepared, used), *found.doubts))


def cut_words(
    prepared: PreparedMoments, columns: Sequence[int] | NDArray[np.intp], *, intervals: bool = True
) -> list[str]:
    """Warnings that rows were cut, which bends figures of these columns other than coefficients."""
    lost = None if prepared.lost is None else prepared.lost[np.array(columns)]
    return cut_rows(prepared.cut, lost, counted=False if intervals else None)


def _differ(test: Selection, parts: Collection[str]) -> str:
    if test.other in parts and test.party in parts:
        return f"T{test.party[1:]} who are among {test.other} differ from all {test.party}"
    if test.other in parts:
        return f"T{test.other[1:]} differ from all people of {test.party}"
    if test.party in parts:
        return f"T{test.party[1:]} whom {test.other} holds differ from all {test.party}"
    return f"People whom {test.party} shares with {test.other} differ from all its own"


LISTED = "the list"
_CLEAR = 4.0
"""A mark is clear of noise if it varies this many times sqrt(q) s: twice the norm of q columns of noise s each."""


def without_gaps(prepared: PreparedMoments, names: Sequence[str]) -> PreparedMoments:
    """These moments without the people who lack one of these attributes; the attributes lose their marks."""
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
    """Those of these attributes whose marks vary too little, beside their noise, for terms of their own.

    A mark of few cells is nearly all noise. As a term it would carry this noise into every coefficient.
    """
    marked = [name for name in names if prepared.attribute(name).missing == "indicator"]
    if not marked:
        return ()
    pairs = pairs_of(prepared)
    reach = _CLEAR * sqrt(sum(len(prepared.columns[name]) for name in names))
    return tuple(name for name in marked if _faint(pairs, prepared.columns[name][-1] - 1, reach))


def pairs_of(prepared: PreparedMoments) -> Pairs:
    """The pairs of a release; for listed subjects, all of whom it knows, those of one party that holds the list."""
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
    kept, known = np.maximum(before.summed[whole], 1.0), before.summed[whole] >= 1
    share, errors = np.where(known, summed / kept, 1.0), before.errors[whole].copy()
    met = np.where(known, before.held[whole] / kept, 1.0)
    for i in range(len(before.summed), len(owner)):
        for j in range(i + 1):
            noise = met[i, j] * _share_error(pairs, undo[[i, j]], undo[owner[[i, j]]], share[i, j])
            both = np.hypot(share[i, j] * errors[i, j], noise)
            errors[i, j] = errors[j, i] = both
    strangers = before.strangers[whole] * np.outer(np.diag(share), np.diag(share))
    held = met * summed
    held[: len(before.summed), : len(before.summed)] = before.held
    return Counts(summed, held, errors, strangers, before.below)


def _share_error(pairs: Pairs, part: Array, whole: Array, share: float) -> float:
    """The noise of part_1 S part_2 - share whole_1 S whole_2: to first order, of the share times the whole."""
    form = np.outer(*part) - share * np.outer(*whole)
    used = np.flatnonzero((form + form.T).any(axis=0))
    form = (form + form.T)[used[:, None], used] / 2
    return sqrt(max(0.0, float(pairs.noise.on(used).covariances(form[None])[0, 0])))
