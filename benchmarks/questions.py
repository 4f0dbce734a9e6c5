"""Tables of one release: how far counts are from those of the rows, and how often intervals and tests hold.

Counts are of all pairs of nine attributes of diabetes130_raw (made-up people if it is not at hand), at three parties
that hold the same people: the counts and joint shares of `table`, and the weighted rows that `synthesize` draws from.
Beside them stands a trusted holder of the joined table with the same guarantee for a person, add or remove: OpenDP's
Gaussian mechanism on all pair tables. Total variation is half the sum of |share - share of the rows|, as a mean over
pairs and releases; not all keyed subjects count. Coverage is of the population: every release has new people.
"""

from collections.abc import Sequence
from itertools import combinations
from math import sqrt
from typing import Any

import numpy as np
import opendp.prelude as dp
from numpy.typing import NDArray

from benchmarks.harness import Asked, Experiment, Report, covers, generator, means
from benchmarks.labelled import DIABETES, Labelled
from benchmarks.release_law import Array, party_sizes, release_of
from commingle.services.analysis import cross_table, describe
from commingle.services.analysis.tables import joint_shares
from commingle.services.models.factors import Factor
from commingle.services.models.weighted_rows import weighted_rows
from commingle.shared.documents.schema import Attribute, BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.dp.calibration import gaussian_rho
from commingle.shared.estimation.cells import Cells
from commingle.shared.estimation.cross_products import CrossProducts

PEOPLE, ATTRIBUTES, DELTA = 13_903, 9, 1e-5
EPSILONS = (1.0, 3.0)
SETTINGS = (
    (4_000, 1.0, 1.0, 1.0),
    (4_000, 0.8, 1.0, 1.0),
    (2_000, 0.9, 3.0, 1.0),
    (800, 1.0, 1.0, 1.0),
    (1_000, 1.0, 10.0, 0.1),
)
"""People, the chance that a member holds one, epsilon, and how often the events of `EVENTS` are."""
"""People, the chance that a party holds a person, epsilon."""
STAGES, STAGE_SHARES, EVENTS = ("i", "ii", "iii"), np.array([0.5, 0.3, 0.2]), np.array([0.18, 0.23, 0.29])
MEAN = 55.0
_SEED = bytes(32)


def variations(people: Labelled, *, epsilon: float, draw: np.random.Generator) -> dict[str, float]:
    """Total variation of one release and of a trusted holder's tables, as means over pairs."""
    chosen = draw.choice(len(people.y), min(PEOPLE, len(people.y)), replace=False)
    attributes, codes = people.attributes, people.both[chosen]
    parties = party_sizes(len(attributes), 3)
    sums = CrossProducts.of(
        release_of(attributes, parties, people.cells(chosen), epsilon=epsilon, overlap=1.0, draw=draw, seed=_SEED)
    )
    law = weighted_rows(sums, [Factor.of(sums, a.name) for a in attributes])
    pairs, sizes = list(combinations(range(len(attributes)), 2)), [int(c.max()) + 1 for c in people.both.T]
    shapes = [(sizes[i], sizes[j]) for i, j in pairs]
    truth = [pair_table(codes[:, pair], shape) for pair, shape in zip(pairs, shapes, strict=True)]
    names = [(attributes[i].name, attributes[j].name) for i, j in pairs]
    tables = [Cells.balanced(sums, *pair) for pair in names]
    rho = gaussian_rho(epsilon, DELTA)
    found: dict[str, list[Array]] = {
        "counts": [table.counts for table in tables],
        "joint": [joint_shares(sums, *pair, table) for pair, table in zip(names, tables, strict=True)],
        "rows": [pair_table(law.codes[:, pair], s, law.weights) for pair, s in zip(pairs, shapes, strict=True)],
        "opendp": noisy(truth, sqrt(len(pairs)) / sqrt(2 * rho)),  # a person is one cell of each table
    }
    return {name: float(np.mean(list(map(variation, tables, truth)))) for name, tables in found.items()}


def pair_table(codes: NDArray[np.intp], sizes: tuple[int, int], weights: Array | None = None) -> Array:
    return np.bincount(codes @ [sizes[1], 1], weights, sizes[0] * sizes[1]).reshape(sizes).astype(np.float64)


def variation(found: Array, truth: Array) -> float:
    """Half the sum of the absolute errors of shares."""
    return float(np.abs(found / found.sum() - truth / truth.sum()).sum() / 2)


def noisy(tables: Sequence[Array], sigma: float) -> list[Array]:
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    flat = np.concatenate([table.ravel() for table in tables]).astype(int)
    drawn = np.array(dp.m.make_gaussian(*space, scale=sigma)(flat.tolist()), np.float64)
    ends = np.cumsum([table.size for table in tables])[:-1]
    return [part.reshape(of.shape) for part, of in zip(np.split(drawn, ends), tables, strict=True)]


def coverage(n: int, overlap: float, epsilon: float, often: float, draw: np.random.Generator) -> dict[str, Any]:
    """For one release: shares of intervals that hold the population's figures, and if tests reject truths at .05."""
    events = EVENTS * often
    stage = draw.choice(3, n, p=STAGE_SHARES)
    attributes: tuple[Attribute, ...] = (
        NumericAttribute(name="age", lower=20, upper=90),
        CategoricalAttribute(name="stage", levels=STAGES),
        BinaryAttribute(name="smoker", levels=("no", "yes")),
        BinaryAttribute(name="back", levels=("no", "yes")),
    )
    cells = {
        "age": draw.uniform(20, 90, n).tolist(),
        "stage": np.array(STAGES)[stage].tolist(),
        "smoker": np.where(draw.random(n) < 0.3, "yes", "no").tolist(),
        "back": np.where(draw.random(n) < events[stage], "yes", "no").tolist(),
    }
    release = release_of(attributes, (2, 2), cells, epsilon=epsilon, overlap=overlap, draw=draw, seed=_SEED)
    found, about = cross_table(release, "stage", "back"), describe(release, ["age", "smoker"], by="back")
    odds = events / (1 - events)
    within = {
        "shares": _held(found.share_intervals, events),
        "risk differences": _held(found.difference_intervals[1:], events[1:] - events[0]),
        "risk ratios": _held(found.ratio_intervals[1:], events[1:] / events[0]),
        "odds ratios": _held(found.odds_intervals[1:], odds[1:] / odds[0]),
        "means": _held(about.intervals[0], np.full(2, MEAN)),
    }
    unbounded = float(np.isinf(found.odds_intervals[1:, 1]).mean())
    size = [bool(p < 0.05) for p in (about.p_values[0], about.p_values[1])]
    return {**within, "unbounded": unbounded, "test of means": size[0], "test of a table": size[1]}


def _held(intervals: Array, truth: Array) -> float:
    # levels that count as one have no interval of their own
    return float(covers(intervals, truth).mean()) if len(intervals) == len(truth) else 0.0


def measure(asked: Asked) -> Report:
    people, releases = DIABETES.read(asked.data).first(ATTRIBUTES), asked.times(1, 20)
    counted = {
        f"{epsilon:g}": means([variations(people, epsilon=epsilon, draw=generator(50, i)) for i in range(releases)])
        for epsilon in (EPSILONS[:1] if asked.quick else EPSILONS)
    }
    settings, times = SETTINGS[:1] if asked.quick else SETTINGS, asked.times(3, 1000)
    covered = [
        {
            "n": n,
            "overlap": held,
            "epsilon": epsilon,
            "events": float(EVENTS.max() * often),
            **means([coverage(n, held, epsilon, often, generator(51, s, i)) for i in range(times)]),
        }
        for s, (n, held, epsilon, often) in enumerate(settings)
    ]
    return {
        "people": min(PEOPLE, len(people.y)),
        "releases": releases,
        "counted": counted,
        "times": times,
        "covered": covered,
    }


EXPERIMENT = Experiment("questions", __doc__, measure)

if __name__ == "__main__":
    EXPERIMENT.command()
