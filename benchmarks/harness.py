"""What all measurements have in common: options, a table in Markdown, a file of figures, pictures.

A measurement is an `Experiment`: what it measures, how a report of that is shown and, where there is one, its picture.

python -m benchmarks.NAME [--quick] [--data DIR] [--out DIR] [--repeats N] [--seed N] [--json FILE]
--out takes NAME.json and the pictures. Figures of the pages are those of seed 0 and of as many repeats as are usual.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.tables import DATA

Report = dict[str, Any]
_SEED = ContextVar("seed", default=0)


def generator(*key: int) -> np.random.Generator:
    """The generator that `key` stands for; another run of the same seed draws the same."""
    return np.random.default_rng([*key, *([_SEED.get()] if _SEED.get() else [])])


@dataclass(frozen=True, slots=True)
class Asked:
    """What a run is asked for.

    Attributes:
        data: folder of the real tables, which need not be there.
        repeats: how many trials, runs or releases; None for as many as are usual.
        given: options of this experiment alone, by name.
    """

    quick: bool = False
    data: Path = DATA
    repeats: int | None = None
    given: Mapping[str, Any] = field(default_factory=dict)

    def times(self, quick: int, whole: int) -> int:
        return self.repeats or (quick if self.quick else whole)


def of_report(report: Report) -> Iterator[str]:
    """A line for each figure that stands alone, and a table of each list of records or group of figures."""
    for name, held in report.items():
        records = [{name: each, "": text} for each, text in _figures(held)] if isinstance(held, Mapping) else held
        if isinstance(records, list) and records and isinstance(records[0], Mapping):
            yield from ("", *as_table(records))
        else:
            yield f"{name}: {', '.join(map(_text, held)) or 'none' if isinstance(held, list) else _text(held)}"


@dataclass(frozen=True, slots=True)
class Experiment:
    """One measurement.

    Attributes:
        name: of its module below `benchmarks`.
        about: what its command prints as help.
        measure: a run; the report holds nothing but JSON.
        lines: the report in Markdown; `of_report` where left out.
        draw: writes pictures of the report into a folder.
        options: of this experiment alone.
        failed: whether the command is to end with 1.
    """

    name: str
    about: str | None
    measure: Callable[[Asked], Report]
    lines: Callable[[Report], Iterable[str]] = of_report
    draw: Callable[[Report, Path], None] | None = None
    options: Sequence[click.Parameter] = ()
    failed: Callable[[Report], bool] = lambda _: False

    @property
    def command(self) -> click.Command:
        """`python -m benchmarks.NAME`."""
        folder = click.Path(path_type=Path, file_okay=False)
        common = (
            click.Option(["--quick"], is_flag=True, help="Little of everything, to see that it runs."),
            click.Option(["--data"], type=folder, default=DATA, help="Folder of the real tables."),
            click.Option(["--out"], type=folder, help="Folder for figures and pictures."),
            click.Option(["--repeats"], type=click.IntRange(1), help="Trials, runs or releases.  [as many as usual]"),
            click.Option(["--seed"], type=click.IntRange(0), default=0, show_default=True),
            click.Option(["--json", "json_file"], type=click.Path(path_type=Path), help="File for the figures."),
        )
        about = "\b\n" + (self.about or "").replace("\n\n", "\n\n\b\n")
        return click.Command(self.name, params=[*common, *self.options], callback=self.run, help=about)

    def run(
        self,
        *,
        quick: bool,
        data: Path,
        out: Path | None,
        repeats: int | None,
        seed: int,
        json_file: Path | None,
        **given: Any,  # noqa: ANN401 - an option may be of any type
    ) -> None:
        token = _SEED.set(seed)
        try:
            measured = self.measure(Asked(quick, data, repeats, given))
        finally:
            _SEED.reset(token)
        report = {"benchmark": self.name, "seed": seed, **measured}
        print("\n".join(self.lines(report)))
        files = [] if json_file is None else [json_file]
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            files.append(out / f"{self.name}.json")
            if self.draw is not None:
                self.draw(report, out)
        for file in files:
            file.write_text(json.dumps(report) + "\n", encoding="utf-8")
        if self.failed(report):
            raise SystemExit(1)


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


LEFT_OUT = "The real tables are not at hand: left out."


def heading(*names: str) -> list[str]:
    return [row(*names), row(*["---"] * len(names))]


def as_table(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """A Markdown table of records, a column for each figure; of a `spread` the mean, and nothing of lists."""
    flat = [dict(_figures(record)) for record in records]
    heads = dict.fromkeys(name for each in flat for name in each)
    return [*heading(*heads), *(row(*(each.get(name, "") for name in heads)) for each in flat)] if flat else [LEFT_OUT]


def _figures(record: Mapping[str, Any], of: str = "") -> Iterator[tuple[str, str]]:
    for name, held in record.items():
        value = held.get("mean", held) if isinstance(held, Mapping) else held
        if isinstance(value, Mapping):
            yield from _figures(value, f"{of}{name} ")
        elif not isinstance(value, (list, tuple)):
            yield of + name, _text(value)


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def spread(values: Sequence[float] | np.ndarray[Any, Any]) -> dict[str, float]:
    """Mean of some errors with its standard error, their median, 10th and 90th percentile."""
    found = np.asarray(values, np.float64)
    error = float(found.std(ddof=1) / np.sqrt(len(found))) if len(found) > 1 else 0.0
    low, middle, high = np.quantile(found, [0.1, 0.5, 0.9]).tolist()
    return {"mean": float(found.mean()), "standard_error": error, "median": middle, "p10": low, "p90": high}
