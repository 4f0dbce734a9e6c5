"""Bounded rows for an exchange, the second thing that leaves `private`: from one checked reading."""

from typing import Any

import numpy as np
import pytest

from commingle.party_agent.errors import SubjectsChangedError
from commingle.party_agent.private.digest import NO_TABLE
from commingle.party_agent.private.privatise import ExchangedRows, exchanged_rows
from commingle.shared.dp.noise import Sampler
from tests.party_agent.private.tables import BINARY, LEVELS, NUMBER, table_of
from tests.party_agent.private.test_privatise import (
    Charge,
    N,
    changed,
    charge_for,
    columns_of,
    naive_rows,
    request_of,
)
from tests.world.consortium import Noise

ATTRIBUTES = (BINARY, NUMBER, LEVELS)


def never(_: int, __: int) -> Any:
    raise AssertionError("noise was drawn")


def made_of(draw: Sampler = never, *, batch: int = 60, **choices: Any) -> ExchangedRows:
    request, table = request_of("moments", *ATTRIBUTES, **choices), table_of(columns_of(), *ATTRIBUTES, batch=batch)
    return exchanged_rows(table, request, charge=charge_for(request, table), draw=draw)


@pytest.mark.parametrize("batch", [1, 7, 60])
def test_exchanged_rows_are_the_bounded_rows_by_rank(batch: int) -> None:
    made = made_of(batch=batch)
    exact = naive_rows(columns_of(), ATTRIBUTES) / 2  # of 2^15; these rows are in units of 2^-14, rounded toward zero
    assert made.integers.shape == (N, 4)
    assert np.array_equal(made.integers, np.trunc(exact))
    assert made.sums is None, "of one stage, noise comes after the exchange"


def test_exchanged_rows_of_clipped_rows_stay_within_the_norm() -> None:
    rows = made_of(row_norm=0.75).integers
    assert 0 < np.sum(rows**2, axis=1).max() <= 0.75**2 * 4**14


def test_no_entry_is_larger_than_what_is_encrypted() -> None:
    assert np.abs(made_of().integers).max() <= 2**14


def test_representation_shows_no_row() -> None:
    assert repr(made_of()) == "ExchangedRows()"
    assert repr(made_of(Noise(), first_stage_share=0.25)) == "ExchangedRows()"


@pytest.mark.parametrize("what", ["subject", "order", "fewer", "more", "duplicate", "missing"])
def test_other_subjects_are_refused_and_no_noise_is_drawn(what: str) -> None:
    request = request_of("moments", NUMBER)
    charge = charge_for(request, table_of(columns_of(), NUMBER))
    with pytest.raises(SubjectsChangedError):
        exchanged_rows(table_of(changed(what), NUMBER, batch=11), request, charge=charge, draw=never)


def test_text_in_a_number_is_exchanged_as_the_midpoint() -> None:
    request = request_of("moments", NUMBER)
    charge = charge_for(request, table_of(columns_of(), NUMBER))
    before, after = (
        exchanged_rows(table_of(columns, NUMBER), request, charge=charge, draw=never).integers
        for columns in (columns_of(), changed("text"))
    )
    assert np.count_nonzero(after != before) == 1
    assert after[after != before].tolist() == [0]


@pytest.mark.parametrize(
    ("mechanism", "short", "message"), [("dgm", 0, "only an interactive"), ("moments", 1, "does not cover")]
)
def test_rows_without_an_exchange_or_a_debit_are_not_read(mechanism: Any, short: int, message: str) -> None:
    request, read = request_of(mechanism, NUMBER), list[int]()
    table = table_of(columns_of(), NUMBER)
    charge = charge_for(request, table, short=short)
    with pytest.raises(ValueError, match=message):
        exchanged_rows(table, request, charge=charge, draw=never, progress=read.append)
    assert read == []


def test_debit_for_noise_alone_lets_nobody_read_rows() -> None:
    request = request_of("moments", NUMBER)
    with pytest.raises(SubjectsChangedError):
        exchanged_rows(
            table_of(columns_of(), NUMBER),
            request,
            charge=Charge("r", request.plan.charge.units, NO_TABLE),
            draw=never,
        )
