"""One registry line makes a mechanism: from a study to a fit, through the real coordinator and the real agents.

The product does not have it: rows in reverse order, with twice the noise and estimators of its own.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError

from commingle import Release
from commingle.party_agent.home.policy import AutoApproval, Policy
from commingle.services.client.files import ReleaseFiles
from commingle.shared.documents import terms
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.study import Study
from commingle.shared.documents.terms import PartyTerms, Terms
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.errors import EstimatorKindError, SpecError
from commingle.shared.estimation.method import CONSTANT, Estimator, FitMethod
from commingle.shared.forecast.forecast import forecast_of, plan, with_sketch
from commingle.shared.mechanisms import MECHANISMS
from commingle.shared.mechanisms.interface import Placement
from commingle.shared.mechanisms.prediction import Planner, Prediction, RegressionTask
from commingle.shared.mechanisms.rows.block import Dgm
from commingle.shared.release.checks import terms_of
from commingle.shared.release.plan import plan_blocks
from tests.world.consortium import SCHEMAS, Consortium, rows_of, write_csv
from tests.world.noise import seeded_noise

TRUST = "Parties must trust that toys are harmless."
NAMES = ("clinic", "insurer")
N, EPSILON = 400, 100.0


class Reversed(Placement):
    """The last rank comes first."""

    def total(self) -> NDArray[np.int64]:
        return super().total()[::-1]


class ToyPlanner(Planner):
    """Knows nothing, and says so."""

    def predict(self, design: Terms, task: RegressionTask) -> Prediction:
        return Prediction(
            covariance=None,
            level_variance=1.0,
            r_squared=0.5,
            r_squared_constant=-task.yy / design.n,
            told_apart=True,
            reliable=False,
        )


class Toy(Dgm):
    """Published: every subject's row, the last first."""

    publishes = "toy rows"

    def trust(self, *, proved: bool) -> str:  # noqa: ARG002 - as in `Mechanism`
        return TRUST

    def problems(self, spec: ReleaseSpec) -> list[str]:
        return [*super().problems(spec), *(["a toy is for at least 10 subjects"] if spec.n < 10 else [])]

    def squared_sensitivity(self, terms: Terms, party: PartyTerms, adjacency: Adjacency) -> int:
        return 4 * super().squared_sensitivity(terms, party, adjacency)

    def window(self, terms: Terms, columns: int, places: range) -> Placement:  # noqa: ARG002 - as in `Mechanism`
        return Reversed(places, d=columns)

    @property
    def fit(self) -> FitMethod:
        plain = super().fit
        own: dict[str, Estimator] = {"toy_errors": plain.estimators["measurement_error"], "constant": CONSTANT}
        return replace(plain, estimators=own, inference="toy_errors")

    @property
    def planner(self) -> Planner:
        return ToyPlanner()


TOY = Toy()


@pytest.fixture(scope="module", autouse=True)
def _one_registry_line() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MECHANISMS, "toy", TOY)
        patch.setattr(terms, "MECHANISM_NAMES", (*terms.MECHANISM_NAMES, "toy"))
        yield


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return Release.of(published(tmp_path_factory.mktemp("toys")))


def study(**changes: object) -> Study:
    parties = [{"name": name, "dataset": "main", "attributes": SCHEMAS[name]} for name in NAMES]
    asked = {"study": "Toys", "mechanism": "toy", "epsilon": EPSILON, "delta": 1e-5, "n": N, "parties": tuple(parties)}
    return Study.model_validate(asked | changes, strict=False)


def published(root: Path) -> ReleaseFiles:
    """A release of the toy: proposed, approved by the parties' own rules, uploaded, published."""
    consortium = Consortium(root)
    hub = consortium.coordinator.hub
    everything = frozenset({"toy"})
    rule = AutoApproval(proposer=hub.key.fingerprint, mechanisms=everything, max_rho=100)
    policy = Policy(mechanisms=everything, max_epsilon=EPSILON, auto_approve=(rule,))
    for name in NAMES:
        consortium.add(name, policy=policy, epsilon_cap=2 * EPSILON)
        write_csv(consortium.table(name), rows_of(name, N))
        with consortium.agent(name) as agent:
            consortium.register(agent)
    consortium.pin_everybody()
    try:
        release = consortium.propose(mechanism="toy", n=N, epsilon=EPSILON)
        for name in (*NAMES, *NAMES):
            consortium.step(name, draw=seeded_noise(list(name.encode())))
        assert consortium.state(release) == "published"
        got = {kind: hub.http.get(f"/v1/releases/{release}/{kind}") for kind in ("manifest", "matrix", "moments")}
        return ReleaseFiles(**{kind: answer.content for kind, answer in got.items()})
    finally:
        hub.close()


def test_registered_mechanism_goes_from_proposal_to_fit(release: Release) -> None:
    assert (release.spec.mechanism, release.privacy.trust) == ("toy", TRUST)
    fitted = release.fit("charges")
    assert (fitted.mechanism, fitted.estimator, fitted.rows) == ("toy", "toy_errors", N)
    assert np.isfinite(fitted.standard_errors).all()
    assert "mechanism toy" in fitted.summary()
    assert np.isfinite(release.partial_correlations().standard_errors[0, 1])
    with pytest.raises(EstimatorKindError, match="does not apply to a release of toy rows"):
        release.fit("charges", estimator="shrunken")


def test_published_rows_are_the_toys_own(release: Release) -> None:
    """Its noise is twice that of dgm, its rows are reversed: nothing but its folder could have made them so."""
    sigmas = [p.sigma for p in plan_blocks(release.spec)]
    plain = [p.sigma for p in plan_blocks(release.spec.model_copy(update={"mechanism": "dgm"}))]
    np.testing.assert_allclose(sigmas, np.multiply(2, plain), rtol=1e-3)
    charges = {row["subject"]: min(float(row["charges"]), 200.0) / 100 - 1 for row in rows_of("insurer", N)}
    by_rank = [charges[subject] for subject in sorted(charges)]
    reversed_rows, rows = np.corrcoef([by_rank[::-1], by_rank, release.matrix()[:, -1]])[:2, 2]
    assert reversed_rows > 0.5 > 5 * abs(rows)


def test_registered_mechanism_is_planned_and_worded() -> None:
    made = plan(terms_of(with_sketch(study())))
    assert (made.forecast.mechanism, made.forecast.r_squared, made.forecast.best_k) == ("toy", 0.5, None)
    assert [p.mechanism for p in made.mechanisms] == [*MECHANISMS]
    assert made.advice.startswith("toy suits best: expected R\N{SUPERSCRIPT TWO} 0.50. ")
    assert TRUST in made.advice


def test_mechanism_says_itself_what_is_wrong_with_a_spec(trio: Consortium) -> None:
    assert forecast_of(trio.spec(mechanism="toy", n=10)) is not None
    with pytest.raises(SpecError, match="a toy is for at least 10 subjects"):
        trio.spec(mechanism="toy", n=9)


def test_mechanism_that_is_not_registered_is_refused() -> None:
    with pytest.raises(ValidationError, match="Input should be 'rmgm', 'dgm', 'moments' or 'toy'"):
        study(mechanism="nonsense")
