"""`commingle party propose`: a release, in this party's name."""

import secrets
from pathlib import Path

import click
from rich.console import Console

from commingle.party_agent.compose import ask, consortium_option, home_option
from commingle.party_agent.home import Home
from commingle.shared.documents.manifest import TRUST_NOBODY
from commingle.shared.documents.model import encode
from commingle.shared.documents.study import Study
from commingle.shared.runtime.attachments import attach_option, with_attachments
from commingle.shared.runtime.cli import emit, json_option
from commingle.shared.runtime.settings import load_settings
from commingle.shared.text import quoted


@click.command(epilog="Example: commingle party propose study.json --home ./ward --attach protocol.pdf")
@click.argument("study", type=click.Path(path_type=Path, dir_okay=False))
@home_option
@consortium_option
@attach_option
@json_option
def propose(*, study: Path, home: Path, consortium: str | None, files: tuple[Path, ...], as_json: bool) -> None:
    """Propose the release that STUDY, a JSON file, describes. Every party decides on it, this one like the others."""
    asked = with_attachments(load_settings(Study, study), files)
    params = {} if consortium is None else {"consortium": consortium}
    headers = {"Idempotency-Key": secrets.token_hex(16)}
    value = ask(Home(home), "POST", "/v1/proposals", body=encode(asked), params=params, headers=headers)

    def text(console: Console) -> None:
        console.print(f"{value['id']}\n{quoted(value['study'])}: {value['state']}", highlight=False, soft_wrap=True)
        for sentence in value["outlook"] + ([value["trust"]] if value["trust"] != TRUST_NOBODY else []):
            console.print(sentence, highlight=False, soft_wrap=True)
        console.print(f"Decide on it, too: commingle party approve --home {home} {value['id'][:12]}", soft_wrap=True)

    emit(value, as_json=as_json, text=text)
