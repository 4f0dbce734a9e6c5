"""The `commingle` command. It alone knows every package, by name, and loads the one that you call."""

import gc
import json
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader

import click

from commingle import __version__
from commingle.shared.errors import CommingleError
from commingle.shared.runtime.cli import CONTEXT, EXIT_FAULT, LazyGroup, run, say, schema, threads

_COMMANDS = {
    "simulate": ("services.simulation.cli", "Run a whole consortium on this machine."),
    "demo": ("services.simulation.demo_cli", "Run a whole consortium, in your browser or without one."),
    "study": ("party_agent.cli.study", "Write a study, and see what every member would answer to it."),
    "plan": ("services.planning.cli", "Say what a release will be worth, before any budget is spent."),
    "fit": (
        "services.client.release_cli",
        "Verify a published release and fit a linear or generalised linear model on it.",
    ),
    "describe": ("services.client.release_cli", "Say who is in a release: levels and means, by group."),
    "table": ("services.client.release_cli", "Count two attributes of a release: shares, odds ratios."),
    "survival": ("services.client.release_cli", "Follow people until an event: Kaplan-Meier curves."),
    "synthesize": ("services.client.release_cli", "Draw synthetic rows of a release into a file."),
    "export": ("services.client.release_cli", "Write a release as files for R, Stata, SAS and catalogues."),
    "verify": (
        "services.client.verify_cli",
        "Check a published release offline: who signed what, and that the matrix is what they signed.",
    ),
    "members": (
        "services.client.verify_cli",
        "Show every key that a coordinator has had for every member, as one signed chain.",
    ),
    "coordinator": ("coordinator.cli", "Run and operate a coordinator."),
    "party": ("party_agent.cli", "Run and operate a member's agent, beside the member's own data."),
    "learner": ("services.learner.cli", "Serve fits of published releases."),
    "config": ("shared.runtime.settings", "See which settings a service would have, and where each comes from."),
}


_GARBAGE = 10_000  # new objects before Python looks for garbage: with 700 that takes a tenth of loading


def _print_schema(context: click.Context, _: click.Parameter, given: str | None) -> None:
    if given:
        click.echo(json.dumps(schema(commingle, context, everything=given == "all"), indent=1))
        context.exit()


@click.group(
    cls=LazyGroup,
    commands_at={name: (f"commingle.{module}", said) for name, (module, said) in _COMMANDS.items()},
    context_settings=CONTEXT,
    epilog="Try it: commingle demo",
)
@click.version_option(__version__, prog_name="commingle")
@click.option(
    "--schema",
    is_flag=False,
    flag_value="reading",
    type=click.Choice(["reading", "all"]),
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print what commands take and print as JSON, and run none: those that only read, or all.",
)
def commingle() -> None:
    """Differentially private multi-party data release."""


class _WithoutUnused:
    """Leaves out modules that no command uses, but libraries load if they can: these take longest of all to load.

    Most seem not to be installed: command lines, tracebacks, frames, models and guesses of encodings, without which
    httpx, structlog, mako, pyarrow, FastAPI and NumPy work. scipy asks for all of NumPy; its compiler of Fortran loads
    at its first use, which never comes.
    """

    names = frozenset(
        {
            "charset_normalizer",
            "colorama",
            "httpx._main",
            "mako.ext.pygmentplugin",
            "pandas",
            "pydantic.v1",
            "rich.traceback",
        }
    )

    def find_spec(self, name: str, path: Sequence[str] | None, _target: object = None) -> ModuleSpec | None:
        """Refuse these names, and rich while structlog loads; leave all others to the next finder."""
        structlog = sys.modules.get("structlog")
        if name in self.names or (name == "rich" and structlog is not None and not hasattr(structlog, "get_logger")):
            raise ModuleNotFoundError(f"{name} is not used here", name=name)
        if name != "numpy.f2py" or (found := PathFinder.find_spec(name, path)) is None or found.loader is None:
            return None
        found.loader = LazyLoader(found.loader)
        return found


def leave_out_unused() -> None:
    """Leave out unused modules for the rest of this process, and let Arrow use jemalloc.

    Arrow's own allocator would keep 100 MB after it has read a table. Raises SettingsError: `COMMINGLE_THREADS` is
    not a whole number from 1.
    """
    if sys.platform == "linux":  # where Arrow always has jemalloc
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # it would look for plugins in every installed package
    os.environ.update(threads(os.environ))  # NumPy has not been loaded yet
    gc.set_threshold(_GARBAGE)
    if not any(isinstance(finder, _WithoutUnused) for finder in sys.meta_path):
        sys.meta_path.insert(0, _WithoutUnused())


def main(arguments: list[str] | None = None) -> None:
    run(commingle, sys.argv[1:] if arguments is None else arguments)


def start() -> None:
    """Run as the process of a command; other programs call `main`."""
    try:
        leave_out_unused()
    except CommingleError as error:
        say(f"Error: {error.diagnostics()}")
        sys.exit(EXIT_FAULT)
    main()


if __name__ == "__main__":
    start()
