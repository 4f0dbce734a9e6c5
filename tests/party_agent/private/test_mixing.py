"""Bounded rows of a release, by rank or bucket, of one stage and of two: they are of the snapshot that was paid for."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commingle.party_agent.errors import LostError
from commingle.party_agent.private import sorting
from commingle.party_agent.private.privatise import BlockRequest, ExchangedRows, exchanged_rows, privatise
from commingle.shared.documents.row_maps import row_map
from commingle.shared.dp.first_stage import column_sums
from commingle.shared.dp.noise import Sampler
from commingle.shared.release.resolve import closed
from tests.party_agent.private.releases import (
    RELEASES,
    K,
    N,
    Release,
    Rows,
    charge_for,
    columns_of,
    leaving,
    naive_rows,
    request_of,
    signs_of,
)
from tests.party_agent.private.tables import BINARY, LEVELS, NUMBER, snapshot_of
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
    monkeypatch.setattr(sorting, "WINDOW_ROWS", window)
    made = made_of(tmp_path, piece=piece)
    exact = naive_rows(columns_of(), ATTRIBUTES) / 2  # of 2^15; these rows are in units of 2^-14, rounded toward zero
    assert made.integers.shape == (N, 4)
    assert np.array_equal(made.integers, np.trunc(exact))
    assert made.sums is None, "of one stage, noise comes after the exchange"


def test_exchanged_rows_of_clipped_rows_stay_within_the_norm(tmp_path: Path) -> None:
    rows = made_of(tmp_path, row_norm=0.75).integers
    assert 0 < np.sum(rows**2, axis=1).max() <= 0.75**2 * 4**14


def test_no_entry_is_larger_than_what_is_encrypted(tmp_path: Path) -> None:
    assert np.abs(made_of(tmp_path).integers).max() <= 2**14


def test_representation_shows_no_row(tmp_path: Path) -> None:
    assert repr(made_of(tmp_path)) == "ExchangedRows()"
    assert repr(made_of(tmp_path, Noise(), first_stage_share=0.25)) == "ExchangedRows()"


OF_STAGES = (NUMBER, LEVELS, BINARY)


def asked(mechanism: Release) -> BlockRequest:
    return request_of(mechanism, *OF_STAGES, first_stage_share=0.25)


def mapped_rows(request: BlockRequest, sums: Sequence[int]) -> Rows:
    """What becomes of the encoded rows, from the formula: A (q - c) / 2^20, coarser if asked, cut at norm 1."""
    applied = row_map(closed(request.spec), request.party, sums)
    assert applied is not None
    q = naive_rows(columns_of(), OF_STAGES, mapped=True).astype(object)
    z = [[int(v) for v in np.diag(applied.matrix).astype(object) * (row - applied.centre)] for row in q]
    step = 1 << (20 + 15 - request.spec.fraction_bits)
    whole = np.array([[(abs(v) // step) * (1 if v >= 0 else -1) for v in row] for row in z], np.int64)
    limit = 4**request.spec.fraction_bits
    cut = [row if (s := int(row @ row)) <= limit else np.trunc(row * (limit / s) ** 0.5) for row in whole]
    return np.array(cut).astype(np.int64)


def expected_sums(request: BlockRequest, noise: Noise) -> list[int]:
    """Exact sums and the first noise that was drawn, of columns and of squares."""
    assert request.plan.first_stage is not None
    exact = column_sums(naive_rows(columns_of(), OF_STAGES, mapped=True), request.plan.first_stage.attributes)
    return [int(s) for s in exact + np.concatenate(noise.drawn[:2])]


@pytest.mark.parametrize("piece", [7, 60])
def test_rmgm_block_is_the_projection_of_the_rows_that_the_drawn_sums_map(tmp_path: Path, piece: int) -> None:
    request, noise = asked("rmgm"), Noise()
    stage = request.plan.first_stage
    assert stage is not None
    snapshot = snapshot_of(tmp_path, columns_of(), *OF_STAGES, piece=piece)
    made = privatise(snapshot, request, charge=charge_for(request, snapshot), draw=noise)
    assert noise.calls == [(stage.sigma, 4), (stage.square_sigma, 1), (request.plan.sigma, K * 4)]
    assert made.sums is not None
    assert list(made.sums) == expected_sums(request, noise)
    assert repr(made) == "PrivateBlock()", "an attempt may be drawn again: nothing of it is shown"
    off = made.integers - noise.drawn[2].reshape(K, 4) - signs_of(np.arange(N)) @ mapped_rows(request, made.sums)
    assert np.abs(off).max() <= N, "cutting rounds an entry by less than a step"


def test_exchanged_rows_are_those_that_the_drawn_sums_map(tmp_path: Path) -> None:
    request, noise = asked("moments"), Noise()
    snapshot = snapshot_of(tmp_path, columns_of(), *OF_STAGES)
    made = exchanged_rows(snapshot, request, charge=charge_for(request, snapshot), draw=noise)
    assert made.sums is not None
    assert list(made.sums) == expected_sums(request, noise)
    assert repr(made) == "ExchangedRows()"
    assert len(noise.calls) == 2, "the block's noise comes after the exchange"
    assert np.abs(made.integers - mapped_rows(request, made.sums)).max() <= 1
    assert np.sum(made.integers**2, axis=1).max() <= 4**14


@pytest.mark.parametrize("mechanism", RELEASES)
@pytest.mark.parametrize("read", [0, N // 2, N, N + N // 2])
def test_snapshot_that_is_damaged_meanwhile_is_lost_and_the_block_gets_no_noise(
    tmp_path: Path, mechanism: Release, read: int
) -> None:
    request, noise = asked(mechanism), Noise()
    snapshot = snapshot_of(tmp_path, columns_of(), *OF_STAGES, piece=1)
    charge, data = charge_for(request, snapshot), snapshot.path.read_bytes()

    def damage(rows: int) -> None:
        if rows == read:
            snapshot.path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))

    damage(0)
    with pytest.raises(LostError):
        leaving(snapshot, request, charge=charge, draw=noise, progress=damage)
    assert len(noise.calls) == (0 if read < N else 2), "of the sums, which went nowhere"


def test_charge_of_the_second_stage_alone_does_not_let_anybody_read_rows(tmp_path: Path) -> None:
    request = asked("rmgm")
    snapshot = snapshot_of(tmp_path, columns_of(), *OF_STAGES)
    assert request.plan.first_stage is not None
    second = replace(charge_for(request, snapshot), rho_units=request.plan.loss.units * 3 // 4)
    with pytest.raises(ValueError, match="does not cover"):
        privatise(snapshot, request, charge=second, draw=Noise())


def test_progress_counts_the_rows_of_both_readings(tmp_path: Path) -> None:
    request, seen = asked("dgm"), list[int]()
    snapshot = snapshot_of(tmp_path, columns_of(), *OF_STAGES, piece=25)
    privatise(snapshot, request, charge=charge_for(request, snapshot), draw=Noise(), progress=seen.append)
    assert seen == [25, 50, 60, 85, 110, 120]
    assert request.readings * N == 120
