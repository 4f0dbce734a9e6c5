"""The settings of a process, bearer tokens in files, and the clock; and where each setting comes from.

Settings are options of a service's `serve` command, variables of the environment, and strict JSON files. The command
line counts before the environment, the environment before the file, and the file before the default (docs/settings.md).
"""

import json
import os
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import click
from click.core import ParameterSource
from pydantic import BaseModel, ConfigDict, JsonValue, SecretStr, ValidationError

from commingle.shared.documents.model import Version, as_written, explain, require_names_once
from commingle.shared.errors import DocumentError
from commingle.shared.runtime.cli import NEW_FILE, THREADS, emit, gathered, reads
from commingle.shared.runtime.errors import ANOTHER_VERSION, SettingsError
from commingle.shared.runtime.files import read_given
from commingle.shared.text import quoted

if TYPE_CHECKING:  # slow to load, and a service has no use for it
    from rich.console import Console


class Settings(BaseModel):
    """Settings of one process: `cli.py` reads them once, and they never change; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class HomeFile(Settings):
    """A file of a home, which says its version, so that a later format is not taken for a mistake (ADR 32)."""

    version: Version = 1


class ServiceSettings(HomeFile):
    """Settings of a service, from a file and from the environment, which counts first: `x` is PREFIX_X there.

    A secret `x` may be given by the path of a file that holds it: `x_file`, or PREFIX_X_FILE in the environment.

    Attributes:
        serve: options of `serve` by name, such as `port`; the command line and the environment count before it.
    """

    prefix: ClassVar[str] = ""
    serve: Mapping[str, JsonValue] = {}

    @classmethod
    def secrets(cls) -> tuple[str, ...]:
        """Fields whose values nobody is shown."""
        return tuple(
            name for name, field in cls.model_fields.items() if SecretStr in getattr(field.annotation, "__args__", ())
        )


Kind = TypeVar("Kind", bound=BaseModel)
Service = TypeVar("Service", bound=ServiceSettings)


def load_settings(kind: type[Kind], path: Path) -> Kind:
    """Settings from a JSON file; those of a service also from the environment."""
    if issubclass(kind, ServiceSettings):
        return gather(kind, path, os.environ)[0]
    payload = (_read(path) if issubclass(kind, HomeFile) else read_given(path)).removeprefix(BOM_UTF8)
    try:
        found = kind.model_validate_json(payload, strict=True)
    except ValidationError as error:
        raise _refused(str(path), error, as_written(payload), kind) from None
    _require_names_once(payload, path)
    return found


def _require_names_once(payload: bytes, path: Path) -> None:
    try:
        require_names_once(payload)
    except DocumentError as error:
        raise SettingsError(f"{path}: {error}", remedy=error.remedy) from None


def gather(kind: type[Service], path: Path | None, environment: Mapping[str, str]) -> tuple[Service, Mapping[str, str]]:
    """Settings of a service, and the path or variable that set each one; defaults have none."""
    if path is None:
        return resolve(kind, {}, "the environment", environment)
    payload = _read(path).removeprefix(BOM_UTF8)
    try:
        said = json.loads(payload)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise SettingsError(f"{path}: Invalid JSON, or no object", remedy="Correct the file and start again.")
    _require_names_once(payload, path)
    return resolve(kind, said, str(path), environment)


def resolve(
    kind: type[Service], document: Mapping[str, Any], source: str, environment: Mapping[str, str]
) -> tuple[Service, Mapping[str, str]]:
    """As `gather`, from a document that was read already. Raises SettingsError."""
    said, sources, secrets = dict(document), dict.fromkeys(document, source), kind.secrets()
    for name in (name for name in kind.model_fields if kind.prefix and name not in _OF_THE_FILE):
        keys = (name, f"{name}_file") if name in secrets else (name,)
        present = {key: f"{kind.prefix}_{key}".upper() for key in keys if f"{kind.prefix}_{key}".upper() in environment}
        for key in keys if present else ():
            said.pop(key, None)
        said |= {key: _value(environment[variable]) for key, variable in present.items()}
        sources |= present
    for name in secrets:
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
        raise _refused(where, error, said, kind) from None


def _refused(where: str, error: ValidationError, said: object, kind: type[BaseModel]) -> SettingsError:
    number = said.get("version", 1) if isinstance(said, dict) and issubclass(kind, HomeFile) else 1
    if type(number) is int and number != 1:
        return SettingsError(f"{where} is of format {number}, and this version reads format 1", remedy=ANOTHER_VERSION)
    strange = sum(each["type"] == "extra_forbidden" for each in error.errors())
    other = strange > 1 and issubclass(kind, ServiceSettings)
    remedy = "Correct it there and start again."
    return SettingsError(
        f"{where}: {explain(error, said, kind)}",
        remedy=f"It looks like the home of another service: if so, give the right --home. If not: {remedy}"
        if other
        else remedy,
    )


def _read(path: Path) -> bytes:
    return read_given(path, remedy="Check the path; the init command makes a home.")


def _value(text: str) -> object:
    try:
        return json.loads(text) if text.startswith(("{", "[")) else text
    except ValueError:
        return text


def _secret(file: Path, name: str, where: str) -> str:
    remedy = f"Make the file with {name} readable, or correct {name}_file, said in {where}."
    return read_given(file, remedy=remedy).removeprefix(BOM_UTF8).decode(errors="replace").strip()


token_option = click.option(
    "--token-file",
    type=NEW_FILE,
    help="A file with a bearer token, if the coordinator's releases are not public.",
)


def _proxies(_ctx: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    for text in given:
        try:
            ip_network(text)
        except ValueError:
            raise click.BadParameter(
                f"{quoted(text)} is to be an address or a network, such as 10.0.0.2, fd00::2 or 10.0.0.0/24"
            ) from None
    return given


trusted_proxies_option = click.option(
    "--trusted-proxy",
    "trusted_proxies",
    multiple=True,
    metavar="ADDRESS",
    callback=_proxies,
    help="The address, or network, of a reverse proxy whose X-Forwarded-For names the client. Repeatable.",
)


Tracing = Callable[..., None]  # begins to trace if asked to: `telemetry.trace_to` without its URL


def _tracing(traces_to: str | None) -> Tracing:
    def begin(**facts: str) -> None:
        if traces_to is not None:
            from commingle.shared.runtime.telemetry import trace_to  # noqa: PLC0415 - help needs none

            trace_to(traces_to, **facts)

    return begin


def _address(_ctx: click.Context, _option: click.Parameter, url: str | None) -> str | None:
    if url is not None and not url.startswith(("http://", "https://")):
        raise click.BadParameter("it is to begin with http:// or https://")
    return url


traces_option = gathered(
    "trace",
    _tracing,
    click.option(
        "--traces-to",
        metavar="URL",
        callback=_address,
        help="An OpenTelemetry collector to send the steps of releases to.",
    ),
)
"""`--traces-to URL` of a `serve` command, which is given `trace`."""


def read_token(path: Path | None) -> str | None:
    """The token in a file; None where no file is given."""
    if path is None:
        return None
    text = read_given(path).decode(errors="replace").strip()
    if not text.isascii() or not text.isprintable() or not text or " " in text:
        raise SettingsError(f"{path} does not hold a token", remedy="It holds the token alone, on one line.")
    return text


Clock = Callable[[], datetime]


def system_clock() -> datetime:
    """Now, in UTC, to the second, as documents have it."""
    return datetime.now(UTC).replace(microsecond=0)


_ROLES = ("coordinator", "party", "learner")
_OF_THE_FILE = frozenset({"serve", "version"})
_NO_SETTINGS = frozenset({"home", "settings", "as_json"})


@dataclass(frozen=True, slots=True)
class Said:
    """One setting in force, and where it was set; a secret only says that it is one."""

    name: str
    value: object
    source: str


class ServeCommand(click.Command):
    """`serve` of one role; its options can also be set in the environment, and in the file of its other settings."""

    def __init__(self, *, kind: type[ServiceSettings], **others: Any) -> None:  # noqa: ANN401 - what a command takes
        super().__init__(context_settings={"auto_envvar_prefix": kind.prefix}, **others)
        self._kind = kind
        self._file = next(option for option in self.params if option.name in {"home", "settings"})
        self._file.is_eager, self._file.callback = True, self._read
        self.options = tuple(option for option in self.params if option.name not in _NO_SETTINGS)

    def _read(self, ctx: click.Context, _: click.Parameter, where: Path | None) -> Path | None:
        # before other options are looked at: those of the file become their defaults
        path = self._path(where)
        if path is not None:
            given, names = gather(self._kind, path, os.environ)[0].serve, {option.name for option in self.options}
            if unknown := sorted(given.keys() - names):
                raise SettingsError(
                    f"{path}: serve has no {unknown[0]!r}", remedy=f"It has {', '.join(sorted(map(str, names)))}."
                )
            ctx.default_map = dict(given)
        return where

    def names(self) -> set[str]:
        return {str(option.name) for option in self.options} | self._kind.model_fields.keys() - _OF_THE_FILE

    def _path(self, where: Path | None) -> Path | None:
        return where / "settings.json" if where is not None and self._file.name == "home" else where

    def said(self, arguments: Sequence[str], parent: click.Context) -> Iterator[Said]:
        """Every setting that the service would have if it were started with these arguments."""
        with self.make_context(self.name, list(arguments), parent=parent) as ctx:
            path = self._path(ctx.params[str(self._file.name)])
            for option in self.options:
                name = str(option.name)
                value = ctx.params[name]
                yield Said(name, dict(value) if isinstance(value, Mapping) else value, self._source(ctx, option, path))
            settings, sources = gather(self._kind, path, os.environ)
            for name in self._kind.model_fields:
                if name not in _OF_THE_FILE:
                    yield Said(name, getattr(settings, name), sources.get(name, "default"))
        yield Said("threads", os.environ.get(THREADS, "1"), THREADS if THREADS in os.environ else "default")

    def _source(self, ctx: click.Context, option: click.Parameter, path: Path | None) -> str:
        source = ctx.get_parameter_source(str(option.name))
        if source is ParameterSource.ENVIRONMENT:
            return str(option.envvar or f"{self._kind.prefix}_{option.name}".upper())
        words = {ParameterSource.COMMANDLINE: "command line", ParameterSource.DEFAULT_MAP: str(path)}
        return words.get(source, "default") if source is not None else "default"


@click.group()
def config() -> None:
    """See which settings a service would have, and where each comes from."""


@config.command(
    context_settings={"ignore_unknown_options": True},
    epilog="\b\nExamples:\n  commingle config show coordinator --home hub\n"
    "  commingle config show learner --settings learner.json",
)
@click.argument("role", type=click.Choice(_ROLES))
@click.argument("arguments", metavar="[OPTION OF SERVE]...", nargs=-1, type=click.UNPROCESSED)
@reads(items=list[dict[str, Any]])
@click.pass_context
def show(ctx: click.Context, *, role: str, arguments: tuple[str, ...]) -> None:
    """Show what settings the `serve` of ROLE has with these options, secrets masked, or what is wrong with them."""
    found: click.Command | None = ctx.find_root().command
    for name in (role, "serve"):
        found = found.get_command(ctx, name) if isinstance(found, click.Group) else None
    rows = [*found.said(arguments, ctx)] if isinstance(found, ServeCommand) else []

    def text(console: "Console") -> None:
        from rich.table import Table  # noqa: PLC0415 - slow to load

        table = Table("setting", "value", "from", box=None)
        for row in rows:
            table.add_row(row.name, _words(row.value), row.source)
        console.print(table)

    emit({"items": [{"name": r.name, "value": r.value, "source": r.source} for r in rows]}, text=text)


def _words(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={of}" for key, of in value.items())
    return ", ".join(value) if isinstance(value, tuple) else "" if value is None else str(value)
