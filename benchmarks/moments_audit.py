"""The privacy audit's attacks on moments: from outside, by parties, and by the coordinator with all parties but one.

A release is made by what the product makes it of: `private.privatise` reads, encodes, clips and maps the tables, their
columns are encrypted, replied to and opened, each party's noise is added to its replies and its block, blocks are
assembled and published as second moments. All that is opened of it is linear in the noise: what each number drawn does
to it is found by running the product with that number one and all others nought. Each run of an attack then draws these
numbers, by the product's sampler, and adds up what they do; both tables of an attack, and the attacks at one epsilon,
get the same numbers. That nothing is lost by it is checked for SAMPLED whole releases of every table: the mechanism
asks for the same numbers, once, and what is seen is the noiseless one plus what the numbers do, integer by integer. So
it is checked of whole releases with proved bounds too, one for each party that all others attack: what is opened of
them is the same, and so are the figures. The variances that follow must be the published ones.

Adversary: sees all published moments; parties inside subtract their own noise. With the coordinator they see everything
that travels: the block of the party they are against, and its replies to those inside, opened with their keys; what is
left of either, which must not tell the tables apart at all, `benchmarks.exchange_audit` attacks. The two tables differ
in the last subject's rows at one party, or at several: the pair that is easiest to tell apart of all with values at
either end or in the middle of their bounds. The best test is linear: the likelihood ratio of entries with independent
noise.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from benchmarks.distinguishing import ALPHA, DELTA, SUBJECTS, Debited, centred, epsilon_bound, halved
from benchmarks.exchanged import Exchanging, Integers, approved
from commingle.party_agent.private.privatise import BlockRequest, exchanged_rows
from commingle.party_agent.private.sources import FileSource, open_source
from commingle.party_agent.private.table import PrivateTable
from commingle.shared.documents.manifest import SecondMoments
from commingle.shared.documents.spec import Bounds, PartySpec, ReleaseSpec
from commingle.shared.documents.subject_ids import SubjectKey
from commingle.shared.dp.accounting import ZERO, Rho
from commingle.shared.dp.noise import Sampler, rounded_gaussian
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.mechanisms.moments.block import places
from commingle.shared.release.matrix import assemble, second_moments
from commingle.shared.release.plan import plan_block, plan_blocks

Floats = NDArray[np.float64]
DrawOf = Callable[[int, int, int], Integers]
"""Noise of the party of that place in the spec, of that scale, so many numbers."""
SAMPLED = 4
_PARTIES, _COLUMNS, _ROW_NORM = 3, 2, 1.0


@dataclass(frozen=True, slots=True)
class Case:
    """An attack.

    Attributes:
        changed: parties, by place, at which the subject's rows differ.
        inside: parties that attack together.
        against: the party outside, where the coordinator attacks with all others.
    """

    seen_by: str
    changed: tuple[int, ...]
    inside: tuple[int, ...] = ()
    against: int | None = None


CASES = (
    Case("anyone", (0,)),
    Case("one other party", (0,), (1,)),
    Case("all other parties", (0,), (1, 2)),
    Case("anyone; rows of all parties change", (0, 1, 2)),
    Case("a party; rows of the others change", (0, 1), (2,)),
    Case("all but the first and the coordinator", (0,), (1, 2), against=0),
    Case("all but the second and the coordinator", (1,), (0, 2), against=1),
    Case("all but the last and the coordinator", (2,), (0, 1), against=2),
)
Views = Mapping[int | None, Floats]
"""What is seen: by whom it is against, or of what is published (None)."""


@dataclass(frozen=True, slots=True, eq=False)
class Ready:
    """A release whose columns are encrypted: everything but the noise and what follows from it."""

    exchanging: Exchanging

    @property
    def spec(self) -> ReleaseSpec:
        """Its spec."""
        return self.exchanging.exchange.spec.document

    def publish(self, draw: DrawOf) -> tuple[SecondMoments, Views]:
        """Draw noise, reply, open, submit, assemble, publish; and what everybody sees of it."""
        made, names = self.exchanging, self.exchanging.exchange.parties
        for place, name in enumerate(names):
            made.reply(name, partial(draw, place))
        blocks = {name: made.submit(name, partial(draw, place)) for place, name in enumerate(names)}
        digest = made.exchange.spec.digest
        published = second_moments(self.spec, digest, assemble(self.spec, [blocks[name] for name in names]))
        views: dict[int | None, Floats] = {None: entries(self.spec, published)}
        views |= {place: self._seen_by_all_but(name, blocks[name]) for place, name in enumerate(names)}
        return published, views

    def _seen_by_all_but(self, name: str, block: Integers) -> Floats:
        """What the others and the coordinator open of that party: its replies to those before it, and its block."""
        made, at = self.exchanging, places(self.spec)
        own = block[at[name]]
        seen = [made.open(owner, name).ravel() for owner in made.exchange.owners(name)]
        seen += [block[0], own[np.triu_indices(len(own))]]
        seen += [block[at[later]].ravel() for later in made.exchange.evaluators(name)]
        return np.concatenate(seen).astype(np.float64)

    def still(self) -> Views:
        """All views without noise."""
        return self.publish(lambda _, __, count: np.zeros(count, np.int64))[1]


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """The R numbers that are drawn for a release, in their order.

    Attributes:
        asked: party, scale and count of every call of the sampler.
        party, scale: R of each.
        effects: by view, R x entries: what a number of one does.
    """

    asked: Sequence[tuple[int, int, int]]
    party: Integers
    scale: Floats
    effects: Views

    def variance(self, inside: tuple[int, ...] = (), *, view: int | None = None) -> Floats:
        """Of the noise of every entry to those who know the noise of the parties inside."""
        found: Floats = (np.where(np.isin(self.party, inside), 0, self.scale) ** 2) @ self.effects[view] ** 2
        return found

    def drawn(self, runs: int, draw: Sampler) -> Floats:
        """All R of them, runs times (runs x R)."""
        found = np.zeros((runs, len(self.party)))
        for scale in np.unique(self.scale):
            at = np.flatnonzero(self.scale == scale)
            found[:, at] = draw(int(scale), runs * len(at)).reshape(runs, -1)
        return found


def entries(spec: ReleaseSpec, moments: SecondMoments) -> Floats:
    """All that is published: entries on and above the diagonal, in steps, hence integers."""
    gram: Floats = np.array(moments.gram) / mechanism_of(spec).step(spec)
    return gram[np.triu_indices(len(gram))]


def table_of(rows: Integers, party: PartySpec, path: Path) -> PrivateTable:
    """A party's table: made-up rows and the last subject's, whose cells lie beyond the bounds: the agent clips them."""
    made_up = np.array([[(i % 7) / 7, (i % 5) / 5] for i in range(SUBJECTS - 1)])
    cells = np.vstack([made_up, 2 * rows])
    lines = [f"{subject},{a},{b}" for subject, (a, b) in enumerate(cells)]
    path.write_text("\n".join([f"id,{','.join(a.name for a in party.attributes)}", *lines]))
    return PrivateTable(open_source(FileSource(path=str(path))), SubjectKey.of("id"), party.attributes)


def _no_sums(sigma: int, count: int) -> Integers:
    raise AssertionError(f"no first stage asks for {count} numbers of scale {sigma}")


def ready(epsilon: float, row: Integers, bounds: Bounds = "trusted") -> Ready:
    """Approve a release of a table whose last subject has that row, and encrypt its columns."""
    exchanging = approved(SUBJECTS, _COLUMNS, _PARTIES, epsilon=epsilon, row_norm=_ROW_NORM, bounds=bounds)
    spec, digest = exchanging.exchange.spec.document, exchanging.exchange.spec.digest
    with tempfile.TemporaryDirectory() as folder:
        for place, party in enumerate(spec.parties):
            table = table_of(row[place * _COLUMNS :][:_COLUMNS], party, Path(folder, f"{place}.csv"))
            asked = BlockRequest(spec, party, plan_block(spec, party))
            charge = Debited(digest, asked.plan.charge.units, table.scan().digest)
            exchanging.encrypt(party.name, exchanged_rows(table, asked, charge=charge, draw=_no_sums).integers)
    return Ready(exchanging)


def numbers_of(release: Ready) -> Numbers:
    """Run the product once for each number it draws. Raises AssertionError unless the published variances follow."""
    asked: list[tuple[int, int, int]] = []

    def nothing(place: int, scale: int, count: int) -> Integers:
        asked.append((place, scale, count))
        return np.zeros(count, np.int64)

    published, still = release.publish(nothing)
    party, scale = (np.repeat([call[i] for call in asked], [call[2] for call in asked]) for i in (0, 1))
    moved = [_with(release, unit) for unit in np.eye(len(party), dtype=np.int64)]
    effects = {view: np.array([views[view] - seen for views in moved]) for view, seen in still.items()}
    found = Numbers(asked, party, scale.astype(np.float64), effects)
    claimed = np.array(published.entry_variance)[np.triu_indices(len(published.gram))]
    if not np.allclose(found.variance() * mechanism_of(release.spec).step(release.spec) ** 2, claimed, rtol=1e-12):
        raise AssertionError("the noise of the entries is not of the variances that are published")
    return found


def worst_rows(spec: ReleaseSpec, variance: Floats, changed: tuple[int, ...]) -> tuple[Integers, Integers]:
    """The two rows of one subject, differing at those parties only, whose moments are farthest apart."""
    columns = np.repeat(np.arange(len(spec.parties)), _COLUMNS)
    grid = np.array(list(product((-1, 0, 1), repeat=len(columns))))
    norms = np.sqrt([np.bincount(columns, row) for row in grid**2])
    encoded = np.column_stack([np.ones(len(grid)), grid / np.maximum(norms / _ROW_NORM, 1)[:, columns]])
    upper = np.triu_indices(encoded.shape[1])
    weights = np.where(variance > 0, 1 / np.sqrt(np.maximum(variance, 1)), 0)
    products = encoded[:, upper[0]] * encoded[:, upper[1]] * weights
    apart = cdist(products, products)
    kept = grid[:, ~np.isin(columns, changed)]
    apart[(kept[:, None] != kept).any(axis=2)] = 0
    first, second = np.unravel_index(np.argmax(apart), apart.shape)
    return grid[first], grid[second]


def scores(case: Case, numbers: Numbers, apart: Floats, drawn: Floats) -> tuple[Floats, Floats]:
    """The attack's statistic for either table, once for each row of numbers drawn; `apart` is what parts them."""
    variance = numbers.variance(case.inside, view=case.against)
    if apart[variance == 0].any():
        raise AssertionError("an entry without noise tells the tables apart")
    weights = np.where(variance > 0, apart / np.maximum(variance, 1), 0)
    pull = np.where(np.isin(numbers.party, case.inside), 0, numbers.effects[case.against] @ weights)
    return centred(float(apart @ weights), drawn @ pull)


def check_sampled(release: Ready, still: Views, numbers: Numbers, *, times: int = SAMPLED) -> None:
    """Raise AssertionError unless what is seen of whole releases is the noiseless one plus what the numbers do."""
    for _ in range(times):
        asked: list[tuple[int, int, int]] = []
        drawn: list[Integers] = []

        def recording(place: int, scale: int, count: int) -> Integers:
            asked.append((place, scale, count))  # noqa: B023 - of this very run
            drawn.append(rounded_gaussian(scale, count))  # noqa: B023
            return drawn[-1].copy()  # noqa: B023

        _, seen = release.publish(recording)
        noise = np.concatenate(drawn)
        same = all(np.array_equal(seen[view], still[view] + noise @ numbers.effects[view]) for view in seen)
        if asked != numbers.asked or not same:
            raise AssertionError("what is seen is not the noiseless release plus one draw of the planned noise")


def claimed(case: Case, spec: ReleaseSpec) -> Rho:
    """What the proofs say such an attacker can see."""
    plans = plan_blocks(spec)
    members = sum((plan.loss for place, plan in enumerate(plans) if place in case.changed), start=ZERO)
    outsiders = mechanism_of(spec).outsider_loss(spec, [plan.sigma for plan in plans], spec.adjacency)
    return members if case.inside else min(members, outsiders)


def audit_moments(
    epsilon: float, cases: Sequence[Case] = CASES, *, runs: int, alpha: float = ALPHA
) -> list[dict[str, Any]]:
    """The bounds for the mechanism and for its broken twin."""
    blank = ready(epsilon, np.zeros(_PARTIES * _COLUMNS, np.int64))
    numbers, spec = numbers_of(blank), blank.spec
    honest, broken = (numbers.drawn(runs, draw) for draw in (rounded_gaussian, halved))
    results = []
    for case in cases:
        rows = worst_rows(spec, numbers.variance(case.inside), case.changed)
        pair = [ready(epsilon, row) for row in rows]
        stills = [release.still() for release in pair]
        if case.against is not None:
            check_sampled(ready(epsilon, rows[0], "proved"), stills[0], numbers, times=1)
        for release, still in zip(pair, stills, strict=True):
            check_sampled(release, still, numbers)
        apart = stills[1][case.against] - stills[0][case.against]
        results.append(
            {
                "mechanism": "moments",
                "seen_by": case.seen_by,
                "claimed": claimed(case, spec).epsilon(DELTA),
                "demonstrated": epsilon_bound(*scores(case, numbers, apart, honest), alpha=alpha),
                "with_half_the_noise": epsilon_bound(*scores(case, numbers, apart, broken), alpha=alpha),
            }
        )
    return results


def _with(release: Ready, numbers: Integers) -> Views:
    """What is seen where these numbers are drawn, in order."""
    left = iter(numbers)
    return release.publish(lambda _, __, count: np.array([next(left) for _ in range(count)]))[1]
