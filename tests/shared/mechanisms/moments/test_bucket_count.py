"""How many buckets a study that leaves them open has, and how many people are said to count."""

from math import exp, inf, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.coverage import SCHEMA, SIZES
from benchmarks.keyed import study
from benchmarks.release_law import proposed
from commingle.shared.documents.spec import expected_kept, kept_of
from commingle.shared.dp.calibration import Calibration
from commingle.shared.dp.gaussian import calibrated_rho
from commingle.shared.forecast.forecast import forecast_of
from commingle.shared.mechanisms.moments.block import MOMENTS
from commingle.shared.mechanisms.moments.bucket_count import LEAST, MOST, chosen_buckets
from commingle.shared.release.resolve import closed


@given(
    n=st.integers(100, 10**6),
    rho=st.floats(1e-3, 10),
    columns=st.lists(st.integers(2, 12), min_size=2, max_size=4).map(tuple),
    proved=st.booleans(),
)
def test_no_other_number_of_buckets_is_better_by_the_stated_formula(
    n: int, rho: float, columns: tuple[int, ...], *, proved: bool
) -> None:
    """Variances of drawing people and of noise, against seconds: a half of the logarithm of ten more."""
    noise = 9 * len(columns) * (sum(columns) / len(columns)) ** 2 / (rho * n)

    def cost(each: int) -> float:
        found = MOMENTS.exchange_cost(each * n, {str(i): d for i, d in enumerate(columns)}, proved=proved)
        seconds = inf if found is None else found.seconds  # of no size of an exchange
        return log(noise * exp(2 / each) + exp(1 / each)) + log(10 + seconds) / 2

    chosen = chosen_buckets(n, rho=rho, columns=columns, proved=proved)
    assert chosen % n == 0
    assert LEAST <= chosen // n <= MOST
    assert all(cost(chosen // n) <= cost(each) for each in (2, 3, 4, 6, 8, 12, 16))


def test_buckets_are_fewer_the_more_people_and_the_less_noise_there_are() -> None:
    rho = {epsilon: calibrated_rho(Calibration.ANALYTIC, epsilon=epsilon, delta=1e-5) for epsilon in (0.3, 1.0, 10.0)}

    def each(n: int, epsilon: float = 1.0, *, proved: bool = True) -> int:
        return chosen_buckets(n, rho=rho[epsilon], columns=(11, 11, 11), proved=proved) // n

    assert [each(n) for n in (100, 10_000, 100_000, 10**6)] == [16, 12, 4, 2]
    assert [each(100_000, epsilon) for epsilon in (0.3, 1.0, 10.0)] == [6, 4, 3]
    assert each(100_000, proved=False) == 6
    assert each(10**9) == LEAST, "an exchange has no such size"


def test_study_its_spec_and_their_forecast_mean_the_same_buckets_and_people() -> None:
    asked = study(SCHEMA, SIZES, mechanism="moments", n=20_000, epsilon=1.0, keyed=True)
    spec = proposed(asked)
    assert spec.buckets == closed(asked).table_rows == closed(spec).table_rows
    assert spec.buckets is not None
    assert kept_of(spec) == kept_of(closed(asked)) == round(float(expected_kept(20_000.0, spec.buckets)))
    found = forecast_of(spec)
    assert found is not None
    assert found.kept == kept_of(spec)
    said = f"About {found.kept:,} of a party's 20,000 people count: those alone in their bucket, of {spec.buckets:,}."
    assert said in found.sentences
    listed = proposed(study(SCHEMA, SIZES, mechanism="moments", n=20_000, epsilon=1.0, keyed=False))
    assert kept_of(listed) is None


@pytest.mark.parametrize(("n", "buckets"), [(500, 1000), (4000, 16_000)])
def test_so_many_people_count_as_is_said(n: int, buckets: int) -> None:
    draw = np.random.default_rng(3)
    alone = [(np.bincount(draw.integers(0, buckets, n)) == 1).sum() for _ in range(400)]
    assert expected_kept(float(n), buckets) == pytest.approx(np.mean(alone), abs=4 * np.std(alone) / 20)
