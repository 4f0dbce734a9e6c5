"""Text from elsewhere, as people may be shown it.

The author of a title, a name or an error's words chooses their characters. Some are orders to a terminal (C0 and C1
controls, ESC), turn the reading direction round (bidi marks), begin lines or are invisible. We show none of these: all
that is printed, logged or put into an error or a notebook goes through `printable`.
"""

import json
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

_HIDDEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
_LONGEST = 600


def printable(text: str, *, keep_lines: bool = False) -> str:
    """The text without characters of the Unicode categories Cc, Cf, Cn, Co, Cs, Zl and Zp: on one line.

    Separators of words become blanks. `keep_lines` is for our own texts: it keeps line feeds.
    """
    if text.isprintable():
        return text
    if keep_lines:
        return "\n".join(map(printable, text.split("\n")))
    return "".join(_shown(character) for character in text)


def quoted(text: str, *, longest: int = _LONGEST) -> str:
    """Somebody else's words in quotation marks that they cannot close: on one line, of limited length."""
    shown = printable(text).replace("\u201c", '"').replace("\u201d", '"')
    return f"\u201c{shown if len(shown) <= longest else shown[: longest - 1] + '…'}\u201d"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number and what it counts: "1 charge", "12,000 charges"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def trimmed_names(names: Sequence[str]) -> list[str]:
    """Names of columns without outer white space, which nobody sees; two that would be alike keep theirs."""
    times = Counter(name.strip() for name in names)
    return [name.strip() if times[name.strip()] == 1 else name for name in names]


def ascii_json(value: object) -> bytes:
    """Compact JSON in ASCII and without NaN: no name in it can be an order to the terminal that prints it."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")


def hidden_text(document: object, *, at: str = "") -> Iterator[str]:
    """The places in a document of JSON values with text that has invisible characters."""
    if isinstance(document, str):
        if printable(document) != document:
            yield at
    elif isinstance(document, Mapping):
        for name, value in document.items():
            yield from hidden_text(value, at=f"{at}.{name}" if at else str(name))
    elif isinstance(document, list | tuple):
        for number, value in enumerate(document):
            yield from hidden_text(value, at=f"{at}.{number}")


def _shown(character: str) -> str:
    if unicodedata.category(character) not in _HIDDEN:
        return character
    return " " if character.isspace() else ""
