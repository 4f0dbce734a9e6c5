import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commingle.shared.documents.model import decode
from commingle.shared.documents.study import Study
from commingle.shared.errors import CommingleError
from commingle.shared.forecast.forecast import with_best_k, with_sketch
from commingle.shared.forecast.task import Assumptions, task_of
from commingle.shared.mechanisms.rows.forecast import MIXED_ROWS
from commingle.shared.release.resolve import closed
from tests.shared.forecast.designs import mixed, numeric

ATTRIBUTES = [{"kind": "numeric", "name": name, "lower": 0, "upper": 120} for name in ("age", "stay")]
STUDY: dict[str, Any] = {
    "study": "Age",
    "mechanism": "rmgm",
    "epsilon": 1,
    "delta": 1e-5,
    "n": 10_000,
    "parties": [{"name": "clinic", "dataset": "visits", "attributes": ATTRIBUTES}],
}


def study(**changes: Any) -> Study:
    return decode(Study, json.dumps({**STUDY, **changes}).encode())


@pytest.mark.parametrize("design", [numeric(5), numeric(11, n=10**6), mixed(epsilon=3.0)], ids=["5", "11", "mixed"])
def test_chosen_sketch_has_the_least_predicted_trace_of_all(design: Any) -> None:
    task = task_of(design, Assumptions())

    def trace(k: int) -> float:
        covariance = MIXED_ROWS.predict(closed(replace(design, k=k)), task).covariance
        assert covariance is not None
        return float(np.diag(task.xx) @ np.diag(covariance))

    least, most = MIXED_ROWS.sketch_bounds(closed(design)) or (0, 0)
    every = [trace(k) for k in np.unique(np.geomspace(least, most, 300).astype(int)).tolist()]
    # best_k leaves out the fit's own finite-sample shrinkage, which moves the valley's floor hardly at all
    assert trace(MIXED_ROWS.best_k(closed(design), task) or 0) < 1.02 * min(every)


def test_sketch_grows_with_epsilon_and_with_subjects_up_to_the_papers() -> None:
    by_epsilon = [
        with_best_k(numeric(5, epsilon=e), task_of(numeric(5), Assumptions())).k or 0 for e in (0.1, 1, 10, 100)
    ]
    by_subjects = [
        with_best_k(numeric(5, n=n), task_of(numeric(5), Assumptions())).k or 0 for n in (10**3, 10**5, 10**7)
    ]
    assert by_epsilon == sorted(by_epsilon)
    assert by_epsilon[-1] == round(100_000 ** (2 / 3))
    assert by_subjects == sorted(by_subjects)
    assert by_subjects[0] < by_subjects[-1]


def test_study_that_names_its_sketch_or_has_none_is_left_alone() -> None:
    for written in (study(k=77), study(mechanism="dgm")):
        assert with_sketch(written) is written


def test_study_with_nothing_to_fit_gets_the_papers_sketch() -> None:
    assert with_sketch(study(parties=[{**STUDY["parties"][0], "attributes": ATTRIBUTES[:1]}])).k == 464


@given(
    st.integers(9, 10**8),
    st.floats(0.01, 20),
    st.sampled_from(["listed", "keyed"]),
    st.sampled_from([None, 1e-6, 0.3, 5]),
)
def test_sketch_always_makes_a_valid_spec(n: int, epsilon: float, subjects: str, norm: float | None) -> None:
    parties = [{**STUDY["parties"][0], "row_norm": norm}]
    k = with_sketch(study(n=n, epsilon=epsilon, subjects=subjects, parties=parties)).k
    assert k is not None
    assert 9 <= k <= max(9, round(n ** (2 / 3)))


@pytest.mark.parametrize("changes", [{"epsilon": 0}, {"delta": 2}, {"epsilon": 2, "calibration": "classical"}])
def test_study_outside_the_domain_raises_our_error(changes: dict[str, Any]) -> None:
    with pytest.raises(CommingleError) as raised:
        with_sketch(study(**changes))
    assert raised.value.remedy
