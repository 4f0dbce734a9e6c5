"""Moments: S + noise itself, S = A^T A of intercept and all attributes (docs/proofs/moments.md)."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import inf, nextafter, sqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.errors import VerificationError
from commingle.shared.documents.manifest import SecondMoments
from commingle.shared.documents.row_maps import row_bound
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.terms import PartyTerms, Terms
from commingle.shared.dp.accounting import Rho
from commingle.shared.dp.first_stage import MOMENTS_ARE_NOISY
from commingle.shared.dp.noise import Sampler
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.mechanisms.interface import ExchangeCost, Mechanism
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
from commingle.shared.ring.errors import DomainError
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
_SOUND_BITS, _HIDDEN_BITS = 40, 190
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
        # Of n sqrt(rho) / (6 columns^1.5) the whole part, up to 4; None below 1.
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
            return [f"{n} {of} are too many for an exchange: at most {ROWS_LIMIT}; ask fewer, or propose rmgm"]
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
                "the members' blocks are no moments of such data",
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
    """What an exchange adds to delta, term by term as docs/proofs/delta.md, 2; of more rows than it may have, of those.

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
    """What is not refused of that evaluator's reply (docs/proofs/moments.md, 1.3).

    Where nothing is proved it is what no inner product of rows within bounds exceeds with its noise: a crafted reply
    opens parts of the key, and the limit is how much of it. Where replies are proved there is none: the noise is the
    evaluator's choice, and it would learn on which side of a limit a product is (docs/proofs/proved-bounds.md, 7.2).
    """
    if terms.proved:
        return MESSAGE_LIMIT - 1
    return int(terms.table_rows * ENTRY_LIMIT**2 + TAIL * scales(terms, party, sigma).cross + 2)
