"""Options that commands of a party share."""

from pathlib import Path

import click

home_option = click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    envvar="COMMINGLE_PARTY_HOME",
    help="The party's directory (or COMMINGLE_PARTY_HOME).",
)
