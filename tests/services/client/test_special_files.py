"""A folder that is said to be a release and holds what is no file, or one without an end: refused, and not read."""

import resource
import shutil
from pathlib import Path

import pytest

from commingle.services.client.files import ReleaseCache
from tests.world.command import Command
from tests.world.disks import SPECIAL, make_endless, make_special
from tests.world.released import published

FILES = ("manifest.json", "matrix.parquet", "moments.json")
COMMANDS = {"verify": (), "fit": ("--target", "charges, yearly")}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    published()[1].write(tmp_path / "release")
    return tmp_path / "release"


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", [*SPECIAL, "endless"])
def test_release_with_something_else_in_place_of_a_file_is_refused_at_once(
    directory: Path, run: Command, kind: str, name: str, command: str
) -> None:
    before = peak_bytes()
    make_endless(directory / name) if kind == "endless" else make_special(kind, directory / name)
    code, out, err = run(command, str(directory), *COMMANDS[command])
    assert (code, out) == (1, "")
    assert f"does not hold a release: cannot read {directory / name} (" in err
    assert peak_bytes() - before < 300 << 20


@pytest.mark.parametrize("kind", [*SPECIAL, "endless"])
def test_history_beside_a_release_that_is_no_plain_file_is_refused(directory: Path, run: Command, kind: str) -> None:
    path = directory / "audit-clinic.json"
    make_endless(path) if kind == "endless" else make_special(kind, path)
    err = run.refused("verify", str(directory))
    assert "audit-clinic.json" in err


@pytest.mark.parametrize("kind", [*SPECIAL, "endless"])
def test_cache_with_something_else_in_place_of_a_file_has_not_got_the_release(tmp_path: Path, kind: str) -> None:
    release, files = published()
    for digest in (*files.digests, f"../releases/{release}"):
        cache = ReleaseCache(tmp_path / "cache")
        cache.put(release, files)
        assert cache.get(release) == files
        path = (tmp_path / "cache" / "blobs" / digest).resolve()
        make_endless(path) if kind == "endless" else make_special(kind, path)
        assert cache.get(release) is None
        shutil.rmtree(tmp_path / "cache")


def test_manifest_that_is_none_is_refused_before_the_matrix_is_read(directory: Path, run: Command) -> None:
    (directory / "manifest.json").write_bytes(b"{}")
    make_endless(directory / "matrix.parquet")
    assert run("verify", str(directory))[0] == 1
