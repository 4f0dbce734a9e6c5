"""`commingle party`: the list of its commands. Each is loaded when it is asked for."""

import click

from commingle.shared.runtime.cli import LazyGroup

_COMMANDS = {
    "init": ("commingle.party_agent.cli.home", "Create a member's home directory with keys, settings and a policy."),
    "enrol": (
        "commingle.party_agent.cli.home",
        "Enrol in a consortium and pin its coordinator's key.",
    ),
    "join": (
        "commingle.party_agent.cli.join",
        "Join a new consortium: home, keys, data set, everybody's words, pins, linkage key.",
    ),
    "leave": ("commingle.party_agent.cli.home", "Leave a consortium, with the agent stopped."),
    "pin": (
        "commingle.party_agent.cli.home",
        "Pin members' keys after comparing their fingerprints over another channel.",
    ),
    "datasets": ("commingle.party_agent.cli.data", "Register the tables this member can contribute."),
    "whiten": ("commingle.party_agent.cli.data", "Make a whitening matrix from PUBLIC rows."),
    "serve": ("commingle.party_agent.cli.serve", "Run the agent: answer proposals, privatise, upload."),
    "status": ("commingle.party_agent.cli.home", "Show the agent's identity and health."),
    "proposals": ("commingle.party_agent.cli.decide", "List proposals with their cost and findings."),
    "approve": ("commingle.party_agent.cli.decide", "Approve a proposal: reserve its cost and sign."),
    "reject": ("commingle.party_agent.cli.decide", "Reject a proposal, or withdraw from it."),
    "propose": ("commingle.party_agent.cli.decide", "Propose the release that STUDY, a JSON file, describes."),
    "console": ("commingle.party_agent.cli.decide", "Read and decide proposals in a browser."),
    "ledger": (
        "commingle.party_agent.cli.decide",
        "Show charges and the remaining budget.",
    ),
    "adopt": (
        "commingle.party_agent.cli.decide",
        "After a restore, recover charges that the ledger lacks from its witnesses, with the agent stopped.",
    ),
    "regress": (
        "commingle.party_agent.cli.regression",
        "Publish a private linear regression on this member's own rows.",
    ),
    "regressions": ("commingle.party_agent.cli.regression", "List regressions that were paid for, or show one."),
    "linkage": (
        "commingle.party_agent.cli.trust",
        "Share the members' linkage key so that the coordinator cannot read it.",
    ),
    "token": ("commingle.party_agent.cli.trust", "Manage tokens of the local API for this member's systems."),
    "webhook": (
        "commingle.party_agent.cli.home",
        "Notify one of this member's systems of proposals that wait for a person.",
    ),
    "backup": (
        "commingle.party_agent.operate.backup",
        "Back up ledger, settings, policy, pins and keys to FILE, even while the agent runs.",
    ),
    "restore": (
        "commingle.party_agent.operate.backup",
        "Restore the newest backup into HOME, which must not exist.",
    ),
    "rotate-key": (
        "commingle.party_agent.cli.home",
        "Replace this member's signing and sealing key, with the agent stopped.",
    ),
    "audit": ("commingle.party_agent.cli.trust", "Export this member's history for an auditor, or verify one."),
    "doctor": (
        "commingle.party_agent.cli.trust",
        "Check home, ledger, data, disk and coordinator, and say how to fix problems.",
    ),
}


@click.group(cls=LazyGroup, commands_at=_COMMANDS)
def party() -> None:
    """Run and operate a member's agent, beside the member's own data."""
    from commingle.shared.runtime.middleware import configure_logging  # noqa: PLC0415 - help needs none

    configure_logging(service="party", level="warning")  # to standard error: output is for results
