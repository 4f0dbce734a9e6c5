import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from commingle import Release
from commingle.services.errors import ReleaseDirectoryError
from commingle.shared.documents.dsse import Fingerprint
from commingle.shared.errors import ProtocolError
from commingle.shared.runtime.errors import SettingsError
from tests.world.documents import flipped
from tests.world.released import COORDINATOR, SLOPES, WHITENING, published

TARGET = "charges, yearly"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    published()[1].write(tmp_path / "release")
    return tmp_path / "release"


def test_release_loaded_from_its_directory_recovers_the_slopes_of_the_private_table(directory: Path) -> None:
    release = Release.load(directory, trusted_coordinator=COORDINATOR.fingerprint)
    fitted = release.fit(TARGET)
    slopes = dict(zip(fitted.features, fitted.coefficients[1:], strict=True))
    assert slopes == pytest.approx(SLOPES, abs=0.8)
    assert release.fit(TARGET, ["age"]).features == ("age",)


def test_one_feature_may_be_named_by_itself() -> None:
    release = Release.of(published()[1])
    assert release.fit(TARGET, "age").features == ("age",)
    assert release.ridge_path(TARGET, "age").features == ("age",)
    assert release.pca("bmi").labels == ("bmi",)
    assert release.compare(TARGET, "age", ()).larger == ("age",)
    assert release.two_stage(TARGET, endogenous="age", instruments="bmi").instruments == ("bmi",)


def test_summary_and_notebook_say_what_the_release_costs() -> None:
    release = Release.of(published(epsilon=2.5)[1])
    fitted = release.fit(TARGET, "age")
    assert "epsilon per member 2.5" in fitted.summary()
    assert "delta 1e-05" in fitted.summary()
    assert "epsilon per member <b>2.5</b>" in fitted._repr_html_()


def test_notebook_shows_what_a_release_holds_and_nobody_elses_markup() -> None:
    shown = Release.of(published(title="<script>")[1])._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    for expected in (
        "holds <b>400 noisy rows x 5 columns on 2,000 people</b>",
        "age (years)",
        "smoker: no, yes",
        "a key that calls itself clinic: age, bmi.",
        "The coordinator&#x27;s key was not compared",
    ):
        assert expected in shown
    pinned = Release.of(published()[1], trusted_coordinator=COORDINATOR.fingerprint)
    assert "not compared" not in pinned._repr_html_()
    assert "Purpose: “To plan beds.”" in Release.of(published(purpose="To plan beds.")[1])._repr_html_()


@pytest.mark.parametrize("mechanism", ["rmgm", "dgm"])
def test_release_is_fitted_in_original_units_by_the_moments_of_its_matrix_whitened_or_not(mechanism: str) -> None:
    plain = Release.of(published(mechanism=mechanism)[1])
    matrix = plain.matrix()
    assert matrix.shape == (plain.prepared.rows, 5)
    assert plain.columns[0] == "(intercept)"
    np.testing.assert_allclose(matrix.T @ matrix, plain.prepared.gram, rtol=1e-9, atol=1e-6)
    release = Release.of(published(mechanism=mechanism, whitening=WHITENING)[1])
    assert release.columns == ("(intercept)", "whitened[age]", "whitened[bmi]", "smoker", TARGET)
    fitted = release.fit(TARGET)
    assert fitted.features == ("age", "bmi", "smoker")
    assert dict(zip(fitted.features, fitted.coefficients[1:], strict=True)) == pytest.approx(SLOPES, abs=0.8)
    np.testing.assert_allclose(release.prepared.gram, plain.prepared.gram, rtol=0, atol=0.01 * 2000)


def test_saved_release_holds_the_bytes_as_served(tmp_path: Path) -> None:
    _, files = published()
    Release.of(files).save(tmp_path / "a" / "b")
    assert (tmp_path / "a/b/manifest.json").read_bytes() == files.manifest
    assert Release.load(tmp_path / "a" / "b").files == files


def test_release_says_what_it_is_and_that_the_key_is_not_pinned() -> None:
    release = Release.of(published()[1])
    for expected in ("charges", "2,000 people of 2 members", "not pinned"):
        assert expected in repr(release)
    assert len(repr(release.files)) < 100
    assert [a.name for a in release.attributes] == ["age", "bmi", "smoker", TARGET]
    assert [p.party for p in release.privacy.per_party] == ["clinic", "insurer"]


@pytest.mark.parametrize("name", ["manifest.json", "matrix.parquet", "moments.json"])
def test_file_that_is_altered_cut_off_or_missing_is_refused(directory: Path, name: str) -> None:
    path = directory / name
    data = path.read_bytes()
    for altered in (flipped(data, len(data) // 2), data[:-7]):
        path.write_bytes(altered)
        with pytest.raises(ProtocolError):
            Release.load(directory)
    path.unlink()
    with pytest.raises(ReleaseDirectoryError, match=name):
        Release.load(directory)


def test_fingerprint_may_be_pasted_in_capitals_and_what_is_none_is_no_mismatch() -> None:
    assert Release.of(published()[1], trusted_coordinator=f" {COORDINATOR.fingerprint.upper()}\n").pinned
    for key in ("", "abc", "g" * 64, "a" * 63):
        with pytest.raises(SettingsError, match="fingerprint"):
            Release.of(published()[1], trusted_coordinator=Fingerprint(key))


def test_unwritable_directory_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ReleaseDirectoryError, match="cannot write"):
        Release.of(published()[1]).save(tmp_path / "file")


OPTIONAL = {"pandas", "matplotlib", "sklearn"}
OTHERS = {"commingle.party_agent", "commingle.coordinator", "commingle.services.learner", "sqlalchemy", "fastapi"}
SLOW = {"httpx", "uvicorn", "opendp", "pyarrow.dataset", "scipy.stats", "scipy.optimize", "scipy.linalg"}


def loaded_by(statement: str, *arguments: str) -> set[str]:
    check = f"import sys\n{statement}\nprint('\\nloaded:', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", check, *arguments], capture_output=True, text=True, check=True)
    return {*done.stdout.rpartition("loaded:")[2].split()}


@pytest.mark.slow
def test_verify_and_fit_load_nothing_they_do_not_need(tmp_path: Path) -> None:
    Release.of(published()[1]).save(tmp_path)
    run = "from commingle.__main__ import commingle; commingle.main(sys.argv[1:], standalone_mode=False)"
    assert loaded_by(run, "verify", str(tmp_path)) & {*OPTIONAL, *OTHERS, *SLOW, "scipy"} == set()
    assert loaded_by(run, "fit", str(tmp_path), "--target", TARGET) & {*OPTIONAL, *OTHERS, *SLOW} == set()


@pytest.mark.slow
def test_client_loads_neither_agent_nor_coordinator_nor_a_server() -> None:
    assert loaded_by("from commingle import Release, ReleaseClient") & {*OPTIONAL, *OTHERS} == set()


@pytest.mark.slow
def test_learner_loads_no_optional_library() -> None:
    assert loaded_by("import commingle.services.learner.app") & OPTIONAL == set()
