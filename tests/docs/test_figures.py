"""Marked figures and tables of measurement pages are those of the data files: a rerun leaves no sentence behind."""

import pytest

from tests.docs.figures.data import DOCS
from tests.docs.figures.make import FIGURE, PAGES, TABLE, with_tables


@pytest.mark.parametrize("page", PAGES)
def test_marked_figures_are_those_of_the_data(page: str) -> None:
    text, (figures, _) = (DOCS / f"{page}.md").read_text(), PAGES[page]()
    marks = list(FIGURE.finditer(text))
    assert {mark[1] for mark in marks} == set(figures)
    told = [
        f"{text[max(mark.start() - 30, 0) : mark.start()]!r} should end with {figures[mark[1]]!r}"
        for mark in marks
        if not text[: mark.start()].endswith(figures[mark[1]])
        or text[mark.start() - len(figures[mark[1]]) - 1] in "0123456789.,"
    ]
    assert told == []


@pytest.mark.parametrize("page", PAGES)
def test_tables_are_those_of_the_data(page: str) -> None:
    text = (DOCS / f"{page}.md").read_text()
    assert len(TABLE.findall(text)) == text.count("<!-- table ")
    assert text == with_tables(page, PAGES[page]()[1]), "write them anew with: python -m tests.docs.figures.make"
