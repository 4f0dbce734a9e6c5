"""Lengths of proofs, and sums of rows, are those of the matrices that are proved."""

from collections.abc import Iterable
from fractions import Fraction

import pytest

from commingle.shared.errors import DomainError
from commingle.shared.proving import ciphertexts, lengths
from commingle.shared.proving.ciphertexts import segments
from commingle.shared.proving.lengths import column_proofs, column_sizes, proved_noise, reply_proofs
from commingle.shared.proving.parameters import BOUND_LIMIT, LENGTHS, NOISE_BITS, thrown_away
from commingle.shared.proving.proof import Places, proof_bytes
from commingle.shared.proving.relation import Joined, Relation
from commingle.shared.proving.replies import Drawn
from commingle.shared.ring.parameters import ENTRY_LIMIT, ROWS_LIMIT, Layout
from tests.world.proving import BOUND, hidden_sums, honest, last_replies_of, replies_of, reply_to

SHAPES = [(300, 2, (3,)), (2000, 3, (4, 1)), (900, 2, (17,)), (600, 18, (2,)), (60_000, 9, (7, 2))]


@pytest.mark.parametrize(("rows", "columns", "owners"), SHAPES)
def test_lengths_and_sums_of_rows_from_sizes_are_those_of_the_relations(
    rows: int, columns: int, owners: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums are those of the largest bound there is, as sizes do not tell the bound."""
    found: list[int] = []
    monkeypatch.setattr(lengths, "check_tries", lambda _, largest: found.append(largest))
    monkeypatch.setattr(ciphertexts, "SEGMENT_WORDS", 1 << 20)
    own, others = honest(rows, columns, 2), [honest(rows, width, 10 + k) for k, width in enumerate(owners)]

    def expected(relations: Iterable[Relation]) -> list[int]:
        return [proof_bytes(each.sizes, Places(each.sizes, each.shape.rows).all) for each in relations]

    numbers = range(len(list(segments(own.layout))))
    assert column_proofs(own.layout) == expected(own.statement(number=number) for number in numbers)
    if len(found) > 2:
        found.insert(1, found[1])  # segments in the middle are alike
    for number, largest in zip(numbers, found, strict=False):
        widest = own.statement(BOUND_LIMIT - 1, number).shape
        assert 0 <= largest - widest.largest <= 2 * widest.squares[1].groups  # the root of 2^38 - 1 is rounded down
        assert own.statement(number=number).shape.largest < largest
    said = replies_of(own, [reply_to(other, hidden_sums(other, own.rows, k)) for k, other in enumerate(others)])
    largest_bound, usual = (last_replies_of(own, said.replies, bound) for bound in (BOUND_LIMIT - 1, BOUND))
    for encrypted, stated in ((True, said), (False, largest_bound)):
        found.clear()
        sizes = reply_proofs(own.layout, [other.layout for other in others], encrypted=encrypted)
        assert sizes == expected(stated.relations)
        assert found == [sum(relation.shape.largest for relation in stated.relations)]
    assert sum(relation.shape.largest for relation in usual.relations) <= found[0]
    assert expected(usual.relations) == expected(largest_bound.relations)


@pytest.mark.parametrize(("columns", "width"), [(1, 3), (3, 4), (18, 2)])
def test_what_is_shown_is_wide_enough_to_hide_every_row_that_a_member_may_have(columns: int, width: int) -> None:
    """A sum of rows that is narrower than its rows may be would tell of them: counts are of the statement itself."""
    own, other = honest(900, columns, 2), honest(900, width, 3)
    *_, joined = replies_of(own, [reply_to(other, hidden_sums(other, own.rows, 0))]).relations
    assert isinstance(joined, Joined)
    drawn = joined.parts[0]
    assert isinstance(drawn, Drawn)
    (reply,) = drawn.replies
    zeros = columns * reply.layout.groups * drawn.sizes.pieces * 2
    bits = width * columns * (drawn.sizes.ring.flood_bits + NOISE_BITS + 2)
    of_bits = -(-bits // drawn.sizes.message)
    assert drawn.shape.rows == of_bits + zeros
    assert drawn.shape.largest == of_bits + zeros * drawn.sizes.ring.error_bound


def test_sizes_of_which_more_than_a_quarter_of_all_tries_is_thrown_away_are_refused() -> None:
    """Beyond 23 columns at the most rows there are, 21 of the last; where nobody is replied to nothing is proved."""
    owner = Layout(b"owner", ROWS_LIMIT, 10)
    for most, encrypted in ((23, True), (21, False)):
        assert reply_proofs(Layout(b"", ROWS_LIMIT, most), [owner], encrypted=encrypted)
        with pytest.raises(DomainError, match="too many tries"):
            reply_proofs(Layout(b"", ROWS_LIMIT, most + 1), [owner], encrypted=encrypted)
        assert reply_proofs(Layout(b"", ROWS_LIMIT, most + 1), [], encrypted=encrypted)
        assert reply_proofs(Layout(b"", 1_000_000, 330), [owner], encrypted=encrypted)


def test_columns_that_fit_a_matrix_have_few_tries_thrown_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """One column has the most rows that are filled up to the bound."""
    found: list[Fraction] = []
    monkeypatch.setattr(lengths, "check_tries", lambda sizes, largest: found.append(thrown_away(sizes, largest)))
    for rows in (1_000_000, ROWS_LIMIT):
        for columns in (1, 2, 3, 10, 16, 17, 100, 1000, 40_000):
            column_proofs(Layout(b"", rows, columns))
    assert max(found) < Fraction(15, 100)
    assert column_proofs(Layout(b"", 1_000_000, 43_664))
    with pytest.raises(DomainError, match="rows is not proved"):
        column_proofs(Layout(b"", 1_000_000, 43_665))


@pytest.mark.parametrize(("rows", "length"), [(10_000, 2048), (100_000, 4096), (1_000_000, 8192)])
def test_rows_are_as_long_as_makes_a_proof_shortest(rows: int, length: int) -> None:
    layout = Layout(b"", rows, 10)
    assert column_sizes(layout).message == length
    shortest = sum(column_proofs(layout)), sum(reply_proofs(layout, [layout], encrypted=True))
    for other in LENGTHS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lengths, "LENGTHS", (other,))
            others = sum(column_proofs(layout)), sum(reply_proofs(layout, [layout], encrypted=True))
        assert others[0] >= shortest[0]
        assert others[1] >= shortest[1]


@pytest.mark.parametrize(("rows", "columns"), [(300, 2), (5000, 3), (2000, 20), (40_000, 8)])
def test_noise_of_errors_that_proofs_allow_is_within_its_bound_and_near_it(
    rows: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst errors there are for one column: at each position that it meets, all that is allowed is in it."""
    monkeypatch.setattr(ciphertexts, "SEGMENT_WORDS", 1 << 19)
    layout = Layout(b"", rows, columns)
    sizes, degree, squared, key = column_sizes(layout), layout.parameters.degree, 0, 0.0
    met = len({place % sizes.message for place in range(layout.stripe_rows)})
    for segment in segments(layout):
        each = 21**2 * sizes.pieces * (1 + layout.stripes(*segment) * layout.groups)
        squared += met * each
        key = key or (sizes.message * each * degree) ** 0.5
    noise = (squared * rows) ** 0.5 * ENTRY_LIMIT + key + 21 * degree
    assert noise <= proved_noise(layout) < 1.02 * noise
