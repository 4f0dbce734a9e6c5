"""The interface of a mechanism: its block, its fits, forecast and words, and its cost besides budget."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.manifest import TRUST_WITH_NO_ROWS, SecondMoments
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.terms import PartyTerms, Terms, fraction_bits_of
from commingle.shared.dp.accounting import ZERO, Rho, gaussian_loss
from commingle.shared.dp.noise import Sampler
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.dp.two_stages import ROWS_ARE_NOISY, RadiusRule

if TYPE_CHECKING:  # a party's agent needs neither, and scipy loads slowly
    from commingle.shared.estimation.method import FitMethod
    from commingle.shared.mechanisms.prediction import Planner

Names: TypeAlias = NDArray[np.int64] | NDArray[np.uint8]
"""The subjects of rows: n ranks in their sorted list, or (n, 32) bytes, the pseudonyms of keyed ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyCost:
    """The work of one party: bytes, exact but for headers and signed statements; estimated seconds of one processor."""

    name: str
    bytes_sent: int
    bytes_received: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeCost:
    """The work of an exchange before the upload, for all parties together: bytes sent and received, and seconds.

    Attributes:
        bounds: proved or trusted.
        proof_bytes, proof_seconds: the part that would be saved if bounds were trusted.
    """

    bounds: str
    parties: tuple[PartyCost, ...]
    bytes: int
    seconds: float
    proof_bytes: int
    proof_seconds: float


class Accumulator(Protocol):
    """Takes a party's integer rows in any order and gives the contents of its block."""

    def add(self, names: Names, rows: NDArray[np.int64]) -> None:
        """Take rows (m x d) of the subjects with these names (m); each subject has one row."""

    def total(self) -> NDArray[np.int64]:
        """The block before noise; if parties exchange first, the rows (n x d), each in its place."""


class Placement:
    """Puts rows (m x d) at their rank, zeros where there is none; no row is of other `ranks`."""

    def __init__(self, ranks: range, *, d: int) -> None:
        self._first, self._block = ranks.start, np.zeros((len(ranks), d), np.int64)

    def add(self, names: Names, rows: NDArray[np.int64]) -> None:
        self._block[names - self._first] = rows

    def total(self) -> NDArray[np.int64]:
        return self._block


class Mechanism(ABC):
    """One kind of release."""

    fraction_bits: ClassVar[Literal[14, 15]] = 15  # of an encoded value
    # whether parties exchange encrypted columns before they upload (`mechanisms.moments.exchange`)
    interactive: ClassVar[bool] = False
    sketched: ClassVar[bool] = False  # whether its spec has a k
    # whether noisy rows are published, so that their number means something
    of_rows: ClassVar[bool] = True
    publishes: ClassVar[str] = "noisy rows"  # what, in words
    # the data that leaves a party, in a sentence for the person who decides
    leaves: ClassVar[str] = "Every row in the order of the list of people, with random noise added here to each value."
    # of rho, that first stages get where a study leaves it open and n sqrt(rho) is `least_signal` a column; chosen by
    # measuring (docs/prediction.md#one-stage-against-two)
    share: ClassVar[float] = 0.1
    least_signal: ClassVar[float] = 20.0
    radius: ClassVar[RadiusRule] = ROWS_ARE_NOISY  # where mapped rows are cut
    # whether it is for keyed data sets: rows are named by pseudonyms, and their first entry is their presence
    keyed: ClassVar[bool] = False

    def trust(self, *, proved: bool) -> str:  # noqa: ARG002 - others ask it
        """Sentences of the manifest: whom a party relies on besides itself, if bounds are `proved` or not."""
        return TRUST_WITH_NO_ROWS

    def problems(self, spec: ReleaseSpec) -> list[str]:
        """What makes a spec of this mechanism impossible, a sentence each; mechanisms add their own."""
        found = []
        if spec.keyed and not self.keyed:
            found.append(
                f"{spec.mechanism} publishes something of every row, so its data sets are listed, not keyed: leave "
                "subjects out if all members hold the same people, and else choose a mechanism for people who differ "
                "(docs/planning.md#choose-a-mechanism)"
            )
        if (spec.buckets is not None) is not (self.keyed and self.interactive):
            found.append("buckets are for keyed data sets of moments, and only for them")
        if spec.bounds is not None and not self.interactive:
            found.append(f"bounds are proved or trusted where members exchange; leave it out for {spec.mechanism}")
        bits = fraction_bits_of(self.fraction_bits, spec.parties)
        if spec.fraction_bits != bits:
            found.append(f"fraction_bits is {bits} for {spec.mechanism} of these attributes")
        if not self.interactive and any(party.weighted is not None for party in spec.parties):
            found.append(f"attributes have weights in moments alone; leave weighted out for {spec.mechanism}")
        if not self.interactive and any(party.cross_weight is not None for party in spec.parties):
            found.append(f"nothing is crossed in {spec.mechanism}; leave cross_weight out")
        return found

    def buckets(self, terms: Terms) -> int | None:  # noqa: ARG002 - as above
        """How many buckets a release gets whose terms leave it open; None if rows have no buckets."""
        return None

    @abstractmethod
    def rows(self, terms: Terms) -> int:
        """Rows of every block and of the published matrix."""

    def cells(self, terms: Terms, party: PartyTerms) -> int:
        """Cells that a party works on: its processor time, memory and disk grow with them. Here those of its block."""
        return self.rows(terms) * terms.widths[party.name]

    @abstractmethod
    def squared_sensitivity(self, terms: Terms, party: PartyTerms, adjacency: Adjacency) -> int:
        """Delta^2 of that party's block in units of its noise: the block is rho-zCDP, rho = Delta^2 / (2 sigma^2)."""

    def outsider_loss(self, terms: Terms, sigmas: Sequence[int], adjacency: Adjacency) -> Rho:
        """The loss of one person, whose rows change at all parties at once, to people who know no party's noise.

        Here the sum over parties, which it never exceeds (docs/proofs/noise-and-accounting.md, 3.2).
        """
        losses = (
            gaussian_loss(squared_sensitivity=self.squared_sensitivity(terms, party, adjacency), sigma=sigma)
            for party, sigma in zip(terms.parties, sigmas, strict=True)
        )
        return sum(losses, start=ZERO)

    def first_stage_share(self, *, rho: float, n: int, columns: float) -> float | None:
        """The share of rho for first stages in a study that leaves it open, from public numbers; or None.

        It is worth its price if n sqrt(rho), of both stages of one party, is at least `least_signal` a column of a
        party, on average. Below that noise hides the correlations, and rows that are cut about a noisy centre make even
        the means worse.
        """
        return self.share if n * sqrt(rho) >= self.least_signal * columns else None

    def cross_weight(self, *, rho: float, n: int, columns: float) -> int | None:  # noqa: ARG002 - as above
        """The `cross_weight` of parties with a first stage in a new release; arguments as of `first_stage_share`."""
        return None

    def delta_implementation(self, rows: int, columns: Sequence[int], *, proved: bool) -> float:  # noqa: ARG002 - as above
        """The part of delta that noise does not use: 0 if parties exchange nothing (docs/proofs/delta.md).

        `rows` and the encoded `columns` of each party are of their tables; bounds are `proved` or not.
        """
        return 0.0

    def exchange_cost(self, n: int, columns: Mapping[str, int], *, proved: bool) -> ExchangeCost | None:  # noqa: ARG002 - as above
        """The cost of an exchange of encrypted columns; None if nothing is exchanged, or so much is refused.

        `columns` has the number of encoded columns of each party by name, in the spec's order; bounds are `proved` or
        not.
        """
        return None

    def exchange_problems(self, n: int, columns: Mapping[str, int], *, proved: bool) -> list[str]:  # noqa: ARG002 - as above
        """Why so much is refused, a sentence each; arguments as of `exchange_cost`."""
        return []

    @abstractmethod
    def step(self, terms: Terms) -> float:
        """The published value is integer * step."""

    @abstractmethod
    def intercept(self, terms: Terms) -> NDArray[np.int64]:
        """The noiseless column (rows,) of a party of nothing but ones, in steps; keyed mechanisms have none."""

    def accumulator(self, terms: Terms, columns: int) -> Accumulator:
        """An empty accumulator for all rows of one party's block of that many encoded columns."""
        return self.window(terms, columns, range(terms.table_rows))

    def window(self, terms: Terms, columns: int, places: range) -> Accumulator:  # noqa: ARG002 - as above
        """An empty accumulator for the rows of these places alone."""
        return Placement(places, d=columns)

    def places(self, terms: Terms, names: Names) -> NDArray[np.int64]:  # noqa: ARG002 - as above
        """The places of the rows of these subjects (m), (m,): here their ranks."""
        return names.astype(np.int64, copy=False)

    @abstractmethod
    def noise(self, terms: Terms, party: PartyTerms, *, sigma: int, draw: Sampler) -> NDArray[np.int64]:
        """The noise of that party's block (rows x d), drawn now."""

    @abstractmethod
    def moments(
        self, spec: ReleaseSpec, release: str, sigmas: Sequence[int], matrix: NDArray[np.int64]
    ) -> SecondMoments:
        """The second moments of an assembled matrix; the parties' sigmas are in the spec's order.

        Raises VerificationError: no honest blocks make such a matrix.
        """

    @property
    @abstractmethod
    def fit(self) -> "FitMethod":
        """How its releases are fitted; loaded when first asked for."""

    @property
    @abstractmethod
    def planner(self) -> "Planner":
        """The forecasts of what its releases will be worth; loaded when first asked for."""
