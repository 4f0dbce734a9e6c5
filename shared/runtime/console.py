"""The one console that commands print on: no text on it can be an order to the terminal, whoever wrote it."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from commingle.shared.text import printable


class PlainConsole(Console):
    """Shows text as it is: brackets are no markup, colons no emoji, and what cannot be seen is left out.

    Colours and the control codes of progress bars come from rich itself, never from a text.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As rich does it, piece by piece, every text in it made printable."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else Segment(printable(piece.text, keep_lines=True), piece.style)
