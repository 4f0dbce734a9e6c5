"""What all commands share: lazy groups, output as text or JSON, faults as one message with a remedy, and threads."""

import io
import json
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import partial, reduce, wraps
from importlib import import_module
from inspect import signature
from operator import or_
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import click
from click.core import ParameterSource

from commingle.shared.errors import CommingleError
from commingle.shared.runtime.errors import RuntimeFaultError, SettingsError
from commingle.shared.text import printable

if TYPE_CHECKING:  # rich takes as long to load as the rest of a command's help
    from pydantic import TypeAdapter
    from rich.console import Console

CONTEXT: Mapping[str, Any] = {"help_option_names": ["-h", "--help"]}
EXIT_FAULT = 1
EXIT_INTERRUPTED = 130

Function = TypeVar("Function", bound=Callable[..., Any])
Options = Callable[[Function], Function]  # adds options to a command

A_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
NEW_FILE = click.Path(path_type=Path, dir_okay=False)  # A file that need not be there yet
A_FOLDER = click.Path(path_type=Path, file_okay=False)  # A directory that need not be there yet
A_PATH = click.Path(path_type=Path)


class OpenChoice(click.Choice[str]):
    """One of some names, or any other text that `also` accepts."""

    def __init__(self, names: Sequence[str], also: Callable[[str], bool]) -> None:
        super().__init__(names)
        self.also = also

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return value if self.also(value) else super().convert(value, param, ctx)


_JSON = f"{__name__}.json"


def _note_json(context: click.Context, _: click.Parameter, given: bool) -> None:
    if given:
        context.meta[_JSON] = True


class AnswerOption(click.Option):
    """`--json`, and a description of the command that has it, for programs.

    Attributes:
        models: the command prints one of these, or an object with `fields`; a mapping stands for an object with such
            fields, and a partial function makes a model.
        reads: whether the command changes no file and asks nobody for a change, unless it is given one of the options
            `unless`.
    """

    def __init__(
        self,
        models: tuple[object, ...],
        fields: Mapping[str, object],
        *,
        reads: bool,
        unless: Collection[str] = (),
    ) -> None:
        super().__init__(
            ["--json", "as_json"],
            is_flag=True,
            expose_value=False,
            callback=_note_json,
            help="Print one JSON document instead of text.",
        )
        self.models, self.fields = models, fields
        self.reads, self.unless = reads, frozenset(unless)

    def adapter(self, command: str) -> "TypeAdapter[Any]":
        """Reads what the command prints, and gives its JSON schema; objects without a model get its name."""
        from pydantic import ConfigDict, TypeAdapter, with_config  # noqa: PLC0415 - only who asks for a schema waits
        from typing_extensions import TypedDict  # noqa: PLC0415 - as above

        def shape(fields: Mapping[str, object]) -> object:
            made: Any = TypedDict(f"{command} {next(iter(fields))}".title().replace(" ", ""), dict(fields))  # type: ignore[misc] # its names are known here alone
            return with_config(ConfigDict(extra="forbid"))(made)

        named = (self.fields,) if self.fields else ()
        models = [kind() if isinstance(kind, partial) else kind for kind in self.models]
        kinds = [shape(kind) if isinstance(kind, Mapping) else kind for kind in (*models, *named)]
        return TypeAdapter(cast("Any", reduce(or_, kinds)))


def reads(*models: object, unless: Collection[str] = (), **fields: object) -> Options[Any]:
    """`--json` of a command that only reads; see AnswerOption. The command itself gets no parameter: `emit` asks."""
    return _with(AnswerOption(models, fields, reads=True, unless=unless))


def changes(*models: object, **fields: object) -> Options[Any]:
    """`--json` of a command that changes something, here or elsewhere."""
    return _with(AnswerOption(models, fields, reads=False))


def _with(option: AnswerOption) -> Options[Any]:

    def add(command: Any) -> Any:  # noqa: ANN401 - any command
        command.__click_params__ = [*getattr(command, "__click_params__", ()), option]
        return command

    return add


def wants_json() -> bool:
    """Whether the command that runs was given `--json`."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_JSON))


def refuse_beside(option: str, *names: str) -> None:
    """Raise UsageError if one of these parameters was given beside an option that sets them."""
    context = click.get_current_context()
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if given and parameter.name in names:
            raise click.UsageError(f"{option} sets {'/'.join(parameter.opts)}: leave it out.")


def names_in(given: Sequence[str], known: Collection[str]) -> tuple[str, ...]:
    """Names given one by one or separated by commas; a name that is known may itself contain a comma."""
    return tuple(name for text in given for name in ([text] if text in known else map(str.strip, text.split(","))))


def whole_id(beginning: str, ids: Iterable[str]) -> str | None:
    """The one id that begins with this text; None if none does. Raises UsageError if several do."""
    found = [each for each in ids if each.startswith(beginning)]
    if len(found) > 1:
        said = f"{beginning} is the beginning of several ids; give more letters:"
        raise click.UsageError("\n  ".join([said, *found]))
    return next(iter(found), None)


def together(*options: Options[Any]) -> Options[Any]:

    def decorate(command: Any) -> Any:  # noqa: ANN401 - any command
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def gathered(into: str, made: Callable[..., object], *options: Callable[[Any], Any]) -> Options[Any]:
    """Options that a command receives as one value: `made` computes it from them by name, for the parameter `into`."""
    names = tuple(signature(made).parameters)

    def add(command: Any) -> Any:  # noqa: ANN401 - any command
        @wraps(command)
        def with_one(*args: Any, **given: Any) -> Any:  # noqa: ANN401 - any command
            own = {name: given.pop(name) for name in names}
            return command(*args, **{into: made(**own)}, **given)

        return together(*options)(with_one)

    return add


class LazyGroup(click.Group):
    """A group that imports a command only when somebody asks for it.

    `commands_at` gives each command's module and its line in the list of commands. In its module a command has its own
    name, with underscores for hyphens.
    """

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - click's own signature
        commands_at: Mapping[str, tuple[str, str]] = MappingProxyType({}),
        **kwargs: Any,  # noqa: ANN401 - click's own signature
    ) -> None:
        super().__init__(*args, **kwargs)
        self.commands_at = commands_at

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands_at, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands_at:
            return super().get_command(ctx, cmd_name)
        module, _ = self.commands_at[cmd_name]
        command: click.Command = getattr(import_module(module), cmd_name.replace("-", "_"))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, but with proposals for commands that are not imported yet."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-") and not ctx.resilient_parsing:
            close = get_close_matches(args[0], known, n=1)
            meant = f"Did you mean {close[0]!r}?" if close else f"There are {', '.join(known)}."
            ctx.fail(f"No such command {args[0]!r}. {meant}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's own signature
        """The list of commands, without importing any."""
        lazy = [(name, said) for name, (_, said) in self.commands_at.items()]
        others = [(name, command.get_short_help_str(limit=100)) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(lazy + sorted(others))


def schema(command: click.Command, context: click.Context, *, everything: bool) -> dict[str, Any]:
    """A description of all commands for programs: their arguments and output; only those that read if not `everything`.

    A command that prints no JSON, such as `serve` of a learner, counts as one that changes something.
    """
    found = _told(command, context, everything=everything) or {}
    asked = {told["command"]: told for told in _each(found) if told["prints"] is not None}
    from pydantic import TypeAdapter  # noqa: PLC0415 - only who asks for a schema waits

    adapters = [(name, _SHOWN, told["prints"].adapter(name)) for name, told in asked.items()]
    printed, rest = TypeAdapter.json_schemas(adapters)
    for name, told in asked.items():
        told["prints"] = printed[name, _SHOWN]
    return {**found, **rest}


_SHOWN: Literal["serialization"] = "serialization"


def _told(command: click.Command, context: click.Context, *, everything: bool) -> dict[str, Any] | None:
    group = command if isinstance(command, click.Group) else None
    names = () if group is None else group.list_commands(context)
    found = [one for name in names if group is not None and (one := group.get_command(context, name)) is not None]
    contexts = [click.Context(one, parent=context, info_name=one.name) for one in found]
    below = [_told(one, of, everything=everything) for one, of in zip(found, contexts, strict=True)]
    answer = next((one for one in command.params if isinstance(one, AnswerOption)), None)
    listed = [one for one in below if one is not None]
    takes = command.get_params(context)
    if not everything:
        if not listed and (answer is None or not answer.reads):
            return None
        left_out = frozenset() if answer is None else answer.unless
        takes = [one for one in takes if left_out.isdisjoint(one.opts)]
    return {
        "command": context.command_path,
        "help": command.help or "",
        "reads": None if group is not None else answer is not None and answer.reads,
        "unless": sorted(answer.unless) if answer is not None and everything else [],
        "takes": [_parameter(one) for one in takes],
        "prints": answer,
        "commands": listed,
    }


def _each(told: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for one in told["commands"]:
        yield one
        yield from _each(one)


def _parameter(parameter: click.Parameter) -> dict[str, Any]:
    kind, default = parameter.type, parameter.default
    plain = isinstance(default, str | int | float | tuple | list)
    return {
        "names": [*parameter.opts, *parameter.secondary_opts],
        "option": isinstance(parameter, click.Option),
        "type": "flag" if getattr(parameter, "is_flag", False) else kind.name,
        "choices": list(map(str, kind.choices)) if isinstance(kind, click.Choice) else None,
        "required": parameter.required,
        "repeatable": parameter.multiple or parameter.nargs == -1,
        "default": default if plain else None,
        "environment": parameter.envvar,
        "help": getattr(parameter, "help", None),
    }


def emit(value: object, text: "str | Callable[[Console], object]") -> None:
    """Print a result: as one JSON document in ASCII, its models in their wire form, or as text for people."""
    if wants_json():
        click.echo(json.dumps(value, indent=2, default=_plain))
        return
    from commingle.shared.runtime.console import PlainConsole  # noqa: PLC0415 - as above

    console = PlainConsole()
    console.print(text) if isinstance(text, str) else text(console)


def _plain(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    return str(value) if dump is None else dump(mode="json")


def at_home(home: Path) -> str:
    """The option --home as a person can copy it into a shell."""
    return f"--home {shlex.quote(str(home))}"


def say(text: str) -> None:
    """Print a message for people on standard error, beside the result."""
    click.echo(printable(text, keep_lines=True), err=True)


def _fail(error: CommingleError, arguments: Sequence[str]) -> None:
    if "--json" in arguments:
        with suppress(OSError):  # the full disk may be the one with the output
            click.echo(json.dumps({"error": {"code": error.code, "message": str(error), "remedy": error.remedy}}))
    say(f"Error: {error.diagnostics()}")
    sys.exit(EXIT_FAULT)


def run(command: click.Command, arguments: Sequence[str]) -> None:
    """Run a command line. A fault is one clear message with a remedy and exit code 1, never a traceback."""
    try:
        code = command.main(list(arguments), prog_name=command.name, standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except CommingleError as error:
        _fail(error, arguments)
    except OSError as error:  # a full disk, or a file that may not be written; never with its bytes
        where = "" if error.filename is None else f"{error.filename}: "
        said = f"{where}{error.strerror or type(error).__name__}"
        remedy = "Free space, or mend the path or its permissions, and run it again."
        _fail(RuntimeFaultError(said, remedy=remedy), arguments)
    except click.ClickException as error:
        # not shown directly: it may quote what a coordinator listed
        shown = io.StringIO()
        error.show(shown)
        say(shown.getvalue().rstrip("\n").replace("is not a valid integer range.", "is not a whole number."))
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt) as error:
        asked = isinstance(error.__context__, EOFError)
        say("Nobody is there to answer: use a terminal, or options (--help lists them)." if asked else "Interrupted.")
        sys.exit(EXIT_INTERRUPTED)


THREADS = "COMMINGLE_THREADS"
_READ_WHILE_LOADING = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def threads(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that libraries of linear algebra read while they load. One that is set already stays as it is.

    Each process that computes has one thread for linear algebra, or as many as `THREADS` says. By default OpenBLAS and
    its like start one for each processor in each process, and these wait for each other by spinning: with more
    processors, or more processes than processors, a release costs many times its work.
    """
    count = environment.get(THREADS, "1")
    if not (count.isascii() and count.isdecimal() and int(count) > 0):
        raise SettingsError(f"{THREADS} is {count!r}", remedy="Give a whole number of threads from 1, or unset it.")
    return {name: environment.get(name, count) for name in _READ_WHILE_LOADING}
