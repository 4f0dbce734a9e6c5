"""`commingle party join`: from an invitation to an agent that can take part."""

import time
from pathlib import Path
from typing import Any

import click

from commingle.party_agent.cli.data import declare, id_rule_option, people_options, place_of, say_found
from commingle.party_agent.cli.home import BUDGET, budget_options, new_settings
from commingle.party_agent.cli.serve import serve
from commingle.party_agent.errors import ConflictError
from commingle.party_agent.home.home import Home
from commingle.party_agent.operate.compose import agent_client, calling, home_option
from commingle.party_agent.operate.membership import (
    Roster,
    confirm,
    enrol,
    joined,
    make_home,
    roster,
    share_linkage_key,
)
from commingle.shared.documents.invitation import INVITE_PREFIX, LETTERS, Invitation
from commingle.shared.runtime.cli import NEW_FILE, at_home, say
from commingle.shared.runtime.console import PlainConsole
from commingle.shared.runtime.coordinator_client import CoordinatorClient
from commingle.shared.runtime.csv_format import CsvFormat, csv_options
from commingle.shared.runtime.files import read_plain
from commingle.shared.runtime.settings import system_clock
from commingle.shared.runtime.tls import ca_option, http_option

_LOOK_SECONDS = 1.0
_IN_A_ROW = 4


def _invitation(_: click.Context, __: click.Parameter, given: str) -> Invitation:
    """As given, or from the file of that name, which has no `+` in it and is no invite."""
    typed = "+" in given or given.startswith(f"{INVITE_PREFIX}.")
    try:
        return Invitation.parse(given if typed else read_plain(given).decode(errors="replace"))
    except OSError as error:
        raise click.BadParameter(f"neither an invitation nor a file that can be read ({error.strerror})") from None


@click.command(
    epilog="\b\nExamples:\n  commingle party join INVITATION --home ./ward\n"
    "  commingle party join INVITATION --home ./ward --source stays.csv --subject-id patient --schema schema.json "
    "--serve"
)
@click.argument("invitation", callback=_invitation)
@home_option
@budget_options
@click.option("--source", type=NEW_FILE, help="A CSV, Parquet or Excel file to register.")
@click.option(
    "--subject-id",
    metavar="COLUMN",
    multiple=True,
    help="The column that identifies the person. Repeatable, if several columns together do.",
)
@id_rule_option
@click.option("--schema", type=NEW_FILE, help="A JSON array of attributes.")
@people_options
@click.option("--dataset", default="main", show_default=True, help="The name of the data set.")
@click.option("--wait-minutes", default=60.0, show_default=True, help="How long to wait for the other members.")
@click.option("--serve", "serves", is_flag=True, help="Then run the agent until you stop it.")
@csv_options
@ca_option
@http_option
@click.pass_context
def join(
    ctx: click.Context,
    /,
    *,
    invitation: Invitation,
    home: Home,
    source: Path | None,
    csv_format: CsvFormat | None,
    dataset: str,
    wait_minutes: float,
    serves: bool,
    ca_file: Path | None,
    allow_http: bool,
    **said: Any,  # noqa: ANN401 - click
) -> None:
    """Join a new consortium: home, keys, data set, everybody's words, pins, linkage key.

    INVITATION is the line the coordinator's operator sent, or a file that holds it: who else is on this machine sees
    what commands are given, but no file.

    When all members are there, each is shown twelve words. Read them to each other over the telephone and type them:
    they say that all of you were shown the same keys. Repeat the command if it was interrupted.
    """
    budget = {name: said.pop(name) for name in BUDGET}
    given = {"--source": source, "--subject-id": said["subject_id"], "--schema": said["schema"]}
    if len(lacking := [name for name, value in given.items() if not value]) in {1, 2}:
        raise click.UsageError(f"--source, --subject-id and --schema go together: add {' and '.join(lacking)}")
    make_home(home, new_settings(invitation.party, **budget), invitation)
    membership = joined(home, invitation.coordinator) or enrol(
        home, url=invitation.url, invite=invitation.invite, ca_file=ca_file and ca_file.resolve(), allow_http=allow_http
    )
    say(f"{invitation.party} is enrolled at {membership.coordinator().url}.")
    if source is not None and _is_registered(home, dataset):
        say(
            f"Data set {dataset} is registered already and stays. To register another table or other options: "
            f"commingle party datasets add {dataset} {at_home(home.root)} --replace --source … "
            "--subject-id … --schema …"
        )
    elif source is not None:
        say_found(PlainConsole(), declare(home, dataset, place_of(str(source), csv_format), **said))
    elif not _is_registered(home, dataset):
        say(
            f"No table is registered yet, so there is nothing to release. Register it when you like: commingle party "
            f"datasets add {dataset} {at_home(home.root)} --source … --subject-id … --schema …"
        )
    with calling(home, membership) as client:
        keys = _wait_for_all(home, client, invitation, seconds=60 * wait_minutes)
        if confirm(membership, keys, invitation.party, lambda words, wrong: _read_out(words, invitation, wrong)):
            say(f"The keys of {', '.join(name for name in sorted(keys) if name != invitation.party)} are pinned.")
        check = share_linkage_key(home, membership, client, invitation, clock=system_clock)
    say(
        f"The linkage key's check value, the same for all: {check}"
        if check is not None
        else f"The linkage key comes from {invitation.key_maker}; the running agent takes it over."
    )
    say(f"Read and decide proposals in a browser, while the agent runs: commingle party console {at_home(home.root)}")
    if serves:
        ctx.invoke(serve, home=home.root)
    else:
        say(f"Run the agent: commingle party serve {at_home(home.root)}")


def _is_registered(place: Home, dataset: str) -> bool:
    with agent_client(place) as agent:
        return any(one.name == dataset for one in agent.datasets())


def _wait_for_all(place: Home, client: CoordinatorClient, invited: Invitation, *, seconds: float) -> Roster:
    until, said = time.monotonic() + seconds, ""
    while True:
        keys, missing = roster(place, client, invited)
        if not missing:
            return keys
        if time.monotonic() >= until:
            raise ConflictError(
                f"{', '.join(missing)} did not join in time", remedy="Repeat the command when they have."
            )
        if said != (now := ", ".join(missing)):
            say(f"Waiting for {now} …")
        said = now
        time.sleep(_LOOK_SECONDS)


def _read_out(words: tuple[str, ...], invited: Invitation, wrong: str) -> str:
    if wrong:
        say(f"That is not right: {wrong}. Have it read once more, slowly. Do not type what your own screen shows.")
        return _typed()
    rows = (words[start : start + _IN_A_ROW] for start in range(0, len(words), _IN_A_ROW))
    shown = "\n".join("  " + "".join(f"{word:<12}" for word in row) for row in rows)
    say(
        f"\nThe words of {', '.join(sorted(invited.members))}, and of their coordinator:\n\n{shown}\n\n"
        "Call each other, all of you. One reads the words, the others type what they hear; then another reads them to "
        "the first.\nEverybody has to hear somebody else, and to say that it was accepted. Tell each other as well "
        "how your ids are written, without naming one."
    )
    return _typed()


def _typed() -> str:
    typed: str = click.prompt(f"What you hear (the first {LETTERS} letters of each will do)", err=True)
    return typed
