"""The console that commands print on: no text on it can give orders to the terminal, whoever wrote it."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from commingle.shared.text import printable

if TYPE_CHECKING:
    from rich.table import Table


class PlainConsole(Console):
    """Shows text as it is: brackets are no markup, colons no emoji, and invisible characters are left out.

    Colours and the control codes of progress bars come from rich itself, never from a text.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False)

    def print(self, *objects: Any, **options: Any) -> None:  # noqa: ANN401 - rich's own signature
        """As rich does it, but without breaking sentences into lines, so that people can search and copy them."""
        if all(isinstance(each, str | Text) for each in objects):
            options = {"soft_wrap": True, "highlight": False, **options}
        super().print(*objects, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As rich does it, piece by piece, with every text made printable."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else Segment(printable(piece.text, keep_lines=True), piece.style)


def figures(first: str, *others: str, title: str | None = None) -> "Table":
    """A table of names, with a right-aligned column of numbers under each other heading."""
    from rich.table import Table  # noqa: PLC0415 - most that is printed has none

    table = Table(first, title=title, title_justify="left")
    for heading in others:
        table.add_column(heading, justify="right")
    return table


def coefficients(terms: Iterable[tuple[str, float, float | None]], *, title: str | None = None) -> "Table":
    """The table of a regression: in original units, or encoded where no term has original units; never a mixture.

    Each term has its label, its encoded coefficient and the one in original units: None if that is beyond all floats.
    """
    shown = tuple(terms)
    unitless = all(original is None for _, _, original in shown)
    note = " (encoded, rows divided by their norms)" if unitless else ""
    table = figures("term", f"coefficient{note}", title=title)
    for label, encoded, original in shown:
        value = encoded if unitless else original
        table.add_row(Text(label), "too large" if value is None else f"{value:.6g}")
    return table
