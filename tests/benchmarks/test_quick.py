"""Every measurement runs, small, without the real tables, and writes what it prints as JSON and as pictures."""

import json
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.consortium import Commingle
from benchmarks.harness import LEFT_OUT, Asked, Experiment, as_table, generator, of_report, spread
from tests.world.command import Loaded

DOCS = Path(__file__).parents[2] / "docs" / "figures"
WITHOUT = {
    "published",
    "inside",
    "runs_inside",
    "4",
    "4, without row norm",
    "5",
    "wine_conditions",
    "3",
    "ratios of Cox",
    *("opendp-fixed", "opendp-mst", "opendp-aim", "smartnoise-mst", "smartnoise-aim"),
}
"""Names that a quick run has not, without real tables, published figures and peers."""


WHOLE = ("wang2018", "kalaja2020", "public_moment", "central", "questions", "survival", "synthetic")
"""Whose data in docs/figures are a report of the command as it is; others keep figures of former ones, too."""


def lacking(kept: object, made: object, at: tuple[str, ...] = ()) -> Iterator[str]:
    """Names in a page's data that a report of the same command has not; what is empty there is not looked at."""
    if isinstance(kept, dict) and isinstance(made, dict) and made:
        for name, held in kept.items():
            if name in made:
                yield from lacking(held, made[name], (*at, name))
            elif name not in WITHOUT:
                yield " ".join((*at, name))
    elif isinstance(kept, list) and isinstance(made, list) and kept and made:
        yield from lacking(kept[0], made[0], at)


def of_papers(report: dict[str, Any]) -> bool:
    return bool(report["tables"][0]["figures"]["4.1 instability of SSP"]["AdaSSP, classical"])


def within_a_factor(report: dict[str, Any]) -> bool:
    """Seeds are fixed; the rms over ten releases has a relative standard error of about 15 %."""
    told = [r for r in report["results"] if r["assumed"] == "table" and r["mechanism"] != "dgm"]
    return len(told) == 2 and all(1 / 1.5 < r["ratio"] < 1.5 and r["warned"] == 0 for r in told)


def all_published(report: dict[str, Any]) -> bool:
    return report["of_moments"] > 0 and not report["lost"] and report["verified"] > 0


def in_growing_processes(report: dict[str, Any]) -> bool:
    results = report["results"]
    grown = all(r["peak_megabytes"] >= r["before_megabytes"] > 10 for r in results)
    return len(results) == 6 and grown and sum(r["cpu_seconds"] for r in results) > 0


def from_registration_to_publication(report: dict[str, Any]) -> bool:
    [r] = report["results"]
    whole = 20 < r["idle_megabytes"] <= r["release_megabytes"]
    anonymous = 10 < r["anonymous_megabytes"] < r["release_megabytes"]
    sent = r["sent_megabytes"] == pytest.approx(0.8, rel=0.01)  # k rows of ten columns
    return whole and anonymous and bool(sent) and r["cpu_seconds"] > 0


def rate_ratios_held(report: dict[str, Any]) -> bool:
    kinds, cells = ("unmarked", "marked"), report["results"]
    held = [
        sum((c[f"{kind}_population"] or 0) * c[kind] for kind in kinds) / sum(c[kind] for kind in kinds) for c in cells
    ]
    return len(held) == 5 and min(held[:4]) > 0.7


def near_the_people(report: dict[str, Any]) -> bool:
    """Rows that keep the tables are nearer than people drawn anew, and predict nearly as well."""
    [programs] = (cell["programs"] for cell in report["cells"])
    people, rows = programs["people"], programs["release"]
    return bool(rows["variation"] < people["variation"] and rows["auc"] > people["auc"] - 0.02)


def held_for_the_people(report: dict[str, Any]) -> bool:
    """One release of made-up people, whose hazards are proportional: five ratios, and bands of two or three groups."""
    [found] = report["results"]
    return bool(found["bands"] > 0.7 and found["ratios"] > 0.5 and 0 < found["standard error"] < 0.3)


RUNS: dict[str, tuple[Callable[[dict[str, Any]], bool], tuple[str, ...], tuple[str, ...]]] = {
    "wang2018": (
        lambda r: r["table3"][0]["table"] == "made-up",
        ("wang2018_epsilon", "wang2018_efficiency", "wang2018_rates", "wang2018_regions"),
        (),
    ),
    "kalaja2020": (of_papers, ("kalaja2020_made-up",), ()),
    "wu2022": (lambda r: r["real"] == [], ("wu2022_synthetic", "wu2022_eigenvalues", "wu2022_rates"), ()),
    "public_moment": (lambda r: {*r["figures"]} == {*"123"}, ("public_moment_rows", "public_moment_public"), ()),
    "central": (lambda r: r["one_column"][0]["d"] == 1, ("central", "central_one_column"), ()),
    "coverage": (lambda r: len(r["results"]) == 8, (), ()),
    "keyed": (lambda r: all(c["answered"] == 1 for c in r["coverage"]), (), ()),
    "odds_ratios": (
        lambda r: r["results"][0]["auc"] > 0.6 and all(c["population"] > 0.7 for c in r["results"]),
        (),
        (),
    ),
    "rates": (rate_ratios_held, (), ()),
    "questions": (
        lambda r: (
            0 < max(r["counted"]["1"][name] for name in ("counts", "joint")) < 0.1 and r["covered"][0]["shares"] > 0.7
        ),
        (),
        (),
    ),
    "survival": (held_for_the_people, (), ()),
    "synthetic": (near_the_people, (), ()),
    "planning": (within_a_factor, ("planning",), ()),
    "choice": (lambda r: r["cells"] == [], (), ()),
    "users": (lambda r: r["tables"] == [], (), ()),
    "load": (all_published, (), ()),
    "rounds": (lambda r: r["requests"] > 0, (), ("--members", "2")),
    "scale": (in_growing_processes, ("scale",), ()),
    "whole_agent": (from_registration_to_publication, (), ("--work", "sparse")),
}
"""By name: what holds of the report, the pictures, and options. `latency` takes minutes."""


@pytest.mark.parametrize("name", RUNS)
def test_quick_run_prints_its_report_and_writes_it_with_all_names_of_the_pages_data_and_its_pictures(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds, pictures, options = RUNS[name]
    if name == "rounds":  # `whole_agent` runs the same commands as processes
        monkeypatch.setattr(Commingle, "run", Loaded.run)
    experiment: Experiment = import_module(f"benchmarks.{name}").EXPERIMENT
    words = ["--quick", "--data", str(tmp_path / "absent"), "--out", str(tmp_path), *options]
    shown = CliRunner().invoke(experiment.command, words, catch_exceptions=False)
    assert shown.exit_code == 0, shown.output
    report = json.loads((tmp_path / f"{name}.json").read_text())
    assert holds(report)
    said = [*experiment.warning.splitlines(), *"\n".join(experiment.lines(report)).splitlines()]
    assert shown.output.splitlines() == said
    if name in WHOLE:
        assert [*lacking(json.loads((DOCS / f"{name}.json").read_text()), report)] == []
    assert all((tmp_path / f"{picture}.png").read_bytes().startswith(b"\x89PNG") for picture in pictures)


def test_measurement_is_declared_under_the_name_of_its_module() -> None:
    experiment: Experiment = import_module("benchmarks.latency").EXPERIMENT
    assert experiment.name == "latency"
    assert CliRunner().invoke(experiment.command, ["--help"]).exit_code == 0


def test_another_seed_draws_otherwise_and_the_usual_one_as_before(tmp_path: Path) -> None:
    def measure(asked: Asked) -> dict[str, Any]:
        return {"drawn": generator(3, 4).random(asked.times(1, 2)).tolist()}

    drawn = []
    for seed in ("0", "0", "7"):
        command = Experiment("drawing", "Numbers.", measure, lambda _: ()).command
        command.main(["--seed", seed, "--repeats", "3", "--out", str(tmp_path)], standalone_mode=False)
        drawn.append(json.loads((tmp_path / "drawing.json").read_text())["drawn"])
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(drawn[0]) == 3
    assert generator(3, 4).random(3).tolist() == drawn[0]


def test_table_of_records_has_a_column_for_each_figure_and_the_mean_of_a_spread() -> None:
    found = as_table([{"n": 7, "errors": {"a": spread([1.0, 2.0])}, "points": [1, 2]}, {"n": 8, "name": "b"}])
    assert found == ["| n | errors a | name |", "| --- | --- | --- |", "| 7 | 1.5 |  |", "| 8 |  | b |"]
    assert as_table([]) == [LEFT_OUT]
    told = of_report({"n": 7, "lost": [], "load": [0.5, 2], "cpu": {"a": 1.25, "b": {"c": 3}}, "cells": [{"n": 1}]})
    tables = ["", "| cpu |  |", "| --- | --- |", "| a | 1.25 |", "| b c | 3 |", "", "| n |", "| --- |", "| 1 |"]
    assert [*told] == ["n: 7", "lost: none", "load: 0.5, 2", *tables]
    told = of_report({"of": {"1": [{"n": 1}], "k": 2}, "real": [{"t": "a", "cells": [{"e": 1}, {"e": 2}]}]})
    first = ["", "### of, 1", "", "| n |", "| --- |", "| 1 |", "", "| of |  |", "| --- | --- |", "| k | 2 |"]
    assert [*told] == [*first, "", "| t | e |", "| --- | --- |", "| a | 1 |", "| a | 2 |"]


def test_measurement_that_fails_ends_with_1_after_it_is_written(tmp_path: Path) -> None:
    failing = Experiment("failing", "", lambda _: {"lost": 1}, lambda _: ["lost"], failed=lambda r: r["lost"] > 0)
    shown = CliRunner().invoke(failing.command, ["--out", str(tmp_path)])
    assert (shown.exit_code, shown.output) == (1, "lost\n")
    assert json.loads((tmp_path / "failing.json").read_text())["lost"] == 1
