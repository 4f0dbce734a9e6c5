from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from commingle.services.simulation.consortium import write_party_table
from commingle.services.simulation.dataset import cohort
from commingle.services.simulation.evaluate import Score
from commingle.services.simulation.picture import Panel, Series, draw, figure_of
from commingle.services.simulation.progress import open_stages
from commingle.services.simulation.report import verdict
from commingle.services.tables.reading import Table


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


def _score(mse: float) -> Score:
    return Score(relative_error=1.0, test_mse=mse, test_r2=0.0)


def test_release_that_does_not_beat_the_mean_says_so() -> None:
    said = verdict("rmgm at epsilon 1", {"ols": _score(9.0), "shrunken": _score(8.0)}, 8.0)
    assert "does not beat predicting the mean (test MSE 8), whatever the estimator" in said


def test_release_that_loses_to_bounds_of_a_few_rows_does_not_blame_the_number_of_people() -> None:
    said = verdict("rmgm at epsilon 1", {"ols": _score(9.0)}, 8.0, wide=["charges"])
    assert "too much noise for the bounds of charges, which a few rows set." in said
    assert "few people" not in said


def test_estimators_that_do_not_beat_the_mean_are_named() -> None:
    said = verdict("rmgm at epsilon 1", {"ols": _score(9.0), "shrunken": _score(7.0)}, 8.0)
    assert said == "rmgm at epsilon 1: ols does not beat predicting the mean (test MSE 8); shrunken did this time."
    assert "beats" in verdict("dgm at epsilon 9", {"ols": _score(1.0)}, 8.0)


@pytest.mark.parametrize(("panels", "terms"), [(1, 2), (2, 40), (5, 3)])
def test_picture_is_drawn_whatever_the_number_of_releases_and_terms(tmp_path: Path, panels: int, terms: int) -> None:
    slopes = np.linspace(-1, 1, terms)
    nothing = np.full(terms, np.nan)
    series = (
        Series("measurement_error", slopes * 9, slopes * 9 - 1, slopes * 9 + 1),
        Series("ols", slopes, nothing, nothing),
    )
    path = tmp_path / "coefficients.png"
    draw(
        path,
        title="y",
        terms=[f"a feature with a rather long name {i}" for i in range(terms)],
        ols=slopes,
        panels=[Panel("rmgm", series)] * panels,
    )
    assert path.read_bytes().startswith(b"\x89PNG")


def test_legend_names_the_series_of_every_panel() -> None:
    slopes = np.array([0.1, -0.1])
    nothing = np.full(2, np.nan)
    panels = [Panel(name, (Series(name, slopes, nothing, nothing),)) for name in ("ols", "debiased")]
    figure = figure_of(title="y", terms=["a", "b"], ols=slopes, panels=panels)
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["not private", "plain ols", "debiased"]


@pytest.mark.parametrize("panels", [1, 4, 8])
def test_picture_of_the_demo_is_no_taller_than_a_screen(panels: int) -> None:
    slopes = np.zeros(13)
    figure = figure_of(title="y", terms=["t"] * 13, ols=slopes, panels=[Panel("r", ())] * panels)
    assert figure.get_size_inches()[1] * figure.dpi < 1200


def test_progress_is_sentences_for_people_and_events_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    with open_stages(as_json=False) as stages:
        with stages.stage("fit", "Fitting"):
            stages.step("one", 1, 2)
        stages.notice("Bounds were taken from the table.")
    assert capsys.readouterr().err == "Fitting …\nNote: Bounds were taken from the table.\n"
