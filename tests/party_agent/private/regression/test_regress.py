"""From a table to published coefficients: refusals, cost, and what the methods compute."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.random import default_rng

from commingle.party_agent.errors import SubjectsChangedError
from commingle.party_agent.private.digest import TableDigest
from commingle.party_agent.private.regression.calibration import NoiseCalibration, Privacy
from commingle.party_agent.private.regression.methods import METHODS, WITH_PUBLIC_ROWS
from commingle.party_agent.private.regression.problem import Floats
from commingle.party_agent.private.regression.public_moment import PublicMoments
from commingle.party_agent.private.regression.regress import PrivateRegression, regress
from commingle.party_agent.private.table import PrivateTable
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.dp.accounting import Loss, Rho
from commingle.shared.dp.errors import ParameterError
from commingle.shared.dp.fixed_point import SCALE
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
    method = METHODS[name] if name in METHODS else WITH_PUBLIC_ROWS[name]
    privacy = Privacy(
        1.0, 1e-6, calibration=min(method.calibrations - {NoiseCalibration.ANALYTIC, NoiseCalibration.CLASSICAL})
    )
    whole = PrivateRegression(
        method=method,
        privacy=privacy,
        loss=method.loss(privacy),
        target=Y,
        features=(X, Z),
        row_norm=None,
        label_bound=1.0,
        public=None,
        n=N,
    )
    return replace(whole, **changes)


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
    assert np.allclose(without_noise(task(row_norm=0.4)), least_squares(x * gain, z * gain, y), atol=1e-3)
    assert task(row_norm=0.4).row_bound == pytest.approx(np.sqrt(1.16))
    assert task(row_norm=9.0).row_bound == task().row_bound == pytest.approx(np.sqrt(3))
    assert task(row_norm=1e200).row_bound == task().row_bound


def test_label_bound_cuts_the_target() -> None:
    x, z, y = values()
    assert np.allclose(without_noise(task(label_bound=0.3)), least_squares(x, z, np.clip(y, -0.3, 0.3)), atol=1e-3)


@pytest.mark.parametrize("lower", [Loss(Rho(1), 1e-6), Loss(Rho(1 << 70), 0.0)])
def test_charge_that_does_not_cover_the_loss_draws_nothing(lower: Loss) -> None:
    source, wanted = table(), task("objpert")
    charge = replace(paid(wanted, source), rho_units=lower.rho.units, delta=lower.delta)
    with pytest.raises(ValueError, match="does not cover"):
        regress(source, wanted, charge=charge, draw=silence, generator=never)


@pytest.mark.parametrize("name", ["ssp", "objpert"])
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


@pytest.mark.parametrize("loss", [WITH_PUBLIC_ROWS["dp_pmtolse"].loss])
def test_public_method_costs_its_epsilon_under_replace_one_and_not_classically(
    loss: Callable[[Privacy], Loss],
) -> None:
    cost = loss(Privacy(1.0, 1e-6))
    assert cost.epsilon(1e-6) == pytest.approx(1.0, rel=1e-9)
    assert cost.epsilon(1e-6) <= 1.0
    with pytest.raises(ParameterError, match="calibration"):
        loss(Privacy(1.0, 1e-6, calibration=NoiseCalibration.CLASSICAL))
