"""Presets have the terms of their papers, as the benchmarks that reproduce these state them."""

from typing import Any

import pytest

from benchmarks import release_law, wu2022
from benchmarks.kalaja2020 import FIGURES
from benchmarks.wang2018_methods import made_up
from commingle.shared.documents.presets import PRESETS, REGRESSIONS, RELEASES, regression_preset, release_preset
from commingle.shared.errors import SpecError
from commingle.shared.release.checks import terms_of
from tests.docs.figures.data import DOCS

TERMS: dict[str, Any] = {"subjects": "keyed", "mechanism": "moments"}
ASKED = release_law.study_of(wu2022.ATTRIBUTES, wu2022.SIZES, 10_000, 1.0, **TERMS)


@pytest.mark.parametrize("mechanism", [None, "dgm"])
def test_release_of_wu2022_has_the_noise_of_the_paper(mechanism: str | None) -> None:
    spec = release_law.proposed(RELEASES["wu2022"].study(ASKED, mechanism))
    theirs = wu2022.noise_variances(wu2022.SIZES, 1.0)
    assert release_law.noise_variances(spec)[1:] == pytest.approx(theirs, rel=1e-5)


def test_release_of_wu2022_is_one_stage_of_listed_subjects_with_a_sketch_of_n_to_two_thirds() -> None:
    whitened = release_law.study_of(wu2022.ATTRIBUTES, wu2022.SIZES, 10_000, 1.0, row_norm=1.0, **TERMS)
    terms = terms_of(RELEASES["wu2022"].study(whitened))
    assert (terms.mechanism, terms.keyed, terms.projection) == ("rmgm", False, None)
    assert terms.adjacency == "replace_one"
    assert {(party.row_norm, party.whitening, party.first_stage_share) for party in terms.parties} == {(None,) * 3}
    assert terms.k == wu2022.sketch_size(10_000) == 464
    assert terms_of(RELEASES["wu2022"].study(ASKED.model_copy(update={"k": 100}))).k == 100


@pytest.mark.parametrize(
    ("name", "n", "said"),
    [
        # "all data points are normalized to having an Euclidean norm of 1"; delta = min(1e-6, 1/n^2)
        ("wang2018", 2000, ("adassp", "analytic", "per_row", False, made_up(2000).delta)),
        ("wang2018", 500, ("adassp", "analytic", "per_row", False, 1e-6)),
        ("kalaja2020", 2000, ("adassp", "classical", "maximum", False, made_up(2000).delta)),
        ("public_moment", None, ("dp_pmtolse", "zcdp", "maximum", False, None)),
    ],
)
def test_regression_has_the_terms_of_its_paper(name: str, n: int | None, said: tuple[object, ...]) -> None:
    fields = REGRESSIONS[name].fields(n)
    keys = ("method", "calibration", "mapping", "intercept", "delta")
    assert tuple(fields.get(key) for key in keys) == said


def test_kalaja_is_as_in_the_figures_that_the_benchmark_reproduces() -> None:
    plain = FIGURES["4.7 clipping at mean + c sd"]["none"]
    fields = REGRESSIONS["kalaja2020"].fields(2000)
    assert (plain.method, plain.calibration, plain.into, plain.intercept) == (
        *(fields[key] for key in ("method", "calibration", "mapping", "intercept")),
    )


@pytest.mark.parametrize(("name", "n"), [("wang2018", None), ("public_moment", 2000)])
def test_subjects_of_another_kind_than_the_papers_are_refused(name: str, n: int | None) -> None:
    with pytest.raises(SpecError, match="data sets"):
        REGRESSIONS[name].fields(n)


def test_preset_of_the_other_kind_and_mechanism_that_a_paper_lacks_are_refused_with_what_to_do() -> None:
    with pytest.raises(SpecError) as refused:
        release_preset("wang2018")
    assert "party regress --preset wang2018" in refused.value.remedy
    with pytest.raises(SpecError, match="no regression"):
        regression_preset("wu2022")
    with pytest.raises(SpecError, match="has no moments"):
        RELEASES["wu2022"].study(ASKED, "moments")


def test_page_has_a_line_for_every_preset_and_no_other() -> None:
    lines = [line for line in (DOCS / "presets.md").read_text().splitlines() if line.startswith("| `")]
    assert [line.split("`")[1] for line in lines] == [*PRESETS]
    for name, preset in REGRESSIONS.items():
        [line] = [line for line in lines if f"`{name}`" in line]
        assert f"`{preset.method}`" in line
        assert preset.calibration in line
        assert preset.subjects in line
