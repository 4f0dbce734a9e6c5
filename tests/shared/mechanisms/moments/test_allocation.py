"""The charge against search: neighbouring tables over hard rows, measured on the very entries that get noise."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from commingle.shared.documents.schema import NumericAttribute, Weighted
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.dp.accounting import RHO_UNITS
from commingle.shared.dp.fixed_point import quantise
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.encoding import bounded_rows
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.mechanisms.moments.block import MOMENTS
from commingle.shared.mechanisms.moments.entries import (
    OWN_WEIGHTS,
    block_sensitivity,
    open_matrix,
    own_weight,
    places,
    scales,
)
from commingle.shared.release.matrix import second_moments
from commingle.shared.release.plan import plan_block, plan_blocks, privacy_statement
from tests.shared.mechanisms.moments.exchange.world import (
    BLOOD,
    NUMBERS,
    SEX,
    SKEW,
    THREE,
    UNEVEN,
    WEIGHTED,
    WHITENED,
    party_spec,
    spec_of,
)

Block = NDArray[np.int64]
MANY = tuple(NumericAttribute(name=f"x{i}", lower=0, upper=1) for i in range(8))

# few columns against many, many against few, categorical, clipped tightly, loosely and below the resolution
CONSORTIA: dict[str, tuple[PartySpec, ...]] = {
    "three kinds": THREE,
    "one column against eight": (party_spec("clinic", SEX), party_spec("lab", *MANY)),
    "alone": (party_spec("clinic", *NUMBERS),),
    "levels and numbers": (party_spec("clinic", BLOOD, *NUMBERS), party_spec("lab", SEX)),
    "only levels": (party_spec("clinic", BLOOD), party_spec("lab", SEX)),
    "clipped": (party_spec("clinic", *NUMBERS, row_norm=0.3), party_spec("lab", BLOOD, row_norm=0.9)),
    "clipped loosely": (party_spec("clinic", BLOOD, *NUMBERS, row_norm=1.5), party_spec("lab", SEX, row_norm=5.0)),
    "below the resolution": (party_spec("clinic", *NUMBERS, row_norm=1e-5), party_spec("lab", SEX)),
    "whitened": WHITENED,
    "whitened against many": (party_spec("clinic", *NUMBERS, row_norm=1.0, whitening=SKEW), party_spec("lab", *MANY)),
    "whitened alone": (party_spec("clinic", BLOOD, row_norm=1.0, whitening=UNEVEN),),
    "heavier products": (
        party_spec("clinic", *NUMBERS, row_norm=1.0, cross_weight=4),
        party_spec("lab", BLOOD, cross_weight=1),
        party_spec("registry", SEX),
    ),
    "weighted": (
        party_spec("clinic", SEX, weighted=Weighted(attribute="sex", weight=2)),
        party_spec("lab", BLOOD, weighted=Weighted(attribute="blood", weight=2)),
        party_spec("registry", *MANY),
    ),
    "weighted and clipped": (*WEIGHTED[:2], party_spec("registry", SEX)),
    "heavier products alone": (party_spec("clinic", *NUMBERS, cross_weight=3),),
}
CASES = [(name, party.name) for name, parties in CONSORTIA.items() for party in parties if len(party.columns) <= 5]
_HARD = (-1.0, -1 / 3, 0.0, 2**-14, 1 - 2**-14, 1.0)


def hard_rows(party: PartySpec, fraction_bits: int = 14) -> Block:
    """Every combination of hard values, as integers; of many attributes the first four vary."""
    values = []
    for attribute in party.attributes[:4]:
        if attribute.kind == "categorical":
            values.append([(0.0,) * 3, *map(tuple, np.eye(3).tolist())])
        else:
            values.append([(value,) for value in _HARD])
    mapped = None if party.whitening is None else party.whitening.integer_map()
    return bounded_rows(party, mapped, fraction_bits=fraction_bits)(
        quantise(np.array([sum(parts, ()) for parts in product(*values)]))
    )


def longest(party: PartySpec, fraction_bits: int) -> Block:
    rows = hard_rows(party, fraction_bits)
    row = rows[np.argmax((rows**2).sum(1))]
    return np.concatenate([row, np.full(len(party.columns) - len(row), 2**fraction_bits)])


def moved(spec: ReleaseSpec, party: PartySpec, x: Block, y: Block, sigma: int) -> Fraction:
    """Sum of squared changes over variances of everything that party adds noise to, when its row x becomes y."""
    scale = scales(spec.terms, party, sigma)
    bits = spec.fraction_bits
    others = np.concatenate([np.zeros(0, np.int64), *(longest(p, bits) for p in spec.parties if p.name != party.name)])

    def squares(change: Block, of: int) -> Fraction:
        return Fraction(sum(int(v) ** 2 for v in change.ravel()), of**2)

    own = np.outer(x, x) - np.outer(y, y)
    return (
        squares(np.diag(own), scale.diagonal)
        + squares(own[np.triu_indices(len(own), 1)], scale.off_diagonal)
        + squares(2**bits * (x - y), scale.linear)
        + squares(np.outer(others, x - y), scale.cross)
    )


@pytest.mark.parametrize(("consortium", "name"), CASES)
def test_no_pair_of_hard_rows_moves_a_block_farther_than_is_charged(consortium: str, name: str) -> None:
    spec = spec_of(CONSORTIA[consortium], n=50)
    party = spec.party(name)
    plan = plan_block(spec, party)
    rows = hard_rows(party, spec.fraction_bits)
    random = np.random.default_rng(1)
    pairs = random.integers(0, len(rows), (300, 2))
    ends = [int(np.argmax((rows**2).sum(1))), 0, len(rows) - 1]
    pairs = np.vstack([pairs, *([[i, j]] for i in ends for j in ends)])
    farthest = max(moved(spec, party, rows[i], rows[j], plan.sigma) for i, j in pairs.tolist())
    assert farthest <= Fraction(2 * plan.loss.units, RHO_UNITS)
    zeros = max(moved(spec, party, rows[i], np.zeros_like(rows[i]), plan.sigma) for i in ends)
    form = Fraction(mechanism_of(spec).squared_sensitivity(spec.terms, party, Adjacency.ZERO_OUT), plan.sigma**2)
    assert zeros <= form


@pytest.mark.parametrize(
    ("consortium", "name", "adjacency"),
    [
        ("three kinds", "registry", "replace_one"),
        ("only levels", "clinic", "replace_one"),
        ("only levels", "lab", "zero_out"),
        ("one column against eight", "clinic", "replace_one"),
        ("one column against eight", "clinic", "zero_out"),
        ("weighted", "clinic", "zero_out"),
        ("weighted", "lab", "replace_one"),
    ],
)
def test_bound_is_attained_by_rows_at_the_ends(consortium: str, name: str, adjacency: str) -> None:
    spec = spec_of(CONSORTIA[consortium], n=50)
    party = spec.party(name)
    plan = plan_block(spec, party)
    rows = hard_rows(party, spec.fraction_bits)
    others = rows if adjacency == "replace_one" else np.zeros((1, rows.shape[1]), np.int64)
    farthest = max(moved(spec, party, x, y, plan.sigma) for x in rows for y in others)
    form = mechanism_of(spec).squared_sensitivity(spec.terms, party, Adjacency(adjacency))
    rounding = Fraction(1, 1000) if spec.fraction_bits == 14 else Fraction(3, 1000)  # of contrasts, in larger steps
    assert farthest >= Fraction(form, plan.sigma**2) * (1 - rounding)


@given(st.floats(0.05, 3), st.sampled_from(OWN_WEIGHTS), st.integers(0, 2**32))
def test_ascent_over_real_rows_stays_within_the_formula_for_any_weight(row_norm: float, own: int, seed: int) -> None:
    """w ||x x^T - y y^T||^2 + k ||x - y||^2 climbed from random rows of a ball, steps projected back onto it."""
    random = np.random.default_rng(seed)
    d, k = int(random.integers(1, 5)), float(random.uniform(1, 40))
    x, y = random.normal(size=(2, d))
    best = 0.0
    for _ in range(200):
        gradient = 4 * own * (np.outer(x, x) - np.outer(y, y))
        up = gradient @ x + 2 * k * (x - y), -gradient @ y - 2 * k * (x - y)
        x, y = (row_norm * v / max(np.linalg.norm(v), row_norm) for v in (x + 0.05 * up[0], y + 0.05 * up[1]))
        best = max(best, own * np.sum((np.outer(x, x) - np.outer(y, y)) ** 2) + k * np.sum((x - y) ** 2))
    c = row_norm**2
    e = min(4 * c, 2 * c + k / own)
    assert best <= (own * (2 * c * e - e * e / 2) + k * e) * (1 + 1e-9)


def test_equal_weights_give_the_closed_forms_of_numeric_attributes() -> None:
    """4 K C^2 if K >= 2 C^2, else 2 C^4 + 2 K C^2 + K^2 / 2, in steps and for the weights in use."""
    for parties in ((2, 9), (1, 1), (6, 1), (3, 3), (20, 1)):
        columns = iter(NumericAttribute(name=f"x{i}", lower=0, upper=1) for i in range(30))
        names = ("clinic", "lab")
        spec = spec_of(
            tuple(party_spec(name, *(next(columns) for _ in range(d))) for name, d in zip(names, parties, strict=True)),
            n=50,
        )
        unit = 4**14
        for party, other in zip(spec.parties, spec.parties[::-1], strict=True):
            w, c, k = (own_weight(spec.terms, party), len(party.columns) * unit, (2 + len(other.columns)) * unit)
            closed = 4 * k * c if k >= 2 * w * c else Fraction(2 * w * c * c + 2 * k * c) + Fraction(k * k, 2 * w)
            assert 0 <= block_sensitivity(spec.terms, party, Adjacency.REPLACE_ONE) - closed < 1
            assert block_sensitivity(spec.terms, party, Adjacency.ZERO_OUT) == w * c * c + k * c


def test_party_with_few_columns_gets_its_own_block_almost_for_nothing() -> None:
    spec = spec_of(CONSORTIA["one column against eight"], n=50)
    assert own_weight(spec.terms, spec.party("clinic")) == 5  # (2 + 8) / 2
    assert own_weight(spec.terms, spec.party("lab")) < 3


@given(st.integers(1, 2**48), st.sampled_from(CASES))
def test_every_scale_is_the_least_that_its_weight_allows(sigma: int, case: tuple[str, str]) -> None:
    spec = spec_of(CONSORTIA[case[0]], n=50)
    party = spec.party(case[1])
    own, found = own_weight(spec.terms, party), scales(spec.terms, party, sigma)
    linear, cross = (2, 1) if party.cross_weight is None else (1, party.cross_weight)
    weights = ((found.diagonal, own), (found.off_diagonal, 2 * own), (found.linear, linear), (found.cross, cross))
    for scale, weight in weights:
        assert weight * scale**2 >= sigma**2
        assert weight * (scale - 1) ** 2 < sigma**2
        assert 1 <= scale <= sigma


def test_products_weigh_more_the_more_there_is_to_learn_of_slopes() -> None:
    found = [MOMENTS.cross_weight(rho=0.04, n=n, columns=4) for n in (230, 250, 490, 970, 10**6)]
    assert found == [None, 1, 2, 4, 4]  # n sqrt(rho) / (6 columns^1.5) is n / 240


def test_first_stage_is_not_bought_where_noise_exceeds_every_correlation() -> None:
    """rho 1/16 and 5 columns: n sqrt(rho) reaches the columns with 20 subjects."""
    found = [MOMENTS.first_stage_share(rho=1 / 16, n=n, columns=5) for n in (1, 19, 20, 10**9)]
    assert found == [None, None, MOMENTS.share, MOMENTS.share]


def test_heavier_products_have_less_noise_for_the_same_loss() -> None:
    def cross(weight: int | None) -> int:
        holders = {"clinic": NUMBERS, "lab": MANY}
        spec = spec_of(
            tuple(party_spec(name, *own, row_norm=1.0, cross_weight=weight) for name, own in holders.items()), n=50
        )
        return scales(spec.terms, spec.parties[0], plan_block(spec, spec.parties[0]).sigma).cross

    assert cross(4) < cross(2) < cross(1) < cross(None)


def test_statement_keeps_every_promise_of_the_spec_and_adds_up() -> None:
    for epsilon in (0.05, 1.0, 20.0):
        spec = spec_of(THREE, n=50, epsilon=epsilon)
        statement = privacy_statement(spec)
        for party in statement.per_party:
            assert epsilon * 0.999 <= party.loss.own.epsilon <= epsilon * (1 + 1e-12)
            assert party.loss.replacement is None


@pytest.mark.parametrize("parties", [THREE, WHITENED], ids=["plain", "whitened"])
def test_stated_variances_are_those_of_the_opened_noise(parties: tuple[PartySpec, ...]) -> None:
    """Opening is linear, so an entry's variance sums over the draws: each one's, times its square in that entry."""
    spec = spec_of(parties, n=2)
    sigmas = [plan.sigma for plan in plan_blocks(spec)]

    def matrix_of(values: Block | None, drawn: list[int]) -> Block:
        """Blocks of these values in the order of draws, by default 0; notes the noise that each draw asks for."""

        def draw(sigma: int, count: int) -> Block:
            drawn.extend([sigma] * count)
            return np.zeros(count, np.int64) if values is None else values[len(drawn) - count : len(drawn)]

        blocks = [MOMENTS.noise(spec.terms, p, sigma=s, draw=draw) for p, s in zip(spec.parties, sigmas, strict=True)]
        return np.column_stack([np.zeros(len(spec.matrix_columns), np.int64), *blocks])

    drawn: list[int] = []
    matrix_of(None, drawn)
    steps = np.eye(len(drawn), dtype=np.int64)
    opened = [open_matrix(spec.terms, matrix_of(step, [])) * MOMENTS.step(spec.terms) for step in steps]
    matrix = matrix_of(np.arange(len(drawn)), [])
    found = second_moments(spec, "0" * 64, matrix)
    np.testing.assert_array_equal(found.gram, open_matrix(spec.terms, matrix) * MOMENTS.step(spec.terms))
    assert found.entry_variance is not None
    stated = np.array(found.entry_variance)
    assert stated[0, 0] == 0
    exact = np.tensordot(np.square(np.array(drawn, float)), np.square(opened), 1)
    np.testing.assert_allclose(stated, exact, rtol=1e-12)
    lab = places(spec.terms)["lab"]
    assert stated[lab, lab][0, 1] == pytest.approx(stated[lab, lab][0, 0] / 2, rel=1e-6)
