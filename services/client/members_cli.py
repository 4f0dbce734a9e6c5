"""`commingle members`: a coordinator's log of member keys, checked and compared with the one seen before."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from commingle.services.client.options import CoordinatorAccess, access_options
from commingle.services.errors import ReleaseDirectoryError
from commingle.shared.release.member_log import VerifiedLog
from commingle.shared.runtime.cli import emit, json_option
from commingle.shared.runtime.files import write_durably

_FOR_EVERYONE = 0o644
_WHAT_IT_IS = (
    "A name here is what a key calls itself. Compare your own keys with this list, and the head with what others see: "
    "keys that nobody knows, or two heads, mean that the coordinator makes up members."
)


@click.command(
    epilog="""\b
Examples:
  commingle members https://hub.example.org --coordinator-key FINGERPRINT --cache ./cache
  commingle members https://hub.example.org --member charite=FINGERPRINT --out release/audit-members.json
"""
)
@click.argument("url", metavar="URL")
@access_options
@click.option(
    "--cache",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep the log here, and refuse one that does not continue the one kept.",
)
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Also write the signed log, for `commingle verify`."
)
@json_option
def members(*, url: str, access: CoordinatorAccess, cache: Path | None, out: Path | None, as_json: bool) -> None:
    """Show every key that a coordinator has had for every member, as one signed chain."""
    with access.client(url, cache=cache) as client:
        known, signed = client.member_log()
    if out is not None:
        _write(out, signed)
    emit(
        _log_dict(known, access.members, pinned=access.coordinator_key is not None),
        as_json=as_json,
        text=lambda console: _print_log(console, known, access.members),
    )


def _write(file: Path, data: bytes) -> None:
    try:
        write_durably(file, data, mode=_FOR_EVERYONE)
    except OSError as error:
        raise ReleaseDirectoryError(
            f"cannot write to {file} ({error.strerror})", remedy="Choose a directory you may write to."
        ) from None


def _log_dict(known: VerifiedLog, pins: Mapping[str, str], *, pinned: bool) -> dict[str, Any]:
    return {
        "coordinator": known.signer,
        "coordinator_pinned": pinned,
        "head": known.log.head,
        "entries": [
            {**entry.model_dump(mode="json"), "pinned": pins.get(entry.party) == entry.key} for entry in known.entries
        ],
        "members": {
            name: {"keys": list(keys), "revoked": name in known.revoked} for name, keys in known.members.items()
        },
        "replaced": _replaced(known, pins),
    }


def _replaced(known: VerifiedLog, pins: Mapping[str, str]) -> list[str]:
    """Members that have been given another key since the pinned one."""
    return [name for name, key in pins.items() if known.members.get(name, (key,))[-1] != key]


def _print_log(console: Console, known: VerifiedLog, pins: Mapping[str, str]) -> None:
    table = Table("when", "what", "calls itself", "key", "after")
    for entry in known.entries:
        key = f"{entry.key}{' (pinned)' if pins.get(entry.party) == entry.key else ''}"
        table.add_row(f"{entry.at:%Y-%m-%d %H:%M}", entry.kind, entry.party, key, entry.previous[:16])
    console.print(table)
    for name in _replaced(known, pins):
        console.print(Text(f"{name} has another key since the pinned one: ask whether it replaced it.", style="yellow"))
    console.print(f"Signed by {known.signer}\nhead {known.log.head}\n{_WHAT_IT_IS}", highlight=False, soft_wrap=True)
