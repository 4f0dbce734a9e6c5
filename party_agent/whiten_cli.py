"""`commingle party whiten`: a whitening matrix from public rows."""

from pathlib import Path

import click
from rich.console import Console

from commingle.party_agent.private.sources import FileSource, open_source
from commingle.party_agent.private.whitening import make_whitening
from commingle.shared.documents.model import encode
from commingle.shared.documents.schema import parse_attributes
from commingle.shared.runtime.cli import emit, json_option
from commingle.shared.runtime.files import write_durably

_WARNING = (
    "The matrix becomes part of the proposal and is published. It may come from PUBLIC rows only: made from private "
    "rows it would disclose them, without noise and without a charge."
)


@click.command(
    epilog="Example: commingle party whiten --public census.csv --schema schema.json --out whitening.json",
)
@click.option(
    "--public",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    help="PUBLIC rows, CSV or Parquet. Never private ones: the matrix is published as it is.",
)
@click.option(
    "--schema",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    help="This party's attributes, in the study's order.",
)
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
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="For the study file.")
@json_option
def whiten(*, public: Path, schema: Path, ridge: float, radius: float | None, out: Path, as_json: bool) -> None:
    """Make a whitening matrix from PUBLIC rows.

    Written is the `whitening` of this party in a study file; it goes with `"row_norm": 1`. Whoever proposes the study
    publishes it, so no private row may have gone into it.
    """
    attributes = parse_attributes(schema.read_bytes())
    made = make_whitening(open_source(FileSource(path=str(public))), attributes, ridge=ridge, radius=radius)
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
        console.print(f"[bold red]{_WARNING}[/bold red]", soft_wrap=True)
        console.print(f"{columns} encoded columns whitened by {made.rows} public rows: {out}", soft_wrap=True)
        console.print(f"Condition number {_shown(made.condition_before)} before, {_shown(made.condition_after)} after.")
        console.print(f'With "row_norm": 1, {made.clipped:.0%} of the public rows are clipped.')

    emit(value, as_json=as_json, text=text)


def _shown(condition: float | None) -> str:
    return "infinite" if condition is None else f"{condition:.3g}"
