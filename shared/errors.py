"""The root of every error Commingle raises on purpose.

Faults of a caller inside Commingle are plain ValueErrors (`MixingError`). Expected refusals (a
budget that does not suffice, a proposal that a policy declines) are values, not errors.
"""

import copyreg
from typing import Any, ClassVar

from commingle.shared.text import printable


class CommingleError(Exception):
    """A fault that a person can act on. What it says is printable, no matter who wrote the names in it.

    Attributes:
        code: stable identifier, the last part of a problem document's `type`.
        remedy: one sentence that says what to do about it.
    """

    code: ClassVar[str] = "fault"

    def __init__(self, message: str, *, remedy: str) -> None:
        super().__init__(printable(message, keep_lines=True))
        self.remedy = printable(remedy, keep_lines=True)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by what it holds: a subclass may take other arguments than the message."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined] # pickle's own

    def diagnostics(self) -> str:
        """The message and its remedy, as a command line prints them."""
        return f"{self}\n  {self.remedy}"


class DataError(CommingleError):  # rows that do not fit their schema; told by column and counts, never by a value
    code = "data"


class MissingExtraError(CommingleError):
    """An optional library is not installed.

    Attributes:
        extra: the extra of `commingle` that brings it.
    """

    code = "missing-extra"

    def __init__(self, package: str, *, extra: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(f"{package} is not installed", remedy=f'Install it with: pip install "commingle[{extra}]"')


class MixingError(ValueError):
    """An argument lies outside the domain for which the projection is defined and exact."""
