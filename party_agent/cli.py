"""`commingle party`: the list of its commands. Each is loaded when it is asked for."""

import click

from commingle.shared.runtime.cli import LazyGroup

_COMMANDS = {
    "init": ("commingle.party_agent.home_cli", "Make a party's home: fresh keys, settings and policy."),
    "enrol": (
        "commingle.party_agent.home_cli",
        "Enrol in a consortium, or in another one, and pin its coordinator's key.",
    ),
    "join": (
        "commingle.party_agent.join_cli",
        "Join a new consortium: home, keys, data set, everybody's words, pins, linkage key.",
    ),
    "leave": ("commingle.party_agent.home_cli", "Belong to a consortium no longer, with the agent stopped."),
    "pin": (
        "commingle.party_agent.home_cli",
        "Trust fellow members' keys, after comparing their fingerprints over another channel.",
    ),
    "datasets": ("commingle.party_agent.data_cli", "Register the tables this party can contribute."),
    "whiten": ("commingle.party_agent.data_cli", "Make a whitening matrix from PUBLIC rows."),
    "serve": ("commingle.party_agent.serve_cli", "Run the agent: answer proposals, privatise, upload."),
    "status": ("commingle.party_agent.home_cli", "Show who this agent is and how it is."),
    "proposals": ("commingle.party_agent.decision_cli", "List what this party has been asked, with cost and findings."),
    "approve": ("commingle.party_agent.decision_cli", "Approve a proposal: reserves its cost and signs."),
    "reject": ("commingle.party_agent.decision_cli", "Reject a proposal, or withdraw from it."),
    "propose": ("commingle.party_agent.propose_cli", "Propose the release that STUDY, a JSON file, describes."),
    "console": ("commingle.party_agent.console.cli", "Read and decide proposals in a browser on this machine."),
    "ledger": (
        "commingle.party_agent.decision_cli",
        "Show charges and what is left of the budget.",
    ),
    "adopt": (
        "commingle.party_agent.decision_cli",
        "After a restore, recover missing charges from the copies of witnesses, with the agent stopped.",
    ),
    "regress": (
        "commingle.party_agent.regression.cli",
        "Publish a private linear regression on this party's own rows.",
    ),
    "regressions": ("commingle.party_agent.regression.cli", "List regressions that were paid for, or show one."),
    "linkage": (
        "commingle.party_agent.trust_cli",
        "Share the members' linkage key so that the coordinator cannot read it.",
    ),
    "token": ("commingle.party_agent.trust_cli", "Tokens of the local API for this party's own systems."),
    "webhook": (
        "commingle.party_agent.webhook_cli",
        "Tell one of this party's own systems that a proposal waits for a person.",
    ),
    "backup": (
        "commingle.party_agent.backup",
        "Write ledger, settings, policy, pins and keys to FILE, also while the agent runs.",
    ),
    "restore": (
        "commingle.party_agent.backup",
        "Restore the newest backup into HOME, which must not exist.",
    ),
    "rotate-key": (
        "commingle.party_agent.home_cli",
        "Replace this party's signing and sealing key, with the agent stopped.",
    ),
    "audit": ("commingle.party_agent.trust_cli", "Hand this party's history to an auditor, or check somebody's."),
    "doctor": (
        "commingle.party_agent.trust_cli",
        "Check home, ledger, data, disk and coordinator; say how to mend what is wrong.",
    ),
}


@click.group(cls=LazyGroup, commands_at=_COMMANDS)
def party() -> None:
    """Run and operate a party's agent, beside the party's own data."""
    from commingle.shared.runtime.logging import configure_logging  # noqa: PLC0415 - help needs none

    configure_logging(service="party", level="warning")  # to standard error: output is for results
