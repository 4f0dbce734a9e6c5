"""`commingle party`: the composition root of the agent's process, and its operator's commands."""

import json
import os
import signal
from pathlib import Path
from threading import Thread
from typing import Any, TextIO

import click
from pydantic import ValidationError
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from commingle.party_agent.app import Desk, create_app
from commingle.party_agent.compose import RunningAgent, ask, compose_agent
from commingle.party_agent.enrolment import enrol as enrol_party
from commingle.party_agent.home import Home, PartySettings
from commingle.party_agent.loop import Loop
from commingle.party_agent.options import home_option
from commingle.party_agent.policy import Policy
from commingle.party_agent.rotation import rotate_key as rotate_party_key
from commingle.party_agent.token_cli import token
from commingle.party_agent.trust_cli import audit, doctor, linkage
from commingle.party_agent.whiten_cli import whiten
from commingle.shared.documents.model import explain
from commingle.shared.documents.schema import parse_attributes
from commingle.shared.runtime import faults
from commingle.shared.runtime.cli import LazyGroup, emit, json_option
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.files import remove_durably, write_durably
from commingle.shared.runtime.keyfiles import load_secret
from commingle.shared.runtime.logging import configure_logging
from commingle.shared.runtime.server import serve as serve_app
from commingle.shared.runtime.settings import load_settings
from commingle.shared.runtime.tls import ca_option

_JOIN_SECONDS = 5.0
_LONGEST_INVITE = 1000
_LAZY = {  # these load scipy
    "regress": (
        "commingle.party_agent.regression.cli",
        "Publish a private linear regression on this party's own rows.",
    ),
    "regressions": ("commingle.party_agent.regression.cli", "List regressions that were paid for, or show one."),
}


@click.group(cls=LazyGroup, commands_at=_LAZY)
def party() -> None:
    """Run and operate a party's agent, beside the party's own data."""
    configure_logging(service="party", level="warning")  # to standard error: output is for results


party.add_command(audit)
party.add_command(linkage)
party.add_command(doctor)
party.add_command(token)
party.add_command(whiten)


@party.command(epilog="Example: commingle party init --home ./ward --name ward --epsilon-cap 6")
@home_option
@click.option("--name", required=True, help="Lower-case name, as the consortium will know it.")
@click.option("--population", default="default", show_default=True, help="Whose data the budget is for.")
@click.option("--epsilon-cap", type=float, default=10.0, show_default=True, help="The most it may ever lose.")
@click.option("--delta-cap", type=float, default=1e-5, show_default=True)
@click.option(
    "--linkage-key",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The consortium's linkage key, made by the first member; left out, this member makes it.",
)
@click.option(
    "--no-linkage-key", "receives", is_flag=True, help="A fellow member will send it: commingle party linkage send."
)
@click.option("--policy", "policy_file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@json_option
def init(
    *,
    home: Path,
    name: str,
    population: str,
    epsilon_cap: float,
    delta_cap: float,
    linkage_key: Path | None,
    receives: bool,
    policy_file: Path | None,
    as_json: bool,
) -> None:
    """Make a party's home: fresh keys, settings and policy."""
    place = Home(home)
    try:
        settings = PartySettings(name=name, population=population, epsilon_cap=epsilon_cap, delta_cap=delta_cap)
    except ValidationError as error:
        raise SettingsError(f"these settings cannot be used: {explain(error)}", remedy="See --help.") from None
    policy = load_settings(Policy, policy_file) if policy_file else Policy()
    if receives and linkage_key is not None:
        raise click.UsageError("--linkage-key and --no-linkage-key exclude each other")
    given = load_secret(linkage_key) if linkage_key else None
    place.create(settings, policy=policy, linkage_key=given, receives_linkage_key=receives)
    fingerprint = place.identity().signing_key.fingerprint

    def text(console: Console) -> None:
        console.print(f"Party [bold]{name}[/bold] is ready in {home}.\nKey fingerprint: {fingerprint}")
        console.print("Read it to your fellow members over the telephone; they run:")
        console.print(f"  commingle party pin --home … {name} {fingerprint}", soft_wrap=True)
        if linkage_key is None and not receives:
            console.print("This party holds the linkage key. Once the others are enrolled and pinned, send it to them:")
            console.print(f"  commingle party linkage send --home {home}", soft_wrap=True)

    emit({"home": str(home), "name": name, "fingerprint": fingerprint}, as_json=as_json, text=text)


@party.command(
    epilog="Example: commingle party enrol --home ./ward --coordinator https://c.example --invite-file invite.txt"
)
@home_option
@click.option("--coordinator", "url", required=True, help="The coordinator's URL.")
@click.option("--invite", help="The one-time invite its operator sent.")
@click.option(
    "--invite-file", type=click.File(errors="replace"), help="The same from a file, or from standard input: -"
)
@ca_option
@json_option
def enrol(
    *, home: Path, url: str, invite: str | None, invite_file: TextIO | None, ca_file: Path | None, as_json: bool
) -> None:
    """Join a consortium and pin its coordinator's key."""
    if (invite is None) == (invite_file is None):
        raise click.UsageError("give either --invite or --invite-file")
    given = invite_file.read(_LONGEST_INVITE) if invite_file is not None else invite or ""
    coordinator = enrol_party(Home(home), url=url, invite=given, ca_file=ca_file and ca_file.resolve())
    fingerprint = coordinator.key.fingerprint
    emit(
        {"coordinator": url, "fingerprint": fingerprint},
        as_json=as_json,
        text=lambda console: console.print(f"Enrolled at {url}.\nIts key {fingerprint} is pinned."),
    )


def _pins(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Fingerprints by member, given as MEMBER FINGERPRINT … or as MEMBER=FINGERPRINT …."""
    flat = [part for one in given for part in one.split("=")] if all("=" in one for one in given) else list(given)
    pins = dict(zip(flat[::2], flat[1::2], strict=False))
    if len(flat) % 2 or 2 * len(pins) != len(flat) or not all(pins):
        raise click.BadParameter("give pairs: MEMBER FINGERPRINT or MEMBER=FINGERPRINT, each member once")
    return pins


@party.command(
    epilog="\b\nExamples:\n  commingle party pin --home ./ward laboratory 3f7a…\n"
    "  commingle party pin --home ./ward laboratory=3f7a… insurer=90bc…"
)
@home_option
@click.argument("pins", metavar="MEMBER=FINGERPRINT...", nargs=-1, required=True, callback=_pins)
@json_option
def pin(*, home: Path, pins: dict[str, str], as_json: bool) -> None:
    """Trust fellow members' keys, after comparing their fingerprints over another channel."""
    pinned = Home(home).pin_all(pins)
    emit(
        {"pinned": dict(pinned)},
        as_json=as_json,
        text=lambda console: console.print(f"{', '.join(pinned)} pinned.", markup=False),
    )


@party.command("rotate-key", epilog="Example: commingle party rotate-key --home ./ward")
@home_option
@click.option("--abandon-open", is_flag=True, help="Also if approved releases are open; what they cost stays spent.")
@json_option
def rotate_key(*, home: Path, abandon_open: bool, as_json: bool) -> None:
    """Replace this party's signing and sealing key, with the agent stopped. Repeat it if it was interrupted."""
    with compose_agent(Home(home)) as agent:
        name, fingerprint = agent.identity.name, rotate_party_key(agent, abandon_open=abandon_open)
    emit(
        {"name": name, "fingerprint": fingerprint},
        as_json=as_json,
        text=lambda console: console.print(
            f"The new key's fingerprint: {fingerprint}\nRead it to your fellow members; until they have run\n"
            f"  commingle party pin --home … {name} {fingerprint}\nnew proposals wait at theirs.",
            soft_wrap=True,
        ),
    )


@party.command(epilog="Example: commingle party serve --home ./ward")
@home_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Where the local API listens.")
@click.option("--port", default=8100, show_default=True, type=click.IntRange(0, 65535))
@click.option("--log-level", default="info", show_default=True, type=click.Choice(["debug", "info", "warning"]))
@json_option
def serve(*, home: Path, host: str, port: int, log_level: str, as_json: bool) -> None:
    """Run the agent: answer proposals, privatise, upload. The first line of output says where it listens."""
    del as_json  # the announcement is JSON either way
    configure_logging(service="party_agent", level=log_level)
    faults.arm_from(os.environ)
    place = Home(home)
    if place.next_key.exists():  # the coordinator may know the next key already, and only that one
        raise SettingsError("the key is being replaced", remedy="Finish it: commingle party rotate-key")
    with compose_agent(place) as agent:
        loop = Loop(agent)
        thread = Thread(target=loop.run, kwargs={"on_halt": lambda: os.kill(os.getpid(), signal.SIGTERM)}, daemon=True)

        def started(url: str) -> None:
            write_durably(place.running, RunningAgent(url=url).model_dump_json().encode())
            thread.start()

        try:
            serve_app(create_app(Desk(agent, place.token(), loop)), host=host, port=port, on_listening=started)
        finally:
            remove_durably(place.running)  # another process may listen there next, and would be sent our token
            loop.finish(thread, seconds=_JOIN_SECONDS)
        if loop.halted is not None:
            raise loop.halted


@party.command()
@home_option
@json_option
def status(*, home: Path, as_json: bool) -> None:
    """Show who this agent is and how it is."""
    value = ask(Home(home), "GET", "/v1/status")

    def text(console: Console) -> None:
        for key, said in value.items():
            console.print(f"{key.replace('_', ' ')}: {escape(str(said))}", soft_wrap=True)

    emit(value, as_json=as_json, text=text)


@party.group()
def datasets() -> None:
    """Register the tables this party can contribute."""


@datasets.command(
    "add",
    epilog="Example: commingle party datasets add main --home ./ward --source stays.csv --subject-id patient "
    "--schema schema.json",
)
@home_option
@click.argument("name")
@click.option("--source", type=click.Path(path_type=Path, dir_okay=False), help="A CSV or Parquet file.")
@click.option("--database-url", help="An SQLAlchemy URL, with --query.")
@click.option("--database-url-file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--query", help="A SELECT that returns the subject id and every attribute.")
@click.option("--subject-id", required=True, help="The column that says who a row is about.")
@click.option(
    "--schema", type=click.Path(path_type=Path, dir_okay=False), required=True, help="A JSON array of attributes."
)
@click.option("--replace", is_flag=True, help="Register again, for example after the table changed.")
@json_option
def add_dataset(
    *,
    home: Path,
    name: str,
    source: Path | None,
    database_url: str | None,
    database_url_file: Path | None,
    query: str | None,
    subject_id: str,
    schema: Path,
    replace: bool,
    as_json: bool,
) -> None:
    """Read a table once, validate it against its schema, and remember it."""
    if database_url_file is not None:
        database_url = database_url_file.read_text().strip()
    if (source is None) == (database_url is None) or (database_url is None) != (query is None):
        raise click.UsageError("give either --source, or --database-url (or its file) with --query")
    try:
        attributes = parse_attributes(schema.read_bytes())
    except OSError as error:
        raise SettingsError(f"cannot read {schema} ({error.strerror})", remedy="Check the path.") from None
    where: dict[str, Any] = (
        {"kind": "file", "path": str(source.resolve())}
        if source is not None
        else {"kind": "sql", "url": database_url, "query": query, "order_by": subject_id}
    )
    body = {
        "name": name,
        "source": where,
        "subject_id": subject_id,
        "attributes": [attribute.model_dump(mode="json") for attribute in attributes],
    }
    value = ask(
        Home(home), "POST", "/v1/datasets", body=json.dumps(body).encode(), params={"replace": str(replace).lower()}
    )

    def text(console: Console) -> None:
        console.print(f"Data set [bold]{value['name']}[/bold]: {value['n']} subjects.")
        for kind, verb in (("clipped", "were outside the bounds and are clipped"), ("missing", "are missing")):
            for attribute, count in value[kind].items():
                if count:
                    console.print(f"  {attribute}: {count} values {verb}")

    emit(value, as_json=as_json, text=text)


@datasets.command("list")
@home_option
@json_option
def list_datasets(*, home: Path, as_json: bool) -> None:
    """List registered data sets."""
    value = ask(Home(home), "GET", "/v1/datasets")

    def text(console: Console) -> None:
        table = Table("name", "subjects", "attributes", "source")
        for item in value["items"]:
            names = ", ".join(attribute["name"] for attribute in item["attributes"])
            table.add_row(item["name"], str(item["n"]), names, escape(item["source"]))
        console.print(table)

    emit(value, as_json=as_json, text=text)


@party.command()
@home_option
@json_option
def proposals(*, home: Path, as_json: bool) -> None:
    """List what this party has been asked, with cost and findings."""
    value = ask(Home(home), "GET", "/v1/proposals")
    emit(value, as_json=as_json, text=lambda console: _show_proposals(console, value["items"]))


@party.command(epilog="Example: commingle party approve --home ./ward 8d0c…")
@home_option
@click.argument("release")
@json_option
def approve(*, home: Path, release: str, as_json: bool) -> None:
    """Approve a proposal: reserves its cost and signs. RELEASE may be the beginning of its id."""
    _decide(home, release, "approval", as_json=as_json)


@party.command()
@home_option
@click.argument("release")
@json_option
def reject(*, home: Path, release: str, as_json: bool) -> None:
    """Reject a proposal, or withdraw from it. A charge that was debited stays."""
    _decide(home, release, "rejection", as_json=as_json)


@party.command()
@home_option
@json_option
def ledger(*, home: Path, as_json: bool) -> None:
    """Show charges and what is left of the budget."""
    value = ask(Home(home), "GET", "/v1/ledger")

    def text(console: Console) -> None:
        cap = value["cap"]
        console.print(f"Population {value['population']}: cap epsilon {cap['epsilon']:g} at delta {cap['delta']:g}")
        table = Table("release", "study", "state", "epsilon", "rho")
        for charge in value["charges"]:
            figures = f"{charge['epsilon']:.4g}", f"{charge['rho']:.4g}"
            table.add_row(charge["release"][:16], escape(charge["study"]), charge["state"], *figures)
        console.print(table)
        console.print(f"Spent epsilon {value['spent']['epsilon']:.4g}, left {value['remaining']['epsilon']:.4g}.")
        console.print("Unit: rho-zCDP under replace_one; epsilons do not add, rhos do.")

    emit(value, as_json=as_json, text=text)


def _decide(home: Path, release: str, decision: str, *, as_json: bool) -> None:
    known = ask(Home(home), "GET", "/v1/proposals")["items"]
    matching = [item for item in known if item["id"].startswith(release)]
    if len(matching) > 1:
        raise click.UsageError(f"{release} is the beginning of several releases")
    if matching and decision == "approval" and not as_json:
        said = [f"Approving {matching[0]['mechanism']}. {matching[0]['trust']}", *matching[0]["outlook"]]
        click.echo("\n".join(said), err=True)  # before anything is reserved or signed
    value = ask(Home(home), "PUT", f"/v1/proposals/{matching[0]['id'] if matching else release}/{decision}")
    emit(value, as_json=as_json, text=lambda console: _show_proposal(console, value))


def _show_proposals(console: Console, items: list[dict[str, Any]]) -> None:
    for item in items:
        _show_proposal(console, item)
    if not items:
        console.print("No proposals.")


def _show_proposal(console: Console, item: dict[str, Any]) -> None:
    k = f", k = {item['k']}" if item["k"] else ""
    console.print(f"[bold]{escape(item['study'])}[/bold]  {item['id'][:16]}  {item['state']}, here {item['decision']}")
    console.print(f"  {item['mechanism']}{k}, n = {item['n']}, with {', '.join(item['parties'])}")
    console.print(f"  asks of {item['dataset']}: {', '.join(item['attributes'])}", soft_wrap=True)
    if item["whitening"]:
        console.print(
            f"  maps this party's {item['whitening']['columns']} encoded columns by a public matrix (condition number "
            f"{item['whitening']['condition_number']:.3g}), then clips rows to norm {item['row_norm']:g}",
            soft_wrap=True,
        )
    console.print(
        f"  epsilon {item['epsilon']:g}, delta {item['delta']:g} ({item['adjacency']}); costs this ledger epsilon "
        f"{item['cost']['epsilon']:.3g}; a subject loses at most {item['per_subject_epsilon']:.3g} over all parties",
        soft_wrap=True,
    )
    for sentence in (item["protects"], item["trust"], *item["outlook"]):
        console.print(f"  {escape(sentence)}", soft_wrap=True)
    for finding in item["findings"]:
        console.print(f"  [red]speaks against it:[/red] {escape(finding)}", soft_wrap=True)
