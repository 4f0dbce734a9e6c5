"""Whom a fit uses where cells are missing: of its target those who have it. Nobody's target is made up."""

from collections.abc import Sequence
from dataclasses import dataclass

from commingle.shared.documents.schema import words_for_missing
from commingle.shared.estimation.errors import ImputedTargetError
from commingle.shared.estimation.gaps import faint_marks, without_gaps
from commingle.shared.estimation.pairwise import Pairs
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.mechanisms.registry import KEYED


@dataclass(frozen=True, slots=True, eq=False)
class Usable:
    """Moments for fits of one target.

    Attributes:
        prepared: in which missing cells of the target, and of features with few of them, count for nobody.
        notes: what became of missing cells of each attribute in use that accepts them, a sentence each.
    """

    prepared: PreparedMoments
    notes: tuple[str, ...]


def usable(prepared: PreparedMoments, target: str, features: Sequence[str]) -> Usable:
    """Moments for fits of a target by these features.

    Raises:
        ImputedTargetError: missing cells of the target count as a value, or its release does not tell them apart.
        UnknownAttributeError: a name that the release does not have.
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
    marked = filter(None, (words_for_missing(found.attributes[name]) for name in features))
    return Usable(found, (*_of_target(found, target), *(_of_feature(found, name) for name in faint), *marked))


def _of_target(found: PreparedMoments, target: str) -> tuple[str, ...]:
    place = -1 if found.pairs is None else int(found.pairs.party[found.columns[target][0] - 1])
    if found.pairs is None or found.pairs.owner[place] == place:
        return ()
    said = _share(found.pairs, place, target)
    return (f"{said}. Sums with it are of those; the fit holds for all if who lacks one does not depend on values.",)


def _of_feature(found: PreparedMoments, name: str) -> str:
    if found.pairs is None:
        raise TypeError("an attribute without gaps is of pairs")
    said = _share(found.pairs, int(found.pairs.party[found.columns[name][0] - 1]), name)
    return f"{said}: too few lack one for a term of their own, so sums with it are of those who have one."


def _share(pairs: Pairs, place: int, name: str) -> str:
    whole = int(pairs.owner[place])
    held, everybody, error = pairs.counts.held[place, place], pairs.counts.held[whole, whole], pairs.counts.errors
    subjects = f"about {max(held, 0):,.0f} of {everybody:,.0f} subjects have one"
    return f"{name}: {subjects}, give or take {2 * error[place, place]:,.0f}"
