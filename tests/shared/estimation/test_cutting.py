"""Two-stage releases of rows with long tails: what cutting took is estimated, and intervals count what it may bend."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.release_law import proposed, study_of
from commingle.services.analysis import ridge_path, two_stage
from commingle.services.fit import Fit, fit_prepared
from commingle.shared.documents.row_maps import first_stage_of, row_map
from commingle.shared.documents.schema import Attribute, NumericAttribute
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.dp.fixed_point import quantise
from commingle.shared.encoding import bounded_rows
from commingle.shared.errors import MomentsMismatchError
from commingle.shared.estimation.entry_noise import Array
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.release.checks import closed
from commingle.shared.release.matrix import prepared_release, second_moments

X, Y, Z = (NumericAttribute(name=name, lower=-1, upper=1) for name in "xyz")
N = 4_000


def study(*attributes: Attribute) -> ReleaseSpec:
    asked = study_of(attributes, (len(attributes),), N, 5.0, first_stage_share=0.15, mechanism="moments")
    return proposed(asked)


SPEC = study(X, Y)


def long_tailed(*, cubed: float) -> Array:
    """Rows (N x 2) whose slope is that of a few far ones, where `cubed` is not 0."""
    draw = np.random.default_rng(3)
    x = np.clip(0.04 * draw.standard_t(2.5, N), -1, 1)
    return np.column_stack([x, np.clip(0.3 * x + cubed * x**3 + 0.02 * draw.standard_normal(N), -1, 1)])


def released(rows: Array, spec: ReleaseSpec = SPEC) -> tuple[PreparedMoments, Array]:
    """The release without its noise, and the cut rows as they are undone."""
    q, [party], columns = quantise(rows), spec.parties, 1 + rows.shape[1]
    stage = first_stage_of(closed(spec), party)
    assert stage is not None
    sums = tuple(stage.sums(q).tolist())
    applied = row_map(closed(spec), party, sums)
    assert applied is not None
    cut = bounded_rows(party, applied, fraction_bits=spec.fraction_bits)(q) / 2**spec.fraction_bits
    published = np.column_stack([np.ones(N), cut])
    stated = second_moments(spec, "0" * 64, np.zeros((columns, columns), np.int64))
    gram = published.T @ published
    prepared = prepared_release(
        stated.model_copy(update={"gram": tuple(map(tuple, gram.tolist()))}), spec, {"p0": sums}
    )
    back, centre = applied.undo()
    return prepared, cut @ back.T + centre


@pytest.mark.parametrize(("stated", "noise"), [("moments", "dgm"), ("dgm", "moments")])
def test_moments_with_the_noise_of_another_mechanism_are_refused(stated: str, noise: str) -> None:
    of_rows = proposed(study_of((X, Y), (2,), N, 5.0, mechanism="dgm"))
    spec = {"moments": SPEC, "dgm": of_rows}
    made = {"moments": np.zeros((3, 3), np.int64), "dgm": np.zeros((N, 3), np.int64)}
    moments = second_moments(spec[noise], "0" * 64, made[noise])
    with pytest.raises(MomentsMismatchError, match="noise of their mechanism"):
        prepared_release(moments, spec[stated])


def fitted(prepared: PreparedMoments) -> Fit:
    return fit_prepared(prepared, "y", features=("x",), interval_for="table")


def test_share_that_cutting_took_is_that_of_the_rows() -> None:
    rows = long_tailed(cubed=0)
    prepared, cut = released(rows)
    assert prepared.lost is not None
    about = rows.mean(axis=0)
    expected = 1 - ((cut - about) ** 2).mean(axis=0) / ((rows - about) ** 2).mean(axis=0)
    assert expected.max() > 0.1
    assert prepared.lost == pytest.approx([0, *expected], abs=0.01)


def test_interval_holds_the_slope_of_whole_rows_that_cutting_bent() -> None:
    rows = long_tailed(cubed=0.3)
    prepared, _ = released(rows)
    products = np.cov(rows.T)
    slope = products[0, 1] / products[0, 0]
    counted, uncounted = fitted(prepared), fitted(replace(prepared, lost=None, may_have_lost=None))
    assert counted.coefficients == pytest.approx(uncounted.coefficients)
    low, high = uncounted.intervals[1]
    assert not low <= slope <= high
    low, high = counted.intervals[1]
    assert low <= slope <= high
    [said] = [w for w in counted.warnings if "cut at a norm" in w]
    assert "Intervals count" in said


def test_path_says_that_rows_were_cut_and_speaks_of_no_intervals() -> None:
    path = ridge_path(released(long_tailed(cubed=0.3))[0], "y", "x")
    [said] = [w for w in path.warnings if "cut at a norm" in w]
    assert "interval" not in said.lower()


def test_rows_that_nothing_was_cut_from_have_the_interval_they_had() -> None:
    rows = np.random.default_rng(4).uniform(-0.9, 0.9, (N, 2))
    prepared, _ = released(rows)
    assert prepared.lost is not None
    plain = fitted(replace(prepared, lost=None, may_have_lost=None))
    np.testing.assert_allclose(fitted(prepared).intervals, plain.intervals, rtol=1e-3)
    assert not any("cut at a norm" in warning for warning in fitted(prepared).warnings)


def test_interval_by_instruments_counts_what_cutting_bent_and_says_so() -> None:
    rows = long_tailed(cubed=0.3)
    z = np.clip(rows[:, 0] + 0.02 * np.random.default_rng(5).standard_normal(N), -1, 1)
    prepared, _ = released(np.column_stack([rows, z]), study(X, Y, Z))
    products = np.cov(np.column_stack([rows, z]).T)
    slope = products[2, 1] / products[2, 0]
    counted, uncounted = (
        two_stage(each, "y", endogenous="x", instruments="z", interval_for="table").fit
        for each in (prepared, replace(prepared, lost=None, may_have_lost=None))
    )
    low, high = uncounted.intervals[1]
    assert not low <= slope <= high
    low, high = counted.intervals[1]
    assert low <= slope <= high
    assert [w for w in counted.warnings if "cut at a norm" in w and "Intervals count" in w]
