"""Commands that keep a coordinator in order: `audit`, `doctor`, `backup`, `restore` and `console`.

A backup is a home in one file: database, blobs, settings and key; messages of running exchanges never. The database is
copied first and the blobs after it: files that a release needs are only ever added, so every one that the database
names is then in the copy.

The doctor migrates nothing, so a new version can look before it is started.
"""

import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, get_args

import click

from commingle.coordinator.blobs import Blobs
from commingle.coordinator.cli import examples, home_option
from commingle.coordinator.coordinator import export_audit
from commingle.coordinator.errors import StorageError
from commingle.coordinator.home import CoordinatorHome, CoordinatorSettings, open_coordinator
from commingle.coordinator.store.database import Database, as_recorded, check_url
from commingle.coordinator.store.releases import FACTS, ReleaseRow, ShareRow, SignedKind
from commingle.coordinator.store.store import Store, Transaction, pending_migration
from commingle.shared.documents.dsse import VerifyingKey
from commingle.shared.documents.linkage import open_identity
from commingle.shared.documents.manifest import Manifest
from commingle.shared.documents.model import decode, encode
from commingle.shared.documents.statements import AlignmentStatement, BlockStatement, SignedDocument
from commingle.shared.release.audit import CoordinatorHistory, EventEntry, verify_coordinator_audit
from commingle.shared.release.checks import read_spec
from commingle.shared.release.rounds import Alignment, State
from commingle.shared.runtime.archive import copy_sqlite, reading_archive, writing_archive
from commingle.shared.runtime.cli import A_FILE, NEW_FILE, LazyGroup, at_home, changes, emit, reads
from commingle.shared.runtime.doctor import Check, UnhealthyError, clock_skew, disk_space, look, private_files, report
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.files import NOT_COMPARED, load_signing_key, read_history, write_durably
from commingle.shared.runtime.remote import call, connect, json_of
from commingle.shared.runtime.settings import load_settings, system_clock
from commingle.shared.runtime.sso import Place, console_options, require_sso
from commingle.shared.runtime.telemetry import configure_logging
from commingle.shared.runtime.tls import RENEW, ca_option, ends_soon_at, http_option
from commingle.shared.text import counted, quoted
from commingle.shared.wire import ReleaseSummary

_TIMEOUT_SECONDS = 10.0
_PAGE = 200
_SIGNED: tuple[SignedKind, ...] = get_args(SignedKind)
_CHANGED = "Somebody has changed the database. Restore its backup and compare it with earlier exports."


def examine_home(
    home: CoordinatorHome, *, url: str | None, ca_file: Path | None, allow_http: bool = False, now: datetime
) -> Iterator[Check]:
    """Every check, in the order in which an operator would mend things; `url` is where the coordinator answers."""

    def settings() -> CoordinatorSettings:
        return load_settings(CoordinatorSettings, home.settings)

    def blobs() -> Blobs:
        return home.blobs(settings())

    yield look("settings", lambda: f"coordinator {settings().name}")
    yield look("keys", lambda: _keys(home))
    yield (database := look("database", lambda: _with_store(home, settings(), _database)))
    if database.ok:
        yield look("event chain", lambda: _with_store(home, settings(), _chain))
        yield look("recorded documents", lambda: _with_store(home, settings(), _documents))
    yield look("blobs", lambda: _blobs(blobs()))
    if database.ok:
        yield look(
            "published files", lambda: _with_store(home, settings(), lambda _, store: _published(store, blobs()))
        )
    yield look("disk space", lambda: disk_space(home.path))
    yield look("disk space for blobs", lambda: _blob_space(home, settings()))
    if url is not None:
        yield look("service", lambda: _service(home, url, ca_file, now, allow_http=allow_http))


def _keys(home: CoordinatorHome) -> str:
    return f"{private_files([home.signing_key])}; fingerprint {load_signing_key(home.signing_key).fingerprint}"


def _with_store(home: CoordinatorHome, settings: CoordinatorSettings, check: Callable[[Database, Store], str]) -> str:
    url = home.database_url(settings)
    parsed = check_url(url)
    if parsed.get_backend_name() == "sqlite" and not Path(str(parsed.database)).exists():
        raise UnhealthyError(
            f"there is no database {parsed.database}", remedy="Restore it, or start the coordinator for the first time."
        )
    with closing(Database(url)) as database:
        pending = pending_migration(database, has_files=lambda: home.has_files(settings))
        if check is not _database and pending is not None:
            return "looked at once the pending migration is done"
        return check(database, Store(database))


def _database(database: Database, _: Store) -> str:
    found, pending = database.check(), pending_migration(database)
    return found if pending is None else f"{found}; migration pending: {pending}; back up first"


def _chain(_: Database, store: Store) -> str:
    with store.read() as tx:
        bodies, head = tx.events.chain()
    return f"{len(bodies)} events, head {head}"


def _documents(_: Database, store: Store) -> str:
    with store.read() as tx:  # one view of all of it, while the coordinator goes on
        entries = [decode(EventEntry, body.encode()) for body in tx.events.chain()[0]]
        told: dict[str, list[EventEntry]] = {}
        for entry in entries:
            told.setdefault(entry.release or f"member {entry.party}", []).append(entry)
        for what, events in told.items():
            if events[0].release is None:
                agrees = _member_agrees(tx, events[0].party or "", events)
            else:
                found = tx.releases.get(what)
                agrees = found is not None and _agrees(found, events)
            if not agrees:
                raise StorageError(f"what is recorded of {what[:30]} is not what the events tell", remedy=_CHANGED)
    recorded = counted(len(told), "release or member", "releases and members")
    return f"what is recorded of {recorded} is what the events tell"


@as_recorded()
def _member_agrees(tx: Transaction, name: str, events: Sequence[EventEntry]) -> bool:
    member, keys = tx.members.get(name), tx.members.keys(name)
    if member is None:
        return False
    signing = VerifyingKey.from_hex(member.signing_key)
    if member.identity is not None:
        identity = open_identity(member.identity, signing, name=name).document
        if identity.sealing_key != member.sealing_key:
            return False
    had = {event.document for event in events}
    return (
        had == {key.fingerprint for key in keys} == {VerifyingKey.from_hex(k.signing_key).fingerprint for k in keys}
        and member.fingerprint == events[-1].document
        and (member.revoked is not None) == (events[-1].kind in {"revocation", "departure"})
        and (member.departure is not None) == (events[-1].kind == "departure")
    )


@as_recorded()
def _agrees(found: ReleaseRow, events: Sequence[EventEntry]) -> bool:
    recorded: set[tuple[str, str | None, str | None]] = {
        (kind, party, envelope.digest) for kind in _SIGNED for party, envelope in found.signed(kind).items()
    }
    if found.files is not None:
        recorded.add(("published", None, found.files.manifest))
    told = {(event.kind, event.party, event.document) for event in events if event.kind in {*_SIGNED, "published"}}
    shares = all(_follows(share) for share in found.shares.values())
    return recorded == told and shares and _as_specified(found) and found.state == events[-1].state


def _follows(share: ShareRow) -> bool:
    if share.body is not None and (
        share.block is None or decode(BlockStatement, share.block.payload_bytes).body_sha256 != share.body
    ):
        return False
    if share.approval is None:
        return share.aligned is None
    if share.alignment is None:
        return True
    stated = decode(AlignmentStatement, share.alignment.payload_bytes)
    return share.aligned == Alignment(stated.subjects, stated.digest)


def _as_specified(found: ReleaseRow) -> bool:
    if found.spec is None:
        return True
    spec = read_spec(found.spec.payload_bytes)
    said = dict(found.listed) | {name: getattr(spec, name) for name in FACTS}
    signers = {signature.keyid for signature in found.spec.signatures}
    return (
        found.spec.digest == found.listed.id
        and ReleaseSummary.model_validate(said) == found.listed
        and [party.name for party in spec.parties] == [*found.shares]
        and VerifyingKey.from_hex(found.proposer_key).fingerprint in signers
    )


def _blobs(blobs: Blobs) -> str:
    blobs.check()
    return "can be written and read"


def _blob_space(home: CoordinatorHome, settings: CoordinatorSettings) -> str:
    return "that of the bucket" if settings.blob_bucket else disk_space(home.blob_directory(settings))


def _published(store: Store, blobs: Blobs) -> str:
    before, count = None, 0
    while True:
        with store.read() as tx:
            page = tx.releases.page(state=State.PUBLISHED, before=before, limit=_PAGE)
            found = [tx.releases.get(summary.id) for summary in page.items]
        for release in found:
            if release is None or release.files is None:
                continue
            with blobs.open(release.files.manifest) as file:
                manifest = decode(SignedDocument, file.read()).open(Manifest).document
            if (manifest.matrix_sha256, manifest.moments_sha256) != (release.files.matrix, release.files.moments):
                raise StorageError(
                    f"the files of {release.listed.id[:30]} are not those of its manifest", remedy=_CHANGED
                )
            for digest in (release.files.matrix, release.files.moments):
                blobs.open(digest).close()
            count += 1
        if (before := page.next) is None:
            return f"files of {counted(count, 'published release')} are there and as they were published"


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
    at = answer.url
    if at.scheme == "https" and (said := ends_soon_at(at.host, at.port or 443, now, timeout_seconds=_TIMEOUT_SECONDS)):
        raise UnhealthyError(f"{url} is ready, and {said}", remedy=RENEW)
    return f"{url} is ready and has this home's key; {clock_skew(answer, now)}"


_FOR_EVERYONE = 0o644
_DATABASE, _DUMP = "coordinator.sqlite", "coordinator.dump"
_BLOBS = f"{'[0-9a-f]' * 2}/{'[0-9a-f]' * 64}"


_HISTORY: Mapping[str, object] = {"entries": int, "kinds": dict[str, int], "head": str, "members": dict[str, Any]}


@click.group(cls=LazyGroup)
def audit() -> None:
    """Export this coordinator's history for an auditor, or verify one."""


@audit.command("export", epilog="Example: commingle coordinator audit export --home hub --out audit-hub.json")
@home_option
@click.option("--out", type=NEW_FILE, required=True, help="The file to write.")
@changes({"file": str, **_HISTORY})
def export_file(*, home: Path, out: Path) -> None:
    """Write the chain of all events, under the coordinator's signature."""
    with open_coordinator(home) as hub:
        data = encode(export_audit(hub))
    history = verify_coordinator_audit(data)
    write_durably(out, data, mode=_FOR_EVERYONE)
    _emit(history, {"file": str(out)}, f"{len(history.entries)} events in {out}")


@audit.command("verify", epilog="Example: commingle coordinator audit verify audit-hub.json --key 3f7a…")
@click.argument("file", type=NEW_FILE)
@click.option("--key", metavar="FINGERPRINT", help="The coordinator's key, known from elsewhere.")
@reads({"signer": str, "signer_known": bool, **_HISTORY})
def verify_file(*, file: Path, key: str | None) -> None:
    """Check a coordinator's history offline: its chain, its memberships and its signature."""
    history = read_history(file, verify_coordinator_audit, key=key)
    said = f"Everything holds in the history of {quoted(history.chain.coordinator)}, key {history.signer}"
    known = "" if key is not None else f"\n{NOT_COMPARED}"
    _emit(history, {"signer": history.signer, "signer_known": key is not None}, said + known)


@click.command(epilog="Example: commingle coordinator doctor --home hub --coordinator https://hub.example.org")
@home_option
@click.option("--coordinator", "url", help="The URL to check as well.  [only the home is checked]")
@ca_option
@http_option
@reads(healthy=bool, checks=list[Check])
def doctor(*, home: Path, url: str | None, ca_file: Path | None, allow_http: bool) -> None:
    """Check home, database, blobs and disk, and say how to fix problems. Exit code 1 if there are any."""
    checks = examine_home(CoordinatorHome(home), url=url, ca_file=ca_file, allow_http=allow_http, now=system_clock())
    report(checks)


def _emit(history: CoordinatorHistory, more: dict[str, Any], said: str) -> None:
    kinds = dict(Counter(event.kind for event in history.entries))
    each = ", ".join(f"{kind}: {count}" for kind, count in kinds.items()) or "nothing yet"
    value = {**more, "entries": len(history.entries), "kinds": kinds, "head": history.chain.head}
    value["members"] = {
        name: {"keys": list(keys), "revoked": name in history.revoked} for name, keys in history.members.items()
    }
    emit(value, text=f"{said}\n{each}\nhead {history.chain.head}")


def write_backup(home: CoordinatorHome, out: Path, *, dump: Path | None = None) -> int:
    """Write everything a coordinator is restored from to a tar file that only its owner reads; how many files.

    It may run meanwhile. `dump`: what `pg_dump --format=custom` has written just before, of a PostgreSQL database.
    """
    settings = load_settings(CoordinatorSettings, home.settings)
    url = check_url(home.database_url(settings))
    with_sqlite = url.get_backend_name() == "sqlite"
    if with_sqlite is (dump is not None):
        raise SettingsError(
            "the database is SQLite, which is copied here" if with_sqlite else "the database is PostgreSQL",
            remedy="Leave --dump out."
            if with_sqlite
            else 'First: pg_dump --format=custom --file=coordinator.dump "$DATABASE_URL"; then give --dump.',
        )
    with writing_archive(out) as (folder, add):
        if dump is None:
            add(_DATABASE, copy_sqlite(Path(str(url.database)), folder / _DATABASE))
        else:
            add(_DUMP, dump)
        root = home.blob_directory(settings)  # nothing in it where blobs are in a bucket
        kept = [home.settings, *sorted(home.signing_key.parent.glob("*.key"))]
        files = {str(path.relative_to(home.path)): path for path in kept}
        files |= {f"blobs/{path.relative_to(root)}": path for path in sorted(root.glob(_BLOBS))}
        for name, path in files.items():
            add(name, path)
    return len(files) + 1


def restore_backup(file: Path, home: CoordinatorHome) -> bool:
    """Make a home of a backup. Whether the database has still to be restored from the dump in it."""
    with reading_archive(file, home.path) as folder:
        restored = CoordinatorHome(folder)
        dumped = (folder / _DUMP).exists()
        if not dumped and not (folder / _DATABASE).exists():
            raise SettingsError(
                f"{file} is not a coordinator's backup: it has no database in it",
                remedy="Give the file that commingle coordinator backup wrote.",
            )
        settings = load_settings(CoordinatorSettings, restored.settings)
        load_signing_key(restored.signing_key)
        elsewhere = settings.blob_directory
        if elsewhere is not None and (folder / "blobs").exists():
            if elsewhere.exists():
                raise SettingsError(f"there is something at {elsewhere} already", remedy="Move it aside.")
            shutil.move(folder / "blobs", elsewhere)
        return dumped


@click.command(epilog=examples("backup /backup/hub-2026-03-01.tar --home hub"))
@click.argument("file", type=NEW_FILE)
@home_option
@click.option(
    "--dump",
    type=A_FILE,
    help="A PostgreSQL dump that you made just before, by pg_dump --format=custom.",
)
@changes(file=str, files=int)
def backup(*, file: Path, home: Path, dump: Path | None) -> None:
    """Back up database, blobs, settings and key to FILE, even while the coordinator runs. It holds a private key."""
    count = write_backup(CoordinatorHome(home), file, dump=dump)
    emit(
        {"file": str(file), "files": count},
        text=f"{count} files in {file}. It holds a private key: keep it as safe as the home.",
    )


@click.command(epilog=examples("restore /backup/hub-2026-03-01.tar --home hub"))
@click.argument("file", type=A_FILE)
@home_option
@changes(home=str, next=list[str])
def restore(*, file: Path, home: Path) -> None:
    """Restore a backup into HOME, which must not exist."""
    load = f'pg_restore --clean --if-exists --dbname="$DATABASE_URL" {shlex.quote(str(home / _DUMP))}'
    dumped = restore_backup(file, CoordinatorHome(home))
    begin = [f"commingle coordinator {command} {at_home(home)}" for command in ("doctor", "serve")]
    following = [*([load] if dumped else []), *begin]
    emit({"home": str(home), "next": following}, text=f"{home} restored. Then, in this order: {'; '.join(following)}")


@click.command(epilog=examples("console --home hub"))
@home_option
@console_options
def console(*, home: Path, place: Place) -> None:
    """Follow members and rounds in a browser.

    A link is printed that works once, on this machine. With --sso many people sign on, from anywhere. Ctrl-C ends the
    console. It reads the coordinator's database and changes nothing.
    """
    from commingle.coordinator.http.console import create_console  # noqa: PLC0415 - help needs no FastAPI
    from commingle.shared.runtime.pages.doors import Session, run_console, run_sso_console  # noqa: PLC0415 - as above

    with open_coordinator(home) as hub:
        make = partial(create_console, hub)
        if place.sso:
            settings = CoordinatorHome(home).settings
            configure_logging(service="coordinator_console")
            run_sso_console(make, require_sso(load_settings(CoordinatorSettings, settings).sso, str(settings)), place)
        else:
            run_console(make, Session(), port=place.port, command="commingle coordinator console")
