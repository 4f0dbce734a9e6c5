"""The measurements on tables: the needs and the time of each, and running one again without network.

python -m benchmarks.experiments [NAME ...] [--data DIR] [--out DIR] [--quick]

Without names it lists them and the tables that they need, with licence, source and checksum, and says which are at hand
(docs/tables.md: how to make them). With names, or `all`, it runs these; compare the figures and pictures in --out with
those of the page. It skips an experiment if all its rows are of tables that are not at hand, and otherwise runs it
without these; it says both.
"""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import click

from benchmarks import choice, coverage, labelled, planning, rates, synthetic, users, wu2022
from benchmarks.harness import Experiment, heading, row
from benchmarks.tables import DATA, FOLDS_FILE, at_hand, recorded, standing
from benchmarks.wang2018_methods import TABLES, names

_FOLDS = FOLDS_FILE.partition(".")[0]


@dataclass(frozen=True, slots=True)
class OnTables:
    """A measurement of tables.

    Attributes:
        name: of the module below `benchmarks`.
        page: below docs/.
        tables: names of docs/tables.md.
        minutes: about how many of one processor; None if we timed no run.
        rows_besides: whether it also makes up rows, and so can measure something without tables.
    """

    name: str
    page: str
    tables: tuple[str, ...]
    minutes: float | None = None
    rows_besides: bool = True

    @property
    def experiment(self) -> Experiment:
        found: Experiment = import_module(f"benchmarks.{self.name}").EXPERIMENT
        return found

    def missing(self, data: Path) -> list[str]:
        there = {*at_hand(data, self.tables), *([_FOLDS] if (data / FOLDS_FILE).is_file() else [])}
        return [name for name in self.tables if name not in there]

    def skipped(self, data: Path) -> bool:
        """Whether it can measure nothing; tables with folds are of no use without these."""
        there = names(data) if _FOLDS in self.tables else at_hand(data, self.tables)
        return not self.rows_besides and not {*self.tables} & {*there}


def _of_wang() -> tuple[str, ...]:
    return (
        *(line["name"] for line in recorded().values() if "wang2018" in line["families"] and line["target"]),
        _FOLDS,
    )


EXPERIMENTS = (
    OnTables("wang2018", "wang2018.md", _of_wang(), 6),
    OnTables("kalaja2020", "kalaja2020.md", (*TABLES["kalaja2020"], _FOLDS), 4, rows_besides=False),
    OnTables("wu2022", "wu2022.md", tuple(wu2022.TABLES), 13),
    OnTables("public_moment", "public_moment.md", ("winequality_white",), 2),
    OnTables("central", "central.md", (*TABLES["central"], _FOLDS), 5, rows_besides=False),
    OnTables("choice", "choice.md", choice.TABLES, 3, rows_besides=False),
    OnTables("coverage", "coverage.md", coverage.TABLES, 4),
    OnTables("keyed", "design/keyed.md", coverage.TABLES),
    OnTables("planning", "forecasts.md", planning.TABLES),
    OnTables("users", "central.md", users.TABLES, 3, rows_besides=False),
    OnTables("odds_ratios", "answers.md", tuple(dict.fromkeys(q.table for q in labelled.BINARY)), 30),
    OnTables("rates", "answers.md", tuple(dict.fromkeys(q.table for q, _ in rates.MEANS)), 4),
    OnTables("questions", "answers.md", ("diabetes130_raw",), 3),
    OnTables("survival", "answers.md", ("support2_raw",), 5),
    OnTables("synthetic", "answers.md", tuple(q.table for q in synthetic.QUESTIONS), 1),
)
"""The experiments that take tables from --data; others make rows up or measure machines."""


def listing(data: Path) -> list[str]:
    wanted, known = dict.fromkeys(name for each in EXPERIMENTS for name in each.tables), recorded()
    found = {name: standing(data, known[name]) for name in wanted}
    lines = heading("experiment", "page", "minutes", "tables at hand")
    for each in EXPERIMENTS:
        there = sum(found[name] == "at hand" for name in each.tables)
        minutes = "not timed" if each.minutes is None else f"{each.minutes:g}"
        lines.append(row(each.name, f"docs/{each.page}", minutes, f"{there} of {len(each.tables)}"))
    for state in ("missing", "other values"):
        affected = [name for name in wanted if found[name] == state]
        lines += ["", f"{state}: {', '.join(affected)}"] if affected else []
    lines += ["", *heading("table", "here", "licence", "source", "SHA-256")]
    for name, state in sorted(found.items()):
        sources = dict.fromkeys("/".join(source.split("/")[:5]) for source in known[name]["sources"].split())
        lines.append(row(name, state, known[name]["licence"], " ".join(sources), known[name]["sha256"]))
    return lines


@click.command()
@click.argument("chosen", metavar="NAMES", nargs=-1, type=click.Choice([*(each.name for each in EXPERIMENTS), "all"]))
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), default=DATA, help="Folder of the tables.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("experiments"), show_default=True)
@click.option("--quick", is_flag=True, help="Little of everything.")
def main(*, chosen: tuple[str, ...], data: Path, out: Path, quick: bool) -> None:
    """List the experiments, or run these."""
    if not chosen:
        print("\n".join(listing(data)))
    asked = [each for each in EXPERIMENTS if {each.name, "all"} & {*chosen}]
    for each in asked:
        if missing := each.missing(data):
            how = "skipped" if each.skipped(data) else "runs without"
            print(f"{each.name}: {how}: {data} has no {', '.join(missing)} (docs/tables.md: where to get them)")
        if not each.skipped(data):
            words = ["--data", str(data), "--out", str(out), *(["--quick"] if quick else [])]
            each.experiment.command.main(words, standalone_mode=False)
    if asked and all(each.skipped(data) for each in asked):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
