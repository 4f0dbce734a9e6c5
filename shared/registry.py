"""The mechanisms there are: what a release can be, one line each.

A mechanism is a folder under `shared/mechanisms`; nothing else knows its name. This module imports none of
them, so that every floor may ask: a mechanism is loaded when it is first asked for, and what fits or forecasts its
releases only when somebody does.
"""

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # for type checkers alone: the floors below mechanisms ask too
    from commingle.shared.mechanisms.interface import Mechanism

MECHANISMS: dict[str, str] = {
    "rmgm": "commingle.shared.mechanisms.rows.block:RMGM",
    "dgm": "commingle.shared.mechanisms.rows.block:DGM",
    "moments": "commingle.shared.mechanisms.moments.block:MOMENTS",
}
KEYED: dict[str, str] = {
    "rmgm": "commingle.shared.mechanisms.rows.keyed:KEYED_RMGM",
    "moments": "commingle.shared.mechanisms.moments.keyed:KEYED_MOMENTS",
}
"""The same for keyed subjects (docs/proofs/keyed-subjects.md), which not every mechanism can have."""


class Named(Protocol):
    """Whatever names its mechanism: a study, a spec, a design, moments."""

    @property
    def mechanism(self) -> str: ...
    @property
    def keyed(self) -> bool: ...


def mechanism_named(name: str, *, keyed: bool = False) -> "Mechanism":
    """The mechanism of that name; a KeyError where there is none. That of listed subjects where there is no other."""
    made: Mechanism = load((KEYED if keyed else MECHANISMS).get(name) or MECHANISMS[name])
    return made


def mechanism_of(asked: Named) -> "Mechanism":
    """The mechanism that a document or a design names."""
    return mechanism_named(asked.mechanism, keyed=asked.keyed)


def sketched_names() -> tuple[str, ...]:
    """Mechanisms whose releases have a k."""
    return tuple(name for name in MECHANISMS if mechanism_named(name).sketched)


@cache
def load(address: str) -> Any:  # noqa: ANN401 - whatever is there
    """What "module:attribute" names, imported when it is first asked for."""
    module, _, attribute = address.partition(":")
    return getattr(import_module(module), attribute)
