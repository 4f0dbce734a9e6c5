"""What can be wrong around a coordinator. Nothing is migrated, so a new version can look before it is started."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import get_args

from commingle.coordinator.blobs import Blobs
from commingle.coordinator.errors import StorageError
from commingle.coordinator.home import CoordinatorHome, CoordinatorSettings
from commingle.coordinator.store.database import Database, as_recorded, check_url
from commingle.coordinator.store.releases import FACTS, ReleaseRow, ShareRow, SignedKind
from commingle.coordinator.store.store import Store, Transaction, pending_migration
from commingle.shared.documents.keys import VerifyingKey
from commingle.shared.documents.linkage import open_identity
from commingle.shared.documents.manifest import Manifest
from commingle.shared.documents.model import decode
from commingle.shared.documents.statements import AlignmentStatement, BlockStatement, SignedDocument
from commingle.shared.release.audit import EventEntry
from commingle.shared.release.checks import read_spec
from commingle.shared.release.rounds import Alignment, State
from commingle.shared.runtime.doctor import Check, UnhealthyError, clock_skew, disk_space, look, private_files
from commingle.shared.runtime.files import load_signing_key
from commingle.shared.runtime.remote import call, connect, json_of
from commingle.shared.runtime.settings import load_settings
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
                raise StorageError(
                    f"what is recorded of {what[:30]} is not what the events tell",
                    remedy=_CHANGED,
                )
    return f"what is recorded of {len(told)} releases and members is what the events tell"


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
            return f"files of {count} published releases are there and as they were published"


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
