"""The one console that commands print on: no text on it can be an order to the terminal, no matter who wrote it."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from commingle.shared.text import printable


class PlainConsole(Console):
    """Shows text as it is: brackets are no markup, colons no emoji, and what cannot be seen is left out.

    Colours and the control codes of progress bars come from rich itself, never from a text.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False)

    def print(self, *objects: Any, **options: Any) -> None:  # noqa: ANN401 - rich's own signature
        """As rich does it; sentences are not broken into lines, so that they can be searched and copied."""
        if all(isinstance(each, str | Text) for each in objects):
            options = {"soft_wrap": True, "highlight": False, **options}
        super().print(*objects, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As rich does it, piece by piece, every text in it made printable."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else Segment(printable(piece.text, keep_lines=True), piece.style)
