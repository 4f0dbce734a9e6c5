"""Cells as somebody writes them who wants to move what others are encoded to, or to end the reading of a table."""

from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from commingle.shared.documents.schema import Attribute, BinaryAttribute, CategoricalAttribute, NumericAttribute

ATTRIBUTES: tuple[Attribute, ...] = (
    NumericAttribute(name="number", lower=0, upper=100, missing="midpoint"),
    BinaryAttribute(name="flag", levels=("false", "true"), missing="midpoint"),
    CategoricalAttribute(name="level", levels=("r", "s", "1"), missing="indicator"),
)
TEXTS: tuple[str, ...] = (
    "", " ", "NaN", "INF", "-inf", "1e999", "9" * 5000, "0x1", "1_0", "true", "TRUE", "r", " r ", "1.0", "01", "forty",
    '"', "'", '"a","b"', "a,b;c\td", "line\nline\r\nline", "\ufeff", "\u2028", "\ufffd", "e\u0301" * 400, "x" * 100_000,
    "a" + "\u0315\u0300" * 20_000, "=1+1", "#N/A", "2020-02-30", "1899-12-31", '{"a": [1, {"b": null}]}', "</row>",
    "<row><c><v>7</v></c></row>", "]]>", "<![CDATA[", "&amp;", "&lt;", "_x0000_", "_x005F_", "--", "; DROP TABLE t",
    "NULL", "null", "p1", "p2 ", "\u0661",
)  # fmt: skip
"""Texts that any source can hold."""
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 2**53 + 1, 2**63 - 1, -(2**63), 0.1, -0.0, 1e300, 5e-324, *TEXTS,
)  # fmt: skip
"""Values that any database can hold."""
BYTES: tuple[bytes, ...] = (b"\xff\xfe", b"\xed\xa0\x80", b"\xc3", b"r", b"7", b"\0", b"", b"a" * 2000)
MOMENTS: tuple[Any, ...] = (date(1, 1, 1), date(9999, 12, 31), datetime(1900, 2, 28, 23, 59), time(1, 2, 3))  # noqa: DTZ001 - as a sheet has it
DECIMALS: tuple[Any, ...] = (Decimal("1.20"), Decimal("NaN"), Decimal("1E+30"))
