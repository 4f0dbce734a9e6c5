"""What a service is told, and where: options of its `serve` command, variables of the environment, one file.

The command line counts before the environment, that before the file, that before the default (docs/settings.md).
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from commingle.shared.runtime.cli import emit, json_option
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.settings import ServiceSettings, gather
from commingle.shared.runtime.threads import SETTING as THREADS

if TYPE_CHECKING:  # slow to load, and a service has no use for it
    from rich.console import Console

_ROLES = ("coordinator", "party", "learner")
_NO_SETTINGS = frozenset({"home", "settings", "as_json"})


@dataclass(frozen=True, slots=True)
class Said:
    """One setting as it holds, and where it was said; a secret says that it is one."""

    name: str
    value: object
    source: str


class ServeCommand(click.Command):
    """`serve` of one role, whose options can be said in the environment and in the file of its other settings."""

    def __init__(self, *, kind: type[ServiceSettings], **others: Any) -> None:  # noqa: ANN401 - what a command takes
        super().__init__(context_settings={"auto_envvar_prefix": kind.prefix}, **others)
        self._kind = kind
        self._file = next(option for option in self.params if option.name in {"home", "settings"})
        self._file.is_eager, self._file.callback = True, self._read
        self.options = tuple(option for option in self.params if option.name not in _NO_SETTINGS)

    def _read(self, ctx: click.Context, _: click.Parameter, where: Path | None) -> Path | None:
        """Take the file's options for defaults, before others are looked at. Raises SettingsError."""
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
        """Every setting."""
        return {str(option.name) for option in self.options} | self._kind.model_fields.keys() - {"serve"}

    def _path(self, where: Path | None) -> Path | None:
        return where / "settings.json" if where is not None and self._file.name == "home" else where

    def said(self, arguments: Sequence[str], parent: click.Context) -> Iterator[Said]:
        """Every setting, as the service would have it that is started with these arguments.

        Raises:
            SettingsError, UsageError: it would not start.
        """
        with self.make_context(self.name, list(arguments), parent=parent) as ctx:
            path = self._path(ctx.params[str(self._file.name)])
            for option in self.options:
                name = str(option.name)
                value = ctx.params[name]
                yield Said(name, dict(value) if isinstance(value, Mapping) else value, self._source(ctx, option, path))
            settings, sources = gather(self._kind, path, os.environ) if path else (self._kind(), {})
            for name in self._kind.model_fields:
                if name != "serve":
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
@json_option
@click.pass_context
def show(ctx: click.Context, *, role: str, arguments: tuple[str, ...], as_json: bool) -> None:
    """Show what settings the `serve` of ROLE has with these options, secrets masked, or what is wrong with them."""
    found: click.Command | None = ctx.find_root().command
    for name in (role, "serve"):
        found = found.get_command(ctx, name) if isinstance(found, click.Group) else None
    rows = [*found.said(arguments, ctx)] if isinstance(found, ServeCommand) else []

    def text(console: "Console") -> None:
        from rich.table import Table  # noqa: PLC0415 - as above

        table = Table("setting", "value", "from", box=None)
        for row in rows:
            table.add_row(row.name, _words(row.value), row.source)
        console.print(table)

    emit({"items": [{"name": r.name, "value": r.value, "source": r.source} for r in rows]}, as_json=as_json, text=text)


def _words(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={of}" for key, of in value.items())
    return ", ".join(value) if isinstance(value, tuple) else "" if value is None else str(value)
