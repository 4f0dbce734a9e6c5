"""What a target of the fuzzing is, and damage to valid documents: to their bytes, and to the values of JSON."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

_NUMBERS = (
    0,
    -1,
    1,
    2,
    255,
    256,
    1 << 31,
    1 << 53,
    (1 << 63) - 1,
    1 << 64,
    -(1 << 63),
    10**400,
    0.5,
    -0.0,
    1e-320,
    1e308,
)
_ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    "",
    " ",
    "\x00",
    "é",
    "e\u0301",
    "\u202e",
    "x" * 5000,
    "0" * 64,
    "[bold]",
    [],
    {},
    [[]],
    {"": {}},
)
_BYTES = (
    b"\x00",
    b"\xff" * 4,
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xef\xbb\xbf",
    b"NaN",
    b"Infinity",
    b"[" * 3000,
    b"{",
    b'"',
)
_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Target:
    """One parser. `run` gets damaged bytes and must either return or raise a CommingleError."""

    corpus: Sequence[bytes]
    run: Callable[[bytes], object]


def unforged(accepted: object, right: object) -> None:
    """Raise AssertionError where something was accepted that nobody signed."""
    if accepted != right:
        raise AssertionError("accepted what was never signed")


def mutate(draw: Random, corpus: Sequence[bytes]) -> bytes:
    """One document of the corpus with one to four changes, or any bytes in its place, one time in fifty.

    Changes of JSON are made in its values half of the time.
    """
    if draw.random() < 0.02:
        return draw.randbytes(draw.randint(0, 300))
    data = draw.choice(corpus)
    value = _parsed(data)
    if value is not None and draw.random() < 0.5:
        for _ in range(draw.randint(1, _ROUNDS)):
            value = _changed(draw, value)
        data = json.dumps(value, ensure_ascii=draw.random() < 0.5).encode(errors="surrogatepass")
        return data if draw.random() < 0.8 else draw.choice(_ON_BYTES)(draw, data, corpus)
    for _ in range(draw.randint(1, _ROUNDS)):
        data = draw.choice(_ON_BYTES)(draw, data, corpus)
    return data


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _changed(draw: Random, value: Any) -> Any:
    if draw.random() < 0.15 or not isinstance(value, dict | list) or not value:
        return _other(draw, value)
    return _in_object(draw, value) if isinstance(value, dict) else _in_array(draw, value)


def _in_object(draw: Random, value: dict[str, Any]) -> dict[str, Any]:
    key = draw.choice(list(value))
    match draw.randrange(8):
        case 0:
            return {k: v for k, v in value.items() if k != key}
        case 1:
            return {**value, draw.choice([f"{key}x", "type", "", "version"]): value[key]}
        case 2:
            return {**value, key: value[draw.choice(list(value))]}
        case _:
            return {**value, key: _changed(draw, value[key])}


def _in_array(draw: Random, value: list[Any]) -> list[Any]:
    at = draw.randrange(len(value))
    match draw.randrange(8):
        case 0:
            return value[:at] + value[at + 1 :]
        case 1:
            return value[:at] + [value[at]] * draw.choice([2, 3, 300]) + value[at + 1 :]
        case 2:
            return draw.sample(value, len(value))
        case _:
            return [*value[:at], _changed(draw, value[at]), *value[at + 1 :]]


def _other(draw: Random, value: Any) -> Any:
    if draw.random() < 0.5:
        match value:
            case bool():
                return not value
            case int():
                return draw.choice([value + 1, value - 1, -value, value * 2, value * 10**9, value // 3])
            case float():
                return draw.choice([value + 1, -value, value * 1e9, value / 3, value * 1e300])
            case str() if value:
                at = draw.randrange(len(value))
                new = draw.choice(["", value[at] * 2, chr(draw.randrange(0xD7FF)), value[at].swapcase()])
                return value[:at] + new + value[at + 1 :]
    return draw.choice(draw.choice([_NUMBERS, _ODD]))


def _flip(draw: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]


def _insert(draw: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = draw.randint(0, len(data))
    return data[:at] + draw.choice([*_BYTES, draw.randbytes(draw.randint(1, 8))]) + data[at:]


def _overwrite(draw: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at, new = draw.randint(0, len(data)), draw.choice([*_BYTES, draw.randbytes(draw.randint(1, 8))])
    return data[:at] + new + data[at + len(new) :]


def _remove(draw: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = draw.randint(0, len(data))
    return data[:at] + data[at + draw.choice([1, 4, 8, 64, len(data)]) :]


def _repeat(draw: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = draw.randint(0, len(data))
    end = min(len(data), at + draw.choice([1, 4, 8, 64, 512]))
    return data[:end] + data[at:end] * draw.randint(1, 8) + data[end:]


def _splice(draw: Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    other = draw.choice(corpus)
    return data[: draw.randint(0, len(data))] + other[draw.randint(0, len(other)) :]


_ON_BYTES: tuple[Callable[[Random, bytes, Sequence[bytes]], bytes], ...] = (
    _flip,
    _flip,
    _overwrite,
    _insert,
    _remove,
    _repeat,
    _splice,
)
