"""Fits where cells are missing: of those who have the target, by what is published alone."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.coverage import SCHEMA, SIZES, TARGET
from benchmarks.keyed import people
from benchmarks.release_law import Party, proposed, released, study_of, tables
from commingle.services.analysis.linear_models import two_stage
from commingle.services.analysis.paths import ridge_path
from commingle.services.fit import Fit, fit_prepared
from commingle.services.fit.subjects import faint_marks, without_gaps
from commingle.shared.dp.noise import Sampler
from commingle.shared.errors import ImputedTargetError, NoOverlapError
from commingle.shared.estimation.prepared import PreparedMoments
from tests.world.noise import no_noise, seeded_noise

N = 3000
NAMES = [a.name for a in SCHEMA]


def release(
    name: str = TARGET,
    *,
    share: float = 0.3,
    keyed: bool = False,
    mechanism: str = "moments",
    epsilon: float = 10.0,
    noise: Sampler = no_noise,
    seed: int = 1,
    by_value: bool = False,
    n: int = N,
) -> tuple[PreparedMoments, np.ndarray, np.ndarray]:
    """A release of which cells of one attribute are missing; everybody's encoded rows (n, 11); who lacks it (n,)."""
    schema = tuple(a.model_copy(update={"missing": "indicator"}) if a.name == name else a for a in SCHEMA)
    subjects = "keyed" if keyed else "listed"
    asked = study_of(schema, SIZES, n, epsilon, first_stage_share=None, mechanism=mechanism, subjects=subjects)
    draw, at = np.random.default_rng(seed), NAMES.index(name)
    rows = people(n, draw)
    gone = draw.random(n) < (2 * share * (rows[:, 0] > np.median(rows[:, 0])) if by_value else share)
    encoded = np.insert(rows, at + 1, gone, axis=1)
    encoded[gone, at] = 0
    sizes = [size + (name in names) for size, names in zip(SIZES, np.split(NAMES, np.cumsum(SIZES)[:-1]), strict=True)]
    held = tables(encoded, sizes, 1.0, draw)
    if not keyed:
        held = [Party(np.arange(n), party.rows) for party in held]
    return released(proposed(asked, draw.bytes(32)), held, noise), rows, gone


def fitted(prepared: PreparedMoments, **asked: object) -> Fit:
    return fit_prepared(prepared, TARGET, **asked)  # type: ignore[arg-type] # fields of a request


@pytest.mark.parametrize("keyed", [False, True])
def test_mean_of_a_target_is_that_of_those_who_have_it(keyed: bool) -> None:
    prepared, rows, gone = release(keyed=keyed)
    found = fitted(prepared, estimator="constant").coefficients[0]
    there = rows[~gone, -1]
    assert found == pytest.approx(there.mean(), abs=1e-4 if not keyed else there.std() / 50)
    assert abs(found) > 1.2 * abs(np.where(gone, 0, rows[:, -1]).mean())  # what the midpoint would have made of it


def test_slopes_are_of_products_with_the_target_over_those_who_have_it_and_of_all_others_over_everybody() -> None:
    prepared, rows, gone = release()
    there, x = rows[~gone], rows[:, :-1]
    cross = np.cov(there.T, bias=True)[-1, :-1]
    expected = np.linalg.solve(np.cov(x.T, bias=True), cross)
    result = fitted(prepared)
    np.testing.assert_allclose(result.coefficients[1:], expected, atol=2e-3)
    assert result.n == len(there)
    assert result.terms == ("(intercept)", *NAMES[:-1])


def test_fit_says_how_many_have_its_target() -> None:
    prepared, _, gone = release(noise=seeded_noise(1))
    result = fitted(prepared)
    (said,) = result.imputed
    shown = result.to_dict()
    counts = {tuple(found["parties"]): found["interval"] for found in shown["counts"]}
    low, high = counts[f"those with {TARGET}",]
    assert low < (~gone).sum() < high
    assert counts["the list",] == [N, N]
    for text in (said, f"{result.degrees_of_freedom:,}"):
        assert text in result._repr_html_()
    assert shown["imputed"] == [said]
    assert said.split(", give")[0] in " ".join(result.summary().split())
    held = float(said.split("about ")[1].split(" of ")[0].replace(",", ""))
    give = float(said.split("give or take ")[1].split(".")[0])
    assert f"of {N:,} people have one" in said
    assert abs(held - (~gone).sum()) < 2 * give < 200
    assert "for all if who lacks one does not depend on values" in said


@pytest.mark.parametrize(("keyed", "epsilon"), [(False, 10.0), (False, 3.0), (True, 10.0)])
def test_intervals_hold_where_a_third_lacks_the_target(keyed: bool, epsilon: float) -> None:
    held = []
    for seed in range(5):
        prepared, rows, _ = release(keyed=keyed, epsilon=epsilon, noise=seeded_noise(seed), seed=seed)
        whole = np.linalg.lstsq(np.column_stack([np.ones(N), rows[:, :-1]]), rows[:, -1], rcond=None)[0]
        low, high = fitted(prepared, interval_for="table").intervals[1:].T
        held.append((low <= whole[1:]) & (whole[1:] <= high))
    assert np.mean(held) >= 0.84  # 50 intervals of 95 %: fewer once in several hundred


def test_target_that_people_lack_by_their_values_is_told_by_a_test() -> None:
    found = fitted(release(by_value=True, noise=seeded_noise(2))[0]).warnings
    assert any(said.startswith(f"Those with {TARGET} differ from all people of the list") for said in found)
    assert not any("differ" in said for said in fitted(release(noise=seeded_noise(2))[0]).warnings)


def test_few_missing_cells_of_a_feature_do_not_spoil_a_fit() -> None:
    """Forty of sixteen thousand: their mark is nearly all noise, and what is solved with it is too."""
    prepared, rows, _ = release("x3", share=0.0025, epsilon=3.0, noise=seeded_noise(3), n=15_755)
    assert faint_marks(prepared, NAMES[:-1]) == ("x3",)
    result = fitted(prepared, interval_for="table")
    whole = np.linalg.lstsq(np.column_stack([np.ones(len(rows)), rows[:, :-1]]), rows[:, -1], rcond=None)[0]
    assert result.warnings == ()
    assert np.abs(result.coefficients - whole)[1:].max() < 4 * result.standard_errors[1:].max() < 0.2
    assert result.imputed[0].endswith("so sums with it are of those who have one.")


def test_mark_of_many_cells_keeps_its_term() -> None:
    prepared, _, _ = release("x3", share=0.2, noise=seeded_noise(3))
    result = fitted(prepared)
    assert "x3[missing]" in result.terms
    said = "x3: missing cells are marked in a column of their own, x3[missing], which is compared with x3 = "
    assert [each.startswith(said) for each in result.imputed] == [True]
    assert result.imputed[0].endswith("the middle of its bounds")


def test_target_that_hardly_anybody_has_is_refused() -> None:
    with pytest.raises(NoOverlapError, match=f"people the list and those with {TARGET} share is too uncertain"):
        fitted(release(share=0.999, noise=seeded_noise(4), epsilon=1.0)[0])


@pytest.mark.parametrize("seed", [1, 3, 7])
def test_counts_that_noise_leaves_below_none_stay_so_where_cells_are_missing(seed: int) -> None:
    prepared, _, _ = release("x3", keyed=True, mechanism="rmgm", epsilon=1.0, noise=seeded_noise(seed), n=150)
    assert prepared.pairs is not None
    before, found = prepared.pairs.counts, without_gaps(prepared, ("x3",)).pairs
    assert found is not None
    assert before.held[0, 0] < 0
    np.testing.assert_array_equal(found.counts.held[:3, :3], before.held)
    np.testing.assert_array_equal(found.counts.errors[:3, :3], before.errors)
    assert abs(found.counts.held[3, 3]) < 2 * found.counts.errors[3, 3] < 20_000
    assert all(found.misjudged(place) is None for place in range(3))


def test_fit_of_one_member_that_may_hold_nobody_is_refused_with_its_count() -> None:
    prepared, _, _ = release("x3", keyed=True, mechanism="rmgm", epsilon=1.0, noise=seeded_noise(3), n=150)
    asked: list[dict[str, Any]] = [{"features": ["x1"]}, {"estimator": "constant"}]
    for each in asked:
        with pytest.raises(NoOverlapError, match="the number of people whom p0 holds is too uncertain for a fit"):
            fit_prepared(prepared, "x0", **each)


def test_target_whose_missing_cells_count_as_a_value_is_refused() -> None:
    prepared, _, _ = release("x3")
    blind = prepared.attributes[TARGET].model_copy(update={"missing": "midpoint"})
    with pytest.raises(ImputedTargetError, match="count as the midpoint") as refused:
        fitted(replace(prepared, attributes={**prepared.attributes, TARGET: blind}))
    assert "indicator" in (refused.value.remedy or "")


def test_target_with_marks_is_refused_where_rows_are_published_one_by_one() -> None:
    with pytest.raises(ImputedTargetError, match="a release of dgm cannot be fitted without these"):
        fitted(replace(release()[0], mechanism="dgm"))


def test_other_analyses_of_a_target_leave_out_who_lacks_it_too() -> None:
    prepared, _, gone = release(epsilon=1000.0)
    plain = fitted(prepared, features=("x0", "x4"))
    path = ridge_path(prepared, TARGET, ("x0", "x4"), penalties=[1e-9])
    by_two = two_stage(prepared, TARGET, endogenous="x4", instruments="x5", exogenous="x0").fit
    np.testing.assert_allclose(path.coefficients[0], plain.coefficients, atol=5e-3)
    assert path.n == by_two.n == plain.n == np.count_nonzero(~gone)
    assert by_two.imputed == plain.imputed


def test_attributes_without_marks_leave_a_release_as_it_is() -> None:
    prepared, _, _ = release()
    assert without_gaps(prepared, ("x0", "x1")) is prepared
