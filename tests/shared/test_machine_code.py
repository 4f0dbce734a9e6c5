"""Loops are compiled elsewhere, kept, and called without numba."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from commingle.shared.ring.residues import kernels

USE = (
    "import sys\n"
    "import numpy as np\n"
    "from commingle.shared.errors import CommingleError\n"
    "from commingle.shared.ring.residues import forward\n"
    "rows = np.arange(16, dtype=np.uint32).reshape(1, 16)\n"
    "try:\n"
    "    forward(rows, 97)\n"
    "except CommingleError as error:\n"
    "    sys.exit(f'{error.code}: {error.remedy}')\n"
    "print('numba' in sys.modules, rows.sum())\n"
)


AT_ONCE = (
    "from concurrent.futures import ThreadPoolExecutor\n"
    "import numpy as np\n"
    "from commingle.shared.machine_code import loops\n"
    "def use(number):\n"
    "    for _ in range(200):\n"
    "        row, turned = np.zeros(8, np.uint32), np.zeros((8, 1), np.uint32)\n"
    "        loops('commingle.shared.ring.kernels').backward(row[None], row, row, turned, 97)\n"
    "    return id(loops('commingle.shared.ring.kernels'))\n"
    "with ThreadPoolExecutor(16) as pool:\n"
    "    print(len(set(pool.map(use, range(16)))))\n"
)
"""Threads that have nothing loaded yet."""


def use(cache: Path, *, path: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """A process that calls a loop: a folder for what is compiled, and one where modules are looked for first."""
    paths = [str(each) for each in (path, os.environ.get("PYTHONPATH")) if each]
    environment = {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": os.pathsep.join(paths)}
    return run(USE, environment)


def run(program: str, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    command, environment = [sys.executable, "-c", program], {**os.environ, **environment}
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment)


@pytest.fixture
def without_numba(tmp_path: Path) -> Path:
    """A folder whose `numba` cannot be imported."""
    folder = tmp_path / "path"
    folder.mkdir()
    (folder / "numba.py").write_text("raise ImportError")
    return folder


@pytest.mark.slow
def test_what_was_compiled_once_is_called_without_numba(tmp_path: Path, without_numba: Path) -> None:
    first = use(tmp_path / "cache")
    assert first.stdout.startswith("False ")
    assert use(tmp_path / "cache", path=without_numba).stdout == first.stdout


@pytest.mark.slow
def test_threads_that_ask_at_the_same_time_share_what_is_loaded() -> None:
    for _ in range(5):
        found = run(AT_ONCE, {})
        assert (found.returncode, found.stdout) == (0, "1\n"), found.stderr


@pytest.mark.slow
def test_file_that_is_cut_short_is_compiled_again(tmp_path: Path) -> None:
    first = use(tmp_path)
    (kept,) = tmp_path.iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(whole[:1000])
    assert use(tmp_path).stdout == first.stdout
    assert kept.read_bytes() == whole


def to_another_user(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    os.chown(path, 4711, 4711)


def as_a_link(path: Path) -> None:
    path.rename(path.with_suffix(".elsewhere"))
    path.symlink_to(path.with_suffix(".elsewhere"))


FOREIGN: dict[str, Callable[[Path], object]] = {
    "file of another user": to_another_user,
    "file that anybody may write": lambda path: path.chmod(0o666),
    "file that a group may write": lambda path: path.chmod(0o664),
    "file that is a link": as_a_link,
    "folder of another user": lambda path: to_another_user(path.parent),
    "folder that anybody may write": lambda path: path.parent.chmod(0o1777),
    "folder that a group may write": lambda path: path.parent.chmod(0o775),
}


@pytest.fixture(scope="module")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what is compiled."""
    folder = tmp_path_factory.mktemp("compiled")
    assert use(folder).stdout.startswith("False ")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("make_foreign", FOREIGN.values(), ids=FOREIGN)
def test_code_that_others_may_have_written_is_not_run(
    tmp_path: Path, compiled_once: Path, without_numba: Path, make_foreign: Callable[[Path], object]
) -> None:
    shutil.copytree(compiled_once, tmp_path / "cache")
    (kept,) = (tmp_path / "cache").iterdir()
    assert use(tmp_path / "cache", path=without_numba).stdout.startswith("False ")
    make_foreign(kept)
    refused = use(tmp_path / "cache", path=without_numba)
    assert refused.stderr.splitlines()[-1].startswith("kernels: "), "it was run"
    said = f"{kept} is not used, others may have written it: make it yours alone"
    assert said in refused.stderr or kept.is_symlink()


@pytest.mark.slow
def test_code_that_others_may_have_written_gives_way_to_ones_own(
    tmp_path: Path, compiled_once: Path, without_numba: Path
) -> None:
    shutil.copytree(compiled_once, tmp_path / "cache")
    (kept,) = (tmp_path / "cache").iterdir()
    kept.chmod(0o666)
    first = use(tmp_path / "cache")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o644
    assert use(tmp_path / "cache", path=without_numba).stdout == first.stdout


@pytest.mark.slow
def test_what_is_kept_can_be_written_by_nobody_else_whatever_the_umask(tmp_path: Path, without_numba: Path) -> None:
    before = os.umask(0o002)
    try:
        first = use(tmp_path / "new" / "cache")
    finally:
        os.umask(before)
    assert use(tmp_path / "new" / "cache", path=without_numba).stdout == first.stdout


@pytest.mark.slow
def test_without_a_folder_that_can_be_written_it_is_compiled_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert use(tmp_path / "file" / "below").stdout.startswith("False ")


@pytest.mark.slow
def test_missing_numba_is_a_fault_with_a_remedy(tmp_path: Path, without_numba: Path) -> None:
    refused = use(tmp_path / "cache", path=without_numba)
    assert refused.stderr.splitlines()[-1].startswith("kernels: Install numba")


@pytest.mark.parametrize(
    "rows",
    [
        np.zeros((2, 3, 4), np.uint32),
        np.zeros((2, 4), np.uint64),
        np.zeros((4, 2), np.uint32).T,
        np.broadcast_to(np.zeros(4, np.uint32), (2, 4)),
    ],
    ids=["dimensions", "type", "layout", "read only"],
)
def test_array_that_a_loop_was_not_compiled_for_is_refused(rows: NDArray[np.unsignedinteger]) -> None:
    row = np.zeros(4, np.uint32)
    with pytest.raises(TypeError, match="2 dimensions of uint32"):
        kernels().backward(rows, row, row, np.zeros((8, 1), np.uint32), 97)


def test_number_of_arguments_is_checked() -> None:
    with pytest.raises(ValueError, match="argument"):
        kernels().backward(np.zeros((2, 8), np.uint32))
