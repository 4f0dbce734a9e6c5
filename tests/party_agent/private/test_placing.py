"""Rows by rank in bounded memory."""

from functools import partial
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commingle.party_agent.private import placing, scratch
from commingle.party_agent.private.placing import PlacedRows
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.mechanisms.interface import Placement
from commingle.shared.mechanisms.moments.keyed import Buckets
from commingle.shared.mechanisms.registry import mechanism_named


def by_rank(n: int, d: int) -> PlacedRows:
    return PlacedRows(n, lambda ranks: ranks.astype(np.int64), partial(Placement, d=d))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(n=st.integers(1, 40), window=st.integers(1, 12), batch=st.integers(1, 9), seed=st.integers(0, 99))
def test_rows_come_back_by_rank_whatever_their_order(
    monkeypatch: pytest.MonkeyPatch, n: int, window: int, batch: int, seed: int
) -> None:
    monkeypatch.setattr(placing, "_WINDOW_ROWS", window)
    monkeypatch.setattr(scratch, "_IN_MEMORY_BYTES", 1)
    draw = np.random.default_rng(seed)
    rows, ranks = draw.integers(-(2**15), 2**15 + 1, (n, 3)), draw.permutation(n)
    placed = by_rank(n, 3)
    for start in range(0, n, batch):
        own = ranks[start : start + batch]
        placed.add(own, rows[own])
    pieces = list(placed)
    assert [len(piece) for piece in pieces[:-1]] == [window] * (len(pieces) - 1)
    assert np.array_equal(np.concatenate(pieces), rows)
    assert np.array_equal(np.concatenate(list(placed)), rows), "read as often as wanted"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(n=st.integers(1, 40), count=st.integers(2, 30), window=st.integers(1, 12), seed=st.integers(0, 99))
def test_buckets_are_filled_as_if_all_were_in_memory(
    monkeypatch: pytest.MonkeyPatch, n: int, count: int, window: int, seed: int
) -> None:
    monkeypatch.setattr(placing, "_WINDOW_ROWS", window)
    draw = np.random.default_rng(seed)
    names = np.frombuffer(draw.bytes(32 * n), np.uint8).reshape(n, 32)
    rows = draw.integers(-(2**14), 2**14 + 1, (n, 3))
    buckets = partial(Buckets, count=count, d=3)
    mechanism, spec = mechanism_named("moments", keyed=True), cast("ReleaseSpec", SimpleNamespace(table_rows=count))
    placed, whole = PlacedRows(count, partial(mechanism.places, spec), buckets), buckets(range(count))
    for start in range(0, n, 7):
        own = slice(start, start + 7)
        placed.add(names[own], rows[own])
        whole.add(names[own], rows[own])
    assert np.array_equal(np.concatenate(list(placed)), whole.total())
    assert np.array_equal(np.concatenate(list(placed)), whole.total()), "read as often as wanted"


def test_no_cell_reaches_the_disk_in_the_clear(to_disk: list[bytes]) -> None:
    placed = by_rank(4, 1)
    placed.add(np.arange(4), np.full((4, 1), 0x53454E54))  # "TNES"
    assert to_disk
    assert b"TNES" not in b"".join(to_disk)
    assert np.array_equal(np.concatenate(list(placed)), np.full((4, 1), 0x53454E54))
