import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from rich.console import Console

from commingle.services.client.release import Release
from commingle.services.simulation.dataset import cohort
from commingle.services.simulation.evaluate import Reference, Score, ScoredFit
from commingle.services.simulation.picture import Panel, draw, figure_of
from commingle.services.simulation.progress import open_stages
from commingle.services.simulation.report import show, show_first, subject_counts, verdict
from commingle.services.simulation.run import write_party_files, write_party_table
from commingle.services.tables import Table
from tests.world.released import published


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_party_file_holds_every_row_once_in_another_order(tmp_path: Path, suffix: str) -> None:
    made = cohort(seed=0, subjects=200).table.only(["age", "smoker"])
    age = pa.array([None if i == 7 else years for i, years in enumerate(made.columns["age"].to_pylist())])
    table = Table(made.subjects, {**made.columns, "age": age})
    path = tmp_path / f"rows{suffix}"
    write_party_table(path, table, draw=np.random.default_rng(1))
    options = pyarrow.csv.ConvertOptions(strings_can_be_null=True)
    read = (
        pyarrow.csv.read_csv(path, convert_options=options)
        if suffix == ".csv"
        else pyarrow.parquet.ParquetFile(path).read()
    )
    assert read.column_names == ["subject_id", "age", "smoker"]
    subjects = read["subject_id"].to_pylist()
    assert subjects != table.subjects.tolist()
    ages = dict(zip(subjects, read["age"].to_pylist(), strict=True))
    wanted = dict(zip(table.subjects.tolist(), table.columns["age"].to_pylist(), strict=True))
    assert ages.pop("patient-000008") is None
    assert wanted.pop("patient-000008") is None
    assert ages == wanted


@pytest.mark.parametrize("overlap", [1.0, 0.5])
def test_party_is_given_whom_it_holds_or_a_share_of_them(tmp_path: Path, overlap: float) -> None:
    made = cohort(seed=0, subjects=400)
    first, attributes = next(iter(made.parties.items()))
    held = [a.name for a in attributes]
    dataset = replace(made, others={first: made.table.rows(np.arange(300, 400)).only(held)})
    given = write_party_files(dataset, made.table.rows(np.arange(300)), tmp_path, seed=1, overlap=overlap)
    assert [len(subjects) for _, subjects in given.values()] == pytest.approx(
        overlap * np.array([400, 300, 300]), rel=0.2
    )
    declared, subjects = given[first]
    assert set(subjects[-5:]) <= set(made.table.subjects[300:])
    written = pyarrow.parquet.ParquetFile(declared.rows)
    assert written.read()["subject_id"].to_pylist() != subjects.tolist()
    assert written.metadata.num_rows == len(subjects)


def test_counts_of_a_keyed_release_stand_beside_how_many_there_are() -> None:
    prepared = Release.of(published(title="keyed", keyed=True, epsilon=50.0)[1]).prepared
    assert prepared.pairs is not None
    people = [f"p{i}" for i in range(10)]
    given = {name: frozenset(people[start:]) for start, name in enumerate(prepared.pairs.names)}
    own, other, joint = subject_counts(prepared, given)
    assert [count["truth"] for count in (own, other, joint)] == [10, 9, 9]
    assert joint["parties"] == prepared.pairs.names
    assert joint["error"] > 0


SHOWN: dict[str, Any] = {
    "k": None,
    "projection": None,
    "mechanism": "moments",
    "epsilon": 1.0,
    "delta": 1e-5,
    "folder": "moments-epsilon-1",
    "epsilon_subject": 2.0,
    "epsilon_subject_outsiders": 1.4,
    "subject_counts": [],
}


def _scores(**mse: float) -> dict[str, Score]:
    return {name: Score(relative_error=1.0, test_mse=value, test_r2=0.0) for name, value in mse.items()}


def _printed(releases: list[dict[str, Any]], *, out: Path) -> str:
    reference = {f"{name}_test_{what}": 1.0 for name in ("ols", "constant") for what in ("mse", "r2")}
    report = {
        "target": "y",
        "n": 10,
        "parties": [{"name": "a", "missing": []}],
        "releases": releases,
        "reference": {**reference, "n_test": 3, "ols_coefficients": {"(intercept)": 0.5}},
        "seconds": {"total": 1.0},
        "suggestions": [],
    }
    printed_to = StringIO()
    show(report, Console(file=printed_to, width=100), out=out)
    return printed_to.getvalue()


@pytest.mark.parametrize(("errors", "said"), [((1.0, 2.0), "the best release: above."), ((2.0, 1.0), "intervals hold")])
def test_coefficients_of_the_first_release_are_not_shown_again(
    tmp_path: Path, errors: tuple[float, float], said: str
) -> None:
    fit = {"name": "ols", "relative_error": 0.1, "test_r2": 0.5}
    fit |= {"coefficients": {"(intercept)": 0.4}, "intervals": {"(intercept)": [0.1, 0.7]}}
    made = [
        {**SHOWN, "estimators": [{**fit, "test_mse": error}], "left_out": {"debiased": "not here"}, "beats_mean": True}
        for error in errors
    ]
    printed = _printed([{**release, "verdict": "It does."} for release in made], out=tmp_path)
    assert said in printed
    assert ("above" in printed) is not ("intervals hold" in printed)
    assert "Not made for a release of moments: debiased." in printed


def test_release_whose_fits_are_refused_is_shown_with_the_reason(tmp_path: Path) -> None:
    constant = {"name": "constant", "intervals": {"(intercept)": [0.0, 1.0]}, "relative_error": 1.0}
    refused = {
        **SHOWN,
        "k": 4,
        "mechanism": "rmgm",
        "estimators": [{**constant, "test_mse": 2.0, "test_r2": -0.1}],
        "left_out": {"ols": "how many people a and b share is too uncertain", "debiased": "not here"},
        "verdict": verdict("rmgm at epsilon 1", {}, 8.0),
        "beats_mean": False,
    }
    printed = _printed([refused, refused], out=tmp_path)
    assert "Every fit across members was refused: how many people a and b share is too uncertain." in printed
    assert "Not made for" not in printed
    assert "does not beat predicting the mean" in printed
    assert "intervals hold" not in printed


def test_first_release_is_shown_with_its_best_fit_and_its_picture(tmp_path: Path) -> None:
    fit = {
        "name": "ols",
        "test_mse": 1.0,
        "test_r2": 0.5,
        "coefficients": {"age": 0.4},
        "intervals": {"age": [0.1, 0.7]},
    }
    release = {**SHOWN, "estimators": [fit], "verdict": verdict("moments at epsilon 1", _scores(ols=1.0), 8.0)}
    (tmp_path / "coefficients.png").touch()
    printed_to = StringIO()
    show_first(release, {"age": 0.5}, Console(file=printed_to, width=200), out=tmp_path)
    printed = printed_to.getvalue()
    assert "beats predicting the mean" in printed
    assert "1 of 1 intervals hold the fit without privacy" in printed
    assert f"Picture: {tmp_path / 'coefficients.png'}" in printed


def test_verdict_names_what_does_not_beat_the_mean_and_blames_bounds_of_a_few_rows_before_the_number_of_people() -> (
    None
):
    said = verdict("rmgm at epsilon 1", _scores(ols=9.0, shrunken=8.0), 8.0)
    assert "does not beat predicting the mean (test MSE 8), whatever the estimator" in said
    said = verdict("rmgm at epsilon 1", _scores(ols=9.0), 8.0, wide=["charges"])
    assert "too much noise for the bounds of charges, which a few rows set." in said
    assert "few people" not in said
    said = verdict("rmgm at epsilon 1", _scores(ols=9.0, shrunken=7.0), 8.0)
    assert said == "rmgm at epsilon 1: ols does not beat predicting the mean (test MSE 8); shrunken did this time."
    assert "beats" in verdict("dgm at epsilon 9", _scores(ols=1.0), 8.0)


@pytest.mark.parametrize(("panels", "terms"), [(1, 2), (2, 40), (5, 3)])
def test_picture_is_drawn_whatever_the_number_of_releases_and_terms(tmp_path: Path, panels: int, terms: int) -> None:
    slopes = np.linspace(-1, 1, terms)
    nothing = np.full(terms, np.nan)
    fits = {
        "measurement_error": np.column_stack([slopes * 9, slopes * 9 - 1, slopes * 9 + 1]),
        "ols": np.column_stack([slopes, nothing, nothing]),
    }
    path = tmp_path / "coefficients.png"
    draw(
        path,
        title="y",
        terms=[f"a feature with a rather long name {i}" for i in range(terms)],
        ols=slopes,
        panels=[Panel("rmgm", fits)] * panels,
    )
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("fits", "drawn"),
    [
        (("ols", "debiased", "shrunken", "measurement_error"), ["measurement_error", "debiased", "ols"]),
        (("constant", "ols", "shrunken"), ["shrunken", "ols"]),
    ],
)
def test_panel_shows_what_serves_to_predict_where_there_is_room(fits: tuple[str, ...], drawn: list[str]) -> None:
    judge = Reference("y", ("x",), 0.0, np.ones(1), np.ones(1), 0.0, np.ones((2, 1)), np.array([0.0, 1.0]), (-9.0, 9.0))
    scored = [
        ScoredFit(name, {"x": 1.0}, {"x": 0.1}, {"x": [0.8, 1.2]}, "table", (), judge.score({"x": 1.0}))
        for name in fits
    ]
    panel = Panel.of(Release.of(published(title="panel")[1]).spec, scored, judge)
    assert list(panel.slopes) == drawn
    assert [each.tolist() for each in panel.slopes.values()] == [[[1.0, 0.8, 1.2]]] * len(drawn)


def test_legend_names_the_series_of_every_panel() -> None:
    slopes = np.array([0.1, -0.1])
    without = np.column_stack([slopes, np.full((2, 2), np.nan)])
    panels = [Panel(name, {name: without}) for name in ("ols", "debiased")]
    figure = figure_of(title="y", terms=["a", "b"], ols=slopes, panels=panels)
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["debiased", "plain ols", "not private"]


@pytest.mark.parametrize("panels", [1, 4, 8])
def test_picture_of_the_demo_is_no_taller_than_a_screen(panels: int) -> None:
    slopes = np.zeros(13)
    figure = figure_of(title="y", terms=["t"] * 13, ols=slopes, panels=[Panel("r", {})] * panels)
    assert figure.get_size_inches()[1] * figure.dpi < 1200


def test_progress_is_sentences_for_people_and_events_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    with open_stages(as_json=False) as stages:
        stages.expected = 3
        with stages.stage("fit", "Fitting"):
            stages.step("one", 1, 2)
        stages.notice("Bounds were taken from the table.")
        stages.show("rmgm-epsilon-1", lambda console: console.print("Picture: here"))
    fitting, one, *rest = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r" *\d+\.\d s  1 of 3: Fitting …", fitting)
    assert re.fullmatch(r" *\d+\.\d s    one \(1 of 2\)", one)
    assert rest == ["Note: Bounds were taken from the table.", "Picture: here"]
