from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from benchmarks.moments_audit import CASES, Case, audit_moments, numbers_of, ready, scores
from benchmarks.privacy_audit import audit

_RUNS, _ALPHA = 4_000, 5e-10  # noise is never seeded: a true claim is exceeded with a probability of 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["rmgm", "dgm"])
def test_attack_stays_below_the_claim_and_notices_half_the_noise(mechanism: Literal["rmgm", "dgm"]) -> None:
    found = audit(mechanism, 3.0, runs=_RUNS, alpha=_ALPHA)
    assert found["demonstrated"] <= found["claimed"] < found["with_half_the_noise"]


@pytest.mark.slow
def test_attacks_on_moments_stay_below_their_claims_and_notice_half_the_noise() -> None:
    found = audit_moments(3.0, runs=_RUNS, alpha=_ALPHA)
    assert [result["seen_by"] for result in found] == [case.seen_by for case in CASES]
    for result in found:
        assert result["demonstrated"] <= result["claimed"] < result["with_half_the_noise"], result["seen_by"]


def test_attack_on_moments_fails_where_an_entry_that_differs_has_no_noise() -> None:
    blank = ready(1.0, np.zeros(6, np.int64))
    changed = ready(1.0, np.array([1, 0, 0, 0, 0, 0]))
    numbers = numbers_of(blank)
    none = replace(numbers, scale=0 * numbers.scale)
    with pytest.raises(AssertionError, match="without noise"):
        scores(Case("anyone", (0,)), none, changed.still() - blank.still(), np.zeros((1, len(none.party))))
