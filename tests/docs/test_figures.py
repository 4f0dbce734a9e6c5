"""Marked figures and tables of measurement pages are those of the data files: a rerun leaves no sentence behind."""

import pytest

from tests.docs.figures.data import DOCS
from tests.docs.figures.make import FIGURE, PAGES, STATED, TABLE, unmarked, with_tables


@pytest.mark.parametrize("page", PAGES)
def test_marked_figures_are_those_of_the_data(page: str) -> None:
    text, (figures, _) = (DOCS / f"{page}.md").read_text(), PAGES[page]()
    marks = [mark for mark in FIGURE.finditer(text) if mark[1] not in STATED]
    assert {mark[1] for mark in marks} == set(figures)
    told = [
        f"{text[max(mark.start() - 30, 0) : mark.start()]!r} should end with {figures[mark[1]]!r}"
        for mark in marks
        if not text[: mark.start()].endswith(figures[mark[1]])
        or text[mark.start() - len(figures[mark[1]]) - 1] in "0123456789.,"
    ]
    assert told == []
    if "Verdict" in text:
        left = list(unmarked(TABLE.sub("", text), figures))
        assert left == [], "mark them: tests/docs/figures/make.py says how"


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
