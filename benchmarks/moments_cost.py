"""What a moments release costs: a whole simulated consortium, seconds by stage, memory and CPU of every process.

python -m benchmarks.moments_cost [--n N] [--quick] [--json FILE]

Three parties with ten attributes each, epsilon = 1. The simulation holds out a fifth of its table; n is what is left.
"""

import json
import os
import tempfile
from pathlib import Path

import click

from benchmarks.million import run, show, write_table

_ATTRIBUTES = 30


@click.command()
@click.option("--n", type=int, default=1_000_000, show_default=True, help="Subjects of the release.")
@click.option("--quick", is_flag=True, help="Few subjects, for CI.")
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(*, n: int, quick: bool, json_file: Path | None) -> None:
    """Print the figures and, if asked, write them as JSON."""
    n = 4_000 if quick else n
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.parquet"
        write_table(table, subjects=n * 5 // 4, features=_ATTRIBUTES - 1)
        result = run(table, Path(folder) / "out", "--mechanism", "moments", "--epsilon", "1")
    result = {"n": n, "attributes": _ATTRIBUTES, "processors": os.cpu_count(), "load_before": load, **result}
    print(f"n = {n}, {_ATTRIBUTES} attributes; load average before: {load:.1f} on {os.cpu_count()} processors")
    show(result)
    if json_file is not None:
        json_file.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
