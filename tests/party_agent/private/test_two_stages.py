"""Sums first, then rows mapped as the sums suggest: what leaves is exactly that, from two readings of the snapshot."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from commingle.party_agent.errors import LostError
from commingle.party_agent.private.privatise import BlockRequest, exchanged_rows, privatise
from commingle.shared.documents.row_maps import row_map
from commingle.shared.dp.first_stage import column_sums
from commingle.shared.mechanisms.rows.signs import SignStream
from commingle.shared.release.resolve import closed
from tests.party_agent.private.tables import BINARY, LEVELS, NUMBER, snapshot_of
from tests.party_agent.private.test_privatise import SEED, K, N, charge_for, columns_of, naive_rows, request_of
from tests.world.consortium import Noise

ATTRIBUTES = (NUMBER, LEVELS, BINARY)
Rows = NDArray[np.int64]


def asked(mechanism: Literal["rmgm", "dgm", "moments"]) -> BlockRequest:
    return request_of(mechanism, *ATTRIBUTES, first_stage_share=0.25)


def mapped_rows(request: BlockRequest, sums: Sequence[int]) -> Rows:
    """What becomes of the encoded rows, from the formula: A (q - c) / 2^20, coarser if asked, cut at norm 1."""
    applied = row_map(closed(request.spec), request.party, sums)
    assert applied is not None
    q = naive_rows(columns_of(), ATTRIBUTES, mapped=True).astype(object)
    z = [[int(v) for v in np.diag(applied.matrix).astype(object) * (row - applied.centre)] for row in q]
    step = 1 << (20 + 15 - request.spec.fraction_bits)
    whole = np.array([[(abs(v) // step) * (1 if v >= 0 else -1) for v in row] for row in z], np.int64)
    limit = 4**request.spec.fraction_bits
    cut = [row if (s := int(row @ row)) <= limit else np.trunc(row * (limit / s) ** 0.5) for row in whole]
    return np.array(cut).astype(np.int64)


def expected_sums(request: BlockRequest, noise: Noise) -> list[int]:
    """Exact sums and the first noise that was drawn, of columns and of squares."""
    assert request.plan.first_stage is not None
    exact = column_sums(naive_rows(columns_of(), ATTRIBUTES, mapped=True), request.plan.first_stage.attributes)
    return [int(s) for s in exact + np.concatenate(noise.drawn[:2])]


@pytest.mark.parametrize("piece", [7, 60])
def test_rmgm_block_is_the_projection_of_the_rows_that_the_drawn_sums_map(tmp_path: Path, piece: int) -> None:
    request, noise = asked("rmgm"), Noise()
    stage = request.plan.first_stage
    assert stage is not None
    snapshot = snapshot_of(tmp_path, columns_of(), *ATTRIBUTES, piece=piece)
    made = privatise(snapshot, request, charge=charge_for(request, snapshot), draw=noise)
    assert noise.calls == [(stage.sigma, 4), (stage.square_sigma, 1), (request.plan.sigma, K * 4)]
    assert made.sums is not None
    assert list(made.sums) == expected_sums(request, noise)
    assert repr(made) == "PrivateBlock()", "an attempt may be drawn again: nothing of it is shown"
    signs = 1 - 2 * np.unpackbits(SignStream(SEED).packed(np.arange(N), K), axis=1)[:, :K].T.astype(np.int64)
    off = made.integers - noise.drawn[2].reshape(K, 4) - signs @ mapped_rows(request, made.sums)
    assert np.abs(off).max() <= N, "cutting rounds an entry by less than a step"


def test_exchanged_rows_are_those_that_the_drawn_sums_map(tmp_path: Path) -> None:
    request, noise = asked("moments"), Noise()
    snapshot = snapshot_of(tmp_path, columns_of(), *ATTRIBUTES)
    made = exchanged_rows(snapshot, request, charge=charge_for(request, snapshot), draw=noise)
    assert made.sums is not None
    assert list(made.sums) == expected_sums(request, noise)
    assert repr(made) == "ExchangedRows()"
    assert len(noise.calls) == 2, "the block's noise comes after the exchange"
    assert np.abs(made.integers - mapped_rows(request, made.sums)).max() <= 1
    assert np.sum(made.integers**2, axis=1).max() <= 4**14


@pytest.mark.parametrize("mechanism", ["rmgm", "dgm", "moments"])
@pytest.mark.parametrize("read", [0, N // 2, N, N + N // 2])
def test_snapshot_that_is_damaged_meanwhile_is_lost_and_the_block_gets_no_noise(
    tmp_path: Path, mechanism: Literal["rmgm", "dgm", "moments"], read: int
) -> None:
    request, noise = asked(mechanism), Noise()
    snapshot = snapshot_of(tmp_path, columns_of(), *ATTRIBUTES, piece=1)
    charge, data = charge_for(request, snapshot), snapshot.path.read_bytes()

    def damage(rows: int) -> None:
        if rows == read:
            snapshot.path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))

    damage(0)
    with pytest.raises(LostError):
        (exchanged_rows if mechanism == "moments" else privatise)(
            snapshot, request, charge=charge, draw=noise, progress=damage
        )
    assert len(noise.calls) == (0 if read < N else 2), "of the sums, which went nowhere"


def test_charge_of_the_second_stage_alone_does_not_let_anybody_read_rows(tmp_path: Path) -> None:
    request = asked("rmgm")
    snapshot = snapshot_of(tmp_path, columns_of(), *ATTRIBUTES)
    assert request.plan.first_stage is not None
    second = replace(charge_for(request, snapshot), rho_units=request.plan.loss.units * 3 // 4)
    with pytest.raises(ValueError, match="does not cover"):
        privatise(snapshot, request, charge=second, draw=Noise())


def test_progress_counts_the_rows_of_both_readings(tmp_path: Path) -> None:
    request, seen = asked("dgm"), list[int]()
    snapshot = snapshot_of(tmp_path, columns_of(), *ATTRIBUTES, piece=25)
    privatise(snapshot, request, charge=charge_for(request, snapshot), draw=Noise(), progress=seen.append)
    assert seen == [25, 50, 60, 85, 110, 120]
    assert request.readings * N == 120
