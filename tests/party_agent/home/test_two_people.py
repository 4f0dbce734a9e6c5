"""Two people approve where the policy says so: nobody is both of them, and nothing is reserved before the second."""

import json
import re
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from commingle.party_agent.console.app import create_console
from commingle.party_agent.edge.api import LocalApi
from commingle.party_agent.edge.app import create_app
from commingle.party_agent.edge.client import PartyClient
from commingle.party_agent.edge.views import export_audit
from commingle.party_agent.errors import ConflictError
from commingle.party_agent.home.policy import Policy
from commingle.party_agent.home.tokens import AgentScope, create_token
from commingle.party_agent.regression.service import Regressions
from commingle.party_agent.rounds.agents import Agents
from commingle.shared.documents.model import encode
from commingle.shared.documents.regression import RegressionRequest
from commingle.shared.documents.statements import FIRST_APPROVAL
from commingle.shared.dp.accounting import ZERO
from commingle.shared.release.audit import confirm_by_party, verify_party_audit
from commingle.shared.release.charge import ChargeState, refuse_signature
from commingle.shared.release.ledger_fold import Ruling
from commingle.shared.release.verification import verify_release
from commingle.shared.runtime.pages.doors import LinkDoor, Session
from commingle.shared.runtime.settings import system_clock
from tests.party_agent.cli.test_cli import at
from tests.world.applications import in_turn
from tests.world.command import Command
from tests.world.consortium import AUTOMATIC, Consortium, consortium_of, strictly
from tests.world.transport import InProcess, on_a_socket
from tests.world.waiting import at_once

TWO = AUTOMATIC.model_copy(update={"approvals": 2})  # what would be approved by itself is not
ADAMS, BERG = "Dr. Adams", "Dr. Berg"


@pytest.fixture
def consortium(tmp_path: Path) -> Consortium:
    return consortium_of(tmp_path, "clinic", "insurer", policy=TWO)


@pytest.fixture
def release(consortium: Consortium, agents: Agents) -> str:
    release = consortium.propose()
    agents.consortia[0].step(strictly)
    return release


def token(agents: Agents, name: str, person: str = "", *scopes: AgentScope) -> dict[str, str]:
    made = create_token(
        agents.home,
        name=name,
        scopes=frozenset(scopes or {"read", "decide"}),
        lifetime=None,
        now=agents.clock(),
        person=person,
    )
    return {"Authorization": f"Bearer {made}"}


def approve(
    api: httpx.Client, release: str, headers: dict[str, str] | None = None, **note: str
) -> tuple[int, dict[str, Any]]:
    answer = api.put(f"/v1/proposals/{release}/approval", json=note, headers=headers)
    return answer.status_code, answer.json()


def test_nothing_is_approved_by_itself_and_the_second_person_debits(
    api: httpx.Client, agents: Agents, consortium: Consortium, release: str
) -> None:
    assert agents.proposals.get(release).decision == "waiting"
    code, shown = approve(api, release, token(agents, "desk", ADAMS), why="vote 12/26")
    assert (code, shown["decision"], shown["approvals_given"], shown["approvals_needed"]) == (200, "waiting", 1, 2)
    assert shown["decided"] == [{"document": FIRST_APPROVAL, "by": "Dr. Adams (token desk)", "why": "vote 12/26"}]
    assert (agents.ledger.charges(), agents.ledger.spent()) == ({}, ZERO)
    assert not consortium.coordinator.found(release).approvals
    agents.consortia[0].step(strictly)  # the agent's own look does not make it two
    assert agents.ledger.charges() == {}
    code, shown = approve(api, release, token(agents, "other", BERG), why="read")
    assert (code, shown["decision"], shown["approvals_given"]) == (200, "approved", 2)
    assert list(consortium.coordinator.found(release).approvals) == ["clinic"]
    [charge] = api.get("/v1/ledger").json()["charges"]
    assert [(one["document"], one["by"]) for one in charge["decided"]] == [
        (FIRST_APPROVAL, "Dr. Adams (token desk)"),
        ("approval", "Dr. Berg (token other)"),
    ]
    agents.ledger.verify()
    history = verify_party_audit(encode(export_audit(agents)))
    ruling = history.told.signed[(release, FIRST_APPROVAL)].ruling
    assert ruling is not None
    assert ruling.by == "Dr. Adams (token desk)"
    assert history.told.signed.keys() >= {(release, FIRST_APPROVAL), (release, "approval")}
    consortium.homes["insurer"].save_policy(AUTOMATIC)
    for _ in range(2):
        consortium.step("insurer")
        agents.consortia[0].step(strictly)
    files = [
        consortium.coordinator.hub.http.get(f"/v1/releases/{release}/{name}").content
        for name in ("manifest", "matrix", "moments")
    ]
    published = verify_release(*files, trusted_coordinator=consortium.coordinator.key.fingerprint)
    said = confirm_by_party(verify_party_audit(encode(export_audit(agents))), published)
    assert said.startswith("approval (by “Dr. Adams (token desk)” and then “Dr. Berg (token other)”), debit of rho")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("a", ADAMS), ("a", ADAMS)),  # with other words
        (("a", ADAMS), ("b", ADAMS)),
        (("a", ADAMS), ("b", "  dr.  ADAMS ")),
        (("a", ADAMS), ("", ADAMS)),  # the operator in that person's name
        (("", BERG), ("", ADAMS)),  # the operator in two names
        (("", BERG), ("b", BERG)),
        (("a", ADAMS), ("b", "")),  # a system's token is nobody
    ],
)
def test_one_person_or_token_is_never_two(
    api: httpx.Client, agents: Agents, release: str, first: tuple[str, str], second: tuple[str, str]
) -> None:
    known: dict[str, dict[str, str]] = {}
    answers = []
    for number, (name, person) in enumerate((first, second)):
        if name and name not in known:
            known[name] = token(agents, name, person)
        said = {} if name else {"by": person}
        answers.append(approve(api, release, known.get(name), why=str(number), **said))
    assert [code for code, _ in answers] == [200, 409]
    assert answers[1][1]["type"].endswith("conflict")
    assert (agents.ledger.charges(), agents.proposals.get(release).decision) == ({}, "waiting")
    code, shown = approve(api, release, token(agents, "third", "Dr. Chen"))
    assert (code, shown["decision"]) == (200, "approved")


def test_same_approval_sent_twice_is_one(api: httpx.Client, agents: Agents, release: str) -> None:
    headers = token(agents, "desk", ADAMS)
    answers = [approve(api, release, headers, why="vote") for _ in range(2)]
    assert [(code, shown["approvals_given"]) for code, shown in answers] == [(200, 1)] * 2
    assert len(agents.ledger.notes()[release]) == 1


def test_token_of_a_person_decides_in_no_other_name(api: httpx.Client, agents: Agents, release: str) -> None:
    code, said = approve(api, release, token(agents, "desk", ADAMS), by=BERG)
    assert (code, said["type"].endswith("scope")) == (403, True)
    assert agents.ledger.length == 0


def test_rejection_by_either_ends_it(api: httpx.Client, agents: Agents, consortium: Consortium, release: str) -> None:
    approve(api, release, token(agents, "desk", ADAMS))
    other = token(agents, "other", BERG)
    told = api.put(f"/v1/proposals/{release}/rejection", json={"why": "no"}, headers=other).json()
    assert (told["decision"], [one["document"] for one in told["decided"]]) == (
        "rejected",
        [FIRST_APPROVAL, "rejection"],
    )
    assert approve(api, release, other)[0] == 409
    assert (agents.ledger.charges(), consortium.state(release)) == ({}, "rejected")


def test_two_at_the_same_moment_are_two_or_one_of_them_is_told(agents: Agents, release: str) -> None:
    rulings = [Ruling(by=n, token=n, person=n) for n in "ab"]

    def decide(ruling: Ruling) -> None:
        with suppress(ConflictError):
            agents.approve(release, ruling)

    at_once(*(partial(decide, ruling) for ruling in rulings))
    first = agents.ledger.first_approval(release)
    assert first in rulings
    assert first is not None
    agents.approve(release, next(ruling for ruling in rulings if ruling != first))
    assert [note["document"] for note in agents.ledger.notes()[release]] == [FIRST_APPROVAL, "approval"]
    assert [charge.state for charge in agents.ledger.charges().values()] == [ChargeState.RESERVED]
    agents.ledger.verify()


def test_one_person_is_enough_again_once_the_policy_says_so(api: httpx.Client, agents: Agents, release: str) -> None:
    approve(api, release, token(agents, "desk", ADAMS))
    agents.home.save_policy(Policy())
    assert approve(api, release, by=ADAMS)[1]["decision"] == "approved"


def test_what_one_person_approved_is_given_up_once_two_have_to(
    agents: Agents, consortium: Consortium, release: str
) -> None:
    agents.home.save_policy(Policy())
    agents.approve(release, Ruling(by=ADAMS, person=ADAMS))
    consortium.homes["insurer"].save_policy(AUTOMATIC)
    consortium.step("insurer")
    agents.home.save_policy(TWO)
    agents.consortia[0].step(strictly)
    assert (agents.proposals.get(release).decision, agents.ledger.spent()) == ("rejected", ZERO)
    assert agents.proposals.get(release).findings[0].startswith("approvals: ")


def test_first_approval_is_not_signed_once_there_is_a_charge(agents: Agents, release: str) -> None:
    agents.home.save_policy(Policy())
    agents.approve(release, Ruling(by=ADAMS, person=ADAMS))
    assert refuse_signature(agents.ledger.charge(release), FIRST_APPROVAL) is not None


def test_regression_which_one_person_decides_is_refused(agents: Agents) -> None:
    request = RegressionRequest(
        dataset="main", target="age", features=("emergency",), epsilon=1, delta=1e-6, nonce="5d" * 32
    )
    name = agents.datasets.get("main").attributes
    asked = request.model_copy(update={"target": name[0].name, "features": (name[1].name,)})
    with pytest.raises(ConflictError, match="two people have to approve"):
        Regressions(agents).ask(asked)
    assert agents.ledger.charges() == {}


def test_command_shows_how_many_there_are_and_takes_a_persons_token(
    consortium: Consortium, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    consortium.clock_shows = system_clock()
    release = consortium.propose()
    consortium.step("clinic")
    home, secret = consortium.homes["clinic"].root, tmp_path / "berg"
    run = Command(capsys, "party")
    made = run("token", "create", "--home", home, "--name", "berg", "--scope", "decide", "--person", BERG, "--json")[1]
    secret.write_text(json.loads(made)["token"])
    deciding = ("--home", home, "--yes", "--why", "vote 12/26")
    with on_a_socket(consortium.coordinator.handle) as url:
        at(consortium, url)
        first = run("approve", release[:12], *deciding, "--by", ADAMS)
        again = run("approve", release[:12], *deciding, "--by", BERG)
        second = run("approve", release[:12], *deciding, "--token-file", secret)
    assert (first[0], "here waiting, 1 of 2 approvals" in first[1]) == (0, True)
    assert (again[0], "the operator, who is one person here" in again[2]) == (1, True)
    assert "first approval by “Dr. Adams”: “vote 12/26”" in again[2]
    assert (second[0], "here approved, 2 of 2 approvals" in second[1]) == (0, True)
    told = run("ledger", "--home", home)[1]
    assert re.search(r"first approval by “Dr\. Adams”.*\n.* approval by “Dr\. Berg \(token berg\)”", told)


def test_console_of_a_person_decides_as_that_person_only(api: httpx.Client, agents: Agents, release: str) -> None:
    approve(api, release, token(agents, "desk", ADAMS), why="vote 12/26")
    origin, headers = "http://127.0.0.1:8901", token(agents, "console-1", BERG)
    session = Session(BERG, headers["Authorization"].removeprefix("Bearer "))
    door = LinkDoor(session, address="127.0.0.1:8901", command="commingle party console")
    way = in_turn(create_app, LocalApi(agents, loops=None, peer_is_operator=True))
    app = create_console(agents.home, door, lambda secret: PartyClient.over(way, token=secret))
    with httpx.Client(transport=InProcess(app), base_url=origin, headers={"Origin": origin}) as browser:
        browser.get(f"/enter/{door.link}")
        assert "waiting, 1 of 2 approvals" in browser.get("/").text
        page = browser.get(f"/proposals/{release}").text
        assert "first approval by <b>Dr. Adams (token desk)</b>: vote 12/26" in page
        assert "You decide as <b>Dr. Berg</b>" in page
        assert 'name="by"' not in page
        data = {"csrf": session.csrf, "by": "Dr. Chen", "why": "", "read": "yes", "decision": "approve"}
        assert browser.post(f"/proposals/{release}", data=data).status_code == 303
        page = browser.get(f"/proposals/{release}").text
        assert re.search(r"approval by <b>Dr\. Berg \(token console-1\)</b>", page)
        assert "Dr. Chen" not in page
        datasets = browser.get("/datasets").text
        assert "None is" not in datasets
        assert "Read and register" not in datasets  # nor may this token
        assert browser.post("/datasets", data={"csrf": session.csrf, "do": "draft"}).status_code == 403
    assert agents.proposals.get(release).decision == "approved"
