"""From request to signed result: what is checked, what is paid, what is never computed twice."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from numpy.random import Generator, default_rng
from pydantic import ValidationError

from commingle.party_agent.cli.regression import show_regression
from commingle.party_agent.edge.views import export_audit, regression_view
from commingle.party_agent.errors import ConflictError, NotFoundError
from commingle.party_agent.home.policy import OpeningHours, Policy, RegressionPolicy
from commingle.party_agent.ledger.store import Regression
from commingle.party_agent.private.regression.regress import METHODS, STAGED, WITH_PUBLIC_ROWS
from commingle.party_agent.private.snapshot import Debit
from commingle.party_agent.regression.service import Regressions
from commingle.party_agent.rounds.agent import Agent
from commingle.shared.documents.dsse import seal
from commingle.shared.documents.model import encode
from commingle.shared.documents.regression import (
    PublicSecondMoments,
    RegressionMethod,
    RegressionRequest,
    RegressionResult,
    verify_regression,
)
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.dp.accounting import Cost, Loss, Rho
from commingle.shared.dp.noise import rounded_gaussian
from commingle.shared.errors import CommingleError, ParameterError, SpecError, VerificationError
from commingle.shared.release.audit import verify_party_audit
from commingle.shared.release.charge import ChargeTerms
from commingle.shared.runtime.console import PlainConsole
from tests.party_agent.regression.asking import (
    ABOUT,
    ATTRIBUTES,
    EVERYTHING,
    ROWS,
    clinic,
    register,
    request,
    result_of,
    table,
)
from tests.party_agent.releasing import publish
from tests.world.consortium import Consortium, Noise, soon, strictly, write_csv
from tests.world.local_api import alone


def policy_of(**rules: object) -> Policy:
    return Policy.model_validate({"regressions": {"max_epsilon": 3.0}, **rules})


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Consortium:
    """For requests that are refused: nothing is ever spent here."""
    return clinic(tmp_path_factory.mktemp("untouched"))


def verified(done: Regression, *, by: str | None = None) -> RegressionResult:
    assert done.document is not None
    return verify_regression(encode(done.document), trusted_party=by).document


def require_refused(hospital: Consortium, asked: RegressionRequest, kind: type[CommingleError], said: str) -> str:
    """It costs nothing; the remedy."""
    with hospital.agent("clinic") as agent:
        with pytest.raises(kind, match=said) as refused:
            Regressions(agent).ask(asked)
        assert agent.ledger.charges() == {}
    return refused.value.remedy


NARROW = {"bounds": {"charges": (10.0, 80.0)}}


@pytest.mark.parametrize("changes", [{}, *({**NARROW, "mapping": each} for each in ("maximum", "per_row_with_label"))])
def test_coefficients_come_near_the_truth_in_original_units_and_the_document_verifies(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    hospital = clinic(tmp_path, rows=20_000)
    with hospital.agent("clinic", draw=rounded_gaussian) as agent:
        done = Regressions(agent).ask(request(epsilon=3.0, **changes))
        result = verified(done, by=agent.identity.signing_key.fingerprint)
    assert {c.label: c.original for c in result.coefficients} == pytest.approx(
        {"(intercept)": 10, "age": 0.5, "smoker[yes]": 20}, rel=0.15
    )  # OS entropy; standard deviations of 200 runs: 0.11, 0.002 and 0.05, so that 0.15 is at least 12 of them
    assert (result.n, result.method, result.calibration) == (20_000, "ssp", "analytic")
    assert result.privacy.epsilon == pytest.approx(3.0, rel=1e-6)
    assert done.charge.loss == result.privacy.loss
    if changes:
        assert isinstance(result.target, NumericAttribute)
        assert (result.target.lower, result.target.upper) == (10.0, 80.0)


@pytest.mark.parametrize("method", ["two_stage", "ssp", "adassp"])
def test_marked_features_are_two_terms_and_the_document_verifies(
    tmp_path: Path, method: RegressionMethod, capsys: pytest.CaptureFixture[str]
) -> None:
    hospital = clinic(tmp_path, rows=20_000)
    rows = [{**row, "age": "" if i % 4 == 0 else row["age"]} for i, row in enumerate(table(20_000))]
    write_csv(hospital.table("clinic"), rows)
    marked = NumericAttribute(name="age", lower=20, upper=80, missing="indicator")
    with hospital.agent("clinic", draw=rounded_gaussian) as agent:
        register(hospital, agent, replace=True, attributes=(ATTRIBUTES[0], marked, *ATTRIBUTES[2:]))
        done = Regressions(agent).ask(request(method=method, epsilon=3.0))
        found = verified(done, by=agent.identity.signing_key.fingerprint)
        with pytest.raises(SpecError, match="age may be missing"):
            Regressions(agent).ask(request(2, method=method, target="age", features=("smoker",)))
    fitted = {c.label: c.original for c in found.coefficients}
    assert list(fitted) == ["(intercept)", "age", "age[missing]", "smoker[yes]"]
    # missing at random: rows without an age are as others at the mean age, which is the midpoint
    # OS entropy; standard deviations of 25 runs of each: 0.0024 and 0.098 at most, means within 0.0023 and 0.08
    assert fitted["age"] == pytest.approx(0.5, abs=0.03)
    assert fitted["age[missing]"] == pytest.approx(0, abs=1.2)
    show_regression(PlainConsole(), regression_view(done), None)
    assert "age: missing cells are marked in a column of their own, age[missing]" in capsys.readouterr().out


def test_same_request_again_is_the_same_bytes_without_noise_or_charge(hospital: Consortium) -> None:
    noise = Noise()
    with hospital.agent("clinic", draw=noise) as agent:
        once = Regressions(agent).ask(request())
        drawn, spent = len(noise.calls), agent.ledger.spent()
        assert Regressions(agent).ask(request()) == once
        assert (len(noise.calls), agent.ledger.spent()) == (drawn, spent)
        other = Regressions(agent).ask(request(2))
        assert agent.ledger.spent().units == 2 * spent.units
    assert other.request.id != once.request.id


@pytest.mark.parametrize(
    ("rules", "changes", "rule"),
    [
        ({"regressions": {"methods": ["adassp"]}}, {}, "regressions.methods"),
        ({"regressions": {"max_epsilon": 0.5}}, {}, "regressions.max_epsilon"),
        ({"max_epsilon": 0.5}, {}, "regressions.max_epsilon"),
        ({"max_delta": 1e-7}, {}, "max_delta"),
        ({"min_n": ROWS + 1}, {}, "min_n"),
        ({"max_releases_per_day": 0}, {}, "max_releases_per_day"),
        ({"dataset_caps": {"*": 0.5}}, {}, "dataset_caps"),
        ({"opening_hours": OpeningHours(weekdays=frozenset())}, {}, "opening_hours"),
        (
            {"regressions": {"methods": sorted(EVERYTHING)}},
            {"method": "objpert"},
            "regressions.floating_point_noise: the noise of objpert is floating point",
        ),
    ],
)
def test_policy_refuses_naming_its_rule_and_nothing_is_spent(
    untouched: Consortium, rules: dict[str, Any], changes: dict[str, Any], rule: str
) -> None:
    untouched.homes["clinic"].save_policy(policy_of(**rules))
    require_refused(untouched, request(**changes), ConflictError, rule)


def test_cap_of_the_population_holds_for_regressions(tmp_path: Path) -> None:
    with clinic(tmp_path, epsilon_cap=1.5).agent("clinic") as agent:
        regressions = Regressions(agent)
        regressions.ask(request(1))
        regressions.ask(request(2))
        said = "epsilon_cap: the budget of population default does not suffice: this costs epsilon"
        with pytest.raises(ConflictError, match=said) as refused:
            regressions.ask(request(3))
        assert refused.value.remedy.startswith("Ask for less than is left")
        assert "policy.json" not in refused.value.remedy
        assert len(regressions.all()) == 2
        assert agent.ledger.lost().loss.epsilon(agent.ledger.cap.delta) <= 1.5


def test_day_of_regressions_is_counted_with_releases_and_ends(tmp_path: Path) -> None:
    hospital = clinic(tmp_path, policy=policy_of(max_releases_per_day=1))
    with hospital.agent("clinic") as agent:
        Regressions(agent).ask(request(1))
        with pytest.raises(ConflictError, match="max_releases_per_day"):
            Regressions(agent).ask(request(2))
        soon(hospital, hours=25)
        Regressions(agent).ask(request(2))


def test_regression_dated_far_ahead_by_a_wrong_clock_fills_no_later_day(tmp_path: Path) -> None:
    hospital = clinic(tmp_path, policy=policy_of(max_releases_per_day=1))
    soon(hospital, hours=24 * 365)
    with hospital.agent("clinic") as agent:
        Regressions(agent).ask(request(1))
        soon(hospital, hours=-24 * 365)
        Regressions(agent).ask(request(2))
        with pytest.raises(ConflictError, match="max_releases_per_day"):
            Regressions(agent).ask(request(3))


@pytest.mark.parametrize("name", sorted({**METHODS, **STAGED}))
def test_every_method_runs_with_consent_and_states_what_it_was_charged(tmp_path: Path, name: str) -> None:
    rules = RegressionPolicy(methods=EVERYTHING, max_epsilon=3.0, floating_point_noise=True)
    with clinic(tmp_path, policy=Policy(regressions=rules), rows=300).agent("clinic") as agent:
        done = Regressions(replace(agent, generator=_seeded)).ask(request(method=name))
        found = verified(done)
        assert found.privacy.cost == agent.ledger.lost() == done.charge.cost
        assert found.privacy.epsilon <= 1.0
        assert found.privacy.exact_noise == (name in {"two_stage", "ssp", "adassp", "boosted_adassp"})
        assert agent.ledger.lost().loss.epsilon(agent.ledger.cap.delta) > 0


@pytest.mark.parametrize("delta", [1e-300, 1e-5, 0.5])
@pytest.mark.parametrize("epsilon", [1e-6, 50.0])
@pytest.mark.parametrize("name", sorted(EVERYTHING))
def test_budget_at_the_ends_of_its_domain_buys_a_result_or_is_not_spent(
    tmp_path: Path, name: str, epsilon: float, delta: float
) -> None:
    rules = RegressionPolicy(methods=EVERYTHING, max_epsilon=50.0, floating_point_noise=True)
    public = public_moments() if name in WITH_PUBLIC_ROWS else None
    asked = request(method=name, epsilon=epsilon, delta=delta, public=public)
    with clinic(tmp_path, policy=Policy(regressions=rules), rows=50, epsilon_cap=1e3).agent("clinic") as agent:
        try:
            assert Regressions(agent).ask(asked).document is not None
        except CommingleError:
            assert not agent.ledger.charges()


def test_epsilon_that_no_method_is_made_for_is_no_request() -> None:
    with pytest.raises(ValidationError, match="greater than or equal to"):
        RegressionRequest.model_validate(request().model_dump() | {"epsilon": 1e-7})


def _seeded() -> Generator:
    return default_rng(1)


def public_moments() -> PublicSecondMoments:
    moment = ((1.0, 0.0, 0.0), (0.0, 0.3, 0.0), (0.0, 0.0, 1.0))
    return PublicSecondMoments(rows=50, features=moment, label=0.3)


@pytest.mark.parametrize("method", ["dp_pmtolse", "dp_pmtse"])
def test_public_method_runs_on_public_moments_and_publishes_them(tmp_path: Path, method: RegressionMethod) -> None:
    with clinic(tmp_path, rows=20_000).agent("clinic", draw=rounded_gaussian) as agent:
        done = Regressions(agent).ask(request(method=method, public=public_moments(), epsilon=3.0))
    result = result_of(done)
    verified(done)
    assert result.request.public == public_moments()
    # OS entropy: 8 standard deviations of 0.37 (400 runs)
    assert result.coefficients[2].original == pytest.approx(20, rel=0.15)


def test_auto_says_why_it_chose(hospital: Consortium) -> None:
    with hospital.agent("clinic") as agent:
        result = result_of(Regressions(agent).ask(request(method="auto", epsilon=0.1)))
        divided = result_of(Regressions(agent).ask(request(2, method="auto", epsilon=0.1, row_norm=2.0)))
    assert (result.method, divided.method) == ("two_stage", "boosted_adassp")  # which leaves rows as they are asked for
    assert result.reason.startswith("predicted error below half of the signal at n = 3000, 3 columns and epsilon 0.1")


@pytest.mark.parametrize("keyed", [False, True])
def test_two_stages_find_the_slopes_and_their_document_verifies(tmp_path: Path, *, keyed: bool) -> None:
    with clinic(tmp_path, keyed=keyed).agent("clinic", draw=rounded_gaussian) as agent:
        asked = request(method="two_stage", keyed=keyed, features=("age", "smoker", "blood"), epsilon=1.0)
        done = Regressions(agent).ask(asked)
        found = verified(done)
        assert verify_party_audit(audited(agent)).told.lost == done.charge.cost
    assert {name: len(values) for name, values in found.published.items()} == {
        "sigmas": 3,
        "sums": 7 + keyed,
        "moments": 20,
    }
    assert found.privacy.epsilon == pytest.approx(1.0, rel=1e-6)
    own = found.privacy.loss.rho
    assert done.charge.cost == Cost(Loss(own), Loss(Rho(-(-own.units * 201 // 80))) if keyed else None)
    assert found.privacy.exact_noise
    # OS entropy: 8 standard deviations of 0.25 about 19.6 (60 runs), which rows that are cut leave of 20
    assert found.coefficients[2].original == pytest.approx(19.6, abs=2)


def test_policy_that_leaves_auto_nothing_costs_nothing(untouched: Consortium) -> None:
    untouched.homes["clinic"].save_policy(policy_of(regressions={"methods": ["objpert"]}))
    require_refused(untouched, request(method="auto"), SpecError, "no method to choose from")


def test_regression_of_a_keyed_data_set_is_charged_presence_keeps_replacement_and_verifies(tmp_path: Path) -> None:
    with clinic(tmp_path / "listed").agent("clinic", draw=rounded_gaussian) as agent:
        plain = Regressions(agent).ask(request())
    with clinic(tmp_path / "keyed", keyed=True).agent("clinic", draw=rounded_gaussian) as agent:
        done = Regressions(agent).ask(request(2, keyed=True))
        found = verified(done)
        history = verify_party_audit(audited(agent))
    assert found.privacy.adjacency == "add_remove"
    assert found.privacy.epsilon == pytest.approx(1.0, rel=1e-6)
    assert history.told.lost == done.charge.cost == found.privacy.cost
    assert done.charge.loss.rho.units == pytest.approx(plain.charge.loss.rho.units, rel=1e-9)
    assert done.charge.cost.replaced.rho.units == pytest.approx(done.charge.loss.rho.units * 9 / 4, rel=1e-9)


@pytest.mark.parametrize("keyed", [False, True])
def test_request_of_the_other_unit_is_refused_with_a_remedy(tmp_path: Path, *, keyed: bool) -> None:
    said = "whose number is private" if keyed else "everybody knows"
    remedy = require_refused(clinic(tmp_path, keyed=keyed), request(keyed=not keyed), SpecError, said)
    assert remedy.startswith("Give n" if keyed else "Leave n out")


FIGURES = {"request", "coefficients", "published", "created", "ledger_head"}
PUBLIC = PublicSecondMoments(rows=100, features=((1.0, 0, 0), (0, 0.4, 0), (0, 0, 1.0)), label=0.3)


@pytest.mark.parametrize("name", ["auto", *sorted(EVERYTHING - {"ops"})])
def test_result_of_a_table_with_one_row_less_differs_in_noisy_figures_only_under_add_remove(
    tmp_path: Path, name: RegressionMethod
) -> None:
    """Neither the number that is stated nor the reason, the noise or the shape of a figure follows from rows."""
    rules = RegressionPolicy(methods=EVERYTHING, floating_point_noise=True, max_epsilon=3.0)
    public = PUBLIC if name in {"dp_pmtolse", "dp_pmtse"} else None
    found = []
    for rows in (300, 299):
        hospital = clinic(tmp_path / str(rows), policy=Policy(regressions=rules), rows=rows, keyed=True)
        with hospital.agent("clinic", draw=(noise := Noise())) as agent:
            asked = request(method=name, keyed=True, epsilon=0.5, public=public)
            done = Regressions(agent).ask(asked)
            result = verified(done)
            assert agent.ledger.lost() == result.privacy.cost
        figures = {figure: len(values) for figure, values in result.published.items()}
        stated = result.model_dump(exclude=FIGURES)
        found.append((asked.id, done.charge.cost, stated, figures, noise.calls, result.privacy.loss))
    assert found[0] == found[1]
    assert found[0][2]["n"] == ABOUT


def test_policy_looks_at_what_a_replaced_row_learns_where_it_says_so(tmp_path: Path) -> None:
    rules = {"regressions": RegressionPolicy(max_epsilon=1.2)}
    with clinic(tmp_path / "presence", policy=Policy(**rules), keyed=True).agent("clinic") as agent:
        Regressions(agent).ask(request(keyed=True))
    both = Policy(**rules, replacement=True)
    hospital = clinic(tmp_path / "both", policy=both, keyed=True)
    require_refused(hospital, request(keyed=True), ConflictError, r"epsilon 1.5\d* \(replace_one\) > 1.2")


def test_without_an_intercept_the_encoded_one_is_zero_and_per_row_has_no_original_units(hospital: Consortium) -> None:
    with hospital.agent("clinic") as agent:
        done = Regressions(agent).ask(request(intercept=False, mapping="per_row", method="auto"))
        result = verified(done)
    assert result.coefficients[0].encoded == 0
    assert {c.original for c in result.coefficients} == {None}


_SHRUNKEN = PublicSecondMoments(rows=9, features=((1e-308, 0, 0), (0, 1e-308, 0), (0, 0, 1e-308)), label=1.0)


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({"dataset": "other"}, NotFoundError, "no data set"),
        ({"features": ("height",)}, SpecError, "height"),
        ({"target": "blood"}, SpecError, "three levels"),
        ({"method": "dp_pmtolse"}, SpecError, "needs public rows"),
        ({"method": "two_stage", "mapping": "per_row"}, SpecError, "maps rows itself"),
        ({"method": "two_stage", "row_norm": 1.0}, SpecError, "maps rows itself"),
        ({"method": "two_stage", "label_bound": 0.5}, SpecError, "maps rows itself"),
        ({"method": "two_stage", "epsilon": 1e-6}, ParameterError, "too much noise"),
        ({"public": PublicSecondMoments(rows=9, features=((1.0,), (1.0,)), label=1.0)}, SpecError, "not 3 x 3"),
        ({"public": _SHRUNKEN}, SpecError, "no intercept of ones"),
        ({"calibration": "published"}, ParameterError, "not offered"),
        ({"calibration": "classical", "epsilon": 2.5}, ParameterError, "classical"),
        ({"bounds": {"age": (10.0, 70.0)}}, SpecError, "bounds of age"),
        ({"bounds": {"smoker": (0.0, 1.0)}}, SpecError, "bounds of smoker"),
        ({"bounds": {"age": (70.0, 30.0)}}, SpecError, "bounds of age"),
        ({"bounds": {"age": (30.0, 30.0)}}, SpecError, "bounds of age"),
    ],
)
def test_request_that_makes_no_sense_costs_nothing(
    untouched: Consortium, changes: dict[str, Any], kind: type[CommingleError], said: str
) -> None:
    untouched.homes["clinic"].save_policy(policy_of())
    require_refused(untouched, request(**changes), kind, said)


def test_method_that_needs_the_exact_number_of_rows_is_refused_of_a_keyed_data_set(tmp_path: Path) -> None:
    asked = request(method="ops", keyed=True)
    require_refused(clinic(tmp_path, keyed=True), asked, SpecError, "exact number of rows")


def audited(agent: Agent) -> bytes:
    return encode(export_audit(alone(agent)))


def test_audit_holds_the_regression_with_its_delta(tmp_path: Path) -> None:
    rules = RegressionPolicy(methods=EVERYTHING, floating_point_noise=True)
    with clinic(tmp_path, policy=Policy(regressions=rules), rows=300).agent("clinic") as agent:
        done = Regressions(agent).ask(request(method="objpert"))
        history = verify_party_audit(audited(agent))
    assert history.told.lost == done.charge.cost == Cost(Loss.approximate(1.0, 1e-6))
    assert done.document is not None
    assert history.told.signed[done.request.id, "regression"].digest == done.document.envelope.digest


def test_audit_of_a_ledger_that_was_debited_less_than_the_regression_states_is_refused(hospital: Consortium) -> None:
    with hospital.agent("clinic") as agent:
        honest = result_of(Regressions(agent).ask(request()))
        forged, ledger, now = request(2), agent.ledger, agent.clock()
        with agent.store.transaction() as db:
            later = now + timedelta(days=1)
            terms = ChargeTerms(dataset="main", study="", kind="regression", expires=later, coordinator="")
            ledger.reserve(db, forged.id, Cost(Loss(Rho(1))), terms, snapshot="0" * 64)
            debit = ledger.debit_in(db, forged.id, approvals=forged.id, now=now)
            assert isinstance(debit, Debit)
            head = ledger.head(db)
            document = honest.model_copy(update={"request": forged, "ledger_head": head})
            envelope = seal(document, key=agent.identity.signing_key)
            assert ledger.record_block(db, debit, envelope.digest)
            ledger.sign_off(db, forged.id, "regression", envelope)
        with pytest.raises(VerificationError, match="another loss"):
            verify_party_audit(audited(agent))


def test_releases_go_on_beside_regressions_and_share_their_budget(pair: Consortium) -> None:
    with pair.agent("clinic") as agent:
        asked = request(target="bmi", features=("age",))
        Regressions(agent).ask(asked)
    release = publish(pair)
    with pair.agent("clinic") as agent:
        kinds = {release: charge.terms.kind for release, charge in agent.ledger.charges().items()}
        assert kinds == {asked.id: "regression", release: "release"}
        assert agent.lost_by("main") == {"main": agent.ledger.lost()}
        agent.step(strictly)
        verify_party_audit(audited(agent))


def test_document_still_names_its_key_after_a_rotation(hospital: Consortium) -> None:
    with hospital.agent("clinic") as agent:
        done = Regressions(agent).ask(request())
        home = agent.home
    home.prepare_next_key()
    home.adopt_next_key()
    with hospital.agent("clinic") as agent:
        again = Regressions(agent).get(request().id)
        assert agent.identity.former_keys
    assert again.document == done.document
    assert isinstance(again.document, SignedDocument)
