"""Pairwise moments of keyed subjects, their counts, and what is said of their errors."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.coverage import SCHEMA, SIZES, population
from benchmarks.keyed import people
from benchmarks.release_law import Party, proposed, released, study_of, tables
from commingle.services.analysis.covariance import pca
from commingle.services.analysis.linear_models import two_stage
from commingle.services.fit import Fit, fit_prepared
from commingle.shared.documents.schema import BinaryAttribute, NumericAttribute
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.terms import AUTO, expected_kept
from commingle.shared.errors import NoOverlapError, SpecError
from commingle.shared.estimation.entry_noise import PairLaw
from commingle.shared.estimation.pairwise import PairNoise, form_covariances, held, selections, suspicious
from commingle.shared.estimation.prepared import PreparedMoments, bucket_counts
from commingle.shared.estimation.system import build_system
from commingle.shared.forecast.forecast import forecast_of
from tests.world.noise import no_noise, seeded_noise

TARGET = SCHEMA[-1].name
SIMULATED = [((300, 400, 200), 900), ((500, 500, 350), 1500), ((2000, 3000, 1500), 20_000), ((900, 900, 900), 3000)]
"""How many i, j and both hold, and buckets."""
POPULATION = people(15_000, np.random.default_rng(2))
_, _, SLOPES = population()


def spec_of(mechanism: str, *, n: int = 400, epsilon: float = 50.0, buckets: int | None = None) -> ReleaseSpec:
    facts: dict[str, Any] = {"mechanism": mechanism, "subjects": "keyed", "buckets": buckets}
    return proposed(study_of(SCHEMA, SIZES, n, epsilon, first_stage_share=None, **facts))


def without_noise(overlap: float, *, seed: int = 3) -> tuple[PreparedMoments, list[Party]]:
    """So many buckets that hardly anybody meets anybody."""
    draw = np.random.default_rng(seed)
    held_by = tables(people(400, draw), SIZES, overlap, draw)
    return released(spec_of("moments", n=1 << 14, buckets=1 << 18), held_by, no_noise), held_by


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


def expected_of(held_by: tuple[int, int, int], buckets: int) -> NDArray[np.float64]:
    """(2, 2) how many count on average."""
    i, j, both = held_by
    shared = float(expected_kept(float(both), buckets, float(i + j - both - 1)))
    return np.array(
        [[float(expected_kept(float(i), buckets)), shared], [shared, float(expected_kept(float(j), buckets))]]
    )


def met(held_by: tuple[int, int, int], buckets: int, draw: np.random.Generator) -> tuple[NDArray[np.float64], int]:
    """(2, 2) how many count of people who are thrown into buckets, and how many strangers meet."""
    i, j, both = held_by
    place, person = draw.integers(0, buckets, i + j - both), np.arange(i + j - both)
    own = person < i, (person < both) | (person >= i)
    alone = [np.bincount(place[mine], minlength=buckets) == 1 for mine in own]
    shared = int((own[0] & own[1] & alone[0][place] & alone[1][place]).sum())
    summed = np.array([[alone[0].sum(), shared], [shared, alone[1].sum()]], float)
    return summed, int((alone[0] & alone[1]).sum()) - shared


@pytest.mark.parametrize(("held_by", "buckets"), SIMULATED)
def test_counts_of_buckets_are_traced_back_to_subjects(held_by: tuple[int, int, int], buckets: int) -> None:
    i, j, both = held_by
    found = bucket_counts(expected_of(held_by, buckets), np.ones((2, 2)), buckets=buckets)
    assert found.held == pytest.approx(np.array([[i, both], [both, j]]), rel=1e-6)
    single = (i - both) * (j - both) / buckets
    assert found.strangers[0, 1] == pytest.approx(single * (1 - 1 / buckets) ** (i + j - both - 2))
    assert found.strangers[0, 0] == 0


@pytest.mark.parametrize(("held_by", "buckets"), SIMULATED)
def test_counts_and_their_errors_are_those_of_simulated_buckets(held_by: tuple[int, int, int], buckets: int) -> None:
    """600 draws: means within five standard errors, deviations within 15 % (five standard errors of a deviation)."""
    draw, noise = np.random.default_rng(5), 4.0
    counted, held, said, strangers = [], [], [], []
    for _ in range(600):
        summed, others = met(held_by, buckets, draw)
        own, other, shared = draw.normal(0, noise, 3)
        shared += draw.choice((-1, 1), others).sum()  # strangers add their signs
        noisy = summed + np.array([[own, shared], [shared, other]])
        found = bucket_counts(noisy, np.full((2, 2), noise), buckets=buckets)
        counted.append(summed)
        held.append(found.held)
        said.append(found.errors)
        strangers.append((others, found.strangers[0, 1]))
    expected = expected_of(held_by, buckets)
    error = np.std(counted, axis=0) / np.sqrt(600)
    assert np.all(np.abs(np.mean(counted, axis=0) - expected) <= 5 * error)
    i, j, both = held_by
    spread = np.std(held, axis=0)
    if i != both:  # where both hold the same a count cannot be more
        assert np.all(np.abs(np.mean(held, axis=0) - [[i, both], [both, j]]) <= 5 * spread / np.sqrt(600) + 0.01 * i)
        assert spread == pytest.approx(np.mean(said, axis=0), rel=0.15)
    real, told = np.mean(strangers, axis=0)
    assert told == pytest.approx(real, abs=0.15 * real + 0.5)


@pytest.mark.parametrize("mechanism", ["rmgm", "moments"])
def test_forecast_knows_how_well_joint_counts_will_be(mechanism: str) -> None:
    draw = np.random.default_rng(7)
    spec = spec_of(mechanism, n=2000, epsilon=20.0)
    prepared = released(spec, tables(people(2000, draw), SIZES, 1.0, draw), seeded_noise(11))
    found = forecast_of(spec)
    assert prepared.pairs is not None
    assert found is not None
    errors = prepared.pairs.counts.errors[np.triu_indices(3, 1)]
    assert found.shared_error == pytest.approx(errors.max(), rel=0.25)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["rmgm", "moments"])
def test_errors_of_a_fit_are_as_large_as_those_of_many_releases(mechanism: str) -> None:
    """One table, released often: the residual moments vary as their covariance says."""
    draw = np.random.default_rng(11)
    held_by = tables(people(2000, draw), SIZES, 0.8, draw)
    spec = spec_of(mechanism, n=2000, epsilon=200.0)
    direction, found, said, noise = np.append(np.full(5, -0.2), 1.0), [], [], seeded_noise(11)
    for _ in range(30):
        one = spec.model_copy(update={"seed": draw.bytes(32).hex()})
        shuffled = {name.tobytes(): draw.bytes(32) for party in held_by for name in party.names}
        renamed = [
            Party(np.frombuffer(b"".join(shuffled[n.tobytes()] for n in p.names), np.uint8).reshape(-1, 32), p.rows)
            for p in held_by
        ]
        prepared = released(one, renamed, noise)
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
    prepared = released(spec_of("rmgm"), tables(people(400, draw), SIZES, 0.7, draw), seeded_noise(11))
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
    prepared = released(spec_of("moments", n=1000), apart, seeded_noise(11))
    with pytest.raises(NoOverlapError, match="people p0 and p2 share is too uncertain"):
        fit_prepared(prepared, TARGET, features=("x0",))
    alone = fit_prepared(prepared, TARGET, features=("x8", "x9"))
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
    prepared = released(spec_of("moments", n=6000), parties, seeded_noise(11))
    fit = fit_prepared(prepared, TARGET)
    assert any("differ from all its own" in warning for warning in fit.warnings) is selective
    assert any("Nothing shows that shared people differ" in note for note in fit.subjects) is not selective
    assert prepared.pairs is not None
    tests = suspicious(selections(prepared.pairs, np.arange(11)))
    assert {(test.party, test.other) for test in tests if test.column == 0} >= ({("p0", "p1")} if selective else set())
    counts = {found.parties: found for found in held(prepared.pairs)}
    assert abs(counts["p0", "p1"].subjects - len(chosen)) < 5 * counts["p0", "p1"].error + 200


def wrongly_planned(said: int, *, two_stages: bool, buckets: int | None = None, epsilon: float = 10.0) -> ReleaseSpec:
    facts: dict[str, Any] = {"mechanism": "moments", "subjects": "keyed", "buckets": buckets}
    return proposed(study_of(SCHEMA, SIZES, said, epsilon, first_stage_share=AUTO if two_stages else None, **facts))


@pytest.mark.slow
@pytest.mark.parametrize("two_stages", [True, False])
@pytest.mark.parametrize("said", [1500, 150_000])
def test_wrong_n_of_a_study_is_noticed_and_slopes_are_right_or_refused(said: int, *, two_stages: bool) -> None:
    """Ten releases for 15,000 people, of whom each party holds nine of ten."""
    draw, spec, held = np.random.default_rng(4), wrongly_planned(said, two_stages=two_stages), []
    noise = seeded_noise(11)
    for _ in range(10):
        held_by = tables(people(15_000, draw), SIZES, 0.9, draw)
        prepared = released(spec.model_copy(update={"seed": draw.bytes(32).hex()}), held_by, noise)
        fit = fit_prepared(prepared, TARGET, interval_for="population")
        low, high = fit.intervals[1:].T
        held.append((low <= SLOPES) & (high >= SLOPES))
        assert any(f"and the study said {said:,}" in warning for warning in fit.warnings)
        assert fit.coefficients[1:] == pytest.approx(SLOPES, abs=0.1)
        assert 5_000 < fit.n < 13_500
    for other in (pca(prepared), two_stage(prepared, TARGET, endogenous="x0", instruments="x1")):
        assert any(f"and the study said {said:,}" in warning for warning in other.warnings)
    assert np.mean(held) >= 0.88  # 100 intervals of 95 %: fewer once in a thousand


@pytest.mark.parametrize("said", [1500, 10**9])
def test_wrong_n_of_mixed_rows_is_noticed_and_intervals_hold(said: int) -> None:
    facts: dict[str, Any] = {"mechanism": "rmgm", "subjects": "keyed", "k": 600}
    spec = proposed(study_of(SCHEMA, SIZES, said, 100.0, first_stage_share=None, **facts))
    draw, held = np.random.default_rng(4), []
    for seed in range(5):
        held_by = tables(people(15_000, draw), SIZES, 0.9, draw)
        prepared = released(spec.model_copy(update={"seed": draw.bytes(32).hex()}), held_by, seeded_noise(seed))
        fit = fit_prepared(prepared, TARGET, interval_for="population")
        low, high = fit.intervals[1:].T
        held.append((low <= SLOPES) & (high >= SLOPES))
        assert any(f"and the study said {said:,}" in warning for warning in fit.warnings)
    assert np.mean(held) >= 0.82  # 50 intervals of 95 %: fewer once in a thousand


def test_errors_drawn_for_mixed_rows_have_the_covariances_of_their_law() -> None:
    """40,000 draws: covariances within five standard errors."""
    draw = np.random.default_rng(6)
    root = draw.normal(size=(4, 4))
    law = PairLaw.of_rows(root @ root.T, 50)
    forms = draw.normal(size=(3, 4, 4))
    forms += forms.swapaxes(1, 2)
    E = law.drawn_rows(draw, 40_000, left=np.eye(4))
    assert law.of_normal_rows
    assert not PairLaw.of_entries(np.full((4, 4), 2.0)).of_normal_rows
    assert np.allclose(E, E.swapaxes(1, 2))
    found, said = np.cov(np.einsum("tab,cab->tc", forms, E)), law.covariances(forms)
    variances = np.diag(said)
    assert np.all(np.abs(found - said) <= 5 * np.sqrt((said**2 + np.outer(variances, variances)) / 40_000))


def fit_of_unlike_columns(epsilon: float, bound: float, *, seed: int = 5) -> Fit:
    """By a number of standard deviation 0.2 within that bound, and two levels, of mixed rows of keyed people."""
    draw = np.random.default_rng(8)
    attributes = (
        NumericAttribute(name="x", lower=-bound, upper=bound),
        BinaryAttribute(name="sex", levels=("f", "m")),
        NumericAttribute(name="y", lower=-1, upper=1),
    )
    facts: dict[str, Any] = {"mechanism": "rmgm", "subjects": "keyed", "k": 200}
    spec = proposed(study_of(attributes, (2, 1), 3000, epsilon, first_stage_share=None, **facts))
    x, sex = np.clip(draw.normal(0, 0.2, 3000), -1, 1), draw.choice((-1.0, 1.0), 3000)
    y = np.clip(0.5 * x + 0.1 * sex + draw.normal(0, 0.2, 3000), -1, 1)
    encoded = np.column_stack([x / bound, sex, y])
    return fit_prepared(released(spec, tables(encoded, (2, 1), 0.8, draw), seeded_noise(seed)), "y")


@pytest.mark.parametrize("bound", [1.0, 5.0])
def test_small_columns_of_mixed_rows_with_little_noise_are_known_as_well_as_large_ones(bound: float) -> None:
    fit = fit_of_unlike_columns(1e4, bound)
    ratio = fit.diagnostics.signal_to_noise
    assert ratio is not None
    assert ratio == pytest.approx(np.sqrt(200) / (2 * np.sqrt(2)), rel=0.3)  # a norm near 2 (q / k)^1/2 of 2 features
    assert not any("combination of the features" in warning for warning in fit.warnings)


def test_small_column_of_mixed_rows_that_drowns_in_noise_is_warned_of_and_named() -> None:
    few, none = fit_of_unlike_columns(10.0, 20.0, seed=4), fit_of_unlike_columns(10.0, 20.0, seed=1)
    assert any("varies only 0.339 times as much as the noise may" in warning for warning in few.warnings)
    assert any("Hardly any person differs from the others in x. Name" in warning for warning in none.warnings)


def test_n_of_more_buckets_than_can_be_exchanged_is_refused_before_anybody_is_asked() -> None:
    facts: dict[str, Any] = {"mechanism": "moments", "subjects": "keyed"}
    with pytest.raises(SpecError, match="too many for an exchange"):
        proposed(study_of(SCHEMA, SIZES, 10**9, 10.0, first_stage_share=None, **facts))


@pytest.mark.parametrize("two_stages", [True, False])
def test_so_many_people_that_hardly_anybody_counts_cannot_be_fitted_and_it_is_said_why(*, two_stages: bool) -> None:
    """Five to a bucket: intervals that hold, none, or no fit, whose remedy is another n."""
    draw = np.random.default_rng(6)
    spec = wrongly_planned(1500, two_stages=two_stages, buckets=3000, epsilon=3.0)
    prepared = released(spec, tables(POPULATION, SIZES, 1.0, draw), seeded_noise(11))
    try:
        fit = fit_prepared(prepared, TARGET, interval_for="population")
    except NoOverlapError as error:
        assert "and the study said 1,500" in error.remedy  # noqa: PT017 - either may come
    else:
        assert np.isnan(fit.intervals).all()
        assert any("and the study said 1,500" in warning for warning in fit.warnings)


def test_more_people_than_buckets_are_counted_by_first_stages_and_else_said_to_look_like_fewer() -> None:
    draw = np.random.default_rng(8)
    held_by = tables(POPULATION, SIZES, 1.0, draw)
    counts = {}
    for two_stages in (True, False):
        spec = wrongly_planned(1500, two_stages=two_stages, buckets=6000)
        prepared = released(spec, held_by, seeded_noise(11))
        assert prepared.pairs is not None
        counts[two_stages] = prepared.pairs.counts.held[0, 0], prepared.pairs.counts.errors[0, 0]
        fit = fit_prepared(prepared, TARGET, features=("x0",))
        said = "This is so if no member holds more than 6,000: more would look like fewer."
        assert (said in fit.subjects) is not two_stages
    count, error = counts[True]
    assert abs(count - 15_000) < 5 * error < 250
    assert counts[False][0] < 2500, "15,000 e^-2.5 count, as of 1,700 in so many buckets"


def test_fit_says_how_many_people_count() -> None:
    draw = np.random.default_rng(9)
    spec = spec_of("moments", n=2000, epsilon=50.0, buckets=4000)
    prepared = released(spec, tables(people(2000, draw), SIZES, 1.0, draw), seeded_noise(11))
    assert prepared.pairs is not None
    kept = float(prepared.pairs.counts.summed[0, 0])
    assert kept == pytest.approx(float(expected_kept(2000.0, 4000)), rel=0.05)
    fit = fit_prepared(prepared, TARGET)
    assert any(f"of whom about {kept:,.0f} count" in note for note in fit.subjects)
    assert not any("the study said" in warning for warning in fit.warnings)
