"""What all results of analyses have in common."""

from dataclasses import fields
from typing import Any

from commingle.services.display.plain import plain
from commingle.services.display.table import Shown


class Result(Shown):
    """A frozen dataclass of names, numbers and arrays."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON: lists, and None for what is not a finite number."""
        names = [f.name for f in fields(self) if f.repr]  # type: ignore[arg-type] # every subclass is a dataclass
        return {name: plain(getattr(self, name)) for name in names}
