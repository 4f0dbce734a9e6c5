"""The real coordinator application in the power of an operator who may lie, forget, forge and overhear."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from commingle.coordinator.members import invite, newest_heads
from commingle.coordinator.rounds import propose
from commingle.coordinator.store.releases import ReleaseRow
from commingle.party_agent.ledger.ledger import Ledger
from commingle.shared.documents.dsse import Envelope, SigningKey, open_envelope, seal
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import BlockStatement
from commingle.shared.dp.accounting import Cost, Loss, Rho
from commingle.shared.mechanisms.moments.exchange.messages import Exchange
from commingle.shared.release.checks import open_spec, read_spec
from commingle.shared.release.matrix import check_block
from commingle.shared.release.rounds import State
from commingle.shared.runtime import faults
from tests.world.coordinator import Hub, SetClock
from tests.world.transport import Fault, no_fault

URL = "https://coordinator.test"
NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
_HELD = {"/v1/parties": {"limit": "1"}, "/v1/releases": {"limit": "1"}, "/v1/events": {"wait_seconds": "0"}}
_STEPS = re.compile("/v1/parties/[^/]+/releases")


def _held(path: str) -> dict[str, str] | None:
    return {"wait_seconds": "0"} if _STEPS.fullmatch(path) else _HELD.get(path)


@dataclass(frozen=True)
class Found:
    """A release as the coordinator has it, read anew each time."""

    hub: Hub
    id: str

    @property
    def row(self) -> ReleaseRow:
        with self.hub.store.read() as tx:
            found = tx.releases.get(self.id)
        assert found is not None
        return found

    @property
    def spec(self) -> Envelope:
        assert self.row.spec is not None
        return self.row.spec

    @property
    def document(self) -> ReleaseSpec:
        return read_spec(self.spec.payload_bytes)

    @property
    def state(self) -> State:
        return self.row.state

    @property
    def approvals(self) -> dict[str, Envelope]:
        return self.signed("approval")

    @property
    def alignments(self) -> dict[str, Envelope]:
        return self.signed("alignment")

    @property
    def rejections(self) -> dict[str, Envelope]:
        return self.signed("rejection")

    @property
    def blocks(self) -> dict[str, Envelope]:
        return self.signed("block")

    def body(self, party: str) -> bytes:
        digest = self.row.shares[party].body
        assert digest is not None
        with self.hub.coordinator.blobs.open(digest) as file:
            return file.read()

    def statement(self, party: str) -> BlockStatement:
        keys = [self.document.party(party).verifying_key]
        return open_envelope(self.blocks[party], BlockStatement, keys=keys).document

    def block(self, party: str) -> NDArray[np.int64]:
        """The integers of a party's block, which are those that it signed."""
        return check_block(self.body(party), self.statement(party))

    def signed(self, kind: str) -> dict[str, Envelope]:
        signed = {name: getattr(share, kind) for name, share in self.row.shares.items()}
        return {name: envelope for name, envelope in signed.items() if envelope is not None}


@dataclass
class TamperedCoordinator:
    """Honest until a test tampers with it. Lists one item to a page, so that paging is always exercised.

    Attributes:
        before: asked before a request is handled; after: asked when it has been handled and committed.
        shown: changes what is shown of a release; rewrite: what any other path is answered with.
        requests: method and path of everything that was asked.
        received: the bodies of every upload attempt that arrived, by party.
    """

    root: Path
    key: SigningKey = field(default_factory=lambda: SigningKey(b"\xc0" * 32))
    clock: SetClock = field(default_factory=lambda: SetClock(NOW))
    before: Fault = no_fault
    after: Fault = no_fault
    shown: Callable[[dict[str, Any]], dict[str, Any]] = lambda view: view
    rewrite: Callable[[str, Any], Any] = lambda _, answer: answer
    requests: list[str] = field(default_factory=list)
    received: dict[str, list[bytes]] = field(default_factory=dict)
    _disguises: dict[str, tuple[str, Envelope]] = field(default_factory=dict)
    _lock: RLock = field(default_factory=RLock)

    @cached_property
    def hub(self) -> Hub:
        self.root.mkdir(parents=True, exist_ok=True)
        return Hub(f"sqlite:///{self.root / 'coordinator.sqlite'}", self.root, self.clock, self.key)

    def close(self) -> None:
        """Let go of its files; it opens them anew when it is next asked."""
        if "hub" in self.__dict__:
            self.hub.close()
        self.__dict__.pop("hub", None)

    def client(self, auth: httpx.Auth | None = None) -> httpx.Client:
        return httpx.Client(transport=httpx.MockTransport(self.handle), base_url=URL, auth=auth)

    def execute(self, statement: str, *values: str) -> None:
        """SQL on its database behind its back, as if an older one was restored."""
        with closing(sqlite3.connect(self.root / "coordinator.sqlite")) as db, db:
            db.execute(statement, values)

    def invited(self, name: str) -> str:
        return invite(self.hub.coordinator, party=name, lifetime=timedelta(hours=1))[0]

    def propose(self, spec: ReleaseSpec, *, key: SigningKey | None = None) -> str:
        return self.propose_signed(seal(spec, key=key or self.key))

    def propose_signed(self, envelope: Envelope) -> str:
        return propose(self.hub.coordinator, envelope)[0].listed.id

    def disguise(self, release: str, envelope: Envelope) -> str:
        """From now on show a release as if that had been proposed, under its id."""
        self._disguises[envelope.digest] = release, envelope
        return envelope.digest

    def found(self, release: str) -> Found:
        return Found(self.hub, release)

    def releases(self) -> list[str]:
        with self.hub.store.read() as tx:
            return [item.id for item in tx.releases.page(limit=200).items]

    def exchange(self, release: str) -> Exchange:
        found = self.found(release)
        return Exchange.of(open_spec(found.spec, [self.key.verifying_key]), found.approvals)

    def work(self) -> None:
        with self._lock, _unharmed():
            self.hub.publisher.run_once()

    def relayed(self, recipient: str) -> dict[str, Envelope]:
        with self.hub.store.read() as tx:
            return {row.sender: row.envelope for row in tx.linkage.of(recipient)}

    def relay(self, recipient: str, sender: str, envelope: Envelope) -> None:
        """Put a sealed linkage key there unchecked."""
        with self.hub.store.write() as tx:
            tx.linkage.put(recipient, sender, self.clock(), envelope)

    def handle(self, request: httpx.Request) -> httpx.Response:
        request.read()
        method, path = request.method, request.url.path
        self.requests.append(f"{method} {path}")
        if (answer := self.before(request)) is not None:
            return answer
        self._overhear(request)
        with self._lock, _unharmed():
            response = self._honest_answer(request)
            if method == "PUT" and path.startswith("/v1/releases/") and response.is_success:
                self.hub.publisher.run_once()
        lie = self.after(request)
        return response if lie is None else lie

    def _honest_answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        disguised, _, rest = path.removeprefix("/v1/releases/").partition("/")
        real, envelope = self._disguises.get(disguised, (disguised, None))
        url, headers = request.url, request.headers.copy()
        held = _held(path) if request.method == "GET" else None
        if request.method == "GET" and (held or envelope):  # open to everybody: asked anew, unsigned
            url = url.copy_with(path=path.replace(disguised, real) if envelope else path)
            url = url.copy_merge_params(held or {})
            for name in ("signature", "signature-input", "accept"):  # and answered at once
                headers.pop(name, None)
        answer = self.hub.transport.handle_request(
            httpx.Request(request.method, url, headers=headers, content=request.content)
        )
        if request.method != "GET" or not answer.is_success or "json" not in answer.headers["content-type"]:
            return answer
        said = self._changed(path, answer.json(), rest=rest)
        if envelope is not None:
            said |= {"id": disguised, "spec": envelope.model_dump(mode="json")}
        return httpx.Response(answer.status_code, json=said)

    def _changed(self, path: str, said: Any, *, rest: str) -> Any:
        names = {real: shown for shown, (real, _) in self._disguises.items()}
        if _STEPS.fullmatch(path):
            for item in said["items"]:
                if (shown := names.get(item["id"])) is not None:
                    item |= {"id": shown, "spec": self._disguises[shown][1].model_dump(mode="json")}
            said["items"] = [self.shown(item) for item in said["items"]]
            if any(State(item["state"]).final for item in said["items"]):  # as it answers who has signed
                said["heads"] = [head.model_dump(mode="json") for head in newest_heads(self.hub.coordinator)]
        if path == "/v1/releases":
            said["items"] = [item | {"id": names.get(item["id"], item["id"])} for item in said["items"]]
        if path.startswith("/v1/releases/") and not rest:
            return self.shown(said)
        return self.rewrite(path, said)

    def _overhear(self, request: httpx.Request) -> None:
        if request.method == "PUT":
            *_, what, party = request.url.path.split("/")
            name = {"blocks": party, "columns": f"columns of {party}", "replies": f"reply of {party}"}.get(what)
            if name is not None:
                self.received.setdefault(name, []).append(request.content)


@contextmanager
def _unharmed() -> Iterator[None]:
    """Faults strike agents: the coordinator, which lives in the same process here, is left alone."""
    strike = faults.arm(lambda _: None)
    try:
        yield
    finally:
        faults.arm(strike)


def charge_less(ledger: Ledger, release: str) -> None:
    """As if the ledger had charged next to nothing."""
    assert ledger.charge(release) is not None  # which follows the chain
    charges = ledger.fold.charges
    charges[release] = replace(charges[release], cost=Cost(Loss(Rho(1))))
