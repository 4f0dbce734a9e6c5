"""Pages and command help keep to the words of the style sheet (CONTRIBUTING.md#prose)."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from commingle.__main__ import commingle

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if "proofs" not in page.parts),
]

FORBIDDEN = re.compile(r"\b(?:whoever|nobody\s+is\s+told|that\s+which|of\s+which|that\s+of)\b", re.IGNORECASE)
BEGINNING = re.compile(r"(?:Of|That\s+of)\s+\w+|The\s+same\.")
SENTENCE = re.compile(r"(?:(?<=[.!?:])[\s\"')]+|\n\s*(?:[*-]|\d+\.|\||#+)?\s*|\|\s*)(?=[A-Z])")


def prose(text: str) -> str:
    """A page without its code, comments, links' targets, quotations, and words in italics, which it only names."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(?: {4}\S|> ).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"`[^`]*`", "`x`", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return re.sub(r"(?<![*\w])\*[^*\s][^*]{0,60}\*(?!\*)", "x", text)


def faults(text: str) -> list[str]:
    """Forbidden words with what follows them, and sentences that begin wrongly."""
    text = f"\n{text}"
    found = [text[match.start() : match.end() + 20] for match in FORBIDDEN.finditer(text)]
    starts = (match.end() for match in SENTENCE.finditer(text))
    found += [match[0] for start in starts if (match := BEGINNING.match(text, start))]
    return [" ".join(each.split()) for each in found]


def helps(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    """The help of a command, its options and its sub-commands, each with its name."""
    yield path, command.help or ""
    yield from ((f"{path} {p.opts[0]}", p.help or "") for p in command.params if isinstance(p, click.Option))
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from helps(below, f"{path} {name}")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("You see it. Of these, two count.", ["Of these"]),
        ("* Of one member.", ["Of one"]),
        ("| `x` | Of the split |", ["Of the"]),
        ("The noise is that\nof a sum.", ["that of a sum."]),
        ("The file holds it. The same.", ["The same."]),
        ("The same file again; `that of` and *that of* are named; out of it.\n\n    Of code", []),
    ],
)
def test_what_the_style_sheet_forbids_is_found(text: str, found: list[str]) -> None:
    assert faults(prose(text)) == found


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_page_keeps_to_the_style_sheet(page: Path) -> None:
    assert faults(prose(page.read_text())) == []


def test_meanings_of_codes_keep_to_the_style_sheet() -> None:
    told = json.loads((ROOT / "docs" / "errors.json").read_text())
    assert {code: found for code, row in told.items() if (found := faults(prose(row["meaning"])))} == {}


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "adr").glob("0*.md")), ids=lambda page: page.stem)
def test_decision_is_one_page(page: Path) -> None:
    assert len(page.read_text().split()) <= 300


@pytest.mark.slow  # it loads every command
def test_help_of_commands_keeps_to_the_style_sheet() -> None:
    assert {name: found for name, text in helps(commingle, "commingle") if (found := faults(prose(text)))} == {}
