"""`commingle party webhook`: whom of the party's own systems the agent tells that a proposal waits."""

from pathlib import Path

import click

from commingle.party_agent.compose import home_option
from commingle.party_agent.home import Home
from commingle.party_agent.webhook import remove_webhook, send_test, set_webhook
from commingle.shared.runtime.cli import emit, json_option
from commingle.shared.runtime.tls import ca_option, http_option


@click.group()
def webhook() -> None:
    """Tell one of this party's own systems that a proposal waits for a person."""


@webhook.command("set", epilog="Example: commingle party webhook set https://desk.example/proposals --home ./ward")
@click.argument("url")
@home_option
@ca_option
@http_option
@json_option
def set_url(*, url: str, home: Path, ca_file: Path | None, allow_http: bool, as_json: bool) -> None:
    """Tell URL, and print the secret by which it can check the messages. It is shown once; set again, it is another."""
    place = Home(home)
    place.settings()  # refuses a directory that is no party's home
    made = set_webhook(place, url, ca_file=ca_file and ca_file.resolve(), allow_http=allow_http)
    emit(
        {"url": made.url, "secret": made.secret},
        as_json=as_json,
        text=lambda console: console.print(made.secret, highlight=False, markup=False, soft_wrap=True),
    )


@webhook.command("test", epilog="Example: commingle party webhook test --home ./ward")
@home_option
@json_option
def send_one(*, home: Path, as_json: bool) -> None:
    """Send a message that says it is a test."""
    url = send_test(Home(home))
    emit({"url": url}, as_json=as_json, text=lambda console: console.print(f"{url} has taken it.", markup=False))


@webhook.command("remove", epilog="Example: commingle party webhook remove --home ./ward")
@home_option
@json_option
def remove(*, home: Path, as_json: bool) -> None:
    """Send no more messages."""
    remove_webhook(Home(home))
    emit({"removed": True}, as_json=as_json, text=lambda console: console.print("The webhook is removed."))
