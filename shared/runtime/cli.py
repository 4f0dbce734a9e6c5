"""The `commingle` command. Sub-commands load on first use, so a process loads only its own package and `shared`."""

import json
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import click
from rich.console import Console

from commingle.shared import __version__
from commingle.shared.errors import CommingleError

_COMMANDS = {
    "simulate": ("commingle.services.simulation.cli", "simulate", "Run a whole consortium on this machine."),
    "plan": ("commingle.services.planning.cli", "plan", "Say what a release will be worth."),
    "fit": ("commingle.services.client.fit_cli", "fit", "Fit a published release."),
    "verify": ("commingle.services.client.verify_cli", "verify", "Check a published release offline."),
    "coordinator": ("commingle.coordinator.cli", "coordinator", "Run and operate a coordinator."),
    "party": ("commingle.party_agent.cli", "party", "Run and operate a party's agent."),
    "learner": ("commingle.services.learner.cli", "learner", "Serve fits of published releases."),
}

EXIT_FAULT = 1
_HELP_WIDTH = 100
EXIT_INTERRUPTED = 130

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for."""

    def __init__(self, *args: Any, commands_at: Mapping[str, tuple[str, str, str]], **kwargs: Any) -> None:  # noqa: ANN401 - click's own signature
        super().__init__(*args, **kwargs)
        self._commands_at = commands_at

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, in the order given."""
        return [*self._commands_at, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name not in self._commands_at:
            return super().get_command(ctx, cmd_name)
        module, attribute, _ = self._commands_at[cmd_name]
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's own signature
        """The list of commands, without importing any."""
        lazy = [(name, said) for name, (_, _, said) in self._commands_at.items()]
        others = [(name, command.get_short_help_str(limit=_HELP_WIDTH)) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(lazy + sorted(others))


@click.group(
    cls=LazyGroup,
    commands_at=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Try it: commingle simulate --out demo",
)
@click.version_option(__version__, prog_name="commingle")
def commingle() -> None:
    """Differentially private multi-party data release for linear regression."""


def emit(value: object, *, as_json: bool, text: Callable[[Console], None]) -> None:
    """Print a result: as one JSON document, or as text on the console."""
    if as_json:
        click.echo(json.dumps(value, indent=2, default=str))
    else:
        text(Console())


def main(arguments: list[str] | None = None) -> None:
    """Run the command line. A fault is one clear message with a remedy and exit code 1, never a traceback."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        code = commingle.main(given, prog_name="commingle", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except CommingleError as error:
        if "--json" in given:
            click.echo(json.dumps({"error": {"code": error.code, "message": str(error), "remedy": error.remedy}}))
        click.echo(f"Error: {error.diagnostics()}", err=True)
        sys.exit(EXIT_FAULT)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        sys.exit(EXIT_INTERRUPTED)
