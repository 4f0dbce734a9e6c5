"""Blobs in a directory and, slow, in a bucket: what both do, and what each does by itself."""

import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import pytest

from commingle.coordinator.blobs import BlobDirectory, Blobs
from commingle.coordinator.bucket_blobs import BlobBucket
from commingle.coordinator.errors import LostBlobError, StorageError
from commingle.coordinator.home import CoordinatorHome, CoordinatorSettings
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.settings import resolve
from tests.world.s3 import BUCKET, Storage, storage

LATER = datetime.now(UTC) + timedelta(days=1)
EARLIER = datetime(2000, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def server() -> Iterator[Storage]:
    with storage() as running:
        yield running


@pytest.fixture
def directory(tmp_path: Path) -> BlobDirectory:
    return BlobDirectory(tmp_path / "blobs")


@pytest.fixture
def bucket(server: Storage, tmp_path: Path) -> BlobBucket:
    return BlobBucket(server.address(f"hub/{tmp_path.name}"))


@pytest.fixture(params=["directory", pytest.param("bucket", marks=pytest.mark.slow)])
def blobs(request: pytest.FixtureRequest) -> Blobs:
    made: Blobs = request.getfixturevalue(request.param)
    return made


def test_stored_bytes_come_back_under_their_digest(blobs: Blobs) -> None:
    digest = blobs.put(b"block")
    assert digest == sha256(b"block").hexdigest()
    assert blobs.put(b"block") == digest
    blobs.require(digest)
    with blobs.open(digest) as file:
        assert file.read() == b"block"


def test_store_with_nothing_in_it_has_lost_nothing(blobs: Blobs) -> None:
    asked: tuple[Callable[[str], object], ...] = blobs.require, blobs.open
    for ask in asked:
        with pytest.raises(StorageError) as refused:
            ask("0" * 64)
        assert not isinstance(refused.value, LostBlobError)


def test_only_what_is_old_is_removed(blobs: Blobs) -> None:
    digest = blobs.put(b"block")
    blobs.put_running("release", "name", BytesIO(b"columns"))
    assert list(blobs.old(LATER)) == [digest]
    assert list(blobs.old(EARLIER)) == []
    assert not blobs.remove(digest, before=EARLIER)
    assert blobs.remove(digest, before=LATER)
    assert not blobs.remove(digest, before=LATER)
    assert blobs.remove_leftovers(LATER) == 0


def test_what_is_kept_for_a_release_is_dropped_with_it_and_with_no_other(blobs: Blobs) -> None:
    assert blobs.running_releases() == ()
    for release, text in (("one", b"columns" * 1_000_000), ("one", b"again"), ("two", b"other")):
        blobs.put_running(release, "name", BytesIO(text))
    assert sorted(blobs.running_releases()) == ["one", "two"]
    with blobs.open_running("one", "name") as file:
        assert file.read() == b"again"
    with blobs.open_running("one", "name"):  # somebody still reads
        blobs.remove_running("one")
        blobs.remove_running("one")
    assert blobs.running_releases() == ("two",)
    with pytest.raises(StorageError):
        blobs.open_running("one", "name")
    with blobs.open_running("two", "name") as file:
        assert file.read(3) == b"oth"


class Failing(BytesIO):
    def read(self, size: int | None = -1) -> bytes:
        if self.tell():
            raise OSError
        return super().read(size)


def test_upload_that_fails_half_way_leaves_nothing(blobs: Blobs) -> None:
    with pytest.raises(StorageError):
        blobs.put_running("release", "name", Failing(b"x" * (3 << 20)))
    with pytest.raises(StorageError):
        blobs.open_running("release", "name")


def test_file_of_another_size_is_replaced(directory: BlobDirectory, tmp_path: Path) -> None:
    digest = directory.put(b"block")
    next(path for path in (tmp_path / "blobs").rglob("*") if path.is_file()).write_bytes(b"half")
    assert directory.put(b"block") == digest
    with directory.open(digest) as file:
        assert file.read() == b"block"


def test_scratch_file_leaves_no_trace(directory: BlobDirectory, tmp_path: Path) -> None:
    with directory.scratch() as file:
        file.write(b"half a block")
        assert list((tmp_path / "blobs").iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_directory_without_write_permission_fails_its_check(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError, match="Permission denied"):
        BlobDirectory(tmp_path).check()
    tmp_path.chmod(0o700)


@pytest.mark.slow
def test_object_that_is_gone_or_was_altered_is_lost(server: Storage, bucket: BlobBucket, tmp_path: Path) -> None:
    kept, digest = bucket.put(b"kept"), bucket.put(b"block")
    server.client().put_object(Bucket=BUCKET, Key=f"hub/{tmp_path.name}/{digest}", Body=b"other")
    with pytest.raises(LostBlobError, match="damaged in the blob bucket"):
        bucket.open(digest)
    assert bucket.remove(digest, before=LATER)
    for ask in (bucket.require, bucket.open):
        with pytest.raises(LostBlobError, match="gone from the blob bucket"):
            ask(digest)
    bucket.require(kept)


@pytest.mark.slow
def test_scratch_and_check_leave_no_trace(server: Storage, bucket: BlobBucket, tmp_path: Path) -> None:
    with bucket.scratch() as file:
        file.write(b"half a block")
    bucket.check()
    listed = server.client().list_objects_v2(Bucket=BUCKET, Prefix=f"hub/{tmp_path.name}/").get("Contents", [])
    assert [one["Key"] for one in listed if one["Size"]] == []


@pytest.mark.slow
def test_bucket_that_refuses_is_a_storage_fault_without_its_address(server: Storage) -> None:
    refusing = BlobBucket(server.address("hub", bucket="elsewhere"))
    for call in (refusing.check, lambda: refusing.put(b"x"), lambda: refusing.require("0" * 64)):
        with pytest.raises(StorageError, match=r"the blob bucket does not work \(NO_SUCH_BUCKET\)") as refused:
            call()
        assert "127.0.0.1" not in refused.value.diagnostics()


@pytest.mark.parametrize("address", ["s3://key:hunter2@bucket/x", "https://bucket/x", "s3://", "bucket"])
def test_address_that_is_none_is_refused_without_repeating_it(address: str) -> None:
    with pytest.raises(SettingsError, match="s3://BUCKET/PREFIX") as refused:
        BlobBucket(address)
    assert "hunter2" not in refused.value.diagnostics()


def test_settings_name_a_directory_or_a_bucket(tmp_path: Path) -> None:
    home = CoordinatorHome(tmp_path)
    text = json.dumps({"blob_bucket": "s3://bucket/hub"})
    assert isinstance(home.blobs(CoordinatorSettings.model_validate_json(text)), BlobBucket)
    both = json.dumps({"blob_bucket": "s3://bucket/hub", "blob_directory": str(tmp_path)})
    with pytest.raises(SettingsError, match="or in a bucket"):
        home.blobs(CoordinatorSettings.model_validate_json(both))


@pytest.mark.parametrize("place", ["", ".", "/"])
def test_directory_is_none_in_which_a_process_or_the_system_has_other_files(place: str) -> None:
    said = {"COMMINGLE_COORDINATOR_BLOB_DIRECTORY": place}
    with pytest.raises(SettingsError, match="BLOB_DIRECTORY: blob_directory: is to be the path of a directory of its"):
        resolve(CoordinatorSettings, {}, "settings.json", said)
