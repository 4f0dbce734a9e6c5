"""Sorting ids in bounded memory: the same order, ranks and duplicates as sorting them at once."""

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commingle.party_agent.private import ranks as ranks_module
from commingle.party_agent.private import scratch
from commingle.party_agent.private.ranks import IdSorter, Ranks
from tests.party_agent.private.ranking import ids_of

ID = st.binary(max_size=3)


def sorted_ids(pieces: list[list[bytes]]) -> Ranks:
    sorter = IdSorter()
    for piece in pieces:
        sorter.add(pa.array(piece, pa.large_binary()))
    return sorter.ranks()


@pytest.fixture(params=[(7, 3, 50), (1, 1, 1), (1 << 17, 1 << 11, 1 << 22)], ids=["runs on disk", "of one", "usual"])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    *of_ids, in_memory = request.param
    monkeypatch.setattr(scratch, "_IN_MEMORY_BYTES", in_memory)
    for name, value in zip(("_RUN_IDS", "_PIECE_IDS"), of_ids, strict=True):
        monkeypatch.setattr(ranks_module, name, value)


@pytest.mark.usefixtures("sizes")
@given(st.lists(st.lists(ID, max_size=12), max_size=6))
def test_order_ranks_and_duplicates_are_those_of_sorting_all_at_once(pieces: list[list[bytes]]) -> None:
    ids, found = [one for piece in pieces for one in piece], sorted_ids(pieces)
    in_order = sorted(ids)
    assert ids_of(found) == in_order == ids_of(found)
    assert sorted(found.by_row[:].tolist()) == list(range(len(ids)))
    assert [in_order[rank] for rank in found.by_row[:]] == ids
    assert found.duplicates == len(present := [one for one in ids if one]) - len(set(present))


@pytest.mark.usefixtures("sizes")
def test_parts_of_ranks_are_slices_and_travel_as_arrays() -> None:
    found = sorted_ids([[b"d", b"a"], [], [b"c", b"b", b"e"]]).by_row
    assert found[:].tolist() == [3, 0, 2, 1, 4]
    assert found[1:3].tolist() == [0, 2]
    assert found[4:9].tolist() == [4]
    assert found[3:3].tolist() == []
    part = found.part(2, 2)
    assert (len(part), part[:].tolist(), part[1:].tolist()) == (2, [2, 1], [1])
    sent = pickle.loads(pickle.dumps(part))  # noqa: S301 - ours
    assert isinstance(sent, np.ndarray)
    assert sent.tolist() == [2, 1]


@pytest.mark.usefixtures("sizes")
def test_no_id_reaches_the_disk_in_the_clear(to_disk: list[bytes]) -> None:
    found = sorted_ids([[b"patient-%d" % number for number in range(20)]])
    assert len(ids_of(found)) == 20
    assert to_disk
    assert b"patient" not in b"".join(to_disk)
