"""What a process is given: settings in strict JSON files, bearer tokens in files, and the clock."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import click
from pydantic import BaseModel, ConfigDict, ValidationError

from commingle.shared.documents.model import explain
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.plain_files import read_plain


class Settings(BaseModel):
    """Settings of one process: read once in `cli.py`, never changed, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


Kind = TypeVar("Kind", bound=BaseModel)


def load_settings(kind: type[Kind], path: Path) -> Kind:
    """Settings from a JSON file.

    Raises:
        SettingsError: missing, not JSON, unknown or wrong keys.
    """
    try:
        return kind.model_validate_json(read_plain(path))
    except OSError as error:
        raise SettingsError(
            f"cannot read {path} ({error.strerror})", remedy="Run the init command first, or check the path."
        ) from None
    except ValidationError as error:
        raise SettingsError(f"{path}: {explain(error)}", remedy="Correct the file and start again.") from None


token_option = click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file with a bearer token, for coordinators where reading is not public.",
)

trusted_proxies_option = click.option(
    "--trusted-proxy",
    "trusted_proxies",
    multiple=True,
    metavar="ADDRESS",
    help="A reverse proxy whose X-Forwarded-For says who asks. Repeat for more.",
)


def read_token(path: Path | None) -> str | None:
    """The token in a file; None where no file is given.

    Raises:
        SettingsError: the file cannot be read or holds something else.
    """
    if path is None:
        return None
    try:
        text = read_plain(path).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read the token in {path} ({error})", remedy="Check the path.") from None
    if not text.isascii() or not text.isprintable() or not text or " " in text:
        raise SettingsError(f"{path} does not hold a token", remedy="It holds the token alone, on one line.")
    return text


Clock = Callable[[], datetime]


def system_clock() -> datetime:
    """Now, in UTC, to the second: what documents carry."""
    return datetime.now(UTC).replace(microsecond=0)
