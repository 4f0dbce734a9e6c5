from math import sqrt
from typing import Literal

import numpy as np
import pytest
from scipy.stats import chi2, kstest, ncx2

from benchmarks.release_law import (
    Array,
    dgm_gram,
    drawn_moments,
    integer_rows,
    made,
    noise_variances,
    private_moments,
    proposed,
    rmgm_gram,
    tables,
)
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.study import Study, StudyParty
from tests.world.noise import seeded_noise

N, K = 1000, 24
ROWS: Array = np.random.default_rng(0).uniform(-1, 1, (N, 3)) * [1, 0.5, 0.3]
CONTRAST = np.array([0.1, 1.0, -2.0, 0.5])


def spec_of(mechanism: Literal["rmgm", "dgm"], row_norm: float | None = None) -> ReleaseSpec:
    attributes = [NumericAttribute(name=name, lower=-1, upper=1) for name in "aby"]
    parties = tuple(
        StudyParty(name=name, dataset="t", attributes=tuple(own), row_norm=norm, first_stage_share=None)
        for name, own, norm in (("one", attributes[:2], row_norm), ("two", attributes[2:], None))
    )
    k = K if mechanism == "rmgm" else None
    return proposed(
        Study(study="t", mechanism=mechanism, subjects="listed", k=k, epsilon=20, delta=1e-5, n=N, parties=parties)
    )


def quadratic_forms(mechanism: Literal["rmgm", "dgm"], *, exact: bool) -> list[float]:
    """c^T G c of 300 releases."""
    spec = spec_of(mechanism)
    draw, noise = np.random.default_rng(3), seeded_noise(4)
    S, parties, found = private_moments(integer_rows(spec, ROWS)), tables(ROWS, (2, 1), None, draw), []
    for _ in range(300):
        seeded = spec.model_copy(update={"seed": draw.bytes(32).hex()})
        moments = made(seeded, parties, noise)[0] if exact else drawn_moments(spec, S, draw)
        found.append(float(CONTRAST @ np.array(moments.gram) @ CONTRAST))
    return found


@pytest.mark.parametrize("exact", [True, False])
def test_rmgm_made_or_drawn_has_k_normal_rows_of_covariance_s_over_k_plus_v(*, exact: bool) -> None:
    spec = spec_of("rmgm")
    S, V = private_moments(integer_rows(spec, ROWS)), np.diag(noise_variances(spec))
    scale = CONTRAST @ (S / K + V) @ CONTRAST
    # a fixed seed; a right law fails one seed in a thousand
    assert kstest(np.array(quadratic_forms("rmgm", exact=exact)) / scale, chi2(K).cdf).pvalue > 1e-3


@pytest.mark.parametrize("exact", [True, False])
def test_dgm_made_or_drawn_has_n_normal_rows_around_those_of_the_table(*, exact: bool) -> None:
    spec = spec_of("dgm")
    S, V = private_moments(integer_rows(spec, ROWS)), np.diag(noise_variances(spec))
    noise = CONTRAST @ V @ CONTRAST
    law = ncx2(N, CONTRAST @ S @ CONTRAST / noise)
    assert kstest(np.array(quadratic_forms("dgm", exact=exact)) / noise, law.cdf).pvalue > 1e-3


def test_without_noise_dgm_gives_the_private_moments_and_rmgm_averages_to_them() -> None:
    A = np.random.default_rng(1).uniform(-1, 1, (200, 3))
    S, draw = A.T @ A, np.random.default_rng(2)
    assert np.allclose(dgm_gram(S, np.zeros(3), 200, draw), S)
    assert np.allclose(rmgm_gram(S, np.zeros(3), 4000, draw), S, atol=4 * S.max() * sqrt(2 / 4000))


def test_sketch_smaller_than_the_table_is_wide_has_rank_k() -> None:
    gram = rmgm_gram(np.eye(6) * 100, np.ones(6), 4, np.random.default_rng(0))
    assert np.linalg.matrix_rank(gram) == 4


def test_row_norm_is_applied_to_the_integer_rows_of_its_party_only() -> None:
    free, bounded = (integer_rows(spec_of("rmgm", norm), ROWS) for norm in (None, 0.5))
    assert np.linalg.norm(bounded[0], axis=1).max() <= 0.5 * 2**15 < np.linalg.norm(free[0], axis=1).max()
    assert np.array_equal(bounded[1], free[1])
