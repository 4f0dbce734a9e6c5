"""What can be wrong around a coordinator. Nothing is migrated, so a new version can look before it is started."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from commingle.coordinator.blobs import BlobDirectory
from commingle.coordinator.home import CoordinatorHome, CoordinatorSettings
from commingle.coordinator.store.database import Database, check_url
from commingle.coordinator.store.store import Store
from commingle.shared.release.rounds import State
from commingle.shared.runtime.doctor import Check, UnhealthyError, clock_skew, disk_space, look, private_files
from commingle.shared.runtime.files import load_signing_key
from commingle.shared.runtime.remote import call, connect, json_of
from commingle.shared.runtime.settings import load_settings

_TIMEOUT_SECONDS = 10.0
_PAGE = 200


def examine_home(
    home: CoordinatorHome, *, url: str | None, ca_file: Path | None, allow_http: bool = False, now: datetime
) -> Iterator[Check]:
    """Every check, in the order in which an operator would mend things; `url` is where the coordinator answers."""

    def settings() -> CoordinatorSettings:
        return load_settings(CoordinatorSettings, home.settings)

    def blobs() -> BlobDirectory:
        return BlobDirectory(home.blobs(settings()))

    yield look("settings", lambda: f"coordinator {settings().name}")
    yield look("keys", lambda: _keys(home))
    yield look("database", lambda: _with_store(home, settings(), _database))
    yield look("event chain", lambda: _with_store(home, settings(), _chain))
    yield look("blob directory", lambda: _blobs(blobs()))
    yield look("published files", lambda: _with_store(home, settings(), lambda _, store: _published(store, blobs())))
    yield look("disk space", lambda: disk_space(home.path))
    yield look("disk space for blobs", lambda: disk_space(home.blobs(settings())))
    if url is not None:
        yield look("service", lambda: _service(home, url, ca_file, now, allow_http=allow_http))


def _keys(home: CoordinatorHome) -> str:
    return f"{private_files([home.signing_key])}; fingerprint {load_signing_key(home.signing_key).fingerprint}"


@contextmanager
def _open_store(home: CoordinatorHome, settings: CoordinatorSettings) -> Iterator[tuple[Database, Store]]:
    url = home.database_url(settings)
    parsed = check_url(url)
    if parsed.get_backend_name() == "sqlite" and not Path(str(parsed.database)).exists():
        raise UnhealthyError(
            f"there is no database {parsed.database}", remedy="Restore it, or start the coordinator for the first time."
        )
    database = Database(url)
    try:
        yield database, Store(database)
    finally:
        database.close()


def _with_store(home: CoordinatorHome, settings: CoordinatorSettings, check: Callable[[Database, Store], str]) -> str:
    with _open_store(home, settings) as (database, store):
        return check(database, store)


def _database(database: Database, _: Store) -> str:
    return database.check()


def _chain(_: Database, store: Store) -> str:
    with store.read() as tx:
        bodies, head = tx.events.chain()
    return f"{len(bodies)} events, head {head}"


def _blobs(blobs: BlobDirectory) -> str:
    blobs.check()
    return "can be written and read"


def _published(store: Store, blobs: BlobDirectory) -> str:
    """Whether the files of every published release are there. Raises StorageError."""
    before, count = None, 0
    while True:
        with store.read() as tx:
            page = tx.releases.page(state=State.PUBLISHED, before=before, limit=_PAGE)
            found = [tx.releases.get(summary.facts.id) for summary in page.items]
        for release in found:
            if release is not None and release.files is not None:
                for digest in (release.files.manifest, release.files.matrix, release.files.moments):
                    blobs.open(digest).close()
                count += 1
        if (before := page.next) is None:
            return f"files of {count} published releases are there"


def _service(home: CoordinatorHome, url: str, ca_file: Path | None, now: datetime, *, allow_http: bool) -> str:
    with connect(url, timeout_seconds=_TIMEOUT_SECONDS, ca_file=ca_file, allow_http=allow_http) as http:
        call(http, "GET", "/readyz")
        answer = call(http, "GET", "/v1/coordinator")
    shown = json_of(answer)
    key = load_signing_key(home.signing_key).verifying_key.raw.hex()
    if not isinstance(shown, dict) or shown.get("signing_key") != key:
        raise UnhealthyError(
            f"{url} answers with another key than this home's", remedy="Check the address and which --home it serves."
        )
    return f"{url} is ready and has this home's key; {clock_skew(answer, now)}"
