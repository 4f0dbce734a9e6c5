"""Loops in C are called from the library of the package, by what each says it takes, and nothing is compiled."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from commingle.shared import loops as library
from commingle.shared.ring.parameters import STANDARD
from commingle.shared.ring.residues import kernels, roots

PACKAGE = Path(library.__file__).parent
PRIME = STANDARD.primes[0]
USE = (
    "import sys\n"
    "import numpy as np\n"
    "sys.addaudithook(lambda event, told: print(event, *told[:1]) if event in SEEN else None)\n"
    "from commingle.shared.errors import CommingleError\n"
    "from commingle.shared.mechanisms.rows.sketch import mixed_rows\n"
    "from commingle.shared.ring.residues import forward\n"
    "print(type(mixed_rows(None, bytes(32), k=8, d=2)).__name__)\n"
    "rows = np.arange(16, dtype=np.uint32).reshape(1, 16)\n"
    "try:\n"
    "    forward(rows, 97)\n"
    "except CommingleError as error:\n"
    "    sys.exit(f'{error.code}: {error.remedy}')\n"
    "print(rows.sum())\n"
)


def use(package: Path, folder: Path, *, seen: tuple[str, ...] = ()) -> "subprocess.CompletedProcess[str]":
    """A process that works in a folder calls a loop of the package in another; audit events it prints."""
    environment = {"PATH": "", "HOME": str(folder), "NUMBA_CACHE_DIR": str(folder), "PYTHONPATH": str(package)}
    command = [sys.executable, "-B", "-c", f"SEEN = {seen!r}\n{USE}"]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd=folder)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A copy of the package, to be put on the path."""
    folder = tmp_path / "installed"
    (folder / "commingle").mkdir(parents=True)
    (folder / "commingle" / "__init__.py").write_text("")
    shutil.copytree(PACKAGE, folder / "commingle" / "shared", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.slow
def test_first_use_starts_no_process_and_loads_the_library_of_the_package_alone(
    tmp_path: Path, installed: Path
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    for place in (folder, folder / "__pycache__", folder / ".cache" / "commingle"):  # where it used to be looked for
        place.mkdir(parents=True, exist_ok=True)
        (place / library.LIBRARY.name).write_bytes(b"what somebody else put here")
    before = sorted(folder.rglob("*"))
    done = use(installed, folder, seen=("subprocess.Popen", "os.posix_spawn", "os.fork", "os.exec", "ctypes.dlopen"))
    assert done.returncode == 0, done.stderr
    events = [line for line in done.stdout.splitlines() if "." in line]
    loaded = [line.split()[-1] for line in events if line.startswith("ctypes.dlopen") and not line.endswith("None")]
    assert loaded == [str(installed / "commingle" / "shared" / library.LIBRARY.name)]
    assert {line.split()[0] for line in events} == {"ctypes.dlopen"}
    assert sorted(folder.rglob("*")) == before


@pytest.mark.slow
def test_package_without_its_library_says_so_and_uses_numpy_where_that_will_do(tmp_path: Path, installed: Path) -> None:
    (installed / "commingle" / "shared" / library.LIBRARY.name).unlink()
    done = use(installed, tmp_path)
    assert done.stdout == "Projection\n"
    assert done.stderr.splitlines()[-1].startswith("kernels: Install Commingle from a wheel")
    assert done.stderr.count("compiled arithmetic is not available") == 1


@pytest.mark.slow
def test_library_for_another_machine_is_as_none(tmp_path: Path, installed: Path) -> None:
    (installed / "commingle" / "shared" / library.LIBRARY.name).write_bytes(b"\x7fELF of another machine")
    assert use(installed, tmp_path).stderr.splitlines()[-1].startswith("kernels: ")


def levels() -> list[str]:
    """Those that this processor has."""
    if platform.machine().lower() not in {"x86_64", "amd64"}:
        return ["base"]
    return list(library.LEVELS[: library.LEVELS.index(library.level()) + 1])


def words(*shape: int, seed: int = 0) -> NDArray[np.uint32]:
    return np.random.default_rng([*shape, seed]).integers(0, PRIME, shape, np.uint32)


def largest(*shape: int) -> NDArray[np.uint32]:
    return np.full(shape, PRIME - 1, np.uint32)


def small(*shape: int, limit: int = 1 << 15) -> NDArray[np.int32]:
    return np.random.default_rng(shape).integers(-limit, limit, shape, np.int32, endpoint=True)


def totals(*shape: int) -> NDArray[np.uint64]:
    return np.zeros(shape, np.uint64)


def stage(degree: int) -> NDArray[np.uint32]:
    return np.zeros((8, degree // 8), np.uint32)


def transformed(n: int, copies: int, power: int) -> tuple[Any, ...]:
    return words(3, n), *roots(power, PRIME).forward, stage(n), PRIME, copies


def transformed_back(n: int, power: int) -> tuple[Any, ...]:
    return words(3, n), *roots(power, PRIME).backward, stage(n), PRIME


def pairs(n: int) -> tuple[Any, ...]:
    return totals(2, 3, n), words(5, 2, n), largest(5, 3, n), PRIME


def combined(n: int) -> tuple[Any, ...]:
    return totals(3, n), largest(3, 40), largest(40, n), PRIME


def block() -> tuple[Any, ...]:
    streams, entries = np.random.default_rng(1).integers(0, 1 << 63, (8, 8, 6), np.uint64), small(2, 64, 8)
    return streams, entries, np.zeros((2, 8, 800), np.int64), totals(4, 8, 6), np.zeros(8192, np.int32), 7


def weighted() -> tuple[Any, ...]:
    starts = np.array([0, 3, 3, 5], np.int32)
    return np.zeros((4, 4)), starts, np.array([0, 2, 3, 1, 2], np.int32), np.array([0.1, 0.7, 1 / 3])


def correlated() -> tuple[Any, ...]:
    draw = np.random.default_rng(2)
    R, left = np.corrcoef(draw.normal(size=(7, 30))), draw.uniform(-1, 1, 7)
    return R, np.zeros(7), left, np.array([0.1, 0.2]), 5


INVERSE = -pow(PRIME, -1, 1 << 32) % (1 << 32)
FACTOR = (1 << 32) % PRIME, ((1 << 32) % PRIME << 32) // PRIME
CALLS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "ring.forward 8": partial(transformed, 8, 1, 8),
    "ring.forward 16, twice": partial(transformed, 16, 2, 16),
    "ring.forward 64": partial(transformed, 64, 1, 64),
    "ring.forward 64, of 256": partial(transformed, 64, 1, 256),
    "ring.forward 2048, four times": partial(transformed, 2048, 4, 2048),
    **{f"ring.backward {n}": partial(transformed_back, n, n) for n in (8, 16, 64, 2048)},
    "ring.backward 64, of 256": partial(transformed_back, 64, 256),
    "ring.remainders": lambda: (words(77), totals(77) + ((PRIME << 32) - 1), PRIME, INVERSE, *FACTOR),
    **{f"ring.add_products {n}": partial(pairs, n) for n in (1, 13, 300)},
    "ring.add_windows": lambda: (np.zeros((12, 3), np.int64), small(2, 3, 64), small(2, 3, 16), 4, PRIME),
    "proving.scale": lambda: (words(3, 21), 12345, (12345 << 32) // PRIME, PRIME),
    "proving.transpose": lambda: (words(37, 20), 3, np.zeros((11, 37), np.uint32)),
    **{f"proving.add_combinations {n}": partial(combined, n) for n in (1, 13, 600)},
    "proving.add_squares": lambda: (totals(3, 77), words(3, 9), largest(9, 77), words(32), PRIME, INVERSE),
    "proving.add_products": lambda: (totals(3, 77), words(4, 3, 77), words(4, 1, 77, seed=1), PRIME),
    "rows.add_block": block,
    "estimation.add_pairs": weighted,
    "estimation.descend": correlated,
}
"""Of every loop, with lengths that are no multiple of what is computed at once."""


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_all_levels_of_this_processor_make_the_same_bits(call: Callable[[], tuple[Any, ...]], request: Any) -> None:
    room, _, rest = request.node.callspec.id.partition(".")
    made = []
    for level in levels():
        arguments = call()
        getattr(library.loops(room, at=level), rest.split(" ")[0])(*arguments)
        made.append([each.tobytes() for each in arguments if isinstance(each, np.ndarray)])
    assert all(each == made[0] for each in made)
    assert made[0] != [each.tobytes() for each in call() if isinstance(each, np.ndarray)]


def test_every_loop_of_the_library_is_among_those() -> None:
    sources = [path.read_text() for path in PACKAGE.rglob("*.c")]
    written = {line[5:].partition(",")[0] for text in sources for line in text.splitlines() if line.startswith("LOOP(")}
    assert written == {name.partition(" ")[0].replace(".", "_") for name in CALLS}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (np.zeros((2, 3, 8), np.uint32), "2 dimensions of u4"),
        (np.zeros((2, 8), np.uint64), "2 dimensions of u4"),
        (np.zeros((8, 2), np.uint32).T, "2 dimensions of u4"),
        (np.broadcast_to(np.zeros(8, np.uint32), (2, 8)), "2 dimensions of u4"),
        (np.zeros((2, 16), np.uint32), r"u4\[m,n\], and not \(2, 16\)"),
    ],
    ids=["dimensions", "type", "layout", "read only", "size"],
)
def test_array_that_a_loop_does_not_take_is_refused(rows: NDArray[np.unsignedinteger], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        library.loops("proving").add_combinations(totals(1, 8), words(1, 2), rows, 97)


def test_number_of_arguments_is_checked() -> None:
    with pytest.raises(ValueError, match="argument"):
        kernels().backward(np.zeros((2, 8), np.uint32))


def test_loop_that_there_is_not_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="ring has no loop sideways"):
        _ = kernels().sideways


def test_library_is_not_older_than_its_sources() -> None:
    sources = [*PACKAGE.rglob("*.c"), Path(os.fspath(PACKAGE)).resolve().parent / "hatch_build.py"]
    newest = max(path.stat().st_mtime for path in sources)
    assert library.LIBRARY.stat().st_mtime >= newest, "run make: loops were changed and not built again"
