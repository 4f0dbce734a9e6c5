"""Write the tables of measurement pages anew from the data files: python -m tests.docs.figures.make

A page marks a figure as `23 of 31<!--NAME-->` and a table by `<!-- table NAME -->` before and `<!-- end -->` after it.
Sentences around figures that a rerun changed are for a person to read again: tests/docs/test_figures.py names them.
"""

import re
from collections.abc import Callable, Mapping

from tests.docs.figures import guides, pages, papers
from tests.docs.figures.data import DOCS, Figures, Tables

TABLE = re.compile(r"<!-- table ([\w ]+) -->\n(?:(?!<!-- ).)*<!-- end -->", re.DOTALL)
FIGURE = re.compile(r"<!--(\w+)-->")
PAGES: Mapping[str, Callable[[], tuple[Figures, Tables]]] = {
    "both_sums": pages.both_sums,
    "central": pages.central,
    "choice": pages.choice,
    "coverage": pages.coverage,
    "kalaja2020": papers.kalaja2020,
    "moments-cost": pages.moments_cost,
    "planning": guides.planning,
    "odds-ratios": pages.odds_ratios,
    "prediction": pages.prediction,
    "questions": pages.questions,
    "public_moment": papers.public_moment,
    "regression": guides.regression,
    "results": pages.results,
    "wang2018": papers.wang2018,
    "whitening": pages.whitening,
    "wu2022": papers.wu2022,
}


def with_tables(page: str, tables: Tables) -> str:
    """The page's text with its tables as the data has them."""

    def table(mark: re.Match[str]) -> str:
        return "\n\n".join((f"<!-- table {mark[1]} -->", "\n".join(tables[mark[1]]), "<!-- end -->"))

    return TABLE.sub(table, (DOCS / f"{page}.md").read_text())


if __name__ == "__main__":
    for name, build in PAGES.items():
        (DOCS / f"{name}.md").write_text(with_tables(name, build()[1]))
