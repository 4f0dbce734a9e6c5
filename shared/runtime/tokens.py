"""Bearer tokens that a process presents: read from files, so that they are not seen among its arguments."""

from pathlib import Path

import click

from commingle.shared.runtime.errors import SettingsError

token_option = click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file with a bearer token, for coordinators where reading is not public.",
)


def read_token(path: Path | None) -> str | None:
    """The token in a file; None where no file is given.

    Raises:
        SettingsError: the file cannot be read or holds something else.
    """
    if path is None:
        return None
    try:
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read the token in {path} ({error})", remedy="Check the path.") from None
    if not text.isascii() or not text.isprintable() or not text or " " in text:
        raise SettingsError(f"{path} does not hold a token", remedy="It holds the token alone, on one line.")
    return text
