"""What a fit of keyed subjects says of who they are: how many are shared, and whether those differ from the others."""

import numpy as np
from numpy.typing import NDArray

from commingle.shared.estimation.overlap import Held, held, selections, suspicious
from commingle.shared.estimation.prepared import PreparedMoments


def words_for_counts(found: Held) -> str:
    """One count in words, with the half width of its 95 % interval, and how many of them met nobody in a bucket."""
    said = f"about {max(found.subjects, 0):,.0f} subjects, give or take {2 * found.error:,.0f}"
    if found.kept != found.subjects:
        said += f", of whom about {max(found.kept, 0):,.0f} count"
    if len(found.parties) == 1:
        return f"{found.parties[0]} holds {said}."
    return f"{found.parties[0]} and {found.parties[1]} share {said}."


def about_subjects(prepared: PreparedMoments, columns: NDArray[np.intp]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Notes and warnings about the parties of these columns; nothing where subjects are listed."""
    pairs = prepared.pairs
    if pairs is None:
        return (), ()
    names = {pairs.names[i] for i in pairs.party[columns]}
    notes = [words_for_counts(found) for found in held(pairs) if names.issuperset(found.parties)]
    if pairs.counts.below is not None:
        notes.append(f"This is so if no party holds more than {pairs.counts.below:,}: more would look like fewer.")
    tests = selections(pairs, columns)
    doubts = suspicious(tests)
    if tests and not doubts:
        least = min(test.p_value for test in tests)
        notes.append(
            f"Nothing shows that shared subjects differ from the others ({len(tests)} tests, the least p {least:.2g})."
        )
    warnings = [
        f"Subjects whom {test.party} shares with {test.other} differ from all its own (chi-squared "
        f"{test.statistic:.0f} on {test.degrees}, p = {test.p_value:.1g}; most in {prepared.labels[1 + test.column]}): "
        "who is missing depends on values, so coefficients may not hold for everybody and intervals do not count that."
        for test in doubts
    ]
    return tuple(notes), (*warnings, *prepared.misjudged((1 + columns).tolist()))
