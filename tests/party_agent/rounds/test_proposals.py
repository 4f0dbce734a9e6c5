"""A party proposes, as any member may; and what an agent keeps of proposals: those it approved for ever."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from commingle import PartyClient, Release
from commingle.coordinator.publisher import prune
from commingle.party_agent.errors import NotFoundError
from commingle.party_agent.home.tokens import AgentScope, revoke_token
from commingle.party_agent.rounds.agent import Agent
from commingle.party_agent.rounds.proposals import RETENTION
from commingle.shared.documents.dsse import SigningKey, seal
from commingle.shared.documents.study import Study, StudyParty
from commingle.shared.errors import DocumentError
from commingle.shared.release.checks import open_spec
from commingle.shared.release.rounds import State
from commingle.shared.runtime.errors import RemoteProblemError, UnreachableError
from tests.world.command import Command
from tests.world.consortium import BY_A_PERSON, SCHEMAS, Consortium, Noise, soon, strictly
from tests.world.coordinator import problem
from tests.world.local_api import operator_app, reached, serving_at, system, token_of
from tests.world.transport import unreachable

PARTIES = tuple(StudyParty(name=n, dataset="main", attributes=SCHEMAS[n]) for n in ("clinic", "insurer"))
STUDY = Study(study="Charges", mechanism="dgm", epsilon=1, delta=1e-5, n=40, target="charges", parties=PARTIES)


def party(agent: Agent, *scopes: AgentScope) -> PartyClient:
    token = token_of(agent, *scopes, name="-".join(scopes))
    return PartyClient("http://agent", token=token, transport=reached(agent))


def test_proposal_is_signed_by_the_party_and_waits_for_itself_too(consortium: Consortium, agent: Agent) -> None:
    with party(agent, "propose") as system:
        made = system.propose(STUDY)
    found = consortium.coordinator.found(made.id)
    own = agent.identity.signing_key
    assert open_spec(found.spec, [own.verifying_key]).document.proposer == own.fingerprint
    assert (made.state, made.parties) == ("proposed", ("clinic", "insurer"))
    agent.step(strictly)
    assert agent.proposals.get(made.id).decision == "waiting"
    assert agent.ledger.charges() == {}


def test_same_key_proposes_once_whatever_happened_on_the_way(consortium: Consortium, agent: Agent) -> None:
    with party(agent, "propose") as system:
        consortium.coordinator.after = unreachable("POST", "/v1/releases")  # recorded, and the answer is lost
        with pytest.raises(RemoteProblemError) as lost:
            system.propose(STUDY, key="monday")
        assert lost.value.problem == "unreachable"
        consortium.coordinator.after = lambda _: None
        first, second = (system.propose(STUDY, key="monday").id for _ in range(2))
        assert first == second
        with pytest.raises(RemoteProblemError, match="another study"):
            system.propose(STUDY.model_copy(update={"epsilon": 0.5}), key="monday")
        assert system.propose(STUDY).id != first
    with party(agent, "propose", "read") as other:  # a key is its caller's own
        assert other.propose(STUDY, key="monday").id != first
    with consortium.coordinator.hub.store.read() as tx:
        assert len(tx.releases.page(state=None, before=None, limit=10).items) == 3


def test_new_token_of_a_revoked_ones_name_meets_none_of_its_keys(agent: Agent) -> None:
    with party(agent, "propose") as system:
        first = system.propose(STUDY, key="monday").id
    revoke_token(agent.home, "propose", agent.clock())
    with party(agent, "propose") as system:
        assert system.propose(STUDY, key="monday").id != first


def test_calls_with_one_key_at_one_time_propose_once(consortium: Consortium, agent: Agent) -> None:
    with party(agent, "propose") as system, ThreadPoolExecutor(6) as callers:
        made = list(callers.map(lambda _: system.propose(STUDY, key="monday").id, range(6)))
    assert len(set(made)) == 1
    with consortium.coordinator.hub.store.read() as tx:
        assert len(tx.releases.page(state=None, before=None, limit=10).items) == 1


def test_who_may_propose_is_as_it_was(consortium: Consortium, agent: Agent) -> None:
    for scope in ("read", "decide", "register"):
        with party(agent, scope) as system, pytest.raises(RemoteProblemError) as refused:
            system.propose(STUDY)
        assert (refused.value.status, refused.value.problem) == (403, "scope")
    stranger = SigningKey(b"\x77" * 32)
    spec = consortium.spec(title="by a stranger", proposer=stranger)
    posing = consortium.spec(title="in another's name", proposer=consortium.homes["insurer"].identity().signing_key)
    for wrong, key in ((spec, stranger), (posing, agent.identity.signing_key)):
        with pytest.raises(RemoteProblemError):
            agent.client.propose(seal(wrong, key=key))


def test_consortium_has_to_be_clear_and_the_study_possible(agent: Agent) -> None:
    unknown = STUDY.model_copy(update={"parties": (PARTIES[0], PARTIES[1].model_copy(update={"name": "nobody"}))})
    with party(agent, "propose") as system:
        with pytest.raises(RemoteProblemError, match="which consortium"):
            system.propose(STUDY, consortium="elsewhere")
        with pytest.raises(RemoteProblemError, match="not enrolled: nobody"):
            system.propose(unknown, key="k")
        assert system.propose(STUDY, consortium="trial", key="k").state == "proposed"  # nothing was signed before


def test_system_proposes_approves_follows_and_downloads(consortium: Consortium, agent: Agent, tmp_path: Path) -> None:
    with party(agent, "propose", "read", "decide") as system, consortium.agent("insurer", draw=Noise()) as insurer:
        release = system.propose(STUDY).id
        with pytest.raises(RemoteProblemError, match="no such proposal"):
            system.download(release, tmp_path / "early")
        for _ in range(2):
            for one in (agent, insurer):
                one.step(strictly)
        with pytest.raises(RemoteProblemError, match="not published"):
            system.download(release, tmp_path / "early")
        approved = system.approve(release, by="the desk", why="routine")
        assert (approved.decision, approved.decided[0].by) == ("approved", "the desk (token propose-read-decide)")
        insurer.approve(release, BY_A_PERSON)
        for one in (agent, insurer):
            one.step(strictly)
        agent.step(strictly)
        assert system.wait(release, seconds=5).state == State.PUBLISHED
        assert (system.job(release).stage, len(system.jobs())) == ("published", 1)
        assert system.ledger().charges[0].release == release
        assert [d.name for d in system.datasets()] == ["main"]
        assert system.status().name == "clinic"
        assert Release.load(system.download(release, tmp_path / "release")).id == release


def test_command_proposes_and_says_what_it_will_be_worth(consortium: Consortium, run: Command) -> None:
    study = consortium.root / "study.json"
    study.write_text(STUDY.model_dump_json())
    home = consortium.homes["clinic"].root
    with consortium.agent("clinic") as agent, serving_at(agent.home.socket, operator_app(agent)):
        code, out, _ = run("party", "propose", study, "--home", home, "--attach", study)
    assert code == 0
    assert "“Charges”: proposed" in out or "'Charges': proposed" in out or '"Charges": proposed' in out
    assert "Not useful" in out
    (attached,) = consortium.coordinator.found(out.split()[0]).document.attachments or ()
    assert attached.name == "study.json"


def test_download_of_what_nobody_asked_of_this_party_is_refused(agent: Agent) -> None:
    with system(agent, "read") as http:
        assert problem(http.get(f"/v1/releases/{'0' * 64}/matrix")) == (404, "unknown")
        assert http.get(f"/v1/releases/{'0' * 64}/ledger").status_code == 422


def test_waiting_outlasts_an_agent_that_does_not_answer_and_ends_in_time(
    consortium: Consortium, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commingle.party_agent.edge.client.FOLLOW_SECONDS", 0.01)
    release, away = consortium.propose(), [True]
    token = token_of(agent, "read")
    inner = reached(agent)

    def sometimes(request: httpx.Request) -> httpx.Response:
        if away and away.pop():
            raise httpx.RemoteProtocolError("gone", request=request)
        return inner.handle_request(request)

    agent.step(strictly)
    with PartyClient("http://agent", token=token, transport=httpx.MockTransport(sometimes)) as system:
        with pytest.raises(UnreachableError, match="not over after"):
            system.wait(release, seconds=0.3)
        agent.reject(release)
        agent.step(strictly)
        assert system.wait(release, seconds=60).state == "rejected"


def specs_kept(consortium: Consortium) -> dict[str, int]:
    """Bytes of the spec in each row of the record."""
    with consortium.agent("clinic") as agent, agent.store.reading() as db:
        return {row["release"]: len(row["spec"]) for row in db.execute("SELECT release, spec FROM proposals")}


def over(consortium: Consortium, title: str) -> str:
    release = consortium.propose(title=title)
    consortium.step("clinic")
    consortium.withdraw(release, "insurer")
    consortium.step("clinic")
    return release


def test_spec_that_is_over_and_was_never_approved_is_dropped_when_a_later_one_comes(consortium: Consortium) -> None:
    old = over(consortium, "old")
    soon(consortium, hours=RETENTION / timedelta(hours=1) + 1)
    assert specs_kept(consortium)[old] > 0
    new = consortium.propose(title="new")
    consortium.step("clinic")
    kept = specs_kept(consortium)
    assert (kept[old], kept[new] > 0) == (0, True)
    with consortium.agent("clinic") as agent:
        assert [p.release for p in agent.proposals.all()] == [new]
        assert old in agent.proposals.finished(agent.coordinator.key.fingerprint)
        with pytest.raises(NotFoundError):
            agent.proposals.get(old)


def test_approved_spec_is_kept_however_old(consortium: Consortium) -> None:
    release = consortium.propose(title="approved")
    with consortium.agent("clinic") as agent:
        agent.step(strictly)
        agent.approve(release, BY_A_PERSON)
    consortium.withdraw(release, "insurer")
    consortium.step("clinic")
    soon(consortium, hours=RETENTION / timedelta(hours=1) + 1)
    consortium.propose(title="new")
    consortium.step("clinic")
    assert specs_kept(consortium)[release] > 0


def test_release_whose_spec_the_coordinator_has_dropped_is_wound_up(consortium: Consortium) -> None:
    release = consortium.propose(title="approved")
    with consortium.agent("clinic") as agent:
        agent.step(strictly)
        agent.approve(release, BY_A_PERSON)
        reserved = agent.ledger.spent()
    consortium.withdraw(release, "insurer")
    soon(consortium, hours=24 * 31)
    assert prune(consortium.coordinator.hub.coordinator) == 1
    with consortium.agent("clinic") as agent:
        agent.step(strictly)
        assert agent.ledger.spent() < reserved
        assert agent.proposals.get(release).state == "rejected"


def test_agent_that_never_saw_a_dropped_release_notes_its_end_once(consortium: Consortium) -> None:
    release = consortium.propose(title="missed")
    consortium.withdraw(release, "insurer")
    soon(consortium, hours=24 * 31)
    prune(consortium.coordinator.hub.coordinator)
    with consortium.agent("clinic") as agent:
        agent.step(strictly)
        assert release in agent.proposals.finished(agent.coordinator.key.fingerprint)
        assert agent.proposals.all() == []


def test_open_release_shown_without_its_spec_is_refused(consortium: Consortium) -> None:
    release = consortium.propose(title="odd")
    consortium.coordinator.shown = lambda view: view | {"spec": None}
    with consortium.agent("clinic") as agent, pytest.raises(DocumentError, match="without its spec"):
        agent.handle(agent.client.release(release), release)
