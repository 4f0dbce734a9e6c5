import json
import sys
from typing import Any

import numpy as np
import pytest

from commingle.services.analysis import compare, lasso_path, partial_correlations, pca, ridge_path, two_stage
from commingle.services.analysis.errors import InstrumentsError, NestedError, NoSignalError, PenaltyError
from commingle.services.analysis.paths import _elastic_net, _unfinished
from commingle.services.fit import PreparedMoments
from commingle.shared.errors import MissingExtraError
from commingle.shared.estimation.errors import (
    CategoricalTargetError,
    ConfidenceError,
    FeaturesError,
    TargetAmongFeaturesError,
    UnknownAttributeError,
)
from tests.shared.estimation.tables import make_table, moments_of, noiseless

TABLE = make_table(200)
EXACT = PreparedMoments.of(noiseless(TABLE), TABLE.schema)


@pytest.mark.parametrize("penalties", [[], [0.0], [-1.0], [float("nan")], [float("inf")], [0.1] * 201, [[0.1]]])
def test_what_is_no_penalty_is_refused(penalties: Any) -> None:
    with pytest.raises(PenaltyError):
        ridge_path(EXACT, "pressure", penalties=penalties)


@pytest.mark.parametrize("l1_ratio", [0.0, 1.1, float("nan")])
def test_what_is_no_l1_ratio_is_refused(l1_ratio: float) -> None:
    with pytest.raises(PenaltyError, match="l1_ratio"):
        lasso_path(EXACT, "pressure", l1_ratio=l1_ratio)


@pytest.mark.parametrize("smaller", [["age", "dose"], ["sex"], ["age", "sex"]])
def test_models_that_are_not_nested_are_refused(smaller: list[str]) -> None:
    with pytest.raises(NestedError):
        compare(EXACT, "pressure", ["age", "dose"], smaller)


@pytest.mark.parametrize(("endogenous", "instruments"), [([], ["age"]), (["dose"], []), (["dose", "sex"], ["age"])])
def test_too_few_instruments_are_refused(endogenous: list[str], instruments: list[str]) -> None:
    with pytest.raises(InstrumentsError):
        two_stage(EXACT, "pressure", endogenous=endogenous, instruments=instruments)


@pytest.mark.parametrize(
    ("endogenous", "instruments", "exogenous", "error"),
    [
        (["dose"], ["dose"], [], FeaturesError),
        (["dose"], ["pressure"], [], TargetAmongFeaturesError),
        (["site"], ["age", "sex", "dose"], [], CategoricalTargetError),
        (["dose"], ["age"], ["height"], UnknownAttributeError),
    ],
)
def test_impossible_roles_are_refused(
    endogenous: list[str], instruments: list[str], exogenous: list[str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        two_stage(EXACT, "pressure", endogenous=endogenous, instruments=instruments, exogenous=exogenous)


def test_attributes_unknown_or_named_twice_are_refused() -> None:
    with pytest.raises(UnknownAttributeError):
        pca(EXACT, ["age", "height"])
    for names in ([], ["age", "age"]):
        with pytest.raises(FeaturesError):
            partial_correlations(EXACT, names)


def test_interval_for_something_unknown_is_refused() -> None:
    with pytest.raises(ConfidenceError, match="'sample'"):
        partial_correlations(EXACT, interval_for="sample")  # type: ignore[arg-type] # as a notebook may


def test_column_without_variance_beside_the_noise_is_refused_by_name() -> None:
    gram = np.diag([100.0, 400.0, 100.0])
    schema = TABLE.schema[:2]
    prepared = PreparedMoments.of(moments_of(gram, schema, noise=2.0, rows=100, n=1000), schema)
    with pytest.raises(NoSignalError, match="dose"):
        pca(prepared)


def test_lasso_without_scikit_learn_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    with pytest.raises(MissingExtraError) as caught:
        lasso_path(EXACT, "pressure")
    assert "commingle[sklearn]" in caught.value.remedy


@pytest.mark.parametrize(
    "result",
    [
        ridge_path(EXACT, "pressure"),
        lasso_path(EXACT, "pressure", penalties=[0.1, 0.2]),
        pca(EXACT),
        partial_correlations(EXACT),
        compare(EXACT, "pressure", None, []),
        two_stage(EXACT, "pressure", endogenous=["dose"], instruments=["site"]),
    ],
    ids=lambda result: type(result).__name__,
)
def test_result_becomes_json_a_frame_and_html(result: Any) -> None:
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert result.to_dict()["warnings"] == list(result.warnings)
    frame = result.to_frame()
    assert list(frame.columns) == [column.heading for column in result.table().columns]
    assert result._repr_html_().count("<tr") == len(frame) + 1


def test_path_that_cannot_be_finished_in_time_says_so() -> None:
    """200 penalties of next to nothing on features of which some follow from others took a minute of a processor."""
    draw = np.random.default_rng(0)
    x, y = np.cumsum(draw.normal(size=(201, 200)), axis=1), draw.normal(size=201)
    x[150:] = 0
    x, y = x / np.linalg.norm(x, axis=0), y / np.linalg.norm(y)
    _, inexact = _elastic_net(x, y, np.geomspace(1e-200, 1e-300, 200), 1.0)
    assert inexact == 200
    [warning] = _unfinished(inexact, 200)
    assert warning.startswith("For 200 of 200 penalties the coefficients are not exact")
    _, inexact = _elastic_net(x, y, np.array([0.5, 0.2]), 1.0)
    assert (inexact, _unfinished(inexact, 2)) == (0, ())
