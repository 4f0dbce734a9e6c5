"""Tables of keyed people, less what their margins show to be noise."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from commingle.shared.documents.schema import BinaryAttribute, CategoricalAttribute
from commingle.shared.estimation.cells import Cells, level_shares
from commingle.shared.estimation.cross_products import CrossProducts
from commingle.shared.estimation.entry_noise import Array
from tests.world.categorical import release_of

STAGE = CategoricalAttribute(name="stage", levels=("i", "ii", "iii"))
SITE = CategoricalAttribute(name="site", levels=("a", "b", "c", "d"), missing="indicator")
BACK = BinaryAttribute(name="back", levels=("no", "yes"))
DRAW, N = np.random.default_rng(4), 3000
PEOPLE = {
    "stage": DRAW.choice(STAGE.levels, N, p=[0.5, 0.3, 0.2]).tolist(),
    "site": np.array([*SITE.levels, None])[DRAW.choice(5, N, p=[0.5, 0.2, 0.15, 0.1, 0.05])].tolist(),
}


def sums_of(seed: int, *, epsilon: float = 1.0, overlap: float | None = 1.0) -> CrossProducts:
    return CrossProducts.of(
        release_of((STAGE, SITE), (1, 1), PEOPLE, epsilon=epsilon, overlap=overlap, seed=seed, pseudonyms=1)
    )


def both(sums: CrossProducts) -> tuple[Cells, Cells]:
    return Cells.of(sums, "stage", "site"), Cells.balanced(sums, "stage", "site")


def test_balanced_table_is_nearer_to_the_people_by_as_much_as_it_says() -> None:
    exact = Cells.of(sums_of(0, epsilon=1e4), "stage", "site").counts
    found = [both(sums_of(seed)) for seed in range(40)]

    def squares(place: int) -> tuple[float, Array]:
        cells = [pair[place] for pair in found]
        shares = [each.counts / each.counts.sum() - exact / exact.sum() for each in cells]
        # d (c / T) = (d c - p d T) / T
        p = (exact / exact.sum()).ravel()
        J = np.eye(p.size) - np.outer(p, np.ones(p.size))
        said = [np.diag(J @ each.noise.covariance @ J.T) / each.counts.sum() ** 2 for each in cells]
        return float(np.mean(np.square(shares))), np.mean(said)

    (raw, _), (balanced, said) = squares(0), squares(1)
    assert balanced < 0.85 * raw
    assert balanced == pytest.approx(said, rel=0.25)


def test_no_cell_has_more_noise_and_every_combination_of_cells_has_what_they_say() -> None:
    raw, balanced = both(sums_of(3))
    everybody = [np.ones((1, size)) for size in raw.counts.shape]
    assert balanced.noise.of(*everybody).errors < raw.noise.of(*everybody).errors
    assert np.all(balanced.noise.variances <= raw.noise.variances)
    assert balanced.noise.variances.mean() < 0.8 * raw.noise.variances.mean()
    w = np.random.default_rng(1).normal(size=raw.counts.shape)
    assert balanced.noise.along(w).ravel() == pytest.approx(balanced.noise.covariance @ w.ravel())
    some = balanced.known().noise
    assert some.variances.ravel() == pytest.approx(np.diag(some.covariance))


def test_nobody_has_two_levels_so_a_member_s_own_table_has_far_less_noise() -> None:
    for overlap, most in ((1.0, 0.7), (None, 0.9)):
        people = CrossProducts.of(
            release_of(
                (STAGE, SITE, BACK), (2, 1), PEOPLE | {"back": ["no", "yes"] * (N // 2)}, overlap=overlap, seed=1
            )
        )
        raw, balanced = both(people)
        assert balanced.noise.variances.mean() < most * raw.noise.variances.mean()


def test_rows_that_may_have_been_cut_say_nothing_of_two_levels() -> None:
    """A cut person has a bit of two levels, so the sum of both is not 0 but for noise."""
    sums = sums_of(1)
    one, other = sums.exclusive("site")
    assert one.shape == other.shape == (10, len(sums.values))
    exact = sums_of(1, epsilon=1e4)
    assert np.einsum("zk,kl,zl->z", one, exact.values, other) == pytest.approx(0, abs=0.5)
    cut = replace(sums, prepared=replace(sums.prepared, shortened=frozenset({"site"})))
    assert len(cut.exclusive("site")[0]) == 0
    assert len(cut.exclusive("stage")[0]) == 3
    kept = Cells.balanced(cut, "stage", "site").noise.variances.mean()
    assert Cells.balanced(sums, "stage", "site").noise.variances.mean() < kept


def test_table_without_noise_is_as_it_was() -> None:
    for overlap in (1.0, None):
        raw, balanced = both(sums_of(1, epsilon=1e4, overlap=overlap))
        assert balanced.counts == pytest.approx(raw.counts, abs=0.3)


def test_table_of_those_who_are_shared_hardly_follows_the_others() -> None:
    """A member holds as many people again, all of stage i: the table is of those whom both hold."""
    sums = sums_of(2)
    at, party = sums.levels("stage")[1], int(sums.present("stage").argmax())
    raw, _ = both(sums)
    values = sums.values.copy()
    columns = [k for k in range(len(values)) if sums.whose[k] == party]
    means = np.linalg.lstsq(at[:, columns], np.array([1.0, 0.0, 0.0]), rcond=None)[0]
    more = sums.values[party, party]
    for k, mean in zip(columns, means, strict=True):
        values[k, party] += more * mean if k != party else more
        values[party, k] = values[k, party]
    other = Cells.balanced(replace(sums, values=values), "stage", "site")
    shift = np.abs(other.counts.sum(axis=1) - raw.counts.sum(axis=1)) / raw.counts.sum()
    assert values[party, party] == pytest.approx(2 * more)
    assert shift.max() < 0.01


@pytest.mark.parametrize("overlap", [None, 1.0])
def test_listed_person_whose_row_was_lost_lies_halfway_between_two_levels(overlap: float | None) -> None:
    cells = PEOPLE | {"back": [None, "yes"] * (N // 2)}
    sums = CrossProducts.of(release_of((STAGE, BACK), (1, 1), cells, overlap=overlap))
    one, other = sums.levels("back")[1]
    if overlap is None:
        assert one @ sums.values @ other == pytest.approx(N / 8)
    assert len(sums.exclusive("back")[0]) == (overlap is not None)
    assert len(sums.exclusive("stage")[0]) == 3


def test_shares_of_very_many_levels_stay_as_they_were_released() -> None:
    """All pairs of 120 levels would take a gigabyte."""
    many = CategoricalAttribute(name="many", levels=tuple(map(str, range(120))))
    cells = PEOPLE | {"many": DRAW.choice(many.levels, N).tolist()}
    sums = CrossProducts.of(release_of((STAGE, many), (1, 1), cells, overlap=1.0, seed=1))
    tracemalloc.start()
    found = level_shares(sums, "many")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 200e6
    people = sums.present("many")
    assert found == pytest.approx(sums.levels("many")[1] @ sums.values @ people / (people @ sums.values @ people))
