"""`commingle export`."""

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
  commingle export ./release --to files
  commingle export ./release --to files --rows 10000 age stage readmitted
  commingle export http://coordinator:8000 --release ID --to files
"""
)
@release_options
@click.argument("attributes", nargs=-1)
@click.option(
    "--to", type=click.Path(path_type=Path, file_okay=False), required=True, metavar="FOLDER", help="Where files go."
)
@click.option(
    "--rows", type=click.IntRange(1, MOST), metavar="N", help="Also N synthetic rows, as `commingle synthesize` draws."
)
@json_option
def export(*, found: Release, attributes: tuple[str, ...], to: Path, rows: int | None, as_json: bool) -> None:
    """Write a release as files for R, Stata, SAS and catalogues.

    Covariances and means, tables of levels, a codebook, and what catalogues read of it (DCAT-AP, Croissant).

    DIR is a release directory, URL a coordinator. ATTRIBUTES are all where you name none.
    """
    made = found.export(attribute_names(attributes, found))
    drawn = None if rows is None else found.synthesize(rows, attribute_names(attributes, found))
    written = [*made.write(to), *(() if drawn is None else drawn.write(to / "rows.csv"))]
    warnings = (*made.warnings, *(() if drawn is None else drawn.warnings))

    def text(console: Console) -> None:
        console.print(made.table().to_text().rstrip())
        for warning in warnings[len(made.warnings) :]:
            console.print(f"Warning: {warning}")
        console.print(f"\nWritten: {', '.join(map(str, written))}.")
        console.print(f"\n{provenance(found)}")

    said = {**answer(found, made), "warnings": warnings, "written": [str(path) for path in written]}
    emit(said, as_json=as_json, text=text)
