"""Joint shares of two attributes: a law with the same margins in every table, nearer to the people than counts."""

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from commingle.services.analysis import cross_table
from commingle.shared.documents.schema import GAP, BinaryAttribute, CategoricalAttribute
from commingle.shared.estimation.cells import level_shares
from commingle.shared.estimation.cross_products import CrossProducts
from tests.services.analysis.test_tables import cells_of, counted, released
from tests.world.categorical import release_of


def distance(found: NDArray[np.float64], rows: NDArray[np.float64]) -> float:
    return float(np.abs(found / found.sum() - rows / rows.sum()).sum() / 2)


def test_joint_shares_are_a_law_and_an_attribute_has_the_same_margin_in_every_table() -> None:
    release = released(400, 2, np.array([0.2, 0.0, 0.0]), seed=3, overlap=0.8)
    pairs = (("stage", "back"), ("stage", "smoker"), ("smoker", "back"))
    found = [cross_table(release, *pair) for pair in pairs]
    assert min(each.counts.min() for each in found) < 0
    for pair, each in zip(pairs, found, strict=True):
        assert each.joint_shares.min() >= 0
        assert each.joint_shares.sum() == pytest.approx(1)
        assert np.array_equal(cross_table(release, *pair).joint_shares, each.joint_shares)
    by_back, by_smoker, others = (each.joint_shares for each in found)
    assert found[1].columns[-1] == GAP
    assert by_back.sum(axis=1) == pytest.approx(by_smoker.sum(axis=1), abs=1e-6)
    assert by_smoker.sum(axis=0) == pytest.approx(others.sum(axis=1), abs=1e-6)


def test_joint_shares_without_noise_are_those_of_the_rows() -> None:
    rows = counted(cells_of(3000, 1), "stage", "back")
    assert cross_table(released(3000, 1, epsilon=1e4), "stage", "back").joint_shares == pytest.approx(
        rows / rows.sum(), abs=3e-4
    )


@pytest.mark.parametrize("overlap", [None, 0.9])
def test_joint_shares_are_nearer_to_the_people_than_counts_on_average_over_tables(overlap: float | None) -> None:
    draw, n = np.random.default_rng(6), 3000
    strengths = [1.0, 0.5, 0.5, 0.0, 0.0]
    codes = np.digitize(draw.normal(size=(n, 1)) * strengths + draw.normal(size=(n, 5)), [-1.0, 0.0, 1.0])
    attributes = [CategoricalAttribute(name=name, levels=("a", "b", "c", "d")) for name in "vwxyz"]
    cells = {a.name: np.array(a.levels)[codes[:, j]].tolist() for j, a in enumerate(attributes)}
    releases = [release_of(attributes, (2, 2, 1), cells, overlap=overlap, seed=seed) for seed in range(3)]
    rows = {pair: counted(cells, *pair) for pair in combinations("vwxyz", 2)}
    found = [(cross_table(release, *pair), people) for release in releases for pair, people in rows.items()]
    joint, counts = (
        float(np.mean([distance(getattr(table, name), people) for table, people in found]))
        for name in ("joint_shares", "counts")
    )
    assert joint < 0.95 * counts


def test_where_nothing_goes_together_much_of_what_noise_adds_is_gone() -> None:
    def beyond(shares: NDArray[np.float64]) -> float:
        p = shares / shares.sum()
        return float(np.abs(p - np.outer(p.sum(axis=1), p.sum(axis=0))).sum())

    flat = np.full(3, 0.2)
    found = [cross_table(released(1500, 1, flat, seed=s, epsilon=0.5), "stage", "back") for s in range(12)]
    assert np.mean([beyond(t.joint_shares) for t in found]) < 0.7 * np.mean([beyond(t.counts) for t in found])


def test_levels_that_count_as_one_have_the_share_of_all_of_them() -> None:
    release = released(300, 2, seed=4, epsilon=0.1)
    found, kept = (cross_table(release, "stage", "back", reference=level) for level in ("i", "ii"))
    assert len(found.rows) == len(kept.rows) == 2
    assert found.joint_shares[1].sum() + found.joint_shares[0].sum() == pytest.approx(1)
    assert found.joint_shares.sum(axis=0) == pytest.approx(kept.joint_shares.sum(axis=0))


def test_joint_shares_are_a_law_where_noise_leaves_nobody() -> None:
    """The member counts fewer than none with any level."""
    cells = {"back": ["no", "yes"] * 6, "stage": ["i", "ii", "iii"] * 4}
    attributes = (
        BinaryAttribute(name="back", levels=("no", "yes")),
        CategoricalAttribute(name="stage", levels=("i", "ii", "iii")),
    )
    release = release_of(attributes, (1, 1), cells, overlap=0.5, epsilon=0.02, seed=7)
    assert level_shares(CrossProducts.of(release), "stage").max() < 0
    found = cross_table(release, "back", "stage").joint_shares
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1)
