"""`commingle coordinator audit` and `doctor`: what others can hold this coordinator to, and its health."""

from collections import Counter
from pathlib import Path
from typing import Any

import click

from commingle.coordinator.coordinator import export_audit
from commingle.coordinator.doctor import examine_home
from commingle.coordinator.home import CoordinatorHome, open_coordinator
from commingle.shared.documents.model import encode
from commingle.shared.release.audit import CoordinatorHistory, verify_coordinator_audit
from commingle.shared.runtime.cli import emit, json_option
from commingle.shared.runtime.doctor import report
from commingle.shared.runtime.files import NOT_COMPARED, read_history, write_durably
from commingle.shared.runtime.settings import system_clock
from commingle.shared.runtime.tls import ca_option, http_option
from commingle.shared.text import quoted

_FOR_EVERYONE = 0o644

home_option = click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    envvar="COMMINGLE_COORDINATOR_HOME",
    help="The coordinator's directory (or COMMINGLE_COORDINATOR_HOME).",
)


@click.group()
def audit() -> None:
    """Export this coordinator's history for an auditor, or verify one."""


@audit.command("export", epilog="Example: commingle coordinator audit export --home hub --out audit-hub.json")
@home_option
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The file to write.")
@json_option
def export_file(*, home: Path, out: Path, as_json: bool) -> None:
    """Write the chain of all events, under the coordinator's signature."""
    with open_coordinator(home) as hub:
        data = encode(export_audit(hub))
    history = verify_coordinator_audit(data)
    write_durably(out, data, mode=_FOR_EVERYONE)
    _emit(history, {"file": str(out)}, f"{len(history.events)} events in {out}", as_json=as_json)


@audit.command("verify", epilog="Example: commingle coordinator audit verify audit-hub.json --key 3f7a…")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--key", metavar="FINGERPRINT", help="The coordinator's key, known from elsewhere.")
@json_option
def verify_file(*, file: Path, key: str | None, as_json: bool) -> None:
    """Check a coordinator's history offline: its chain, its memberships and its signature."""
    history = read_history(file, verify_coordinator_audit, key=key)
    said = f"Everything holds in the history of {quoted(history.audit.coordinator)}, key {history.signer}"
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
    kinds = dict(Counter(event.kind for event in history.events))
    value = {**more, "entries": len(history.events), "kinds": kinds, "head": history.audit.head}
    value["members"] = {
        name: {"keys": list(keys), "revoked": name in history.revoked} for name, keys in history.members.items()
    }
    emit(value, as_json=as_json, text=f"{said}\n{kinds}\nhead {history.audit.head}")
