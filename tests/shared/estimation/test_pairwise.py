"""Pairwise moments of keyed subjects, their counts, and what is said of their errors."""

import numpy as np
import pytest

from benchmarks.coverage import SCHEMA, SIZES
from benchmarks.keyed import Party, people, released, study, tables
from benchmarks.release_law import proposed
from commingle.services.fit import FitRequest, fit_prepared
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.dp.noise import rounded_gaussian
from commingle.shared.estimation.errors import NoOverlapError
from commingle.shared.estimation.keyed import bucket_counts
from commingle.shared.estimation.overlap import held, selections, suspicious
from commingle.shared.estimation.pair_noise import PairNoise, form_covariances
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.estimation.system import build_system
from commingle.shared.forecast.forecast import forecast_of
from tests.party_agent.test_exchange import exact

TARGET = SCHEMA[-1].name


def spec_of(mechanism: str, *, n: int = 400, epsilon: float = 50.0, buckets: int | None = None) -> ReleaseSpec:
    asked = study(
        SCHEMA, SIZES, mechanism=mechanism, n=n, epsilon=epsilon, keyed=True, buckets=buckets, two_stages=False
    )
    return proposed(asked)


def without_noise(overlap: float, *, seed: int = 3) -> tuple[PreparedMoments, list[Party]]:
    """So many buckets that hardly anybody gives way or meets a stranger."""
    draw = np.random.default_rng(seed)
    held_by = tables(people(400, draw), SIZES, overlap, draw)
    return released(spec_of("moments", n=1 << 14, buckets=1 << 18), held_by, exact), held_by


def test_without_noise_pairs_have_the_counts_means_and_covariances_of_those_whom_both_hold() -> None:
    prepared, (first, second, _) = without_noise(0.7)
    assert prepared.pairs is not None
    at = {name.tobytes(): place for place, name in enumerate(second.names)}
    both = [(i, at[name.tobytes()]) for i, name in enumerate(first.names) if name.tobytes() in at]
    x, y = (party.rows[[pair[side] for pair in both]] for side, party in enumerate((first, second)))
    assert prepared.pairs.counts.held[0, 1] == pytest.approx(len(both), abs=2)
    assert prepared.pairs.joint_means[0, 1] == pytest.approx(x[:, 0].mean(), abs=5e-3)
    expected = np.mean((x[:, 0] - x[:, 0].mean()) * (y[:, 0] - y[:, 0].mean()))
    assert prepared.pairs.covariance[0, 4] == pytest.approx(expected, abs=5e-3)
    assert prepared.pairs.means[0] == pytest.approx(first.rows[:, 0].mean(), abs=1e-3)


@pytest.mark.parametrize(
    ("held_by", "buckets", "kept"), [((300, 400, 200), 600, 0.6788), ((500, 500, 350), 500, 0.5599)]
)
def test_counts_of_buckets_are_traced_back_to_subjects(
    held_by: tuple[int, int, int], buckets: int, kept: float
) -> None:
    """The figures of docs/proofs/keyed-subjects.md, 5.2."""
    i, j, both = held_by
    own = [buckets * (1 - (1 - 1 / buckets) ** n) for n in (i, j)]
    summed = np.array([[own[0], both * kept], [both * kept, own[1]]])
    found = bucket_counts(summed, np.ones((2, 2)), buckets=buckets)
    assert found.held == pytest.approx(np.array([[i, both], [both, j]]), rel=1e-3)
    assert found.strangers[0, 1] > 0
    assert found.strangers[0, 0] == 0


@pytest.mark.parametrize("mechanism", ["rmgm", "moments"])
def test_forecast_knows_how_well_joint_counts_will_be(mechanism: str) -> None:
    draw = np.random.default_rng(7)
    spec = spec_of(mechanism, n=2000, epsilon=20.0)
    prepared = released(spec, tables(people(2000, draw), SIZES, 1.0, draw), rounded_gaussian)
    found = forecast_of(spec)
    assert prepared.pairs is not None
    assert found is not None
    errors = prepared.pairs.counts.errors[np.triu_indices(3, 1)]
    assert found.shared_error == pytest.approx(errors.max(), rel=0.25)


def test_strangers_are_those_who_take_one_bucket_at_both_parties_and_are_two() -> None:
    """Simulated: signs of subjects cancel, so the sum over buckets of both has that variance beside who is kept."""
    draw = np.random.default_rng(5)
    buckets, people_of, met = 1500, 500, []
    for _ in range(20):
        place, least = draw.integers(0, buckets, people_of), draw.random(people_of)
        held_by = [np.flatnonzero(draw.random(people_of) < 0.8) for _ in range(2)]
        kept = [dict(zip(place[h[np.argsort(-least[h])]], h[np.argsort(-least[h])], strict=True)) for h in held_by]
        both = [kept[0][b] == kept[1][b] for b in kept[0].keys() & kept[1].keys()]
        summed = np.array([[len(kept[0]), sum(both)], [sum(both), len(kept[1])]], float)
        found = bucket_counts(summed, np.zeros((2, 2)), buckets=buckets)
        met.append((len(both) - sum(both), found.strangers[0, 1]))
    real, said = np.array(met, float).mean(axis=0)
    assert said == pytest.approx(real, rel=0.25)


@pytest.mark.parametrize("mechanism", ["rmgm", "moments"])
def test_errors_of_a_fit_are_as_large_as_those_of_many_releases(mechanism: str) -> None:
    """One table, released often: the residual moments vary as their covariance says."""
    draw = np.random.default_rng(11)
    held_by = tables(people(2000, draw), SIZES, 0.8, draw)
    spec = spec_of(mechanism, n=2000, epsilon=200.0)
    direction, found, said = np.append(np.full(5, -0.2), 1.0), [], []
    for _ in range(30):
        one = spec.model_copy(update={"seed": draw.bytes(32).hex()})
        shuffled = {name.tobytes(): draw.bytes(32) for party in held_by for name in party.names}
        renamed = [
            Party(np.frombuffer(b"".join(shuffled[n.tobytes()] for n in p.names), np.uint8).reshape(-1, 32), p.rows)
            for p in held_by
        ]
        prepared = released(one, renamed, rounded_gaussian)
        system = build_system(prepared, 10, (1, 2, 5, 6), intercept=True)
        assert isinstance(system.entries, PairNoise)
        moments = np.vstack([np.column_stack([system.xx, system.xy]), np.append(system.xy, system.yy)])
        found.append((moments @ direction)[1:-1] / prepared.n)
        omega = system.entries.covariance(direction)
        if mechanism == "moments":  # who gives way changes with the names
            omega = omega + system.entries.gave_way * system.entries.sampling(direction)
        said.append(np.diag(omega)[1:] / prepared.n**2)
    real = np.var(found, axis=0)
    assert np.median(said, axis=0).sum() == pytest.approx(real.sum(), rel=0.5)


def test_forms_of_presences_have_the_error_of_the_counts() -> None:
    draw = np.random.default_rng(5)
    prepared = released(spec_of("rmgm"), tables(people(400, draw), SIZES, 0.7, draw), rounded_gaussian)
    pairs = prepared.pairs
    assert pairs is not None
    forms = np.zeros((1, 14, 14))
    forms[0, 0, 1] = forms[0, 1, 0] = 0.5
    assert float(form_covariances(pairs, forms)[0, 0]) ** 0.5 == pytest.approx(float(pairs.counts.errors[0, 1]))


def test_parties_that_share_nobody_cannot_be_fitted_across_and_one_alone_can() -> None:
    draw = np.random.default_rng(6)
    everybody = people(3000, draw)
    names = np.frombuffer(draw.bytes(32 * 3000), np.uint8).reshape(-1, 32)
    apart = [
        Party(names[i * 1000 : (i + 1) * 1000], everybody[i * 1000 : (i + 1) * 1000, start:end])
        for i, (start, end) in enumerate([(0, 4), (4, 8), (8, 11)])
    ]
    prepared = released(spec_of("moments", n=1000), apart, rounded_gaussian)
    with pytest.raises(NoOverlapError, match="p0 and p2 share hardly anybody"):
        fit_prepared(prepared, FitRequest(target=TARGET, features=("x0",)))
    alone = fit_prepared(prepared, FitRequest(target=TARGET, features=("x8", "x9")))
    assert np.isfinite(alone.standard_errors).all()
    assert any("p2 holds about" in sentence for sentence in alone.subjects)


@pytest.mark.parametrize("selective", [True, False])
def test_fit_says_whether_who_is_shared_differs(selective: bool) -> None:
    draw = np.random.default_rng(7)
    everybody = people(6000, draw)
    names = np.frombuffer(draw.bytes(32 * 6000), np.uint8).reshape(-1, 32)
    first = everybody[:, 0] > np.median(everybody[:, 0])
    chosen = np.flatnonzero(first if selective else draw.random(6000) < 0.5)
    parties = [
        Party(names, everybody[:, :4]),
        Party(names[chosen], everybody[chosen, 4:8]),
        Party(names, everybody[:, 8:]),
    ]
    prepared = released(spec_of("moments", n=6000), parties, rounded_gaussian)
    fit = fit_prepared(prepared, FitRequest(target=TARGET))
    assert any("differ from all its own" in warning for warning in fit.warnings) is selective
    assert any("Nothing shows that shared subjects differ" in note for note in fit.subjects) is not selective
    assert prepared.pairs is not None
    tests = suspicious(selections(prepared.pairs, np.arange(11)))
    assert {(test.party, test.other) for test in tests if test.column == 0} >= ({("p0", "p1")} if selective else set())
    counts = {found.parties: found for found in held(prepared.pairs)}
    assert abs(counts["p0", "p1"].subjects - len(chosen)) < 5 * counts["p0", "p1"].error + 200
