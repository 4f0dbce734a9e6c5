"""A party's home in one file: ledger, settings, policy, pins and keys, and nothing that lives for one release only.

What an exchange keeps stays out of every backup: a backup outlives its release, and the secret of an exchange reads the
rows beside it and the ciphertexts that were sent (docs/proofs/linear-encryption.md, 4.5).
"""

import sqlite3
from contextlib import closing
from pathlib import Path

import click

from commingle.party_agent.errors import ConflictError, LedgerError
from commingle.party_agent.home.home import Home
from commingle.party_agent.ledger.store import in_words, open_to_read, require_version, verify_ledger
from commingle.party_agent.operate.compose import home_option
from commingle.shared.runtime.archive import copy_sqlite, reading_archive, writing_archive
from commingle.shared.runtime.cli import A_FILE, NEW_FILE, changes, emit
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.files import CACHE_TAG

_KEPT = ("*.json", "*.key")
_LEFT_OUT = frozenset({"outbox"})


def write_backup(home: Home, out: Path) -> tuple[str, ...]:
    """Write everything a party is restored from to a tar file that only its owner reads; the names in it.

    The agent may run meanwhile: SQLite copies the ledger as it is at one moment.

    Raises:
        SettingsError: not a party's home, or the file cannot be written.
        ConflictError: the file is there already, or keys or settings were changed meanwhile.
        LedgerError: the ledger cannot be copied, or is damaged: nothing takes the place of sound backups.
    """
    population = home.settings().population
    if out.exists():
        raise ConflictError(f"{out} exists already", remedy="Give every backup a name of its own.")
    files = _files(home)
    with writing_archive(out) as (folder, add):
        try:
            ledger = copy_sqlite(home.database, folder / home.database.name)
        except SettingsError as error:
            raise LedgerError(str(error), remedy="Run: commingle party doctor") from None
        _verify(ledger, population, remedy="Run: commingle party doctor. Keep the backups that there are.")
        if _files(home) != files:
            raise ConflictError("keys or settings were changed during the backup", remedy="Start it again.")
        for name, data in files.items():
            add(name, data)
        add(ledger.name, ledger)
    return (*files, home.database.name)


def restore_backup(file: Path, home: Home) -> str:
    """Make a home of a backup; what its ledger holds, in words."""
    with reading_archive(file, home.root) as folder:
        restored = Home(folder)
        population = restored.settings().population
        restored.identity()
        if not restored.database.exists():
            raise SettingsError(f"{file} is not a member's backup", remedy="It has no ledger in it.")
        return _verify(restored.database, population, remedy="Restore another backup.")


def _verify(ledger: Path, population: str, *, remedy: str) -> str:
    try:
        with closing(open_to_read(ledger)) as db:
            require_version(db)
            return in_words(verify_ledger(db, population=population))
    except sqlite3.Error as error:
        raise LedgerError(f"the ledger is damaged ({type(error).__name__})", remedy=remedy) from None


def _files(home: Home) -> dict[str, bytes]:
    found = sorted({path for pattern in _KEPT for path in home.root.rglob(pattern) if path.is_file()})
    return {str(path.relative_to(home.root)): path.read_bytes() for path in found if _belongs(path, home.root)}


def _belongs(path: Path, root: Path) -> bool:
    above = path.relative_to(root)
    folders = [root / folder for folder in above.parents]
    return _LEFT_OUT.isdisjoint(above.parts) and not any((folder / CACHE_TAG).exists() for folder in folders)


@click.command(epilog="Example: commingle party backup /backup/ward-2026-03-01.tar --home ./ward")
@click.argument("file", type=NEW_FILE)
@home_option
@changes(file=str, holds=list[str])
def backup(*, file: Path, home: Home) -> None:
    """Back up ledger, settings, policy, pins and keys to FILE, even while the agent runs. It holds private keys."""
    names = write_backup(home, file)
    emit(
        {"file": str(file), "holds": list(names)},
        text=f"{len(names)} files in {file}. It holds private keys: keep it as safe as the home.",
    )


@click.command(epilog="Example: commingle party restore /backup/ward-2026-03-01.tar --home ./ward")
@click.argument("file", type=A_FILE)
@home_option
@changes(home=str, holds=str, next=list[str])
def restore(*, file: Path, home: Home) -> None:
    """Restore the newest backup into HOME, which must not exist. What was spent since is adopted afterwards."""
    holds = restore_backup(file, home)
    following = tuple(f"commingle party {command} --home {home.root}" for command in ("doctor", "adopt", "serve"))
    emit(
        {"home": str(home.root), "holds": holds, "next": list(following)},
        text=(
            f"{home.root} restored: {holds}. Then, in this order: {'; '.join(following)}. What was spent since the "
            "backup counts only once it is adopted."
        ),
    )
