"""From a table to published coefficients: refusals, cost, and what the methods compute."""

from dataclasses import dataclass, replace
from math import exp
from typing import Any, get_args

import numpy as np
import pytest
from numpy.random import default_rng

from commingle.party_agent.errors import SubjectsChangedError
from commingle.party_agent.private.digest import TableDigest
from commingle.party_agent.private.regression.calibration import NoiseCalibration, Privacy
from commingle.party_agent.private.regression.methods import METHODS, STAGED, WITH_PUBLIC_ROWS
from commingle.party_agent.private.regression.problem import Floats, Neighbours
from commingle.party_agent.private.regression.public_moment import PublicMoments
from commingle.party_agent.private.regression.regress import PrivateRegression, regress
from commingle.party_agent.private.regression.row_map import RowMap
from commingle.party_agent.private.regression.sums import sums_loss
from commingle.party_agent.private.regression.two_stage import adjacency_of
from commingle.party_agent.private.table import PrivateTable
from commingle.shared.documents.regression import RowMapping, measured_attributes
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.dp.accounting import Loss, Rho
from commingle.shared.dp.errors import ParameterError
from commingle.shared.dp.fixed_point import SCALE
from commingle.shared.dp.two_stages import TwoStages, plan_two_stages
from tests.party_agent.private.tables import column, table_of

N = 500
X, Z, Y = (NumericAttribute(name=name, lower=-1, upper=1) for name in "xzy")


@dataclass(frozen=True)
class Charge:
    release: str
    rho_units: int
    table: TableDigest
    delta: float = 0.0


def silence(_: int, count: int) -> Any:
    return np.zeros(count, np.int64)


def values() -> tuple[Floats, Floats, Floats]:
    draw = default_rng(1)
    x, z = draw.uniform(-1, 1, N), draw.uniform(-0.5, 0.5, N)
    return x, z, 0.2 + 0.3 * x - 0.4 * z + 0.05 * draw.normal(size=N)


def table() -> PrivateTable:
    x, z, y = values()
    ids = column([f"s{i}" for i in range(N)])
    return table_of(
        {"id": ids, "x": column(x.tolist()), "z": column(z.tolist()), "y": column(y.tolist())}, Y, X, Z, batch=64
    )


def task(name: str = "ssp", **changes: Any) -> PrivateRegression:
    method = {**METHODS, **WITH_PUBLIC_ROWS, **STAGED}[name]
    privacy = Privacy(
        1.0, 1e-6, calibration=min(method.calibrations - {NoiseCalibration.ANALYTIC, NoiseCalibration.CLASSICAL})
    )
    whole = PrivateRegression(
        method=method,
        privacy=privacy,
        loss=method.charge(privacy),
        target=Y,
        features=(X, Z),
        rows=RowMap(),
        label_bound=1.0,
        public=None,
        n=N,
        stages=stages_of(privacy) if name in STAGED else None,
    )
    return replace(whole, **changes)


def stages_of(privacy: Privacy) -> TwoStages:
    attributes = measured_attributes(Y, (X, Z))
    return plan_two_stages(attributes, n=N, rho=sums_loss(privacy).rho, adjacency=adjacency_of(privacy))


def paid(wanted: PrivateRegression, source: PrivateTable) -> Charge:
    return Charge("r", wanted.loss.rho.units, source.scan().digest, wanted.loss.delta)


def never() -> Any:
    raise AssertionError("noise was drawn")


def without_noise(wanted: PrivateRegression) -> Floats:
    source = table()
    return regress(source, wanted, charge=paid(wanted, source), draw=silence, generator=never).coefficients


def least_squares(x: Floats, z: Floats, y: Floats) -> Floats:
    rows = np.column_stack([np.ones(N), x, z])
    return np.linalg.lstsq(rows, y)[0].astype(np.float64)


def test_without_noise_the_coefficients_are_least_squares_with_intercept() -> None:
    assert np.allclose(without_noise(task()), least_squares(*values()), atol=1e-3)


def test_public_transform_without_noise_is_undone() -> None:
    public = PublicMoments(np.diag([1.0, 0.3, 0.1]), 0.2)
    assert np.allclose(without_noise(task("dp_pmtolse", public=public)), least_squares(*values()), atol=1e-3)


def test_row_norm_clips_the_features_and_leaves_the_intercept() -> None:
    x, z, y = values()
    gain = np.minimum(1, 0.4 / np.hypot(x, z))
    assert np.allclose(without_noise(task(rows=RowMap(row_norm=0.4))), least_squares(x * gain, z * gain, y), atol=1e-3)
    assert task(rows=RowMap(row_norm=0.4)).row_bound == pytest.approx(np.sqrt(1.16))
    assert task(rows=RowMap(row_norm=9.0)).row_bound == task().row_bound == pytest.approx(np.sqrt(3))
    assert task(rows=RowMap(row_norm=1e200)).row_bound == task().row_bound


def test_label_bound_cuts_the_target() -> None:
    x, z, y = values()
    assert np.allclose(without_noise(task(label_bound=0.3)), least_squares(x, z, np.clip(y, -0.3, 0.3)), atol=1e-3)


@pytest.mark.parametrize("lower", [Loss(Rho(1), 1e-6), Loss(Rho(1 << 70), 0.0)])
def test_charge_that_does_not_cover_the_loss_draws_nothing(lower: Loss) -> None:
    source, wanted = table(), task("objpert")
    charge = replace(paid(wanted, source), rho_units=lower.rho.units, delta=lower.delta)
    with pytest.raises(ValueError, match="does not cover"):
        regress(source, wanted, charge=charge, draw=silence, generator=never)


@pytest.mark.parametrize("name", ["ssp", "objpert", "two_stage"])
def test_other_subjects_draw_nothing(name: str) -> None:
    wanted = task(name)
    other = replace(paid(wanted, table()), table=TableDigest("0" * 64))
    drawn: list[int] = []

    def draw(_: int, count: int) -> Any:
        drawn.append(count)
        return silence(_, count)

    with pytest.raises(SubjectsChangedError):
        regress(table(), wanted, charge=other, draw=draw, generator=never)
    assert drawn == []


def test_row_bound_is_that_of_a_row_at_its_extremes_and_hardly_more() -> None:
    wanted = task()
    worst = np.array([1.0, 1.0, 1.0])
    assert np.linalg.norm(worst) <= wanted.row_bound
    assert np.linalg.norm(worst) * (1 + 1 / SCALE) > wanted.row_bound


@pytest.mark.parametrize("mapping", ["per_row", "per_row_with_label"])
def test_rows_divided_by_their_norms_are_fitted_by_least_squares_and_bounded_by_one(mapping: RowMapping) -> None:
    x, z, y = values()
    norms = np.sqrt(1 + x**2 + z**2)
    rows = np.column_stack([np.ones(N), x, z]) / norms[:, None]
    labels = y / norms if mapping == "per_row_with_label" else y
    best = np.linalg.lstsq(rows, labels)[0]
    wanted = task(rows=RowMap(mapping))
    assert np.allclose(without_noise(wanted), best, atol=1e-3)
    assert 1 <= wanted.row_bound < 1 + 1e-9


def test_without_an_intercept_it_is_zero_and_the_row_is_shorter() -> None:
    x, z, y = values()
    wanted = task(rows=RowMap(intercept=False))
    found = without_noise(wanted)
    assert found[0] == 0
    assert np.allclose(found[1:], np.linalg.lstsq(np.column_stack([x, z]), y)[0], atol=1e-3)
    assert wanted.row_bound == pytest.approx(np.sqrt(2))


@pytest.mark.parametrize("mapping", get_args(RowMapping))
@pytest.mark.parametrize("intercept", [True, False])
def test_no_row_is_longer_than_the_bound_of_its_mapping(mapping: RowMapping, *, intercept: bool) -> None:
    ends = np.array([[a, b] for a in (-SCALE, -1, 0, 3, SCALE) for b in (-SCALE, 0, SCALE)])
    for row_norm in (None, 0.3, 1.0):
        how = RowMap(mapping, intercept, row_norm)
        rows, labels = how.apply(ends, np.full(len(ends), SCALE))
        assert np.linalg.norm(rows, axis=1).max() <= how.bound(2)
        assert np.isfinite(labels).all()


def test_row_is_mapped_alike_wherever_it_stands() -> None:
    q = default_rng(4).integers(-SCALE, SCALE, (333, 7))
    how, order = RowMap("per_row_with_label"), default_rng(5).permutation(333)
    rows, labels = how.apply(q, q[:, 0])
    again, label = how.apply(q[order], q[order, 0])
    assert np.array_equal(again, rows[order])
    assert np.array_equal(label, labels[order])
    alone = [how.apply(q[[i]], q[[i], 0]) for i in range(40)]
    assert all(np.array_equal(row[0], rows[i]) and label[0] == labels[i] for i, (row, label) in enumerate(alone))


def test_public_method_costs_its_epsilon_under_either_adjacency() -> None:
    for adjacency in Neighbours:
        for method in WITH_PUBLIC_ROWS.values():
            cost = method.loss(Privacy(1.0, 1e-6, adjacency))
            assert cost.epsilon(1e-6) == pytest.approx(1.0, rel=1e-9)
            assert cost.epsilon(1e-6) <= 1.0


def test_charge_is_that_of_a_replaced_row_whatever_is_asked_for() -> None:
    """By formulas of the proofs: 9/4 of rho, twice, groups of two, four times, and nothing more."""
    privacy = Privacy(0.5, 1e-6, Neighbours.ADD_REMOVE)
    sums = METHODS["ssp"].loss(privacy).rho.units
    for name in ("ssp", "adassp", "boosted_adassp"):
        assert METHODS[name].charge(privacy) == Loss(Rho(-(-9 * sums // 4)))
    assert WITH_PUBLIC_ROWS["dp_pmtse"].charge(privacy) == Loss(Rho(2 * sums))
    steps = METHODS["noisysgd"].loss(privacy).rho.units
    assert METHODS["noisysgd"].charge(privacy) == Loss(Rho(4 * steps))
    printed = replace(privacy, calibration=NoiseCalibration.PUBLISHED)
    assert METHODS["subagg"].charge(printed) == METHODS["subagg"].loss(printed)
    pair = METHODS["objpert"].charge(printed)
    assert pair.rho == Loss.approximate(1.0).rho
    assert (1 + exp(0.5)) * 1e-6 <= pair.delta < (1 + exp(0.5)) * 1e-6 * (1 + 1e-9)
    assert STAGED["two_stage"].charge(privacy) == Loss(Rho(-(-201 * sums // 80)))
    for name, method in {**METHODS, **STAGED}.items():
        replaced = replace(privacy, adjacency=Neighbours.REPLACE_ONE, calibration=min(method.calibrations))
        assert method.charge(replaced) == method.loss(replaced), name


def test_group_that_leaves_no_delta_is_refused() -> None:
    with pytest.raises(ParameterError, match="no delta"):
        METHODS["objpert"].charge(Privacy(800.0, 1e-6, Neighbours.ADD_REMOVE, NoiseCalibration.PUBLISHED))
