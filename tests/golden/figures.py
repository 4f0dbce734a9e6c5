"""Integers and figures: encoded and clipped rows, plans, fits, forecasts."""

import json
from dataclasses import asdict
from itertools import product
from math import isnan
from typing import Any, get_args

import numpy as np

from commingle.party_agent.private.public_rows import make_whitening
from commingle.party_agent.private.regression.regress import regress
from commingle.party_agent.regression.plan import plan_regression
from commingle.services.client.files import ReleaseFiles
from commingle.services.client.release import Release
from commingle.shared.documents.model import encode
from commingle.shared.documents.regression import PublicSecondMoments, RegressionMethod, RegressionRequest
from commingle.shared.documents.row_maps import first_stage_of, row_map
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.documents.subject_ids import canonical_subject
from commingle.shared.dp.fixed_point import SCALE, clip_rows, coarsen, squared_row_limit
from commingle.shared.encoding import bounded_rows, encode_attribute
from commingle.shared.errors import EstimationError
from commingle.shared.forecast.forecast import forecast
from commingle.shared.mechanisms import mechanism_named, mechanism_of
from commingle.shared.mechanisms.rows.sketch import SignStream, SparseEntries
from commingle.shared.release.checks import closed, read_spec
from commingle.shared.release.plan import plan_block, privacy_statement
from tests.golden import world
from tests.golden.documents import integers
from tests.golden.world import MECHANISMS, NAMES, RELEASES

TARGET = world.CHARGES.name
METHODS: tuple[RegressionMethod, ...] = get_args(RegressionMethod)


def encoding() -> dict[str, Any]:
    """The table from cells to the rows that are mixed or masked."""
    rows = {
        attribute.name: encode_attribute(attribute, world.cells()[attribute.name])
        for party in NAMES
        for attribute in world.ATTRIBUTES[party]
    }
    ids: list[Any] = [one for piece in world.snapshot("clinic").ids() for one in piece.to_pylist()]
    return {
        "rows": {name: integers(found.columns) for name, found in rows.items()},
        "clipped": {name: found.counts.clipped for name, found in rows.items()},
        "missing": {name: found.counts.missing for name, found in rows.items()},
        "sorted_subjects": [bytes(subject).decode() for subject in ids],
        "canonical_subject": canonical_subject(" e\u0301\u212b x\u00a0").hex(),
        "bounded_rows": {release: bounded(release) for release in RELEASES},
    }


def bounded(release: str) -> dict[str, list[str]]:
    """Each party's rows after its map and clipping, in the table's order."""
    spec = world.signed_spec(release).document
    found = {}
    for party in spec.parties:
        cells = [encode_attribute(a, world.cells()[a.name]).columns for a in party.attributes]
        mapped = row_map(closed(spec), party, world.sums_of(release, party.name))
        found[party.name] = integers(bounded_rows(party, mapped, fraction_bits=spec.fraction_bits)(np.hstack(cells)))
    return found


def arithmetic() -> dict[str, Any]:
    """Signs, entries of a sparse matrix, clipping, coarsening and whitening of rows at the ends."""
    ends = np.array([[SCALE, -SCALE], [-SCALE, 1], [0, 0], [-1, 3], [12_345, -23_456]], np.int64)
    return {
        "signs": SignStream(world.secret("signs")).packed(np.array([0, 1, 2**40]), 300).tobytes().hex(),
        "sparse": np.transpose(SparseEntries(world.secret("signs"), 1000).of(np.array([0, 1, 2**40]))).tolist(),
        "clipped": {str(norm): integers(clip_rows(ends, squared_row_limit(norm))) for norm in (0.5, 1.0, 1.2)},
        "coarse": integers(coarsen(ends, 14)),
        "whitened": integers(world.WHITENING.integer_map().rows(ends)),
        "noise": {m: {n: integers(world.noise(m, n)) for n in NAMES} for m in MECHANISMS},
    }


def plans() -> dict[str, Any]:
    """Sigma, losses and squared sensitivities by mechanism, calibration, epsilon and row norm."""
    found = {}
    cases = product(MECHANISMS, ("zcdp", "classical", "analytic"), (0.25, 1.0), (None, 0.7))
    for mechanism, calibration, epsilon, row_norm in cases:
        asked = json.loads(encode(world.signed_spec(mechanism).document))
        asked["parties"][0]["row_norm"] = row_norm
        changes = {"calibration": calibration, "epsilon": epsilon}
        changed = read_spec(json.dumps(asked | changes).encode())
        found[f"{mechanism} {calibration} {epsilon} {row_norm}"] = {
            party.name: planned(changed, party) for party in changed.parties
        }
    for name, spec in two_stage_specs().items():
        found[name] = {p.name: first_planned(spec, p) for p in spec.parties}
    return found


def two_stage_specs() -> dict[str, ReleaseSpec]:
    """Of every mechanism; where parties exchange also with weights of their products."""
    found = {f"{m} two stages": two_stage_spec(m) for m in MECHANISMS}
    return found | {"moments two stages, weighted": two_stage_spec("moments", weight=4)}


def two_stage_spec(mechanism: str, weight: int | None = None) -> ReleaseSpec:
    """The release with two stages, but of that mechanism, and with epsilon 1 for 10,000 subjects."""
    asked = json.loads(encode(world.signed_spec(world.TWO_STAGES).document))
    bits, k = mechanism_named(mechanism).fraction_bits, 16 if mechanism == "rmgm" else None
    changes = {"mechanism": mechanism, "fraction_bits": bits, "k": k, "n": 10_000}
    if weight is not None:
        asked["parties"] = [p | {"cross_weight": weight} if "first_stage_share" in p else p for p in asked["parties"]]
    return read_spec(json.dumps(asked | changes | {"epsilon": 1.0}).encode())


def first_planned(spec: ReleaseSpec, party: PartySpec) -> dict[str, Any]:
    """A party's plan, the noise of its sums, and the map that follows from sums that are 0."""
    stage = first_stage_of(closed(spec), party)
    if stage is None:
        return planned(spec, party)
    applied = row_map(closed(spec), party, (0,) * stage.size)
    assert applied is not None
    noise = {"first_sigma": stage.sigma, "first_square_sigma": stage.square_sigma}
    return {**planned(spec, party), **noise, "gains": np.diag(applied.matrix).tolist()}


def statements() -> dict[str, Any]:
    """What manifests say of privacy under the calibration of today, as their bytes are signed."""
    found = {}
    for mechanism in (*MECHANISMS, *world.KEYED):
        asked = json.loads(encode(world.signed_spec(mechanism).document))
        changed = read_spec(json.dumps(asked | {"calibration": "analytic", "epsilon": 1.0}).encode())
        found[mechanism] = encode(privacy_statement(changed)).decode()
    return found | {name: encode(privacy_statement(spec)).decode() for name, spec in two_stage_specs().items()}


def planned(spec: ReleaseSpec, party: PartySpec) -> dict[str, Any]:
    """A party's plan; rho in units of 2^-64."""
    plan = plan_block(spec, party)
    moved = mechanism_of(spec).squared_sensitivity(spec.terms, party, spec.terms.adjacency)
    return {
        "sigma": plan.sigma,
        "rows": plan.rows,
        "step": plan.step,
        "loss": str(plan.loss.units),
        "squared_sensitivity": str(moved),
    }


def fits(drawn: world.Drawn) -> dict[str, Any]:
    found = {release: fits_of(ReleaseFiles(*world.release(release, drawn).files)) for release in RELEASES}
    return {**found, "party": {method: regression(method) for method in METHODS}, "whitening": whitening()}


def forecasts() -> dict[str, Any]:
    return {mechanism: expected(mechanism) for mechanism in MECHANISMS}


def fits_of(files: ReleaseFiles) -> dict[str, Any]:
    """Coefficients and standard errors of every estimator that applies; None where there is none."""
    release = Release.of(files)
    found: dict[str, Any] = {}
    for estimator in mechanism_of(release.spec).fit.estimators:
        try:
            fit = release.fit(TARGET, estimator=estimator)
        except EstimationError as error:
            found[estimator] = {"refused": type(error).__name__}
        else:
            found[estimator] = {
                "terms": list(fit.terms),
                "coefficients": numbers(fit.coefficients.tolist()),
                "standard_errors": numbers(fit.standard_errors.tolist()),
                "degrees_of_freedom": fit.degrees_of_freedom,
            }
    return found


def regression(method: RegressionMethod) -> dict[str, Any]:
    """Coefficients in encoded units of charges on age and smoker, by one method with fixed noise."""
    attributes = (world.CHARGES, world.AGE, world.SMOKER)
    public = ((1.0, 0.0, -0.25), (0.0, 0.5, 0.0), (-0.25, 0.0, 1.0))
    request = RegressionRequest(
        dataset="patients",
        target=TARGET,
        features=("age", "smoker"),
        method=method,
        epsilon=20.0,
        delta=1e-5,
        public=PublicSecondMoments(rows=100, features=public, label=0.5),
        nonce="00" * 32,
    )
    plan = plan_regression(request, attributes, world.N)
    snapshot = world.snapshot_of(world.read, attributes)
    charge = world.debit(request.id, snapshot.digest)
    found = regress(
        snapshot, plan.task, charge=charge, draw=world.sampler(method), generator=lambda: np.random.default_rng(7)
    )
    return {
        "coefficients": numbers(found.coefficients.tolist()),
        "published": {name: np.atleast_1d(value).tolist() for name, value in found.published.items()},
        "rho": str(plan.task.cost.loss.rho.units),
        "delta": plan.task.cost.loss.delta,
    }


def whitening() -> dict[str, Any]:
    """The map that `whiten` makes of the lab's rows, were they public."""
    made = make_whitening(world.read, world.ATTRIBUTES["lab"], ridge=0.01, radius=None)
    return {**made.whitening.model_dump(mode="json"), "clipped": made.clipped, "condition": made.condition_after}


def numbers(values: list[float]) -> list[float | None]:
    """NaN is None in JSON."""
    return [None if isnan(value) else value for value in values]


def expected(mechanism: str) -> dict[str, Any]:
    """The forecast of a spec like the release's, of more subjects."""
    spec = world.signed_spec(mechanism).document
    larger = spec.model_copy(update={"n": 50_000, "epsilon": 2.0, "k": 400 if spec.k else None})
    found = asdict(forecast(larger.terms))
    return {name: value for name, value in found.items() if name not in {"sentences", "exchange", "shared_error"}}
