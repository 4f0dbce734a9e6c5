"""Levels of a model's features that data say little of: rare ones count as one, the prior decides, intervals hold."""

from typing import Any

import numpy as np
import pytest

from benchmarks.harness import covers
from commingle.services.analysis import cross_table
from commingle.services.intervals import LogRatios, standard_errors
from commingle.services.models import GeneralisedFit, glm
from commingle.services.results import number_text
from commingle.shared.documents.schema import Attribute, BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.estimation.prepared import PreparedMoments
from tests.world.categorical import release_of

SITES, PAIN = ("a", "b", "c", "d", "e"), ("none", "mild", "strong")
ATTRIBUTES: tuple[Attribute, ...] = (
    BinaryAttribute(name="sex", levels=("f", "m")),
    CategoricalAttribute(name="site", levels=SITES, missing="indicator"),
    BinaryAttribute(name="back", levels=("no", "yes")),
    NumericAttribute(name="visits", lower=0, upper=40),
    CategoricalAttribute(name="pain", levels=PAIN),
)
RARE = 0.6
"""Log odds ratio of sites c, d and e against a; of counts, a third of it."""


def released(
    shares: tuple[float, ...], seed: int, *, epsilon: float = 3.0, overlap: float | None = None, n: int = 6000
) -> PreparedMoments:
    """Of sites with these shares, the last that of missing ones."""
    draw = np.random.default_rng(seed)
    site, sex = draw.choice(6, n, p=shares), draw.integers(0, 2, n)
    eta = -1 + 0.5 * sex + np.array([0, 0.3, RARE, RARE, RARE, 0])[site]
    pain = np.sum(draw.random(n)[:, None] > 1 / (1 + np.exp(eta[:, None] - [-0.9, 0.8])), axis=1)
    cells: dict[str, list[Any]] = {
        "sex": np.array(["f", "m"])[sex].tolist(),
        "site": np.array([*SITES, None])[site].tolist(),
        "back": np.where(draw.random(n) < 1 / (1 + np.exp(-eta)), "yes", "no").tolist(),
        "visits": draw.poisson(np.exp(0.6 + eta / 3)).astype(float).tolist(),
        "pain": np.array(PAIN)[pain].tolist(),
    }
    return release_of(ATTRIBUTES, (2, 3), cells, epsilon=epsilon, overlap=overlap, seed=seed, pseudonyms=seed)


FEW = (0.6, 0.383, 0.004, 0.004, 0.004, 0.005)


@pytest.mark.parametrize("overlap", [None, 0.8])
def test_levels_of_hardly_anybody_are_one_as_in_a_table(overlap: float | None) -> None:
    prepared = released(FEW, 1, overlap=overlap)
    table, found = cross_table(prepared, "site", "back"), glm(prepared, "back ~ sex + site")
    assert table.rows == ("a", "b", "other (c, d, e)", "missing")
    assert found.levels[2:] == tuple(f"site[{label}]" for label in table.rows)
    assert found.terms[2:] == ("site[b]", "site[other (c, d, e)]", "site[missing]")
    said, shown = ([each for each in one.warnings if "count as one" in each] for one in (found, table))
    assert [each.partition(", of ")[0] for each in said] == [each.partition(", of ")[0] for each in shown]
    assert said[0].startswith("There are too few people with site = ")
    assert "with site = c, d, e: these levels count as one, other, of " in said[0]
    assert said[0].endswith(" people.")
    assert said[0] in found.to_dict()["warnings"]
    assert said[0] in found.summary().replace("\n", " ")


def test_person_of_a_level_that_counts_as_another_is_predicted_as_that() -> None:
    found = glm(released(FEW, 1), "back ~ sex + site")
    chances = found.predict({"sex": ["f"] * 6, "site": [*SITES, None]})
    b = dict(zip(found.terms, found.coefficients, strict=True))
    logs = np.array([0.0, b["site[b]"], *[b["site[other (c, d, e)]"]] * 3, b["site[missing]"]])
    assert chances == pytest.approx(1 / (1 + np.exp(-b["(intercept)"] - logs)))


def test_reference_and_one_rare_level_alone_stay() -> None:
    one = glm(released((0.6, 0.37, 0.003, 0.02, 0.007, 0), 2, epsilon=20.0), "back ~ site")
    assert one.levels[:3] == ("site[a]", "site[b]", "site[c]")
    reference = glm(released((0.003, 0.989, 0.003, 0.003, 0.002, 0), 2), "back ~ site")
    assert reference.levels[:3] == ("site[a]", "site[b]", "site[other (c, d, e)]")


def test_ends_of_a_rate_ratio_are_as_far_from_it_and_p_values_say_the_same() -> None:
    logs, errors = np.array([2.0, 2.0, -1.0, -0.2, 0.2, -9.0]), np.array([0.1, 0.6, 0.1, 0.2, 0.09, 4.0])
    found = LogRatios(logs, errors, 0.95, of_rates=True)
    assert found.ratio_intervals[0] == pytest.approx(np.exp(2) * np.array([1 - 0.196, 1.196]), rel=1e-3)
    assert found.ratio_intervals[1] == pytest.approx([0, np.exp(2) * (1 + 1.176)], rel=1e-3)
    assert found.intervals[-1] == pytest.approx([-np.inf, -9 + 1.96 * 4], rel=1e-3)
    apart = (found.ratio_intervals > 1).all(axis=1) | (found.ratio_intervals < 1).all(axis=1)
    assert ((found.p_values < 0.05) == apart).all()
    assert apart.tolist() == [True, False, True, False, True, True]


def test_clearest_ratio_is_none_of_the_doubtful_ones() -> None:
    found, of = LogRatios(np.array([3.0, 1.0, 2.0]), np.ones(3), 0.95), (("a", "b", "d"), ("0", "0", "c"))
    assert "at b as at 0" in str(found.clearest("odds are", *of, doubtful=["a", "c"]))
    assert found.clearest("odds are", *of, doubtful=["0", "c"]) is None


NOISY = (0.6, 0.35, 0.05, 0, 0, 0)


@pytest.mark.parametrize(("outcome", "said"), [("visits", "rates open"), ("back", "odds open")])
def test_levels_that_noise_leaves_open_are_named_and_no_sentence_is_about_them(outcome: str, said: str) -> None:
    family = "poisson" if outcome == "visits" else "binomial"
    found = glm(released(NOISY, 1, epsilon=0.3), f"{outcome} ~ sex + site", family=family)
    (warning,) = (each for each in found.warnings if said in each)
    assert "site[c]" in warning
    assert "sex[m]" not in warning
    assert "sex[m] as at sex[f]" in found.sentence
    assert all(
        each not in " ".join(glm(released(FEW, 1, epsilon=50.0), "visits ~ sex", family="poisson").warnings)
        for each in ("rates open", "odds open")
    )


def test_numbers_that_noise_makes_long_are_shown_with_a_power_of_ten() -> None:
    shown = [number_text(value, ".3f") for value in (1.5e100, 123.4567, -2e7, float("inf"))]
    assert shown == ["1.5e+100", "123.457", "\u22122e+07", "\u221e"]
    assert [number_text(value, ".3f") for value in (999.0, 2814.088, 67629.124)] == ["999.000", "2,814", "67,629"]


def test_number_that_rounds_to_zero_has_no_sign() -> None:
    assert [number_text(-0.0004, form) for form in (".1%", ",.0f", ".3f", ".1g")] == [
        "0.0%",
        "0",
        "0.000",
        "\u22120.0004",
    ]


def test_numbers_up_to_ten_millions_are_shown_without_a_power_of_ten_and_with_as_many_digits() -> None:
    shown = [number_text(value, ".4g") for value in (42327.6, -2.44512e5, 9999.7, 9_999_400.0, 1e7, 0.00001234, 42.0)]
    assert shown == ["42,330", "\u2212244,500", "10,000", "9,999,000", "1e+07", "1.234e\u221205", "42"]
    assert [number_text(value, ".3g") for value in (999.0, 1234.0, 9999.0)] == ["999", "1,230", "10,000"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shares", "epsilon", "overlap"),
    [(FEW, 1.0, None), (FEW, 3.0, None), ((0.6, 0.36, 0.015, 0.015, 0.01, 0), 3.0, None), (FEW, 10.0, 0.8)],
)
def test_intervals_of_rare_levels_hold(shares: tuple[float, ...], epsilon: float, overlap: float | None) -> None:
    """40 tables and releases of fixed seeds, a standard error of .035 where levels count as one.

    Intervals of rate ratios as wide to both sides of their logarithms would hold .80 to .90 here.
    """
    found: dict[str, list[bool]] = {"binomial": [], "poisson": [], "ordinal": []}
    for seed in range(40):
        prepared = released(shares, seed, epsilon=epsilon, overlap=overlap)
        for (family, held), name, part in zip(found.items(), ("back", "visits", "pain"), (1, 1 / 3, 1), strict=True):
            fit = glm(prepared, f"{name} ~ sex + site", family=family)
            rare = [i for i, term in enumerate(fit.terms) if term[5:-1] in SITES[2:] or "other" in term]
            held += [bool(low <= RARE * part <= high) for low, high in fit.intervals[rare]]
    for family, held in found.items():
        assert np.mean(held) > 0.9, family


EVENT = BinaryAttribute(name="event", levels=("no", "yes"))
WARD = CategoricalAttribute(name="ward", levels=("a", "b", "c"))
COPY = CategoricalAttribute(name="copy", levels=("a", "b", "c"))
SEX = BinaryAttribute(name="sex", levels=("f", "m"))


def copied(n: int, epsilon: float, seed: int) -> GeneralisedFit:
    """Two members hold the same feature; log odds ratios .5 and 1.5."""
    draw = np.random.default_rng(seed)
    ward = draw.integers(0, 3, n)
    event = draw.random(n) < 1 / (1 + np.exp(1.5 - np.array([0, 0.5, 1.5])[ward]))
    names = np.array(WARD.levels)[ward].tolist()
    cells = {"ward": names, "copy": names, "event": np.where(event, "yes", "no").tolist()}
    release = release_of(
        (WARD, COPY, EVENT), (1, 1, 1), cells, epsilon=epsilon, seed=seed, pseudonyms=seed, overlap=1.0
    )
    return glm(release, "event ~ ward + copy")


@pytest.mark.parametrize("seed", range(3))
def test_intervals_of_a_feature_and_its_copy_hold_what_either_may_be(seed: int) -> None:
    found = copied(20_000, 1000, seed)
    assert covers(found.intervals[1:], np.array([0.5, 1.5, 0, 0])).all()
    # the data tell the sum of both, so each has half of the prior's variance
    assert found.standard_errors[1:] == pytest.approx(np.sqrt(0.5), rel=0.1)
    sums = found.covariance[1:3, 1:3] + found.covariance[3:, 3:] + 2 * found.covariance[1:3, 3:]
    assert (np.sqrt(np.diag(sums)) < 0.1).all()


def test_noise_in_who_is_shared_leaves_no_interval_of_no_width_where_features_are_collinear() -> None:
    found = copied(20_000, 10, 8)
    assert np.linalg.eigvalsh(found.covariance)[0] > 0
    assert (found.standard_errors[1:] > 0.5).all()


@pytest.mark.parametrize(("family", "outcome"), [("binomial", "event"), ("poisson", "falls")])
def test_level_that_nobody_has_is_as_unsure_as_the_prior(family: Any, outcome: str) -> None:
    draw = np.random.default_rng(1)
    cells: dict[str, list[Any]] = {
        "sex": draw.choice(["f", "m"], 2000).tolist(),
        "ward": draw.choice(["a", "b"], 2000).tolist(),
        "event": draw.choice(["no", "yes"], 2000).tolist(),
        "falls": draw.poisson(2, 2000).astype(float).tolist(),
    }
    attributes: tuple[Attribute, ...] = (SEX, WARD, EVENT, NumericAttribute(name="falls", lower=0, upper=20))
    found = glm(release_of(attributes, (2, 2), cells, epsilon=1e6), f"{outcome} ~ sex + ward", family=family)
    assert found.terms[-1] == "ward[c]"
    assert found.standard_errors[-1] == pytest.approx(1, rel=0.02)
    assert found.standard_errors[1] < 0.15


def test_variance_far_below_zero_has_no_error_and_one_by_rounding_the_error_zero() -> None:
    errors = standard_errors(np.diag([4.0, -0.05, -1e-16]))
    assert errors[[0, 2]].tolist() == [2.0, 0.0]
    assert np.isnan(errors[1])
    ratios = LogRatios(np.ones(3), errors, 0.95)
    assert np.isnan(ratios.intervals[1]).all()
    assert np.isnan(ratios.p_values[1])
