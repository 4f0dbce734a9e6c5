"""`commingle coordinator`: the list of its commands. Each is loaded when it is asked for."""

import click

from commingle.shared.runtime.cli import A_FOLDER, CONTEXT, LazyGroup

_COMMANDS = {
    "init": ("admin_cli", "Create a coordinator: settings and a signing key in HOME."),
    "new-consortium": ("admin_cli", "Create a coordinator and an invitation for each of its MEMBERS."),
    "serve": ("admin_cli", "Serve HTTP until told to stop."),
    "invite": ("admin_cli", "Issue a one-time invite for one member; hand it over confidentially."),
    "propose": ("release_cli", "Propose the release that STUDY, a JSON file, describes."),
    "releases": ("release_cli", "List releases, the newest first."),
    "console": ("upkeep_cli", "Follow members and rounds in a browser."),
    "revoke": ("admin_cli", "Revoke a member: abort its open releases and stop accepting its signatures."),
    "token": ("admin_cli", "Manage bearer tokens for operators and learners."),
    "audit": ("upkeep_cli", "Export this coordinator's history for an auditor, or verify one."),
    "backup": ("upkeep_cli", "Back up database, blobs, settings and key to FILE, even while the coordinator runs."),
    "restore": ("upkeep_cli", "Restore a backup into HOME, which must not exist."),
    "doctor": ("upkeep_cli", "Check home, database, blobs and disk, and say how to fix problems."),
}


home_option = click.option(
    "--home",
    type=A_FOLDER,
    required=True,
    envvar="COMMINGLE_COORDINATOR_HOME",
    help="The coordinator's directory (or COMMINGLE_COORDINATOR_HOME).",
)


def examples(*lines: str) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  commingle coordinator {line}" for line in lines)


@click.group(
    cls=LazyGroup,
    commands_at={name: (f"commingle.coordinator.{module}", said) for name, (module, said) in _COMMANDS.items()},
    epilog=examples(
        "init --home hub --name hub.example.org",
        "serve --home hub --host 0.0.0.0 --port 8000",
        "invite --home hub --party clinic-a",
        "propose study.json --home hub",
    ),
    context_settings=CONTEXT,
)
def coordinator() -> None:
    """Run and operate a coordinator."""
    from commingle.shared.runtime.telemetry import configure_logging  # noqa: PLC0415 - help needs none

    configure_logging(service="coordinator", level="critical")  # commands say their faults; services tell more
