"""What a process is given: settings in strict JSON files, bearer tokens in files, and the clock."""

import json
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import click
from pydantic import BaseModel, ConfigDict, JsonValue, SecretStr, ValidationError

from commingle.shared.documents.explained import as_written, explain
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.plain_files import read_plain


class Settings(BaseModel):
    """Settings of one process: read once in `cli.py`, never changed, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ServiceSettings(Settings):
    """Settings of a service, from a file and from the environment, which counts first: `x` is PREFIX_X there.

    A secret `x` may be given by the path of a file that holds it: `x_file`, or PREFIX_X_FILE in the environment.

    Attributes:
        serve: options of `serve` by name, such as `port`; the command line and the environment count before it.
    """

    prefix: ClassVar[str] = ""
    serve: Mapping[str, JsonValue] = {}

    @classmethod
    def secrets(cls) -> tuple[str, ...]:
        """Fields whose values nothing shows."""
        return tuple(
            name for name, field in cls.model_fields.items() if SecretStr in getattr(field.annotation, "__args__", ())
        )


Kind = TypeVar("Kind", bound=BaseModel)
Service = TypeVar("Service", bound=ServiceSettings)


def load_settings(kind: type[Kind], path: Path) -> Kind:
    """Settings from a JSON file, and of a service also from the environment.

    Raises:
        SettingsError: missing, not JSON, unknown or wrong keys.
    """
    if issubclass(kind, ServiceSettings):
        return gather(kind, path, os.environ)[0]
    payload = _read(path)
    try:
        return kind.model_validate_json(payload)
    except ValidationError as error:
        problems = explain(error, as_written(payload), kind)
        raise SettingsError(f"{path}: {problems}", remedy="Correct the file and start again.") from None


def gather(kind: type[Service], path: Path, environment: Mapping[str, str]) -> tuple[Service, Mapping[str, str]]:
    """Settings of a service, and where each was said that was said at all: a path or a variable.

    Raises:
        SettingsError: as of `load_settings`; it names where the wrong one was said.
    """
    try:
        said = json.loads(_read(path))
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise SettingsError(f"{path}: Invalid JSON, or no object", remedy="Correct the file and start again.")
    return resolve(kind, said, str(path), environment)


def resolve(
    kind: type[Service], document: Mapping[str, Any], source: str, environment: Mapping[str, str]
) -> tuple[Service, Mapping[str, str]]:
    """As `gather`, of a document that was read already. Raises SettingsError."""
    said, sources = dict(document), dict.fromkeys(document, source)
    for name in (name for name in kind.model_fields if kind.prefix and name != "serve"):
        keys = (name, f"{name}_file") if name in kind.secrets() else (name,)
        present = {key: f"{kind.prefix}_{key}".upper() for key in keys if f"{kind.prefix}_{key}".upper() in environment}
        for key in keys if present else ():
            said.pop(key, None)
        said |= {key: _value(environment[variable]) for key, variable in present.items()}
        sources |= present
    for name in kind.secrets():
        if f"{name}_file" not in said:
            continue
        file, where = Path(str(said.pop(f"{name}_file"))), sources.pop(f"{name}_file")
        if name in said:
            raise SettingsError(f"{where}: {name} and {name}_file exclude each other", remedy="Remove one of them.")
        said[name], sources[name] = _secret(file, name, where), f"{file}, named by {where}"
    try:
        return kind.model_validate(said), sources
    except ValidationError as error:
        where = ", ".join(
            dict.fromkeys(sources.get(str(e["loc"][0]) if e["loc"] else "", source) for e in error.errors())
        )
        raise SettingsError(
            f"{where}: {explain(error, said, kind)}", remedy="Correct it there and start again."
        ) from None


def _read(path: Path) -> bytes:
    try:
        return read_plain(path)
    except OSError as error:
        raise SettingsError(
            f"cannot read {path} ({error.strerror})", remedy="Run the init command first, or check the path."
        ) from None


def _value(text: str) -> object:
    """Of a variable: text, which fields of other types read; an object or a list is JSON."""
    try:
        return json.loads(text) if text.startswith(("{", "[")) else text
    except ValueError:
        return text


def _secret(file: Path, name: str, where: str) -> str:
    try:
        return read_plain(file).decode(errors="replace").strip()
    except OSError as error:
        raise SettingsError(
            f"cannot read {file} ({error.strerror})",
            remedy=f"Make the file with {name} readable, or correct {name}_file, said in {where}.",
        ) from None


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
