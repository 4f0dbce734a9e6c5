"""The frame of all measurements: options, tables in Markdown, a file of figures, pictures.

A measurement is an `Experiment`: it says what to measure, how to show the report and, if there is one, its picture.

python -m benchmarks.NAME [--quick] [--data DIR] [--out DIR] [--repeats N] [--seed N] [--json FILE]
--out takes NAME.json and the pictures. Pages have the figures of seed 0 with the usual number of repeats.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from benchmarks.tables import DATA
from commingle.services.plotting import entitle, tidy

if TYPE_CHECKING:  # matplotlib is slow to import, and many import this and draw nothing
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

Report = dict[str, Any]
_SEED = ContextVar("seed", default=0)


def generator(*key: int) -> np.random.Generator:
    """The generator of this key; another run with the same seed draws the same."""
    return np.random.default_rng([*key, *([_SEED.get()] if _SEED.get() else [])])


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of a run.

    Attributes:
        data: folder of the real tables, which may be absent.
        repeats: how many trials, runs or releases; None for the usual number.
        given: options of this experiment alone, by name.
    """

    quick: bool = False
    data: Path = DATA
    repeats: int | None = None
    given: Mapping[str, Any] = field(default_factory=dict)

    def times(self, quick: int, whole: int) -> int:
        return self.repeats or (quick if self.quick else whole)


def of_report(report: Report) -> Iterator[str]:
    """A line for each figure that stands alone, and a table of each list of records or group of figures.

    Where a record holds a list of records, each of these is a row.
    """
    for name, held in report.items():
        if isinstance(held, Mapping):
            parts = {f"{name}, {part}": records for part, records in held.items() if _are_records(records)}
            parts |= {name: [{name: each, "": text} for each, text in _figures(held)]}
        else:
            parts = {name: held} if _are_records(held) else {}
            alone = ", ".join(map(_text, held)) or "none" if isinstance(held, list) else _text(held)
            yield from () if parts else (f"{name}: {alone}",)
        for title, records in parts.items():
            if records:
                yield from ("", *(() if title == name else (f"### {title}", "")), *as_table([*_rows(records)]))


def _are_records(held: object) -> bool:
    return isinstance(held, list) and bool(held) and isinstance(held[0], Mapping)


def _rows(records: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for record in records:
        own = {name: held for name, held in record.items() if not _are_records(held)}
        inner: list[Mapping[str, Any]] = [each for held in record.values() if _are_records(held) for each in held]
        yield from ({**own, **each} for each in inner or ({},))


@dataclass(frozen=True, slots=True)
class Experiment:
    """One measurement.

    Attributes:
        name: of its module below `benchmarks`.
        about: the help of its command.
        measure: runs it; the report holds nothing but JSON.
        lines: shows the report in Markdown.
        draw: writes pictures of the report into a folder.
        options: what this experiment alone can be asked for.
        failed: tells from the report whether the command ends with 1.
        warning: stands before what is printed.
    """

    name: str
    about: str | None
    measure: Callable[[Asked], Report]
    lines: Callable[[Report], Iterable[str]] = of_report
    draw: Callable[[Report, Path], None] | None = None
    options: Sequence[click.Parameter] = ()
    failed: Callable[[Report], bool] = lambda _: False
    warning: str = ""

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
        print("\n".join([*([self.warning] if self.warning else []), *self.lines(report)]))
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
    """A Markdown table of records, with a column for each figure, the mean of a `spread`, and no lists."""
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


def covers(intervals: np.ndarray[Any, Any], truth: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """(...) whether the intervals (..., 2) hold the truth (...)."""
    low, high = np.moveaxis(intervals, -1, 0)
    return np.asarray((low <= truth) & (truth <= high))


def means(trials: Sequence[Mapping[str, float]]) -> dict[str, float | None]:
    """The mean of each figure over the trials that have it; None where none does."""
    found = {name: np.array([trial[name] for trial in trials], np.float64) for name in trials[0]}
    return {name: None if np.isnan(values).all() else float(np.nanmean(values)) for name, values in found.items()}


def spread(values: Sequence[float] | np.ndarray[Any, Any]) -> dict[str, float]:
    """The mean with its standard error, the median, and the 10th and the 90th percentile."""
    found = np.asarray(values, np.float64)
    error = float(found.std(ddof=1) / np.sqrt(len(found))) if len(found) > 1 else 0.0
    low, middle, high = np.quantile(found, [0.1, 0.5, 0.9]).tolist()
    return {"mean": float(found.mean()), "standard_error": error, "median": middle, "p10": low, "p90": high}


Points = Sequence[tuple[float, ...]]
_COLOURS = (
    *("#1f6fb4", "#d9622b", "#3a8f5c", "#b3659e", "#c9a227", "#17818c"),
    *("#7a5230", "#9c3210", "#5a5ab5", "#8aa63a", "#444444", "#e08bb0"),
)
_MARKERS = "osD^vP*Xhp<>"
_REFERENCE = "#777777"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Attributes:
        series: name to points (x, y) or (x, y, half of an interval); the same name has the same colour in all panels.
        references: name to points of lines drawn thin and grey, without markers.
        y_limits: least and greatest y shown; what lies outside is cut off.
        joined: whether the points of a series are joined by a line.
    """

    title: str
    x_label: str
    y_label: str
    series: Mapping[str, Points]
    references: Mapping[str, Points]
    log_x: bool = True
    log_y: bool = True
    y_limits: tuple[float, float] | None = None
    joined: bool = True


def draw_panels(path: Path, panels: Sequence[Panel], *, columns: int = 2, legend_each: bool = False) -> None:
    """Panels in rows, one legend below or one beside each; a name keeps its colour where the legend is shared."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - as above

    rows = ceil(len(panels) / columns)
    figure = Figure(
        figsize=((5.6 if legend_each else 4.2) * columns + 0.4, 3.3 * rows + 0.9 * (not legend_each)),
        dpi=120,
        layout="constrained",
    )
    names = list(dict.fromkeys(name for panel in panels for name in panel.series))
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax in grid[len(panels) :]:
        ax.set_visible(False)
    handles: dict[str, Artist] = {}
    for ax, panel in zip(grid, panels, strict=False):
        _plain(ax, panel)
        for dash, (name, points) in zip(("--", ":", "-."), panel.references.items(), strict=False):
            handles[name] = ax.plot(*np.array(points).T, color=_REFERENCE, lw=1.2, ls=dash)[0]
        for order, (name, points) in enumerate(panel.series.items()):
            place = order if legend_each else names.index(name)
            colour, marker = _COLOURS[place % len(_COLOURS)], _MARKERS[place % len(_MARKERS)]
            width = 1.4 if panel.joined else 0.0
            x, y, *half = np.array(points).T
            style = {"color": colour, "marker": marker, "markersize": 4, "lw": width, "elinewidth": 1}
            handles[name] = ax.errorbar(x, y, half[0] if half else None, **style)[0]
        if panel.log_x:
            _sparse_ticks(ax.xaxis)
        if panel.log_y:
            _sparse_ticks(ax.yaxis)
        if legend_each:
            own = (*panel.series, *panel.references)
            beside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "frameon": False, "fontsize": 8}
            ax.legend([handles[name] for name in own], own, **beside)
    if not legend_each:
        own = (*names, *(name for name in handles if name not in names))
        style = {"ncols": min(2 * columns, 6), "frameon": False, "fontsize": 9}
        figure.legend([handles[name] for name in own], own, loc="outside lower center", **style)
    figure.savefig(path)


def _plain(ax: "Axes", panel: Panel) -> None:
    entitle(ax, panel.title, panel.x_label, panel.y_label)
    if panel.log_x:
        ax.set_xscale("log")
    if panel.log_y:
        ax.set_yscale("log")
    if panel.y_limits is not None:
        ax.set_ylim(*panel.y_limits)
    tidy(ax)
    ax.tick_params(length=0, which="both", labelsize=8.5)


def _sparse_ticks(axis: "Axis") -> None:
    """Plain numbers at 1, 2 and 5 where the axis spans less than two decades; matplotlib's own choice crowds."""
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter  # noqa: PLC0415 - as above

    low, high = axis.get_view_interval()
    if high < 100 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FormatStrFormatter("%g"))
        axis.set_minor_formatter(NullFormatter())
