"""`commingle party datasets` and `whiten`: a party's own tables, and a whitening matrix from public rows."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from commingle.party_agent.home.home import Home
from commingle.party_agent.home.ranges import draft_schema, known_ranges
from commingle.party_agent.operate.compose import agent_client, home_option
from commingle.party_agent.private.derived import numbers_among, parse_derived
from commingle.party_agent.private.public_rows import make_whitening
from commingle.party_agent.private.sources import FileSource, open_source, other_format, source_columns
from commingle.party_agent.wire.answers import DatasetView
from commingle.party_agent.wire.owner_words import id_words
from commingle.shared.documents.model import encode
from commingle.shared.documents.schema import Attribute, parse_attributes
from commingle.shared.documents.subject_ids import EXACT, RULE_NAMES, IdRule, is_id_rule
from commingle.shared.runtime.cli import A_FILE, NEW_FILE, LazyGroup, OpenChoice, changes, emit, reads, together
from commingle.shared.runtime.csv_format import USUAL, CsvFormat, csv_options
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.files import read_given, write_durably
from commingle.shared.text import counted

_WARNING = (
    "The matrix becomes part of the proposal and is published. It may come from PUBLIC rows only: made from private "
    "rows it would disclose them, without noise and without a charge."
)

id_rule_option = click.option(
    "--id-rule",
    "id_rules",
    type=OpenChoice(RULE_NAMES, is_id_rule),
    multiple=True,
    help="How ids are written, one rule for each --subject-id. A study's id_rules say the same.  [exact/1]",
)
people_options = together(
    click.option(
        "--derive",
        "derived",
        metavar="'NAME = FUNCTION(COLUMN, ...)'",
        multiple=True,
        help="A column that the agent computes from others of the same row. Repeatable: 'age = age_at(born, "
        "2026-01-01)', "
        "'stay = days_between(admitted, discharged)', 'log_crp = log(crp)', 'r = ratio(waist, hip)', "
        "'fee = number(fee, thousands=comma, below=half)', "
        "'sex = recode(gender, m=male, f=female)'.",
    ),
    click.option(
        "--listed",
        is_flag=True,
        help="All members hold the same people, and who they are is not protected.  [keyed: who they are is protected]",
    ),
    click.option(
        "--people",
        default="everybody",
        show_default=True,
        help="The group of people that the table is about. Nobody is in two groups. A cap in policy.json counts "
        "what all data sets of a group lose.",
    ),
)


@click.group(cls=LazyGroup)
def datasets() -> None:
    """Register the tables this member can contribute."""


@datasets.command(
    "add",
    epilog="Example: commingle party datasets add main --home ./ward --source stays.csv --subject-id patient "
    "--schema schema.json",
)
@home_option
@click.argument("name")
@click.option(
    "--source",
    help="A CSV, Parquet or Excel file; or a directory or s3://bucket/prefix with a table's Parquet partitions.",
)
@click.option("--pushed", is_flag=True, help="The member's own systems push its rows to the agent.")
@click.option("--database-url", help="An SQLAlchemy URL, with --query.")
@click.option("--database-url-file", type=A_FILE, help="A file that holds the database URL.")
@click.option(
    "--query",
    "queries",
    multiple=True,
    help="A SELECT that returns the subject id and every attribute. Repeatable, one for each partition of a table.",
)
@click.option(
    "--each-row-by-itself",
    "promised",
    is_flag=True,
    help="With --query: you promise that each row of the result depends on one person's records alone.",
)
@click.option(
    "--subject-id",
    metavar="COLUMN",
    multiple=True,
    required=True,
    help="The column that identifies the person. Repeatable, if several columns together do.",
)
@id_rule_option
@click.option("--schema", type=NEW_FILE, required=True, help="A JSON array of attributes.")
@people_options
@click.option("--replace", is_flag=True, help="Replace the data set of this name.")
@csv_options
@changes(DatasetView)
def add_dataset(
    *,
    home: Home,
    name: str,
    source: str | None,
    database_url: str | None,
    database_url_file: Path | None,
    queries: tuple[str, ...],
    promised: bool,
    pushed: bool,
    csv_format: CsvFormat | None,
    **said: Any,  # noqa: ANN401 - click
) -> None:
    """Read a table once, validate it against its schema, and remember it."""
    if database_url_file is not None:
        database_url = read_given(database_url_file).decode(errors="replace").strip()
    places = [source is not None, database_url is not None, pushed].count(True)
    if places != 1 or (database_url is None) == bool(queries):
        raise click.UsageError("give one of --source, --pushed, and --database-url (or its file) with --query")
    place: dict[str, Any] = {"kind": "pushed"}
    if source is not None:
        place = place_of(source, csv_format)
    elif database_url is not None:
        query = queries[0] if len(queries) == 1 else queries
        place = {"kind": "sql", "url": database_url, "query": query, "promised": promised}
    value = declare(home, name, place, **said)
    emit(value, text=lambda console: say_found(console, value))


def declare(
    home: Home,
    name: str,
    place: Mapping[str, Any],
    *,
    schema: Path,
    subject_id: tuple[str, ...],
    id_rules: tuple[IdRule, ...],
    derived: tuple[str, ...],
    listed: bool,
    people: str,
    replace: bool = False,
) -> DatasetView:
    """Have the agent of a home read a table and remember it; what it found. Raises what the agent says is wrong."""
    attributes = parse_attributes(read_given(schema))
    body = {
        "name": name,
        "source": place,
        "subject_id": subject_id[0] if len(subject_id) == 1 else subject_id,
        "id_rules": id_rules or None,
        "subjects": "listed" if listed else "keyed",
        "people": people,
        "attributes": [attribute.model_dump(mode="json") for attribute in attributes],
        "derived": [parse_derived(text).model_dump(mode="json") for text in derived],
    }
    with agent_client(home) as agent:
        return agent.register(body, replace=replace)


@datasets.command("read", epilog="Example: commingle party datasets read main --home ./ward")
@home_option
@click.argument("name")
@changes(DatasetView)
def read_dataset(*, home: Home, name: str) -> None:
    """Read a table again: releases that you approve from now on are made of what it holds now."""
    with agent_client(home) as agent:
        value = agent.read_again(name)
    emit(value, text=lambda console: say_found(console, value))


def say_found(console: Console, found: DatasetView) -> None:
    if found.read is None:
        console.print(f"Data set {found.name}: its rows are pushed (docs/party-systems.md).")
        return
    console.print(
        f"Data set {found.name}: {counted(found.n or 0, 'person', 'people')}, {found.subjects} ({found.unit})."
    )
    for made in found.derived or ():
        console.print(f"  {made}")
    if found.ids_changed:
        console.print(
            f"  {counted(found.ids_changed, 'id is', 'ids are')} written otherwise by {', '.join(found.id_rules or ())}"
        )
    if words := id_words(found.id_forms or (), found.id_rules or EXACT):
        console.print(f"  {words}.")
    for words in found.cell_words:
        console.print(f"  {words}")


def place_of(source: str, csv_format: CsvFormat | None) -> dict[str, str | int]:
    """A source as it is registered: one file, or many."""
    if "://" in source:
        return {"kind": "partitions", "path": source}
    path = Path(source).resolve()
    if path.is_dir():
        return {"kind": "partitions", "path": str(path)}
    return {"kind": "file", "path": str(path), **asdict(csv_format or USUAL)}


@datasets.command(
    "draft",
    epilog="Example: commingle party datasets draft --source stays.csv --subject-id patient --unit glucose=mmol/l "
    "--out schema.json",
)
@click.option("--source", type=A_FILE, required=True, help="The table. Only the names of its columns are read.")
@click.option(
    "--subject-id",
    metavar="COLUMN",
    multiple=True,
    required=True,
    help="The column that identifies the person. Repeatable.",
)
@click.option(
    "--ranges",
    "table",
    type=A_FILE,
    help="Your public knowledge: a CSV with name,unit,lower,upper,levels (levels separated by |). It overrides "
    "what the agent knows.",
)
@click.option("--unit", "units", metavar="COLUMN=UNIT", multiple=True, help="The unit of a column. Repeatable.")
@click.option("--out", type=NEW_FILE, required=True, help="The schema file to write.")
@csv_options
@changes(out=str, attributes=list[Attribute], unknown=list[str])
def draft(
    *,
    source: Path,
    subject_id: tuple[str, ...],
    table: Path | None,
    units: tuple[str, ...],
    out: Path,
    csv_format: CsvFormat | None,
) -> None:
    """Draft a schema from public knowledge: what is known of columns of these names. No row is looked at.

    Bounds that were taken from private rows would tell of them without noise and without a charge. Columns that
    nothing is known about are listed, for you to add.
    """
    if not all("=" in one for one in units):
        raise click.UsageError("give units as COLUMN=UNIT")
    named = FileSource(path=str(source), **asdict(csv_format or USUAL))
    columns = [name for name in source_columns(named) if name not in subject_id]
    said = {column: unit for column, _, unit in (one.partition("=") for one in units)}
    drafted, unknown = draft_schema(columns, known_ranges(table), said)
    if not drafted:  # their names may be a first row, so they are not repeated
        raise SettingsError(
            f"nothing is known of {counted(len(columns), 'column')}",
            remedy=other_format(named) or "Give --ranges; a CSV needs a header line.",
        )
    schema = [attribute.model_dump(mode="json") for attribute, _ in drafted]
    write_durably(out, json.dumps(schema, indent=2).encode())

    def text(console: Console) -> None:
        for attribute, known in drafted:
            basis = "your table" if known.given else "public knowledge"
            console.print(f"{attribute.name}: {known} ({basis})")
        if unknown:
            console.print(f"Not known: {', '.join(unknown)}. Add them, with --ranges or in {out}.")
        console.print("No row was read. Check units and bounds before you register.")

    emit({"out": str(out), "attributes": schema, "unknown": unknown}, text=text)


@datasets.command("list")
@home_option
@reads(items=tuple[DatasetView, ...])
def list_datasets(*, home: Home) -> None:
    """List registered data sets."""
    with agent_client(home) as agent:
        found = agent.datasets()

    def text(console: Console) -> None:
        table = Table("name", "subjects", "unit", "attributes", "source")
        for item in found:
            made = {text.partition(" = ")[0]: text for text in item.derived or ()}
            names = ", ".join(made.get(attribute.name, attribute.name) for attribute in item.attributes)
            read = f"{item.n}" if item.read else "not pushed yet"
            table.add_row(item.name, f"{read}, {item.subjects}", item.unit, names, item.source)
        console.print(table)

    emit({"items": found}, text=text)


@click.command(epilog="Example: commingle party whiten --public census.csv --schema schema.json --out whitening.json")
@click.option(
    "--public",
    type=A_FILE,
    required=True,
    help="PUBLIC rows, CSV or Parquet. Never private ones: the matrix is published as it is.",
)
@click.option("--schema", type=A_FILE, required=True, help="This member's attributes, in the study's order.")
@click.option(
    "--ridge",
    type=click.FloatRange(0, 1),
    default=1e-4,
    show_default=True,
    help="Added to the encoded columns' variances, for directions in which public rows hardly vary.",
)
@click.option(
    "--radius",
    type=click.FloatRange(0, min_open=True),
    help="Norm of a whitened row above which it is clipped, in standard deviations.  [sqrt(d)]",
)
@click.option("--out", type=NEW_FILE, required=True, help="The file to write, for the study.")
@csv_options
@changes(
    out=str,
    columns=int,
    public_rows=int,
    condition_number_before=float | None,
    condition_number_after=float | None,
    share_clipped=float,
    row_norm=float,
    warning=str,
)
def whiten(
    *, public: Path, schema: Path, ridge: float, radius: float | None, out: Path, csv_format: CsvFormat | None
) -> None:
    """Make a whitening matrix from PUBLIC rows.

    It writes this member's `whitening` for a study file, where it goes with `"row_norm": 1`. The study publishes it, so
    make it from no private row.
    """
    attributes = parse_attributes(read_given(schema))
    source = open_source(FileSource(path=str(public), **asdict(csv_format or USUAL)), numbers_among(attributes, ()))
    made = make_whitening(source, attributes, ridge=ridge, radius=radius)
    write_durably(out, encode(made.whitening))
    columns = len(made.whitening.centre)
    value = {
        "out": str(out),
        "columns": columns,
        "public_rows": made.rows,
        "condition_number_before": made.condition_before,
        "condition_number_after": made.condition_after,
        "share_clipped": made.clipped,
        "row_norm": 1.0,
        "warning": _WARNING,
    }

    def text(console: Console) -> None:
        console.print(_WARNING, style="bold red")
        console.print(f"{columns} encoded columns whitened by {made.rows} public rows: {out}")
        conditions = (made.condition_before, made.condition_after)
        before, after = ("infinite" if one is None else f"{one:.3g}" for one in conditions)
        console.print(f"Condition number {before} before, {after} after.")
        console.print(f'With "row_norm": 1, {made.clipped:.0%} of the public rows are clipped.')

    emit(value, text=text)
