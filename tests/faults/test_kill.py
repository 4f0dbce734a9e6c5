"""`kill -9` of each process at every step of a release (docs/faults.md): started again, the round ends as it must."""

import json
from hashlib import sha256

import pytest

from commingle.shared.documents.regression import RegressionRequest, verify_regression
from commingle.shared.release.rounds import State
from tests.faults.loopback import Loopback
from tests.faults.witness import charges_on_disk
from tests.world.command import eventually

pytestmark = pytest.mark.slow
PARTY_POINTS = (
    "party.committing:3",
    "party.committing:5",
    "party.committing:7",
    "party.approval.signed",
    "party.approval.sent",
    "party.debited",
    "party.drawn",
    "file.temporary",
    "party.written",
    "party.stored",
    "party.uploaded",
    "party.acknowledged",
    "party.finished",
)
REGRESSION_POINTS = (
    "party.committing",
    "party.regression.debited",
    "party.regression.drawn",
    "party.committing:2",
    "party.regression.stored",
)
COORDINATOR_POINTS = (
    "coordinator.approval.committed",
    "coordinator.approval.committed:2",
    "coordinator.block.written",
    "coordinator.block.committed",
    "coordinator.block.committed:2",
    "file.temporary",
    "file.temporary:4",  # the matrix, after two blocks and the manifest
    "coordinator.publication.written",
    "coordinator.publication.committed",
)
PARTY_EXCHANGE_POINTS = (
    "file.temporary",  # the secret
    "file.temporary:3",  # columns
    "party.columns.written",
    "party.columns.signed",
    "party.columns.sent",
    "party.columns.verified",
    "file.temporary:5",  # the other's reply
    "party.reply.written",
    "party.reply.signed",
    "party.reply.sent",
    "party.reply.fetched",
    "party.opened",
    "party.drawn",
)
"""Power is cut at all of either party's in one process, too: `tests/party_agent/rounds/test_exchange.py`."""
EVALUATOR_EXCHANGE_POINTS = ("party.columns.fetched", "party.columns.verified", "party.reply.signed", "party.opened")
COORDINATOR_EXCHANGE_POINTS = (
    "coordinator.columns.written",
    "coordinator.columns.committed",
    "coordinator.columns.committed:2",
    "coordinator.reply.written",
    "coordinator.reply.committed",
    "coordinator.reply.committed:2",
    "coordinator.exchange.dropped",
)


@pytest.fixture
def running(consortium: Loopback) -> Loopback:
    for server in (consortium.hub, *consortium.agents.values()):
        if not server.alive:
            server.start()
    return consortium


@pytest.mark.parametrize(
    ("process", "mechanism", "point"),
    [
        *(("clinic", "rmgm", point) for point in PARTY_POINTS),
        *(("clinic", "moments", point) for point in PARTY_EXCHANGE_POINTS),
        *(("insurer", "moments", point) for point in EVALUATOR_EXCHANGE_POINTS),
        *(("coordinator", "rmgm", point) for point in COORDINATOR_POINTS),
        *(("coordinator", "moments", point) for point in COORDINATOR_EXCHANGE_POINTS),
    ],
)
def test_process_killed_at_any_step_of_a_release_publishes_after_its_restart(
    running: Loopback, process: str, mechanism: str, point: str
) -> None:
    server = running.hub if process == "coordinator" else running.agents[process]
    server.restart(fault=point)
    release = running.propose(mechanism=mechanism)
    server.await_death()
    server.start()
    running.check(release, State.PUBLISHED)


def test_agent_killed_again_and_again_while_drawing_pays_once_and_sends_one_block(running: Loopback) -> None:
    agent = running.agents["clinic"]
    agent.restart(fault="party.drawn")
    release = running.propose(mechanism="dgm")
    agent.await_death()
    for point in ("file.temporary", "party.written", "party.debited"):
        agent.start(fault=point)
        agent.await_death()
    agent.start()
    running.check(release, State.PUBLISHED)


@pytest.mark.parametrize("point", ["party.rejection.signed", "party.rejection.sent"])
def test_agent_killed_while_it_rejects_ends_the_round_and_gets_its_reservation_back(
    running: Loopback, point: str
) -> None:
    agent = running.agents["clinic"]
    running.agents["insurer"].kill()  # or the round would go on
    agent.restart(fault=point)
    release = running.propose()
    eventually(lambda: running.view(release)["parties"][0]["approved"], what="not approved")
    assert running.decide("clinic", release, "rejection") is None
    agent.await_death()
    for server in running.agents.values():
        server.start()
    running.check(release, State.REJECTED)
    assert running.charge("clinic", release) == "released"


@pytest.mark.parametrize("point", ["party.rejection.signed", "party.rejection.sent"])
def test_agent_killed_while_it_withdraws_after_its_upload_ends_the_round_and_pays(
    running: Loopback, point: str
) -> None:
    agent, other = running.agents["clinic"], running.agents["insurer"]
    for server in (agent, other):
        server.kill()
    agent.start(fault=point)
    other.start(fault="party.debited")
    release = running.propose()
    other.await_death()
    eventually(lambda: running.charge("clinic", release) == "acked", what="not uploaded")
    assert running.decide("clinic", release, "rejection") is None
    agent.await_death()
    agent.start()
    running.wait_for(release, State.ABORTED)
    other.start()
    running.check(release, State.ABORTED)
    assert running.charge("clinic", release) == "acked"
    assert running.charge("insurer", release) == "withdrawn"


def asked(point: str) -> RegressionRequest:
    nonce = sha256(point.encode()).hexdigest()
    return RegressionRequest(
        dataset="main", target="bmi", features=("age",), method="ssp", epsilon=0.5, delta=1e-6, nonce=nonce
    )


@pytest.mark.parametrize("point", REGRESSION_POINTS)
def test_agent_killed_at_any_step_of_a_regression_pays_once_and_shows_one_result(running: Loopback, point: str) -> None:
    agent, home, request = running.agents["clinic"], running.home("clinic"), asked(point)
    agent.restart(fault=point)
    assert running.regress("clinic", request) is None
    agent.await_death()
    paid = charges_on_disk(home).get(request.id)
    agent.start()
    done, again = (running.regress("clinic", request) for _ in range(2))
    assert done is not None
    assert done == again
    charge = charges_on_disk(home)[request.id]
    document = verify_regression(json.dumps(done["document"]).encode()).document
    assert charge.state == "stored"
    assert charge.rho_units == document.privacy.loss.rho.units
    assert paid is None or paid.rho_units == charge.rho_units
    assert charge.attempt == {"party.committing": 1, "party.regression.stored": 1}.get(point, 2)


def test_agent_killed_again_and_again_after_a_regressions_debit_finishes_it_unasked(running: Loopback) -> None:
    agent, home, request = running.agents["clinic"], running.home("clinic"), asked("unasked")
    agent.restart(fault="party.regression.debited")
    assert running.regress("clinic", request) is None
    agent.await_death()
    paid = charges_on_disk(home)[request.id]
    agent.start(fault="party.regression.drawn")
    agent.await_death()
    agent.start()
    eventually(lambda: running.charge("clinic", request.id) == "stored", what="not finished")
    charge = charges_on_disk(home)[request.id]
    assert (paid.attempt, charge.attempt, charge.rho_units) == (1, 3, paid.rho_units)
    done = running.regress("clinic", request)
    assert verify_regression(json.dumps(done["document"]).encode()).document.request == request
    assert charges_on_disk(home)[request.id] == charge


@pytest.mark.parametrize("point", ["coordinator.proposal.committed", "coordinator.committing"])
def test_coordinator_killed_while_it_records_a_proposal_goes_on_with_it_or_knows_nothing_of_it(
    running: Loopback, point: str
) -> None:
    known = running.listed()
    running.hub.restart(fault=point)
    running.propose_in_vain()
    running.hub.await_death()
    running.hub.start()
    recorded = running.listed() - known
    assert len(recorded) == (point == "coordinator.proposal.committed")
    for release in recorded:
        running.check(release, State.PUBLISHED)


def test_coordinator_killed_after_recording_a_rejection_ends_the_round(running: Loopback) -> None:
    running.agents["insurer"].kill()
    running.hub.restart(fault="coordinator.rejection.committed")
    release = running.propose()
    eventually(lambda: running.view(release)["parties"][0]["approved"], what="not approved")
    running.decide("clinic", release, "rejection")
    running.hub.await_death()
    running.hub.start()
    running.agents["insurer"].start()
    running.check(release, State.REJECTED)


def test_coordinator_killed_after_recording_an_expiry_ends_the_round(running: Loopback) -> None:
    running.agents["insurer"].kill()
    running.hub.restart(fault="coordinator.expiry.committed")
    release = running.propose(lifetime_hours=10 / 3600)  # in which the clinic approves
    running.hub.await_death()
    running.hub.start()
    running.agents["insurer"].start()
    running.check(release, State.EXPIRED)
    assert running.charge("clinic", release) == "released"


def test_all_processes_killed_at_once_in_the_middle_of_a_round_publish_after_their_restart(running: Loopback) -> None:
    agent = running.agents["clinic"]
    agent.restart(fault="party.stored")
    release = running.propose()
    agent.await_death()
    servers = (running.hub, *running.agents.values())
    for server in servers:
        server.kill()
    for server in reversed(servers):  # agents come up while there is no coordinator yet
        server.start()
    running.check(release, State.PUBLISHED)
