"""moments over keyed subjects: rows in public buckets, each with a sign; all from the subject's pseudonym.

Adjacency add_remove: a subject more or less changes one bucket of a party's table, from one row of the ball
||x||^2 <= c or none to another, whatever the others hold (docs/proofs/keyed-subjects.md, 4).
"""

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.mechanisms.interface import Accumulator, Names
from commingle.shared.mechanisms.moments.block import NoisyMoments
from commingle.shared.ring.parameters import ROWS_LIMIT

_MOST_BUCKETS = 16
"""For each subject. Every bucket costs everybody seconds and bytes whether somebody is in it or not, and with 16 for
each hardly anybody gives way to another. What counts is n as the spec says it, which everybody knows. A party's own
count of subjects decides nothing here: what a party refuses, or leaves waiting where its policy would have approved, is
seen by all, and would tell how many it holds. A spec may say an n that is too large; then the policy's `max_cells`
holds.
"""
_BUCKETS = 4
"""For each subject, where a study leaves it open: about an eighth give way (docs/proofs/keyed-subjects.md, 5.2)."""


class Buckets:
    """An accumulator that puts each row, times its sign, into its bucket; of several there the least priority stays.

    Args:
        window: the buckets that it is about; no row is of others.
        count: of all buckets.
        d: columns.
    """

    def __init__(self, window: range, *, count: int, d: int) -> None:
        self._first, self._count = window.start, count
        self._rows = np.zeros((len(window), d), np.int16)  # entries are 2^14 at most
        self._taken = np.zeros(len(window), bool)
        self._priority = np.zeros(len(window), np.uint64)

    def add(self, names: Names, rows: NDArray[np.int64]) -> None:
        """Take rows (m x d) of the subjects with these pseudonyms (m, 32): bytes 0-7 bucket, 8 sign, 16-23 priority."""
        whole = np.ascontiguousarray(names, np.uint8)
        bucket = _buckets(whole, self._count) - self._first
        sign = 1 - 2 * (whole[:, 8] & 1).astype(np.int64)
        priority = _words(whole[:, 16:24])
        order = np.argsort(priority, kind="stable")
        place, first = np.unique(bucket[order], return_index=True)
        least = order[first]
        stays = ~self._taken[place] | (priority[least] < self._priority[place])
        place, least = place[stays], least[stays]
        self._rows[place] = (sign[:, None] * rows)[least]
        self._priority[place] = priority[least]
        self._taken[place] = True

    def total(self) -> NDArray[np.int64]:
        """All buckets of the window, (its length x d); empty ones are 0."""
        return self._rows.astype(np.int64)


class KeyedMoments(NoisyMoments):
    """Published: second moments of presences and columns of all parties, over the subjects that both parties hold."""

    keyed = True
    fit_address = "commingle.shared.mechanisms.moments.keyed_fit:KEYED"

    def problems(self, spec: ReleaseSpec) -> list[str]:
        """That there are more buckets than can be of use, besides."""
        found, most = super().problems(spec), _MOST_BUCKETS * spec.n
        if spec.buckets is not None and spec.buckets > most:
            found.append(f"{spec.buckets} buckets are too many for about {spec.n} subjects: at most {most}")
        return found

    def buckets(self, n: int) -> int | None:
        """Four for each subject."""
        return max(2, min(_BUCKETS * n, ROWS_LIMIT))

    def intercept(self, spec: ReleaseSpec) -> NDArray[np.int64]:
        """None: presences stand in its place."""
        return np.empty((self.rows(spec), 0), np.int64)

    def window(self, spec: ReleaseSpec, columns: int, places: range) -> Accumulator:
        """Buckets, which are exchanged before there is a block."""
        return Buckets(places, count=spec.table_rows, d=columns)

    def places(self, spec: ReleaseSpec, names: Names) -> NDArray[np.int64]:
        """In buckets."""
        return _buckets(names, spec.table_rows)


KEYED_MOMENTS = KeyedMoments()


def _buckets(names: Names, count: int) -> NDArray[np.int64]:
    """The bucket of each pseudonym (m, 32) among so many, (m,)."""
    return (_words(names[:, :8]) % np.uint64(count)).astype(np.int64)


def _words(eight: Names) -> NDArray[np.uint64]:
    return np.ascontiguousarray(eight).view(">u8").ravel().astype(np.uint64)
