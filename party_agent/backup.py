"""A party's home in one file: ledger, settings, policy, pins and keys, and nothing that lives for one release only.

What an exchange keeps stays out of every backup: a backup outlives its release, and the secret of an exchange reads the
rows beside it and the ciphertexts that were sent (docs/proofs/linear-encryption.md, 4.5).
"""

import sqlite3
import tarfile
from contextlib import closing
from functools import partial
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from commingle.party_agent.compose import home_option
from commingle.party_agent.errors import ConflictError, LedgerError
from commingle.party_agent.home import Home
from commingle.shared.runtime.cli import emit, json_option
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.files import CACHE_TAG, write_durably

_KEPT = ("*.json", "*.key")
_LEFT_OUT = frozenset({"outbox"})
_PIECE = 1 << 20


def write_backup(home: Home, out: Path) -> tuple[str, ...]:
    """Write everything a party is restored from to a tar file that only its owner reads; the names in it.

    The agent may run meanwhile: SQLite copies the ledger as it is at one moment.

    Raises:
        SettingsError: not a party's home, or the file cannot be written.
        ConflictError: the file is there already, or keys or settings were changed meanwhile.
        LedgerError: the ledger cannot be copied.
    """
    home.settings()
    if out.exists():
        raise ConflictError(f"{out} exists already", remedy="Give every backup a name of its own.")
    files = _files(home)
    try:
        with TemporaryDirectory(dir=out.parent, prefix=".backup-") as folder:
            ledger = _copy_ledger(home.database, Path(folder) / home.database.name)
            if _files(home) != files:
                raise ConflictError("keys or settings were changed during the backup", remedy="Start it again.")
            _pack(files, ledger, Path(folder) / "tar")
            with (Path(folder) / "tar").open("rb") as file:
                write_durably(out, iter(partial(file.read, _PIECE), b""))
    except OSError as error:
        raise SettingsError(f"cannot write {out} ({error.strerror})", remedy="Check the path and the disk.") from None
    return (*files, home.database.name)


def _files(home: Home) -> dict[str, bytes]:
    """What is small, by its place in the home."""
    found = sorted({path for pattern in _KEPT for path in home.root.rglob(pattern) if path.is_file()})
    return {str(path.relative_to(home.root)): path.read_bytes() for path in found if _belongs(path, home.root)}


def _belongs(path: Path, root: Path) -> bool:
    above = path.relative_to(root)
    folders = [root / folder for folder in above.parents]
    return _LEFT_OUT.isdisjoint(above.parts) and not any((folder / CACHE_TAG).exists() for folder in folders)


def _copy_ledger(database: Path, copy: Path) -> Path:
    try:
        with (
            closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)  # one read transaction: what is written meanwhile waits or is not in it
            target.execute("PRAGMA journal_mode=DELETE")  # one file, without a log beside it
            (found,) = target.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        raise LedgerError(f"{database} cannot be copied ({error})", remedy="Run: commingle party doctor") from None
    if found != "ok":
        raise LedgerError(f"{database} is damaged: {found}", remedy="Run: commingle party doctor")
    return copy


def _pack(files: dict[str, bytes], ledger: Path, out: Path) -> None:
    with tarfile.open(out, "x") as tar, ledger.open("rb") as whole:
        for name, data in files.items():
            tar.addfile(_entry(name, len(data)), BytesIO(data))
        tar.addfile(_entry(ledger.name, ledger.stat().st_size), whole)


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o600
    return entry


@click.command(epilog="Example: commingle party backup /backup/ward-2026-03-01.tar --home ./ward")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@home_option
@json_option
def backup(*, file: Path, home: Path, as_json: bool) -> None:
    """Write ledger, settings, policy, pins and keys to FILE, also while the agent runs. It holds private keys."""
    names = write_backup(Home(home), file)
    emit(
        {"file": str(file), "holds": list(names)},
        as_json=as_json,
        text=lambda console: console.print(
            f"{len(names)} files in {file}. It holds private keys: keep it as safe as the home.",
            highlight=False,
            markup=False,
            soft_wrap=True,
        ),
    )
