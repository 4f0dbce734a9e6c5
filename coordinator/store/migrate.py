"""Bringing the tables up to date when a coordinator starts."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util.exc import CommandError

from commingle.coordinator.errors import StorageError, UnreachableDatabaseError
from commingle.coordinator.store.database import Database

_SCRIPTS = Path(__file__).parent / "migrations"


def migrate(database: Database) -> None:
    """Upgrade to the newest revision in one transaction. Replicas that start together take turns: there is one writer.

    Raises:
        UnreachableDatabaseError: the database cannot be reached.
        StorageError: it was written by a newer version.
    """
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    try:
        with database.writing() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    except CommandError:
        raise StorageError(
            "the database was written by another version of Commingle",
            remedy="Start the version that wrote it, or a newer one.",
        ) from None
    except StorageError as error:
        cause = getattr(error.__cause__, "orig", None) or error.__cause__
        said = (str(cause).splitlines() or [""])[0]
        raise UnreachableDatabaseError(
            f"cannot open the database: {said}", remedy="Check that it runs, its URL and its permissions."
        ) from None
