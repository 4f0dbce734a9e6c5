"""Files that belong to a study, as commands take them: a study names each with its SHA-256, and holds none."""

from hashlib import file_digest
from pathlib import Path

import click

from commingle.shared.documents.spec import Attachment
from commingle.shared.documents.study import Study
from commingle.shared.runtime.cli import A_FILE
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.files import open_plain

attach_option = click.option(
    "--attach",
    "files",
    type=A_FILE,
    multiple=True,
    help="A file that belongs to the study. The proposal names it and its SHA-256, and does not hold it. Repeatable.",
)


def with_attachments(study: Study, files: tuple[Path, ...]) -> Study:
    """The study with the digests of these files among its attachments. Raises SettingsError: one cannot be read."""
    attached = tuple(Attachment(name=file.name, sha256=_digest(file)) for file in files)
    return study.model_copy(update={"attachments": (*(study.attachments or ()), *attached) or None})


def _digest(path: Path) -> str:
    try:
        with open_plain(path) as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise SettingsError(f"cannot read {path} ({error.strerror})", remedy="Check the path.") from None
