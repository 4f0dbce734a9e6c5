"""moments over keyed subjects: rows in public buckets, each with a sign; all from the subject's pseudonym.

Adjacency add_remove: a subject more or less changes one bucket of a party's table, from nothing to one row of the ball
||x||^2 <= c or back, whatever the others hold (docs/proofs/keyed-subjects.md, 4).

A release has the buckets that are worth their seconds, from public numbers. Of n subjects n e^(-n/m) count in m
buckets, so a slope's variance grows: that of drawing people by e^(n/m), that of noise by e^(2n/m). Noise of J parties
with d columns each, uniform within their bounds, has about R = 9 J d^2 / (rho n) times the variance of drawing n
people. Every bucket costs everybody seconds whether somebody is in it or not. So m makes

    log(R e^(2n/m) + e^(n/m)) + 1/2 log(10 + seconds(m))

least: twice the seconds are worth it where variances fall by 1/sqrt(2), and 10 of them are spent on any release.
"""

from functools import lru_cache
from math import exp, log
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.terms import Terms
from commingle.shared.dp.calibration import calibrated_rho
from commingle.shared.mechanisms.interface import Accumulator, Names
from commingle.shared.mechanisms.moments.block import MOMENTS, NoisyMoments

if TYPE_CHECKING:  # scipy loads slowly, and an agent does not need it
    from commingle.shared.estimation.method import FitMethod

LEAST, MOST = 2, 16
"""For each subject. With fewer than one bucket each, fewer count the more there are, and nobody could say how many that
is; where n is said too small by half there is one each. With 16 hardly anybody meets. What counts is n as the spec says
it, which everybody knows. A party's own count decides nothing: what it refuses is seen by all, and would tell it.
"""
_FOR_EACH = (LEAST, 3, 4, 6, 8, 12, MOST)
_ANY_RELEASE = 10.0  # seconds
_WORTH = 0.5


@lru_cache(maxsize=1024)
def chosen_buckets(n: int, *, rho: float, columns: tuple[int, ...], proved: bool) -> int:
    """The m of the formula; of so many that an exchange has none of these sizes, the fewest.

    A party has about n subjects and may spend rho; columns are those of each party's table, its presence among them.
    """
    per_party = sum(columns) / len(columns)
    noise = 9 * len(columns) * per_party**2 / (rho * n)
    named = {str(place): count for place, count in enumerate(columns)}

    def cost(each: int) -> float:
        exchanged = MOMENTS.exchange_cost(each * n, named, proved=proved)
        seconds = float("inf") if exchanged is None else exchanged.seconds
        return log(noise * exp(2 / each) + exp(1 / each)) + _WORTH * log(_ANY_RELEASE + seconds)

    return n * min(_FOR_EACH, key=cost)


class Buckets:
    """An accumulator that puts each row, times its sign, into its bucket; one in which two rows meet is closed, and 0.

    It is about a window of so many buckets in all, and no row is of others.
    """

    def __init__(self, window: range, *, count: int, d: int) -> None:
        self._first, self._count = window.start, count
        self._rows = np.zeros((len(window), d), np.int16)  # entries are 2^14 at most
        self._taken, self._closed = np.zeros((2, len(window)), bool)

    def add(self, names: Names, rows: NDArray[np.int64]) -> None:
        # of pseudonyms (m, 32): bytes 0-7 bucket, byte 8 sign
        whole = np.ascontiguousarray(names, np.uint8)
        place, first, met = np.unique(_buckets(whole, self._count) - self._first, return_index=True, return_counts=True)
        sign = 1 - 2 * (whole[first, 8] & 1).astype(np.int64)
        self._closed[place] |= self._taken[place] | (met > 1)
        self._taken[place] = True
        self._rows[place] = sign[:, None] * rows[first]

    def total(self) -> NDArray[np.int64]:
        return np.where(self._closed[:, None], 0, self._rows).astype(np.int64)


class KeyedMoments(NoisyMoments):
    """Published: second moments of presences and columns of all parties, over the subjects that both parties hold."""

    keyed = True

    @property
    def fit(self) -> "FitMethod":
        from commingle.shared.mechanisms.moments.fit import KEYED  # noqa: PLC0415 - scipy loads slowly

        return KEYED

    def problems(self, spec: ReleaseSpec) -> list[str]:
        found, least, most = super().problems(spec), LEAST * spec.n, MOST * spec.n
        if spec.buckets is not None and not least <= spec.buckets <= most:
            said = f"few for about {spec.n} people: at least {least}"
            if spec.buckets > most:
                said = f"many for about {spec.n} people: at most {most}"
            found.append(f"{spec.buckets} buckets are too {said}")
        if any(party.cross_weight is not None for party in spec.parties):
            found.append("cross_weight is for listed subjects; leave it out")
        return found

    def cross_weight(self, *, rho: float, n: int, columns: float) -> int | None:  # noqa: ARG002 - as asked of all
        # It is the weight of products beside the sums of columns, and presences are columns like others.
        return None

    def buckets(self, terms: Terms) -> int | None:
        rho = calibrated_rho(terms.calibration, epsilon=terms.epsilon, delta=terms.delta)
        return chosen_buckets(terms.n, rho=rho, columns=tuple(terms.widths.values()), proved=terms.proved)

    def intercept(self, terms: Terms) -> NDArray[np.int64]:
        # None: presences stand in its place.
        return np.empty((self.rows(terms), 0), np.int64)

    def window(self, terms: Terms, columns: int, places: range) -> Accumulator:
        return Buckets(places, count=terms.table_rows, d=columns)

    def places(self, terms: Terms, names: Names) -> NDArray[np.int64]:
        return _buckets(names, terms.table_rows)


KEYED_MOMENTS = KeyedMoments()


def _buckets(names: Names, count: int) -> NDArray[np.int64]:
    words = np.ascontiguousarray(names[:, :8]).view(">u8").ravel().astype(np.uint64)
    return (words % np.uint64(count)).astype(np.int64)
