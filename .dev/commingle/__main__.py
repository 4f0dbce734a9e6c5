"""The `commingle` command: the one place that knows every package, by name, and loads the one that is asked for."""

import sys
from importlib.abc import MetaPathFinder

import click

from commingle import __version__
from commingle.shared.runtime.cli import CONTEXT, LazyGroup, run

_COMMANDS = {
    "simulate": ("commingle.services.simulation.cli", "Run a whole consortium on this machine."),
    "plan": ("commingle.services.planning.cli", "Say what a release will be worth, before any budget is spent."),
    "fit": ("commingle.services.client.fit_cli", "Verify a published release and fit a linear model on it."),
    "verify": (
        "commingle.services.client.verify_cli",
        "Check a published release offline: who signed what, and that the matrix is what they signed.",
    ),
    "coordinator": ("commingle.coordinator.cli", "Run and operate a coordinator."),
    "party": ("commingle.party_agent.cli", "Run and operate a party's agent, beside the party's own data."),
    "learner": ("commingle.services.learner.cli", "Serve fits of published releases."),
}


@click.group(
    cls=LazyGroup, commands_at=_COMMANDS, context_settings=CONTEXT, epilog="Try it: commingle simulate --out demo"
)
@click.version_option(__version__, prog_name="commingle")
def commingle() -> None:
    """Differentially private multi-party data release for linear regression."""


class _WithoutUnused(MetaPathFinder):
    """Answers as if these were not installed.

    httpx, structlog and pyarrow load them where they are, for command lines, tracebacks and frames of their own; no
    command uses them, and together they take longer to load than all the rest.
    """

    names = frozenset({"httpx._main", "rich.traceback", "pandas"})

    def find_spec(self, name: str, _path: object, _target: object = None) -> None:
        """Refuse those names, leave all others to the next finder."""
        if name in self.names:
            raise ModuleNotFoundError(f"{name} is not used here", name=name)


def leave_out_unused() -> None:
    """For the rest of this process."""
    sys.meta_path.insert(0, _WithoutUnused())


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    run(commingle, sys.argv[1:] if arguments is None else arguments)


def start() -> None:
    """Be the process of a command, not a function that another program calls."""
    leave_out_unused()
    main()


if __name__ == "__main__":
    start()
