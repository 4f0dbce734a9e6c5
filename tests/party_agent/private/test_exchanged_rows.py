"""Bounded rows for an exchange, the second thing that leaves `private`: of the snapshot that was paid for."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commingle.party_agent.errors import LostError
from commingle.party_agent.private import placing
from commingle.party_agent.private.charge import NO_SNAPSHOT
from commingle.party_agent.private.privatise import ExchangedRows, exchanged_rows
from commingle.shared.dp.noise import Sampler
from tests.party_agent.private.tables import BINARY, LEVELS, NUMBER, column, snapshot_of
from tests.party_agent.private.test_privatise import (
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


def made_of(folder: Path, draw: Sampler = never, *, piece: int = 60, **choices: Any) -> ExchangedRows:
    request = request_of("moments", *ATTRIBUTES, **choices)
    snapshot = snapshot_of(folder, columns_of(), *ATTRIBUTES, piece=piece)
    return exchanged_rows(snapshot, request, charge=charge_for(request, snapshot), draw=draw)


@pytest.mark.parametrize("piece", [1, 7, 60])
@pytest.mark.parametrize("window", [11, 1 << 17])
def test_exchanged_rows_are_the_bounded_rows_by_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, window: int
) -> None:
    monkeypatch.setattr(placing, "_WINDOW_ROWS", window)
    made = made_of(tmp_path, piece=piece)
    exact = naive_rows(columns_of(), ATTRIBUTES) / 2  # of 2^15; these rows are in units of 2^-14, rounded toward zero
    assert made.integers.shape == (N, 4)
    assert np.array_equal(made.integers, np.trunc(exact))
    assert made.sums is None, "of one stage, noise comes after the exchange"


def test_exchanged_rows_are_the_same_whatever_the_order_of_the_source(tmp_path: Path) -> None:
    request, order = request_of("moments", *ATTRIBUTES), column(list(range(N))[::-1])
    snapshot = snapshot_of(tmp_path, {name: cells.take(order) for name, cells in columns_of().items()}, *ATTRIBUTES)
    turned = exchanged_rows(snapshot, request, charge=charge_for(request, snapshot), draw=never)
    assert np.array_equal(turned.integers, made_of(tmp_path).integers)


def test_exchanged_rows_of_clipped_rows_stay_within_the_norm(tmp_path: Path) -> None:
    rows = made_of(tmp_path, row_norm=0.75).integers
    assert 0 < np.sum(rows**2, axis=1).max() <= 0.75**2 * 4**14


def test_no_entry_is_larger_than_what_is_encrypted(tmp_path: Path) -> None:
    assert np.abs(made_of(tmp_path).integers).max() <= 2**14


def test_representation_shows_no_row(tmp_path: Path) -> None:
    assert repr(made_of(tmp_path)) == "ExchangedRows()"
    assert repr(made_of(tmp_path, Noise(), first_stage_share=0.25)) == "ExchangedRows()"


def test_snapshot_that_is_damaged_or_gone_is_lost_and_no_noise_is_drawn(tmp_path: Path) -> None:
    request = request_of("moments", NUMBER)
    snapshot = snapshot_of(tmp_path, columns_of(), NUMBER, piece=11)
    charge, data = charge_for(request, snapshot), snapshot.path.read_bytes()
    for damaged in (data[:-1], data[:-1] + bytes([data[-1] ^ 1]), None):
        snapshot.path.unlink() if damaged is None else snapshot.path.write_bytes(damaged)
        with pytest.raises(LostError):
            exchanged_rows(snapshot, request, charge=charge, draw=never)


def test_text_in_a_number_is_exchanged_as_the_midpoint(tmp_path: Path) -> None:
    request, made = request_of("moments", NUMBER), []
    for columns in (columns_of(), changed("text")):
        snapshot = snapshot_of(tmp_path, columns, NUMBER, strict=False)
        made.append(exchanged_rows(snapshot, request, charge=charge_for(request, snapshot), draw=never).integers)
    before, after = made
    assert np.count_nonzero(after != before) == 1
    assert after[after != before].tolist() == [0]


@pytest.mark.parametrize(
    ("mechanism", "short", "message"), [("dgm", 0, "only an interactive"), ("moments", 1, "does not cover")]
)
def test_rows_without_an_exchange_or_a_debit_are_not_read(
    tmp_path: Path, mechanism: Any, short: int, message: str
) -> None:
    request, read = request_of(mechanism, NUMBER), list[int]()
    snapshot = snapshot_of(tmp_path, columns_of(), NUMBER)
    charge = charge_for(request, snapshot, short=short)
    with pytest.raises(ValueError, match=message):
        exchanged_rows(snapshot, request, charge=charge, draw=never, progress=read.append)
    assert read == []


def test_debit_for_noise_alone_or_for_another_snapshot_lets_nobody_read_rows(tmp_path: Path) -> None:
    request, read = request_of("moments", NUMBER), list[int]()
    snapshot, other = (snapshot_of(tmp_path, columns_of(), NUMBER) for _ in range(2))
    for named in (NO_SNAPSHOT, other.digest):
        charge = replace(charge_for(request, snapshot), snapshot=named)
        with pytest.raises(ValueError, match="does not cover"):
            exchanged_rows(snapshot, request, charge=charge, draw=never, progress=read.append)
    assert read == []
