"""One adversary against every mechanism: it knows all of a table but one record, and tells by what a release publishes
which of two records was there, by the best test there is.

The path is the real one: a file is registered at a real agent, and what a real coordinator publishes is read, all
parties' integers and the sums of first stages. They are deterministic but for the numbers that agents draw, and add
those up: which number is in which integer is found by one whole release in which all numbers differ, and checked by
another that the product's sampler drew. So the release without noise is made once of either table, and a run of the
attack draws numbers alone, by the product's sampler. A member that attacks subtracts its own.

The best test of two tables whose releases differ by d, in noise of covariance C, is a threshold of d^T C^-1 x half-way
(Neyman, Pearson). Its rates, each bounded by Clopper-Pearson at 1 - ALPHA, bound the separation of two Gaussians from
below, and so epsilon at DELTA, by the exact curve (Dong, Roth, Su 2022; Nasr et al. 2023). No such test tells rounded
noise of this size from noise that is not. Numbers are drawn from OS entropy: a true claim is exceeded by chance once in
10^9. Of two stages the second is attacked given the sums of the first, those that both tables lead to.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, norm

from commingle.party_agent.home.datasets import DatasetRequest
from commingle.party_agent.home.home import Home
from commingle.services.client.files import ReleaseFiles
from commingle.services.client.release import Release
from commingle.shared.documents.manifest import PrivacyStatement
from commingle.shared.documents.schema import Attribute
from commingle.shared.dp.calibration import gaussian_epsilon
from commingle.shared.dp.noise import Sampler, rounded_gaussian
from commingle.shared.release.matrix import decode_matrix
from tests.hostile.records.cells import OWN
from tests.hostile.records.kinds import Kind, Row, Source
from tests.hostile.records.search import people
from tests.world.consortium import Consortium, consortium_of, strictly

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Tables = Mapping[str, Sequence[Any]]
NONE: Tables = {}
DELTA, ALPHA, RUNS = 1e-5, 5e-10, 10_000
PAIR = ("clinic", "insurer")
_CALLS_OF_A_FIRST_STAGE = 2  # sums, and sums of squares


def halved(sigma: int, count: int) -> Integers:
    return rounded_gaussian(max(1, sigma // 2), count)


def rates(hits: NDArray[np.bool_], alarms: NDArray[np.bool_], *, alpha: float = ALPHA) -> tuple[float, float]:
    """A lower bound on the true positive rate and an upper bound on the false positive rate (Clopper, Pearson).

    Each holds by itself, so that the two tables' runs need not be independent.
    """
    caught, false = int(hits.sum()), int(alarms.sum())
    low = float(beta.ppf(alpha, caught, len(hits) - caught + 1)) if caught else 0.0
    high = float(beta.ppf(1 - alpha, false + 1, len(alarms) - false)) if false < len(alarms) else 1.0
    return low, high


def epsilon_bound(without: Floats, within: Floats) -> float:
    """The epsilon at DELTA that a test demonstrates, from its statistic on either table, less what is half-way."""
    low, high = rates(within > 0, without > 0)
    separation = max(float(norm.ppf(low) - norm.ppf(high)), 0.0)
    return gaussian_epsilon(separation**2 / 2, DELTA)


@dataclass(frozen=True)
class Call:
    """Of the sampler.

    Attributes:
        first: whether it is for the sums of a first stage.
    """

    party: str
    scale: int
    count: int
    first: bool


@dataclass(frozen=True)
class Seen:
    """What came of a release.

    Attributes:
        calls: of the sampler.
        sums, matrix: all integers that are published.
        privacy: what is claimed.
    """

    calls: Sequence[Call]
    sums: Integers
    matrix: Integers
    privacy: PrivacyStatement

    @property
    def integers(self) -> Integers:
        return np.concatenate([self.sums, self.matrix])


@dataclass
class Prepared:
    """A release that nobody has approved yet, from which on it is made of any tables, any number of times.

    Attributes:
        kind: of both parties' tables.
        attributes: by party.
        choices: for the release.
    """

    root: Path
    kind: Kind[Source]
    attributes: Mapping[str, tuple[Attribute, ...]]
    choices: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.live, self.kept = self.root / "live", self.root / "kept"
        world = consortium_of(self.live, *PAIR)
        self.rows = people(twice=False)
        for name in PAIR:
            self._register(world, name, list(map(self.kind.honest, self.rows)))
        asked = {"schemas": self.attributes, "n": len(self.rows), "epsilon": 1.0, **self.choices}
        self.release, self.two_stages = world.propose(**asked), "first_stage_share" in self.choices
        world.coordinator.close()
        shutil.copytree(self.live, self.kept)

    def with_own(self, *own: Row) -> list[Any]:
        """Records of a table in which these rows are the attacked person's."""
        rows = [*(row for row in self.rows if row[0] != OWN), *own]
        return list(map(self.kind.honest, rows))

    def publish(self, draw: Sampler, tables: Tables = NONE, *, first: Integers | None = None) -> Seen:
        """What is seen of a release of these tables, and of what there was at first.

        Args:
            draw: all numbers but those of first stages.
            tables: records by party.
            first: numbers of first stages, one after the other; zeros where there are none.
        """
        calls, left = list[Call](), iter(() if first is None else first.tolist())

        def drawing(name: str) -> Sampler:
            def drawn(sigma: int, count: int) -> Integers:
                sums = self.two_stages and sum(call.party == name for call in calls) < _CALLS_OF_A_FIRST_STAGE
                calls.append(Call(name, sigma, count, sums))
                return np.array([next(left, 0) for _ in range(count)], np.int64) if sums else draw(sigma, count)

            return drawn

        with self._put_back() as world:
            for name, held in tables.items():
                self._register(world, name, held)
            with ExitStack() as running:
                agents = [running.enter_context(world.agent(name, draw=drawing(name))) for name in PAIR]
                for agent in agents * 5:
                    if not world.state(self.release).final:
                        agent.step(strictly)
            return self._seen(world, calls)

    def still(self, tables: Tables = NONE, *, numbers: Sequence[int] = (), first: Integers | None = None) -> Seen:
        """The same where these numbers are drawn, in order, and then zeros."""
        left = iter(numbers)
        return self.publish(
            lambda _, count: np.array([next(left, 0) for _ in range(count)], np.int64), tables, first=first
        )

    @contextmanager
    def _put_back(self) -> Iterator[Consortium]:
        shutil.rmtree(self.live)
        shutil.copytree(self.kept, self.live)
        world = Consortium(self.live, homes={name: Home(self.live / name) for name in PAIR})
        yield world
        world.coordinator.close()

    def _register(self, world: Consortium, name: str, records: Sequence[Any]) -> None:
        folder = self.live / f"table-{name}"
        folder.mkdir(exist_ok=True)
        source = self.kind.write(folder, records)
        subjects: Literal["keyed", "listed"] = "keyed" if self.choices.get("keyed") else "listed"
        attributes = self.attributes[name]
        asked = DatasetRequest(name="main", source=source, subject_id="id", subjects=subjects, attributes=attributes)
        with world.agent(name) as agent:
            if agent.datasets.get("main").declared != asked:
                agent.datasets.register(asked, replace=True)
            else:  # as a token has it read, whatever it holds now
                agent.datasets.try_again("main")

    def _seen(self, world: Consortium, calls: Sequence[Call]) -> Seen:
        with world.coordinator.client() as client:
            at = f"/v1/releases/{self.release}"
            parts = [client.get(f"{at}/{part}").content for part in ("manifest", "matrix", "moments")]
        found, sums = world.coordinator.found(self.release), list[int]()
        for name in PAIR:
            sums += found.statement(name).sums or ()
        matrix = decode_matrix(found.document, parts[1]).ravel()
        return Seen(calls, np.array(sums, np.int64), matrix, Release.of(ReleaseFiles(*parts)).privacy)


@dataclass(frozen=True, eq=False)
class Numbers:
    """The R numbers that agents draw for a release, in order.

    Attributes:
        party, scale: R of each.
        effects: R x integers that are published; 1 where the number is in it.
        privacy: what the release claims.
    """

    party: NDArray[np.str_]
    scale: Floats
    effects: Integers
    privacy: PrivacyStatement

    def drawn(self, runs: int, draw: Sampler) -> Floats:
        """All of them, that many times (runs x R)."""
        found = np.zeros((runs, len(self.party)))
        for scale in np.unique(self.scale):
            at = np.flatnonzero(self.scale == scale)
            found[:, at] = draw(int(scale), runs * len(at)).reshape(runs, -1)
        return found


def numbers_of(prepared: Prepared) -> Numbers:
    """Which number is in which integer, the sums of first stages being what they are without noise.

    Raises AssertionError unless a release of the product's sampler's numbers is the one without noise plus these.
    """
    still = prepared.still()
    counts = [call.count for call in still.calls]
    party, scale, first = (np.repeat(each, counts) for each in zip(*map(_facts, still.calls), strict=True))
    others = np.flatnonzero(~first)
    labels = np.random.default_rng(1).integers(1, 1 << 30, len(others)).tolist()
    known: dict[int, tuple[int, ...]] = {a + b: (i, j) for i, a in enumerate(labels) for j, b in enumerate(labels[:i])}
    known |= {label: (i,) for i, label in enumerate(labels)} | {0: ()}
    effects = np.zeros((len(party), len(still.integers)), np.int64)
    effects[np.flatnonzero(first), np.arange(len(still.sums))] = 1
    for place, moved in enumerate((prepared.still(numbers=labels).integers - still.integers).tolist()):
        effects[others[list(known[moved])], place] = 1
    drawn: list[Integers] = []

    def recorded(sigma: int, count: int) -> Integers:
        drawn.append(rounded_gaussian(sigma, count))
        return drawn[-1].copy()

    seen = prepared.publish(recorded)
    if seen.calls != still.calls or (seen.integers != still.integers + np.concatenate(drawn) @ effects[others]).any():
        raise AssertionError("what is published is not the release without noise plus the numbers that were drawn")
    return Numbers(party, scale.astype(np.float64), effects, still.privacy)


def _facts(call: Call) -> tuple[str, int, bool]:
    return call.party, call.scale, call.first


def difference(prepared: Prepared, one: Tables, other: Tables) -> Integers:
    """By how much what is published of two tables differs, without noise; of two stages at the sums of the first."""
    seen, compared = prepared.still(one), prepared.still(other)
    sums = seen.sums - compared.sums
    if sums.any():
        compared = prepared.still(other, first=sums)
    return np.concatenate([sums, seen.matrix - compared.matrix])


@dataclass(frozen=True)
class Attack:
    """A test between two tables whose releases differ by d.

    Attributes:
        weights: of the numbers that the adversary does not know.
        distance: between the tables' statistics.
    """

    numbers: Numbers
    weights: Floats
    distance: float

    @classmethod
    def best(cls, numbers: Numbers, apart: Integers, inside: Sequence[str] = ()) -> "Attack":
        """By whoever knows the numbers of those parties. Raises AssertionError: no noise hides some difference."""
        outside = ~np.isin(numbers.party, inside)
        root = (numbers.effects * np.where(outside, numbers.scale, 0)[:, None]).astype(np.float64)
        weights, *_ = np.linalg.lstsq(root.T @ root, apart.astype(np.float64))
        if not np.allclose(root.T @ (root @ weights), apart, atol=0.5):
            raise AssertionError("an integer without noise tells the tables apart")
        return cls(numbers, np.where(outside, numbers.effects @ weights, 0), float(apart @ weights))

    @property
    def epsilon(self) -> float:
        """The epsilon at DELTA between two Gaussians as far apart."""
        return gaussian_epsilon(self.distance / 2, DELTA)

    @property
    def right(self) -> float:
        """How often it is right where both tables are as likely."""
        return float(norm.cdf(np.sqrt(self.distance) / 2))

    def demonstrated(self, draw: Sampler = rounded_gaussian, *, runs: int = RUNS) -> tuple[float, float]:
        """The epsilon at DELTA that it demonstrates, and how often of 100 guesses it is right at least."""
        noise = self.numbers.drawn(runs, draw) @ self.weights
        without, within = noise - self.distance / 2, noise + self.distance / 2
        low, high = rates(within > 0, without > 0)
        return epsilon_bound(without, within), 50 * (1 + low - high)
