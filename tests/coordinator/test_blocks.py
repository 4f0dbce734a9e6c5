"""Blocks: taken once, whole, signed, of the shape and the time that the release calls for."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from commingle.shared.release.matrix import content_digest, encode_block, largest_body
from tests.world.coordinator import Block, Honest, Hub, Parties, Proposed, key_of, problem


@pytest.fixture
def approved(hub: Hub, parties: Parties) -> Proposed:
    return hub.approved(parties)


def with_body(party: Honest, honest: Block, body: bytes, **changes: Any) -> Block:
    """Another body under a statement that fits its bytes and is rightly signed."""
    changed = honest.statement.model_copy(update={"body_sha256": sha256(body).hexdigest()} | changes)
    return party.signed(body, changed)


def test_same_bytes_again_are_200_and_other_bytes_409(hub: Hub, clinic: Honest, approved: Proposed) -> None:
    block, other = hub.block(approved, clinic), hub.block(approved, clinic)
    assert hub.upload(approved, "clinic", block).status_code == 201
    assert hub.state(approved) == "collecting"
    assert hub.upload(approved, "clinic", block).status_code == 200
    assert problem(hub.upload(approved, "clinic", other)) == (409, "other-bytes")
    assert hub.kinds(approved).count("block") == 1


def test_repeat_is_200_after_publication_but_not_with_another_body(hub: Hub, parties: Parties) -> None:
    clinic, registry = parties
    proposed = hub.approved(parties)
    block = hub.block(proposed, clinic)
    hub.upload(proposed, "clinic", block)
    hub.upload(proposed, "registry", hub.block(proposed, registry))
    hub.publisher.run_once()
    assert hub.upload(proposed, "clinic", block).status_code == 200
    assert problem(hub.upload(proposed, "clinic", block, body=block.body[:-1])) == (422, "block")
    assert problem(hub.upload(proposed, "clinic", hub.block(proposed, clinic))) == (409, "other-bytes")
    assert hub.state(proposed) == "published"


def test_wrong_key_release_or_party_is_refused(hub: Hub, clinic: Honest, registry: Honest, approved: Proposed) -> None:
    block = hub.block(approved, clinic)
    forged = clinic.signed(block.body, block.statement, key_of("thief"))
    assert problem(hub.upload(approved, "clinic", forged)) == (403, "signature")
    assert problem(hub.upload(approved, "registry", block)) == (403, "signature")
    assert problem(hub.upload(approved, "nobody", block)) == (401, "request-signature")
    elsewhere = hub.block(approved, clinic, spec="0" * 64)
    assert problem(hub.upload(approved, "clinic", elsewhere)) == (422, "document")
    impostor = hub.block(approved, registry, party="clinic")
    assert problem(hub.upload(approved, "registry", impostor)) == (422, "document")
    headers, path = {"Commingle-Block": block.envelope.to_json().decode()}, f"/v1/releases/{'0' * 64}/blocks/clinic"
    unknown = hub.http.put(path, content=block.body, headers=headers, auth=hub.auth(clinic.key))
    assert problem(unknown) == (404, "unknown")
    assert hub.state(approved) == "approved"


def test_statement_of_another_shape_or_noise_or_set_of_approvals_is_refused(
    hub: Hub, clinic: Honest, approved: Proposed
) -> None:
    shapes: list[dict[str, Any]] = [{"rows": 17}, {"columns": ("age",)}, {"columns": ("weight", "age")}]
    for changes in (*shapes, {"sigma": 1}, {"sigma": 0}, {"approvals": "0" * 64}):
        refused = hub.upload(approved, "clinic", hub.block(approved, clinic, **changes))
        assert problem(refused) == (422, "block"), changes


def arrow(columns: dict[str, "pa.Array[Any]"]) -> bytes:
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def wrong_bodies() -> dict[str, bytes]:
    integers = pa.array(range(16), pa.int64())
    floats = pa.array([0.5] * 16, pa.float64())
    empty = pa.array([None] * 16, pa.int64())
    fewer = pa.array(range(15), pa.int64())
    good = arrow({"age": integers, "weight": integers})
    return {
        "nothing": b"",
        "garbage": b"\x00\xff" * 500,
        "truncated": good[: len(good) // 2],
        "floats": arrow({"age": floats, "weight": floats}),
        "empty cells": arrow({"age": empty, "weight": empty}),
        "fewer rows": arrow({"age": fewer, "weight": fewer}),
        "other columns": arrow({"weight": integers, "age": integers}),
        "other integers": good,
    }


def test_signed_body_that_is_not_the_block_is_refused(hub: Hub, clinic: Honest, approved: Proposed) -> None:
    for which, body in wrong_bodies().items():
        bad = with_body(clinic, hub.block(approved, clinic), body)
        assert problem(hub.upload(approved, "clinic", bad)) == (422, "block"), which
    assert hub.kinds(approved) == ["proposal", "approval", "approval"]


def test_body_that_differs_from_its_statement_is_refused(hub: Hub, clinic: Honest, approved: Proposed) -> None:
    block = hub.block(approved, clinic)
    for body in (block.body[:-1], block.body + b"\0", bytes([block.body[0] ^ 1]) + block.body[1:]):
        assert problem(hub.upload(approved, "clinic", block, body=body)) == (422, "block")
    assert hub.upload(approved, "clinic", block).status_code == 201


def test_body_beyond_the_largest_honest_one_is_413(hub: Hub, clinic: Honest, approved: Proposed) -> None:
    block = hub.block(approved, clinic)
    limit = largest_body(block.statement.rows, len(block.statement.columns))
    assert problem(hub.upload(approved, "clinic", block, body=bytes(limit + 1))) == (413, "too-large")
    assert problem(hub.upload(approved, "clinic", block, body=bytes(limit))) == (422, "block")
    assert hub.upload(approved, "clinic", block).status_code == 201


def test_malformed_or_missing_statement_header_is_422(hub: Hub, approved: Proposed) -> None:
    path = f"/v1/releases/{approved.id}/blocks/clinic"
    assert problem(hub.http.put(path, content=b"x")) == (422, "request")
    for header in (b"", b"{}", b"nonsense", b'{"payload": 1}'):
        headers = httpx.Headers([(b"commingle-block", header)])
        answer = hub.http.put(path, content=b"x", headers=headers, auth=hub.auth(key_of("clinic")))
        assert problem(answer) == (422, "document"), header


def test_upload_before_every_approval_is_refused(hub: Hub, parties: Parties, clinic: Honest, registry: Honest) -> None:
    proposed = hub.proposed(parties)
    hub.approve(proposed, "clinic", clinic.approval(proposed))
    both = hub.approvals(proposed) | {"registry": registry.approval(proposed).approval}
    assert problem(hub.upload(proposed, "clinic", clinic.block(proposed, both))) == (409, "state")


@pytest.mark.parametrize("end", ["rejection", "expiry"])
def test_upload_after_the_end_is_refused(hub: Hub, parties: Parties, approved: Proposed, end: str) -> None:
    clinic, registry = parties
    block = hub.block(approved, clinic)
    if end == "rejection":
        hub.reject(approved, "registry", registry.rejection(approved))
    else:
        hub.clock.move(hours=72)
    assert problem(hub.upload(approved, "clinic", block)) == (409, "state")


def test_blob_directory_that_does_not_work_is_503_and_nothing_is_recorded(
    hub: Hub, clinic: Honest, approved: Proposed, tmp_path: Path
) -> None:
    block = hub.block(approved, clinic)
    blobs = tmp_path / "blobs"
    blobs.write_text("not a directory")
    assert problem(hub.upload(approved, "clinic", block)) == (503, "storage")
    assert problem(hub.http.get("/readyz")) == (503, "storage")
    assert hub.state(approved) == "approved"
    blobs.unlink()
    assert hub.http.get("/readyz").status_code == 200
    assert hub.upload(approved, "clinic", block).status_code == 201


def test_statement_about_integers_that_were_not_sent_is_refused(hub: Hub, clinic: Honest, approved: Proposed) -> None:
    honest = hub.block(approved, clinic)
    zeros = np.zeros((16, 2), np.int64)
    body = encode_block(zeros, honest.statement.columns)
    assert problem(hub.upload(approved, "clinic", with_body(clinic, honest, body))) == (422, "block")
    # what a party signs rightly is its own affair: noise cannot be told from its absence
    right = with_body(clinic, honest, body, content_sha256=content_digest(zeros))
    assert hub.upload(approved, "clinic", right).status_code == 201
