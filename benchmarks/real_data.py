"""`commingle simulate` on real tables: figures of every release, collected into one JSON file and one Markdown table.

python -m benchmarks.real_data [--data DIR] [--only NAME] [--json FILE] [--markdown FILE]

Runs the command as a user would, once per table, for rmgm and dgm at epsilon 1, 3 and 100. The NHANES case is five
tables, one per clinic, joined by SEQN alone.
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks.tables import DATA, entry

_EPSILONS = ("1", "3", "100")
_SHOWN = ("ols", "debiased", "measurement_error", "shrunken", "constant")


@dataclass(frozen=True, slots=True)
class Case:
    """One table, or several parties' tables."""

    name: str
    options: tuple[str, ...]


def _single(name: str, data: Path) -> Case:
    about = entry(data, name)
    features, table = ",".join(about["feature_columns"]), str(data / about["file"])
    return Case(name, ("--table", table, "--target", about["target_column"], "--features", features, "--parties", "3"))


def _numeric(name: str, lower: float, upper: float) -> dict[str, Any]:
    return {"kind": "numeric", "name": name, "lower": lower, "upper": upper, "missing": "midpoint"}


_CLINICS: dict[str, list[dict[str, Any]]] = {
    "demographics": [
        _numeric("RIDAGEYR", 18, 85),
        {"kind": "binary", "name": "RIAGENDR", "levels": ["1", "2"]},
        {"kind": "categorical", "name": "RIDRETH1", "levels": ["3", "1", "2", "4", "5"]},
        _numeric("DMDHHSIZ", 1, 7),
        _numeric("INDFMPIR", 0, 5),
    ],
    "body_measures": [
        _numeric("BMXWT", 40, 150),
        _numeric("BMXHT", 140, 200),
        _numeric("BMXARMC", 20, 50),
        _numeric("BMXWAIST", 60, 150),
    ],
    "lifestyle": [_numeric("SMQ020", 1, 2)],
    "insurance": [_numeric("HIQ210", 1, 2)],
    "blood_pressure": [{"kind": "numeric", "name": "BPXSY1", "lower": 80, "upper": 200}],
}


def _nhanes(data: Path, folder: Path) -> Case:
    """Five clinics' tables with bounds from medical knowledge; codes for "refused" are clipped to "no"."""
    parties = [
        {
            "name": name.replace("_", "-"),
            "table": str(data / f"nhanes_{name}.parquet"),
            "subject_id": "SEQN",
            "columns": [attribute["name"] for attribute in attributes],
        }
        for name, attributes in _CLINICS.items()
    ]
    (folder / "parties.json").write_text(json.dumps({"parties": parties}))
    (folder / "schema.json").write_text(json.dumps([a for attributes in _CLINICS.values() for a in attributes]))
    files = ("--parties", str(folder / "parties.json"), "--schema", str(folder / "schema.json"))
    return Case("nhanes, five tables", (*files, "--common-subjects", "--target", "BPXSY1"))


def run(case: Case, out: Path) -> dict[str, Any]:
    """The report of one simulation."""
    releases = [part for epsilon in _EPSILONS for part in ("--epsilon", epsilon)]
    mechanisms = ["--subjects", "listed", "--mechanism", "rmgm", "--mechanism", "dgm"]
    command = [sys.executable, "-m", "commingle", "simulate", *case.options, *mechanisms, *releases, "--out", str(out)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    return report


def markdown(reports: dict[str, dict[str, Any]]) -> str:
    """Test R^2 of every estimator; in brackets the relative error of the standardised slopes."""
    lines = []
    for name, report in reports.items():
        reference = report["reference"]
        lines += [
            f"### {name}",
            "",
            f"n = {report['n']}, {len(report['parties'])} parties; not private: R² {reference['ols_test_r2']:.3f}.",
            "",
            f"| mechanism | ε | k | {' | '.join(_SHOWN)} |",
            f"|---|---|---|{'---|' * len(_SHOWN)}",
        ]
        for release in report["releases"]:
            found = {e["name"]: e for e in release["estimators"]}
            cells = [f"{found[e]['test_r2']:.3f} ({found[e]['relative_error']:.2f})" for e in _SHOWN]
            k = release.get("k") or "-"
            lines.append(f"| {release['mechanism']} | {release['epsilon']:g} | {k} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


@click.command()
@click.option("--data", type=click.Path(path_type=Path, exists=True, file_okay=False), default=DATA)
@click.option("--only", multiple=True, help="Names of the tables to run.")
@click.option("--json", "json_file", type=click.Path(path_type=Path))
@click.option("--markdown", "markdown_file", type=click.Path(path_type=Path))
def main(*, data: Path, only: tuple[str, ...], json_file: Path | None, markdown_file: Path | None) -> None:
    """Run every case and print the table."""
    reports = {}
    with tempfile.TemporaryDirectory() as folder:
        cases = [*(_single(name, data) for name in ("bike_hour", "diabetes130", "gpu_sgemm"))]
        cases.append(_nhanes(data, Path(folder)))
        for number, case in enumerate(c for c in cases if not only or c.name in only):
            reports[case.name] = run(case, Path(folder) / str(number))
    print(markdown(reports))
    if json_file is not None:
        json_file.write_text(json.dumps(reports, indent=1))
    if markdown_file is not None:
        markdown_file.write_text(markdown(reports))


if __name__ == "__main__":
    main()
