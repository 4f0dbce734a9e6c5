"""The kinds of release, one folder each (docs/adr/0013): what is uploaded, how it is fitted, what it will be worth.

This is the list of all mechanisms. Nothing above knows the name of one, and nothing below asks: documents list names
(`documents.terms.MECHANISM_NAMES`), and estimation is given a `FitMethod`.
"""

from typing import TYPE_CHECKING

from commingle.shared.documents.manifest import SecondMoments
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.terms import Terms
from commingle.shared.mechanisms.interface import Mechanism
from commingle.shared.mechanisms.moments.block import KEYED_MOMENTS, MOMENTS
from commingle.shared.mechanisms.rows.block import DGM, KEYED_RMGM, RMGM

if TYPE_CHECKING:  # a party's agent does not need it, and scipy loads slowly
    from commingle.shared.estimation.prepared import PreparedMoments

MECHANISMS: dict[str, Mechanism] = {"rmgm": RMGM, "dgm": DGM, "moments": MOMENTS}
KEYED: dict[str, Mechanism] = {"rmgm": KEYED_RMGM, "moments": KEYED_MOMENTS}
"""The same for keyed subjects (docs/proofs/keyed-subjects.md), which not every mechanism can have."""


def mechanism_named(name: str, *, keyed: bool = False) -> Mechanism:
    """The mechanism of a name; the one for listed subjects if it has none for keyed ones. Raises KeyError."""
    return (KEYED if keyed else MECHANISMS).get(name) or MECHANISMS[name]


def mechanism_of(asked: "ReleaseSpec | Terms | SecondMoments | PreparedMoments") -> Mechanism:
    return mechanism_named(asked.mechanism, keyed=asked.keyed)


def keyed_by_default(mechanism: str, projection: str | None) -> bool:
    """Whether subjects are keyed if nobody says: if the mechanism offers that with this mixing of rows."""
    return mechanism in KEYED and projection is None


def sketched_names() -> tuple[str, ...]:
    return tuple(name for name, mechanism in MECHANISMS.items() if mechanism.sketched)
