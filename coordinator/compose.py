"""Putting a coordinator together from its home directory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from commingle.coordinator.blobs import BlobDirectory
from commingle.coordinator.coordinator import Coordinator
from commingle.coordinator.settings import CoordinatorSettings, Home
from commingle.coordinator.store.store import open_store
from commingle.shared.runtime.clock import system_clock
from commingle.shared.runtime.keyfiles import load_signing_key
from commingle.shared.runtime.settings import load_settings

home_option = click.option(
    "--home", type=click.Path(path_type=Path, file_okay=False), required=True, help="The coordinator's directory."
)


@contextmanager
def opened(home: Path, *, patient: bool = False) -> Iterator[Coordinator]:
    """A coordinator over its database and files; `patient` as in `open_store`.

    Raises:
        SettingsError, KeyFileError, StorageError: it cannot be opened.
    """
    at = Home(home)
    settings = load_settings(CoordinatorSettings, at.settings)
    key = load_signing_key(at.signing_key)
    store = open_store(at.database_url(settings), patient=patient)
    try:
        blobs = BlobDirectory(at.blobs(settings))
        yield Coordinator(settings.name, key, store, blobs, system_clock, settings.public_reads)
    finally:
        store.close()
