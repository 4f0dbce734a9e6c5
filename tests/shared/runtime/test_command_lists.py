"""Lists of commands are written down, so that help loads nothing: they say what the commands say of themselves."""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import pytest

from commingle.__main__ import commingle, main
from commingle.coordinator.cli import coordinator
from commingle.party_agent.cli import party
from commingle.shared.runtime.cli import LazyGroup, changes, emit, run
from tests.world.command import run_command


@pytest.mark.parametrize("group", [commingle, party, coordinator], ids=lambda group: group.name)
def test_list_of_commands_says_what_each_command_says(group: LazyGroup) -> None:
    context = click.Context(group)
    for name, (_, said) in group.commands_at.items():
        command = group.get_command(context, name)
        assert command is not None
        assert (name, said) == (command.name, command.get_short_help_str(limit=100))


def test_every_option_of_every_command_says_what_it_is() -> None:
    silent = [
        (command.name, option.name)
        for command in commands_of(commingle)
        for option in command.params
        if isinstance(option, click.Option) and not option.help
    ]
    assert silent == []


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("coordinator new-consortum", "No such command 'new-consortum'. Did you mean 'new-consortium'?"),
        ("party enroll", "Did you mean 'enrol'?"),
        ("study chek", "Did you mean 'check'?"),
        ("study xyz", "There are check, new."),
    ],
)
def test_command_that_is_none_is_answered_with_one_that_is(
    typed: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run_command(capsys, *typed.split())
    assert (code, said in err) == (2, True)


def test_commands_of_a_small_group_are_told_in_whole_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_command(capsys, "study", "--help")
    assert (code, "..." in out.partition("Commands:")[2]) == (0, False)


ROOT = Path(__file__).parents[3]
RELEASES = ("fit", "describe", "survival", "table", "synthesize", "export", "verify")
EXAMPLES = [
    *((f"coordinator {name}", "") for name in ("init", "serve", "invite", "propose", "releases", "revoke")),
    *((name, "./release") for name in RELEASES),
    ("plan", "study.json --table public.csv"),
]


@pytest.mark.parametrize(("command", "given"), EXAMPLES)
def test_help_shows_examples(command: str, given: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_command(capsys, *command.split(), "--help")
    assert (code, f"commingle {command} {given}".strip() in out.partition("Examples:")[2]) == (0, True)


def test_question_without_a_terminal_says_that_nobody_answers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @click.command()
    def ask() -> None:
        click.confirm("Go on?", abort=True)

    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(SystemExit) as ended:
        run(ask, [])
    assert (ended.value.code, "Nobody is there to answer" in capsys.readouterr().err) == (130, True)


def test_full_disk_is_one_sentence_with_a_remedy_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def write() -> None:
        Path("/dev/full").write_text("a row")

    with pytest.raises(SystemExit) as ended:
        run(write, [])
    assert (ended.value.code, capsys.readouterr().err.splitlines()) == (
        1,
        ["Error: No space left on device", "  Free space, or mend the path or its permissions, and run it again."],
    )


def test_schema_tells_of_every_command_what_its_parser_takes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--schema", "all"])
    assert ended.value.code == 0
    told = {one["command"]: one for one in below(json.loads(capsys.readouterr().out))}
    assert {"commingle party approve", "commingle coordinator token create", "commingle simulate"} <= told.keys()
    taken = {one["names"][0]: one for one in told["commingle party token create"]["takes"]}
    assert (taken["--home"]["required"], taken["--home"]["environment"]) == (True, "COMMINGLE_PARTY_HOME")
    assert (taken["--scope"]["repeatable"], "decide" in taken["--scope"]["choices"]) == (True, True)
    assert next(one for one in told["commingle simulate"]["takes"] if "--delta" in one["names"])["default"] == 1e-5


@pytest.mark.parametrize(
    ("group", "variable"), [(coordinator, "COMMINGLE_COORDINATOR_HOME"), (party, "COMMINGLE_PARTY_HOME")]
)
def test_every_command_that_needs_a_home_takes_it_from_the_environment(group: LazyGroup, variable: str) -> None:
    asked = {
        command.name: option.envvar
        for command in commands_of(group)
        for option in command.params
        if option.name == "home" and option.required
    }
    assert {"backup", "restore", "doctor", "serve"} <= asked.keys()
    assert set(asked.values()) == {variable}


def commands_of(group: click.Group) -> Iterator[click.Command]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield from commands_of(command) if isinstance(command, click.Group) else (command,)


def below(command: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield command
    for one in command["commands"]:
        yield from below(one)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_output_on_a_full_disk_is_the_same_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    @click.command()
    @changes(n=int)
    def show() -> None:
        emit({"n": 1}, text="n is 1")

    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as ended:
            run(show, options)
        monkeypatch.undo()
        with suppress(OSError):
            full.close()
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("Error: No space left on device\n  Free space")


COMPLETED = [
    ("bash", None, "plain,leave"),  # its script is written by a process of bash
    ("zsh", "#compdef commingle", "plain\nleave\nLeave a consortium"),
    ("fish", "complete --no-files --command commingle", "plain,leave\tLeave a consortium"),
]


@pytest.mark.parametrize(("shell", "source", "words"), COMPLETED)
def test_shell_is_told_how_to_complete_and_what_a_word_may_become(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, shell: str, source: str | None, words: str
) -> None:
    place = "le" if shell == "fish" else "2"
    for name, value in {"COMP_WORDS": "commingle party le", "COMP_CWORD": place}.items():
        monkeypatch.setenv(name, value)
    for asked, said in {f"{shell}_source": source, f"{shell}_complete": words}.items():
        if said is not None:
            monkeypatch.setenv("_COMMINGLE_COMPLETE", asked)
            with pytest.raises(SystemExit):
                main([])
            assert said in capsys.readouterr().out


def test_completion_behind_a_command_that_is_none_says_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {"COMP_WORDS": "commingle prty le", "COMP_CWORD": "2", "_COMMINGLE_COMPLETE": "bash_complete"}
    for name, value in words.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        main([])
    assert not capsys.readouterr().err


@pytest.mark.slow
def test_bash_completes_a_command_as_the_page_sets_it_up() -> None:
    page = (ROOT / "docs" / "installing.md").read_text()
    (line,) = re.findall(r"^eval .*bash_source commingle\)\"", page, re.MULTILINE)
    typed = "COMP_WORDS=(commingle party le) COMP_CWORD=2; _commingle_completion commingle; echo ${COMPREPLY[@]}"
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["/usr/bin/env", "bash", "-c", f"{line}; {typed}"], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["leave", "ledger"]
