"""A table as a pandas data frame."""

from typing import TYPE_CHECKING, Any

import numpy as np

from commingle.services.errors import MissingExtraError

if TYPE_CHECKING:  # table.py offers this function on every result
    from commingle.services.display.table import Table


def to_frame(table: "Table") -> Any:  # noqa: ANN401 - pandas is optional, so its types cannot be named here
    """A `pandas.DataFrame` indexed by the labels.

    Raises:
        MissingExtraError: pandas is not installed.
    """
    try:
        import pandas as pd  # noqa: PLC0415 - optional, and slow to import
    except ImportError:
        raise MissingExtraError("pandas", extra="notebook") from None
    index = pd.Index(table.labels, name=table.heading)
    numbers = np.column_stack([column.numbers for column in table.columns])
    return pd.DataFrame(numbers, index=index, columns=[column.heading for column in table.columns])  # two may be alike
