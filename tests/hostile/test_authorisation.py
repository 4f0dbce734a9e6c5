"""Who may do what at a coordinator: every pair of actor and endpoint. The others: test_authorisation_local.py.

Two doors, tested apart: the request is signed (RFC 9421) or carries a token, and the document in it is signed (DSSE).
"""

import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from commingle.coordinator.http.app import create_app
from commingle.coordinator.http.streams import Feed
from commingle.coordinator.members import CoordinatorScope, create_token
from commingle.shared.documents.dsse import SigningKey, seal
from commingle.shared.documents.linkage import IdentityStatement, LinkageKeyMessage
from commingle.shared.documents.model import encode
from commingle.shared.documents.statements import Departure, Rotation, RotationRequest, SignedDocument
from commingle.shared.release.matrix import ARROW_STREAM
from tests.hostile.attack import Endpoint, endpoints, hub_with_releases
from tests.world.consortium import kept_folder
from tests.world.coordinator import Honest, Hub, key_of, problem
from tests.world.documents import START
from tests.world.documents import ledger_head as head_at
from tests.world.exchange import PATHS, Kind, Relayed, approved
from tests.world.transport import InProcess, pool_of_threads

pytestmark = pytest.mark.slow  # every caller at every endpoint

CLINIC, REGISTRY = Honest("clinic", key_of("clinic")), Honest("registry", key_of("registry"))
PARTIES = (CLINIC, REGISTRY)

KEYS: dict[str, Callable[[Hub], SigningKey | None]] = {
    "anonymous": lambda _: None,
    "stranger": lambda _: SigningKey(secrets.token_bytes(32)),
    "other party": lambda _: REGISTRY.key,
    "the party itself": lambda _: CLINIC.key,
    "coordinator": lambda hub: hub.key,
    "token read": lambda _: None,
    "token operate": lambda _: None,
}
"""What each actor signs requests and documents with. Who has a token passes on documents that clinic signed."""

# fmt: off
OPEN = {"/healthz", "/readyz", "/metrics", "/v1/coordinator"}
READS = {
    "/v1/member-log",
    "/v1/parties", "/v1/parties/{party}", "/v1/parties/{party}/keys", "/v1/parties/{party}/linkage-keys",
    "/v1/parties/{party}/releases",
    "/v1/events", "/v1/releases", "/v1/releases/{release}", "/v1/releases/{release}/events",
    "/v1/releases/{release}/forecast",
    "/v1/releases/{release}/manifest", "/v1/releases/{release}/matrix", "/v1/releases/{release}/moments",
}
"""Public by design, unless the operator says otherwise. Alignment statements and blocks are in none of them."""
PRIVATE_READS = {
    "anonymous": 401, "stranger": 401, "other party": 200, "the party itself": 200, "coordinator": 200,
    "token read": 200, "token operate": 200,
}
"""The same where `public_reads` is off."""
ONLY_ITSELF = {
    "anonymous": 401, "stranger": 401, "other party": 403, "the party itself": 201, "coordinator": 403,
    "token read": 401, "token operate": 401,
}
FOR_MEMBERS = {
    "anonymous": 401, "stranger": 401, "other party": 200, "the party itself": 200, "coordinator": 403,
    "token read": 401, "token operate": 401,
}
CLOSED_READS = {
    "/v1/ledger-heads": FOR_MEMBERS,
    "/v1/parties/{party}/ledger-heads": FOR_MEMBERS,
    "/v1/releases/{release}/columns": FOR_MEMBERS,  # of this release
    "/v1/releases/{release}/columns/{party}": FOR_MEMBERS,  # of this release
    "/v1/releases/{release}/replies": FOR_MEMBERS,  # of this release
    "/v1/releases/{release}/replies/{party}": FOR_MEMBERS,  # of this release
}
"""For members or the parties of the release, whatever the operator says."""
CARRIED = {
    "anonymous": 401, "stranger": 401, "other party": 403, "the party itself": 201, "coordinator": 403,
    "token read": 401, "token operate": 401,
}
"""Any member may bring it, as `test_relaying` tests; here everybody signs it with a key of their own."""
CHANGES: dict[Endpoint, dict[str, int]] = {
    # the invite lets in; these repeat clinic's enrolment, which only clinic's own key may
    ("POST", "/v1/parties"): {
        "anonymous": 403, "stranger": 403, "other party": 403, "the party itself": 200, "coordinator": 403,
        "token read": 200, "token operate": 200,
    },
    # nothing comes of a proposal without every party's approval
    ("POST", "/v1/releases"): {
        "anonymous": 401, "stranger": 401, "other party": 201, "the party itself": 201, "coordinator": 201,
        "token read": 403, "token operate": 201,
    },
    ("PUT", "/v1/releases/{release}/approvals/{party}"): ONLY_ITSELF,
    ("PUT", "/v1/releases/{release}/rejections/{party}"): ONLY_ITSELF,
    ("PUT", "/v1/releases/{release}/columns/{party}"): ONLY_ITSELF,
    ("PUT", "/v1/releases/{release}/replies/{party}"): ONLY_ITSELF,
    ("PUT", "/v1/releases/{release}/blocks/{party}"): ONLY_ITSELF,
    ("POST", "/v1/parties/{party}/keys"): ONLY_ITSELF,
    ("PUT", "/v1/parties/{party}/identity"): ONLY_ITSELF,
    ("PUT", "/v1/parties/{party}/linkage-keys/{sender}"): ONLY_ITSELF,  # the sender's own name
    ("PUT", "/v1/parties/{party}/ledger-heads"): CARRIED,
    ("PUT", "/v1/parties/{party}/departure"): ONLY_ITSELF,
}
# fmt: on


@dataclass(frozen=True)
class Change:
    """A request that changes something, its document signed by some key."""

    path: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)

    def unsigned(self) -> "Change":
        def blank(text: str) -> str:
            return re.sub(r'"sig":"[^"]*"', '"sig":""', text)

        if self.headers:
            return replace(self, headers={name: blank(value) for name, value in self.headers.items()})
        return replace(self, body=blank(self.body.decode()).encode())


def enrolment(hub: Hub, key: SigningKey, invite: str) -> Change:
    del hub
    return Change("/v1/parties", encode(CLINIC.enrolment(invite, key=key)))


def proposal(hub: Hub, key: SigningKey, _: str) -> Change:
    return Change("/v1/releases", hub.signed(hub.spec(PARTIES, proposer=key), key).envelope.to_json())


def approval(hub: Hub, key: SigningKey, _: str) -> Change:
    proposed = hub.proposed(PARTIES)
    return Change(f"/v1/releases/{proposed.id}/approvals/clinic", encode(CLINIC.approval(proposed, key=key)))


def rejection(hub: Hub, key: SigningKey, _: str) -> Change:
    proposed = hub.proposed(PARTIES)
    envelope = replace(CLINIC, key=key).rejection(proposed)
    return Change(f"/v1/releases/{proposed.id}/rejections/clinic", envelope.to_json())


def columns(hub: Hub, key: SigningKey, _: str) -> Change:
    return message(approved(hub, PARTIES), "columns", key)


def reply(hub: Hub, key: SigningKey, _: str) -> Change:
    exchanging = approved(hub, PARTIES[::-1])  # clinic comes second, so it has something to say
    exchanging.send_all("columns")
    return message(exchanging, "reply", key)


def message(exchanging: Relayed, kind: Kind, key: SigningKey) -> Change:
    made = exchanging.make(kind, CLINIC, key)
    assert made.body
    return Change(exchanging.path(PATHS[kind], "clinic"), made.body, made.headers)


def block(hub: Hub, key: SigningKey, _: str) -> Change:
    proposed = hub.approved(PARTIES)
    made = hub.block(proposed, CLINIC)
    statement = CLINIC.signed(made.body, made.statement, key=key).envelope.to_json().decode()
    headers = {"Content-Type": ARROW_STREAM, "Commingle-Block": statement}
    return Change(f"/v1/releases/{proposed.id}/blocks/clinic", made.body, headers)


def rotation(hub: Hub, key: SigningKey, _: str) -> Change:
    old, new = CLINIC.key.verifying_key.raw.hex(), SigningKey(secrets.token_bytes(32))
    document = Rotation(party="clinic", old_key=old, new_key=new.verifying_key.raw.hex(), created=hub.clock())
    by_old, by_new = (seal(document, key=signer) for signer in (key, new))
    return Change("/v1/parties/clinic/keys", encode(RotationRequest(by_old=by_old, by_new=by_new)))


def departure(hub: Hub, key: SigningKey, _: str) -> Change:
    document = Departure(party="clinic", coordinator=hub.key.fingerprint, created=hub.clock())
    return Change("/v1/parties/clinic/departure", seal(document, key=key).to_json())


def identity(hub: Hub, key: SigningKey, _: str) -> Change:
    del hub
    raw = CLINIC.key.verifying_key.raw.hex()
    document = IdentityStatement(name="clinic", signing_key=raw, sealing_key=CLINIC.sealing_key)
    return Change("/v1/parties/clinic/identity", seal(document, key=key).to_json())


def linkage_key(hub: Hub, key: SigningKey, _: str) -> Change:
    document = LinkageKeyMessage(
        sender="clinic", recipient="registry", coordinator=hub.key.fingerprint, created=START, sealed="0" * 160
    )
    return Change("/v1/parties/registry/linkage-keys/clinic", seal(document, key=key).to_json())


def ledger_head(hub: Hub, key: SigningKey, _: str) -> Change:
    document = head_at(secrets.randbelow(1 << 40), secrets.token_hex(32), created=hub.clock())
    return Change("/v1/parties/clinic/ledger-heads", encode(SignedDocument.of(document, key)))


_RELEASES = (proposal, approval, rejection, columns, reply, block)
_MEMBERS = (rotation, identity, linkage_key, ledger_head, departure)
MAKE = dict(zip(CHANGES, (enrolment, *_RELEASES, *_MEMBERS), strict=True))


@cache
def _members() -> tuple[Path, str]:
    """Files of a coordinator with both members, and clinic's invite, which is used: made once in this process."""
    folder = kept_folder()
    hub = Hub(f"sqlite:///{folder / 'coordinator.sqlite'}", folder)
    invites = {party.name: hub.invited(party.name) for party in PARTIES}
    for party in PARTIES:
        assert hub.enrol(party.enrolment(invites[party.name])).status_code == 201
    hub.close()
    return folder, invites["clinic"]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    shutil.copytree(_members()[0], tmp_path, dirs_exist_ok=True)
    hub = Hub(f"sqlite:///{tmp_path / 'coordinator.sqlite'}", tmp_path)
    yield hub
    hub.close()


@pytest.fixture
def invite() -> str:
    return _members()[1]


def authorised(hub: Hub, actor: str) -> httpx.Auth | None:
    if actor.startswith("token "):
        scope: CoordinatorScope = "operate" if actor == "token operate" else "read"
        return Bearer(create_token(hub.coordinator, name=secrets.token_hex(4), scope=scope, lifetime=None))
    key = KEYS[actor](hub)
    return None if key is None else hub.auth(key)


class Bearer(httpx.Auth):
    def __init__(self, token: str) -> None:
        self._token = token

    def auth_flow(self, request: httpx.Request) -> Iterator[httpx.Request]:  # type: ignore[override]
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request


def recorded(hub: Hub) -> list[str]:
    """All that a change could have changed."""
    paths = (
        "/v1/events",
        "/v1/parties",
        *(f"/v1/parties/{p.name}/{k}" for p in PARTIES for k in ("keys", "linkage-keys")),
    )
    return [hub.http.get(path).text for path in paths]


def test_tables_hold_every_endpoint_and_actor(hub: Hub) -> None:
    assert endpoints(hub.app) == {("GET", path) for path in OPEN | READS | CLOSED_READS.keys()} | CHANGES.keys()
    tables = (PRIVATE_READS, *CLOSED_READS.values(), *CHANGES.values())
    assert all(list(by_actor) == list(KEYS) for by_actor in tables)


def test_openapi_document_says_of_each_endpoint_who_is_let_in(hub: Hub) -> None:
    document = hub.app.openapi()
    answered = {("GET", path): each for path, each in (dict.fromkeys(READS, PRIVATE_READS) | CLOSED_READS).items()}
    for (method, path), answers in (answered | CHANGES).items():
        said = document["paths"][path][method.lower()]["security"]
        tokens = answers["anonymous"] == 401 and min(answers["token read"], answers["token operate"]) < 400
        assert ({"HTTPBearer": []} in said) is tokens, path
        assert ({"Signature": []} in said) is (answers["anonymous"] == 401), path
        assert ({} in said) is (method == "GET" and path in READS), path
    assert all(document["paths"][path]["get"]["security"] == [] for path in OPEN)
    named = {
        scheme for path in document["paths"].values() for o in path.values() for one in o["security"] for scheme in one
    }
    assert named == document["components"]["securitySchemes"].keys()


@pytest.mark.parametrize("actor", KEYS)
@pytest.mark.parametrize("endpoint", CHANGES, ids=" ".join)
def test_change_is_for_whom_the_table_says(hub: Hub, invite: str, endpoint: Endpoint, actor: str) -> None:
    change = MAKE[endpoint](hub, KEYS[actor](hub) or CLINIC.key, invite)
    change = change.unsigned() if actor == "anonymous" else change
    before = recorded(hub)
    auth = authorised(hub, actor)
    answer = hub.http.request(endpoint[0], change.path, content=change.body, headers=change.headers, auth=auth)
    assert answer.status_code == CHANGES[endpoint][actor], answer.text
    if answer.status_code >= 400:
        problem(answer)
        assert recorded(hub) == before


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("endpoint", [e for e in CHANGES if e[1] != "/v1/parties"], ids=" ".join)
def test_right_caller_with_a_document_nobody_known_signed_changes_nothing(
    hub: Hub, invite: str, endpoint: Endpoint, *, signed: bool
) -> None:
    change = MAKE[endpoint](hub, SigningKey(secrets.token_bytes(32)) if signed else CLINIC.key, invite)
    change = change if signed else change.unsigned()
    before = recorded(hub)
    auth = hub.auth(CLINIC.key)
    answer = hub.http.request(endpoint[0], change.path, content=change.body, headers=change.headers, auth=auth)
    assert problem(answer) == (403, "signature")
    assert recorded(hub) == before


def test_member_cannot_act_in_a_release_it_is_not_in(hub: Hub) -> None:
    lab = hub.enrolled("lab")
    proposed = hub.approved(PARTIES)
    made = hub.block(proposed, CLINIC)
    answers = (
        hub.approve(proposed, "lab", lab.approval(proposed)),
        hub.reject(proposed, "lab", lab.rejection(proposed)),
        hub.upload(proposed, "lab", lab.signed(made.body, made.statement)),
    )
    assert [problem(answer) for answer in answers] == [(404, "unknown")] * 3


@dataclass(frozen=True)
class Served:
    """What is only read, made once.

    Attributes:
        releases: ids, of a published one, an approved one and a proposed one.
        exchanging: by whether clinic comes last, so that it has something to reply to.
        apps: by whether reads are public.
    """

    hub: Hub
    releases: list[str]
    exchanging: Mapping[bool, Relayed]
    apps: Mapping[bool, FastAPI]

    def client(self, *, public: bool, auth: httpx.Auth | None = None) -> httpx.Client:
        return httpx.Client(transport=InProcess(self.apps[public]), base_url="http://hub", auth=auth)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with hub_with_releases(tmp_path_factory.mktemp("served")) as (hub, releases):
        exchanging = {last: approved(hub, PARTIES[::-1] if last else PARTIES) for last in (False, True)}
        for each in exchanging.values():
            each.send_all("columns", "reply")
        feed = Feed(hub.store)
        feed.stop()
        apps = {
            public: create_app(replace(hub.coordinator, public_reads=public), hub.publisher, feed, pool=pool)
            for public, pool in ((True, pool_of_threads()), (False, pool_of_threads()))
        }
        yield Served(hub, releases, exchanging, apps)


@pytest.mark.parametrize("actor", KEYS)
@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize("path", CLOSED_READS)
def test_what_passes_between_parties_is_for_whom_the_table_says(
    served: Served, path: str, actor: str, *, public: bool
) -> None:
    release = served.exchanging["replies" in path].proposed.id
    with served.client(public=public, auth=authorised(served.hub, actor)) as http:
        query = {"of": "clinic"} if path.endswith(("/columns", "/replies")) else None
        answer = http.get(path.format(release=release, party="clinic"), params=query)
    assert answer.status_code == CLOSED_READS[path][actor], answer.text
    assert answer.content


@pytest.mark.parametrize("actor", KEYS)
@pytest.mark.parametrize("public", [True, False])
def test_read_is_for_everybody_or_for_whom_the_table_says(served: Served, actor: str, *, public: bool) -> None:
    with served.client(public=public, auth=authorised(served.hub, actor)) as http:
        for path in sorted(OPEN | READS):
            answer = http.get(path.format(release=served.releases[0], party="clinic"))
            wanted = PRIVATE_READS[actor] if path in READS and not public else 200
            # a signature that does not hold is refused wherever it is given
            wanted = 401 if actor == "stranger" and path in READS else wanted
            assert answer.status_code == wanted, path


def test_no_read_shows_an_alignment_statement_or_a_block(served: Served) -> None:
    releases = served.releases
    with served.client(public=True) as http:
        said = "".join(
            http.get(path.format(release=release, party="clinic")).text for path in OPEN | READS for release in releases
        )
        for kind in ("alignments", "blocks"):
            assert problem(http.get(f"/v1/releases/{releases[0]}/{kind}/clinic"))[0] in {404, 405}
    with served.hub.store.read() as tx:
        found = [tx.releases.get(release) for release in releases]
    shares = [share for release in found if release for share in release.shares.values()]
    stated = [share.alignment.payload for share in shares if share.alignment]
    digests = [share.aligned.digest for share in shares if share.aligned]
    assert len(stated) == len(digests) == 4
    assert not any(text in said for text in (*stated, *digests))
