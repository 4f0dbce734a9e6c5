"""Releases whose bounds are proved, over the real coordinator: whole rounds, and who accepts them."""

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from commingle.party_agent.home.policy import AutoApproval, Policy
from commingle.party_agent.rounds.proposals import Decision
from commingle.shared.documents.terms import Bounds
from commingle.shared.mechanisms.moments.block import TRUST_MOMENTS, TRUST_PROVED
from tests.party_agent.exchanging import (
    approved,
    columned,
    crash_at,
    finish,
    replied,
    step_all,
)
from tests.party_agent.releasing import reason_of, state_of
from tests.party_agent.rounds.test_two_stage_rounds import published
from tests.world.consortium import BY_A_PERSON, Consortium, consortium_of


@pytest.mark.parametrize(("bounds", "trust"), [("proved", TRUST_PROVED), ("trusted", TRUST_MOMENTS)])
def test_release_says_whom_it_trusts_and_nothing_of_the_exchange_is_left(
    pair: Consortium, bounds: Bounds, trust: str
) -> None:
    release = approved(pair, bounds)
    finish(pair, release)
    assert published(pair, release).privacy.trust == trust
    pair.coordinator.work()
    assert pair.coordinator.hub.coordinator.blobs.running_releases() == ()
    assert not any((home.exchanges / release).exists() for home in pair.homes.values())


@pytest.mark.parametrize(
    ("stage", "point", "party", "fetched"),
    [
        (columned, "party.columns.fetched", "insurer", "columns/clinic"),
        (columned, "party.columns.verified", "insurer", "columns/clinic"),
        (replied, "party.reply.fetched", "clinic", "replies/insurer"),
    ],
)
def test_power_cut_after_a_message_was_fetched_goes_on_with_it(
    pair: Consortium, stage: Callable[[Consortium, Bounds], str], point: str, party: str, fetched: str
) -> None:
    release = stage(pair, "proved")
    crash_at(pair, point, party)
    finish(pair, release)
    assert pair.coordinator.requests.count(f"GET /v1/releases/{release}/{fetched}") == 1
    assert all(len(set(bodies)) == 1 for bodies in pair.coordinator.received.values())


def test_default_policy_accepts_proved_bounds_and_refuses_trusted_ones(tmp_path: Path) -> None:
    policy = Policy(auto_approve=(AutoApproval(proposer="*", max_rho=100),))
    consortium = consortium_of(tmp_path, "clinic", "insurer", policy=policy)
    proved, trusted = (consortium.propose(mechanism="moments", title=b, bounds=b) for b in get_args(Bounds))
    step_all(consortium)
    assert (consortium.state(proved), consortium.state(trusted)) == ("approved", "rejected")
    assert reason_of(consortium, trusted) == "policy"
    with consortium.agent("clinic") as agent:
        (finding,) = agent.proposals.get(trusted).findings
    assert "trusted to keep their rows within bounds" in finding
    assert state_of(consortium, trusted) is None


def test_trusted_bounds_are_approved_by_a_person_only(pair: Consortium) -> None:
    """The policy has no objection, and approves everything by itself that it may."""
    release = pair.propose(mechanism="moments", bounds="trusted")
    for _ in range(2):
        step_all(pair)
    with pair.agent("clinic") as agent:
        proposal = agent.proposals.get(release)
        assert (proposal.decision, proposal.findings) == (Decision.WAITING, ())
        assert agent.approve(release, BY_A_PERSON).decision is Decision.APPROVED
