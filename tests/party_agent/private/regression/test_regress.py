"""The methods: without noise least squares, at the cost they say; and from a snapshot to published coefficients."""

from collections.abc import Callable
from dataclasses import replace
from math import exp
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from numpy.random import Generator, default_rng

from commingle.party_agent.errors import LostError
from commingle.party_agent.private.regression.floating import ridge_fit
from commingle.party_agent.private.regression.measuring import GAUSSIAN, Exact, FloatingPoint, NoiseCalibration, Privacy
from commingle.party_agent.private.regression.problem import Estimate, Floats, RowMap, Sample, on_grid
from commingle.party_agent.private.regression.regress import (
    METHODS,
    STAGED,
    WITH_PUBLIC_ROWS,
    ExactMethod,
    FloatingMethod,
    PrivateRegression,
    regress,
)
from commingle.party_agent.private.regression.sums import PublicMoments, stages_of
from commingle.party_agent.private.snapshot import NO_SNAPSHOT, Debit, Snapshot
from commingle.shared.documents.regression import RowMapping
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.dp.accounting import Cost, Loss, Rho
from commingle.shared.dp.fixed_point import SCALE
from commingle.shared.dp.noise import Sampler, rounded_gaussian
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.errors import ParameterError
from tests.party_agent.private.regression.cases import NEIGHBOURS, linear_sample, privacy
from tests.party_agent.private.tables import column, snapshot_of
from tests.world.noise import no_noise

CASES = [(method, c) for method in METHODS.values() for c in sorted(method.calibrations)]
EXACT = [m for m in METHODS.values() if isinstance(m, ExactMethod)]


def run(method: ExactMethod | FloatingMethod, sample: Sample, asked: Privacy, generator: Generator) -> Estimate:
    if isinstance(method, ExactMethod):
        return method.run(sample, asked, FloatingPoint(generator))
    return method.run(sample, asked, generator)


def least_squares_of(sample: Sample) -> Floats:
    return ridge_fit(sample, 1e-9)


@pytest.mark.parametrize(
    ("name", "calibration", "epsilon", "tolerance"),
    [
        ("ssp", NoiseCalibration.ANALYTIC, 1e4, 0.02),
        ("adassp", NoiseCalibration.ANALYTIC, 1e4, 0.02),
        ("boosted_adassp", NoiseCalibration.ANALYTIC, 1e4, 0.02),
        ("objpert", NoiseCalibration.PUBLISHED, 1e9, 1e-5),
        ("subagg", NoiseCalibration.PUBLISHED, 1e9, 1e-5),
    ],
)
def test_without_noise_the_coefficients_are_least_squares(
    name: str, calibration: NoiseCalibration, epsilon: float, tolerance: float
) -> None:
    sample = linear_sample(default_rng(1), noise=0.0)
    theta = run(METHODS[name], sample, privacy(epsilon, calibration=calibration), default_rng(2)).coefficients
    assert np.allclose(theta, least_squares_of(sample), atol=tolerance)


@pytest.mark.parametrize(("name", "calibration"), [("ops", "classical"), ("adaops", "analytic")])
def test_posterior_methods_approach_least_squares_as_rows_are_added(name: str, calibration: str) -> None:
    errors = []
    for n in (2_000, 200_000):
        sample = linear_sample(default_rng(3), n=n)
        asked = privacy(1.0, calibration=NoiseCalibration(calibration))
        runs = [run(METHODS[name], sample, asked, default_rng(seed)).coefficients for seed in range(5)]
        errors.append(np.mean([np.linalg.norm(theta - least_squares_of(sample)) for theta in runs]))
    assert errors[1] < errors[0] / 2
    assert errors[1] < 0.2


@pytest.mark.parametrize("name", ["adaops", "ops", "objpert"])
def test_epsilon_that_leaves_no_delta_to_a_group_of_two_has_no_cost(name: str) -> None:
    [calibration] = METHODS[name].calibrations
    with pytest.raises(ParameterError, match="delta"):
        METHODS[name].cost(privacy(1600.0, 1e-6, adjacency=Adjacency.REPLACE_ONE, calibration=calibration))


@pytest.mark.parametrize("method", EXACT, ids=lambda m: m.name)
@pytest.mark.parametrize("adjacency", NEIGHBOURS)
@pytest.mark.parametrize("calibration", sorted(GAUSSIAN))
def test_exact_noise_spends_what_was_debited_and_hardly_less(
    method: ExactMethod, adjacency: Adjacency, calibration: NoiseCalibration
) -> None:
    rows = linear_sample(default_rng(6))
    sample = on_grid(rows.x, rows.y, row_bound=1.0, label_bound=1.0)
    asked, exact = privacy(0.5, adjacency=adjacency, calibration=calibration), Exact(rounded_gaussian)
    method.run(sample, asked, exact)
    planned = method.loss(asked)
    assert planned.delta == 0
    assert planned.rho.units * (1 - 1e-4) < exact.spent.units <= planned.rho.units


@pytest.mark.parametrize(("method", "calibration"), CASES, ids=lambda c: getattr(c, "name", str(c)))
@pytest.mark.parametrize("adjacency", NEIGHBOURS)
def test_run_has_finite_coefficients_of_every_column(
    method: ExactMethod | FloatingMethod, calibration: NoiseCalibration, adjacency: Adjacency
) -> None:
    asked = privacy(0.5, adjacency=adjacency, calibration=calibration)
    sample = linear_sample(default_rng(7))
    estimate = run(method, sample, asked, default_rng(8))
    assert estimate.coefficients.shape == (sample.d,)
    assert np.isfinite(estimate.coefficients).all()


BY_THEIR_OWN_PROOF = {
    "ops": (NoiseCalibration.CLASSICAL, 1e-6),
    "adaops": (NoiseCalibration.ANALYTIC, 1e-6),
    "objpert": (NoiseCalibration.PUBLISHED, 1e-6),
    "subagg": (NoiseCalibration.PUBLISHED, 0.0),
}


@pytest.mark.parametrize("name", BY_THEIR_OWN_PROOF)
def test_methods_with_a_proof_of_their_own_cost_what_is_asked_of_the_one_calibration_they_have(name: str) -> None:
    """Those that print constants which under-noise have no `published` here."""
    calibration, delta = BY_THEIR_OWN_PROOF[name]
    assert METHODS[name].calibrations == {calibration}
    assert METHODS[name].loss(privacy(0.5, 1e-6, calibration=calibration)) == Loss.approximate(0.5, delta)


def test_other_methods_have_no_constants_of_their_papers() -> None:
    others = {**METHODS, **WITH_PUBLIC_ROWS, **STAGED}.keys() - BY_THEIR_OWN_PROOF.keys()
    every = {**METHODS, **WITH_PUBLIC_ROWS, **STAGED}
    assert not any(NoiseCalibration.PUBLISHED in every[name].calibrations for name in others)


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda m: m.name)
def test_calibration_a_method_does_not_know_has_no_cost(method: ExactMethod | FloatingMethod) -> None:
    for calibration in set(NoiseCalibration) - method.calibrations:
        with pytest.raises(ParameterError, match="calibration"):
            method.cost(privacy(calibration=calibration))


def test_noise_of_a_seed_repeats_and_of_another_seed_does_not() -> None:
    sample = linear_sample(default_rng(11))
    for method, calibration in CASES:
        asked = privacy(calibration=calibration)
        one, same, other = (run(method, sample, asked, default_rng(seed)).coefficients for seed in (1, 1, 2))
        assert np.array_equal(one, same)
        assert not np.array_equal(one, other)


N = 500
Fit = Callable[[PrivateRegression], Floats]
X, Z, Y = (NumericAttribute(name=name, lower=-1, upper=1) for name in "xzy")


def values() -> tuple[Floats, Floats, Floats]:
    draw = default_rng(1)
    x, z = draw.uniform(-1, 1, N), draw.uniform(-0.5, 0.5, N)
    return x, z, 0.2 + 0.3 * x - 0.4 * z + 0.05 * draw.normal(size=N)


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """With a column in front that no task asks for."""
    x, z, y = values()
    columns = {"id": column([f"s{i:04}" for i in range(N)])}
    columns |= {name: column(each.tolist()) for name, each in {"z": z, "o": -z, "y": y, "x": x}.items()}
    other = NumericAttribute(name="o", lower=-1, upper=1, missing="indicator")
    return snapshot_of(tmp_path_factory.mktemp("regress"), columns, other, X, Z, Y, piece=64)


def task(name: str = "ssp", **changes: Any) -> PrivateRegression:
    method = {**METHODS, **WITH_PUBLIC_ROWS, **STAGED}[name]
    others = {NoiseCalibration.ANALYTIC, NoiseCalibration.CLASSICAL}
    privacy = Privacy(1.0, 1e-6, calibration=min(method.calibrations - others or method.calibrations))
    whole = PrivateRegression(
        method=method,
        privacy=privacy,
        target=Y,
        features=(X, Z),
        rows=RowMap(),
        label_bound=1.0,
        public=None,
        n=N,
        stages=stages_of(privacy, Y, (X, Z), N) if name in STAGED else None,
    )
    return replace(whole, **changes)


def paid(wanted: PrivateRegression, snapshot: Snapshot) -> Debit:
    return Debit("r", wanted.cost.loss.rho.units, 1, "", snapshot.digest, wanted.cost.loss.delta)


def never() -> Any:
    raise AssertionError("noise was drawn")


@pytest.fixture
def without_noise(snapshot: Snapshot) -> Fit:
    def fit(wanted: PrivateRegression) -> Floats:
        return regress(snapshot, wanted, charge=paid(wanted, snapshot), draw=no_noise, generator=never).coefficients

    return fit


def least_squares(x: Floats, z: Floats, y: Floats) -> Floats:
    rows = np.column_stack([np.ones(N), x, z])
    return np.linalg.lstsq(rows, y)[0].astype(np.float64)


def test_without_noise_the_coefficients_are_least_squares_with_intercept(without_noise: Fit) -> None:
    assert np.allclose(without_noise(task()), least_squares(*values()), atol=1e-3)


COUNTING_NOTHING = ["ssp", "adassp", "boosted_adassp", "dp_pmtolse", "dp_pmtse", "adaops", "objpert", "noisysgd"]


@pytest.mark.parametrize("name", COUNTING_NOTHING)
def test_row_of_zeros_more_changes_no_bit_under_add_remove(name: str, tmp_path: Path) -> None:
    """It adds nothing to any sum: what else a result took from the number of rows would show."""
    wanted = task(name, n=400, rows=RowMap(intercept=False), public=PublicMoments(np.diag([0.3, 0.1]), 0.2))
    wanted = replace(wanted, privacy=replace(wanted.privacy, adjacency=Adjacency.ADD_REMOVE))
    found = []
    for more in ([], [0.0]):
        x, z, y = ([*cells.tolist(), *more] for cells in values())
        ids = column([f"s{i}" for i in range(len(x))])
        source = snapshot_of(tmp_path, {"id": ids, "x": column(x), "z": column(z), "y": column(y)}, Y, X, Z)
        draw, charge = default_rng(3), paid(wanted, source)
        found.append(regress(source, wanted, charge=charge, draw=drawing(draw), generator=lambda: default_rng(4)))
    assert np.array_equal(found[0].coefficients, found[1].coefficients)
    assert found[0].published == found[1].published


def drawing(draw: Generator) -> Sampler:
    return lambda sigma, count: np.rint(draw.normal(0, sigma, count)).astype(np.int64)


def test_two_stages_count_rows_with_noise_under_add_remove_and_do_not_go_by_the_public_figure(
    snapshot: Snapshot,
) -> None:
    best, found = least_squares(*values()), []
    for n in (100, N, 5000):
        asked = Privacy(20.0, 1e-6, Adjacency.ADD_REMOVE, NoiseCalibration.ZCDP)
        wanted = task("two_stage", privacy=asked, n=n, stages=stages_of(asked, Y, (X, Z), n))
        estimate = regress(snapshot, wanted, charge=paid(wanted, snapshot), draw=no_noise, generator=never)
        assert np.array(estimate.published["sums"])[0] == N * SCALE
        found.append(estimate.coefficients)
    assert np.abs(np.array(found) - best).max() < 0.05


def test_public_transform_without_noise_is_undone(without_noise: Fit) -> None:
    public = PublicMoments(np.diag([1.0, 0.3, 0.1]), 0.2)
    assert np.allclose(without_noise(task("dp_pmtolse", public=public)), least_squares(*values()), atol=1e-3)


def test_row_norm_clips_the_features_and_leaves_the_intercept_and_label_bound_cuts_the_target(
    without_noise: Fit,
) -> None:
    x, z, y = values()
    gain = np.minimum(1, 0.4 / np.hypot(x, z))
    assert np.allclose(without_noise(task(rows=RowMap(row_norm=0.4))), least_squares(x * gain, z * gain, y), atol=1e-3)
    assert np.allclose(without_noise(task(label_bound=0.3)), least_squares(x, z, np.clip(y, -0.3, 0.3)), atol=1e-3)
    for row_norm, bound in ((0.4, 1.16), (9.0, 3), (1e200, 3), (None, 3)):
        assert task(rows=RowMap(row_norm=row_norm)).row_bound == pytest.approx(np.sqrt(bound))


@pytest.mark.parametrize("lower", [Loss(Rho(1), 1e-6), Loss(Rho(1 << 70), 0.0)])
def test_charge_that_does_not_cover_the_loss_draws_nothing(snapshot: Snapshot, lower: Loss) -> None:
    wanted = task("objpert")
    charge = replace(paid(wanted, snapshot), rho_units=lower.rho.units, delta=lower.delta)
    with pytest.raises(ValueError, match="does not cover"):
        regress(snapshot, wanted, charge=charge, draw=nothing_drawn, generator=never)


def nothing_drawn(_: int, __: int) -> Any:
    raise AssertionError("noise was drawn")


@pytest.mark.parametrize("name", ["ssp", "objpert", "two_stage"])
@pytest.mark.parametrize("other", ["0" * 64, NO_SNAPSHOT])
def test_charge_for_another_snapshot_reads_and_draws_nothing(snapshot: Snapshot, name: str, other: str) -> None:
    wanted, read = task(name), list[int]()
    charge = replace(paid(wanted, snapshot), snapshot=other)
    with pytest.raises(ValueError, match="does not cover"):
        regress(snapshot, wanted, charge=charge, draw=nothing_drawn, generator=never, progress=read.append)
    assert read == []


@pytest.mark.parametrize("name", ["ssp", "objpert", "two_stage"])
def test_damaged_snapshot_is_lost_and_draws_nothing(snapshot: Snapshot, tmp_path: Path, name: str) -> None:
    wanted, data = task(name), snapshot.path.read_bytes()
    damaged = replace(snapshot, path=tmp_path / "damaged")
    damaged.path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    for _ in range(2):
        with pytest.raises(LostError):
            regress(damaged, wanted, charge=paid(wanted, snapshot), draw=nothing_drawn, generator=never)
        damaged.path.unlink(missing_ok=True)


def test_progress_is_told_the_rows_read(snapshot: Snapshot) -> None:
    wanted, read = task(), list[int]()
    regress(snapshot, wanted, charge=paid(wanted, snapshot), draw=no_noise, generator=never, progress=read.append)
    assert read == [*range(64, N, 64), N]


def test_row_bound_is_that_of_a_row_at_its_extremes_and_hardly_more() -> None:
    wanted = task()
    worst = np.array([1.0, 1.0, 1.0])
    assert np.linalg.norm(worst) <= wanted.row_bound
    assert np.linalg.norm(worst) * (1 + 1 / SCALE) > wanted.row_bound


@pytest.mark.parametrize("mapping", ["per_row", "per_row_with_label"])
def test_rows_divided_by_their_norms_are_fitted_by_least_squares_and_bounded_by_one(
    without_noise: Fit, mapping: RowMapping
) -> None:
    x, z, y = values()
    norms = np.sqrt(1 + x**2 + z**2)
    rows = np.column_stack([np.ones(N), x, z]) / norms[:, None]
    labels = y / norms if mapping == "per_row_with_label" else y
    best = np.linalg.lstsq(rows, labels)[0]
    wanted = task(rows=RowMap(mapping))
    assert np.allclose(without_noise(wanted), best, atol=1e-3)
    assert 1 <= wanted.row_bound < 1 + 1e-9


def test_without_an_intercept_it_is_zero_and_the_row_is_shorter(without_noise: Fit) -> None:
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


@pytest.mark.parametrize("name", [*METHODS, *WITH_PUBLIC_ROWS, *STAGED])
def test_calibration_that_the_method_is_not_proved_with_reads_and_draws_nothing(snapshot: Snapshot, name: str) -> None:
    wanted, read = task(name), list[int]()
    charge = paid(wanted, snapshot)
    for calibration in set(NoiseCalibration) - wanted.method.calibrations:
        other = replace(wanted, privacy=replace(wanted.privacy, calibration=calibration))
        with pytest.raises(ParameterError, match="calibration"):
            regress(snapshot, other, charge=charge, draw=nothing_drawn, generator=never, progress=read.append)
    assert read == []


def test_public_method_costs_its_epsilon_under_either_adjacency() -> None:
    for adjacency in NEIGHBOURS:
        for method in WITH_PUBLIC_ROWS.values():
            cost = method.loss(Privacy(1.0, 1e-6, adjacency))
            assert cost.epsilon(1e-6) == pytest.approx(1.0, rel=1e-9)
            assert cost.epsilon(1e-6) <= 1.0


def test_charge_is_in_the_unit_of_its_data_set_and_keeps_what_a_replaced_row_learns() -> None:
    """By formulas of the proofs: 9/4 of rho, twice, groups of two, four times, and nothing more."""
    privacy = Privacy(0.5, 1e-6, Adjacency.ADD_REMOVE)
    sums = METHODS["ssp"].loss(privacy).rho.units
    for name in ("ssp", "adassp", "boosted_adassp"):
        assert METHODS[name].cost(privacy).replaced == Loss(Rho(-(-9 * sums // 4)))
    assert WITH_PUBLIC_ROWS["dp_pmtse"].cost(privacy).replaced == Loss(Rho(2 * sums))
    steps = METHODS["noisysgd"].loss(privacy).rho.units
    assert METHODS["noisysgd"].cost(privacy).replaced == Loss(Rho(4 * steps))
    printed = replace(privacy, calibration=NoiseCalibration.PUBLISHED)
    assert METHODS["subagg"].cost(printed).replaced == METHODS["subagg"].loss(printed)
    pair = METHODS["objpert"].cost(printed).replaced
    assert pair.rho == Loss.approximate(1.0).rho
    assert (1 + exp(0.5)) * 1e-6 <= pair.delta < (1 + exp(0.5)) * 1e-6 * (1 + 1e-9)
    assert STAGED["two_stage"].cost(privacy).replaced == Loss(Rho(-(-201 * sums // 80)))
    for name, method in {**METHODS, **STAGED}.items():
        replaced = replace(privacy, adjacency=Adjacency.REPLACE_ONE, calibration=min(method.calibrations))
        assert method.cost(replaced) == Cost(method.loss(replaced)), name


def test_group_that_leaves_no_delta_is_refused() -> None:
    with pytest.raises(ParameterError, match="no delta"):
        METHODS["objpert"].cost(Privacy(800.0, 1e-6, Adjacency.ADD_REMOVE, NoiseCalibration.PUBLISHED))
