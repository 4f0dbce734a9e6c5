"""Survival: without noise that of the rows; with noise, bands hold the population's curve and the test has its size."""

from typing import Any

import numpy as np
import pytest
from matplotlib import pyplot as plt
from numpy.typing import NDArray
from scipy.special import ndtri
from statsmodels.duration.survfunc import SurvfuncRight, survdiff

from benchmarks.harness import covers
from commingle.services.analysis import Survival, survival
from commingle.services.analysis.survival import restricted_mean
from commingle.services.client.release import Release
from commingle.services.errors import LevelError
from commingle.services.learner.computing import HEIGHT, curves
from commingle.services.results import number_text
from commingle.shared.documents.schema import BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.documents.study import Crossed, CutNumber
from commingle.shared.errors import ConfidenceError, NoTablesError
from commingle.shared.estimation.prepared import PreparedMoments
from tests.world.categorical import release_of
from tests.world.released import published_survival, published_tables

ENDS = np.array([6.0, 12, 24, 36, 60])
FOLLOWUP = CutNumber(name="followup", lower=0, upper=60, unit="months", cuts=tuple(ENDS[:-1].tolist())).as_levels
DIED = BinaryAttribute(name="died", levels=("no", "yes"))
OUTCOME = Crossed(name="outcome", cross=(FOLLOWUP, DIED)).as_levels
ARM = CategoricalAttribute(name="arm", levels=("a", "b", "c"))
SITE = BinaryAttribute(name="site", levels=("x", "y"))
ATTRIBUTES = (OUTCOME, SITE, ARM)
MEAN = np.array([40.0, 40.0, 25.0])


def cells_of(n: int, seed: int, *, leave: float = 60.0, means: NDArray[np.float64] = MEAN) -> dict[str, list[Any]]:
    """Exponential times to death by arm; people leave at a uniform time, all after `leave` months at the latest."""
    draw = np.random.default_rng(seed)
    arm = draw.choice(3, n, p=(0.5, 0.3, 0.2))
    death = draw.exponential(means[arm])
    left = np.full(n, 60.0) if leave >= 1000 else draw.uniform(0, 2 * leave, n).clip(0, 60)
    return {
        "followup": np.minimum(death, left).tolist(),
        "died": np.where(death < left, "yes", "no").tolist(),
        "arm": np.array(ARM.levels)[arm].tolist(),
        "site": np.array(SITE.levels)[draw.choice(2, n)].tolist(),
    }


def released(n: int, pseudonyms: int, *, cells: dict[str, list[Any]] | None = None, **choices: Any) -> PreparedMoments:
    return release_of(ATTRIBUTES, (2, 1), cells or cells_of(n, pseudonyms), pseudonyms=pseudonyms, **choices)


def grouped(cells: dict[str, list[Any]], arm: str | None = None) -> tuple[NDArray[np.float64], ...]:
    """People in intervals, (K,): censored, and with the event."""
    mine = [i for i, of in enumerate(cells["arm"]) if arm in {None, of}]
    place = np.digitize(np.array(cells["followup"])[mine], ENDS[:-1])
    died = np.array(cells["died"])[mine] == "yes"
    return tuple(np.bincount(place[which], minlength=len(ENDS)).astype(np.float64) for which in (~died, died))


@pytest.mark.parametrize("arm", [None, "b"])
def test_curve_without_noise_is_that_of_statsmodels_with_half_of_the_censored_at_risk(arm: str | None) -> None:
    cells = cells_of(4000, 1)
    found = survival(released(4000, 1, epsilon=1e5), "outcome", by=arm and "arm")
    g = 0 if arm is None else ARM.levels.index(arm)
    censored, events = grouped(cells, arm)
    # of those who leave in an interval one half does so before its events and one half after them
    times = np.concatenate([ENDS - 0.5, ENDS, ENDS])
    status, weights = np.repeat([0, 1, 0], len(ENDS)), np.concatenate([censored / 2, events, censored / 2])
    oracle = SurvfuncRight(times, status, freq_weights=weights)
    assert found.events[g] == pytest.approx(events, abs=0.5)
    assert found.at_risk[g] == pytest.approx(np.cumsum((censored + events)[::-1])[::-1], abs=0.5)
    assert found.survival[g, :-1] == pytest.approx(oracle.surv_prob[:-1], abs=1e-3)
    assert (found.survival_intervals[g, :-1, 0] < found.survival[g, :-1]).all()
    assert np.isnan(found.survival[g, -1])


def test_bands_without_noise_and_censoring_are_those_of_greenwood_and_of_the_mean() -> None:
    cells = cells_of(4000, 1, leave=1000)
    found = survival(released(4000, 1, cells=cells, epsilon=1e5), "outcome")
    _, events = grouped(cells)
    n = 4000 - np.append(0, np.cumsum(events)[:-1])
    shares = 1 - np.cumsum(events) / 4000
    greenwood = np.sqrt(np.cumsum(events / (n * (n - events))))
    reach = np.log(found.survival_intervals[0, :, 1] / found.survival[0])
    assert reach[:-1] == pytest.approx(ndtri(0.975) * greenwood[:-1], rel=0.01)
    at = np.append(1, shares[:-1])
    each = np.diff(ENDS[:-1], prepend=0) * -np.diff(at) / -np.diff(np.log(at))
    assert found.restricted_means[0] == pytest.approx(each.sum(), rel=1e-3)
    assert found.horizons.tolist() == [36.0]


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 1e6])
def test_intervals_of_restricted_means_hold_that_of_the_population_where_hazards_are_constant(epsilon: float) -> None:
    truth, held, means, errors = 10 * (1 - np.exp(-36 / 10)), [], [], []
    for seed in range(40):
        cells = cells_of(4000, seed, leave=1000, means=np.full(3, 10.0))
        found = survival(released(4000, seed, cells=cells, epsilon=epsilon, seed=seed), "outcome")
        (low, high), mean = found.restricted_mean_intervals[0], found.restricted_means[0]
        held.append(low <= truth <= high)
        means.append(mean)
        errors.append((high - low) / 2 / ndtri(0.975))
    assert np.mean(held) >= 0.85
    assert np.mean(means) == pytest.approx(truth, abs=4 * float(np.std(means)) / np.sqrt(40))
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.35), "a standard deviation of 40 is known to 0.11"


def test_restricted_mean_has_the_gradient_of_its_formula_also_where_a_curve_is_flat() -> None:
    w, logs = np.array([6.0, 6, 12, 12]), np.log([0.8, 0.8, 0.80001, 0.1])
    mean, by_log = restricted_mean(w, np.exp(logs))
    at = np.append(1, np.exp(logs))
    assert mean == pytest.approx(6 * -0.2 / np.log(0.8) + 18 * 0.8 + 12 * 0.7 / np.log(8), rel=1e-5)
    ahead, behind = ([restricted_mean(w, np.exp(logs + step))[0] for step in by * np.eye(4)] for by in (1e-5, -1e-5))
    assert by_log == pytest.approx((np.array(ahead) - behind) / 2e-5, rel=1e-4)
    assert w @ at[1:] < mean < w @ at[:-1]


def test_notes_say_what_a_restricted_mean_takes_for_granted_and_its_bounds() -> None:
    found = survival(released(4000, 1, epsilon=1e5), "outcome")
    at, w = np.append(1, found.survival[0, :-1]), np.diff(ENDS[:-1], prepend=0)
    notes = " ".join(found.table().notes)
    assert "hazard to be constant within an interval" in notes
    assert f"up to 36 months; sure bounds {w @ at[1:]:.4g} to {w @ at[:-1]:.4g}." in notes


def test_log_rank_without_noise_and_censoring_is_that_of_statsmodels() -> None:
    cells = cells_of(4000, 1, leave=1000)
    found = survival(released(4000, 1, cells=cells, epsilon=1e5), "outcome", by="arm")
    place = np.digitize(cells["followup"], ENDS[:-1])
    expected, _ = survdiff(place.astype(float), (place < len(ENDS) - 1).astype(float), np.array(cells["arm"]))
    assert found.statistic == pytest.approx(expected, rel=0.02)
    assert found.degrees_of_freedom == 2


@pytest.mark.parametrize(("outcome", "by"), [("site", None), ("arm", "site"), ("outcome", "outcome")])
def test_outcome_that_is_no_time_by_event_is_refused(outcome: str, by: str | None) -> None:
    with pytest.raises(LevelError) as refused:
        survival(released(100, 1), outcome, by=by)
    assert refused.value.remedy


def test_number_has_no_groups_and_a_whole_no_interval() -> None:
    attributes = (OUTCOME, NumericAttribute(name="age", lower=0, upper=1))
    cells = cells_of(100, 1) | {"age": [0.5] * 100}
    with pytest.raises(NoTablesError):
        survival(release_of(attributes, (1, 1), cells), "outcome", by="age")
    with pytest.raises(ConfidenceError):
        survival(release_of(attributes, (1, 1), cells), "outcome", confidence_level=0.0)


def test_sentence_about_many_groups_names_the_least_and_the_most_share() -> None:
    ward = CategoricalAttribute(name="ward", levels=tuple("abcdef"))
    cells = cells_of(3000, 1) | {"ward": ["abcdef"[i % 6] for i in range(3000)]}
    found = survival(release_of((OUTCOME, ward), (1, 1), cells, epsilon=1e5), "outcome", by="ward")
    shares = found.survival[:, -2]
    least, most = (f"{shares[g]:.1%} of ward = {'abcdef'[g]}" for g in (shares.argmin(), shares.argmax()))
    assert found.sentence.startswith(f"{least} to {most} reach 36 months without died = yes; log-rank p ")


def test_curve_ends_where_noise_hides_who_is_at_risk_and_says_so() -> None:
    found = survival(released(400, 2, seed=4, epsilon=0.5), "outcome", by="arm")
    assert np.isnan(found.survival[2, -2])
    assert "arm = c from" in found.warnings[0]
    assert found.warnings[0].endswith("left out of the test: arm = c."), "which has no share at all"
    assert found.degrees_of_freedom == 1
    assert "of arm = a, " in found.sentence
    assert found.sentence.endswith(f"; log-rank p {number_text(found.p_value, 'p')}; too few people have arm = c.")
    hidden = survival(released(150, 2, seed=4, epsilon=0.1), "outcome", by="arm")
    assert hidden.warnings[0].endswith("left out of the test: arm = a, arm = b, arm = c.")
    assert np.isnan(hidden.statistic)
    assert (found.restricted_mean_intervals[np.isfinite(found.horizons)] >= 0).all()
    assert survival(released(100, 2, seed=4, epsilon=0.1), "outcome").sentence.startswith("Noise")


def test_release_shows_curves_in_every_form() -> None:
    found = Release.of(published_survival()[1]).survival("outcome", by="stage")
    shown = found.table()
    assert found.p_value < 0.001
    assert "without died = yes; log-rank p <0.001." in found.sentence
    assert shown.to_csv().splitlines()[0].startswith("followup (months),i: at risk,i: events,i: without at its end,")
    assert len(shown.to_text().splitlines()) == 3 + 1 + 5 + 1 + len(shown.notes) + len(shown.warnings)
    assert any("restricted mean" in note for note in shown.notes)
    ax = found.plot()
    assert ax.get_legend_handles_labels()[1] == ["i", "ii"]
    plt.close(ax.figure)  # type: ignore[arg-type] # a figure, not part of one
    with pytest.raises(LevelError):
        Release.of(published_tables()[1]).survival("stage")


@pytest.mark.slow
@pytest.mark.parametrize(("overlap", "epsilon"), [(None, 1.0), (0.8, 2.0)])
def test_bands_hold_the_curve_of_the_population_and_the_test_has_its_size(
    overlap: float | None, epsilon: float
) -> None:
    """A coverage of .95 of 150 releases is outside .9 to .99 once in 50 runs, a size of .05 above .11 once in 500."""
    truth, covered, alarms = np.exp(-ENDS / 40), list[NDArray[np.bool_]](), list[bool]()
    for seed in range(150):
        cells = cells_of(4000, seed, means=np.full(3, 40.0))
        release = released(4000, seed, cells=cells, overlap=overlap, epsilon=epsilon, seed=seed)
        found: Survival = survival(release, "outcome", by="arm")
        covered.append(covers(found.survival_intervals[:, :-1], truth[:-1]))
        alarms.append(found.p_value < 0.05)
    held = np.mean(covered, axis=0)
    assert 0.9 <= held.min() <= held.max() <= 0.99
    assert np.mean(alarms) < 0.11


HOW = CategoricalAttribute(name="how", levels=("none", "graft", "death"))
COMPETING = Crossed(name="end", cross=(FOLLOWUP, HOW)).as_levels


def competing(n: int, seed: int) -> dict[str, list[Any]]:
    """Exponential times to a graft (mean 80) and to death (mean 40); some leave before either."""
    draw = np.random.default_rng(seed)
    graft, death, left = draw.exponential(80, n), draw.exponential(40, n), draw.uniform(0, 120, n).clip(0, 60)
    first = np.argmin([left, graft, death], axis=0)
    arm = np.array(ARM.levels)[draw.choice(3, n)].tolist()
    return {
        "followup": np.minimum(np.minimum(graft, death), left).tolist(),
        "how": np.array(HOW.levels)[first].tolist(),
        "arm": arm,
    }


def test_incidence_without_noise_is_that_of_aalen_and_johansen_with_half_of_the_censored_at_risk() -> None:
    cells = competing(4000, 1)
    found = survival(release_of((COMPETING, ARM), (1, 1), cells, epsilon=1e5), "end")
    place, how = np.digitize(cells["followup"], ENDS[:-1]), np.array(cells["how"])
    none, graft, death = (np.bincount(place[how == kind], minlength=len(ENDS)) for kind in HOW.levels)
    m = np.cumsum((none + graft + death)[::-1])[::-1] - none / 2
    before = np.append(1, np.cumprod(1 - (graft + death) / m))[:-1]
    for e, events in enumerate((graft, death)):
        assert found.incidence[0, e, :-1] == pytest.approx(np.cumsum(before * events / m)[:-1], abs=1e-3)
    assert found.causes == ("graft", "death")
    assert found.incidence[0, :, :-1].sum(axis=0) + found.survival[0, :-1] == pytest.approx(1)
    assert found.event == "how = graft or death"
    assert "death by its end" in found.table().to_csv().splitlines()[0]


def test_incidence_of_one_event_that_competes_with_none_has_the_ends_of_the_curve() -> None:
    cells = competing(4000, 2)
    cells["how"] = ["death" if how == "graft" else how for how in cells["how"]]
    found = survival(release_of((COMPETING, ARM), (1, 1), cells, epsilon=1e5), "end")
    assert found.incidence[0, 1, :-1] == pytest.approx(1 - found.survival[0, :-1], abs=1e-3)
    assert 1 - found.incidence_intervals[0, 1, :-1, ::-1] == pytest.approx(found.survival_intervals[0, :-1], abs=1e-3)


@pytest.mark.slow
def test_intervals_hold_the_incidence_of_the_population() -> None:
    """A coverage of .95 of 100 releases is outside .88 to .995 about once in 100 runs."""
    truth = np.outer([1 / 3, 2 / 3], 1 - np.exp(-ENDS * (1 / 80 + 1 / 40)))
    held = []
    for seed in range(100):
        release = release_of((COMPETING, ARM), (1, 1), competing(4000, seed), epsilon=1.0, seed=seed)
        held.append(covers(survival(release, "end").incidence_intervals[0, :, :-1], truth[:, :-1]))
    assert 0.88 <= np.mean(held, axis=0).min() <= np.mean(held, axis=0).max() <= 0.995


def test_each_event_that_competes_is_drawn_from_nobody_on_below_the_curve_of_none() -> None:
    found = survival(release_of((COMPETING, ARM), (1, 1), competing(4000, 1), epsilon=1.0), "end", by="arm")
    none, *events = found.pictures()
    assert [one.share.partition(" (")[0] for one in events] == [
        "with graft before any other",
        "with death before any other",
    ]
    assert (none.shares[:, 0] == 1).all()
    drawn = curves(events[1])
    assert drawn is not None
    death = np.array(drawn["curves"][2]["line"])
    assert death[0].tolist() == [0, HEIGHT]
    top = float(drawn["shares"][-1][0].removesuffix(" %")) / 100
    assert top >= found.incidence_intervals[np.isfinite(found.incidence_intervals)].max()
    assert 1 - death[1:, 1] / HEIGHT == pytest.approx(found.incidence[2, 1, :-1] / top)
    assert [said for _, said in drawn["curves"][2]["at_risk"]] == [f"{n:,.0f}" for n in found.at_risk[2]]
    figure = found.plot().figure
    assert len(figure.axes) == 3
    own = plt.figure().subplots()
    assert found.plot(own) is own
    plt.close("all")


def test_log_rank_of_events_that_compete_is_that_of_any_of_them() -> None:
    cells = competing(4000, 3)
    sooner = np.equal(cells["arm"], "a")
    cells["followup"] = np.where(sooner, 0.7, 1.0) * cells["followup"]
    cells["died"] = ["no" if how == "none" else "yes" for how in cells["how"]]
    each, any_of_them = (
        survival(release_of((end, ARM), (1, 1), cells, epsilon=1e5), end.name, by="arm") for end in (COMPETING, OUTCOME)
    )
    assert each.statistic == pytest.approx(any_of_them.statistic, rel=1e-3)
    assert each.statistic > 50
    assert each.degrees_of_freedom == 2
    assert each.incidence.shape == (3, 2, len(ENDS))


def test_incidence_is_in_its_interval_where_noise_leaves_more_than_everybody_with_one_event() -> None:
    cells = {**competing(4000, 1), "followup": [1.0] * 4000, "how": ["death"] * 4000}
    capped = list[np.bool_]()
    for seed in range(4):
        found = survival(release_of((COMPETING, ARM), (1, 1), cells, seed=seed), "end", by="arm")
        low, high = np.moveaxis(found.incidence_intervals, 3, 0)
        known = np.isfinite(found.incidence)
        assert ((low <= found.incidence) & (found.incidence <= high) & (high <= 1))[known].all()
        capped.append((found.incidence[:, 1] == 1 - found.survival).any())
    assert any(capped), "what noise makes of it is no share"
