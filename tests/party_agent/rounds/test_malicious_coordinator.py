"""Attacks of a malicious coordinator that a party's own policy and signatures catch.

See also test_untrusted_coordinator.py (forged approvals, another spec under one id) and tests/hostile/test_attacks.py.
"""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from commingle.party_agent.errors import ConflictError
from commingle.party_agent.home.policy import OpeningHours
from commingle.party_agent.rounds.party import Jobs
from commingle.party_agent.wire.answers import DecisionName, Stage
from commingle.shared.documents.model import canonical_json, encode
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.dp.accounting import ZERO
from commingle.shared.release.charge import ChargeState
from tests.hostile.actors import LocalUser
from tests.party_agent.releasing import publish
from tests.world.consortium import BY_A_PERSON, BY_HAND, Consortium, Noise, soon, strictly
from tests.world.documents import sign_bytes


def rules_against(pair: Consortium, release: str) -> list[str]:
    with pair.agent("clinic") as agent:
        return [finding.split(":")[0] for finding in agent.proposals.get(release).findings]


def decision(pair: Consortium, release: str) -> DecisionName:
    with pair.agent("clinic") as agent:
        return agent.proposals.get(release).decision


def spent(pair: Consortium) -> float:
    with pair.agent("clinic") as agent:
        return float(agent.ledger.spent())


def tampered(spec: ReleaseSpec, what: str) -> ReleaseSpec:
    wider = NumericAttribute(name="age", lower=0, upper=800, unit="years")
    parties = tuple(
        p.model_copy(update={"attributes": (wider, *p.attributes[1:])}) if p.name == "clinic" else p
        for p in spec.parties
    )
    changes: dict[str, dict[str, Any]] = {
        "k": {"k": 8}, "seed": {"seed": "ff" * 32}, "bounds": {"parties": parties}, "epsilon": {"epsilon": 3.0},
    }  # fmt: skip
    return spec.model_copy(update=changes[what])


def test_release_that_is_over_shown_as_new_costs_nothing_and_gets_no_second_noise(pair: Consortium) -> None:
    release = publish(pair)
    before, noise = spent(pair), Noise()
    for state in ("proposed", "approved", "collecting"):
        pair.coordinator.shown = lambda view, state=state: {**view, "state": state}  # type: ignore[misc]
        with pair.agent("clinic", draw=noise) as agent:
            agent.handle(agent.client.release(release), release)
    assert (spent(pair), noise.calls, len(pair.coordinator.received["clinic"])) == (before, [], 1)


@pytest.mark.parametrize("how", ["dated anew", "without what is as always"])
def test_old_spec_replayed_under_a_new_id_is_refused(pair: Consortium, how: str) -> None:
    release = publish(pair)
    before = spent(pair)
    spec = pair.coordinator.found(release).document
    if how == "dated anew":
        replay = pair.coordinator.propose(spec.model_copy(update={"created": spec.created + timedelta(seconds=1)}))
    else:
        said = json.loads(encode(spec))
        payload = canonical_json({k: v for k, v in said.items() if k != "alignment"})
        replay = pair.coordinator.propose_signed(sign_bytes(payload, kind="spec", key=pair.coordinator.key))
    assert replay != release
    pair.step("clinic")
    assert rules_against(pair, replay) == ["seed"]
    assert (pair.state(replay), spent(pair)) == ("rejected", before)


@pytest.mark.parametrize("cap", ["study_caps", "dataset_caps"])
def test_many_small_releases_stop_at_the_cap_of_their_study_or_of_the_data_set(pair: Consortium, cap: str) -> None:
    """Those of one study differ in their seeds; those of one data set are as many studies."""
    LocalUser(pair).edit_policy(**{"study_caps": {"*": 0.5}, cap: {"*": 0.5}})
    names = [pair.propose(title="study", epsilon=0.2)]
    spec = pair.coordinator.found(names[0]).document
    for i in range(1, 10):
        another = {"study": f"study {i}"} if cap == "dataset_caps" else {}
        names.append(pair.coordinator.propose(spec.model_copy(update={"seed": f"{i:064x}", **another})))
    pair.step("clinic")
    decisions = {name: decision(pair, name) for name in names}
    refused = [name for name in names if decisions[name] == "rejected"]
    assert set(decisions.values()) == {"approved", "rejected"}
    assert {rule for name in refused for rule in rules_against(pair, name)} == {cap}
    with pair.agent("clinic") as agent:
        assert agent.ledger.spent().epsilon(1e-5) <= 0.5


def test_many_small_releases_wait_for_the_next_day(pair: Consortium) -> None:
    LocalUser(pair).edit_policy(max_releases_per_day=2)
    names = [pair.propose(title=f"study {i}", epsilon=0.1) for i in range(4)]

    def approved() -> int:
        pair.step("clinic")
        return sum(decision(pair, name) == "approved" for name in names)

    assert approved() == 2
    soon(pair, hours=23.9)
    assert approved() == 2
    soon(pair, hours=0.2)
    assert approved() == 4


def test_nothing_is_approved_or_debited_outside_opening_hours(pair: Consortium) -> None:
    open_now, shut = OpeningHours(weekdays=frozenset({"fri"})), OpeningHours(weekdays=frozenset({"sun"}))
    LocalUser(pair).edit_policy(opening_hours=shut)  # the consortium lives on a Friday
    release, noise = pair.propose(), Noise()
    pair.step("clinic")
    assert (rules_against(pair, release), decision(pair, release)) == (["opening_hours"], "waiting")
    with pair.agent("clinic") as agent, pytest.raises(ConflictError, match="sun 00:00"):
        agent.approve(release, BY_A_PERSON)
    LocalUser(pair).edit_policy(opening_hours=open_now)
    pair.step("clinic")
    pair.step("insurer")
    LocalUser(pair).edit_policy(opening_hours=shut)
    pair.step("clinic", draw=noise)
    charge = pair.charge("clinic", release)
    assert charge is not None
    assert (charge.state, noise.calls, rules_against(pair, release)) == (ChargeState.RESERVED, [], ["opening_hours"])
    LocalUser(pair).edit_policy(opening_hours=open_now)
    pair.step("clinic", draw=noise)
    assert (len(noise.calls) > 0, rules_against(pair, release)) == (True, [])


def test_two_releases_approved_at_once_cannot_both_pass_a_cap_that_holds_one(pair: Consortium) -> None:
    """The second is approved while the first one's subjects are being read: the policy is asked again at signing."""
    first, second = pair.propose(title="first"), pair.propose(title="second")
    pair.homes["clinic"].save_policy(BY_HAND.model_copy(update={"dataset_caps": {"main": 1.1}}))
    with pair.agent("clinic") as agent:
        agent.step(strictly)

        class Interrupted(Jobs):
            def begin(self, release: str, stage: Stage, *, total: int) -> None:
                Jobs.begin(self, release, stage, total=total)
                agent.approve(second, BY_A_PERSON)

        with pytest.raises(ConflictError, match=r"more than 1\.1"):
            replace(agent, jobs=Interrupted()).approve(first, BY_A_PERSON)
        assert [*agent.ledger.charges()] == [second]
        assert agent.ledger.spent() > ZERO
