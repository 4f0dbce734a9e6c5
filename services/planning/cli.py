"""`commingle plan`."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from commingle.services.errors import writing
from commingle.services.results import three_digits
from commingle.shared.documents.presets import PRESETS, release_preset
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.spec import MAX_COLUMNS, MAX_PARTIES
from commingle.shared.documents.study import Study, StudyParty
from commingle.shared.documents.terms import Terms
from commingle.shared.errors import MissingExtraError
from commingle.shared.forecast.forecast import plan as make_plan
from commingle.shared.forecast.forecast import with_mechanism
from commingle.shared.forecast.result import CutForecast, Forecast, Plan, Point, TableForecast
from commingle.shared.forecast.tables import Share, sentence_of
from commingle.shared.forecast.task import R_SQUARED, Assumptions, assumptions_of
from commingle.shared.mechanisms import MECHANISMS, keyed_by_default, mechanism_of, sketched_names
from commingle.shared.release.checks import terms_of, two_digits
from commingle.shared.runtime.cli import A_FOLDER, A_PATH, NEW_FILE, emit, reads, refuse_beside, say
from commingle.shared.runtime.console import figures
from commingle.shared.runtime.csv_format import CsvFormat, csv_options
from commingle.shared.runtime.settings import load_settings
from commingle.shared.text import counted

if TYPE_CHECKING:
    from commingle.services.planning.public_table import Encoded
    from commingle.services.tables import Table as PublicTable


_EVERY = 2  # points of a curve that are printed
_SHARE = re.compile(r"(.+?)\[(.+)\]\s*=\s*([0-9.eE+-]*[0-9])")
_FAR = 2  # times
_ANOTHER = "Choose another --out."
_OVERRIDES = ("n", "epsilon", "delta", "k")


def _shares(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[Share, ...]:
    found = [_SHARE.fullmatch(one.strip()) for one in given]
    if not all(found):
        raise click.BadParameter("give NAME[LEVEL]=SHARE, as in readmitted[yes]=0.11")
    return tuple((each[1], each[2], float(each[3])) for each in found if each)


@click.command(
    epilog="""\b
Examples:
  commingle plan study.json
  commingle plan study.json --table public.csv --target charges --out plan
  commingle plan study.json --table public.csv --target charges --encodings
  commingle plan study.json --epsilon 3 --n 200000
  commingle plan study.json --target readmitted --share 'readmitted[yes]=0.11' --odds-ratio 1.3
  commingle plan study.json --data ward.csv --data laboratory.csv
  commingle plan --n 50000 --epsilon 1 --parties 3 --columns 11
  commingle plan --preset wu2022 --n 50000 --epsilon 1
"""
)
@click.argument("study", required=False, type=NEW_FILE)
@click.option("--table", type=A_PATH, help="A public CSV or Parquet table that resembles the private one.")
@click.option(
    "--data",
    "tables",
    multiple=True,
    type=NEW_FILE,
    help="A member's own table, to count its rows for n, rounded to two digits. Repeatable.",
)
@click.option("--target", metavar="NAME", help="The target.  [the study's; else the middle one of all]")
@click.option(
    "--r-squared",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help=f"The share of the target's variance that the features explain.  [{R_SQUARED}, or the table's]",
)
@click.option(
    "--odds-ratio",
    type=click.FloatRange(0, min_open=True),
    default=1.5,
    show_default=True,
    help="The odds ratio that a table shall show.",
)
@click.option(
    "--share",
    "shares",
    multiple=True,
    metavar="NAME[LEVEL]=SHARE",
    callback=_shares,
    help="The share of people with a level. Repeatable.  [equal shares, or the table's]",
)
@click.option("--mechanism", type=click.Choice(list(MECHANISMS)), help="The mechanism, instead of the study's.")
@click.option(
    "--preset", type=click.Choice(list(PRESETS)), help="Mechanism, noise, kind of data set and scaling of a paper."
)
@click.option(
    "--subjects",
    type=click.Choice(["listed", "keyed"]),
    help="listed: all members hold the same people. keyed: each holds its own.  [the study's, or keyed if the "
    "mechanism can]",
)
@click.option("--n", type=click.IntRange(2, 10**12), help="The number of people, instead of the study's.")
@click.option("--epsilon", type=float, help="Epsilon per member, instead of the study's.")
@click.option("--delta", type=float, help="Delta per member, instead of the study's.")
@click.option("--k", type=click.IntRange(2, 1_000_000), help="Rows of the sketch.  [chosen from public figures]")
@click.option("--parties", type=click.IntRange(1, MAX_PARTIES), help="Without a study: the number of members.  [3]")
@click.option(
    "--columns",
    type=click.IntRange(2, MAX_COLUMNS - 1),
    help="Without a study: the number of columns of all members together.  [10]",
)
@click.option("--encodings", is_flag=True, help="With a table: compare numbers with their squares and with intervals.")
@click.option("--out", type=A_FOLDER, help="Also write plan.json and plan.png to this folder.")
@csv_options
@reads(Plan, list[dict[str, Any]], unless=("--out",))
def plan(
    *,
    study: Path | None,
    encodings: bool,
    tables: tuple[Path, ...],
    out: Path | None,
    csv_format: CsvFormat | None,
    **options: Any,  # noqa: ANN401 - click
) -> None:
    """Say what a release will be worth, before any budget is spent.

    From public quantities alone, but for --data. STUDY is a study file; without one the question is about uniform
    numeric columns.
    Expected errors and R-squared come with the curves over k, epsilon and n, and with what predicting the mean gives.
    """
    asked = None if study is None else load_settings(Study, study)
    if tables:
        refuse_beside("--data", "n")
        listed = options["subjects"] == "listed" or (asked is not None and not terms_of(asked).keyed)
        options["n"] = _counted(tables, csv_format, None if asked is None else asked.n, listed=listed)
    if encodings:
        _compare_encodings(asked, options, csv_format, out=out)
        return
    design = _design(asked, options)
    assumed = _assumptions(design, options, csv_format)
    assumed = replace(assumed, odds_ratio=options["odds_ratio"], shares=options["shares"])
    made = make_plan(design, assumed if asked is None else assumptions_of(asked, assumed))
    if out is not None:
        _write(out, made)
    emit(asdict(made), text=lambda console: _show(made, console))


def _counted(tables: Sequence[Path], csv_format: CsvFormat | None, said: int | None, *, listed: bool) -> int:
    from commingle.services.tables import read_table  # noqa: PLC0415 - pyarrow loads slowly

    counts = {path: read_table(path, csv_format=csv_format).table.n for path in tables}
    for path, count in counts.items():
        say(f"{path}: {counted(count, 'row')}")
    if listed:
        if len({*counts.values()}) > 1:
            raise click.UsageError("members hold the same people where data sets are listed, and these are not as many")
        return max(counts.values())
    n = two_digits(max(counts.values()))
    was = f" The study says {said:,}, which is far from that." if said and not n < _FAR * said < _FAR**2 * n else ""
    say(
        f"n = {n:,}, two digits of the largest.{was} A study's n is public: it tells all members, and who reads the "
        "release, about how many people you hold. Take a rounder number if that is a secret; within a factor of two "
        "it costs little."
    )
    return n


def _write(out: Path, made: Plan) -> None:
    try:
        from commingle.services.planning.picture import draw  # noqa: PLC0415 - optional, and slow to import
    except ImportError:
        raise MissingExtraError("matplotlib", extra="plot") from None

    with writing(out, remedy=_ANOTHER):
        out.mkdir(parents=True, exist_ok=True)
        (out / "plan.json").write_text(json.dumps(asdict(made), indent=2) + "\n")
        draw(out / "plan.png", made)


def _design(study: Study | None, options: dict[str, Any]) -> Terms:
    if study is None:
        study = _uniform(options)
    elif options["parties"] is not None or options["columns"] is not None:
        raise click.UsageError("--parties and --columns ask without a study; STUDY says them itself.")
    changes = {name: options[name] for name in _OVERRIDES if options[name] is not None}
    study = study.model_copy(update=changes)
    if options["preset"] is None:
        design = _changed(terms_of(study), options)
    else:
        refuse_beside("--preset", "subjects")
        design = terms_of(release_preset(options["preset"]).study(study, options["mechanism"]))
    if mechanism_of(design).sketched:
        return design
    if options["k"] is not None:
        raise click.UsageError(f"--k is the sketch of {', '.join(sketched_names())}; {design.mechanism} has none.")
    return replace(design, k=None)


def _changed(design: Terms, options: dict[str, Any]) -> Terms:
    if options["mechanism"] not in {None, design.mechanism}:
        design = replace(with_mechanism(design, options["mechanism"]), k=options["k"])
    if options["subjects"] is None:
        return design
    keyed = options["subjects"] == "keyed"
    if keyed and not keyed_by_default(design.mechanism, design.projection):
        raise click.UsageError(f"{design.mechanism} as it is asked for takes no keyed data sets: leave --subjects out.")
    return design.with_subjects(keyed=keyed)


def _uniform(options: dict[str, Any]) -> Study:
    if options["n"] is None:
        raise click.UsageError("Give a STUDY, or say with --n how many people there are.")
    parties, columns = options["parties"] or 3, options["columns"] or 10
    if columns < parties:
        raise click.UsageError("Every member needs at least one column.")
    names = [f"x{i + 1}" for i in range(columns)]
    attributes = [NumericAttribute(name=name, lower=-1, upper=1) for name in names]
    shares = [attributes[i::parties] for i in range(parties)]
    asked = tuple(
        StudyParty(name=f"member-{i}", dataset="any", attributes=tuple(share)) for i, share in enumerate(shares, 1)
    )
    return Study(study="Uniform columns", epsilon=1.0, delta=1e-5, n=options["n"], parties=asked)


def _assumptions(design: Terms, options: dict[str, Any], csv_format: CsvFormat | None) -> Assumptions:
    table, r_squared = options["table"], options["r_squared"]
    if table is None:
        return Assumptions(r_squared=r_squared or R_SQUARED, target=options["target"])
    if r_squared is not None:
        raise click.UsageError("--table says what the features explain: leave --r-squared out.")
    from commingle.services.planning.public_table import assumed_of_table  # noqa: PLC0415 - pyarrow loads slowly

    public = _public_table(table, csv_format)
    return assumed_of_table(public, design, where=str(table), target=options["target"])


def _public_table(path: Path, csv_format: CsvFormat | None) -> "PublicTable":
    from commingle.services.tables import read_table  # noqa: PLC0415 - as above

    source = read_table(path, csv_format=csv_format)
    for notice in source.notices:
        say(notice)
    return source.table


def _compare_encodings(
    study: Study | None, options: dict[str, Any], csv_format: CsvFormat | None, *, out: Path | None
) -> None:
    target: str | None = options["target"] or (None if study is None else study.target)
    if study is None or options["table"] is None or target is None:
        raise click.UsageError("--encodings needs a STUDY, a public --table and a --target.")
    from commingle.services.planning.public_table import compared  # noqa: PLC0415 - pyarrow loads slowly

    asked = study.model_copy(update={name: options[name] for name in _OVERRIDES if options[name] is not None})
    found = compared(asked, _public_table(options["table"], csv_format), where=str(options["table"]), target=target)
    if out is not None:
        with writing(out, remedy=_ANOTHER):
            out.mkdir(parents=True, exist_ok=True)
            (out / "study.json").write_text(found[0].study.model_dump_json(indent=2) + "\n")
    answer = [{"encoding": each.name, "forecast": asdict(each.forecast)} for each in found]
    emit(answer, text=lambda console: _show_encodings(asked, found, console, out))


def _show_encodings(asked: Study, found: "Sequence[Encoded]", console: Console, out: Path | None) -> None:
    best, now = found[0], next(each.forecast.r_squared for each in found if each.study == asked)
    said = "Leave the numbers as they are."
    if best.study != asked:
        gained = f"R\N{SUPERSCRIPT TWO} {three_digits(best.forecast.r_squared)} in place of {three_digits(now)}"
        said = f"Take the numbers {best.name}: {gained}."
    where = "--out DIR writes that study." if out is None else f"That study is {out / 'study.json'}."
    console.print(Text(said if best.study == asked else f"{said} {where}", style="bold green"), soft_wrap=True)
    table = figures(
        "numbers", "R\N{SUPERSCRIPT TWO}", "range", title=f"What a fit of {best.forecast.target} is expected to explain"
    )
    for each in found:
        between = each.forecast.r_squared_range
        told = "" if between is None else "{:.2f} to {:.2f}".format(*between)
        table.add_row(each.name, three_digits(each.forecast.r_squared), told)
    console.print(table)


def _show(plan: Plan, console: Console) -> None:
    verdict, *rest = plan.forecast.sentences
    console.print(Text(verdict, style="bold green" if plan.forecast.useful else "bold red"), soft_wrap=True)
    for sentence in (*rest, plan.advice, *sentence_of(plan.tables)):
        console.print(Text(sentence), soft_wrap=True)
    if plan.tables:
        console.print(_tables(plan.tables))
    if plan.cuts:
        console.print(_cuts(plan.cuts))
    console.print(_terms(plan.forecast))
    if plan.over_k:
        console.print(_curve("k", plan.over_k[::_EVERY], lambda p: f"{p.at:,.0f}"))
    console.print(_curve("epsilon", plan.over_epsilon[::_EVERY], lambda p: f"{p.at:.3g}"))
    console.print(_curve("n", plan.over_n[::_EVERY], lambda p: f"{p.at:,.0f}"))
    console.print(_curve("mechanism", plan.mechanisms, lambda p: p.mechanism))


def _tables(found: Sequence[TableForecast]) -> Table:
    one = found[0]
    title = f"Expected of tables by {one.column} = {one.event}: an odds ratio of {one.odds_ratio:g}, 95 % intervals"
    headings = ("odds ratio reads", "a share", "a difference", "noise in a cell", "people needed")
    table = figures("level against", *headings, title=title)
    for each in found:
        high = "\N{INFINITY}" if each.odds_high is None else f"{each.odds_high:.2f}"
        needed = "-" if each.n_needed is None else f"{each.n_needed:,}"
        table.add_row(
            Text(f"{each.row} = {each.level} against {each.reference}"),
            f"{each.odds_low:.2f} to {high}",
            f"\N{PLUS-MINUS SIGN}{each.share_reach:.1%}",
            f"\N{PLUS-MINUS SIGN}{each.difference_reach:.1%}",
            three_digits(each.cell_error),
            needed,
        )
    return table


def _cuts(found: Sequence[CutForecast]) -> Table:
    table = figures("cuts", "levels", "table with", "noise in a cell", title="Numbers have tables once they are cut")
    for each in found:
        name = Text(f'{each.attribute}: "{each.cuts}"')
        table.add_row(name, f"{each.levels}", Text(each.with_label), three_digits(each.cell_error))
    return table


def _terms(f: Forecast) -> Table:
    table = figures("term", "encoded", "original units", title=f"Expected standard errors of a fit of {f.target}")
    for term in f.terms:
        table.add_row(Text(term.term), three_digits(term.encoded), three_digits(term.original))
    return table


def _curve(over: str, points: Sequence[Point], value: Callable[[Point], str]) -> Table:
    r2 = "R\N{SUPERSCRIPT TWO}"
    ranged = any(p.r_squared_range for p in points)
    given = ("k", f"{r2} of a fit", *("range",) * ranged, f"{r2} of the mean", "relative error", "useful")
    table = figures(*dict.fromkeys((over, *given)), title=f"Over {over}")
    for p in points:
        k = [] if over == "k" else ["-" if p.k is None else f"{p.k:,}"]
        between = ["{:.2f} to {:.2f}".format(*p.r_squared_range)] if p.r_squared_range else []
        cells = (
            three_digits(p.r_squared),
            *between,
            three_digits(p.r_squared_constant),
            three_digits(p.relative_error),
        )
        table.add_row(value(p), *k, *cells, "yes" if p.useful else "no", style=None if p.useful else "dim")
    return table
