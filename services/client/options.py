"""Options of the commands that read releases."""

from collections.abc import Mapping

import click

from commingle.services.client.pins import member_pins


def _pins(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> Mapping[str, str]:
    pairs = [one.partition("=") for one in given]
    names = [name.strip() for name, _, _ in pairs]
    if not all(separator and name for name, (_, separator, _) in zip(names, pairs, strict=True)):
        raise click.BadParameter("give NAME=FINGERPRINT")
    if len(set(names)) != len(names):
        raise click.BadParameter("name each member once")
    return member_pins({name: text for name, (_, _, text) in zip(names, pairs, strict=True)})


coordinator_key_option = click.option(
    "--coordinator-key",
    metavar="FINGERPRINT",
    help="Fingerprint of the coordinator's key (64 hex digits), known from elsewhere.",
)
member_option = click.option(
    "--member",
    "members",
    multiple=True,
    metavar="NAME=FINGERPRINT",
    callback=_pins,
    help="A member's key, known from elsewhere; may be repeated. The release is refused if it names another.",
)
