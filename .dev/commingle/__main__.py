"""The `commingle` command: the one place that knows every room, by name, and loads the one that is asked for."""

import sys

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


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    # httpx, structlog and pyarrow load these where they are installed, and no command uses them: seconds of every start
    for unused in ("httpx._main", "rich.traceback", "pandas"):
        sys.modules.setdefault(unused, None)  # type: ignore[arg-type] # None makes an import fail, which all expect
    run(commingle, sys.argv[1:] if arguments is None else arguments)


if __name__ == "__main__":
    main()
