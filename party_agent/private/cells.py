"""Values of a source that knows no Arrow, as cells: a column at a time, each cell by itself."""

from collections.abc import Sequence
from contextlib import suppress
from types import NoneType

import pyarrow as pa

from commingle.shared.encoding import Cells, as_text

_NOTHING = "\0"
"""Neither a number nor a level that a schema could have."""
_TYPES = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.large_string(), bytes: pa.large_binary()}


def cells_of(values: Sequence[object]) -> Cells:
    """Cells of one plain type as they are; of several types or of another each as its text, whatever is beside it."""
    kinds = set(map(type, values)) - {NoneType}
    kind = _TYPES.get(kinds.pop()) if len(kinds) == 1 else None
    if kind is not None:
        with suppress(pa.ArrowException, OverflowError, UnicodeError):
            array: Cells = pa.array(values, kind)
            return array
    floats = pa.array([value for value in values if isinstance(value, float)], pa.float64())
    written = iter(as_text("", floats).to_pylist())
    texts = (next(written) or _NOTHING if isinstance(v, float) else v if v is None else _text(v) for v in values)
    return pa.array(list(texts), pa.large_string())


def _text(value: object) -> str:
    """As the encoder reads a cell of that type where it stands in a column of its own."""
    try:
        if isinstance(value, bytes):
            return value.decode()
        return str(value).lower() if isinstance(value, bool) else str(value).encode().decode()
    except ValueError:  # no Unicode, or digits without end
        return _NOTHING
