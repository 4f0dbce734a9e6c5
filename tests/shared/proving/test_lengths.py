"""Lengths of proofs, and sums of rows, are those of the matrices that are proved."""

from fractions import Fraction

import pytest

from commingle.shared.proving import lengths
from commingle.shared.proving.ciphertexts import segments
from commingle.shared.proving.columns import BOUND_LIMIT, SQUARES
from commingle.shared.proving.lengths import column_proofs, reply_proofs
from commingle.shared.proving.parameters import Sizes, thrown_away
from commingle.shared.proving.proof import Places, proof_bytes
from commingle.shared.ring.errors import DomainError
from commingle.shared.ring.layout import Layout
from commingle.shared.ring.parameters import ROWS_LIMIT, STANDARD
from tests.world.proving import hidden_sums, honest, replies_of, reply_to

SHAPES = [(300, 2, (3,)), (2000, 3, (4, 1)), (900, 2, (17,)), (600, 18, (2,)), (60_000, 9, (7, 2))]


@pytest.mark.parametrize(("rows", "columns", "owners"), SHAPES)
def test_lengths_from_sizes_are_those_of_the_relations(rows: int, columns: int, owners: tuple[int, ...]) -> None:
    own, others = honest(rows, columns, 2), [honest(rows, width, 10 + k) for k, width in enumerate(owners)]
    statements = [own.statement(number=number) for number in range(len(list(segments(own.layout))))]
    expected = [proof_bytes(each.sizes, Places(each.rows).all) for each in statements]
    assert column_proofs(own.layout) == expected
    said = replies_of(own, [reply_to(other, hidden_sums(other, own.rows, k)) for k, other in enumerate(others)])
    expected = [proof_bytes(each.sizes, Places(each.rows).all) for each in said.relations]
    assert reply_proofs(own.layout, [other.layout for other in others]) == expected


@pytest.mark.parametrize(("rows", "columns", "owners"), SHAPES)
def test_sums_of_rows_from_sizes_are_those_of_the_relations(
    rows: int, columns: int, owners: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of columns those of the largest bound there is, as sizes do not tell the bound."""
    found: list[int] = []
    monkeypatch.setattr(lengths, "check_tries", lambda _, largest: found.append(largest))
    own, others = honest(rows, columns, 2), [honest(rows, width, 10 + k) for k, width in enumerate(owners)]
    column_proofs(own.layout)
    for number, largest in enumerate(found):
        widest = own.statement(BOUND_LIMIT - 1, number)
        assert largest == widest.largest + SQUARES * widest.groups  # the root of 2^38 - 1 is rounded down
        assert own.statement(number=number).largest < largest
    found.clear()
    reply_proofs(own.layout, [other.layout for other in others])
    said = replies_of(own, [reply_to(other, hidden_sums(other, own.rows, k)) for k, other in enumerate(others)])
    assert found == [sum(relation.largest for relation in said.relations)]


def test_sizes_of_which_more_than_a_quarter_of_all_tries_is_thrown_away_are_refused() -> None:
    """Beyond 17 columns at the most rows there are; where nobody is replied to nothing is proved."""
    owner = Layout(b"owner", ROWS_LIMIT, 10)
    assert reply_proofs(Layout(b"", ROWS_LIMIT, 17), [owner])
    with pytest.raises(DomainError, match="too many tries"):
        reply_proofs(Layout(b"", ROWS_LIMIT, 18), [owner])
    assert reply_proofs(Layout(b"", ROWS_LIMIT, 18), [])
    assert reply_proofs(Layout(b"", 1_000_000, 300), [owner])


def test_columns_that_fit_a_matrix_have_few_tries_thrown_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """One column has the most rows that are filled up to the bound."""
    found: list[int] = []
    monkeypatch.setattr(lengths, "check_tries", lambda _, largest: found.append(largest))
    for columns in (1, 2, 3, 10, 16, 17, 100, 1000, 4656):
        column_proofs(Layout(b"", 1_000_000, columns))
    assert thrown_away(Sizes(STANDARD), max(found)) < Fraction(6, 100)
    with pytest.raises(DomainError, match="rows is not proved"):
        column_proofs(Layout(b"", 1_000_000, 4657))
