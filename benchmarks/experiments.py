"""The pages of measurements on tables: what each needs, how long it takes, and running one again, without network.

python -m benchmarks.experiments [NAME ...] [--data DIR] [--out DIR]

Without names it lists them and the tables that they need, with licence, source and checksum, and says which are at hand
(docs/tables.md: how to make them). With names it runs those; what a page's own command writes into docs/ goes to --out
instead, to be compared.
"""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import click

from benchmarks.regression_choice import REPORTING, TUNING
from benchmarks.reporting import heading, row
from benchmarks.tables import DATA, recorded, standing
from benchmarks.wang2018_data import TABLES

_FIGURES = ("--data", "{data}", "--json", "{out}/{name}.json", "--pictures", "{out}")
_OUT = ("--data", "{data}", "--out", "{out}")
_NUMBERS = ("--data", "{data}", "--json", "{out}/{name}.json")
_FOLDS = "wang2018_folds"
_SIXTEEN = (*TUNING, *REPORTING)
_FOUR = ("bike_hour", "diabetes130", "gpu_sgemm", "winequality_white")
_CLINICS = ("blood_pressure", "body_measures", "demographics", "insurance", "lifestyle")
_NHANES = tuple(f"nhanes_{clinic}" for clinic in _CLINICS)
_SAMPLED = ("airfoil", "insurance_numeric", "winequality_white", "bike_hour", "skillcraft", "nhanes_bp")
_PLANNED = (*_FOUR, "kin40k", "protein", "tamielectric", "airfoil", "concrete", "insurance_numeric")


@dataclass(frozen=True, slots=True)
class Experiment:
    """One benchmark and the page that its output is on.

    Attributes:
        name: of the module below `benchmarks`.
        page: below docs/.
        tables: names of docs/tables.md.
        minutes: rough, of one processor; None where no run was timed.
        arguments: of its command line, with {data}, {out} and {name} to be filled in.
    """

    name: str
    page: str
    tables: tuple[str, ...] = ()
    minutes: float | None = None
    arguments: tuple[str, ...] = _FIGURES

    def run(self, data: Path, out: Path) -> None:
        """The benchmark's own command in this process."""
        command: click.Command = import_module(f"benchmarks.{self.name}").main
        command.main([a.format(data=data, out=out, name=self.name) for a in self.arguments], standalone_mode=False)


def _regressions(*, of_wang: bool = False) -> tuple[str, ...]:
    """Tables with features and a target (all but supporting ones); or those of Wang 2018 and their folds."""
    known = recorded().values()
    chosen = [line["name"] for line in known if line["target"] and ("wang2018" in line["families"] or not of_wang)]
    return (*chosen, _FOLDS) if of_wang else tuple(chosen)


_CUT = (
    *("bike_hour", "elevators", "concrete", "winequality_white", "skillcraft", "support2", "airfoil"),
    *("nhanes_bp", "diabetes130", "gpu_sgemm", "pol", "keggundirected", "parkinsons"),
)
EXPERIMENTS = (
    Experiment("wang2018", "wang2018.md", _regressions(of_wang=True), 6),
    Experiment("kalaja2020", "kalaja2020.md", (*TABLES["kalaja2020"], _FOLDS), 4),
    Experiment("wu2022", "wu2022.md", ("insurance_numeric", "bike_hour", "gpu_sgemm", "superconductor_500"), 13),
    Experiment("public_moment", "public_moment.md", ("winequality_white",), 2),
    Experiment("central", "central.md", (*TABLES["central"], _FOLDS), 5, (*_FIGURES, "--no-peers")),
    Experiment("later", "regression.md", (*TABLES["later"], _FOLDS), None, _NUMBERS),
    Experiment("regression_choice", "regression.md", _SIXTEEN, 2, _NUMBERS),
    Experiment("regression_goal", "regression.md", _regressions(), 2, _NUMBERS),
    Experiment("both_sums", "regression.md", _SIXTEEN, 1, _NUMBERS),
    Experiment("coverage", "coverage.md", ("bike_hour", "gpu_sgemm", "diabetes130", "nhanes_bp"), 4, _NUMBERS),
    Experiment("stage_intervals", "coverage.md", _CUT, None, _NUMBERS),
    Experiment("moments", "planning.md", _FOUR, None, _OUT),
    Experiment("planning", "planning.md", _PLANNED, None, (*_NUMBERS, "--picture", "{out}/{name}.png")),
    Experiment("planning_samples", "planning.md", _SAMPLED, 6, _NUMBERS),
    Experiment("adaptive", "prediction.md", _regressions(), None, _OUT),
    Experiment(
        "second_moments", "prediction.md", _regressions(), None, ("--data", "{data}", "--out", "{out}/{name}.json")
    ),
    Experiment("stages", "prediction.md", _regressions(), None, ("--data", "{data}", "--out", "{out}/{name}.json")),
    Experiment("whitening", "whitening.md", ("winequality_white",), None, _NUMBERS),
    Experiment("real_data", "results.md", (*_FOUR[:3], *_NHANES), None, _NUMBERS),
)
"""Those that take tables from --data; others make rows up or measure machines."""


def listing(data: Path) -> list[str]:
    """The experiments, and of the tables that they need whether they are at hand, licence, source and checksum."""
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
@click.argument("names", nargs=-1, type=click.Choice([each.name for each in EXPERIMENTS]))
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), default=DATA, help="Folder of the tables.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("experiments"), show_default=True)
def main(*, names: tuple[str, ...], data: Path, out: Path) -> None:
    """List the experiments, or run these."""
    if not names:
        print("\n".join(listing(data)))
    for each in EXPERIMENTS:
        if each.name in names:
            out.mkdir(parents=True, exist_ok=True)
            each.run(data, out)


if __name__ == "__main__":
    main()
