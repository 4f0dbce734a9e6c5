"""What outsiders are said to see of one person, against search over the rows of all parties at once."""

from fractions import Fraction
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from commingle.shared.documents.manifest import PrivacyStatement
from commingle.shared.documents.model import decode_canonical, encode
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.dp.accounting import RHO_UNITS
from commingle.shared.dp.calibration import Calibration
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.mechanisms.moments.entries import Bounds, entry_variances, least_form, outsider_loss, own_weight
from commingle.shared.release.plan import plan_blocks, privacy_statement
from tests.shared.mechanisms.moments.exchange.world import NAMES, party_spec, spec_of
from tests.shared.mechanisms.moments.test_allocation import CONSORTIA, hard_rows

Row = NDArray[np.float64]
"""Of one person at all parties, encoded, the intercept first."""
Whole = tuple[int, ...]
"""A row in steps."""
HAIR = 1 + 1e-9


def numeric(*widths: int, row_norm: float | None = None) -> ReleaseSpec:
    parties = []
    for name, width in zip(NAMES, widths, strict=False):
        columns = (NumericAttribute(name=f"{name}{i}", lower=0, upper=1) for i in range(width))
        parties.append(party_spec(name, *columns, row_norm=row_norm))
    return spec_of(tuple(parties), n=50)


def sigmas_of(spec: ReleaseSpec) -> list[int]:
    return [plan.sigma for plan in plan_blocks(spec)]


def weights(spec: ReleaseSpec) -> NDArray[np.float64]:
    """Of each squared change of a published entry in mu^2; two equal entries are one."""
    variance = entry_variances(spec.terms, sigmas_of(spec))
    found = np.divide(0.5, variance, out=np.zeros_like(variance), where=variance > 0)
    np.fill_diagonal(found, 2 * np.diag(found))
    return found


def apart(weight: NDArray[np.float64], x: Row, y: Row) -> float:
    """mu^2 of the release for a person whose row is x or y."""
    return float(np.sum(weight * (np.outer(x, x) - np.outer(y, y)) ** 2))


def stated(spec: ReleaseSpec, adjacency: Adjacency) -> float:
    return 2 * float(outsider_loss(spec.terms, sigmas_of(spec), adjacency))


def choices(spec: ReleaseSpec, random: np.random.Generator) -> list[NDArray[np.float64]]:
    """Hard rows of each party: some, and the longest. Of wide parties the columns left out are at their ends."""
    found = []
    for party in spec.parties:
        rows = hard_rows(party) / 2**14
        some = np.vstack([rows[[int(np.argmax((rows**2).sum(1))), 0, -1]], rows[random.integers(len(rows), size=20)]])
        ends = random.choice([-1.0, 1.0], (len(some), len(party.columns) - some.shape[1]))
        found.append(np.hstack([some, ends]))
    return found


@pytest.mark.parametrize("consortium", CONSORTIA)
def test_no_pair_of_hard_rows_is_told_apart_by_more_than_outsiders_are_said_to_see(consortium: str) -> None:
    """Random pairs, then one party's row after the other replaced by whatever tells most apart."""
    spec = spec_of(CONSORTIA[consortium], n=50)
    random, weight = np.random.default_rng(3), weights(spec)
    rows = choices(spec, random)
    ends = np.cumsum([1, *(part.shape[1] for part in rows)])
    zeros = np.eye(1, ends[-1])[0]
    for _ in range(10):
        x, y = (np.concatenate([[1.0], *(part[random.integers(len(part))] for part in rows)]) for _ in range(2))
        for part, (start, end) in zip(rows * 2, list(pairwise(ends)) * 2, strict=True):
            others = np.tile(y, (len(part), 1))
            others[:, start:end] = part
            y = max(others, key=lambda other: apart(weight, x, other))
        assert apart(weight, x, y) <= stated(spec, Adjacency.REPLACE_ONE) * HAIR
        assert apart(weight, y, zeros) <= stated(spec, Adjacency.ZERO_OUT) * HAIR


@pytest.mark.parametrize("row_norm", [None, 0.5, 1.0])
@pytest.mark.parametrize("widths", [(4, 4, 4), (10, 10, 10), (2, 9), (12, 2, 3), (5,)])
def test_ascent_over_real_rows_of_all_parties_stays_below_the_bound_and_comes_near(
    widths: tuple[int, ...], row_norm: float | None
) -> None:
    """Climbed from random rows, steps brought back within the cube or every party's ball."""
    spec = numeric(*widths, row_norm=row_norm)
    random, weight, bound = np.random.default_rng(7), weights(spec), stated(spec, Adjacency.REPLACE_ONE)
    ends = list(pairwise(np.cumsum([1, *widths])))

    def within(row: Row) -> Row:
        inside = np.clip(row, -1, 1)
        if row_norm is not None:
            for start, end in ends:
                inside[start:end] *= row_norm / max(float(np.linalg.norm(inside[start:end])), row_norm)
        inside[0] = 1
        return inside

    best = 0.0
    for _ in range(12):
        x, y = (within(row) for row in random.normal(0, 3, (2, 1 + sum(widths))))
        for step in np.geomspace(3, 1e-2, 150):
            gradient = weight * (np.outer(x, x) - np.outer(y, y))
            up, down = gradient @ x, -gradient @ y
            length = max(float(np.hypot(np.linalg.norm(up), np.linalg.norm(down))), 1e-300)
            x, y = within(x + step * up / length), within(y + step * down / length)
            best = max(best, apart(weight, x, y))
    assert best <= bound * HAIR
    assert best >= (0.999 if row_norm else 0.97) * bound  # in a cube products of long rows are few


@pytest.mark.parametrize("consortium", CONSORTIA)
def test_longest_rows_that_become_zero_attain_the_bound(consortium: str) -> None:
    spec = spec_of(CONSORTIA[consortium], n=50)
    longest = np.concatenate([[1.0], *(rows[0] for rows in choices(spec, np.random.default_rng(0)))])
    found = apart(weights(spec), longest, np.eye(1, len(longest))[0])
    assert 0.999 * stated(spec, Adjacency.ZERO_OUT) <= found <= HAIR * stated(spec, Adjacency.ZERO_OUT)


def split_between_two_noises(spec: ReleaseSpec, sigmas: tuple[int, ...], x: list[Whole], y: list[Whole]) -> Fraction:
    """mu^2 of the mechanisms of the proof, one per party: of each cross entry either noise gets a whole number."""
    total = Fraction(0)
    for j, (party, sigma) in enumerate(zip(spec.parties, sigmas, strict=True)):
        own = [[a * b - c * d for b, d in zip(x[j], y[j], strict=True)] for a, c in zip(x[j], y[j], strict=True)]
        squares = sum(entry**2 for row in own for entry in row)
        linear = 2 * 4**14 * sum((a - c) ** 2 for a, c in zip(x[j], y[j], strict=True))
        total += Fraction(own_weight(spec.terms, party) * squares + linear, sigma**2)
    for i, j in combinations(range(len(x)), 2):
        one, other = sigmas[i] ** 2, sigmas[j] ** 2
        for a, c in zip(x[i], y[i], strict=True):
            for b, d in zip(x[j], y[j], strict=True):
                change = a * b - c * d
                part = round(Fraction(change * one, one + other))
                total += Fraction(part**2, one) + Fraction((change - part) ** 2, other)
    return total


@given(st.data(), st.tuples(*[st.integers(1, 60)] * 3))
def test_whole_numbers_are_split_between_two_noises_at_the_price_of_the_proof(
    data: st.DataObject, sigmas: tuple[int, ...]
) -> None:
    """Rows of a few steps and little noise, where it matters that a change is a whole number."""
    spec = numeric(2, 1, 3, row_norm=4 * 2.0**-14)

    def person() -> list[Whole]:
        step = st.integers(-4, 4)
        rows = (st.tuples(*[step] * len(p.columns)).filter(lambda q: sum(v * v for v in q) <= 16) for p in spec.parties)
        return [data.draw(row) for row in rows]

    longest, nothing = ([(length, *(0,) * (len(p.columns) - 1)) for p in spec.parties] for length in (4, 0))
    pairs = [(person(), person(), Adjacency.REPLACE_ONE), (longest, nothing, Adjacency.ZERO_OUT)]
    for x, y, adjacency in pairs:
        bound = Fraction(2 * outsider_loss(spec.terms, sigmas, adjacency).units, RHO_UNITS)
        assert split_between_two_noises(spec, sigmas, x, y) <= bound


@given(st.integers(1, 6), st.integers(0, 2**32))
def test_bound_is_no_less_than_the_quadratic_anywhere_and_no_more_than_its_maximum(m: int, seed: int) -> None:
    """Parties of any size and noise, against random points, every corner, and the best point that descent finds."""
    random = np.random.default_rng(seed)
    c = random.integers(0, 200, m) * 4**14
    ends = [Bounds(c=int(v), e=int(v * random.choice([2, 3, 4])), k=0) for v in c]
    scale = np.exp(random.uniform(0, 6, m)) * 2.0**28
    form = 1 / np.add.outer(scale**2, scale**2)
    np.fill_diagonal(form, 2 * random.integers(1, 9, m) / scale**2)
    linear = 2 * 4.0**14 * random.choice([0, 1, 30], m) / scale**2
    units = [[round(entry * 2**128) for entry in row] for row in form.tolist()]
    bound = least_form(ends, units, [round(entry * 2**128) for entry in linear.tolist()]) / 2**128

    def value(r: Row) -> float:
        return float(r @ form @ r + 2 * linear @ r)

    low = np.array([v.c - v.e / 2 for v in ends])
    best = random.uniform(low, c)
    for _ in range(300):
        for j in range(m):
            best[j] += np.clip(best[j] - (form[j] @ best + linear[j]) / form[j, j], low[j], c[j]) - best[j]
    tried = [
        best,
        *random.uniform(low, c, (50, m)),
        *(np.where(corner, low, c) for corner in product((0, 1), repeat=m)),
    ]
    size = float(c @ form @ c + 2 * linear @ c) + 1e-12
    assert bound <= min(map(value, tried)) + 1e-9 * size
    assert bound >= value(best) - 1e-9 * size


@pytest.mark.parametrize(("widths", "share"), [((4, 4, 4), 0.573), ((10, 10, 10), 0.388), ((5,), 1.0)])
def test_outsiders_see_of_a_person_the_share_that_the_proof_says(widths: tuple[int, ...], share: float) -> None:
    statement = privacy_statement(numeric(*widths))
    assert statement.per_subject_outsiders is not None
    assert statement.per_subject_outsiders.own.rho / statement.per_subject.own.rho == pytest.approx(share, abs=5e-4)


@pytest.mark.parametrize("consortium", CONSORTIA)
def test_outsiders_never_see_more_than_everybody_together(consortium: str) -> None:
    spec = spec_of(CONSORTIA[consortium], n=50)
    everybody, outsiders = (privacy_statement(spec).scopes[i] for i in (-2, -1))
    for seen, most in zip(outsiders.stated, everybody.stated, strict=True):
        assert seen.rho <= most.rho
        assert seen.epsilon <= most.epsilon


def test_only_releases_with_exact_losses_say_what_outsiders_see() -> None:
    earlier = encode(privacy_statement(spec_of(calibration=Calibration.ZCDP)))
    assert b"outsiders" not in earlier
    assert decode_canonical(PrivacyStatement, earlier).per_subject_outsiders is None
    now = encode(privacy_statement(spec_of()))
    assert decode_canonical(PrivacyStatement, now).per_subject_outsiders is not None
