"""How many subjects of keyed moments count: those alone in their bucket (docs/proofs/keyed-subjects.md, 5.2)."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.spec import AnyRelease

Number = TypeVar("Number", float, NDArray[np.float64])


def expected_kept(n: Number, buckets: int, others: Number | None = None) -> Number:
    """How many of n are alone in their bucket of m among u others, n - 1 where it is not said: n (1 - 1/m)^u."""
    found: Number = n * np.exp((n - 1 if others is None else others) * np.log1p(-1 / buckets))
    return found


def kept_of(asked: AnyRelease) -> int | None:
    """How many of a party's n subjects count; None where all do."""
    return None if asked.buckets is None else round(float(expected_kept(float(asked.n), asked.buckets)))


def kept_words(asked: AnyRelease) -> tuple[str, ...]:
    """`kept_of` as a sentence; empty where all count."""
    kept = kept_of(asked)
    if kept is None:
        return ()
    return (
        f"About {kept:,} of a party's {asked.n:,} people count: those alone in their bucket, of {asked.buckets:,}.",
    )
