"""Commands on pages exist, with the options that the pages give them."""

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile

import click
import pytest

from commingle.__main__ import commingle
from tests.docs.test_prose import ROOT

pytestmark = pytest.mark.slow  # it loads every command

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
BETWEEN = set(";&|()<>")


def commands(text: str) -> Iterator[list[str]]:
    for block in (block for language, block in BLOCK.findall(text) if language in {"", "bash"}):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            if "commingle " in line:
                lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
                lexer.whitespace_split = True
                words = list(lexer)
                for start, word in enumerate(words):
                    if word == "commingle" and words[start + 1 : start + 2]:
                        yield list(takewhile(lambda one: not set(one) <= BETWEEN, words[start + 1 :]))


def faults(words: list[str]) -> list[str]:
    command: click.Command = commingle
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words[0])
        if found is None:
            return [words[0]]
        command, words = found, words[1:]
    if command.context_settings.get("ignore_unknown_options"):  # it takes the options of others
        return []
    own = [*command.params, *commingle.params]
    known = {name for one in own if isinstance(one, click.Option) for name in (*one.opts, *one.secondary_opts)}
    return [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]


def test_every_command_on_a_page_is_one_with_those_options() -> None:
    told = [(page.name, words) for page in PAGES for words in commands(page.read_text())]
    assert len(told) > 100
    assert [(name, " ".join(words), found) for name, words in told if (found := faults(words))] == []


def test_unknown_command_and_unknown_option_are_found() -> None:
    page = "```\ncommingle fit r --target x --loud  # --soft\ncommingle party dance --home h && commingle verify r\n```"
    assert [faults(words) for words in commands(page)] == [["--loud"], ["dance"], []]
