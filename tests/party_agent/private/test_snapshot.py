"""The file that releases are made of: what is written is read, and whatever became of the file shows."""

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from commingle.party_agent.errors import LostError
from commingle.party_agent.private import snapshot as snapshot_module
from commingle.party_agent.private.snapshot import (
    HeldRows,
    RankedRows,
    Snapshot,
    missing_row,
    snapshot_digest,
    with_subjects,
    write_snapshot,
)
from commingle.party_agent.private.sorting import Records
from commingle.shared.documents.schema import Attribute, CategoricalAttribute, Intervals, encoded_columns
from commingle.shared.documents.study import Crossed, Product
from commingle.shared.documents.subsets import Subset
from commingle.shared.encoding import cells_for, encode_attribute
from commingle.shared.values import Cells, length_prefixed
from tests.party_agent.private.tables import BINARY, LEVELS, NUMBER, column, ids_of, rows_of, snapshot_of
from tests.world.documents import flipped

GAPS = NUMBER.model_copy(update={"missing": "indicator"})
ATTRIBUTES: tuple[Attribute, ...] = (GAPS, LEVELS, BINARY)  # of 2, 2 and 1 columns
WIDTH = 5
N = 7
KEY = bytes(range(32))


def cells(ids: Sequence[bytes]) -> Cells:
    return pa.array(list(ids), pa.large_binary())


def in_pieces(rows: dict[bytes, list[int]], size: int, *, width: int = WIDTH) -> Iterator[Records]:
    """In the order of ids, so many at a time."""
    ids = sorted(rows)
    for start in range(0, len(ids), size):
        some = ids[start : start + size]
        yield cells(some), np.array([rows[one] for one in some], np.int32).reshape(-1, width)


def numbered(n: int) -> dict[bytes, list[int]]:
    return {b"patient-%03d" % i: [i, -i, 32768, -32768, i * i] for i in range(n)}


def written(folder: Path, *, size: int = 3, n: int = N, key: bytes = KEY) -> Snapshot:
    return write_snapshot(folder, key, ATTRIBUTES, in_pieces(numbered(n), size))


def all_of(snapshot: Snapshot) -> list[NDArray[np.int64]]:
    """Read in each way that there is."""
    list(snapshot.ids())
    list(snapshot.listed())
    for part in snapshot.parts():
        list(part.rows(lambda _: None))
    return [rows for _, rows in snapshot.records()]


@pytest.mark.parametrize("size", [1, 3, 99])
def test_what_is_written_is_read_in_order(tmp_path: Path, size: int) -> None:
    made, expected = written(tmp_path, size=size), numbered(N)
    assert made.n == N
    assert ids_of(made) == sorted(expected)
    assert rows_of(made) == expected
    assert b"".join(made.listed()) == length_prefixed(cells(sorted(expected)))
    assert [len(ids) for ids in made.ids()] == [size] * (N // size) + ([N % size] if N % size else [])
    assert [rows.dtype for rows in all_of(made)] == [np.int64] * -(-N // size)


@pytest.mark.parametrize("pieces", [1, 2, 64])
def test_parts_have_all_rows_once_by_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: int) -> None:
    monkeypatch.setattr(snapshot_module, "PART_PIECES", pieces)
    parts, seen = written(tmp_path, size=2).parts(), list[int]()
    assert len(parts) == -(-4 // pieces)
    sent = [pickle.loads(pickle.dumps(part)) for part in parts]  # noqa: S301 - ours
    for each in (parts, sent):
        found = [pair for part in each for ranks, rows in part.rows(seen.append) for pair in both(ranks, rows)]
        assert found == list(enumerate(numbered(N).values()))
    assert max(seen) == min(N, 2 * pieces)


def both(ranks: NDArray[np.int64], rows: NDArray[np.int64]) -> Iterator[tuple[int, list[int]]]:
    return zip(ranks.tolist(), rows.tolist(), strict=True)


@pytest.mark.parametrize(
    ("chosen", "places"),
    [((), [0, 1, 2, 3, 4]), ((BINARY,), [4]), ((LEVELS, GAPS), [2, 3, 0, 1]), ((BINARY, LEVELS), [4, 2, 3])],
)
def test_chosen_attributes_come_in_the_order_of_the_choice(
    tmp_path: Path, chosen: tuple[Attribute, ...], places: list[int]
) -> None:
    made = written(tmp_path).choose(chosen)
    expected = np.array(list(numbered(N).values()))[:, places]
    assert np.array_equal(np.vstack([rows for _, rows in made.records()]), expected)
    (part,) = made.parts()
    assert np.array_equal(np.vstack([rows for _, rows in part.rows(lambda _: None)]), expected)
    sent = pickle.loads(pickle.dumps(part))  # noqa: S301 - ours
    assert np.array_equal(sent.held, expected)


CUTS = Intervals(lower=0, upper=10, cuts=(2.5, 5, 9))
CUT = CategoricalAttribute(name="x", levels=CUTS.levels, missing="indicator", intervals=CUTS)


@given(st.lists(st.one_of(st.none(), st.floats(-1, 11), st.sampled_from([2.5, 5, 9, np.nan, np.inf])), max_size=20))
def test_intervals_of_a_snapshot_are_those_of_the_cells(cells_of_x: list[float | None]) -> None:
    ids = [f"p{i:03}" for i in range(len(cells_of_x))]
    columns = {"id": column(ids, pa.string()), "x": column(cells_of_x, pa.float64())}
    with TemporaryDirectory() as folder:
        made = snapshot_of(Path(folder), columns, GAPS, strict=False).choose([CUT])
        read = [rows for _, rows in made.records()]
        sent = [pickle.loads(pickle.dumps(part)).held for part in made.parts()]  # noqa: S301 - ours
    expected = encode_attribute(CUT, columns["x"]).columns
    for found in (read, sent):
        assert np.array_equal(np.vstack([np.empty((0, 4), np.int64), *found]), expected)


MARKED = BINARY.model_copy(update={"missing": "indicator"})
PAIRS = Crossed(name="x by b", cross=(CUT, MARKED)).as_levels
GARBAGE = (None, "", "no", "yes", "maybe", "NA", b"\xff", "1e999", "nan", "-inf", "7.5", "2.5", "9", "zebra" * 999, "1")


CELLS_OF_TWO = st.lists(st.tuples(st.sampled_from(GARBAGE), st.sampled_from(GARBAGE)), max_size=20)


def read_of(pairs: list[tuple[Any, Any]], *chosen: Attribute) -> tuple[dict[str, Any], NDArray[np.int64]]:
    """Columns of these cells of x and b, and the chosen attributes of their snapshot."""
    x, b = ([as_bytes(pair[i]) for pair in pairs] for i in (0, 1))
    ids = column([f"p{i:03}" for i in range(len(pairs))], pa.string())
    columns = {"id": ids, "b": column(b, pa.binary()), "x": column(x, pa.binary())}
    width = len(encoded_columns(chosen))
    with TemporaryDirectory() as folder:
        made = snapshot_of(Path(folder), columns, MARKED, GAPS, strict=False).choose(chosen)
        return columns, np.vstack([np.empty((0, width), np.int64), *(rows for _, rows in made.records())])


@given(CELLS_OF_TWO)
def test_pairs_of_a_snapshot_are_those_of_the_cells_and_of_numpy(pairs: list[tuple[Any, Any]]) -> None:
    columns, found = read_of(pairs, PAIRS, GAPS)
    direct = encode_attribute(PAIRS, *cells_for(PAIRS, columns))
    assert np.array_equal(found[:, :8], direct.columns)
    assert np.array_equal(found[:, 8:], encode_attribute(GAPS, columns["x"]).columns)
    expected = np.array([pair_of(*pair) for pair in pairs], np.int64)
    hot = np.eye(9, dtype=np.int64)[expected]  # the mark is the last, the reference the first
    assert np.array_equal(direct.columns, 32768 * hot.reshape(-1, 9)[:, 1:])
    assert direct.gaps.tolist() == (expected == 8).tolist()
    for i, alone in enumerate(zip(columns["x"], columns["b"], strict=True)):
        own = [pa.array([cell.as_py()], pa.binary()) for cell in alone]
        assert encode_attribute(PAIRS, *own).columns.tolist() == [found[i, :8].tolist()]


@given(
    CELLS_OF_TWO, st.sets(st.sampled_from(CUTS.levels), min_size=1), st.sets(st.sampled_from(["no", "yes"]), min_size=1)
)
def test_people_of_subsets_are_those_whose_own_cells_say_so(
    pairs: list[tuple[Any, Any]], x: set[str], b: set[str]
) -> None:
    where = (Subset(attribute=CUT, levels=tuple(x)), Subset(attribute=MARKED, levels=tuple(b)))
    columns, _ = read_of(pairs, GAPS)
    with TemporaryDirectory() as folder:
        made = snapshot_of(Path(folder), columns, MARKED, GAPS, strict=False).choose((GAPS,), where)
        read = [(ids.to_pylist(), rows) for ids, rows in made.records()]
    wanted = {CUTS.levels.index(level) * 2 + ["no", "yes"].index(other) for level in x for other in b}
    kept = [i for i, pair in enumerate(pairs) if pair_of(*pair) in wanted]  # 8 is the mark of those who lack either
    assert [subject for ids, _ in read for subject in ids] == [f"p{i:03}".encode() for i in kept]
    cells_kept = encode_attribute(GAPS, columns["x"]).columns[kept]
    assert np.array_equal(np.vstack([np.empty((0, 2), np.int64), *(rows for _, rows in read)]), cells_kept)


SQUARED = Product(name="x x b", product=(GAPS, GAPS, MARKED)).as_number


@given(CELLS_OF_TWO)
def test_products_of_a_snapshot_are_those_of_the_cells_and_of_numpy(pairs: list[tuple[Any, Any]]) -> None:
    columns, found = read_of(pairs, SQUARED)
    assert np.array_equal(found, encode_attribute(SQUARED, *cells_for(SQUARED, columns)).columns)
    for (value, mark), (number, level) in zip(found.tolist(), pairs, strict=True):
        missing = pair_of(number, level) == 8
        assert mark == 32768 * missing
        x_within = np.clip(float(number) / 5 - 1, -1, 1) if not missing else 0
        assert value == pytest.approx(
            32768 * (2 * x_within**2 - 1) * (0 if missing else pair_of(9, level) - 6.5) * 2, abs=3
        )


def as_bytes(cell: Any) -> bytes | None:
    return cell.encode() if isinstance(cell, str) else cell


def pair_of(x: Any, b: Any) -> int:
    """Of four intervals and two levels; 8 where either is missing."""
    try:
        number = float(x)
    except (TypeError, ValueError):
        return 8
    if np.isnan(number) or b not in {"no", "yes"}:
        return 8
    return 2 * int(np.digitize(number, CUTS.cuts)) + int(b == "yes")


@pytest.mark.parametrize("odd", GARBAGE)
def test_garbage_in_one_row_leaves_the_pairs_and_products_of_all_others_alone(tmp_path: Path, odd: Any) -> None:
    """Neighbouring files: one person's two cells are whatever they like."""

    def rows(x: Any, b: Any) -> NDArray[np.int64]:
        columns = {
            "id": column(["p0", "p1", "p2"]),
            "x": column([b"1", as_bytes(x), b"9"], pa.binary()),
            "b": column([b"yes", as_bytes(b), b"no"], pa.binary()),
        }
        made = snapshot_of(tmp_path, columns, GAPS, MARKED, strict=False).choose([PAIRS, SQUARED])
        return np.vstack([rows for _, rows in made.records()])

    usual, other = rows("3", "no"), rows(odd, odd)
    assert np.array_equal(usual[[0, 2]], other[[0, 2]])
    assert (np.sort(other[1, :8])[:-1] == 0).all()
    assert other[1, :8].max() in {0, 32768}
    assert (np.abs(other[1, 8]) + other[1, 9]).item() <= 32768


@pytest.mark.parametrize(
    "other", [NUMBER, GAPS.model_copy(update={"upper": 1000}), GAPS.model_copy(update={"name": "y"})]
)
def test_attribute_that_it_was_not_encoded_by_is_not_chosen(tmp_path: Path, other: Attribute) -> None:
    """By its name alone it would be read with other bounds, or in another's columns."""
    with pytest.raises(ValueError, match="not encoded by"):
        written(tmp_path).choose((BINARY, other))


def test_snapshot_of_nobody_is_read_as_such(tmp_path: Path) -> None:
    made = write_snapshot(tmp_path, KEY, ATTRIBUTES, iter(()))
    assert (made.n, ids_of(made), made.parts()) == (0, [], [])


def test_neither_name_nor_representation_follows_from_the_rows_or_tells_the_key(tmp_path: Path) -> None:
    one, other = written(tmp_path), written(tmp_path / "other", n=3)
    assert one.digest == other.digest == snapshot_digest(KEY) == one.path.name
    assert written(tmp_path, key=bytes(32)).digest != one.digest
    said = f"{one!r}{one.parts()!r}"
    assert repr(KEY) not in said
    assert KEY.hex() not in said
    assert "patient" not in said
    held = HeldRows(0, np.full((2, 1), 7351973))
    assert "7351973" not in repr(held)


def test_file_shows_neither_id_nor_row_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    made = write_snapshot(tmp_path / "s", KEY, (NUMBER,), in_pieces({b"patient": [0x53454E54]}, 1, width=1))
    data = made.path.read_bytes()
    assert b"patient" not in data
    assert b"TNES" not in data
    assert made.path.stat().st_mode & 0o077 == 0


# What becomes of a file


def piece_places(data: bytes) -> list[tuple[int, int]]:
    """Where the pieces begin and end, heads and all."""
    found, at = list[tuple[int, int]](), 0
    while at < len(data):
        end = at + 16 + int.from_bytes(data[at : at + 8], "big")
        found.append((at, end))
        at = end
    return found


def test_flipped_byte_or_lost_end_is_noticed_wherever_it_is(tmp_path: Path) -> None:
    made = written(tmp_path, size=2, n=4)
    data = made.path.read_bytes()
    heads = {at + i for at, _ in piece_places(data) for i in range(16)}
    for place in sorted(heads | set(range(0, len(data), 11)) | {len(data) - 1}):
        for changed in (flipped(data, place), data[:place]):
            made.path.write_bytes(changed)
            with pytest.raises(LostError):
                list(made.records())
    made.path.write_bytes(data)
    assert len(all_of(made)) == 2


def with_counts_of_others(pieces: list[bytes]) -> list[bytes]:
    """As many subjects together as before."""
    counts = ((2).to_bytes(8, "big"), (4).to_bytes(8, "big"))
    changed = [piece[:8] + count + piece[16:] for piece, count in zip(pieces, counts, strict=False)]
    return [*changed, pieces[2]]


OTHER_PIECES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "swapped": lambda pieces: [pieces[1], pieces[0], pieces[2]],
    "twice": lambda pieces: [pieces[0], pieces[0], pieces[2]],
    "one behind": lambda pieces: [*pieces, pieces[-1]],
    "without one": lambda pieces: pieces[1:],
    "with an empty one": lambda pieces: [*pieces, bytes(16)],
    "with counts of others": with_counts_of_others,
    "of a size that no file has": lambda pieces: [*pieces[:2], b"\xff" * 8 + pieces[2][8:]],
}


@pytest.mark.parametrize("change", OTHER_PIECES)
def test_pieces_that_are_not_those_that_were_written_are_noticed(tmp_path: Path, change: str) -> None:
    made = written(tmp_path)
    data = made.path.read_bytes()
    made.path.write_bytes(b"".join(OTHER_PIECES[change]([data[start:end] for start, end in piece_places(data)])))
    with pytest.raises(LostError):
        all_of(made)


def test_other_key_and_file_of_another_snapshot_under_this_name_open_nothing(tmp_path: Path) -> None:
    made, other = written(tmp_path), written(tmp_path, key=bytes(32))
    with pytest.raises(LostError, match="lost or damaged") as lost:
        list(replace(made, key=other.key).records())
    assert "party datasets read" in lost.value.remedy
    assert "patient" not in lost.value.diagnostics()
    made.path.write_bytes(other.path.read_bytes())
    with pytest.raises(LostError):
        list(made.ids())


@pytest.mark.parametrize("n", [N - 1, N + 1, 0])
def test_another_number_of_subjects_than_was_kept_is_noticed_before_a_row_is_read(tmp_path: Path, n: int) -> None:
    made = replace(written(tmp_path), n=n)
    for read in (made.ids, made.records, made.parts, made.listed):
        with pytest.raises(LostError):
            next(iter(read()))


def test_file_that_was_removed_or_replaced_by_a_folder_is_lost(tmp_path: Path) -> None:
    made = written(tmp_path)
    parts = made.parts()
    made.path.unlink()
    with pytest.raises(LostError):
        made.ids()
    with pytest.raises(LostError):
        list(parts[0].rows(lambda _: None))
    with pytest.raises(LostError):
        pickle.dumps(parts[0])
    made.path.mkdir()
    with pytest.raises(LostError):
        list(made.records())


def test_piece_that_was_damaged_after_parts_were_made_is_noticed_with_whatever_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_module, "PART_PIECES", 1)
    made = written(tmp_path)
    parts, data = made.parts(), made.path.read_bytes()
    made.path.write_bytes(flipped(data, piece_places(data)[2][1] - 1))
    assert [len(rows) for part in parts[:2] for _, rows in part.rows(lambda _: None)] == [3, 3]
    for read in (lambda: list(parts[2].rows(lambda _: None)), lambda: pickle.dumps(parts[2])):
        with pytest.raises(LostError):
            read()


def test_reading_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def records() -> Iterator[Records]:
        yield from in_pieces(numbered(4), 2)
        raise OSError(28, os.strerror(28))

    with pytest.raises(OSError, match="space"):
        write_snapshot(tmp_path, KEY, ATTRIBUTES, records())
    assert list(tmp_path.iterdir()) == []


# What workers are given


def test_worker_is_given_rows_alone(tmp_path: Path) -> None:
    made = written(tmp_path)
    part = made.parts()[0]
    assert isinstance(part, RankedRows)
    data = pickle.dumps(part)
    assert b"patient" not in data
    assert KEY not in data
    assert str(tmp_path).encode() not in data
    sent = pickle.loads(data)  # noqa: S301 - ours
    assert isinstance(sent, HeldRows)
    made.path.unlink()
    told: list[int] = []
    ((ranks, rows),) = sent.rows(told.append)
    assert list(both(ranks, rows)) == list(enumerate(numbered(N).values()))
    assert told == [N]


# A fixed list of subjects

ID = st.binary(min_size=1, max_size=2)
IDS = st.sets(ID | st.sampled_from([b"a", b"aa", b"b", b"\xff"]), max_size=12)
SIZE = st.integers(1, 5)


@given(listed=IDS, found=IDS, sizes=st.tuples(SIZE, SIZE))
def test_listed_subjects_keep_their_places_whoever_is_found(
    listed: set[bytes], found: set[bytes], sizes: tuple[int, int]
) -> None:
    now = {one: [i, -i, i, i, i] for i, one in enumerate(sorted(found), start=1)}
    subjects = (ids for ids, _ in in_pieces(dict.fromkeys(listed, [0] * WIDTH), sizes[0]))
    made = list(with_subjects(subjects, in_pieces(now, sizes[1]), ATTRIBUTES))
    pairs = [pair for ids, rows in made for pair in zip(ids.to_pylist(), rows.tolist(), strict=True)]
    gone = missing_row(ATTRIBUTES).tolist()
    assert pairs == [(one, now.get(one, gone)) for one in sorted(listed)]
    assert all(rows.dtype == np.dtype("<i4") for _, rows in made)


def test_list_survives_any_number_of_readings(tmp_path: Path) -> None:
    """Somebody who comes back has a row again: gone is no property of the list."""
    first = snapshot_of(tmp_path, {"id": column(["a", "b", "c"]), "x": column([1.0, 2.0, 3.0])}, GAPS, piece=2)
    second = write_snapshot(
        tmp_path, b"2" * 32, (GAPS,), with_subjects(first.ids(), in_pieces({b"b": [5, 6]}, 1, width=2), (GAPS,))
    )
    third = write_snapshot(
        tmp_path, b"3" * 32, (GAPS,), with_subjects(second.ids(), in_pieces(rows_of(first), 1, width=2), (GAPS,))
    )
    assert rows_of(second) == {b"a": missing_row((GAPS,)).tolist(), b"b": [5, 6], b"c": missing_row((GAPS,)).tolist()}
    assert rows_of(third) == rows_of(first)


def test_row_of_missing_cells_is_that_of_a_table_whose_cells_are_missing(tmp_path: Path) -> None:
    nothing = pa.array([None, None], pa.string())
    columns: dict[str, Any] = {"id": column(["a", "b"]), "x": nothing, "b": nothing, "c": nothing}
    read = snapshot_of(tmp_path, columns, *ATTRIBUTES, strict=False)
    assert list(rows_of(read).values()) == [missing_row(ATTRIBUTES).tolist()] * 2
