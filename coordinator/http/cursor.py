"""Paging cursors: opaque to clients, a row number inside."""

from base64 import urlsafe_b64decode, urlsafe_b64encode

from commingle.coordinator.errors import CursorError

_HIGHEST = 1 << 62


def encode_cursor(number: int | None) -> str | None:
    """The cursor to continue after row `number`."""
    return None if number is None else urlsafe_b64encode(b"v1:%d" % number).decode().rstrip("=")


def decode_cursor(text: str | None) -> int | None:
    """The row number in a cursor. Raises CursorError."""
    if text is None:
        return None
    try:
        version, _, number = urlsafe_b64decode(text + "=" * (-len(text) % 4)).partition(b":")
        value = int(number) if version == b"v1" and number.isdigit() and len(number) < len(str(_HIGHEST)) else None
    except ValueError:
        value = None
    if value is None:
        raise CursorError("not a cursor of this coordinator", remedy="Use `next` of the previous page, or none.")
    return value
