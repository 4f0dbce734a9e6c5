"""The command line in this process, but for `serve`, which configures logging for good; and waiting for others."""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any

import click
import pytest

from benchmarks.consortium import Commingle, Words
from commingle.__main__ import commingle, main
from commingle.shared.runtime.cli import AnswerOption


def run_command(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """The exit code and all that was printed, also before. JSON has to be what `--schema` says that it is."""
    words = [*map(str, arguments)]
    with pytest.raises(SystemExit) as ended:
        main(words)
    printed = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    if "--json" in words and printed.out.startswith(("{", "[")) and not printed.out.startswith('{"error": '):
        answer_of(words).adapter("").validate_json(printed.out)
    return ended.value.code, printed.out, printed.err


def answer_of(words: Sequence[str]) -> AnswerOption:
    command: click.Command = commingle
    context = click.Context(command)
    for word in words:
        if not isinstance(command, click.Group) or (found := command.get_command(context, word)) is None:
            break
        command = found
    (answer,) = (one for one in command.params if isinstance(one, AnswerOption))
    return answer


class Command:
    """`commingle` with the first of its arguments, such as `party`."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *first: str) -> None:
        self._capsys = capsys
        self._first = first

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        self._capsys.readouterr()  # what the test itself has logged
        return run_command(self._capsys, *self._first, *arguments)

    def out(self, *arguments: object) -> str:
        """What it prints, and it succeeds."""
        code, out, err = self(*arguments)
        assert code == 0, err
        return out

    def json(self, *arguments: object) -> dict[str, Any]:
        printed: dict[str, Any] = json.loads(self.out(*arguments, "--json"))
        return printed

    def refused(self, *arguments: object, code: int = 1) -> str:
        """Why it does not succeed, and it ends with that code."""
        ended, _, err = self(*arguments)
        assert ended == code, err
        return err


@dataclass(frozen=True, slots=True)
class Loaded(Commingle):
    """Its servers are processes, other commands run in this one: most of what they took went to loading."""

    def run(self, *words: Words) -> str:
        with redirect_stdout(StringIO()) as printed, pytest.raises(SystemExit) as ended:
            main([*map(str, words)])
        assert ended.value.code == 0, words
        return printed.getvalue()


_POLL_SECONDS = 0.05


def eventually(holds: Callable[[], bool], *, what: str, seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(_POLL_SECONDS)
