"""What a fit of keyed subjects says of who they are: how many are shared, and whether those differ from the others."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from commingle.shared.estimation.diagnostics import cut_rows
from commingle.shared.estimation.gaps import LISTED
from commingle.shared.estimation.overlap import Held, Selection, held, selections, suspicious
from commingle.shared.estimation.prepared import PreparedMoments


def words_for_counts(found: Held) -> str:
    """One count in words, with the half width of its 95 % interval, and how many of them met nobody in a bucket."""
    said = f"about {max(found.subjects, 0):,.0f} subjects, give or take {2 * found.error:,.0f}"
    if found.kept != found.subjects:
        said += f", of whom about {max(found.kept, 0):,.0f} count"
    if len(found.parties) == 1:
        return f"{found.parties[0]} holds {said}."
    return f"{found.parties[0]} and {found.parties[1]} share {said}."


@dataclass(frozen=True, slots=True)
class Subjects:
    """Whom a fit rests on.

    Attributes:
        counts: how many each party of its columns holds, each two of them share, and have the target; or all of a list.
        notes: the same in sentences, where it is not known exactly, and whether these people differ from the others.
        doubts: warnings, where they do.
    """

    counts: tuple[Held, ...]
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


def about_subjects(prepared: PreparedMoments, columns: NDArray[np.intp]) -> Subjects:
    """Whom moments of these columns are of, the target's last."""
    pairs = prepared.pairs
    if pairs is None:
        return Subjects((Held((LISTED,), float(prepared.n), 0.0, float(prepared.n)),))
    whose = pairs.party[columns]
    kept = (pairs.owner[whose] == whose) | (whose == whose[-1])  # few lack what is a part of its own besides the target
    used = np.union1d(whose[kept], pairs.owner[whose])
    names = {pairs.names[i] for i in used}
    parts = {pairs.names[i]: {pairs.names[i], pairs.names[pairs.owner[i]]} for i in used if pairs.owner[i] != i}
    counts = tuple(found for found in held(pairs) if names.issuperset(found.parties))
    told = [found for found in counts if found.parties != (LISTED,)]
    told = [found for found in told if not any(whole.issuperset(found.parties) for whole in parts.values())]
    notes = [words_for_counts(found) for found in told]
    if pairs.counts.below is not None:
        notes.append(f"This is so if no party holds more than {pairs.counts.below:,}: more would look like fewer.")
    tests = selections(pairs, columns[kept])
    doubts = suspicious(tests)
    if tests and not doubts:
        least = min(test.p_value for test in tests)
        made = "one test" if len(tests) == 1 else f"{len(tests)} tests"
        who = "shared subjects" if told else "those who have it"
        notes.append(f"Nothing shows that {who} differ from the others ({made}, the least p {least:.2g}).")
    warnings = [
        f"{_differ(test, parts)} (chi-squared {test.statistic:.0f} on {test.degrees}, p = {test.p_value:.1g}; most in "
        f"{prepared.labels[1 + test.column]}): who is missing depends on values, so coefficients may not hold for "
        "everybody and intervals do not count that."
        for test in doubts
    ]
    return Subjects(counts, tuple(notes), (*warnings, *prepared.misjudged((1 + columns).tolist())))


def about_tables(prepared: PreparedMoments, names: Iterable[str]) -> Subjects:
    """Whom counts of these attributes are of; `doubts` say too that rows were cut, which no interval of counts holds.

    Raises UnknownAttributeError.
    """
    used = np.array([i for name in names for i in prepared.columns[name]], np.intp)
    found = about_subjects(prepared, used - 1)
    cut = cut_rows(prepared.cut, None if prepared.lost is None else prepared.lost[used], counted=False)
    return replace(found, doubts=(*cut, *found.doubts))


def _differ(test: Selection, parts: Collection[str]) -> str:
    """Who differs from whom; `parts` are names of those who have a value."""
    if test.other in parts:
        return f"T{test.other[1:]} differ from all subjects of {test.party}"
    if test.party in parts:
        return f"T{test.party[1:]} whom {test.other} holds differ from all {test.party}"
    return f"Subjects whom {test.party} shares with {test.other} differ from all its own"
