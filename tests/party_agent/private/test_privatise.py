"""From rows to a privatised block, against the formula computed naively."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from commingle.party_agent.errors import SubjectsChangedError
from commingle.party_agent.private.digest import TableDigest
from commingle.party_agent.private.privatise import BlockRequest, privatise
from commingle.party_agent.private.table import PrivateTable
from commingle.shared.documents.keys import SigningKey
from commingle.shared.documents.schema import Attribute, Whitening
from commingle.shared.documents.study import Member, Study, StudyParty, build_spec
from commingle.shared.dp.fixed_point import squared_row_limit
from commingle.shared.mechanisms.rows.signs import SignStream
from commingle.shared.release.plan import plan_block
from tests.party_agent.private.tables import BINARY, LEVELS, NUMBER, column, table_of
from tests.world.consortium import Noise
from tests.world.tampering import NOW

N, K = 60, 12
SEED = bytes(range(32))


@dataclass(frozen=True)
class Charge:
    release: str
    rho_units: int
    table: TableDigest


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


def naive_rows(columns: dict[str, Any], attributes: Sequence[Attribute]) -> NDArray[np.int64]:
    """Q by rank (n x d), from plain Python."""
    one_of: dict[str, Callable[[Any], list[int]]] = {
        "x": lambda v: [int(max(-1.0, min(1.0, v / 5 - 1)) * 32768)],
        "b": lambda v: [32768 if v == "yes" else -32768],
        "c": lambda v: [32768 * (v == "s"), 32768 * (v == "t")],
    }
    values = {name: array.to_pylist() for name, array in columns.items()}
    order = sorted(range(len(values["id"])), key=lambda i: values["id"][i].encode())
    return np.array([[q for a in attributes for q in one_of[a.name](values[a.name][i])] for i in order])


def charge_for(request: BlockRequest, table: PrivateTable, *, short: int = 0) -> Charge:
    return Charge("r", request.plan.charge.units - short, table.scan().digest)


@pytest.mark.parametrize("batch", [1, 7, 60])
def test_rmgm_block_is_exactly_the_projection_plus_the_drawn_noise(batch: int) -> None:
    attributes = (BINARY, NUMBER, LEVELS)  # in the spec's order, which is not the table's
    request = request_of("rmgm", *attributes)
    columns = columns_of()
    table, noise = table_of(columns, *attributes, batch=batch), Noise()
    block = privatise(table, request, charge=charge_for(request, table), draw=noise).integers
    bits = np.unpackbits(SignStream(SEED).packed(np.arange(N), K), axis=1)[:, :K]
    signs = 1 - 2 * bits.T.astype(np.int64)
    assert noise.calls == [(request.plan.sigma, K * 4)]
    assert np.array_equal(block, signs @ naive_rows(columns, attributes) + noise.drawn[0].reshape(K, 4))


@pytest.mark.parametrize("batch", [1, 7, 60])
def test_dgm_block_is_exactly_the_rows_by_rank_plus_the_drawn_noise(batch: int) -> None:
    attributes = (NUMBER, LEVELS)
    request = request_of("dgm", *attributes)
    columns = columns_of()
    table, noise = table_of(columns, *attributes, batch=batch), Noise()
    block = privatise(table, request, charge=charge_for(request, table), draw=noise).integers
    assert noise.calls == [(request.plan.sigma, N * 3)]
    assert np.array_equal(block, naive_rows(columns, attributes) + noise.drawn[0].reshape(N, 3))


def test_row_norm_clips_every_row_before_mixing() -> None:
    attributes = (NUMBER, BINARY, LEVELS)
    request = request_of("dgm", *attributes, row_norm=0.75)
    columns = columns_of()
    table, noise = table_of(columns, *attributes, batch=13), Noise()
    block = privatise(table, request, charge=charge_for(request, table), draw=noise).integers
    clipped = block - noise.drawn[0].reshape(block.shape)
    squared = (clipped**2).sum(axis=1)
    limit = squared_row_limit(0.75)
    assert (squared <= limit).all()
    assert (squared >= 0.999 * limit).all()  # every row has a binary attribute, so every row was longer
    rows = naive_rows(columns, attributes)
    assert (np.sign(clipped) * np.sign(rows) >= 0).all()


@pytest.mark.parametrize("row_norm", [0.6, 1.0])
@pytest.mark.parametrize("batch", [7, 60])
def test_whitened_rows_are_mapped_exactly_then_clipped_then_mixed(batch: int, row_norm: float) -> None:
    attributes = (NUMBER, BINARY)
    whitening = Whitening(centre=(0.25, -0.125), matrix=((1.5, -0.25), (0.375, 0.5)))
    request = request_of("dgm", *attributes, row_norm=row_norm, whitening=whitening)
    columns = columns_of()
    table, noise = table_of(columns, *attributes, batch=batch), Noise()
    block = privatise(table, request, charge=charge_for(request, table), draw=noise).integers - noise.drawn[0].reshape(
        N, 2
    )
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
    sketch = privatise(table, mixed, charge=charge_for(mixed, table), draw=drawn).integers - drawn.drawn[0].reshape(
        K, 2
    )
    bits = np.unpackbits(SignStream(SEED).packed(np.arange(N), K), axis=1)[:, :K]
    assert np.array_equal(sketch, (1 - 2 * bits.T.astype(np.int64)) @ block)


def test_only_the_attributes_of_the_spec_are_read() -> None:
    request = request_of("rmgm", BINARY)
    table = table_of({k: v for k, v in columns_of().items() if k in {"id", "b"}}, BINARY)
    whole = table_of(columns_of(), NUMBER, BINARY, LEVELS)
    charge = Charge("r", request.plan.charge.units, whole.scan().digest)
    assert privatise(table, request, charge=charge, draw=Noise()).integers.shape == (K, 1)


def test_charge_that_does_not_cover_the_plan_is_refused_before_anything_is_read() -> None:
    request = request_of("rmgm", NUMBER)
    table, noise = table_of(columns_of(), NUMBER), Noise()
    charge = charge_for(request, table, short=1)
    progress: list[int] = []
    with pytest.raises(ValueError, match="does not cover"):
        privatise(table, request, charge=charge, draw=noise, progress=progress.append)
    assert (noise.calls, progress) == ([], [])


def test_block_of_an_interactive_release_is_refused_before_anything_is_read() -> None:
    request = request_of("moments", NUMBER)
    table, progress = table_of(columns_of(), NUMBER), list[int]()
    with pytest.raises(ValueError, match="exchange"):
        privatise(table, request, charge=charge_for(request, table), draw=Noise(), progress=progress.append)
    assert progress == []


def changed(name: str) -> dict[str, Any]:
    columns = columns_of()
    match name:
        case "value":
            columns["x"] = column([*columns["x"].to_pylist()[:-1], 5.5])
        case "subject":
            columns["id"] = column([*columns["id"].to_pylist()[:-1], "p999"])
        case "order":
            columns = {key: array.take(column(list(range(N))[::-1])) for key, array in columns.items()}
        case "fewer":
            columns = {key: array.slice(0, N - 1) for key, array in columns.items()}
        case "more":
            columns = columns_of(N + 1)
        case "text":
            columns["x"] = column([*map(str, columns["x"].to_pylist()[:-1]), "five"])
        case "infinite":
            columns["x"] = column([*columns["x"].to_pylist()[:-1], float("inf")])
        case "missing":
            columns["id"] = column([*columns["id"].to_pylist()[:-1], None])
        case "duplicate":
            columns["id"] = column([*columns["id"].to_pylist()[:-1], columns["id"][0].as_py()])
    return columns


@pytest.mark.parametrize("what", ["subject", "order", "fewer", "more", "duplicate", "missing"])
@pytest.mark.parametrize("mechanism", ["rmgm", "dgm"])
def test_other_subjects_are_refused_and_no_noise_is_drawn(what: str, mechanism: Literal["rmgm", "dgm"]) -> None:
    request = request_of(mechanism, NUMBER)
    charge = charge_for(request, table_of(columns_of(), NUMBER))
    noise = Noise()
    with pytest.raises(SubjectsChangedError):
        privatise(table_of(changed(what), NUMBER, batch=11), request, charge=charge, draw=noise)
    assert noise.calls == []


@pytest.mark.parametrize(("what", "encoded"), [("value", 3276), ("text", 0), ("infinite", 32768)])
@pytest.mark.parametrize("mechanism", ["rmgm", "dgm"])
def test_changed_cell_is_a_row_like_any_other(what: str, encoded: int, mechanism: Literal["rmgm", "dgm"]) -> None:
    request = request_of(mechanism, NUMBER)
    charge = charge_for(request, table_of(columns_of(), NUMBER))
    before, after = (
        privatise(table_of(columns, NUMBER, batch=11), request, charge=charge, draw=Noise()).integers
        for columns in (columns_of(), changed(what))
    )
    rank = sorted(columns_of()["id"].to_pylist()).index(columns_of()["id"][N - 1].as_py())
    moved = encoded - naive_rows(columns_of(), (NUMBER,))[rank]
    signs = 1 - 2 * np.unpackbits(SignStream(SEED).packed(np.array([rank]), K), axis=1)[0, :K, None].astype(np.int64)
    expected = signs * moved if mechanism == "rmgm" else moved * (np.arange(N) == rank)[:, None]
    assert np.array_equal(after - before, expected)


def test_progress_is_told_rows() -> None:
    request = request_of("rmgm", NUMBER)
    table = table_of(columns_of(), NUMBER, batch=25)
    seen: list[int] = []
    privatise(table, request, charge=charge_for(request, table), draw=Noise(), progress=seen.append)
    assert seen == [25, 50, 60]
