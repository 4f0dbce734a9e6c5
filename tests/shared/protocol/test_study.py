import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import CommingleError
from shared.privacy.calibration import rho_of_epsilon
from shared.protocol.documents import decode
from shared.protocol.errors import SpecError
from shared.protocol.keys import Fingerprint
from shared.protocol.spec import ReleaseSpec
from shared.protocol.study import Member, Study, build_spec, default_k

NOW = datetime(2025, 1, 1, tzinfo=UTC)
PARTY: dict[str, Any] = {
    "name": "clinic",
    "dataset": "visits",
    "attributes": [{"kind": "numeric", "name": "age", "lower": 0, "upper": 120}],
}
STUDY: dict[str, Any] = {"study": "Age", "epsilon": 1, "delta": 1e-5, "n": 10_000, "parties": [PARTY]}
MEMBERS = {"clinic": Member("aa" * 32, "ab" * 32), "lab": Member("ba" * 32, "bb" * 32)}


def study(**changes: Any) -> Study:
    return decode(Study, json.dumps({**STUDY, **changes}).encode())


def build(written: Study, seed: bytes = b"\1" * 32) -> ReleaseSpec:
    return build_spec(written, members=MEMBERS, proposer=Fingerprint("cc" * 32), seed=seed, now=NOW)


def test_study_becomes_a_spec_with_the_members_keys_and_the_default_lifetime() -> None:
    spec = build(study())
    assert spec.expires - spec.created == timedelta(hours=72)
    assert spec.parties[0].signing_key == MEMBERS["clinic"].signing_key
    assert spec.parties[0].sealing_key == MEMBERS["clinic"].sealing_key
    assert spec.seed == "01" * 32
    assert spec.proposer == "cc" * 32
    assert spec.k == default_k(study())


def test_dgm_study_has_no_sketch() -> None:
    assert build(study(mechanism="dgm")).k is None


def test_sketch_given_by_hand_is_kept() -> None:
    assert build(study(k=77)).k == 77


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"parties": [{**PARTY, "name": "stranger"}]}, "not enrolled: stranger"),
        ({"parties": [{**PARTY, "attributes": []}]}, "no attributes are asked of clinic"),
        ({"parties": [PARTY, PARTY]}, "appears twice"),
        ({"k": 1}, "k"),
        ({"k": 10_001}, "not exceed n"),
        ({"mechanism": "dgm", "k": 10}, "k belongs to rmgm"),
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": -1, "mechanism": "dgm"}, "epsilon"),
        ({"epsilon": 5e-324}, "epsilon"),
        ({"epsilon": 2, "calibration": "classical"}, "classical"),
        ({"delta": 1}, "delta"),
        ({"parties": [{**PARTY, "row_norm": -1}]}, "row_norm"),
        ({"parties": [{**PARTY, "row_norm": 1e9}]}, "row_norm"),
    ],
)
def test_study_that_makes_no_sense_is_a_spec_error_that_says_why(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        build(study(**changes))


@pytest.mark.parametrize(
    "changes",
    [{"parties": []}, {"n": -5}, {"n": 10**400}, {"parties": [{**PARTY, "row_norm": 1e-6}]}],
    ids=["no parties", "negative n", "huge n", "row norm below the resolution"],
)
def test_extreme_study_becomes_a_spec_or_raises_only_our_errors(changes: dict[str, Any]) -> None:
    try:
        build(study(**changes))
    except CommingleError as error:
        assert error.remedy  # noqa: PT017 - the point is that nothing else escapes


def test_seed_of_wrong_length_is_refused() -> None:
    with pytest.raises(SpecError, match="seed"):
        build(study(), seed=b"\1" * 31)


def test_default_sketch_balances_the_two_squared_errors() -> None:
    # k minimises p/(2k) + (k v / (n lambda))^2 with lambda = 0.1, found here by search instead of by formula
    written = study(n=10**7, epsilon=0.3)
    variance = 4 / (2 * rho_of_epsilon(0.3, 1e-5))
    error = {k: 2 / (2 * k) + (k * variance / (10**7 * 0.1)) ** 2 for k in range(6, 10_000)}
    assert default_k(written) == pytest.approx(min(error, key=lambda k: error[k]), abs=1)


@given(
    st.integers(8, 10**8),
    st.floats(0.01, 20),
    st.sampled_from(["replace_one", "zero_out"]),
    st.sampled_from([None, 0.3, 5]),
)
def test_default_sketch_always_makes_a_valid_spec(n: int, epsilon: float, adjacency: str, norm: float | None) -> None:
    written = study(n=n, epsilon=epsilon, adjacency=adjacency, parties=[{**PARTY, "row_norm": norm}])
    k = build(written).k
    assert k is not None
    assert min(n, 6) <= k <= max(6, round(n ** (2 / 3)))


def test_default_sketch_grows_with_epsilon_and_with_subjects() -> None:
    by_epsilon = [default_k(study(epsilon=epsilon)) for epsilon in (0.1, 0.3, 1, 3, 10)]
    by_subjects = [default_k(study(n=n)) for n in (10**3, 10**4, 10**5, 10**6)]
    assert by_epsilon == sorted(by_epsilon)
    assert by_subjects == sorted(by_subjects)
    assert by_subjects[0] < by_subjects[-1]
