import shlex
from pathlib import Path
from typing import Any

import pytest

from commingle.shared.documents.dsse import payload_type
from tests.world.command import Command
from tests.world.documents import flipped
from tests.world.released import (
    COORDINATOR,
    STRANGER,
    ServingCoordinator,
    html,
    published,
    published_counts,
    published_survival,
    published_tables,
)
from tests.world.transport import on_a_socket

TARGET = "charges, yearly"


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directories of releases: of rows, of tables, of times until an event, and of counts."""
    folder = tmp_path_factory.mktemp("releases")
    of_moments = {"tables": published_tables(), "survival": published_survival(), "counts": published_counts()}
    for name, made in {"rows": published(), **of_moments}.items():
        made[1].write(folder / name)
    return folder


@pytest.fixture
def directory(releases: Path) -> str:
    return str(releases / "rows")


@pytest.fixture
def tables(releases: Path) -> str:
    return str(releases / "tables")


FIT = f"fit rows --target '{TARGET}'"
ODDS = "fit tables --target readmitted[no] --features stage,smoker --family binomial"
RATES = "fit counts --target falls --family poisson"
POOLED = "table tables stage readmitted --within smoker"
HAZARDS = "survival survival outcome --ratios stage,site"


def command(releases: Path, line: str) -> tuple[str, ...]:
    """The arguments of a line whose second word is a release."""
    name, release, *rest = shlex.split(line)
    return name, str(releases / release), *rest


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (FIT, ["smoker[yes]", "epsilon per member 10000", "not pinned"]),
        (ODDS, ["odds ratio", "stage[iii]", "times as high at", "not pinned"]),
        (f"{RATES} --offset years", ["rate ratio", "stage[ii]", "falls per years", "per unit of years"]),
        ("table tables stage readmitted", ["odds ratio", "an odds ratio of", "compared with stage = i.", "not pinned"]),
        (POOLED, ["pooled odds ratio", "Among people with the same smoker", "It cannot tell whether strata differ"]),
        (
            "survival survival outcome --by stage",
            ["Time to died = yes, by stage", "log-rank chi-squared", "followup (months)", "i: at risk"],
        ),
        (HAZARDS, ["the hazard of died = yes is", "p of change", "at risk at the same time", "not pinned"]),
        (
            "verify rows",
            [
                COORDINATOR.fingerprint,
                "times in 100. A coin: 50.",
                "a key that calls itself clinic approved and signed its block",
                "block of a key that calls itself insurer",
                "a person, to outsiders",
                "a person, to everybody",
                "charges [bold]",
                "key was not pinned",
            ],
        ),
    ],
)
def test_answer_is_printed_with_what_it_means_and_who_vouches_for_it(
    releases: Path, run: Command, line: str, expected: list[str]
) -> None:
    out = run.out(*command(releases, line))
    assert [text for text in expected if text not in out] == []


TERMS = ["(intercept)", "stage[ii]", "stage[iii]", "smoker[yes]", "smoker[missing]"]
LINES = ["age (years)", "stage = i", "stage = ii", "stage = iii"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            f"{FIT} --features age,bmi --no-intercept --estimator ols --confidence 0.9",
            {"features": ["age", "bmi"], "intercept": False, "estimator": "ols", "confidence_level": 0.9},
        ),
        # a name with a comma in it can be given alone
        (
            f"fit rows --target age --features '{TARGET}' --features 'bmi, smoker'",
            {"features": [TARGET, "bmi", "smoker"]},
        ),
        (f"{ODDS} --confidence 0.9", {"outcome": "readmitted[no]", "confidence_level": 0.9, "terms": TERMS}),
        (f"{POOLED} --event no", {"event": "no", "strata": ["no", "yes"]}),
        ("describe tables age,stage --by readmitted", {"groups": ["no", "yes"], "lines": LINES}),
    ],
)
def test_json_is_the_answer_and_its_release(releases: Path, run: Command, line: str, expected: dict[str, Any]) -> None:
    said = run.json(*command(releases, line))
    assert said["release"] == (published() if " rows " in line else published_tables())[0]
    assert {name: said[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("fit rows", "Missing option '--target'"),
        (f"{FIT} --estimator magic", "'magic' is not one of"),
        (f"{FIT} --confidence 1", "0<x<1"),
        (f"{FIT} --release 0", "a directory holds one release"),
        (f"{ODDS} --no-intercept", "--family has one estimator"),
        ("fit counts --target falls --offset years", "--offset goes with --family poisson"),
        (f"{HAZARDS} --by stage", "--by compares curves"),
        ("synthesize tables --rows 0 --out rows.csv", "1<=x<=10000000"),
        ("synthesize tables --rows seven --out rows.csv", "'seven' is not a whole number"),
        ("synthesize tables --rows 10000001 --out rows.csv", "1<=x<=10000000"),
        ("verify rows --party-key abc", "--party-key is for a regression"),
        ("verify rows/manifest.json --coordinator-key abc", "--coordinator-key is for a release"),
    ],
)
def test_usage_errors_exit_with_2(releases: Path, run: Command, line: str, said: str) -> None:
    assert said in run.refused(*command(releases, line), code=2)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fit rows --target 'chargs, yearly'", "Did you mean 'charges, yearly'?"),
        (f"{FIT} --features age,smokr", "Did you mean 'smoker'?"),
        (f"{FIT} --features '{TARGET}'", "both target and feature"),
        (f"{FIT} --coordinator-key {STRANGER.fingerprint}", "not by the trusted coordinator"),
        (f"{FIT} --coordinator-key abc", "not a key's fingerprint"),
        ("fit rows --target smoker --family binomial", '"mechanism": "moments"'),
        (f"{ODDS} --offset age", 'Choose the family "poisson"'),
        ("table tables stage readmitted --event maybe", "Its levels are: no, yes."),
    ],
)
def test_question_that_has_no_answer_is_one_error_with_a_remedy(
    releases: Path, run: Command, line: str, expected: str
) -> None:
    code, out, err = run(*command(releases, line))
    assert (code, out) == (1, "")
    assert expected in err
    assert err.startswith("Error: ")
    assert len(err.splitlines()) == 2


def test_fit_from_a_coordinator_saves_what_it_verified(tmp_path: Path, run: Command) -> None:
    release_id, files = published()
    saved = tmp_path / "saved"
    with on_a_socket(ServingCoordinator.serving((release_id, files)).answer) as url:
        arguments = ("--target", TARGET, "--coordinator-key", COORDINATOR.fingerprint, "--save", str(saved))
        code, out, _ = run("fit", url, "--release", release_id, *arguments)
    assert code == 0
    assert "key pinned" in out
    assert (saved / "matrix.parquet").read_bytes() == files.matrix


def test_export_leaves_numbers_that_were_named_out_of_rows_and_says_so(
    releases: Path, run: Command, tmp_path: Path
) -> None:
    line = f"export tables --to {tmp_path / 'files'} --rows 20 age stage readmitted"
    assert "Left out of the rows, as numbers without cuts have no levels: age." in run.out(*command(releases, line))
    assert (tmp_path / "files" / "rows.csv").read_text(encoding="utf-8").splitlines()[0] == '"stage","readmitted"'
    assert "\nage," in (tmp_path / "files" / "moments.csv").read_text(encoding="utf-8")


ID = published()[0]
OTHER, TWIN = f"{'0' if ID[0] != '0' else '1'}{ID[1:8]}", f"{ID[:60]}{'0000' if ID[60:] != '0000' else '1111'}"


@pytest.mark.parametrize(
    ("served", "asked", "code", "said"),
    [
        ([ID], ID[:8], 0, [f"Release {ID}"]),
        ([ID], ID[:7], 1, ["is not a release id"]),
        ([ID], OTHER, 2, [f"No published release begins with {OTHER}", ID]),
        ([ID, TWIN], ID[:12], 2, ["the beginning of several ids", ID, TWIN]),
        ([], "0" * 64, 1, ["has no release 0000"]),
        ([ID], None, 0, [f"Release {ID}, the only one"]),
        ([ID, "0" * 64], None, 2, ["Name the release with --release ID", f"{ID}  “charges [bold]”"]),
        ([], None, 2, ["Nothing is published there yet"]),
    ],
)
def test_release_of_a_coordinator_is_the_only_one_or_one_whose_id_begins_so(
    run: Command, served: list[str], asked: str | None, code: int, said: list[str]
) -> None:
    with on_a_socket(ServingCoordinator(files=dict.fromkeys(served, published()[1])).answer) as url:
        found, _, err = run("fit", url, "--target", TARGET, *([] if asked is None else ["--release", asked]))
    assert (found, [text for text in said if text not in err]) == (code, [])


def test_missing_directory_unreachable_and_strange_coordinators_are_one_error(tmp_path: Path, run: Command) -> None:
    for source, expected in (
        (str(tmp_path / "nowhere"), "does not hold a release"),
        ("http://127.0.0.1:9", "no answer from"),
        ("ftp://hub", "not an address"),
    ):
        err = run.refused("fit", source, "--target", TARGET, *(["--release", "0" * 64] * (":" in source)))
        assert expected in err
    with on_a_socket(ServingCoordinator(instead=html).answer) as url:
        assert "did not answer with JSON" in run.refused("fit", url, "--target", TARGET, "--release", "0" * 64)


@pytest.mark.parametrize("line", ["table tables stage readmitted", "describe tables --by stage"])
def test_picture_of_an_answer_is_written_in_the_form_of_its_name(
    releases: Path, line: str, tmp_path: Path, run: Command
) -> None:
    run.out(*command(releases, line), "--plot", tmp_path / "a.svg")
    assert "<svg" in (tmp_path / "a.svg").read_text()
    code, _, err = run(*command(releases, line), "--plot", tmp_path / "a.none")
    assert code != 0
    assert ".png, .svg or .pdf" in err


def test_table_as_csv_is_the_table_alone(tables: str, run: Command) -> None:
    arguments = ("stage", "readmitted", "--event", "no", "--reference", "iii", "--format", "csv")
    code, out, _ = run("table", tables, *arguments)
    rows = [line.split(",") for line in out.splitlines()]
    assert (code, [row[0] for row in rows]) == (0, ["stage", "i", "ii", "iii"])
    assert float(rows[1][rows[0].index("odds ratio")]) > 1


def test_synthetic_rows_are_written_and_reported(tables: str, tmp_path: Path, run: Command) -> None:
    asked = ("synthesize", tables, "--rows", "40", "--out")
    out = run.out(*asked, str(tmp_path / "rows.csv"))
    for expected in ("beyond noise", "Left out", "age", "rows.dictionary.json", "not pinned"):
        assert expected in out
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 41
    said = run.json(*asked, str(tmp_path / "two.csv"), "--seed", "3", "stage,smoker")
    assert (said["release"], said["attributes"]) == (published_tables()[0], ["stage", "smoker"])
    assert [Path(name).name for name in said["written"]] == ["two.csv", "two.dictionary.json", "two.report.txt"]


def test_verify_with_the_pinned_key_does_not_warn(directory: str, run: Command) -> None:
    assert "not pinned" not in run.out("verify", directory, "--coordinator-key", COORDINATOR.fingerprint)


def test_verify_says_what_a_release_is_for(tmp_path: Path, run: Command) -> None:
    published(purpose="To plan beds.")[1].write(tmp_path)
    assert "Purpose: “To plan beds.”" in run.out("verify", tmp_path)
    assert run.json("verify", tmp_path)["stated"] == {"purpose": "To plan beds."}


def test_verify_as_json_holds_findings_and_losses(directory: str, run: Command) -> None:
    said = run.json("verify", directory)
    assert (said["release"], said["coordinator_pinned"]) == (published()[0], False)
    assert said["privacy"]["per_subject"]["own"]["rho"] == pytest.approx(
        sum(party["loss"]["own"]["rho"] for party in said["privacy"]["per_party"])
    )


def test_verify_refuses_an_altered_matrix_with_exit_code_1(tmp_path: Path, run: Command) -> None:
    published()[1].write(tmp_path)
    path = tmp_path / "matrix.parquet"
    path.write_bytes(flipped(path.read_bytes()))
    code, out, err = run("verify", tmp_path)
    assert (code, out) == (1, "")
    assert "Error: the matrix file is not the one that was signed" in err


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
    tmp_path: Path, run: Command, text: str, said: str
) -> None:
    (tmp_path / "study.json").write_text(text.replace("PARTY", payload_type("party-audit")))
    err = run.refused("verify", tmp_path / "study.json")
    assert said in err
    assert "commingle study check" in err or "a study" not in said
