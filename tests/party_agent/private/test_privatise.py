"""From rows to a privatised block or the rows of an exchange, of one stage and of two, against naive formulas.

Rows are by rank or bucket, and of the snapshot that was paid for.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commingle.party_agent.errors import LostError
from commingle.party_agent.private import snapshot as snapshot_module
from commingle.party_agent.private import sorting
from commingle.party_agent.private.privatise import BlockRequest, ExchangedRows, exchanged_rows, privatise
from commingle.party_agent.private.snapshot import NO_SNAPSHOT
from commingle.shared.documents.row_maps import row_map
from commingle.shared.documents.schema import Attribute, Whitening
from commingle.shared.dp.fixed_point import squared_row_limit
from commingle.shared.dp.noise import Sampler
from commingle.shared.dp.two_stages import column_sums
from commingle.shared.release.checks import closed
from tests.party_agent.private.releases import (
    RELEASES,
    K,
    N,
    Release,
    Rows,
    before_noise,
    changed,
    charge_for,
    columns_of,
    leaving,
    mixed,
    naive_rows,
    request_of,
    signs_of,
)
from tests.party_agent.private.tables import BINARY, LEVELS, NUMBER, column, snapshot_of
from tests.world.consortium import Noise


@pytest.mark.parametrize("piece", [1, 7, 60])
@pytest.mark.parametrize(
    ("mechanism", "rows", "attributes"),
    [("rmgm", K, (BINARY, NUMBER, LEVELS)), ("dgm", N, (NUMBER, LEVELS))],  # in the spec's order, not the columns'
)
def test_block_is_exactly_the_mixed_rows_plus_the_drawn_noise(
    tmp_path: Path, piece: int, mechanism: Release, rows: int, attributes: tuple[Attribute, ...]
) -> None:
    request, columns, noise = request_of(mechanism, *attributes), columns_of(), Noise()
    snapshot = snapshot_of(tmp_path, columns, *attributes, piece=piece)
    block, _ = leaving(snapshot, request, draw=noise)
    assert noise.calls == [(request.plan.sigma, block.size)]
    assert np.array_equal(block, mixed(mechanism, naive_rows(columns, attributes)) + noise.drawn[0].reshape(rows, -1))


def test_row_norm_clips_every_row_before_mixing(tmp_path: Path) -> None:
    attributes, columns = (NUMBER, BINARY, LEVELS), columns_of()
    snapshot = snapshot_of(tmp_path, columns, *attributes, piece=13)
    clipped, _ = before_noise(snapshot, request_of("dgm", *attributes, row_norm=0.75))
    squared = (clipped**2).sum(axis=1)
    limit = squared_row_limit(0.75)
    assert (squared <= limit).all()
    assert (squared >= 0.999 * limit).all()  # every row has a binary attribute, so every row was longer
    rows = naive_rows(columns, attributes)
    assert (np.sign(clipped) * np.sign(rows) >= 0).all()


@pytest.mark.parametrize("row_norm", [0.6, 1.0])
@pytest.mark.parametrize("piece", [7, 60])
def test_whitened_rows_are_mapped_exactly_then_clipped_then_mixed(tmp_path: Path, piece: int, row_norm: float) -> None:
    attributes = (NUMBER, BINARY)
    whitening = Whitening(centre=(0.25, -0.125), matrix=((1.5, -0.25), (0.375, 0.5)))
    columns = columns_of()
    snapshot = snapshot_of(tmp_path, columns, *attributes, piece=piece)
    block, _ = before_noise(snapshot, request_of("dgm", *attributes, row_norm=row_norm, whitening=whitening))
    centre, matrix = np.array([8192, -4096]), np.array([[12, -2], [3, 4]])  # exact in eighths
    whole = [[int(v / 8) for v in (matrix @ (row - centre)).tolist()] for row in naive_rows(columns, attributes)]
    limit = squared_row_limit(row_norm)
    assert [sum(v * v for v in row) > limit for row in whole].count(False) > 0
    for row, found in zip(whole, block.tolist(), strict=True):
        shrunk = min(1.0, (limit / max(1, sum(v * v for v in row))) ** 0.5)
        assert sum(v * v for v in found) <= limit
        assert found == row if shrunk == 1 else np.allclose(found, np.multiply(row, shrunk), rtol=0, atol=2)
    sketch, _ = before_noise(snapshot, request_of("rmgm", *attributes, row_norm=row_norm, whitening=whitening))
    assert np.array_equal(sketch, mixed("rmgm", block))


@pytest.mark.parametrize("mechanism", RELEASES)
def test_block_is_the_same_whatever_the_order_of_the_source_and_the_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mechanism: Release
) -> None:
    request, blocks = request_of(mechanism, NUMBER, LEVELS), []
    for number, (piece, pieces) in enumerate([(99, 64), (7, 1), (1, 3)]):
        monkeypatch.setattr(snapshot_module, "PART_PIECES", pieces)
        order = column(np.random.default_rng(number).permutation(N).tolist())
        columns = {name: cells.take(order) for name, cells in columns_of().items()}
        blocks.append(before_noise(snapshot_of(tmp_path, columns, NUMBER, LEVELS, piece=piece), request)[0])
    assert np.array_equal(blocks[0], blocks[1])
    assert np.array_equal(blocks[0], blocks[2])


@pytest.mark.parametrize("mechanism", ["rmgm", "moments"])
@pytest.mark.parametrize("wrong", ["too small", "of the same rows", "of others", "of none"])
def test_charge_that_is_too_small_or_for_another_snapshot_is_refused_before_anything_is_read(
    tmp_path: Path, mechanism: Release, wrong: str
) -> None:
    request, noise, progress = request_of(mechanism, NUMBER), Noise(), list[int]()
    snapshot = snapshot_of(tmp_path, columns_of(), NUMBER)
    charge = charge_for(request, snapshot)
    charge = {
        "too small": charge_for(request, snapshot, short=1),
        "of the same rows": replace(charge, snapshot=snapshot_of(tmp_path, columns_of(), NUMBER).digest),
        "of others": replace(charge, snapshot=snapshot_of(tmp_path, changed("value"), NUMBER).digest),
        "of none": replace(charge, snapshot=NO_SNAPSHOT),
    }[wrong]
    with pytest.raises(ValueError, match="does not cover"):
        leaving(snapshot, request, charge=charge, draw=noise, progress=progress.append)
    assert (noise.calls, progress) == ([], [])


@pytest.mark.parametrize(
    ("mechanism", "make", "said"), [("moments", privatise, "exchange"), ("dgm", exchanged_rows, "only an interactive")]
)
def test_block_of_an_exchange_or_an_exchange_of_blocks_is_refused_before_anything_is_read(
    tmp_path: Path, mechanism: Release, make: Callable[..., object], said: str
) -> None:
    request, progress, noise = request_of(mechanism, NUMBER), list[int](), Noise()
    snapshot = snapshot_of(tmp_path, columns_of(), NUMBER)
    with pytest.raises(ValueError, match=said):
        make(snapshot, request, charge=charge_for(request, snapshot), draw=noise, progress=progress.append)
    assert (noise.calls, progress) == ([], [])


@pytest.mark.parametrize("n", [N - 1, N + 1])
def test_another_number_of_subjects_than_was_approved_is_refused_and_no_noise_is_drawn(tmp_path: Path, n: int) -> None:
    noise = Noise()
    with pytest.raises(ValueError, match="another number of people"):
        leaving(snapshot_of(tmp_path, columns_of(n), NUMBER), request_of("dgm", NUMBER), draw=noise)
    assert noise.calls == []


@pytest.mark.parametrize(("what", "encoded"), [("value", 3276), ("text", 0), ("infinite", 32768)])
@pytest.mark.parametrize("mechanism", RELEASES)
def test_changed_cell_is_a_row_like_any_other(tmp_path: Path, what: str, encoded: int, mechanism: Release) -> None:
    """Rows of an exchange are in units of 2^-14, rounded toward zero."""
    before, after = (
        before_noise(snapshot_of(tmp_path, columns, NUMBER, piece=11, strict=False), request_of(mechanism, NUMBER))[0]
        for columns in (columns_of(), changed(what))
    )
    rank = sorted(columns_of()["id"].to_pylist()).index(columns_of()["id"][N - 1].as_py())
    cells = naive_rows(columns_of(), (NUMBER,))[rank].item(), encoded
    was, becomes = (int(cell / 2) if mechanism == "moments" else cell for cell in cells)
    moved = signs_of(np.array([rank])) if mechanism == "rmgm" else (np.arange(N) == rank)[:, None]
    assert np.array_equal(after - before, moved * (becomes - was))


def never(_: int, __: int) -> Any:
    raise AssertionError("noise was drawn")


def made_of(folder: Path, draw: Sampler = never, *, piece: int = 60, **choices: Any) -> ExchangedRows:
    request = request_of("moments", *(BINARY, NUMBER, LEVELS), **choices)
    snapshot = snapshot_of(folder, columns_of(), *(BINARY, NUMBER, LEVELS), piece=piece)
    return exchanged_rows(snapshot, request, charge=charge_for(request, snapshot), draw=draw)


@pytest.mark.parametrize("piece", [1, 7, 60])
@pytest.mark.parametrize("window", [11, 1 << 17])
def test_exchanged_rows_are_the_bounded_rows_by_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, window: int
) -> None:
    monkeypatch.setattr(sorting, "WINDOW_ROWS", window)
    made = made_of(tmp_path, piece=piece)
    exact = (
        naive_rows(columns_of(), (BINARY, NUMBER, LEVELS)) / 2
    )  # of 2^15; these rows are in units of 2^-14, rounded toward zero
    assert made.integers.shape == (N, 4)
    assert np.array_equal(made.integers, np.trunc(exact))  # toward zero
    assert made.sums is None, "of one stage, noise comes after the exchange"


def test_exchanged_rows_of_clipped_rows_stay_within_the_norm(tmp_path: Path) -> None:
    rows = made_of(tmp_path, row_norm=0.75).integers
    assert 0 < np.sum(rows**2, axis=1).max() <= 0.75**2 * 4**14


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
