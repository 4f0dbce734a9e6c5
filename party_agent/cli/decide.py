"""`commingle party proposals`, `approve`, `propose`, `ledger`, `console` and more: what is asked, decided and spent."""

import secrets
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from getpass import getuser
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from commingle.party_agent.edge.client import PartyClient
from commingle.party_agent.errors import NotFoundError
from commingle.party_agent.home.home import Home
from commingle.party_agent.home.tokens import AgentScope, create_token, end_session, token_of_session
from commingle.party_agent.operate.compose import (
    agent_client,
    agent_clients,
    consortium_option,
    home_option,
    person_option,
)
from commingle.party_agent.wire.answers import (
    CHARGE_STATES,
    DecidedView,
    LedgerView,
    LossView,
    ProposalView,
    ProposedView,
    risk_in_words,
    words_for_decision,
)
from commingle.shared.documents.manifest import TRUST_WITH_NO_ROWS
from commingle.shared.documents.study import Study
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.release.checks import tried
from commingle.shared.runtime.attachments import attach_option, with_attachments
from commingle.shared.runtime.cli import (
    NEW_FILE,
    at_home,
    changes,
    emit,
    reads,
    refuse_beside,
    together,
    wants_json,
    whole_id,
)
from commingle.shared.runtime.console import PlainConsole
from commingle.shared.runtime.settings import load_settings, read_token, system_clock
from commingle.shared.runtime.sso import Place, console_options, require_sso
from commingle.shared.runtime.telemetry import configure_logging
from commingle.shared.text import quoted

_WHOLE_ID = 64
_LEAST_OF_ID = 8  # of 64: so that no letter by mistake decides
_deciding = together(
    home_option,
    click.argument("release"),
    click.option("--by", metavar="NAME", help="Who decides.  [the user logged in, or whose token it is]"),
    click.option("--why", metavar="TEXT", default="", help="Your reason. A rejection sends it to the members."),
    click.option(
        "--token-file",
        type=NEW_FILE,
        help="Decide as the person whom this token was made for: where two people have to approve, one at least has "
        "one.",
    ),
    click.option("--yes", is_flag=True, help="Do not ask."),
    changes(ProposalView),
)


@click.command(
    epilog="\b\nExamples:\n  commingle party proposals --home ./ward\n"
    "  commingle party proposals --home ./ward 8d0c3f7a"
)
@home_option
@click.argument("release", required=False)
@reads(ProposalView, items=tuple[ProposalView, ...])
def proposals(*, home: Home, release: str | None) -> None:
    """List proposals with their cost and findings.

    RELEASE, the first 8 letters of an id or more, shows that one alone.
    """
    with agent_client(home) as agent:
        found = agent.proposals() if release is None else (_find(agent, release),)
    value = {"items": found} if release is None else found[0]

    def text(console: Console) -> None:
        for item in found:
            show_proposal(console, item, whole=release is not None)
        if found and release is None:
            console.print(f"All of one: commingle party proposals {at_home(home.root)} {found[0].id[:12]}")
        if not found:
            console.print("No proposals.")

    emit(value, text=text)


@click.command(epilog="Example: commingle party approve --home ./ward 8d0c3f7a --by 'Dr. Adams' --why 'vote 12/26'")
@_deciding
def approve(**given: Any) -> None:  # noqa: ANN401 - click
    """Approve a proposal: reserve its cost and sign.

    It is shown first. RELEASE is its id, or the first 8 letters of it or more. Who approved, and why, goes into this
    member's ledger and to nobody else. Where the policy asks for two people, the second approval reserves and signs.
    """
    _decide("approval", **given)


@click.command(epilog="Example: commingle party reject --home ./ward 8d0c3f7a --by 'Dr. Adams' --why 'no ethics vote'")
@_deciding
def reject(**given: Any) -> None:  # noqa: ANN401 - click
    """Reject a proposal, or withdraw from it. A charge that was debited stays.

    RELEASE is its id, or the first 8 letters of it or more. The ledger keeps who rejected, and why. The reason
    goes to the members, the proposer among them; the name does not.
    """
    _decide("rejection", **given)


@click.command(epilog="Example: commingle party ledger --home ./ward --replacement")
@home_option
@click.option(
    "--replacement",
    is_flag=True,
    help="For keyed data sets: also show the privacy loss when a person's values change and the person stays.",
)
@reads(LedgerView)
def ledger(*, home: Home, replacement: bool) -> None:
    """Show charges and the remaining budget."""
    with agent_client(home) as agent:
        value = agent.ledger()

    def text(console: Console) -> None:
        cap = value.cap
        console.print(
            f"Population {value.population}: cap epsilon {cap.epsilon:g} at delta {cap.delta:g} ({value.unit})"
        )
        table = Table("release", "study", "state", "unit", "epsilon", "rho")
        for charge in value.charges:
            about = charge.release[:16], quoted(charge.study), CHARGE_STATES[charge.state]
            table.add_row(*about, charge.unit, *_figures(charge))
            if replacement and charge.replacement:
                table.add_row("", "", "", Adjacency.REPLACE_ONE, *_figures(charge.replacement))
        console.print(table)
        for charge in value.charges:
            _show_decided(console, charge.decided, before=f"{charge.release[:16]}  ")
        spent, left = value.spent.epsilon, value.remaining.epsilon
        console.print(f"Spent epsilon {spent:.4g}, left {left:.4g} ({value.unit}).")
        if replacement:
            console.print(f"Spent epsilon {value.replacement.epsilon:.4g} ({Adjacency.REPLACE_ONE}).")
        console.print("Epsilons do not add, rhos do.")

    emit(value, text=text)


def _figures(loss: LossView) -> tuple[str, str]:
    return f"{loss.epsilon:.4g}", f"{loss.rho:.4g}"


@click.command(epilog="Example: commingle party propose study.json --home ./ward --attach protocol.pdf")
@click.argument("study", type=NEW_FILE)
@home_option
@consortium_option
@attach_option
@changes(ProposedView)
def propose(*, study: Path, home: Home, consortium: str | None, files: tuple[Path, ...]) -> None:
    """Propose the release that STUDY, a JSON file, describes. Every member that it names decides on it."""
    from commingle.shared.forecast.forecast import outlook_of, with_sketch  # noqa: PLC0415 - loads scipy, which no decision needs

    asked = with_attachments(load_settings(Study, study), files)
    with agent_client(home) as agent:
        value = agent.propose(asked, key=secrets.token_hex(16), consortium=consortium)
    trust = () if value.trust == TRUST_WITH_NO_ROWS else (value.trust,)
    worth = () if wants_json() else outlook_of(tried(with_sketch(asked), now=system_clock()))
    said = (value.id, f"{quoted(value.study)}: {value.state}", *worth, *trust)
    decide = f"Decide on it, too: commingle party approve {at_home(home.root)} {value.id[:12]}"
    emit(value, text="\n".join([*said, decide]))


def _decide(
    decision: str,
    *,
    home: Home,
    release: str,
    by: str | None,
    why: str,
    token_file: Path | None,
    yes: bool,
) -> None:
    if wants_json() and not yes:
        raise click.UsageError("--json asks nobody: add --yes.")
    token = read_token(token_file)
    name = by or (getuser() if token is None else "")
    with agent_client(home) as operator:  # not held while a person thinks: an agent may start meanwhile
        asked = _find(operator, release)
    if not wants_json():
        show_proposal(PlainConsole(stderr=True), asked)  # before anything is reserved or signed
    if not yes:
        verb = "Approve" if decision == "approval" else "Reject"
        click.confirm(f"{verb} this as {name or 'the person of this token'}?", abort=True, err=True)
    with agent_client(home, token=token) as person:
        take = person.approve if decision == "approval" else person.reject
        value = take(asked.id, by=name, why=why)
    emit(value, text=lambda console: _show_standing(console, value))


def _find(agent: PartyClient, release: str) -> ProposalView:
    if len(release) < _LEAST_OF_ID:
        raise click.UsageError(f"give at least the first {_LEAST_OF_ID} letters of the release's id")
    if len(release) == _WHOLE_ID:
        return agent.proposal(release)
    known = {item.id: item for item in agent.proposals()}
    if (found := whole_id(release, known)) is None:
        raise NotFoundError("no such proposal", remedy="List them: commingle party proposals")
    return known[found]


def show_proposal(console: Console, item: ProposalView, *, whole: bool = True) -> None:
    """What a person decides by; if not whole, without the details of the forecast."""
    k = f", {item.projection or 'dense'} mixing, k = {item.k}" if item.k else ""
    _show_standing(console, item)
    for finding in item.findings:
        console.print(Text.assemble(("  speaks against it: ", "red"), finding))
    for sentence in item.stated_sentences or ["Nothing is said of what it is for."]:
        console.print(f"  {sentence}")
    counted = f", of whom about {item.kept} count" if item.kept is not None else ""
    console.print(f"  {item.mechanism}{k}, n = {item.n}{counted}, with {', '.join(item.parties)}")
    console.print(f"  asks of {item.dataset}: {', '.join(item.attributes)}")
    for words in (*item.missing, *(item.wide or ()), *filter(None, [item.miscounted])):
        console.print(f"  {words}")
    console.print(f"  matches people by ids as {', '.join(item.id_rules)} writes them")
    if item.whitening:
        console.print(
            f"  maps this member's {item.whitening.columns} encoded columns by a public matrix (condition number "
            f"{item.whitening.condition_number:.3g}), then clips rows to norm {item.row_norm:g}"
        )
    if item.first_stage:
        console.print(
            f"  first publishes {item.first_stage.sums} sums of this member's columns with noise (epsilon "
            f"{item.first_stage.epsilon:.3g}, {item.adjacency}, of what it costs), then scales the columns as "
            f"they suggest and clips rows to norm {item.row_norm:g}"
        )
    console.print(
        f"  epsilon {item.epsilon:g}, delta {item.delta:g} ({item.adjacency}); costs this ledger epsilon "
        f"{item.cost.epsilon:.3g} ({item.cost.unit})"
    )
    lost = (  # a subject is a row at every party, which the cost to one ledger does not tell
        f"{' '.join(risk_in_words(item))} A person loses at most, by all members together ({item.adjacency}): to "
        f"outsiders epsilon {item.per_subject_outsiders_epsilon:.3g}; to everybody, fellow members included, epsilon "
        f"{item.per_subject_epsilon:.3g}."
    )
    for sentence in (lost, item.protects, item.trust, *item.outlook[: None if whole else 1]):
        console.print(f"  {sentence}")
    _show_decided(console, item.decided, before="  ")


def _show_decided(console: Console, decided: Sequence[DecidedView], *, before: str) -> None:
    for note in decided:
        why = f": {quoted(note.why)}" if note.why else ""
        console.print(f"{before}{note.document.replace('-', ' ')} by {quoted(note.by)}{why}")


def _show_standing(console: Console, item: ProposalView) -> None:
    stands = f"  {item.id[:16]}  {item.state}, here {words_for_decision(item)}"
    console.print(Text.assemble((quoted(item.study), "bold"), stands))
    if item.reason:
        console.print(f"  It ended: {quoted(item.reason)}")


_LONGEST_SESSION = timedelta(hours=8)


@click.command(
    epilog="\b\nExamples:\n  commingle party console --home ./ward\n"
    "  commingle party console --home ./ward --sso --port 8900"
)
@home_option
@person_option
@console_options
def console(*, home: Home, person: str, place: Place) -> None:
    """Read and decide proposals in a browser.

    A link is printed that works once, on this machine. Ctrl-C ends the console. With --person it is for that person,
    who may read and decide there and nothing else; without, for the operator. With --sso many people sign on, from
    anywhere, and each may do there what "sso" in HOME/settings.json gives their groups.

    On a machine without a browser choose a --port, and forward it: ssh -L PORT:127.0.0.1:PORT. Browsers take every
    name under .localhost for their own machine; where one does not, add the name to its hosts file.
    """
    from commingle.party_agent.console.app import create_console  # noqa: PLC0415 - help needs no FastAPI
    from commingle.shared.runtime.pages.doors import Session, run_console, run_sso_console  # noqa: PLC0415 - as above

    settings = home.settings()  # refuses a directory that is no party's home
    make = partial(create_console, home, reach=agent_clients(home))
    if place.sso:
        refuse_beside("--sso", "person")
        configure_logging(service="party_console", party=settings.name)
        sso = require_sso(settings.sso, str(home.root / "settings.json"))
        opened, closed = partial(token_of_session, home, minutes=sso.session_minutes), partial(end_session, home)
        run_sso_console(make, sso, place, opened=opened, closed=closed)
        return
    token = None
    if person:
        name, scopes = f"console-{secrets.token_hex(4)}", frozenset[AgentScope](("read", "decide"))
        now = system_clock()
        token = create_token(home, name=name, scopes=scopes, lifetime=_LONGEST_SESSION, now=now, person=person)
    try:
        run_console(make, Session(person, token), port=place.port, command="commingle party console")
    finally:
        if token is not None:
            end_session(home, token)
