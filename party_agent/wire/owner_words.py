"""What the owner of a table alone is told of it, and who that is: sentences that follow from rows, with exact counts.

Adversary: another member, or a reader of a schema. No charge pays for these, so nothing of them leaves the owner's
screen, and each says so if its reader could be led to pass it on.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from commingle.shared.documents.schema import Attribute, NumericAttribute, words_for_missing
from commingle.shared.documents.subject_ids import EXACT, prefix_rule
from commingle.shared.text import counted

_TOO_WIDE = 10
"""If a number fills no more hundredths of its bounds, we tell its owner."""
_FAR = 2
"""If a party's own number is so many times a study's n, or such a part of it, we tell its owner."""


def miscounted(dataset: str, held: int, n: int) -> str | None:
    """A keyed data set holds twice as many people as n, half as many, or is farther off: for its owner alone."""
    if n < _FAR * held < _FAR**2 * n:
        return None
    costs = "with so few buckets many people share one, and are left out" if n < held else "it costs noise or time"
    return (
        f"{dataset} holds {held:,} people, and the study says n = {n:,}: {costs}, and the forecast is for {n:,}. "
        "Only you are shown this. If you ask for another n, say two digits: what you say of yours is not protected."
    )


def words_for_wide(attribute: Attribute, filled: int) -> str | None:
    """A number's bounds are ten times as wide as its values or wider: for its owner alone.

    Adversary: a reader of the schema. An owner who fits bounds to rows tells of the people at both ends.
    """
    if not isinstance(attribute, NumericAttribute) or not 0 < filled <= _TOO_WIDE:
        return None
    return (
        f"{attribute.name}: nearly all values lie within {filled} % of the bounds {attribute.lower:g} to "
        f"{attribute.upper:g}. Wide bounds mean more noise, which only a forecast by a public table counts. Only you "
        "are shown this. If public knowledge allows narrower ones, agree on them with the other members: bounds read "
        "off rows tell of people"
    )


def id_words(forms: Sequence[str], rules: Sequence[str]) -> str | None:
    """How ids are written, for the owner to compare with other members'; None if there is nothing to say."""
    if not forms:
        return None
    said = (
        f"ids are {'; or '.join(forms)} ({', '.join(rules)}). Ask the other members how theirs are written, without "
        "naming one: ids written otherwise are other people"
    )
    if tuple(rules) != EXACT or (rule := prefix_rule([forms])) is None:
        return said
    return (
        f"{said}. If theirs are digits alone, or behind the same prefix, all can register with --id-rule {rule}. Every "
        "study then shows the prefix to everybody: if it tells of people, have the tables written with digits alone"
    )


def cell_words(
    attributes: Sequence[Attribute],
    n: int,
    clipped: Mapping[str, int],
    filled: Mapping[str, int],
    missing: Mapping[str, int] | None,
) -> list[str]:
    """What to look at in the cells of n people, in sentences; `missing` is None for who may see no counts."""
    found = list[str]()
    for one in attributes:
        if beyond := clipped.get(one.name, 0):
            doubt = ": are the bounds in the unit of the table?" if 2 * beyond > n else ""
            said = ("value was outside the bounds and is clipped", "values were outside the bounds and are clipped")
            found.append(f"{one.name}: {counted(beyond, *said)}{doubt}")
        words = words_for_wide(one, filled.get(one.name, 0)), words_for_missing(one, (missing or {}).get(one.name))
        found += filter(None, words)
    return found


class Viewer(StrEnum):
    """Who looks at the local API or the console."""

    OPERATOR = "operator"
    TOKEN = "token"  # noqa: S105 - no secret
    PERSON = "person"
    SENDER = "sender"


_SEE_COUNTS = frozenset({Viewer.OPERATOR, Viewer.SENDER})
"""A sender has pushed the very rows that are counted."""


def sees_counts(viewer: Viewer) -> bool:
    """Whether a viewer is shown exact counts, of subjects or of cells that are missing, clipped or changed.

    They follow from rows, and no charge pays for them. If it is private who is there, a number of rows that is one more
    tells it. So the operator, who has the rows, sees them and nobody else does, whatever a token or a link may do.
    Whatever shows a count asks here, and knows no way of its own. A job counts the rows it has read.
    """
    return viewer in _SEE_COUNTS
