"""Commands that keep a coordinator in order: `audit`, `doctor`, `backup`, `restore` and `console`.

A backup is a home in one file: database, blobs, settings and key; messages of running exchanges never. The database is
copied first and the blobs after it: files that a release needs are only ever added, so every one that the database
names is then in the copy.
"""

import shutil
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import click

from commingle.coordinator.cli import examples, home_option
from commingle.coordinator.coordinator import export_audit
from commingle.coordinator.doctor import examine_home
from commingle.coordinator.home import CoordinatorHome, CoordinatorSettings, open_coordinator
from commingle.coordinator.store.database import check_url
from commingle.shared.documents.model import encode
from commingle.shared.release.audit import CoordinatorHistory, verify_coordinator_audit
from commingle.shared.runtime.archive import copy_sqlite, reading_archive, writing_archive
from commingle.shared.runtime.cli import A_FILE, NEW_FILE, emit, json_option
from commingle.shared.runtime.doctor import report
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.files import NOT_COMPARED, load_signing_key, read_history, write_durably
from commingle.shared.runtime.middleware import configure_logging
from commingle.shared.runtime.settings import load_settings, system_clock
from commingle.shared.runtime.sso import Place, console_options, require_sso
from commingle.shared.runtime.tls import ca_option, http_option
from commingle.shared.text import quoted

_FOR_EVERYONE = 0o644
_DATABASE, _DUMP = "coordinator.sqlite", "coordinator.dump"
_BLOBS = f"{'[0-9a-f]' * 2}/{'[0-9a-f]' * 64}"


@click.group()
def audit() -> None:
    """Export this coordinator's history for an auditor, or verify one."""


@audit.command("export", epilog="Example: commingle coordinator audit export --home hub --out audit-hub.json")
@home_option
@click.option("--out", type=NEW_FILE, required=True, help="The file to write.")
@json_option
def export_file(*, home: Path, out: Path, as_json: bool) -> None:
    """Write the chain of all events, under the coordinator's signature."""
    with open_coordinator(home) as hub:
        data = encode(export_audit(hub))
    history = verify_coordinator_audit(data)
    write_durably(out, data, mode=_FOR_EVERYONE)
    _emit(history, {"file": str(out)}, f"{len(history.entries)} events in {out}", as_json=as_json)


@audit.command("verify", epilog="Example: commingle coordinator audit verify audit-hub.json --key 3f7a…")
@click.argument("file", type=NEW_FILE)
@click.option("--key", metavar="FINGERPRINT", help="The coordinator's key, known from elsewhere.")
@json_option
def verify_file(*, file: Path, key: str | None, as_json: bool) -> None:
    """Check a coordinator's history offline: its chain, its memberships and its signature."""
    history = read_history(file, verify_coordinator_audit, key=key)
    said = f"Everything holds in the history of {quoted(history.chain.coordinator)}, key {history.signer}"
    known = "" if key is not None else f"\n{NOT_COMPARED}"
    _emit(history, {"signer": history.signer, "signer_known": key is not None}, said + known, as_json=as_json)


@click.command(epilog="Example: commingle coordinator doctor --home hub --coordinator https://hub.example.org")
@home_option
@click.option("--coordinator", "url", help="Where it should answer; left out, only the home is checked.")
@ca_option
@http_option
@json_option
def doctor(*, home: Path, url: str | None, ca_file: Path | None, allow_http: bool, as_json: bool) -> None:
    """Check home, database, blobs and disk, and say how to fix problems. Exit code 1 if there are any."""
    checks = examine_home(CoordinatorHome(home), url=url, ca_file=ca_file, allow_http=allow_http, now=system_clock())
    report(checks, as_json=as_json)


def _emit(history: CoordinatorHistory, more: dict[str, Any], said: str, *, as_json: bool) -> None:
    kinds = dict(Counter(event.kind for event in history.entries))
    counted = ", ".join(f"{kind}: {count}" for kind, count in kinds.items()) or "nothing yet"
    value = {**more, "entries": len(history.entries), "kinds": kinds, "head": history.chain.head}
    value["members"] = {
        name: {"keys": list(keys), "revoked": name in history.revoked} for name, keys in history.members.items()
    }
    emit(value, as_json=as_json, text=f"{said}\n{counted}\nhead {history.chain.head}")


def write_backup(home: CoordinatorHome, out: Path, *, dump: Path | None = None) -> int:
    """Write everything a coordinator is restored from to a tar file that only its owner reads; how many files.

    Args:
        home: of the coordinator, which may run meanwhile.
        out: the file.
        dump: what `pg_dump --format=custom` has written just before, where the database is PostgreSQL.
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
        settings = load_settings(CoordinatorSettings, restored.settings)
        load_signing_key(restored.signing_key)
        dumped = (folder / _DUMP).exists()
        if not dumped and not (folder / _DATABASE).exists():
            raise SettingsError(f"{file} is no backup of a coordinator", remedy="It has no database in it.")
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
    help="A dump of PostgreSQL, made just before: pg_dump --format=custom.",
)
@json_option
def backup(*, file: Path, home: Path, dump: Path | None, as_json: bool) -> None:
    """Back up database, blobs, settings and key to FILE, even while the coordinator runs. It holds a private key."""
    count = write_backup(CoordinatorHome(home), file, dump=dump)
    emit(
        {"file": str(file), "files": count},
        as_json=as_json,
        text=f"{count} files in {file}. It holds a private key: keep it as safe as the home.",
    )


@click.command(epilog=examples("restore /backup/hub-2026-03-01.tar --home hub"))
@click.argument("file", type=A_FILE)
@home_option
@json_option
def restore(*, file: Path, home: Path, as_json: bool) -> None:
    """Restore a backup into HOME, which must not exist."""
    load = f'pg_restore --clean --if-exists --dbname="$DATABASE_URL" {home / _DUMP}'
    dumped = restore_backup(file, CoordinatorHome(home))
    begin = [f"commingle coordinator {command} --home {home}" for command in ("doctor", "serve")]
    following = [*([load] if dumped else []), *begin]
    emit(
        {"home": str(home), "next": following},
        as_json=as_json,
        text=f"{home} restored. Then, in this order: {'; '.join(following)}",
    )


@click.command(epilog=examples("console --home hub"))
@home_option
@console_options
def console(*, home: Path, place: Place) -> None:
    """Follow members and rounds in a browser.

    A link is printed that works once, on this machine. With --sso many people sign on, from anywhere. Ctrl-C ends the
    console. It reads the coordinator's database and changes nothing.
    """
    from commingle.coordinator.console.app import create_console  # noqa: PLC0415 - help needs no FastAPI
    from commingle.shared.runtime.pages.doors import (  # noqa: PLC0415 - as above
        Session,
        run_console,
        run_sso_console,
    )

    with open_coordinator(home) as hub:
        make = partial(create_console, hub)
        if place.sso:
            settings = CoordinatorHome(home).settings
            configure_logging(service="coordinator_console")
            run_sso_console(make, require_sso(load_settings(CoordinatorSettings, settings).sso, str(settings)), place)
        else:
            run_console(make, Session(), port=place.port, command="commingle coordinator console")
