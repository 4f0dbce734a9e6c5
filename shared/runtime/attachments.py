"""Files that belong to a study, as commands take them: name and SHA-256 are proposed, the file is not."""

from hashlib import sha256
from pathlib import Path

import click

from commingle.shared.documents.purpose import Attachment
from commingle.shared.documents.study import Study

attach_option = click.option(
    "--attach",
    "files",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    help="A file that belongs to the study: its name and SHA-256 are proposed, the file is not. Repeatable.",
)


def with_attachments(study: Study, files: tuple[Path, ...]) -> Study:
    """The study with these files' digests among its attachments. Raises OSError."""
    attached = tuple(Attachment(name=file.name, sha256=sha256(file.read_bytes()).hexdigest()) for file in files)
    return study.model_copy(update={"attachments": (*(study.attachments or ()), *attached) or None})
