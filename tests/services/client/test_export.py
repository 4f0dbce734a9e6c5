"""Export: names that other programs take, numbers that are the release's, documents that state its privacy."""

import csv
import io
import json
import re
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commingle.services.client.export import Export, variable_names
from commingle.services.client.release import Release
from commingle.services.errors import OutputError
from tests.world.command import Command
from tests.world.released import published, published_survival, published_tables

PAGE = Path(__file__).parents[3] / "docs" / "questions.md"
HAS_R = "library(lavaan); library(psych)"


def exported(attributes: tuple[str, ...] | None = None) -> Export:
    return Release.of(published_tables()[1]).export(attributes)


def rows_of(found: Export, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(found.files[name].decode())))


def test_variable_names_are_those_of_every_program_and_different_in_any_case() -> None:
    labels = ("age", "Age", "stage[I a]", "1st", "[年]", "x" * 40, "x" * 41, "x" * 42, "AGE", "age_2")
    names = variable_names(labels)
    assert names[:5] == ["age", "Age_2", "stage_I_a", "v1st", "v"]
    assert variable_names(["Rauchstatus[früher]", "Kanton[Genève]"]) == ["Rauchstatus_fruher", "Kanton_Geneve"]
    assert all(re.fullmatch("[A-Za-z][A-Za-z0-9_]{0,31}", name) for name in names)
    assert len({name.lower() for name in names}) == len(labels)


def test_covariance_and_means_are_near_those_of_the_people() -> None:
    found = exported()
    moments = {row["variable"]: row for row in rows_of(found, "moments.csv")}
    assert float(moments["age"]["mean"]) == pytest.approx(50, abs=1)
    assert float(moments["age"]["sd"]) == pytest.approx(60 / np.sqrt(12), rel=0.03)
    assert float(moments["stage_iii"]["mean"]) == pytest.approx(0.2, abs=0.03)
    assert {row["n"] for row in moments.values()} == {str(found.n)}
    assert exported(("age", "stage")).n == 3000
    assert found.n == pytest.approx(2700, abs=60)
    covariances = rows_of(found, "covariance.csv")
    assert [row["variable"] for row in covariances] == [*found.variables]
    S = np.array([[float(row[name]) for name in found.variables] for row in covariances])
    assert np.sqrt(np.diag(S)) == pytest.approx(found.deviations)
    assert np.linalg.eigvalsh(S).min() > 0
    assert found.table().labels[1] == "stage_ii: stage[ii]"


def test_missing_cells_move_no_mean() -> None:
    moments = {row["variable"]: row for row in rows_of(exported(), "moments.csv")}
    assert float(moments["smoker_yes"]["mean"]) == pytest.approx(1 / 3, abs=0.04)
    assert "smoker_missing" not in moments
    assert exported().subjects[0].startswith("smoker: about 2,7")


def test_tables_are_those_of_the_release() -> None:
    table = Release.of(published_tables()[1]).table("stage", "readmitted")
    cells = [
        r for r in rows_of(exported(), "tables.csv") if (r["attribute_1"], r["attribute_2"]) == ("stage", "readmitted")
    ]
    assert [float(row["count"]) for row in cells] == pytest.approx(table.counts.ravel().tolist())
    assert [float(row["noise_error"]) for row in cells] == pytest.approx(table.count_errors.ravel().tolist())
    alone = [r for r in rows_of(exported(), "tables.csv") if r["attribute_1"] == "smoker" and not r["attribute_2"]]
    assert [row["level_1"] for row in alone] == ["no", "yes", "missing"]


def test_codebook_has_every_level_and_says_what_a_missing_cell_counts_as() -> None:
    book = rows_of(exported(("stage", "smoker")), "codebook.csv")
    assert [row["variable"] for row in book] == ["", "stage_ii", "stage_iii", "", "smoker_yes", ""]
    assert {row["member"] for row in book} == {"clinic", "insurer"}
    assert book[-1]["missing"] == "counts for nobody: figures are of those who have one"
    assert "| stage_ii | stage[ii] |" in exported().files["codebook.md"].decode()


def test_pairs_are_not_in_the_covariance_beside_a_part_of_theirs() -> None:
    found = Release.of(published_survival()[1]).export()
    assert found.variables == ("died_yes", "stage_ii", "site_b")
    assert found.warnings == ("Not in the covariance, as it holds a part of each: outcome.",)
    assert Release.of(published_survival()[1]).export("outcome").variables


def test_release_of_rows_has_no_tables_and_everything_else() -> None:
    found = Release.of(published()[1]).export()
    assert sorted(found.files) == [
        *("codebook.csv", "codebook.md", "covariance.csv", "croissant.json", "dcat.jsonld", "moments.csv")
    ]
    assert found.variables[-1] == "charges_yearly"


def test_noise_that_hides_everything_leaves_a_codebook_and_says_so() -> None:
    found = Release.of(published(epsilon=0.01)[1]).export()
    assert "noise hides their variance" in found.warnings[0]
    assert rows_of(found, "codebook.csv")


def test_metadata_state_the_privacy_of_the_release() -> None:
    found, release = exported(), Release.of(published_tables()[1])
    for name in ("croissant.json", "dcat.jsonld"):
        said: dict[str, Any] = json.loads(found.files[name])
        privacy = said["commingle:privacy"]
        assert privacy["commingle:mechanism"] == "moments"
        assert privacy["commingle:epsilonPerParty"] == 3.0
        assert privacy["commingle:epsilonPerPerson"] == release.privacy.per_subject.own.epsilon
        assert (privacy["commingle:delta"], privacy["commingle:neighbourRelation"]) == (1e-5, release.privacy.adjacency)
        assert said["@id"] == f"urn:commingle:release:{release.id}"
    for file in json.loads(found.files["croissant.json"])["distribution"]:
        assert file["sha256"] == sha256(found.files[file["name"]]).hexdigest()


def test_citation_names_members_year_title_guarantee_and_release() -> None:
    said = Release.of(published()[1]).cite()
    assert said.startswith(
        "clinic, insurer (2026). charges [bold] [differentially private release, rmgm, epsilon 10000"
    )
    assert said.endswith(published()[0])


def test_command_writes_files_and_rows(tmp_path: Path, run: Command) -> None:
    published_tables()[1].write(tmp_path / "release")
    asked = ("export", str(tmp_path / "release"), "--to", str(tmp_path / "files"))
    said = run.json(*asked, "--rows", "40", "stage,readmitted")
    assert said["variables"] == ["stage_ii", "stage_iii", "readmitted_yes"]
    assert all(Path(name).is_file() for name in said["written"])
    assert len((tmp_path / "files" / "rows.csv").read_text().splitlines()) == 41
    code, out, _ = run(*asked)
    assert (code, "stage_ii: stage[ii]" in out, "not pinned" in out) == (0, True, True)


def test_files_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(OutputError):
        exported().write(tmp_path / "taken")


@pytest.mark.slow
def test_lines_of_the_page_run_in_r(tmp_path: Path) -> None:
    r = shutil.which("Rscript")
    if r is None or subprocess.run([r, "-e", HAS_R], capture_output=True, check=False).returncode:
        pytest.skip("Rscript with lavaan and psych is not installed")
    release = Release.of(published_tables()[1])
    release.export().write(tmp_path)
    release.synthesize(200).write(tmp_path / "rows.csv")
    lines = re.findall("```r\n(.*?)```", PAGE.read_text(), re.DOTALL)
    script = "\n".join([*lines, 'cat("coefficients", lavaan::coef(fit)[1:3], nrow(rows), "\\n")'])
    done = subprocess.run([r, "-e", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    _, *found = next(line for line in done.stdout.splitlines() if line.startswith("coefficients")).split()
    S = {row["variable"]: row for row in rows_of(release.export(), "covariance.csv")}
    names = ("age", "stage_ii", "stage_iii")
    xx = np.array([[float(S[one][other]) for other in names] for one in names])
    expected = np.linalg.solve(xx, [float(S[one]["readmitted_yes"]) for one in names])
    assert [float(x) for x in found[:3]] == pytest.approx(expected.tolist(), rel=1e-3, abs=1e-6)
    assert found[3] == "200"
