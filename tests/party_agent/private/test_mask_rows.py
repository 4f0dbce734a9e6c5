"""Rows under a pad, the second thing that leaves `private`: from one checked reading."""

from typing import Any

import numpy as np
import pytest

from commingle.party_agent.errors import SubjectsChangedError
from commingle.party_agent.private.digest import NO_TABLE
from commingle.party_agent.private.privatise import mask_rows
from commingle.shared.mechanisms.moments.exchange.ring import Words
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

PAD = np.random.default_rng(3).integers(0, 2**64, (N, 4), np.uint64, endpoint=False)


def pad(start: int, stop: int) -> Words:
    return PAD[start:stop]


def never(_: int, __: int) -> Words:
    raise AssertionError("the pad was used")


@pytest.mark.parametrize("batch", [1, 7, 60])
def test_masked_rows_and_pad_add_up_to_the_rows_by_rank(batch: int) -> None:
    attributes = (BINARY, NUMBER, LEVELS)
    request, columns = request_of("moments", *attributes), columns_of()
    table = table_of(columns, *attributes, batch=batch)
    masked = mask_rows(table, request, charge=charge_for(request, table), pad=pad, draw=Noise()).words
    rows = (masked + PAD).astype(np.int64)
    exact = naive_rows(columns, attributes) / 2  # of 2^15; these rows are in units of 2^-14, rounded toward zero
    assert np.array_equal(rows, np.trunc(exact))


def test_masked_rows_of_clipped_rows_stay_within_the_norm() -> None:
    attributes = (BINARY, NUMBER, LEVELS)
    request = request_of("moments", *attributes, row_norm=0.75)
    table = table_of(columns_of(), *attributes)
    rows = (mask_rows(table, request, charge=charge_for(request, table), pad=pad, draw=Noise()).words + PAD).astype(
        np.int64
    )
    assert 0 < np.sum(rows**2, axis=1).max() <= 0.75**2 * 4**14


@pytest.mark.parametrize("what", ["subject", "order", "fewer", "more", "duplicate", "missing"])
def test_other_subjects_are_refused_and_the_pad_is_not_used(what: str) -> None:
    request = request_of("moments", NUMBER)
    charge = charge_for(request, table_of(columns_of(), NUMBER))
    with pytest.raises(SubjectsChangedError):
        mask_rows(table_of(changed(what), NUMBER, batch=11), request, charge=charge, pad=never, draw=Noise())


def test_text_in_a_number_is_masked_as_the_midpoint() -> None:
    request = request_of("moments", NUMBER)
    charge = charge_for(request, table_of(columns_of(), NUMBER))
    before, after = (
        mask_rows(table_of(columns, NUMBER), request, charge=charge, pad=lambda a, b: PAD[a:b, :1], draw=Noise()).words
        for columns in (columns_of(), changed("text"))
    )
    rows = (after + PAD[:, :1]).astype(np.int64)
    assert np.count_nonzero(after != before) == 1
    assert rows[after != before].tolist() == [0]


@pytest.mark.parametrize(
    ("mechanism", "short", "message"), [("dgm", 0, "only an interactive"), ("moments", 1, "does not cover")]
)
def test_rows_without_an_exchange_or_a_debit_are_not_read(mechanism: Any, short: int, message: str) -> None:
    request, read = request_of(mechanism, NUMBER), list[int]()
    table = table_of(columns_of(), NUMBER)
    charge = charge_for(request, table, short=short)
    with pytest.raises(ValueError, match=message):
        mask_rows(table, request, charge=charge, pad=never, draw=Noise(), progress=read.append)
    assert read == []


def test_debit_for_noise_alone_lets_nobody_read_rows() -> None:
    request = request_of("moments", NUMBER)
    with pytest.raises(SubjectsChangedError):
        mask_rows(
            table_of(columns_of(), NUMBER),
            request,
            charge=Charge("r", request.plan.charge.units, NO_TABLE),
            pad=never,
            draw=Noise(),
        )
