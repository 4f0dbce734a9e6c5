"""Write the tables of measurement pages anew from the data files: python -m tests.docs.figures.make

A page marks a table by `<!-- table NAME -->` before and `<!-- end -->` after it, and a figure by what stands behind it:
`23 of 31<!--NAME-->` is compared with the data files; behind `<!--paper-->`, `<!--set-->` and `<!--once-->` stand the
paper's figures, conditions of the run, and figures of a run that kept no file. Questions, settings, commands and what
stands above the first heading need no mark. Sentences around figures that a rerun changed are for a person to read
again: tests/docs/test_figures.py names them.
"""

import re
from collections.abc import Callable, Iterator, Mapping

from tests.docs.figures import guides, pages, papers
from tests.docs.figures.data import DOCS, RHO, Figures, Tables

STATED = ("paper", "set", "once")
_FLAGS = re.DOTALL | re.MULTILINE
_UNREAD = (
    re.compile(r"\A.*?(?=^## )|^## (Question|Setting|Command)$.*?(?=^## |\Z)", _FLAGS),
    re.compile(r"^\*(Question|Setting|Command)\.\*.*?(?=^$|\Z)", _FLAGS),
    re.compile(r"```.*?```|^( {4}|#).*?$|`[^`]*`", _FLAGS),
    re.compile(r"!\[.*?\]\([^)]*\)|\]\([^)]*\)|<!-- .*? -->", _FLAGS),
)
_WORDS = "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
_CONDITIONS = (
    rf"(?:[εδ{RHO}nkdcTNλ]|epsilon|delta) (?:=|≤|≥|<|>|from|on|near) [\d.,e-]*\d(?:(?:,| and| to| or) [\d.,]*\d)*",
    r"\b(?:[Ff]igures?|[Tt]ables?|[Tt]heorems?|ADR|sections?|algorithms?|commit) \d[\w.]*(?:(?:,| and| to) \d[\w.]*)*",
    r"\[proof, [\d.]+(?: and [\d.]+)?\)",
    r"\b95 % intervals|\bbelow 1\b|\(?\b(?:19|20)\d\d\)?\b",
    r"[\w(]\^\(?-?\d[/\d]*\)?|\d/n\b|\d/ε|1/\(n ε²\)|R²",
)
_HARMLESS = re.compile("|".join(_CONDITIONS))
_FIGURES = (
    r"(?<!\w)\d[\d.,]*(?![a-zA-Z\d])",
    rf"\b(?:all|{_WORDS}) of (?:all |the )?(?:{_WORDS})\b",
    rf"\ball (?:{_WORDS})\b|\b(?:{_WORDS}) (?:million|times)\b",
)
_FIGURE = re.compile("|".join(_FIGURES))


def unmarked(text: str, figures: Figures) -> Iterator[str]:
    """Words with a figure and no mark behind it, of a page whose tables have been taken out."""
    for pattern in _UNREAD:
        text = pattern.sub("", text)
    for name, value in figures.items():
        text = text.replace(f"{value}<!--{name}-->", "")
    text = re.sub(rf"(?:[^|;.]|[.](?!\s))*?<!--(?:{'|'.join(STATED)})-->", "", " ".join(text.split()))
    for words in re.split(r"\||;|: |[.](?=\s)", text):
        if _FIGURE.search(_HARMLESS.sub("", words)):
            yield words.strip()


TABLE = re.compile(r"<!-- table ([\w ]+) -->\n(?:(?!<!-- ).)*<!-- end -->", re.DOTALL)
FIGURE = re.compile(r"<!--(\w+)-->")


def joined(*parts: Callable[[], tuple[Figures, Tables]]) -> Callable[[], tuple[Figures, Tables]]:
    """What several measurements give for one page."""

    def build() -> tuple[Figures, Tables]:
        figures: Figures = {}
        tables: Tables = {}
        for part in parts:
            figures, tables = figures | part()[0], tables | part()[1]
        return figures, tables

    return build


PAGES: Mapping[str, Callable[[], tuple[Figures, Tables]]] = {
    "../README": pages.readme,
    "answers": joined(pages.questions, pages.odds_ratios, pages.rates, pages.survival, pages.synthetic),
    "central": joined(pages.central, pages.both_sums, guides.users),
    "choice": pages.choice,
    "coverage": joined(pages.coverage, pages.spread),
    "design/keyed": pages.keyed,
    "forecasts": guides.planning,
    "kalaja2020": papers.kalaja2020,
    "moments-cost": pages.moments_cost,
    "prediction": joined(pages.prediction, pages.goals),
    "public_moment": papers.public_moment,
    "regression": guides.regression,
    "results": joined(pages.results, pages.whitening, pages.year),
    "wang2018": papers.wang2018,
    "wu2022": joined(papers.wu2022, papers.classification),
}


def with_tables(page: str, tables: Tables) -> str:
    """The page's text with its tables as the data has them."""

    def table(mark: re.Match[str]) -> str:
        return "\n\n".join((f"<!-- table {mark[1]} -->", "\n".join(tables[mark[1]]), "<!-- end -->"))

    return TABLE.sub(table, (DOCS / f"{page}.md").read_text())


if __name__ == "__main__":
    for name, build in PAGES.items():
        (DOCS / f"{name}.md").write_text(with_tables(name, build()[1]))
