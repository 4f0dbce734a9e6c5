import os
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import pytest

from commingle.coordinator.blobs import BlobDirectory
from commingle.coordinator.errors import StorageError


def test_stored_bytes_come_back_under_their_digest(tmp_path: Path) -> None:
    blobs = BlobDirectory(tmp_path / "blobs")
    digest = blobs.put(b"block")
    assert digest == sha256(b"block").hexdigest()
    assert blobs.put(b"block") == digest
    with blobs.open(digest) as file:
        assert file.read() == b"block"


def test_file_of_another_size_is_replaced(tmp_path: Path) -> None:
    blobs = BlobDirectory(tmp_path / "blobs")
    digest = blobs.put(b"block")
    next(path for path in (tmp_path / "blobs").rglob("*") if path.is_file()).write_bytes(b"half")
    assert blobs.put(b"block") == digest
    with blobs.open(digest) as file:
        assert file.read() == b"block"


def test_unknown_digest_is_a_storage_fault(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        BlobDirectory(tmp_path).open("0" * 64)


def test_scratch_file_leaves_no_trace(tmp_path: Path) -> None:
    with BlobDirectory(tmp_path).scratch() as file:
        file.write(b"half a block")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_directory_without_write_permission_fails_its_check(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError, match="Permission denied"):
        BlobDirectory(tmp_path).check()
    tmp_path.chmod(0o700)


def test_what_is_kept_for_a_release_is_dropped_with_it_and_with_no_other(tmp_path: Path) -> None:
    blobs = BlobDirectory(tmp_path)
    assert blobs.running_releases() == ()
    for release, text in (("one", b"columns" * 1_000_000), ("one", b"again"), ("two", b"other")):
        blobs.put_running(release, "name", BytesIO(text))
    assert sorted(blobs.running_releases()) == ["one", "two"]
    with blobs.open_running("one", "name") as file:
        assert file.read() == b"again"
        blobs.remove_running("one")
        blobs.remove_running("one")
    assert blobs.running_releases() == ("two",)
    with pytest.raises(StorageError):
        blobs.open_running("one", "name")
    with blobs.open_running("two", "name") as file:
        assert file.read() == b"other"
