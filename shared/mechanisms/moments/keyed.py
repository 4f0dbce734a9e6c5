"""moments over keyed subjects: rows in public buckets, each with a sign; all from the subject's pseudonym.

Adjacency add_remove: a subject more or less changes one bucket of a party's table, from nothing to one row of the ball
||x||^2 <= c or back, whatever the others hold (docs/proofs/keyed-subjects.md, 4).
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.terms import Terms
from commingle.shared.dp.gaussian import calibrated_rho
from commingle.shared.mechanisms.interface import Accumulator, Names
from commingle.shared.mechanisms.moments.block import NoisyMoments
from commingle.shared.mechanisms.moments.bucket_count import LEAST, MOST, chosen_buckets

if TYPE_CHECKING:  # scipy loads slowly, and an agent does not need it
    from commingle.shared.estimation.method import FitMethod


class Buckets:
    """An accumulator that puts each row, times its sign, into its bucket; one in which two rows meet is closed, and 0.

    Args:
        window: the buckets that it is about; no row is of others.
        count: of all buckets.
        d: columns.
    """

    def __init__(self, window: range, *, count: int, d: int) -> None:
        self._first, self._count = window.start, count
        self._rows = np.zeros((len(window), d), np.int16)  # entries are 2^14 at most
        self._taken, self._closed = np.zeros((2, len(window)), bool)

    def add(self, names: Names, rows: NDArray[np.int64]) -> None:
        """Take rows (m x d) of the subjects with these pseudonyms (m, 32): bytes 0-7 bucket, byte 8 sign."""
        whole = np.ascontiguousarray(names, np.uint8)
        place, first, met = np.unique(_buckets(whole, self._count) - self._first, return_index=True, return_counts=True)
        sign = 1 - 2 * (whole[first, 8] & 1).astype(np.int64)
        self._closed[place] |= self._taken[place] | (met > 1)
        self._taken[place] = True
        self._rows[place] = sign[:, None] * rows[first]

    def total(self) -> NDArray[np.int64]:
        """All buckets of the window, (its length x d); empty and closed ones are 0."""
        return np.where(self._closed[:, None], 0, self._rows).astype(np.int64)


class KeyedMoments(NoisyMoments):
    """Published: second moments of presences and columns of all parties, over the subjects that both parties hold."""

    keyed = True

    @property
    def fit(self) -> "FitMethod":
        """`moments.keyed_fit.KEYED`."""
        from commingle.shared.mechanisms.moments.keyed_fit import KEYED  # noqa: PLC0415 - scipy loads slowly

        return KEYED

    def problems(self, spec: ReleaseSpec) -> list[str]:
        """That there are more buckets than can be of use, or so few that nobody can count people by them, besides."""
        found, least, most = super().problems(spec), LEAST * spec.n, MOST * spec.n
        if spec.buckets is not None and not least <= spec.buckets <= most:
            said = f"few for about {spec.n} subjects: at least {least}"
            if spec.buckets > most:
                said = f"many for about {spec.n} subjects: at most {most}"
            found.append(f"{spec.buckets} buckets are too {said}")
        return found

    def buckets(self, terms: Terms) -> int | None:
        """As many as are worth their seconds."""
        rho = calibrated_rho(terms.calibration, epsilon=terms.epsilon, delta=terms.delta)
        return chosen_buckets(terms.n, rho=rho, columns=tuple(terms.table_columns.values()), proved=terms.proved)

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
    words = np.ascontiguousarray(names[:, :8]).view(">u8").ravel().astype(np.uint64)
    return (words % np.uint64(count)).astype(np.int64)
