"""Cross products of a release: counts are those of the rows but for noise, of the covariance that is said."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from commingle.services.fit import fit_prepared
from commingle.shared.documents.schema import GAP, BinaryAttribute, CategoricalAttribute, NumericAttribute, Weighted
from commingle.shared.errors import NoTablesError, UnknownAttributeError
from commingle.shared.estimation.cross_products import CrossProducts, products
from tests.world.categorical import release_of

SEX = BinaryAttribute(name="sex", levels=("f", "m"))
STAGE = CategoricalAttribute(name="stage", levels=("i", "ii", "iii"), missing="indicator")
AGE = NumericAttribute(name="age", lower=20, upper=90)
SMOKER = BinaryAttribute(name="smoker", levels=("no", "yes"), missing="indicator")
ATTRIBUTES = (SEX, AGE, STAGE, SMOKER)
N = 2000
FOUR = tuple(CategoricalAttribute(name=f"c{i}", levels=("p", "q", "r", "s")) for i in range(9))
TURNED = tuple(a.model_copy(update={"levels": ("s", "q", "p", "r")}) for a in FOUR)


def some(levels: tuple[str, ...], gaps: float, draw: np.random.Generator) -> list[str | None]:
    """Levels at random, and gaps."""
    found = draw.choice(levels, N).tolist()
    return [None if missing else level for missing, level in zip(draw.random(N) < gaps, found, strict=True)]


def cells() -> dict[str, list[Any]]:
    draw = np.random.default_rng(1)
    return {
        "sex": some(SEX.levels, 0, draw),
        "age": draw.uniform(20, 90, N).tolist(),
        "stage": some(STAGE.levels, 0.1, draw),
        "smoker": some(SMOKER.levels, 0.2, draw),
    }


def counted(table: dict[str, list[Any]], pair: tuple[str, str], labels: list[tuple[str, ...]]) -> NDArray[np.float64]:
    rows, columns = (np.array([cell or GAP for cell in table[name]]) for name in pair)
    both = (rows[:, None] == np.array(labels[0])).T * 1.0
    return np.asarray(both @ (columns[:, None] == np.array(labels[1])))


@pytest.mark.parametrize("pair", [("sex", "stage"), ("stage", "smoker"), ("sex", "smoker"), ("smoker", "smoker")])
def test_counts_without_noise_are_those_of_the_rows_gaps_included(pair: tuple[str, str]) -> None:
    table = cells()
    found = CrossProducts.of(release_of(ATTRIBUTES, (2, 2), table))
    (first, rows), (second, columns) = map(found.levels, pair)
    counts, _ = found.sums(products(rows, columns))
    assert counts.reshape(len(rows), -1) == pytest.approx(counted(table, pair, [first, second]), abs=0.3)


def test_mean_of_a_number_by_group_is_that_of_the_rows() -> None:
    table = cells()
    found = CrossProducts.of(release_of(ATTRIBUTES, (2, 2), table))
    (value, has), (_, groups) = found.number("age"), found.levels("stage")
    totals, _ = found.sums(products(value[None], groups))
    counts, _ = found.sums(products(has[None], groups))
    for label, mean in zip(found.levels("stage")[0], totals / counts, strict=True):
        own = [a for a, s in zip(table["age"], table["stage"], strict=True) if (s or "missing") == label]
        assert mean == pytest.approx(np.mean(own), rel=1e-3)


@pytest.mark.parametrize("overlap", [None, 0.8])
@pytest.mark.parametrize("name", ["age", "stage"])
def test_weighted_attribute_has_the_same_sums_and_less_noise_in_them(name: str, overlap: float | None) -> None:
    heavy, table = Weighted(attribute=name, weight=2), cells()
    plain, found = (
        CrossProducts.of(release_of(ATTRIBUTES, (2, 2), table, overlap=overlap, weighted=of)) for of in (None, heavy)
    )
    (value, has), (_, levels) = found.number("age"), found.levels("stage")
    forms = products((value - 55 * has)[None], levels[:1] - levels[1:])
    (sums, covariance), (expected, before) = found.sums(forms), plain.sums(forms)
    assert sums == pytest.approx(expected, abs=2)
    assert np.trace(covariance) < 0.8 * np.trace(before)


@pytest.mark.slow
@pytest.mark.parametrize("overlap", [None, 0.8])
def test_noise_of_counts_has_the_covariance_that_is_said(overlap: float | None) -> None:
    """120 releases of one table, fixed seeds: errors of six cells in their covariance, of standard error .05."""
    table = cells()
    exact = CrossProducts.of(release_of(ATTRIBUTES, (2, 2), table, overlap=overlap))
    forms = products(exact.levels("sex")[1], exact.levels("stage")[1][:3])
    truth, covariance = exact.sums(forms)
    errors = [
        CrossProducts.of(release_of(ATTRIBUTES, (2, 2), table, overlap=overlap, seed=s)).sums(forms)[0] - truth
        for s in range(120)
    ]
    statistic = np.mean([e @ np.linalg.solve(covariance, e) for e in errors]) / len(truth)
    # strangers are the same in every release here, so that keyed noise is a little smaller than what is said
    assert (0.8 if overlap is None else 0.6) < statistic < 1.2


def test_what_has_no_levels_or_is_unknown_is_refused_with_a_remedy() -> None:
    found = CrossProducts.of(release_of(ATTRIBUTES, (2, 2), cells()))
    with pytest.raises(NoTablesError, match="is a number") as refused:
        found.levels("age")
    assert "commingle study new --cut " in refused.value.remedy
    with pytest.raises(NoTablesError, match="no mean"):
        found.number("sex")
    with pytest.raises(UnknownAttributeError):
        found.levels("sexx")
    guessed = SMOKER.model_copy(update={"missing": "midpoint"})
    other = CrossProducts.of(release_of((SEX, AGE, STAGE, guessed), (2, 2), cells()))
    with pytest.raises(NoTablesError, match="halfway"):
        other.levels("smoker")


def at_three_parties(attributes: tuple[CategoricalAttribute, ...]) -> CrossProducts:
    draw = np.random.default_rng(5)
    each: dict[str, list[str]] = {a.name: draw.choice(["p", "q", "r", "s"], 60).tolist() for a in FOUR}
    return CrossProducts.of(release_of(attributes, (3, 3, 3), each))


def cells_of(found: CrossProducts, first: str, second: str) -> NDArray[np.float64]:
    """Forms of the cells of a table, levels in the order of the alphabet."""
    (left, rows), (right, columns) = found.levels(first), found.levels(second)
    return products(rows[np.argsort(left)], columns[np.argsort(right)])


def test_cells_have_less_than_half_the_noise_of_indicators() -> None:
    """Indicators of all levels but the first had r^2 = 1, so squared norms of 3 and not 9/4 at each of these parties.

    Rows can differ by D^2 = 2 an attribute either way: docs/proofs/moments.md 4.2 with e = 6, k = 2 + c of both others.
    """
    found = at_three_parties(FOUR)

    def moved(c: float, own: float) -> float:
        return own * (2 * c * 6 - 18) + (2 + 2 * c) * 6

    raised = min(moved(3, own) for own in (1, 2, 3)) / moved(9 / 4, 1)
    before = replace(found, undo=np.eye(28), noise=replace(found.noise, s=found.noise.s * raised))
    for pair in (("c0", "c1"), ("c0", "c8")):
        forms = cells_of(found, *pair)
        now, then = (np.sqrt(np.mean(np.diag(one.covariance(forms)))) for one in (found, before))
        assert 2 < then / now < 3.6


def test_noise_of_tables_does_not_depend_on_which_level_came_first() -> None:
    one, other = at_three_parties(FOUR), at_three_parties(TURNED)
    for pair in (("c0", "c0"), ("c0", "c1"), ("c0", "c8")):
        found, expected = (of.covariance(cells_of(of, *pair)) for of in (one, other))
        assert found == pytest.approx(expected, abs=2e-3 * np.diag(expected).max())


def test_fit_and_its_errors_do_not_depend_on_which_level_came_first() -> None:
    def fitted(*levels: str) -> tuple[dict[str, float], float]:
        attributes = (SEX, AGE, STAGE.model_copy(update={"levels": levels}), SMOKER)
        fit = fit_prepared(release_of(attributes, (2, 2), cells()), "age", features=("sex", "stage"))
        found = {f"stage[{levels[0]}]": 0.0, **dict(zip(fit.terms, fit.coefficients.tolist(), strict=True))}
        return found, float(fit.standard_errors[1])

    (one, error), (other, expected) = fitted("i", "ii", "iii"), fitted("iii", "i", "ii")
    assert error == pytest.approx(expected, rel=1e-2)
    for level in ("ii", "iii", "missing"):
        gaps = [found[f"stage[{level}]"] - found["stage[i]"] for found in (one, other)]
        assert gaps[0] == pytest.approx(gaps[1], abs=0.05)
