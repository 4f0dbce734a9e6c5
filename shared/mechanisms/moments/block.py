"""Moments: S + noise itself, S = A^T A of intercept and all attributes (docs/proofs/moments.md).

Keyed subjects have rows in public buckets, each with a sign; both follow from the subject's pseudonym. Adjacency
add_remove: a subject more or less changes one bucket of a party's table, from nothing to one row of the ball ||x||^2 <=
c or back, whatever the others hold (docs/proofs/keyed-subjects.md, 4).
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import exp, inf, log, nextafter, sqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.manifest import SecondMoments
from commingle.shared.documents.row_maps import row_bound
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.terms import PartyTerms, Terms
from commingle.shared.dp.accounting import Rho
from commingle.shared.dp.calibration import calibrated_rho
from commingle.shared.dp.noise import Sampler
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.dp.two_stages import MOMENTS_ARE_NOISY
from commingle.shared.errors import DomainError, VerificationError
from commingle.shared.mechanisms.interface import Accumulator, ExchangeCost, Mechanism, Names
from commingle.shared.mechanisms.moments.entries import (
    block_noise,
    block_sensitivity,
    entry_variances,
    first_place,
    open_matrix,
    outsider_loss,
    scales,
    step,
    width,
)
from commingle.shared.mechanisms.moments.exchange.sizes import Sizes, exchange_cost
from commingle.shared.proving.lengths import proved_noise
from commingle.shared.proving.parameters import BOUND_LIMIT
from commingle.shared.ring.parameters import ENTRY_LIMIT, MESSAGE_LIMIT, ROWS_LIMIT, STANDARD, Layout

if TYPE_CHECKING:  # scipy loads slowly, and an agent needs neither
    from commingle.shared.estimation.method import FitMethod
    from commingle.shared.mechanisms.prediction import Planner

TRUST_PROVED = (
    "Neither the coordinator nor another member is trusted with rows: until the noise is in place, encryption hides "
    "them, and each member proves that its own are within the agreed bounds and that it follows the exchange. This "
    "protection rests on the hardness of ring learning with errors and of finding collisions of hash functions."
)
TRUST_MOMENTS = (
    "Computational privacy: until the noise is in place, cryptography hides the rows, which rests on the hardness of "
    "ring learning with errors. The coordinator need not be trusted with rows. Each member must keep its rows within "
    "the agreed bounds and follow the exchange; a member that does not can take rows of the others out of the release, "
    "and nobody would notice. Otherwise: curious members, even all of them together with the coordinator, learn no "
    "more than the published noisy moments."
)
_SIGNAL_OF_EQUAL_WEIGHTS = 6
_MOST_CROSS_WEIGHT = 4
_SOUND_BITS, _HIDDEN_BITS = 40, 171
"""Of the chance that a false proof is accepted, and that an honest one shows its witness: docs/proofs/delta.md, 2.3."""
_ENDED_BITS = 60
"""Of the chance, and of what it counts for at any epsilon up to 41, that noise beyond `TAIL` ends an exchange."""
TAIL = 13
"""Standard deviations beyond which noise does not reach: probability below 2 exp(-13^2 / 2) < 1e-36 per entry."""


class NoisyMoments(Mechanism):
    """Published: second moments, whose cross blocks were computed under encryption."""

    fraction_bits = 14
    interactive = True
    of_rows = False
    publishes = "noisy moments"
    leaves = "Sums over all people, with random noise. Rows leave encrypted, and no one can read them."
    share = 0.15
    least_signal = 1.0
    radius = MOMENTS_ARE_NOISY

    @property
    def fit(self) -> "FitMethod":
        from commingle.shared.mechanisms.moments.fit import NOISY_MOMENTS  # noqa: PLC0415 - scipy loads slowly

        return NOISY_MOMENTS

    @property
    def planner(self) -> "Planner":
        from commingle.shared.mechanisms.moments.forecast import NOISY_MOMENTS  # noqa: PLC0415 - as above

        return NOISY_MOMENTS

    def trust(self, *, proved: bool) -> str:
        return TRUST_PROVED if proved else TRUST_MOMENTS

    def cross_weight(self, *, rho: float, n: int, columns: float) -> int | None:
        # The whole part of n sqrt(rho) / (6 columns^1.5), up to 4; None below 1.
        # Noise in sums costs a fit as much as it costs its intercept, noise in products a term for each slope: less
        # once it is so large that slopes are not believed in. Chosen by measuring
        # (docs/prediction.md#one-stage-against-two).
        return min(int(n * sqrt(rho) / (_SIGNAL_OF_EQUAL_WEIGHTS * columns**1.5)), _MOST_CROSS_WEIGHT) or None

    def problems(self, spec: ReleaseSpec) -> list[str]:
        # the moments of as many rows as are encrypted together fit 64 bits (docs/proofs/moments.md, 1.2)
        terms = spec.terms
        unbounded = [p.name for p in terms.parties if terms.proved and not 0 < row_bound(terms, p) < BOUND_LIMIT]
        return [
            *super().problems(spec),
            *self.exchange_problems(terms.table_rows, terms.widths, proved=terms.proved),
            *(f"the rows of {name} are bounded by nothing that can be proved" for name in unbounded),
        ]

    def delta_implementation(self, rows: int, columns: Sequence[int], *, proved: bool) -> float:
        return nextafter(float(exchange_delta(rows, columns, proved=proved)), inf)

    def exchange_cost(self, n: int, columns: Mapping[str, int], *, proved: bool) -> ExchangeCost | None:
        refused = self.exchange_problems(n, columns, proved=proved)
        return None if refused else exchange_cost(n, columns, proved=proved)

    def exchange_problems(self, n: int, columns: Mapping[str, int], *, proved: bool) -> list[str]:
        of, counts = "buckets" if self.keyed else "people", list(columns.values())
        if n > ROWS_LIMIT:
            said = f"{n} {of} are too many for an exchange: at most {ROWS_LIMIT}"
            return [f"{said}; if n is right, ask fewer, or propose rmgm"]
        openings, most = _openings(counts), STANDARD.most_openings(_noise(n, counts, proved=proved))
        if proved and openings > most:
            said = (
                f"{openings} products of two members' columns would be opened, and of {n} {of} floods hide {most} "
                f"at most where members may choose their errors; ask fewer columns or {of}, or trust bounds"
            )
            return [said]
        try:
            _ = Sizes.of(n, counts, proved=proved).proofs
        except DomainError:
            return ["there are too many rows and columns to prove their bounds; ask fewer, or trust them"]
        return []

    def rows(self, terms: Terms) -> int:
        return width(terms)

    def cells(self, terms: Terms, party: PartyTerms) -> int:
        # a party encrypts its own columns, multiplies those before it, verifies the bounds of all where they are
        # proved, and opens what those after it reply: of each as many as there are subjects or buckets.
        exchanged = terms.table_rows * sum(terms.widths.values())
        return max(exchanged, super().cells(terms, party))

    def squared_sensitivity(self, terms: Terms, party: PartyTerms, adjacency: Adjacency) -> int:
        return block_sensitivity(terms, party, adjacency)

    def outsider_loss(self, terms: Terms, sigmas: Sequence[int], adjacency: Adjacency) -> Rho:
        # Less than the sum: cross entries reach outsiders with the noise of two parties.
        return min(super().outsider_loss(terms, sigmas, adjacency), outsider_loss(terms, sigmas, adjacency))

    def step(self, terms: Terms) -> float:
        return step(terms)

    def intercept(self, terms: Terms) -> NDArray[np.int64]:
        # In row 0 n 4^f, then nothing: the linear terms stand in the parties' columns.
        column = np.zeros(width(terms), np.int64)
        column[0] = terms.n * 4**terms.fraction_bits
        return column

    def noise(self, terms: Terms, party: PartyTerms, *, sigma: int, draw: Sampler) -> NDArray[np.int64]:
        others = [other.name for other in terms.parties if other.name != party.name]
        return block_noise(terms, party, sigma=sigma, draw=draw, others=others)

    def moments(
        self, spec: ReleaseSpec, release: str, sigmas: Sequence[int], matrix: NDArray[np.int64]
    ) -> SecondMoments:
        terms = spec.terms
        opened = open_matrix(terms, matrix)
        drawn = np.repeat(np.array(sigmas, np.int64), list(terms.widths.values()))
        reach = np.append(np.zeros(first_place(terms), np.int64), drawn)
        limit = terms.table_rows * ENTRY_LIMIT**2 + TAIL * (reach[:, None] + reach)
        if bool(np.any((opened > limit) | (opened < -limit))) or not np.array_equal(opened, opened.T):
            raise VerificationError(
                "the members' blocks are not moments of such data",
                remedy="Do not use this release. A block was made wrongly; what was charged stays charged.",
            )
        return SecondMoments.of(
            spec,
            release,
            gram=opened.astype(np.float64) * step(terms),
            noise_variance=(0.0,) * len(opened),
            rows=terms.table_rows,
            entry_variance=entry_variances(terms, sigmas),
        )


MOMENTS = NoisyMoments()


def exchange_delta(rows: int, columns: Sequence[int], *, proved: bool) -> Fraction:
    """An exchange's part of delta, term by term as docs/proofs/delta.md, 2; at most that of the most rows.

    All in all it is about 2^-40.
    """
    openings, parties = _openings(columns), len(columns)
    floods = openings * STANDARD.flood_delta(_noise(min(rows, ROWS_LIMIT), columns, proved=proved))
    if not proved:
        return floods + openings * Fraction(1, 1 << _ENDED_BITS)
    simulated = parties * (parties + 1) // 2  # of columns, one each, and of replies, one for each pair
    return floods + Fraction(1, 1 << _SOUND_BITS) + simulated * Fraction(1, 1 << _HIDDEN_BITS)


def _noise(rows: int, columns: Sequence[int], *, proved: bool) -> int:
    """The largest noise of one sum with any errors that proofs allow (docs/proofs/proved-bounds.md, 7.1)."""
    if not proved:
        return STANDARD.largest_noise(rows)
    return max((proved_noise(Layout(b"", rows, count)) for count in columns[:-1]), default=1)


def _openings(columns: Sequence[int]) -> int:
    return (sum(columns) ** 2 - sum(count**2 for count in columns)) // 2


def largest_opening(terms: Terms, party: PartyTerms, *, sigma: int) -> int:
    """The largest reply of that evaluator that we accept (docs/proofs/moments.md, 1.3).

    If nothing is proved it is what no inner product of rows within bounds exceeds with its noise: a crafted reply opens
    parts of the key, and the limit is how much of it. If replies are proved there is none: the evaluator chooses the
    noise, and would learn on which side of a limit a product is (docs/proofs/proved-bounds.md, 7.2).
    """
    if terms.proved:
        return MESSAGE_LIMIT - 1
    return int(terms.table_rows * ENTRY_LIMIT**2 + TAIL * scales(terms, party, sigma).cross + 2)


LEAST, MOST = 2, 16
"""Buckets for each subject. With fewer than one each, fewer count the more there are, and nobody could say how many; if
n is stated too small by half there is one each. With 16 hardly anybody meets. The spec's n decides, which everybody
knows. A party's own count decides nothing: everybody sees what it refuses, and that would tell the count.
"""
_FOR_EACH = (LEAST, 3, 4, 6, 8, 12, MOST)
_ANY_RELEASE = 10.0  # seconds
_WORTH = 0.5


@lru_cache(maxsize=1024)
def chosen_buckets(n: int, *, rho: float, columns: tuple[int, ...], proved: bool) -> int:
    """The buckets that are worth their seconds, from public numbers; the fewest if no exchange has these sizes.

    A party has about n subjects and may spend rho; `columns` are those of each party's table, with its presence. Of n
    subjects n e^(-n/m) count in m buckets, so a slope's variance grows: that of drawing people by e^(n/m), that of
    noise by e^(2n/m). Noise of J parties with d columns each, uniform within their bounds, has about R = 9 J d^2 / (rho
    n) times the variance of drawing n people. Every bucket costs everybody seconds, even an empty one. So m makes

        log(R e^(2n/m) + e^(n/m)) + 1/2 log(10 + seconds(m))

    least: twice the seconds are worth it if variances fall by 1/sqrt(2), and any release may take 10 of them.
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
    """Puts each row, times its sign, into its bucket; a bucket in which two rows meet is closed, and 0.

    `window` is a part of the `count` buckets that there are in all, and no row is of a bucket outside it.
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
