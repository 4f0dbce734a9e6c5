"""What all results of analyses have in common."""

import math
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from services.display.table import Shown


class Result(Shown):
    """A frozen dataclass of names, numbers and arrays."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON: lists, and None for what is not a finite number."""
        names = [f.name for f in fields(self) if f.repr]  # type: ignore[arg-type] # every subclass is a dataclass
        return {name: _plain(getattr(self, name)) for name in names}


def _plain(value: Any) -> Any:  # noqa: ANN401 - any field of a result
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    return None if isinstance(value, float) and not math.isfinite(value) else value
