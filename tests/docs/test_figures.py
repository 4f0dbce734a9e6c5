"""Marked figures and tables of measurement pages are those of the data files: a rerun leaves no sentence behind."""

import re

import pytest

from tests.docs.figures.data import DOCS
from tests.docs.figures.make import FIGURE, PAGES, STATED, TABLE, unmarked, with_tables

# a digit, sign or letter, a range, or an earlier name of a list makes another figure of the one behind it
GOES_ON = re.compile(r"[\w.,+±/^\u00d7\u2212\u2013-]\Z|\d(?: ?%)?(?:,| to| of| ±| x| \u00d7| and| or| by)\s\Z")
LISTED = re.compile(r"[\w)`], \Z")


def stands(text: str, mark: re.Match[str], figure: str) -> bool:
    """Whether the figure is all that stands before its mark."""
    before = text[: mark.start()]
    head = before.removesuffix(figure)
    goes_on = GOES_ON.search(head) or (figure[:1].isalpha() and LISTED.search(head))
    return bool(figure) and before.endswith(figure) and not goes_on and not text[mark.end() : mark.end() + 1].isdigit()


@pytest.mark.parametrize("page", PAGES)
def test_marked_figures_are_those_of_the_data(page: str) -> None:
    text, (figures, _) = (DOCS / f"{page}.md").read_text(), PAGES[page]()
    marks = [mark for mark in FIGURE.finditer(text) if mark[1] not in STATED]
    assert {mark[1] for mark in marks} == set(figures)
    told = [
        f"{text[max(mark.start() - 30, 0) : mark.start()]!r} should end with {figures[mark[1]]!r} alone"
        for mark in marks
        if not stands(text, mark, figures[mark[1]])
    ]
    assert told == []
    if "Verdict" in text:
        left = list(unmarked(TABLE.sub("", text), figures))
        assert left == [], "mark them: tests/docs/figures/make.py says how"


@pytest.mark.parametrize(
    ("words", "figure", "so"),
    [
        ("It errs 7 %<!--x--> more.", "7 %", True),
        ("It errs 17 %<!--x--> more.", "7 %", False),
        ("It changes by -0.06<!--x-->.", "0.06", False),
        ("It errs 0.2 to 0.5<!--x-->.", "0.5", False),
        ("From 0.2<!--y--> to 0.5<!--x-->.", "0.5", True),
        ("It is best on bike, wine<!--x-->.", "wine", False),
        ("On average, 0.5<!--x-->.", "0.5", True),
        ("It loses on no table<!--x-->.", "", False),
        ("It errs 7<!--x-->5 %.", "7", False),
    ],
)
def test_a_figure_that_another_one_ends_with_is_another_figure(words: str, figure: str, so: bool) -> None:
    [mark] = [mark for mark in FIGURE.finditer(words) if mark[1] == "x"]
    assert stands(words, mark, figure) is so


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("It errs 7 % more.", ["It errs 7 % more."]),
        ("It is best on three of four tables.", ["It is best on three of four tables."]),
        ("It takes two to three times as long.", ["It takes two to three times as long."]),
        ("It errs 7 %<!--more--> more, at ε = 0.1 in figure 3.", []),
        ("It errs 7 %<!--other--> more.", ["It errs 7 %<!--other--> more."]),
        ("The paper has 7 %<!--paper-->, we 9.", [", we 9."]),
    ],
)
def test_figure_that_no_mark_answers_for_is_found(words: str, found: list[str]) -> None:
    text = f"# A page of 2022\n\n## Setting\n\n5 tables\n\n## Verdict\n\n{words}\n"
    assert list(unmarked(text, {"more": "7 %"})) == found


@pytest.mark.parametrize("page", PAGES)
def test_tables_are_those_of_the_data(page: str) -> None:
    text = (DOCS / f"{page}.md").read_text()
    assert len(TABLE.findall(text)) == text.count("<!-- table ")
    assert text == with_tables(page, PAGES[page]()[1]), "write them anew with: python -m tests.docs.figures.make"
