"""`commingle party`: the list of its commands. Each is loaded when it is asked for."""

import click

from commingle.shared.runtime.cli import LazyGroup

_COMMANDS = {
    "init": ("cli.home", "Create a member's home directory with keys, settings and a policy."),
    "enrol": ("cli.home", "Enrol in a consortium and pin its coordinator's key."),
    "join": ("cli.join", "Join a new consortium: home, keys, data set, everybody's words, pins, linkage key."),
    "leave": ("cli.home", "Leave a consortium, with the agent stopped."),
    "pin": ("cli.home", "Pin members' keys after comparing their fingerprints over another channel."),
    "datasets": ("cli.data", "Register the tables this member can contribute."),
    "whiten": ("cli.data", "Make a whitening matrix from PUBLIC rows."),
    "serve": ("cli.serve", "Run the agent: answer proposals, privatise, upload."),
    "status": ("cli.home", "Show the agent's identity and health."),
    "proposals": ("cli.decide", "List proposals with their cost and findings."),
    "approve": ("cli.decide", "Approve a proposal: reserve its cost and sign."),
    "reject": ("cli.decide", "Reject a proposal, or withdraw from it."),
    "propose": ("cli.decide", "Propose the release that STUDY, a JSON file, describes."),
    "console": ("cli.decide", "Read and decide proposals in a browser."),
    "ledger": ("cli.decide", "Show charges and the remaining budget."),
    "adopt": (
        "operate.backup",
        "After a restore, recover charges that the ledger lacks from its witnesses, with the agent stopped.",
    ),
    "regress": ("cli.regression", "Publish a private linear regression on this member's own rows."),
    "regressions": ("cli.regression", "List regressions that were paid for, or show one."),
    "linkage": ("cli.home", "Share the members' linkage key so that the coordinator cannot read it."),
    "token": ("cli.home", "Manage tokens of the local API for this member's systems."),
    "webhook": ("cli.home", "Notify one of this member's systems of proposals that wait for a person."),
    "backup": ("operate.backup", "Back up ledger, settings, policy, pins and keys to FILE, even while the agent runs."),
    "restore": ("operate.backup", "Restore the newest backup into HOME, which must not exist."),
    "rotate-key": ("cli.home", "Replace this member's signing and sealing key, with the agent stopped."),
    "audit": ("cli.home", "Export this member's history for an auditor, or verify one."),
    "doctor": ("cli.home", "Check home, ledger, data, disk and coordinator, and say how to fix problems."),
}


@click.group(
    cls=LazyGroup,
    commands_at={name: (f"commingle.party_agent.{module}", said) for name, (module, said) in _COMMANDS.items()},
)
def party() -> None:
    """Run and operate a member's agent, beside the member's own data."""
    from commingle.shared.runtime.telemetry import configure_logging  # noqa: PLC0415 - help needs none

    configure_logging(service="party", level="warning")  # to standard error: output is for results
