"""From rows to a privatised block, against the formula computed naively."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from commingle.party_agent.errors import LostError
from commingle.party_agent.private import snapshot as snapshot_module
from commingle.party_agent.private.charge import NO_SNAPSHOT
from commingle.party_agent.private.privatise import BlockRequest, privatise
from commingle.party_agent.private.snapshot import Snapshot
from commingle.shared.documents.keys import SigningKey
from commingle.shared.documents.schema import Attribute, Whitening
from commingle.shared.documents.study import Study, StudyParty
from commingle.shared.dp.fixed_point import squared_row_limit
from commingle.shared.mechanisms.rows.signs import SignStream
from commingle.shared.release.checks import Member, build_spec
from commingle.shared.release.plan import plan_block
from tests.party_agent.private.tables import BINARY, LEVELS, NUMBER, column, snapshot_of
from tests.world.consortium import Noise
from tests.world.tampering import NOW

N, K = 60, 12
SEED = bytes(range(32))


@dataclass(frozen=True)
class Charge:
    release: str
    rho_units: int
    snapshot: str


def request_of(
    mechanism: Literal["rmgm", "dgm", "moments"],
    *attributes: Attribute,
    row_norm: float | None = None,
    whitening: Whitening | None = None,
    first_stage_share: float | None = None,
    n: int = N,
) -> BlockRequest:
    key = SigningKey(b"\x01" * 32)
    study = Study(
        study="s",
        mechanism=mechanism,
        subjects="listed",
        k=K if mechanism == "rmgm" else None,
        epsilon=1,
        delta=1e-5,
        n=n,
        parties=(
            StudyParty(
                name="p",
                dataset="d",
                attributes=attributes,
                row_norm=row_norm,
                whitening=whitening,
                first_stage_share=first_stage_share,
            ),
        ),
    )
    member = Member(key.verifying_key.raw.hex(), "00" * 32)
    spec = build_spec(study, members={"p": member}, proposer=key.fingerprint, seed=SEED, now=NOW)
    return BlockRequest(spec, spec.parties[0], plan_block(spec, spec.parties[0]))


def columns_of(n: int = N) -> dict[str, Any]:
    draw = np.random.default_rng(5)
    return {
        "id": column([f"p{i}" for i in draw.permutation(n)]),
        "x": column(draw.uniform(-1, 11, n).tolist()),
        "b": column(draw.choice(["no", "yes"], n).tolist()),
        "c": column(draw.choice(["r", "s", "t"], n).tolist()),
    }


def naive_rows(columns: dict[str, Any], attributes: Sequence[Attribute], *, mapped: bool = False) -> NDArray[np.int64]:
    """Q by rank (n x d), from plain Python; of rows that are mapped levels have indicators."""
    one_of: dict[str, Callable[[Any], list[int]]] = {
        "x": lambda v: [int(max(-1.0, min(1.0, v / 5 - 1)) * 32768)],
        "b": lambda v: [32768 if v == "yes" else -32768],
        "c": lambda v: [32768 * (v == level) for level in "st"] if mapped else [int(32768 * c) for c in contrasts[v]],
    }
    contrasts = {"r": (0.5**0.5, 6**-0.5), "s": (-(0.5**0.5), 6**-0.5), "t": (0, -2 * 6**-0.5)}
    values = {name: array.to_pylist() for name, array in columns.items()}
    order = sorted(range(len(values["id"])), key=lambda i: values["id"][i].encode())
    return np.array([[q for a in attributes for q in one_of[a.name](values[a.name][i])] for i in order])


def signs_of(ranks: NDArray[np.int64]) -> NDArray[np.int64]:
    """K x m."""
    bits = np.unpackbits(SignStream(SEED).packed(ranks, K), axis=1)[:, :K]
    return 1 - 2 * bits.T.astype(np.int64)


def charge_for(request: BlockRequest, snapshot: Snapshot, *, short: int = 0) -> Charge:
    return Charge("r", request.plan.loss.units - short, snapshot.digest)


@pytest.mark.parametrize("piece", [1, 7, 60])
def test_rmgm_block_is_exactly_the_projection_plus_the_drawn_noise(tmp_path: Path, piece: int) -> None:
    attributes = (BINARY, NUMBER, LEVELS)  # in the spec's order, which is not that of the columns
    request = request_of("rmgm", *attributes)
    columns = columns_of()
    snapshot, noise = snapshot_of(tmp_path, columns, *attributes, piece=piece), Noise()
    block = privatise(snapshot, request, charge=charge_for(request, snapshot), draw=noise).integers
    assert noise.calls == [(request.plan.sigma, K * 4)]
    assert np.array_equal(
        block, signs_of(np.arange(N)) @ naive_rows(columns, attributes) + noise.drawn[0].reshape(K, 4)
    )


@pytest.mark.parametrize("piece", [1, 7, 60])
def test_dgm_block_is_exactly_the_rows_by_rank_plus_the_drawn_noise(tmp_path: Path, piece: int) -> None:
    attributes = (NUMBER, LEVELS)
    request = request_of("dgm", *attributes)
    columns = columns_of()
    snapshot, noise = snapshot_of(tmp_path, columns, *attributes, piece=piece), Noise()
    block = privatise(snapshot, request, charge=charge_for(request, snapshot), draw=noise).integers
    assert noise.calls == [(request.plan.sigma, N * 3)]
    assert np.array_equal(block, naive_rows(columns, attributes) + noise.drawn[0].reshape(N, 3))


def test_row_norm_clips_every_row_before_mixing(tmp_path: Path) -> None:
    attributes = (NUMBER, BINARY, LEVELS)
    request = request_of("dgm", *attributes, row_norm=0.75)
    columns = columns_of()
    snapshot, noise = snapshot_of(tmp_path, columns, *attributes, piece=13), Noise()
    block = privatise(snapshot, request, charge=charge_for(request, snapshot), draw=noise).integers
    clipped = block - noise.drawn[0].reshape(block.shape)
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
    request = request_of("dgm", *attributes, row_norm=row_norm, whitening=whitening)
    columns = columns_of()
    snapshot, noise = snapshot_of(tmp_path, columns, *attributes, piece=piece), Noise()
    block = privatise(snapshot, request, charge=charge_for(request, snapshot), draw=noise).integers - noise.drawn[
        0
    ].reshape(N, 2)
    centre, matrix = np.array([8192, -4096]), np.array([[12, -2], [3, 4]])  # exact in eighths
    mapped = [[int(v / 8) for v in (matrix @ (row - centre)).tolist()] for row in naive_rows(columns, attributes)]
    limit = squared_row_limit(row_norm)
    assert [sum(v * v for v in row) > limit for row in mapped].count(False) > 0
    for row, found in zip(mapped, block.tolist(), strict=True):
        shrunk = min(1.0, (limit / max(1, sum(v * v for v in row))) ** 0.5)
        assert sum(v * v for v in found) <= limit
        assert found == row if shrunk == 1 else np.allclose(found, np.multiply(row, shrunk), rtol=0, atol=2)
    mixed = request_of("rmgm", *attributes, row_norm=row_norm, whitening=whitening)
    drawn = Noise()
    sketch = privatise(snapshot, mixed, charge=charge_for(mixed, snapshot), draw=drawn).integers - drawn.drawn[
        0
    ].reshape(K, 2)
    assert np.array_equal(sketch, signs_of(np.arange(N)) @ block)


def test_chosen_attributes_are_mixed_in_the_order_of_the_choice(tmp_path: Path) -> None:
    request, noise, columns = request_of("rmgm", LEVELS, BINARY), Noise(), columns_of()
    snapshot = snapshot_of(tmp_path, columns, NUMBER, BINARY, LEVELS).choose((LEVELS, BINARY))
    block = privatise(snapshot, request, charge=charge_for(request, snapshot), draw=noise).integers
    rows = naive_rows(columns, (LEVELS, BINARY))
    assert np.array_equal(block - noise.drawn[0].reshape(K, 3), signs_of(np.arange(N)) @ rows)


@pytest.mark.parametrize("mechanism", ["rmgm", "dgm"])
def test_block_is_the_same_whatever_the_order_of_the_source_and_the_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mechanism: Literal["rmgm", "dgm"]
) -> None:
    request, blocks = request_of(mechanism, NUMBER, LEVELS), list[NDArray[np.int64]]()
    for number, (piece, pieces) in enumerate([(99, 64), (7, 1), (1, 3)]):
        monkeypatch.setattr(snapshot_module, "_PART_PIECES", pieces)
        order = column(np.random.default_rng(number).permutation(N).tolist())
        columns = {name: cells.take(order) for name, cells in columns_of().items()}
        snapshot, noise = snapshot_of(tmp_path, columns, NUMBER, LEVELS, piece=piece), Noise()
        made = privatise(snapshot, request, charge=charge_for(request, snapshot), draw=noise).integers
        blocks.append(made - noise.drawn[0].reshape(made.shape))
    assert np.array_equal(blocks[0], blocks[1])
    assert np.array_equal(blocks[0], blocks[2])


def test_charge_that_does_not_cover_the_plan_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    request = request_of("rmgm", NUMBER)
    snapshot, noise = snapshot_of(tmp_path, columns_of(), NUMBER), Noise()
    charge = charge_for(request, snapshot, short=1)
    progress: list[int] = []
    with pytest.raises(ValueError, match="does not cover"):
        privatise(snapshot, request, charge=charge, draw=noise, progress=progress.append)
    assert (noise.calls, progress) == ([], [])


@pytest.mark.parametrize("named", ["of the same rows", "of others", "none"])
def test_charge_for_another_snapshot_is_refused_before_anything_is_read(tmp_path: Path, named: str) -> None:
    request, noise, progress = request_of("rmgm", NUMBER), Noise(), list[int]()
    snapshot = snapshot_of(tmp_path, columns_of(), NUMBER)
    others = {
        "of the same rows": snapshot_of(tmp_path, columns_of(), NUMBER).digest,
        "of others": snapshot_of(tmp_path, changed("value"), NUMBER).digest,
        "none": NO_SNAPSHOT,
    }
    charge = replace(charge_for(request, snapshot), snapshot=others[named])
    with pytest.raises(ValueError, match="does not cover"):
        privatise(snapshot, request, charge=charge, draw=noise, progress=progress.append)
    assert (noise.calls, progress) == ([], [])


def test_block_of_an_interactive_release_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    request = request_of("moments", NUMBER)
    snapshot, progress = snapshot_of(tmp_path, columns_of(), NUMBER), list[int]()
    with pytest.raises(ValueError, match="exchange"):
        privatise(snapshot, request, charge=charge_for(request, snapshot), draw=Noise(), progress=progress.append)
    assert progress == []


def changed(name: str) -> dict[str, Any]:
    """The table with another last cell."""
    cells = columns_of()["x"].to_pylist()[:-1]
    match name:
        case "value":
            new = column([*cells, 5.5])
        case "text":
            new = column([*map(str, cells), "five"])
        case "infinite":
            new = column([*cells, float("inf")])
        case _:
            raise ValueError(name)
    return columns_of() | {"x": new}


@pytest.mark.parametrize("n", [N - 1, N + 1])
def test_another_number_of_subjects_than_was_approved_is_refused_and_no_noise_is_drawn(tmp_path: Path, n: int) -> None:
    request, noise = request_of("dgm", NUMBER), Noise()
    snapshot = snapshot_of(tmp_path, columns_of(n), NUMBER)
    with pytest.raises(ValueError, match="another number of subjects"):
        privatise(snapshot, request, charge=charge_for(request, snapshot), draw=noise)
    assert noise.calls == []


def cut_short(data: bytes) -> bytes:
    return data[:-1]


def altered(data: bytes) -> bytes:
    """In the last row that is read."""
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize("damage", [cut_short, altered, None])
@pytest.mark.parametrize("mechanism", ["rmgm", "dgm"])
def test_snapshot_that_is_damaged_or_gone_is_lost_and_no_noise_is_drawn(
    tmp_path: Path, damage: Callable[[bytes], bytes] | None, mechanism: Literal["rmgm", "dgm"]
) -> None:
    request, noise = request_of(mechanism, NUMBER), Noise()
    snapshot = snapshot_of(tmp_path, columns_of(), NUMBER, piece=11)
    if damage is None:
        snapshot.path.unlink()
    else:
        snapshot.path.write_bytes(damage(snapshot.path.read_bytes()))
    with pytest.raises(LostError):
        privatise(snapshot, request, charge=charge_for(request, snapshot), draw=noise)
    assert noise.calls == []


@pytest.mark.parametrize(("what", "encoded"), [("value", 3276), ("text", 0), ("infinite", 32768)])
@pytest.mark.parametrize("mechanism", ["rmgm", "dgm"])
def test_changed_cell_is_a_row_like_any_other(
    tmp_path: Path, what: str, encoded: int, mechanism: Literal["rmgm", "dgm"]
) -> None:
    request, blocks = request_of(mechanism, NUMBER), list[NDArray[np.int64]]()
    for columns in (columns_of(), changed(what)):
        snapshot = snapshot_of(tmp_path, columns, NUMBER, piece=11, strict=False)
        charge = charge_for(request, snapshot)
        blocks.append(privatise(snapshot, request, charge=charge, draw=Noise()).integers)
    rank = sorted(columns_of()["id"].to_pylist()).index(columns_of()["id"][N - 1].as_py())
    moved = encoded - naive_rows(columns_of(), (NUMBER,))[rank]
    expected = signs_of(np.array([rank])) * moved if mechanism == "rmgm" else moved * (np.arange(N) == rank)[:, None]
    assert np.array_equal(blocks[1] - blocks[0], expected)


def test_progress_is_told_rows(tmp_path: Path) -> None:
    request = request_of("rmgm", NUMBER)
    snapshot = snapshot_of(tmp_path, columns_of(), NUMBER, piece=25)
    seen: list[int] = []
    privatise(snapshot, request, charge=charge_for(request, snapshot), draw=Noise(), progress=seen.append)
    assert seen == [25, 50, 60]
