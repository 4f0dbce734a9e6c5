"""What a coordinator's home directory holds, and the coordinator it makes."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from commingle.coordinator.blobs import BlobDirectory, Blobs
from commingle.coordinator.coordinator import Coordinator, Quotas
from commingle.coordinator.store.store import open_store
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.files import Disks, close_to_others, load_signing_key
from commingle.shared.runtime.settings import ServiceSettings, load_settings, system_clock
from commingle.shared.runtime.sso import SsoSettings

_SHARES = 4  # of the disk: so many members' quotas fill it


def _named(path: Path) -> Path:
    if not path.name:  # the current directory, as an empty variable says, or the root of the file system
        raise ValueError("is to be the path of a directory of its own")
    return path


class CoordinatorSettings(ServiceSettings):
    """HOME/settings.json, and what the environment says in its place (docs/settings.md).

    Attributes:
        name: what people call this coordinator.
        database_url: `postgresql://...`; None means SQLite in the home directory.
        blob_directory: where blocks and published files are kept; replicas share it. None means HOME/blobs.
        blob_bucket: S3-compatible storage in its place, `s3://BUCKET/PREFIX`.
        retention_days: how long we keep sealed linkage keys, and documents of a release that came to nothing.
        most_proposals: the most open proposals of one member, and the most ended ones that we keep whole.
        largest_message_bytes: the largest body that a party sends; a release that needs larger ones is refused.
        release_bytes: all that one release may take while it runs; it follows from its spec.
        member_bytes: all that releases of one proposer may take; None means a quarter of the disk, in a bucket 256 GiB.
        reserve_bytes: the space to keep free on the disks of the home directory and of bodies.
        public_reads: whether anyone may read; if not, a member's signature or a token of scope `read` is needed.
        sso: the provider that signs people on to the console; its scope `decide` has no effect there.
    """

    prefix = "COMMINGLE_COORDINATOR"
    name: Annotated[str, Field(min_length=1, max_length=80)] = "coordinator"
    database_url: SecretStr | None = None
    blob_directory: Annotated[Path, AfterValidator(_named)] | None = None
    blob_bucket: str | None = None
    public_reads: bool = True
    retention_days: Annotated[float, Field(ge=1, le=3650)] = 30.0
    most_proposals: Annotated[int, Field(ge=1)] = 50
    largest_message_bytes: Annotated[int, Field(ge=1)] = 16 << 30
    release_bytes: Annotated[int, Field(ge=1)] = 64 << 30
    member_bytes: Annotated[int, Field(ge=1)] | None = None
    reserve_bytes: Annotated[int, Field(ge=0)] = 2 << 30
    sso: SsoSettings | None = None


@dataclass(frozen=True, slots=True)
class CoordinatorHome:
    path: Path

    @property
    def settings(self) -> Path:
        return self.path / "settings.json"

    @property
    def signing_key(self) -> Path:
        return self.path / "keys" / "signing.key"

    def secure(self, settings: CoordinatorSettings) -> None:
        """Close every directory here to others; a blob directory elsewhere is its operator's. Raises KeyFileError."""
        blobs = self.path / "blobs"
        own = (blobs,) if settings.blob_directory is None and blobs.is_dir() else ()
        for directory in (self.path, self.signing_key.parent, *own):
            close_to_others(directory)

    def blob_directory(self, settings: CoordinatorSettings) -> Path:
        return settings.blob_directory or self.path / "blobs"

    def blobs(self, settings: CoordinatorSettings) -> Blobs:
        if settings.blob_bucket is None:
            return BlobDirectory(self.blob_directory(settings))
        if settings.blob_directory is not None:
            raise SettingsError("blobs are in a directory or in a bucket", remedy="Remove one of them from settings.")
        from commingle.coordinator.bucket_blobs import BlobBucket  # noqa: PLC0415 - loads Arrow's file systems

        return BlobBucket(settings.blob_bucket)

    def disks(self, settings: CoordinatorSettings) -> Disks:
        """The disks of the home and of bodies, which on their way to a bucket are in the folder for temporary files."""
        bodies = Path(tempfile.gettempdir()) if settings.blob_bucket else self.blob_directory(settings)
        return Disks((self.path, bodies), settings.reserve_bytes)

    def quotas(self, settings: CoordinatorSettings) -> Quotas:
        member = settings.member_bytes
        if member is None and settings.blob_bucket is None:
            member = Disks((self.blob_directory(settings),), 0).total_bytes // _SHARES
        quotas = Quotas(message=settings.largest_message_bytes, release=settings.release_bytes)
        return quotas if member is None else replace(quotas, member=member)

    def has_files(self, settings: CoordinatorSettings) -> bool:
        return any(True for _ in self.blobs(settings).old(datetime.max.replace(tzinfo=UTC)))

    def database_url(self, settings: CoordinatorSettings) -> str:
        if settings.database_url is not None:
            return settings.database_url.get_secret_value()
        return f"sqlite:///{self.path.resolve() / 'coordinator.sqlite'}"


@contextmanager
def open_coordinator(path: Path, *, patient: bool = False) -> Iterator[Coordinator]:
    """The coordinator of a home directory, over its database and files; `patient` as in `open_store`."""
    home = CoordinatorHome(path)
    settings = load_settings(CoordinatorSettings, home.settings)
    key = load_signing_key(home.signing_key)
    home.secure(settings)
    store = open_store(home.database_url(settings), patient=patient, has_files=lambda: home.has_files(settings))
    try:
        yield Coordinator(
            settings.name,
            key,
            store,
            home.blobs(settings),
            system_clock,
            public_reads=settings.public_reads,
            retention=timedelta(days=settings.retention_days),
            most_proposals=settings.most_proposals,
            quotas=home.quotas(settings),
            disks=home.disks(settings),
        )
    finally:
        store.close()
