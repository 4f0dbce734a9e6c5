"""Every rule of a party's own policy, one at a time."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest

from commingle.party_agent.home.datasets import Dataset
from commingle.party_agent.home.policy import (
    AutoApproval,
    OpeningHours,
    Policy,
    RegressionPolicy,
    Situation,
    Usage,
    approves_itself,
    asks_trust,
    examine,
    examine_again,
)
from commingle.party_agent.private.sources import FileSource
from commingle.shared.documents.dsse import SigningKey
from commingle.shared.documents.schema import Attribute, BinaryAttribute, NumericAttribute
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.study import Crossed, CutNumber, Study, StudyParty
from commingle.shared.documents.terms import Bounds
from commingle.shared.dp.accounting import FREE, ZERO, Cost, Loss, Rho
from commingle.shared.release.checks import closed
from commingle.shared.release.plan import BlockPlan, plan_block
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.settings import load_settings
from tests.world.documents import spec_of, study_of
from tests.world.tampering import NOW

MOMENTS: Mapping[str, Any] = {"mechanism": "moments", "k": None, "fraction_bits": 14}
TRUSTED: tuple[Bounds | None, ...] = ("trusted", None)
"""An exchange in which others' bounds are trusted."""
OWN, OTHER = SigningKey(b"\x01" * 32), SigningKey(b"\x02" * 32)
X = NumericAttribute(name="x", lower=0, upper=10, unit="kg")
B = BinaryAttribute(name="b", levels=("no", "yes"))
DATASET = Dataset(
    name="main",
    source=FileSource(path="t.csv"),
    subject_id="id",
    subjects="listed",
    attributes=(X, B),
    n=50,
    clipped={"x": 0, "b": 0},
    missing={"x": 0, "b": 0},
    snapshot="0" * 64,
)


def spec_with(**changes: Any) -> ReleaseSpec:
    y = NumericAttribute(name="y", lower=0, upper=1)
    study = study_of({"own": (X, B), "other": (y,)}, k=20, delta=1e-6, n=50, lifetime_hours=48)
    spec = spec_of(study, {"own": OWN, "other": OTHER}, proposer=OTHER, seed=bytes(32), now=NOW)
    return spec.model_copy(update=changes)


GOOD = Situation(
    policy=Policy(mechanisms=frozenset({"rmgm"}), max_epsilon=1.0, max_delta=1e-6, max_cells=40, max_lifetime_hours=48),
    pins={"other": OTHER.fingerprint},
    dataset=DATASET,
    now=NOW,
)


def plan_of(spec: ReleaseSpec) -> BlockPlan:
    return plan_block(spec, spec.party("own"))


def found(spec: ReleaseSpec, situation: Situation = GOOD) -> list[tuple[str, str | None]]:
    return [(f.rule, f.reason) for f in examine(spec, spec.party("own"), plan_of(spec), situation)]


def situation_with(usage: Usage, **policy: Any) -> Situation:
    return replace(GOOD, policy=GOOD.policy.model_copy(update=policy), usage=usage)


def registered(**changes: Any) -> Situation:
    return replace(GOOD, dataset=DATASET.model_copy(update=changes))


Z = NumericAttribute(name="z", lower=0, upper=1)
AHEAD = NOW + timedelta(days=3650)
BY_TWO = {"subject_id": ("a", "b"), "id_rules": ("digits/1", "date/1"), "n": 51}
ELSEWHERE = {"another": 1e-3}
FOUND: dict[str, tuple[dict[str, Any], Situation, list[tuple[str, str | None]]]] = {
    "at the edge of every rule": ({}, GOOD, []),
    "dated ahead": (
        {"created": AHEAD, "expires": AHEAD + timedelta(hours=1)}, GOOD, [("max_lifetime_hours", "policy")],
    ),
    "expired": ({}, replace(GOOD, now=NOW + timedelta(hours=48)), [("expires", "expired")]),
    "a lifetime as large as a policy likes": ({}, situation_with(Usage(), max_lifetime_hours=1e300), []),
    "a member that is not pinned": ({}, replace(GOOD, pins={}), [("pins", None)]),
    "another name is pinned": ({}, replace(GOOD, pins={"Other": OTHER.fingerprint}), [("pins", None)]),
    "another key is pinned": ({}, replace(GOOD, pins={"other": OWN.fingerprint}), [("pins", None)]),
    "the own name needs no pin": ({}, replace(GOOD, pins={**GOOD.pins, "own": "f" * 64}), []),
    "no such data set": ({}, replace(GOOD, dataset=None), [("dataset", None)]),
    "ids by other rules": ({"id_rules": ("digits/1",)}, GOOD, [("id_rules", None)]),
    "ids by the same rule, named": ({"id_rules": ("exact/1",)}, GOOD, []),
    "ids of two columns": ({}, registered(**BY_TWO), [("id_rules", None)]),
    "more attributes in another order": ({}, registered(attributes=(Z, B, X)), []),
    "fewer subjects": ({}, registered(n=49), [("subjects", "subjects")]),
    "more subjects": ({}, registered(n=51), [("subjects", "subjects")]),
    "as many subjects as the policy wants": ({}, situation_with(Usage(), min_n=50), []),
    "fewer subjects than the policy wants": ({}, situation_with(Usage(), min_n=51), [("min_n", "policy")]),
    "caps of others": ({}, situation_with(Usage(), dataset_caps=ELSEWHERE, study_caps=ELSEWHERE), []),
    "one release of two a day": ({}, situation_with(Usage(approved_today=1), max_releases_per_day=2), []),
    "two releases of two a day": (
        {}, situation_with(Usage(approved_today=2), max_releases_per_day=2), [("max_releases_per_day", None)],
    ),
    "a seed that was used before": ({}, situation_with(Usage(replayed="ab" * 32)), [("seed", "policy")]),
}  # fmt: skip


@pytest.mark.parametrize("what", FOUND)
def test_what_speaks_against_a_proposal_is_found_and_nothing_else(what: str) -> None:
    changes, situation, expected = FOUND[what]
    assert found(spec_with(**changes), situation) == expected


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"mechanism": "dgm", "k": None}, "mechanisms"),
        ({"epsilon": 1.0000001}, "max_epsilon"),
        ({"delta": 1.1e-6}, "max_delta"),
        ({"k": 21}, "max_cells"),
        ({"expires": NOW + timedelta(hours=48, seconds=1)}, "max_lifetime_hours"),
    ],
)
def test_each_rule_refuses_what_lies_just_beyond_it(changes: dict[str, Any], rule: str) -> None:
    findings = found(spec_with(**changes))
    assert (rule, "policy") in findings
    besides = {"mechanisms": "max_cells"}  # dgm has more rows
    assert {r for r, _ in findings} <= {rule, besides.get(rule)}


@pytest.mark.parametrize(("most", "refused"), [(149, True), (150, False)])
def test_cells_of_an_exchange_are_all_that_are_exchanged(most: int, *, refused: bool) -> None:
    """50 subjects, three columns of both; the block has twelve cells."""
    policy = GOOD.policy.model_copy(
        update={"max_cells": most, "mechanisms": frozenset({"moments"}), "trusted_bounds": True}
    )
    findings = found(spec_with(**MOMENTS, bounds="trusted"), replace(GOOD, policy=policy))
    assert findings == ([("max_cells", "policy")] if refused else [])


def test_small_tables_in_many_buckets_are_as_much_work_as_large_ones() -> None:
    keyed = [
        StudyParty(name=name, dataset="main", attributes=(NumericAttribute(name=column, lower=0, upper=1),))
        for name, column in (("own", "x"), ("other", "y"))
    ]
    study = Study(
        study="s", mechanism="moments", epsilon=1.0, delta=1e-6, n=1 << 20, buckets=1 << 24, parties=tuple(keyed)
    )
    spec = spec_of(study, {"own": OWN, "other": OTHER}, proposer=OTHER, seed=bytes(32), now=NOW)
    policy = Policy(max_cells=10_000_000)
    assert ("max_cells", "policy") in found(spec, replace(GOOD, policy=policy))


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ((X,), "no attribute b here"),
        ((X, BinaryAttribute(name="b", levels=("yes", "no"))), "b is asked for with levels “no | yes” where"),
        (
            (X, BinaryAttribute(name="b", levels=("no", "yes"), missing="midpoint")),
            "missing error where it is midpoint",
        ),
        ((NumericAttribute(name="x", lower=0, upper=10.0000001, unit="kg"), B), "upper 10.0 where it is 10.0000001"),
        ((NumericAttribute(name="x", lower=0, upper=10, unit="g"), B), "unit kg where it is g here"),
        ((BinaryAttribute(name="x", levels=("0", "10")), B), "kind numeric where it is binary here"),
    ],
    ids=["absent", "levels in other order", "missing", "bounds", "unit", "kind"],
)
def test_attribute_that_differs_from_the_registered_one_waits_and_the_difference_is_said(
    attributes: Any, said: str
) -> None:
    situation = replace(GOOD, dataset=DATASET.model_copy(update={"attributes": attributes}))
    assert found(spec_with(), situation) == [("schema", None)]
    (only,) = examine(spec := spec_with(), spec.party("own"), plan_of(spec), situation)
    assert said in only.message


def intervals_of_x(**changed: Any) -> Attribute:
    return CutNumber.model_validate({**X.model_dump(), "cuts": (2.5, 5.0), **changed}).as_levels


def pairs_with_x(**changed: Any) -> Attribute:
    said = {"name": "both", "cross": ({**X.model_dump(), "cuts": (5.0,), **changed}, B)}
    return Crossed.model_validate(said).as_levels


@pytest.mark.parametrize("made", [intervals_of_x, pairs_with_x])
@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, []),
        ({"upper": 11.0}, ["schema"]),
        ({"unit": "g"}, ["schema"]),
        ({"missing": "indicator"}, ["schema"]),
        ({"name": "y"}, ["schema"]),
    ],
)
def test_what_is_made_of_attributes_is_of_those_that_are_registered(
    made: Callable[..., Attribute], changed: dict[str, Any], expected: list[str]
) -> None:
    (asked, other) = (spec := spec_with()).parties
    changed_to = asked.model_copy(update={"attributes": (made(**changed),)})
    findings = found(spec.model_copy(update={"parties": (changed_to, other)}))
    assert [rule for rule, _ in findings if rule != "max_cells"] == expected


def test_all_findings_are_told_at_once() -> None:
    situation = replace(GOOD, pins={}, dataset=None, now=NOW + timedelta(days=9))
    rules = [rule for rule, _ in found(spec_with(epsilon=2.0, delta=1e-5), situation)]
    assert rules == ["max_epsilon", "max_delta", "expires", "pins", "dataset"]


def approves(policy: Policy, charged: Mapping[str, Rho] | None = None, /, **changes: Any) -> bool:
    """Whether a proposal by the other party is approved without a person."""
    spec = spec_with(**changes)
    costs = {proposer: Cost(Loss(rho)) for proposer, rho in (charged or {}).items()}
    by_it, by_all = costs.get(spec.proposer, FREE), sum(costs.values(), start=FREE)
    return approves_itself(policy, spec=spec, plan=plan_of(spec), by_it=by_it, by_all=by_all)


def up_to(max_rho: float, proposer: str = "*", **changes: Any) -> Policy:
    """One rule about what is approved without a person."""
    return Policy(auto_approve=(AutoApproval(proposer=proposer, max_rho=max_rho, **changes),))


def test_policy_that_says_nothing_bounds_a_release_at_epsilon_3_and_a_regression_at_1() -> None:
    assert (Policy().max_epsilon, RegressionPolicy().max_epsilon) == (3.0, 1.0)


def test_nothing_is_approved_automatically_by_default() -> None:
    assert not approves(Policy())
    assert not approves(Policy(), **MOMENTS, bounds="proved")


def test_automatic_approval_is_per_proposer_and_up_to_its_rho() -> None:
    cost = float(plan_of(spec_with()).loss)
    assert approves(up_to(cost, OTHER.fingerprint))
    assert approves(up_to(cost))
    assert not approves(up_to(cost * (1 - 1e-9)))
    assert not approves(up_to(cost, OWN.fingerprint))
    both = (AutoApproval(proposer="*", max_rho=cost / 2), AutoApproval(proposer=OTHER.fingerprint, max_rho=cost))
    assert approves(Policy(auto_approve=both))


def test_automatic_approvals_of_one_proposer_add_up() -> None:
    charge = plan_of(spec_with()).loss
    policy = up_to(2.5 * float(charge), OTHER.fingerprint)
    approved = [approves(policy, {OTHER.fingerprint: spent}) for spent in (ZERO, charge, charge + charge)]
    assert approved == [True, True, False]


def test_rule_for_any_proposer_is_a_total_over_all_of_them() -> None:
    """Two keys, or one that was rotated, get no second allowance."""
    charge = plan_of(spec_with()).loss
    cost = float(charge)
    by_another: dict[str, Rho] = {OWN.fingerprint: charge}
    assert approves(up_to(1.5 * cost))
    assert not approves(up_to(1.5 * cost), by_another)
    assert approves(up_to(1.5 * cost, OTHER.fingerprint), by_another)


def keyed_with(**changes: Any) -> ReleaseSpec:
    spec = spec_with(**changes)
    parties = tuple(party.model_copy(update={"subjects": "keyed"}) for party in spec.parties)
    return spec.model_copy(update={"parties": parties, "alignment": "keyed"})


KEYED = replace(GOOD, dataset=DATASET.model_copy(update={"subjects": "keyed"}))


def test_keyed_study_of_the_policys_epsilon_passes_and_replacement_is_counted_where_the_policy_says_so() -> None:
    spec = keyed_with(epsilon=3.0)
    policy = GOOD.policy.model_copy(update={"max_epsilon": 3.0, "max_cells": 1000})
    assert found(spec, replace(KEYED, policy=policy)) == []
    both = policy.model_copy(update={"replacement": True})
    [finding] = examine(spec, spec.party("own"), plan_of(spec), replace(KEYED, policy=both))
    assert finding.rule == "max_epsilon"
    assert "(replace_one) > 3" in finding.message
    other = plan_of(spec).cost.replaced.epsilon(spec.delta)
    assert other > 4
    assert found(spec, replace(KEYED, policy=both.model_copy(update={"max_epsilon": other}))) == []


@pytest.mark.parametrize(("spec", "situation"), [(keyed_with(), GOOD), (spec_with(), KEYED)], ids=["keyed", "listed"])
def test_release_of_the_other_unit_than_its_data_set_is_refused_with_a_remedy(
    spec: ReleaseSpec, situation: Situation
) -> None:
    policy = situation.policy.model_copy(update={"max_cells": 1000})
    [finding] = examine(spec, spec.party("own"), plan_of(spec), replace(situation, policy=policy))
    assert (finding.rule, finding.reason) == ("subjects", None)
    assert ("without --listed" if spec.keyed else "with --listed") in finding.message


def test_what_was_approved_is_examined_again_without_what_counts_approvals() -> None:
    policy = GOOD.policy.model_copy(update={"max_releases_per_day": 0, "mechanisms": frozenset({"dgm"})})
    situation = replace(GOOD, policy=policy, pins={}, now=NOW + timedelta(hours=49), linked=False)
    spec = spec_with()
    again = examine_again(spec, spec.party("own"), plan_of(spec), situation)
    assert {finding.rule for finding in again} == {"mechanisms", "pins"}


def test_moments_are_refused_where_the_policy_does_not_name_them() -> None:
    spec = spec_with(**MOMENTS, bounds="proved")
    without = Policy(mechanisms=frozenset({"rmgm", "dgm"}))
    assert found(spec, replace(GOOD, policy=Policy())) == []
    assert found(spec, replace(GOOD, policy=without)) == [("mechanisms", "policy")]


@pytest.mark.parametrize("bounds", TRUSTED)
def test_trusted_bounds_are_refused_unless_the_policy_allows_them(bounds: Bounds | None) -> None:
    spec = spec_with(**MOMENTS, bounds=bounds)
    assert asks_trust(spec)
    assert found(spec, replace(GOOD, policy=Policy())) == [("trusted_bounds", "policy")]
    assert found(spec, replace(GOOD, policy=Policy(trusted_bounds=True))) == []
    [again] = examine_again(spec, spec.party("own"), plan_of(spec), replace(GOOD, policy=Policy()))
    assert (again.rule, again.reason) == ("trusted_bounds", "policy")
    assert "trusted to keep their rows within bounds" in again.message


@pytest.mark.parametrize("changes", [{}, {"mechanism": "dgm", "k": None}], ids=["rmgm", "dgm"])
def test_releases_without_an_exchange_ask_no_trust_in_bounds(changes: dict[str, Any]) -> None:
    spec = spec_with(**changes)
    assert (spec.bounds, asks_trust(spec)) == (None, False)
    assert found(spec, replace(GOOD, policy=Policy())) == []


@pytest.mark.parametrize("bounds", TRUSTED)
def test_trusted_bounds_are_never_approved_without_a_person(bounds: Bounds | None) -> None:
    """Whatever the rules say, and even where the policy allows such releases at all."""
    policy = up_to(100, mechanisms=frozenset({"moments"})).model_copy(update={"trusted_bounds": True})
    assert approves(policy, **MOMENTS, bounds="proved")
    assert not approves(policy, **MOMENTS, bounds=bounds)


def test_kind_is_approved_automatically_only_by_a_rule_about_it() -> None:
    unnamed, named = (up_to(100, mechanisms=frozenset(kinds)) for kinds in ({"rmgm", "dgm"}, {"moments"}))
    assert approves(up_to(100), **MOMENTS, bounds="proved")
    assert not approves(unnamed, **MOMENTS, bounds="proved")
    assert approves(named, **MOMENTS, bounds="proved")
    assert approves(unnamed)
    assert not approves(named)


def test_automatic_approval_counts_replacement_where_the_policy_says_so() -> None:
    spec = keyed_with()
    cost = plan_of(spec).cost
    most = float(cost.loss.rho)

    def approved(policy: Policy) -> bool:
        return approves_itself(policy, spec=spec, plan=plan_of(spec), by_it=FREE, by_all=FREE)

    assert approved(up_to(most))
    assert not approved(up_to(most).model_copy(update={"replacement": True}))
    assert approved(up_to(float(cost.replaced.rho)).model_copy(update={"replacement": True}))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"max_epsilon": 0}',
        '{"max_epsilon": NaN}',
        '{"max_epsilon": 1e309}',
        '{"mechanisms": ["other"]}',
        '{"replacement": "perhaps"}',
        '{"auto_approve": [{"proposer": "*", "max_rho": -1}]}',
        '{"max_epsilom": 1}',
    ],
)
def test_policy_file_with_a_mistake_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "policy.json").write_text(text)
    with pytest.raises(SettingsError):
        load_settings(Policy, tmp_path / "policy.json")


def test_policy_file_as_documented_is_read(tmp_path: Path) -> None:
    (tmp_path / "policy.json").write_text(
        '{"mechanisms": ["rmgm", "dgm"], "trusted_bounds": true, "replacement": true, '
        '"max_epsilon": 10, "max_delta": 1e-4, "max_cells": 100000000, "max_lifetime_hours": 2160, '
        '"auto_approve": [{"proposer": "*", "max_rho": 0.5}]}'
    )
    policy = load_settings(Policy, tmp_path / "policy.json")
    assert policy.replacement
    assert policy.trusted_bounds
    assert policy.auto_approve == (AutoApproval(proposer="*", max_rho=0.5),)


@pytest.mark.parametrize(("epsilon", "delta"), [(3.0, 1e-5), (1.0, 1e-6), (1.0, 1e-11)])
def test_exchange_at_the_most_that_policy_and_caps_allow_is_not_refused_for_its_own_delta(
    epsilon: float, delta: float
) -> None:
    spec = spec_with(**MOMENTS, bounds="proved", epsilon=epsilon, delta=delta)
    assert 0 < closed(spec).taken_by_exchange < 1e-12
    caps = {"dataset_caps": {"*": epsilon}, "study_caps": {"*": epsilon}}
    rules = {"mechanisms": frozenset({"moments"}), "max_epsilon": epsilon, "max_delta": delta}
    most = {**rules, "max_cells": 10**8, **caps}
    assert found(spec, situation_with(Usage(delta=delta), **most)) == []
    spent = Usage(delta=delta, datasets={"main": plan_of(spec).cost}, study=Cost(Loss(ZERO, delta / 2)))
    assert {rule for rule, _ in found(spec, situation_with(spent, **most))} == {"dataset_caps", "study_caps"}


@pytest.mark.parametrize(
    ("rule", "usage", "name"), [("dataset_caps", "datasets", "main"), ("study_caps", "study", "s")]
)
@pytest.mark.parametrize("named", [True, False])
def test_caps_hold_the_sum_of_all_releases(rule: str, usage: str, name: str, named: bool) -> None:
    cost = plan_of(spec_with()).loss
    cap = (cost + cost).epsilon(1e-5) * (1 + 1e-9)
    caps = {name: cap} if named else {"*": cap, "another": 1e-3}

    def findings(charged: Rho) -> list[tuple[str, str | None]]:
        lost = Cost(Loss(charged))
        charges: dict[str, Any] = {"datasets": {name: lost}} if usage == "datasets" else {usage: lost}
        return found(spec_with(), situation_with(Usage(**charges), **{rule: caps}))

    assert findings(ZERO) == findings(cost) == []
    assert findings(cost + cost) == [(rule, "budget")]


def test_cap_of_a_related_data_set_holds_too() -> None:
    cost = plan_of(spec_with()).loss
    caps = {"twin": (cost + cost).epsilon(1e-5) * (1 + 1e-9), "main": 100.0}
    for charged, expected in ((cost, []), (cost + cost, [("dataset_caps", "budget")])):
        usage = Usage(datasets={"main": Cost(Loss(charged)), "twin": Cost(Loss(charged))})
        assert found(spec_with(), situation_with(usage, dataset_caps=caps)) == expected


OFFICE = OpeningHours(
    weekdays=frozenset({"mon", "fri"}), opens=time(8), closes=time(17, 30), time_zone="America/New_York"
)


@pytest.mark.parametrize(
    ("now", "is_open"),
    [
        (datetime(2026, 1, 5, 12, 59, 59, tzinfo=UTC), False),  # Monday 07:59 in New York
        (datetime(2026, 1, 5, 13, 0, tzinfo=UTC), True),
        (datetime(2026, 1, 5, 22, 29, tzinfo=UTC), True),
        (datetime(2026, 1, 5, 22, 30, tzinfo=UTC), False),
        (datetime(2026, 1, 6, 15, 0, tzinfo=UTC), False),  # Tuesday
        (datetime(2026, 7, 6, 12, 0, tzinfo=UTC), True),  # Monday 08:00 in summer
    ],
)
def test_opening_hours_are_those_of_the_wall_clock(now: datetime, is_open: bool) -> None:
    assert OFFICE.include(now) is is_open
    spec = spec_with(created=now, expires=now + timedelta(hours=1))
    situation = replace(situation_with(Usage(), opening_hours=OFFICE), now=now)
    assert found(spec, situation) == ([] if is_open else [("opening_hours", None)])


@pytest.mark.parametrize(
    "hours",
    [
        '{"time_zone": "Mars/Olympus"}', '{"time_zone": "../../etc/passwd"}', '{"time_zone": ""}',
        '{"opens": "18:00", "closes": "08:00"}', '{"opens": "08:00Z", "closes": "09:00Z"}', '{"weekdays": ["someday"]}',
        '{"from": "08:00"}',
    ],
)  # fmt: skip
def test_opening_hours_that_make_no_sense_are_refused_when_read(tmp_path: Path, hours: str) -> None:
    (tmp_path / "policy.json").write_text(f'{{"opening_hours": {hours}}}')
    with pytest.raises(SettingsError, match="opening_hours"):
        load_settings(Policy, tmp_path / "policy.json")


def test_policy_with_every_rule_survives_being_written(tmp_path: Path) -> None:
    policy = Policy(
        dataset_caps={"main": 1.0}, study_caps={"*": 2.0}, min_n=100, opening_hours=OFFICE, max_releases_per_day=3
    )
    (tmp_path / "policy.json").write_text(policy.model_dump_json())
    assert load_settings(Policy, tmp_path / "policy.json") == policy
