import json
from pathlib import Path

import pytest

from commingle.shared.documents.dsse import payload_type
from tests.world.command import run_command
from tests.world.released import (
    COORDINATOR,
    STRANGER,
    ServingCoordinator,
    flipped,
    html,
    published,
    published_survival,
    published_tables,
)
from tests.world.transport import on_a_socket

TARGET = "charges, yearly"


@pytest.fixture
def directory(tmp_path: Path) -> str:
    published()[1].write(tmp_path / "release")
    return str(tmp_path / "release")


def test_fit_prints_a_summary_and_that_the_key_is_not_pinned(
    directory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run_command(capsys, "fit", directory, "--target", TARGET)
    assert code == 0
    for expected in ("smoker[yes]", "10000 per party", "not pinned"):
        assert expected in out


def test_fit_as_json_is_the_fit_and_its_release(directory: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--features", "age,bmi", "--no-intercept", "--estimator", "ols", "--confidence", "0.9")
    code, out, _ = run_command(capsys, "fit", directory, "--target", TARGET, *arguments, "--json")
    said = json.loads(out)
    assert code == 0
    assert (said["features"], said["intercept"], said["estimator"]) == (["age", "bmi"], False, "ols")
    assert (said["confidence_level"], said["release"]) == (0.9, published()[0])


def test_feature_with_a_comma_in_its_name_can_be_given_alone(
    directory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--features", TARGET, "--features", "bmi, smoker", "--json")
    code, out, _ = run_command(capsys, "fit", directory, "--target", "age", *arguments)
    assert code == 0
    assert json.loads(out)["features"] == [TARGET, "bmi", "smoker"]


def test_fit_from_a_coordinator_saves_what_it_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release_id, files = published()
    saved = tmp_path / "saved"
    with on_a_socket(ServingCoordinator.serving((release_id, files)).answer) as url:
        arguments = ("--target", TARGET, "--coordinator-key", COORDINATOR.fingerprint, "--save", str(saved))
        code, out, _ = run_command(capsys, "fit", url, "--release", release_id, *arguments)
    assert code == 0
    assert "key pinned" in out
    assert (saved / "matrix.parquet").read_bytes() == files.matrix


def test_fit_from_a_coordinator_without_id_lists_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    with on_a_socket(ServingCoordinator.serving(published()).answer) as url:
        code, _, err = run_command(capsys, "fit", url, "--target", TARGET)
    assert code == 2
    assert f"{published()[0]}  “charges [bold]”" in err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--target", "chargs, yearly"), "Did you mean 'charges, yearly'?"),
        (("--target", TARGET, "--features", "age,smokr"), "Did you mean 'smoker'?"),
        (("--target", TARGET, "--features", TARGET), "both target and feature"),
        (("--target", TARGET, "--coordinator-key", STRANGER.fingerprint), "not by the trusted coordinator"),
        (("--target", TARGET, "--coordinator-key", "abc"), "not a key's fingerprint"),
    ],
)
def test_fit_that_cannot_be_is_one_error_with_a_remedy(
    directory: str, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: str
) -> None:
    code, out, err = run_command(capsys, "fit", directory, *arguments)
    assert (code, out) == (1, "")
    assert expected in err
    assert err.startswith("Error: ")
    assert len(err.splitlines()) == 2


def test_usage_errors_exit_with_2(directory: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(capsys, "fit", directory)[0] == 2
    assert run_command(capsys, "fit", directory, "--target", TARGET, "--estimator", "magic")[0] == 2
    assert run_command(capsys, "fit", directory, "--target", TARGET, "--confidence", "1")[0] == 2
    assert run_command(capsys, "fit", directory, "--target", TARGET, "--release", "0" * 64)[0] == 2


def test_key_that_would_not_be_compared_is_refused(directory: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run_command(capsys, "verify", directory, "--party-key", STRANGER.fingerprint)
    assert (code, "--party-key is for a regression" in err) == (2, True)
    code, _, err = run_command(
        capsys, "verify", f"{directory}/manifest.json", "--coordinator-key", COORDINATOR.fingerprint
    )
    assert (code, "--coordinator-key is for a release" in err) == (2, True)


def test_missing_directory_unreachable_and_strange_coordinators_are_one_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for source, expected in (
        (str(tmp_path / "nowhere"), "does not hold a release"),
        ("http://127.0.0.1:9", "no answer from"),
        ("ftp://hub", "not an address"),
    ):
        code, _, err = run_command(
            capsys, "fit", source, "--target", TARGET, *(["--release", "0" * 64] * (":" in source))
        )
        assert code == 1
        assert expected in err
    with on_a_socket(ServingCoordinator(instead=html).answer) as url:
        code, _, err = run_command(capsys, "fit", url, "--target", TARGET, "--release", "0" * 64)
        assert (code, "did not answer with JSON" in err) == (1, True)
    with on_a_socket(ServingCoordinator().answer) as url:
        code, _, err = run_command(capsys, "fit", url, "--target", TARGET, "--release", "0" * 64)
        assert (code, "has no release 0000" in err) == (1, True)


def test_error_as_json_is_a_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_command(capsys, "verify", str(tmp_path), "--json")
    assert (code, json.loads(out)["error"]["code"]) == (1, "release-directory")


@pytest.fixture
def tables(tmp_path: Path) -> str:
    published_tables()[1].write(tmp_path / "tables")
    return str(tmp_path / "tables")


def test_table_is_printed_with_one_sentence_and_where_it_comes_from(
    tables: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run_command(capsys, "table", tables, "stage", "readmitted")
    assert code == 0
    for expected in ("odds ratio", "an odds ratio of", "Rows are compared with stage = i.", "not pinned"):
        assert expected in out


@pytest.mark.parametrize("asked", [("table", "stage", "readmitted"), ("describe", "--by", "stage")])
def test_picture_of_an_answer_is_written_in_the_form_of_its_name(
    tables: str, asked: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, *rest = asked
    code, _, _ = run_command(capsys, command, tables, *rest, "--plot", str(tmp_path / "a.svg"))
    assert code == 0
    assert "<svg" in (tmp_path / "a.svg").read_text()
    code, _, err = run_command(capsys, command, tables, *rest, "--plot", str(tmp_path / "a.none"))
    assert code != 0
    assert ".png, .svg or .pdf" in err


def test_table_within_a_third_attribute_pools_odds_ratios(tables: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("table", tables, "stage", "readmitted", "--within", "smoker")
    code, out, _ = run_command(capsys, *asked)
    assert code == 0
    for expected in ("pooled odds ratio", "Among people with the same smoker", "It cannot tell whether strata differ"):
        assert expected in out
    code, out, _ = run_command(capsys, *asked, "--event", "no", "--json")
    assert (code, json.loads(out)["event"], json.loads(out)["strata"]) == (0, "no", ["no", "yes"])


def test_table_as_csv_is_the_table_alone(tables: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("stage", "readmitted", "--event", "no", "--reference", "iii", "--format", "csv")
    code, out, _ = run_command(capsys, "table", tables, *arguments)
    rows = [line.split(",") for line in out.splitlines()]
    assert (code, [row[0] for row in rows]) == (0, ["stage", "i", "ii", "iii"])
    assert float(rows[1][rows[0].index("odds ratio")]) > 1


def test_description_as_json_is_of_the_groups_that_were_named(tables: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_command(capsys, "describe", tables, "age,stage", "--by", "readmitted", "--json")
    said = json.loads(out)
    assert (code, said["release"], said["groups"]) == (0, published_tables()[0], ["no", "yes"])
    assert len(said["lines"]) == 4


def test_curves_are_printed_by_group_with_the_test(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    published_survival()[1].write(tmp_path / "survival")
    code, out, _ = run_command(capsys, "survival", str(tmp_path / "survival"), "outcome", "--by", "stage")
    assert code == 0
    for expected in ("Time to died = yes, by stage", "log-rank chi-squared", "followup (months)", "i: at risk"):
        assert expected in out


def test_hazard_ratios_are_printed_with_what_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    published_survival()[1].write(tmp_path / "survival")
    asked = ("survival", str(tmp_path / "survival"), "outcome", "--ratios", "stage,site")
    code, out, _ = run_command(capsys, *asked)
    assert code == 0
    for expected in ("the hazard of died = yes is", "p of change", "at risk at the same time", "not pinned"):
        assert expected in out
    code, _, err = run_command(capsys, *asked, "--by", "stage")
    assert (code, "--by compares curves" in err) == (2, True)


def test_level_that_there_is_not_is_one_error_with_the_levels_there_are(
    tables: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run_command(capsys, "table", tables, "stage", "readmitted", "--event", "maybe")
    assert (code, "Its levels are: no, yes." in err) == (1, True)


def test_synthetic_rows_are_written_and_reported(
    tables: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("synthesize", tables, "--rows", "40", "--out")
    code, out, _ = run_command(capsys, *asked, str(tmp_path / "rows.csv"))
    assert code == 0
    for expected in ("beyond noise", "Left out", "age", "rows.dictionary.json", "not pinned"):
        assert expected in out
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 41
    code, out, _ = run_command(capsys, *asked, str(tmp_path / "two.csv"), "--seed", "3", "stage,smoker", "--json")
    said = json.loads(out)
    assert (code, said["release"], said["attributes"]) == (0, published_tables()[0], ["stage", "smoker"])
    assert [Path(name).name for name in said["written"]] == ["two.csv", "two.dictionary.json", "two.report.txt"]


def test_number_of_synthetic_rows_has_a_limit(tables: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rows in ("0", "10000001"):
        code, _, err = run_command(capsys, "synthesize", tables, "--rows", rows, "--out", str(tmp_path / "rows.csv"))
        assert (code, "1<=x<=10000000" in err) == (2, True)


def test_verify_says_who_signed_and_what_it_costs_in_both_units(
    directory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run_command(capsys, "verify", directory)
    assert code == 0
    for expected in (
        COORDINATOR.fingerprint,
        "times in 100. A coin: 50.",
        "a key that calls itself clinic approved and signed its block",
        "block of a key that calls itself insurer",
        "a subject, to outsiders",
        "a subject, to everybody",
        "charges [bold]",
        "key was not pinned",
    ):
        assert expected in out


def test_verify_with_the_pinned_key_does_not_warn(directory: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_command(capsys, "verify", directory, "--coordinator-key", COORDINATOR.fingerprint)
    assert (code, "not pinned" in out) == (0, False)


def test_verify_says_what_a_release_is_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    published(purpose="To plan beds.")[1].write(tmp_path)
    assert "Purpose: “To plan beds.”" in run_command(capsys, "verify", str(tmp_path))[1]
    stated = json.loads(run_command(capsys, "verify", str(tmp_path), "--json")[1])["stated"]
    assert stated == {"purpose": "To plan beds."}


def test_verify_as_json_holds_findings_and_losses(directory: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_command(capsys, "verify", directory, "--json")
    said = json.loads(out)
    assert (code, said["release"], said["coordinator_pinned"]) == (0, published()[0], False)
    assert said["privacy"]["per_subject"]["own"]["rho"] == pytest.approx(
        sum(party["loss"]["own"]["rho"] for party in said["privacy"]["per_party"])
    )


def test_verify_refuses_an_altered_matrix_with_exit_code_1(directory: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(directory) / "matrix.parquet"
    path.write_bytes(flipped(path.read_bytes()))
    code, out, err = run_command(capsys, "verify", directory)
    assert (code, out) == (1, "")
    assert "Error: the matrix file is not the one that was signed" in err


@pytest.mark.parametrize("command", ["fit", "describe", "survival", "table", "synthesize", "export", "verify"])
def test_help_shows_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_command(capsys, command, "--help")
    assert (code, f"commingle {command} ./release" in out) == (0, True)


def test_fit_with_a_family_prints_odds_ratios_of_the_event_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    published_tables()[1].write(tmp_path / "tables")
    asked = ("fit", str(tmp_path / "tables"), "--target", "readmitted[no]", "--features", "stage,smoker")
    code, out, _ = run_command(capsys, *asked, "--family", "binomial")
    assert code == 0
    for expected in ("odds ratio", "stage[iii]", "times as high at", "not pinned"):
        assert expected in out
    code, out, _ = run_command(capsys, *asked, "--family", "binomial", "--confidence", "0.9", "--json")
    said = json.loads(out)
    assert (code, said["outcome"], said["confidence_level"]) == (0, "readmitted[no]", 0.9)
    assert (said["release"], len(said["ratios"])) == (published_tables()[0], 5)
    assert run_command(capsys, *asked, "--family", "binomial", "--no-intercept")[0] == 2


def test_odds_of_a_release_of_rows_are_refused(directory: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run_command(capsys, "fit", directory, "--target", "smoker", "--family", "binomial")
    assert (code, '"mechanism": "moments"' in err) == (1, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"study": "x", "parties": []}', "is a study, which nobody has signed"),
        ('[{"kind": "numeric", "name": "age"}]', "is a schema"),
        ('{"a": 1}', "is no signed document"),
        ("id,age", "is no JSON"),
        ('{"signing_key": "", "envelope": {"payloadType": "PARTY"}}', "history"),
    ],
)
def test_file_that_is_no_regression_is_named_with_what_verifies_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    (tmp_path / "study.json").write_text(text.replace("PARTY", payload_type("party-audit")))
    code, _, err = run_command(capsys, "verify", tmp_path / "study.json")
    assert code == 1
    assert said in err
    assert "commingle study check" in err or "a study" not in said
