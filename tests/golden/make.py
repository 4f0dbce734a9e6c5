"""Writes the frozen documents. The tests only read them.

Usage, at the root of the repository: python -m tests.golden.make [--draw] [--keep]

With --draw what depends on the operating system or on a library's version is made anew, too; with --keep the whole
artefacts of `artefacts`.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.golden import artefacts, documents, figures, records, world

HERE = Path(__file__).parent
FILES = (
    *(f"release_{name}" for name in (*world.RELEASES, *world.KEYED)),
    "exchange",
    "exchange_trusted",
    "records",
    "encoding",
    "plans",
    "statements",
    "fits",
)
LOOSE = "forecasts"


def load(name: str) -> Any:
    """A frozen file."""
    return json.loads((HERE / f"{name}.json").read_text())


def build(name: str, drawn: world.Drawn) -> dict[str, Any]:
    """What a frozen file must hold."""
    if name.startswith("release_"):
        mechanism = name.removeprefix("release_")
        return {**documents.release(mechanism, drawn), "files": documents.files_of_pyarrow(mechanism, drawn)}
    makers: dict[str, Callable[[], dict[str, Any]]] = {
        "exchange": lambda: documents.exchange("proved"),
        "exchange_trusted": lambda: documents.exchange("trusted"),
        "records": lambda: records.everything(drawn),
        "encoding": lambda: {**figures.encoding(), **figures.arithmetic()},
        "plans": figures.plans,
        "statements": figures.statements,
        "fits": lambda: figures.fits(drawn),
        LOOSE: figures.forecasts,
    }
    return makers[name]()


def draw() -> world.Drawn:
    """Box, nonce and files as they come out now."""
    return {
        "pyarrow": pa.__version__,
        "linkage": records.sealed_linkage_key().hex(),
        "request": records.sign_request(),
        "bodies": {m: {n: b.hex() for n, b in world.bodies_of(m).items()} for m in (*world.RELEASES, *world.KEYED)},
        "matrices": {m: world.parquet_of(m).hex() for m in (*world.RELEASES, *world.KEYED)},
    }


def write(name: str, content: object) -> None:
    """As JSON that shows in a diff what has changed."""
    (HERE / f"{name}.json").write_text(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def main() -> None:
    """Write every file."""
    if "--draw" in sys.argv:
        write("drawn", draw())
    if "--keep" in sys.argv:
        artefacts.keep()
    drawn = load("drawn")
    for name in (*FILES, LOOSE):
        write(name, build(name, drawn))


if __name__ == "__main__":
    main()
