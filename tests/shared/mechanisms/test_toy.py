"""One registry line makes a mechanism: from a study to a fit, through the real coordinator and the real agents."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from commingle import Release
from commingle.party_agent.home.policy import AutoApproval, Policy
from commingle.services.client.files import ReleaseFiles
from commingle.shared.documents import terms
from commingle.shared.documents.errors import SpecError
from commingle.shared.documents.study import Study
from commingle.shared.estimation.errors import EstimatorKindError
from commingle.shared.forecast.curves import plan
from commingle.shared.forecast.forecast import forecast_of, with_sketch
from commingle.shared.mechanisms.registry import MECHANISMS
from commingle.shared.release.plan import plan_blocks
from commingle.shared.release.resolve import terms_of
from tests.shared.mechanisms.toy import TOY, TRUST
from tests.world.consortium import SCHEMAS, Consortium, consortium_of, rows_of, write_csv
from tests.world.noise import seeded_noise

NAMES = ("clinic", "insurer")
N, EPSILON = 400, 100.0


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
    assert "Mechanism: toy" in " ".join(fitted.summary().split())
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


def test_mechanism_says_itself_what_is_wrong_with_a_spec(tmp_path: Path) -> None:
    consortium = consortium_of(tmp_path, *NAMES)
    assert forecast_of(consortium.spec(mechanism="toy", n=10)) is not None
    with pytest.raises(SpecError, match="a toy is for at least 10 subjects"):
        consortium.spec(mechanism="toy", n=9)


def test_mechanism_that_is_not_registered_is_refused() -> None:
    with pytest.raises(ValidationError, match="Input should be 'rmgm', 'dgm', 'moments' or 'toy'"):
        study(mechanism="nonsense")
