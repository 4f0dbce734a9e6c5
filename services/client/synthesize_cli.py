"""`commingle synthesize`."""

from pathlib import Path

import click
from rich.console import Console

from commingle.services.client.opening import answer, attribute_names, provenance, release_options
from commingle.services.client.release import Release
from commingle.services.models.synthetic import MOST
from commingle.shared.runtime.cli import emit, json_option


@click.command(
    epilog="""\b
Examples:
  commingle synthesize ./release --rows 10000 --out rows.csv
  commingle synthesize ./release --rows 10000 --out rows.parquet age stage readmitted
  commingle synthesize http://coordinator:8000 --release ID --rows 10000 --out rows.csv
"""
)
@release_options
@click.argument("attributes", nargs=-1)
@click.option("--rows", type=click.IntRange(1, MOST), required=True, metavar="N", help="How many rows.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE",
    help="FILE.csv or FILE.parquet; FILE.dictionary.json and FILE.report.txt lie beside it.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="S",
    help="The same seed draws the same rows.",
)
@json_option
def synthesize(*, found: Release, attributes: tuple[str, ...], rows: int, out: Path, seed: int, as_json: bool) -> None:
    """Draw synthetic rows of a release into a file.

    It has to be of moments. The rows keep its tables of two attributes, for programs that take nothing but rows; use
    `commingle table` and `commingle fit` for intervals.

    DIR is a release directory, URL a coordinator. ATTRIBUTES are all with levels where you name none.
    """
    drawn = found.synthesize(rows, attribute_names(attributes, found), entropy=seed)
    written = [str(path) for path in drawn.write(out)]

    def text(console: Console) -> None:
        console.print(drawn.table().to_text().rstrip())
        console.print(f"\nWritten: {', '.join(written)}.")
        console.print(f"\n{provenance(found)}")

    emit({**answer(found, drawn), "written": written}, as_json=as_json, text=text)
