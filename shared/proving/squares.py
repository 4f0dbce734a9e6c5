"""Four squares that sum up to a number (Lagrange), for many numbers at once.

Let 4 not divide n. One of floor(sqrt n) and the number before it, a, is even if n is 1 modulo 4 and odd otherwise; then
n - a^2 is 1, 2, 3, 5 or 6 modulo 8, and so a sum of three squares (Legendre), of which the least that leaves a sum of
two squares is looked for. n - a^2 is at most 4 sqrt n.
"""

from functools import cache
from itertools import count

import numpy as np
from numpy.typing import NDArray

from commingle.shared.ring.errors import DomainError

NUMBER_LIMIT = 1 << 38
_TABLE = 1 << 21  # n - a^2 is below it


def four_squares(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Roots of four squares that sum up to each number: (n,) to (4, n), none negative.

    Raises:
        DomainError: a number is negative, or 2^38 or more.
    """
    if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < NUMBER_LIMIT:
        raise DomainError(f"numbers from 0 to {NUMBER_LIMIT - 1} are asked for")
    left, scale = numbers.copy(), np.ones_like(numbers)
    while (divisible := (left > 0) & (left % 4 == 0)).any():
        left[divisible] //= 4
        scale[divisible] *= 2
    first = np.sqrt(left.astype(np.float64)).astype(np.int64)
    wrong = (first % 2 == 1) == (left % 4 == 1)
    first = np.maximum(first - wrong, 0)
    return np.stack([first, *_three_squares(left - first**2)]) * scale


def _three_squares(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    table = _two_squares()
    found, todo = np.zeros((3, len(numbers)), np.int64), np.arange(len(numbers))
    for first in count():
        if not len(todo):
            return found
        rest = numbers[todo] - first**2
        fits = (rest >= 0) & (table[np.maximum(rest, 0)] >= 0)
        chosen, second = todo[fits], table[rest[fits]].astype(np.int64)
        third = np.sqrt((rest[fits] - second**2).astype(np.float64)).astype(np.int64)
        found[:, chosen] = np.stack([np.full_like(second, first), second, third])
        todo = todo[~fits]
    raise AssertionError("unreachable: the count does not end")


@cache
def _two_squares() -> NDArray[np.int32]:
    """Of each number below the table's size one root of two squares that sum up to it, or -1."""
    table = np.full(_TABLE, -1, np.int32)
    roots = np.arange(int(_TABLE**0.5) + 1)
    for root in roots:
        sums = root**2 + roots**2
        table[sums[sums < _TABLE]] = root
    return table
