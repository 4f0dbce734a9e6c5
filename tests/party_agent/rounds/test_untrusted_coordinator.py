"""A coordinator that lies, forges, forgets or talks nonsense; nothing is done before a complete look back."""

import gzip
import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from commingle.party_agent.edge.loop import Loop
from commingle.party_agent.errors import StaleLedgerError, UnwitnessedError
from commingle.party_agent.regression.service import Regressions
from commingle.party_agent.rounds.agent import Agent
from commingle.party_agent.rounds.agents import Agents
from commingle.shared.documents.dsse import Envelope, SigningKey, seal
from commingle.shared.documents.statements import BlockStatement, Rejection
from commingle.shared.dp.accounting import ZERO
from commingle.shared.errors import CommingleError, DocumentError, SignatureError, SpecError
from commingle.shared.release.charge import ChargeState
from commingle.shared.runtime.coordinator_client import CoordinatorClient
from commingle.shared.runtime.errors import NonsenseError, RemoteError, RemoteProblemError, UnreachableError
from tests.hostile.actors import HostileCoordinator, LocalUser
from tests.party_agent.regression.asking import request
from tests.party_agent.releasing import approved_by_all, look, publish
from tests.world.consortium import BY_A_PERSON, Consortium, Noise, strictly
from tests.world.documents import approvals_of, enrolment
from tests.world.tampering import NOW
from tests.world.transport import answering, no_fault, unreachable

STRANGER = SigningKey(b"\xee" * 32)
HEAD = "0" * 64


def enrol(pair: Consortium, name: str, key: SigningKey) -> None:
    hub = pair.coordinator.hub
    assert hub.enrol(enrolment(hub.invited(name), name, key, sealing_key="00" * 32)).is_success


def nothing_spent(pair: Consortium) -> bool:
    with pair.agent("clinic") as agent:
        return agent.ledger.charges() == {} and not pair.coordinator.received


def dump(envelope: Envelope) -> dict[str, Any]:
    return envelope.model_dump(mode="json")


def view_with(**changes: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda view: {**view, **changes}


def by_a_stranger(pair: Consortium) -> None:
    pair.plant(pair.spec(proposer=STRANGER), key=STRANGER)


def by_a_member_that_is_not_pinned(pair: Consortium) -> None:
    enrol(pair, "stranger", STRANGER)
    pair.propose(key=STRANGER)


def by_another_than_its_proposer(pair: Consortium) -> None:
    pair.plant(pair.spec(proposer=STRANGER))


def with_a_broken_signature(pair: Consortium) -> None:
    spec = pair.coordinator.found(pair.propose()).spec
    payload = spec.payload_bytes.replace(b'"epsilon":1.0', b'"epsilon":2.0')
    broken = spec.model_copy(update={"payload": b64encode(payload).decode()})
    pair.coordinator.shown = view_with(spec=dump(broken))


def another_under_the_same_id(pair: Consortium) -> None:
    pair.propose()
    other = seal(pair.spec(title="other"), key=pair.coordinator.key)
    pair.coordinator.shown = view_with(spec=dump(other))


def with_another_key_for_this_party(pair: Consortium) -> None:
    clinic, insurer = (spec := pair.spec()).parties
    other = clinic.model_copy(update={"signing_key": STRANGER.verifying_key.raw.hex()})
    pair.plant(spec.model_copy(update={"parties": (other, insurer)}))


def that_no_noise_level_serves(pair: Consortium) -> None:
    pair.plant(pair.spec().model_copy(update={"epsilon": 5.45e-8, "delta": 1e-300, "k": 40}))


@pytest.mark.parametrize(
    ("show", "error", "said"),
    [
        (by_a_stranger, SignatureError, "not expected here"),
        (by_a_member_that_is_not_pinned, SignatureError, "not expected here"),
        (by_another_than_its_proposer, SignatureError, "another proposer"),
        (with_a_broken_signature, SignatureError, "does not verify"),
        (another_under_the_same_id, DocumentError, "another spec under this id"),
        (with_another_key_for_this_party, DocumentError, "another key for this member"),
        (that_no_noise_level_serves, SpecError, "too much noise"),
    ],
)
def test_spec_that_cannot_be_is_ignored_and_spoils_no_list(
    pair: Consortium, show: Callable[[Consortium], None], error: type[CommingleError], said: str
) -> None:
    show(pair)
    with pytest.raises(error, match=said):
        pair.step("clinic")
    assert nothing_spent(pair)
    with pair.agent("clinic") as agent:
        assert agent.proposals.all() == []


def forged(release: str, key: SigningKey, party: str = "insurer") -> Envelope:
    return approvals_of(release, {party: key}, created=NOW)[party]


@pytest.mark.parametrize("what", ["missing", "by a stranger", "by us for them", "about another release", "other kind"])
def test_approval_that_is_missing_or_forged_prevents_the_debit(pair: Consortium, what: str) -> None:
    release = pair.propose()
    pair.step("clinic")
    own_key = pair.homes["clinic"].identity().signing_key
    their_key = pair.homes["insurer"].identity().signing_key
    rejection = Rejection(spec=release, party="insurer", reason="operator", created=NOW, ledger_head=HEAD)
    shown = {
        "missing": None,
        "by a stranger": forged(release, STRANGER),
        "by us for them": forged(release, own_key),
        "about another release": forged(HEAD, their_key),
        "other kind": seal(rejection, key=their_key),
    }[what]

    def lie(view: dict[str, Any]) -> dict[str, Any]:
        extra = {} if shown is None else {"insurer": dump(shown)}
        return {**view, "state": "approved", "approvals": {**view["approvals"], **extra}}

    pair.coordinator.shown = lie
    noise = Noise()
    with pytest.raises((DocumentError, SignatureError)):
        pair.step("clinic", draw=noise)
    charge = pair.charge("clinic", release)
    assert charge is not None
    assert (charge.state, noise.calls, pair.coordinator.received) == (ChargeState.RESERVED, [], {})


@pytest.mark.parametrize("state", ["approved", "collecting"])
def test_release_said_to_be_approved_that_we_did_not_approve_costs_nothing(pair: Consortium, state: str) -> None:
    pair.propose()
    pair.coordinator.shown = lambda view: {**view, "state": state}
    with pytest.raises(DocumentError, match="an approval that is not ours"):
        pair.step("clinic")
    assert nothing_spent(pair)


def test_approvals_in_one_place_and_rejected_in_another_stay_consistent(pair: Consortium) -> None:
    release = approved_by_all(pair)
    pair.coordinator.shown = lambda view: {**view, "state": "proposed", "approvals": {}}
    pair.step("clinic")
    with pair.agent("clinic") as agent:
        assert len([text for text in agent.ledger.history()[0] if json.loads(text)["kind"] == "reserved"]) == 1
    assert pair.charge("clinic", release) is not None


NONSENSE = [b"", b"<html>hello</html>", b"null", b"[]", b"{}", b"\xff\xfe", b'{"items": 3}', b"[" * 2000]


@pytest.mark.parametrize("part", ["/v1/releases", "/v1/releases/"])
def test_nonsense_is_a_nonsense_error_and_changes_nothing(pair: Consortium, part: str) -> None:
    pair.propose()
    for body in NONSENSE:
        pair.coordinator.before = answering(200, body, part=part)
        with pytest.raises(NonsenseError):
            pair.step("clinic")
        assert nothing_spent(pair), body


REFUSALS: list[tuple[int, bytes, type[CommingleError]]] = [
    (500, b"oops", NonsenseError),
    (404, b"{}", NonsenseError),
    (302, b"", NonsenseError),
    (502, b"<html>", UnreachableError),
    (503, b"", UnreachableError),
    (409, b'{"detail": "no", "type": "urn:commingle:problem:state"}', RemoteProblemError),
    (500, b'{"detail": ["odd"], "remedy": 3}', RemoteProblemError),
]


def test_refusals_of_every_kind_are_remote_errors(pair: Consortium) -> None:
    pair.propose()
    for status, body, error in REFUSALS:
        pair.coordinator.before = answering(status, body, part="/v1/releases/")
        with pytest.raises(error):
            pair.step("clinic")
        assert nothing_spent(pair), (status, body)


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "unheard-of"},
        {"approvals": []},
        {"approvals": {"clinic": {"payload": "!", "payloadType": "x", "signatures": []}}},
        {"spec": None},
        {"spec": {"payload": "AAAA", "payloadType": "x", "signatures": [{"keyid": "0" * 64, "sig": "AAAA"}]}},
        {"approvals": {"clinic": {"payload": "*", "payloadType": "x", "signatures": [{"keyid": HEAD, "sig": "*"}]}}},
        {"blocks": {"clinic": {"payload": "AAAA", "payloadType": "y", "signatures": [{"keyid": HEAD, "sig": "AA=="}]}}},
    ],
)
def test_views_that_make_no_sense_are_our_errors_and_do_not_halt(pair: Consortium, changes: dict[str, Any]) -> None:
    release = pair.propose()
    pair.coordinator.shown = view_with(**changes)
    with pytest.raises(CommingleError) as refused:
        pair.step("clinic")
    assert not isinstance(refused.value, StaleLedgerError)
    pair.coordinator.shown = lambda view: view
    pair.step("clinic")
    assert "clinic" in pair.coordinator.found(release).approvals


def own_documents(key: SigningKey, spec: str) -> dict[str, dict[str, Envelope]]:
    block = BlockStatement(
        spec=spec, approvals=HEAD, party="clinic", rows=1, columns=("x",), sigma=1,
        body_sha256=HEAD, content_sha256=HEAD, ledger_head=HEAD,
    )  # fmt: skip
    rejection = Rejection(spec=spec, party="clinic", reason="operator", created=NOW, ledger_head=HEAD)
    return {
        "approvals": {"clinic": forged(spec, key, "clinic")},
        "blocks": {"clinic": seal(block, key=key)},
        "rejections": {"clinic": seal(rejection, key=key)},
    }


@pytest.mark.parametrize("kind", ["approvals", "blocks", "rejections"])
def test_own_signature_the_ledger_does_not_know_stops_the_agent(pair: Consortium, kind: str) -> None:
    release = pair.propose()
    key = pair.homes["clinic"].identity().signing_key
    shown = own_documents(key, release)[kind]
    pair.coordinator.shown = view_with(**{kind: {name: dump(e) for name, e in shown.items()}})
    with pytest.raises(StaleLedgerError, match="does not know"):
        pair.step("clinic")
    assert nothing_spent(pair)


@pytest.mark.parametrize("kind", ["approvals", "blocks", "rejections"])
@pytest.mark.parametrize("how", ["by a stranger", "about another release"])
def test_forged_own_signature_is_no_reason_to_halt(pair: Consortium, kind: str, how: str) -> None:
    release = pair.propose()
    key = STRANGER if how == "by a stranger" else pair.homes["clinic"].identity().signing_key
    spec = release if how == "by a stranger" else "1" * 64
    shown = own_documents(key, spec)[kind]
    pair.coordinator.shown = view_with(**{kind: {name: dump(e) for name, e in shown.items()}})
    with pytest.raises((SignatureError, DocumentError)):
        pair.step("clinic")
    assert nothing_spent(pair)


def test_look_back_of_a_ledger_in_order_asks_for_no_release_that_ended_here(pair: Consortium) -> None:
    done = approved_by_all(pair)
    look(pair, "clinic", "insurer", "clinic")
    pair.coordinator.requests.clear()
    with pair.agent("clinic") as agent:
        agent.step(strictly)
        assert agent.proposals.get(done).decision == "approved"
    assert f"GET /v1/releases/{done}" not in pair.coordinator.requests


def test_release_refused_as_late_by_the_coordinator_keeps_charge_and_block(pair: Consortium) -> None:
    release = approved_by_all(pair)
    pair.coordinator.before = answering(
        409, json.dumps({"detail": "too late", "type": "urn:commingle:problem:state"}).encode(), part="/blocks/"
    )
    with pytest.raises(RemoteProblemError, match="too late"):
        pair.step("clinic")
    charge = pair.charge("clinic", release)
    assert charge is not None
    assert charge.state is ChargeState.STORED
    with pair.agent("clinic") as agent:
        assert agent.ledger.spent() > ZERO


def test_members_directory_is_read_to_its_end(pair: Consortium) -> None:
    keys = [home.identity().signing_key for home in pair.homes.values()]  # members already
    for i in range(1, 4):
        keys.append(SigningKey(bytes([i]) * 32))
        enrol(pair, f"m{i}", keys[-1])
    with pair.coordinator.client() as http:
        assert CoordinatorClient(http).member_keys() == [key.verifying_key for key in keys]


@pytest.mark.parametrize(
    ("read", "most"),
    [
        pytest.param(lambda client: client.members(), 50, id="members"),
        pytest.param(lambda client: list(client.releases("clinic", over_too=False)), 1000, id="releases"),
    ],
)
def test_lists_that_never_end_are_given_up(read: Callable[[CoordinatorClient], object], most: int) -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json={"items": [], "next": f"page {len(asked)}"})

    http = httpx.Client(transport=httpx.MockTransport(answer), base_url="http://hub")
    with http, pytest.raises(NonsenseError, match="without end"):
        read(CoordinatorClient(http))
    assert len(asked) == most


def test_list_page_larger_than_any_honest_one_is_refused() -> None:
    answer = httpx.Response(200, content=b" " * (8 << 20) + b"{}")
    http = httpx.Client(transport=httpx.MockTransport(lambda _: answer), base_url="http://hub")
    with http, pytest.raises(NonsenseError, match="more than the"):
        CoordinatorClient(http).members()


def test_agent_shows_no_secret_in_its_repr(pair: Consortium) -> None:
    with pair.agent("clinic") as agent:
        said = repr(agent) + repr(agent.datasets.all())
        assert isinstance(agent, Agent)
        for secret in (
            agent.home.consortium().linkage_key().hex(),
            repr(agent.home.consortium().linkage_key())[2:-1],
            repr(agent.datasets.snapshot(agent.datasets.all()[0].snapshot).key)[2:-1],
        ):
            assert secret not in said


@pytest.mark.parametrize("encoding", [{}, {"content-encoding": "gzip"}])
@pytest.mark.parametrize(
    "fetch",
    [
        lambda client, size: client.message("0" * 64, "clinic", kind="columns", size=size),
        lambda client, size: client.message("0" * 64, "insurer", kind="reply", size=size),
    ],
    ids=["columns", "reply"],
)
def test_message_of_an_exchange_that_is_compressed_or_too_long_is_not_taken(
    fetch: Callable[[CoordinatorClient, int], Iterator[bytes]], encoding: dict[str, str]
) -> None:
    body = gzip.compress(bytes(2 << 20)) if encoding else bytes(2 << 20)
    said = httpx.MockTransport(lambda _: httpx.Response(200, headers=encoding, content=body))
    with httpx.Client(transport=said, base_url="http://hub") as http:
        pieces = fetch(CoordinatorClient(http), (1 << 20) - (0 if encoding else 1))
        with pytest.raises(NonsenseError, match="compressed" if encoding else "more than the 2097151 bytes"):
            list(pieces)


PROBLEM = b'{"type": "urn:commingle:problem:storage", "title": "x", "status": 503, "detail": "the database is away"}'
ATTEMPTS: dict[str, Callable[[Agents, str], object]] = {
    "a look": lambda agents, _: agents.consortia[0].step(strictly),
    "an approval": lambda agents, waiting: agents.consortia[0].approve(waiting, BY_A_PERSON),
    "a rejection": lambda agents, waiting: agents.consortia[0].reject(waiting),
    "a regression": lambda agents, _: Regressions(agents.consortia[0]).ask(request()),
}


@pytest.fixture
def set_back(pair: Consortium) -> tuple[Consortium, str, str]:
    """A clinic whose ledger lacks a release that was published, and has an open one to decide; and both ids."""
    backup = LocalUser(pair).back_up()
    past = publish(pair)
    waiting = pair.propose(title="waits")
    HostileCoordinator(pair).forget_heads()
    LocalUser(pair).restore(backup)
    with pair.agent("clinic") as agent, agent.store.reading() as db:
        assert db.execute("SELECT * FROM proposals").fetchall() == []
    return pair, past, waiting


def require_nothing_done(pair: Consortium, waiting: str, noise: Noise) -> None:
    with pair.agent("clinic") as agent:
        assert (agent.ledger.charges(), agent.ledger.length, noise.calls) == ({}, 0, [])
    found = pair.coordinator.found(waiting)
    assert (found.approvals, found.rejections) == ({}, {})
    with pair.coordinator.hub.store.read() as tx:
        assert tx.heads.newest_of_each() == ()


@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=list(ATTEMPTS))
def test_old_ledger_does_nothing_with_an_open_proposal_over_two_starts(
    set_back: tuple[Consortium, str, str], attempt: Callable[[Agents, str], object]
) -> None:
    pair, _, waiting = set_back
    noise = Noise()
    for _ in range(2):
        with pair.agents("clinic", draw=noise) as agents, pytest.raises(StaleLedgerError):
            attempt(agents, waiting)
    require_nothing_done(pair, waiting, noise)


@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=list(ATTEMPTS))
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda past: unreachable("GET", past), id="no answer"),
        pytest.param(
            lambda past: answering(503, PROBLEM, part=past, content_type="application/problem+json"), id="storage"
        ),
    ],
)
def test_look_back_that_is_not_complete_lets_nothing_happen(
    set_back: tuple[Consortium, str, str], attempt: Callable[[Agents, str], object], fault: Callable[[str], Any]
) -> None:
    pair, past, waiting = set_back
    noise = Noise()
    with pair.agents("clinic", draw=noise) as agents:
        pair.coordinator.before = fault(past)
        for _ in range(2):
            with pytest.raises((RemoteError, UnwitnessedError)):
                attempt(agents, waiting)
        pair.coordinator.before = no_fault
        with pytest.raises(StaleLedgerError):
            attempt(agents, waiting)
    require_nothing_done(pair, waiting, noise)


def test_look_back_is_repeated_when_touch_was_lost(pair: Consortium) -> None:
    copy = LocalUser(pair).copy()
    with pair.agents("clinic") as agents:
        agents.consortia[0].step(strictly)  # looked back at nothing
        past = pair.propose(title="ends before it is seen here")
        with pair.agents("clinic", home=copy) as other:
            other.consortia[0].step(strictly)
            other.reject(past, BY_A_PERSON)
        HostileCoordinator(pair).forget_heads()
        waiting = pair.propose(title="waits")
        agents.witnesses.lose(agents.consortia[0].coordinator.key.fingerprint)
        with pytest.raises(StaleLedgerError):
            agents.consortia[0].step(strictly)
        with pytest.raises(StaleLedgerError):
            agents.consortia[0].approve(waiting, BY_A_PERSON)
    assert pair.coordinator.found(waiting).approvals == {}


def test_connection_that_fails_is_followed_by_another_look_back(pair: Consortium) -> None:
    release = pair.propose()
    with pair.agent("clinic") as agent:
        loop = Loop(agent)
        loop.turn()
        looked = pair.coordinator.requests.count(f"GET /v1/releases/{release}")
        agent.witnesses.ask(agent.coordinator.key.fingerprint)
        assert pair.coordinator.requests.count(f"GET /v1/releases/{release}") == looked
        pair.coordinator.before = unreachable("GET", f"/v1/releases/{release}")
        agent.step(loop.attend)  # one release only, whose failure is its own
        pair.coordinator.before = no_fault
        agent.witnesses.ask(agent.coordinator.key.fingerprint)
        assert pair.coordinator.requests.count(f"GET /v1/releases/{release}") == looked + 2


def test_release_that_is_hidden_or_nonsense_does_not_keep_from_others(pair: Consortium) -> None:
    hidden, nonsense, good = (pair.propose(title=title) for title in ("hidden", "nonsense", "good"))
    liar = HostileCoordinator(pair)
    liar.hide(hidden)
    liar.lie(f"/{nonsense}", lambda _: {"nonsense": True})
    with pair.agent("clinic") as agent:
        Loop(agent).turn()
    assert "clinic" in pair.coordinator.found(good).approvals
    assert "clinic" not in pair.coordinator.found(hidden).approvals


def test_release_that_ended_unseen_is_ended_here_once(pair: Consortium) -> None:
    release = pair.propose()
    pair.withdraw(release, "insurer")
    with pair.agent("clinic") as agent:
        for _ in range(2):
            agent.step(strictly)
        assert agent.proposals.get(release).state == "rejected"
    assert pair.coordinator.requests.count(f"GET /v1/releases/{release}") == 2  # looked back at, and ended
