"""A value of a result as JSON takes it."""

import math
from typing import Any

import numpy as np


def plain(value: Any) -> Any:  # noqa: ANN401 - any field of a result
    """Lists for arrays and tuples, and None for what is not a finite number."""
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
