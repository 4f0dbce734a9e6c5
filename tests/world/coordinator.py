"""Honest parties and a coordinator in one process: what the tests drive, attack and restart."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache, cached_property
from hashlib import sha256
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any, TypeAlias, TypeVar
from weakref import finalize

import httpx
import numpy as np
from fastapi import FastAPI

from commingle.coordinator.blobs import BlobDirectory, Blobs
from commingle.coordinator.coordinator import Coordinator, Quotas
from commingle.coordinator.http.app import create_app
from commingle.coordinator.http.streams import Feed
from commingle.coordinator.members import invite
from commingle.coordinator.publisher import Publisher
from commingle.coordinator.store.database import Database
from commingle.coordinator.store.store import Store, open_store
from commingle.shared.documents.dsse import Envelope, SigningKey, parse_envelope, seal
from commingle.shared.documents.linkage import alignment_digest
from commingle.shared.documents.model import encode
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.documents.statements import (
    AlignmentStatement,
    Approval,
    ApprovalRequest,
    BlockStatement,
    Rejection,
    RejectionReason,
    SignedDocument,
    approval_set_digest,
    open_statement,
)
from commingle.shared.documents.study import Study
from commingle.shared.dp.fixed_point import SCALE
from commingle.shared.dp.noise import rounded_gaussian
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.release.checks import Member, build_spec
from commingle.shared.release.matrix import ARROW_STREAM
from commingle.shared.release.plan import plan_block
from commingle.shared.release.verification import PublishedRelease, verify_release
from commingle.shared.runtime.files import Disks
from commingle.shared.runtime.request_signing import RequestSigner
from tests.world.applications import Turn, in_turn
from tests.world.documents import HEAD, START, block_statement, enrolment
from tests.world.transport import InProcess, pool_of_threads

Answer = TypeVar("Answer")
ROWS = 40
LINKAGE = b"only the parties know this"
ATTRIBUTES: Mapping[str, list[dict[str, Any]]] = {
    "clinic": [
        {"kind": "numeric", "name": "age", "lower": 0.0, "upper": 100.0},
        {"kind": "numeric", "name": "weight", "lower": 30.0, "upper": 200.0},
    ],
    "registry": [
        {"kind": "binary", "name": "smoker", "levels": ["no", "yes"]},
        {"kind": "categorical", "name": "region", "levels": ["north", "south", "west"]},
    ],
    "lab": [{"kind": "numeric", "name": "glucose", "lower": 0.0, "upper": 20.0}],
}


@dataclass
class SetClock:
    """A clock that stands until it is moved."""

    now: datetime = START

    def __call__(self) -> datetime:
        return self.now

    def move(self, **by: float) -> None:
        self.now += timedelta(**by)


@dataclass(frozen=True)
class Proposed:
    """A spec with its signature."""

    spec: ReleaseSpec
    envelope: Envelope

    @property
    def id(self) -> str:
        return self.envelope.digest


@dataclass(frozen=True)
class Block:
    """What a party uploads."""

    body: bytes
    statement: BlockStatement
    envelope: Envelope


@dataclass(frozen=True)
class Honest:
    """A party that follows the protocol, with made-up rows."""

    name: str
    key: SigningKey
    sealing_key: str = "11" * 32
    subjects: Sequence[str] = tuple(f"subject-{i:03}" for i in range(ROWS))

    def enrolment(self, text: str, *, key: SigningKey | None = None) -> SignedDocument:
        return enrolment(text, self.name, key or self.key, sealing_key=self.sealing_key)

    def approval(
        self, proposed: Proposed, *, key: SigningKey | None = None, head: str = HEAD, about: str | None = None
    ) -> ApprovalRequest:
        release, signer = about or proposed.id, key or self.key
        approval = Approval(spec=release, party=self.name, created=START, ledger_head=head)
        ids = sorted(subject.encode() for subject in self.subjects)
        listed = (len(i).to_bytes(4, "big") + i for i in ids)
        digest = alignment_digest(LINKAGE, spec_digest=release, subjects=len(ids), listed=listed)
        alignment = AlignmentStatement(spec=release, party=self.name, subjects=len(self.subjects), digest=digest)
        return ApprovalRequest(approval=seal(approval, key=signer), alignment=seal(alignment, key=signer))

    def rejection(self, proposed: Proposed, reason: RejectionReason = "operator", head: str = HEAD) -> Envelope:
        document = Rejection(spec=proposed.id, party=self.name, reason=reason, created=START, ledger_head=head)
        return seal(document, key=self.key)

    def share(self, proposed: Proposed) -> PartySpec:
        return proposed.spec.party(self.name)

    def block(self, proposed: Proposed, approvals: Mapping[str, Envelope], /, **changes: Any) -> Block:
        spec, share = proposed.spec, self.share(proposed)
        plan = plan_block(spec, share)
        rows = np.random.default_rng(len(self.name)).integers(-SCALE, SCALE + 1, (spec.n, len(plan.columns)))
        accumulator = mechanism_of(spec).accumulator(spec.terms, len(plan.columns))
        accumulator.add(np.arange(spec.n), rows)
        noise = rounded_gaussian(plan.sigma, plan.rows * len(plan.columns))
        integers = accumulator.total() + noise.reshape(plan.rows, len(plan.columns))
        opened = {p.name: open_statement(approvals[p.name], Approval, p, spec=proposed.id) for p in spec.parties}
        body, statement = block_statement(
            spec, share, integers, release=proposed.id, approvals=approval_set_digest(opened)
        )
        return self.signed(body, statement.model_copy(update=changes))

    def signed(self, body: bytes, statement: BlockStatement, key: SigningKey | None = None) -> Block:
        return Block(body, statement, seal(statement, key=key or self.key))


def key_of(name: str) -> SigningKey:
    return SigningKey(sha256(name.encode()).digest())


Parties: TypeAlias = tuple[Honest, Honest]


_serials = count()


class ToldFeed(Feed):
    """Tells when a request waits for events, and how often any did."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.asked, self.waits = Event(), 0
        self._serial = next(_serials)

    def state(self, about: str | None) -> tuple[int, int, int]:
        """Under lives that no other hub has: an application keeps what it found by them, and serves many hubs."""
        life, newest, last = super().state(about)
        return life + (self._serial << 32), newest, last

    async def wait(self, seq: int, *, timeout_seconds: float, about: str | None = None) -> None:
        self.waits += 1
        self.asked.set()
        await super().wait(seq, timeout_seconds=timeout_seconds, about=about)


@dataclass(frozen=True)
class _Parts:
    coordinator: Coordinator
    publisher: Publisher
    feed: Feed


def _app_of(parts: _Parts) -> FastAPI:
    return create_app(parts.coordinator, parts.publisher, parts.feed, pool=pool_of_threads())


@dataclass
class Hub:
    """A coordinator over files that outlive it, called without a socket. The publisher runs when told to.

    Attributes:
        apart: its application serves no other, so that it counts from zero.
    """

    url: str
    home: Path
    clock: SetClock = field(default_factory=SetClock)
    key: SigningKey = field(default_factory=lambda: key_of("the coordinator"))
    blobs: Blobs | None = None
    quotas: Quotas = field(default_factory=Quotas)
    disks: Disks = field(default_factory=lambda: Disks((), 0))
    apart: bool = False

    def __post_init__(self) -> None:
        _prepare(self.url)
        self.store = open_store(self.url)
        finalize(self, self.store.close)  # where a test leaves it to the garbage collector
        blobs = self.blobs or BlobDirectory(self.home / "blobs")
        self.coordinator = Coordinator(
            "hub", self.key, self.store, blobs, self.clock, quotas=self.quotas, disks=self.disks
        )
        self.publisher = Publisher(self.coordinator)
        self.feed = ToldFeed(self.coordinator.store)
        self.transport: InProcess = InProcess(self.app) if self.apart else in_turn(_app_of, self._parts)
        self.http = httpx.Client(transport=self.transport, base_url="http://hub")

    @property
    def _parts(self) -> "_Parts":
        return _Parts(self.coordinator, self.publisher, self.feed)

    @cached_property
    def app(self) -> FastAPI:
        """One that serves no other hub."""
        return _app_of(self._parts)

    def close(self) -> None:
        self.http.close()
        if isinstance(self.transport, Turn):
            self.transport.end()
        self.store.close()

    @contextmanager
    def meanwhile(self, call: Callable[[], Answer]) -> Iterator[Future[Answer]]:
        """A request on another thread, from when it waits for events on."""
        self.feed.asked.clear()
        with ThreadPoolExecutor(1) as thread:
            begun = thread.submit(call)
            assert self.feed.asked.wait(60)
            yield begun

    def auth(self, key: SigningKey) -> RequestSigner:
        return RequestSigner(key, audience=self.key.fingerprint, clock=self.clock)

    def enrolled(self, name: str) -> Honest:
        party = Honest(name, key_of(name))
        answer = self.enrol(party.enrolment(self.invited(name)))
        assert answer.status_code == 201, answer.text
        return party

    def invited(self, name: str, *, hours: float = 72) -> str:
        return invite(self.coordinator, party=name, lifetime=timedelta(hours=hours))[0]

    def enrol(self, document: SignedDocument) -> httpx.Response:
        return self.http.post("/v1/parties", content=encode(document))

    def spec(
        self,
        parties: Sequence[Honest],
        *,
        mechanism: str = "rmgm",
        first_stage: float | None = None,
        proposer: SigningKey | None = None,
        **changes: Any,
    ) -> ReleaseSpec:
        study = {
            "study": "smoking and weight",
            "mechanism": mechanism,
            "subjects": "listed",
            "k": 16 if mechanism == "rmgm" else None,
            "bounds": "trusted" if mechanism == "moments" else None,  # where a test does not ask for proofs
            "epsilon": 1.0,
            "delta": 1e-5,
            "n": ROWS,
            "parties": tuple(
                {
                    "name": p.name,
                    "dataset": "cohort",
                    "attributes": ATTRIBUTES[p.name],
                    "first_stage_share": first_stage,
                }
                for p in parties
            ),
        }
        members = {p.name: Member(p.key.verifying_key.raw.hex(), p.sealing_key) for p in parties}
        return build_spec(
            Study.model_validate(study | changes, strict=False),
            members=members,
            proposer=(proposer or self.key).fingerprint,
            seed=bytes(32),
            now=self.clock(),
        )

    def by_member(self, parties: Sequence[Honest], member: Honest, **changes: Any) -> Proposed:
        return self.signed(self.spec(parties, proposer=member.key, **changes), member.key)

    def signed(self, spec: ReleaseSpec, key: SigningKey | None = None) -> Proposed:
        return Proposed(spec, seal(spec, key=key or self.key))

    def propose(self, proposed: Proposed) -> httpx.Response:
        return self.http.post("/v1/releases", content=proposed.envelope.to_json(), auth=self.auth(self.key))

    def proposed(self, parties: Sequence[Honest], *, mechanism: str = "rmgm", **changes: Any) -> Proposed:
        proposed = self.signed(self.spec(parties, mechanism=mechanism, **changes))
        assert self.propose(proposed).status_code == 201
        return proposed

    def approve(self, proposed: Proposed, party: str, request: ApprovalRequest) -> httpx.Response:
        path = f"/v1/releases/{proposed.id}/approvals/{party}"
        return self.http.put(path, content=encode(request), auth=self.auth(key_of(party)))

    def reject(self, proposed: Proposed, party: str, envelope: Envelope) -> httpx.Response:
        path = f"/v1/releases/{proposed.id}/rejections/{party}"
        return self.http.put(path, content=envelope.to_json(), auth=self.auth(key_of(party)))

    def approved(self, parties: Sequence[Honest], *, mechanism: str = "rmgm") -> Proposed:
        proposed = self.proposed(parties, mechanism=mechanism)
        for party in parties:
            assert self.approve(proposed, party.name, party.approval(proposed)).status_code == 201
        return proposed

    def approvals(self, proposed: Proposed) -> dict[str, Envelope]:
        found = self.show(proposed)["approvals"]
        return {name: parse_envelope(httpx.Response(200, json=value).content) for name, value in found.items()}

    def block(self, proposed: Proposed, party: Honest, /, **changes: Any) -> Block:
        return party.block(proposed, self.approvals(proposed), **changes)

    def upload(self, proposed: Proposed, party: str, block: Block, body: bytes | None = None) -> httpx.Response:
        headers = {"Content-Type": ARROW_STREAM, "Commingle-Block": block.envelope.to_json().decode()}
        content = block.body if body is None else body
        path = f"/v1/releases/{proposed.id}/blocks/{party}"
        return self.http.put(path, content=content, headers=headers, auth=self.auth(key_of(party)))

    def complete(self, parties: Sequence[Honest], *, mechanism: str = "rmgm") -> Proposed:
        proposed = self.approved(parties, mechanism=mechanism)
        for party in parties:
            answer = self.upload(proposed, party.name, self.block(proposed, party))
            assert answer.status_code == 201, answer.text
        return proposed

    def published(self, proposed: Proposed) -> tuple[bytes, bytes, bytes]:
        """What is served of a release: manifest, matrix and moments."""
        manifest, matrix, moments = (
            self.http.get(f"/v1/releases/{proposed.id}/{name}").content for name in ("manifest", "matrix", "moments")
        )
        return manifest, matrix, moments

    def verified(self, proposed: Proposed) -> PublishedRelease:
        return verify_release(*self.published(proposed), trusted_coordinator=self.key.fingerprint)

    def sql(self, statement: str) -> Sequence[Any]:
        """Rows of a statement that goes straight to the database, behind the coordinator's back."""
        database = Database(self.url)
        try:
            with database.writing() as connection:
                result = connection.exec_driver_sql(statement)
                return result.all() if result.returns_rows else ()
        finally:
            database.close()

    def show(self, proposed: Proposed) -> dict[str, Any]:
        answer = self.http.get(f"/v1/releases/{proposed.id}")
        assert answer.status_code == 200, answer.text
        shown: dict[str, Any] = answer.json()
        return shown

    def state(self, proposed: Proposed) -> str:
        state: str = self.show(proposed)["state"]
        return state

    def kinds(self, proposed: Proposed) -> list[str]:
        items = self.http.get("/v1/events").json()["items"]
        return [item["kind"] for item in items if item["release"] == proposed.id]


def _prepare(url: str) -> None:
    """A new SQLite file starts as a copy of one whose tables were made before."""
    kind, _, file = url.partition(":///")
    if kind == "sqlite" and not (path := Path(file)).exists() and path.parent.is_dir():
        path.write_bytes(_empty_database())


@cache
def _empty_database() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "empty.sqlite"
        open_store(f"sqlite:///{path}").close()
        return path.read_bytes()


def problem(answer: httpx.Response) -> tuple[int, str]:
    """Status and code of a problem document, checked to be one."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    document = answer.json()
    assert document["detail"]
    assert document["remedy"]
    assert document["status"] == answer.status_code
    return answer.status_code, document["type"].removeprefix("urn:commingle:problem:")
