"""A coordinator in memory behind httpx's own transport interface: honest unless a test tells it to lie or to fail."""

import json
import secrets
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import httpx

from commingle.shared.documents.dsse import Envelope, parse_envelope, seal
from commingle.shared.documents.errors import SignatureError
from commingle.shared.documents.keys import SigningKey, VerifyingKey
from commingle.shared.documents.model import decode
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import (
    ApprovalRequest,
    Enrolment,
    SignedDocument,
    approval_set_digest,
    open_alignment,
    open_approval,
    open_approvals,
    open_block_statement,
    open_rejection,
    open_spec,
)
from commingle.shared.errors import CommingleError
from commingle.shared.mechanisms.moments.exchange.agreement import agreed, transcript
from commingle.shared.mechanisms.moments.exchange.deal import deal
from commingle.shared.mechanisms.moments.exchange.documents import open_countersignature, open_mask
from commingle.shared.mechanisms.moments.exchange.terms import Exchange
from commingle.shared.release.block import check_block
from commingle.shared.release.rounds import (
    Alignment,
    Approve,
    Publish,
    Refused,
    Reject,
    Round,
    StoreBlock,
    Tick,
    advance,
    complete,
)

URL = "http://coordinator.test"
NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
_KIND_OF = {"approvals": "approval", "rejections": "rejection", "blocks": "block"}

Fault = Callable[[httpx.Request], httpx.Response | None]
"""Looks at a request: returns an answer of its own, raises an httpx error, or leaves it to the coordinator."""


def no_fault(_: httpx.Request) -> None:
    return None


def unreachable(method: str, part: str) -> Fault:
    """Nobody answers requests of that method whose path contains `part`."""

    def fault(request: httpx.Request) -> None:
        if request.method == method and part in request.url.path:
            raise httpx.ConnectError("refused", request=request)

    return fault


def answering(status: int, body: bytes, *, part: str, content_type: str = "application/json") -> Fault:
    """That very answer to every request whose path contains `part`."""

    def fault(request: httpx.Request) -> httpx.Response | None:
        if part not in request.url.path:
            return None
        return httpx.Response(status, content=body, headers={"Content-Type": content_type})

    return fault


@dataclass
class Release:
    spec: Envelope
    document: ReleaseSpec
    round: Round
    approvals: dict[str, Envelope] = field(default_factory=dict)
    alignments: dict[str, Envelope] = field(default_factory=dict)
    rejections: dict[str, Envelope] = field(default_factory=dict)
    blocks: dict[str, Envelope] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)
    deal: Envelope | None = None
    packages: Mapping[str, bytes] = field(default_factory=dict)
    masks: dict[str, Envelope] = field(default_factory=dict)
    masked: dict[str, bytes] = field(default_factory=dict)
    countersignatures: dict[str, Envelope] = field(default_factory=dict)


@dataclass
class FakeCoordinator:
    """Keeps the rules of the wire interface; lists one item to a page, so that paging is always exercised.

    Attributes:
        before: asked before a request is handled; after: asked when it has been handled and committed.
        shown: changes what is shown of a release.
        requests: method and path of everything that was asked.
        received: the bodies of every upload attempt that arrived, by party.
    """

    key: SigningKey = field(default_factory=lambda: SigningKey(b"\xc0" * 32))
    members: dict[str, Enrolment] = field(default_factory=dict)
    releases: dict[str, Release] = field(default_factory=dict)
    before: Fault = no_fault
    after: Fault = no_fault
    shown: Callable[[dict[str, Any]], dict[str, Any]] = lambda view: view
    requests: list[str] = field(default_factory=list)
    received: dict[str, list[bytes]] = field(default_factory=dict)
    identities: dict[str, Envelope] = field(default_factory=dict)
    linkage_keys: dict[str, dict[str, Envelope]] = field(default_factory=dict)
    now: datetime = NOW

    def client(self) -> httpx.Client:
        return httpx.Client(transport=httpx.MockTransport(self.handle), base_url=URL)

    def propose(self, spec: ReleaseSpec, *, key: SigningKey | None = None) -> str:
        envelope = seal(spec, kind="spec", key=key or self.key)
        parties = frozenset(party.name for party in spec.parties)
        self.releases[envelope.digest] = Release(envelope, spec, Round(parties, spec.expires))
        return envelope.digest

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(f"{request.method} {request.url.path}")
        if (answer := self.before(request)) is not None:
            return answer
        try:
            response = self._route(request)
        except SignatureError as error:
            response = _problem(403, error.code, str(error))
        except CommingleError as error:
            response = _problem(422, error.code, str(error))
        lie = self.after(request)
        return response if lie is None else lie

    def _route(self, request: httpx.Request) -> httpx.Response:  # noqa: PLR0911 - one for each route
        match [request.method, *request.url.path.strip("/").split("/")[1:]]:
            case ["GET", "coordinator"]:
                raw, fingerprint = self.key.verifying_key.raw.hex(), self.key.fingerprint
                return _json({"name": "fake", "signing_key": raw, "fingerprint": fingerprint, "software": "1"})
            case [method, "parties", *rest]:
                return self._on_parties(request, method, rest)
            case ["GET", "releases"]:
                state = request.url.params.get("state")
                found = [r for r in self.releases if state in {None, self.releases[r].round.state}]
                return self._page(request, [self._summary(release) for release in found])
            case ["GET", "events"]:
                return _json({"items": [], "last": len(self.requests)})
            case [method, "releases", release, *rest]:
                if release not in self.releases:
                    return _problem(404, "unknown", "there is no such release")
                return self._on_release(request, method, release, rest)
        return _problem(404, "http", "Not Found")

    def _on_parties(self, request: httpx.Request, method: str, rest: list[str]) -> httpx.Response:
        match [method, *rest]:
            case ["GET"]:
                return self._page(request, [self._listed(m) for m in self.members.values()])
            case ["POST"]:
                return self._enrol(request)
            case ["PUT", party, "identity"]:
                self.identities[party] = parse_envelope(request.content)
                return _json({}, 201)
            case ["GET", party, "linkage-keys"]:
                sent = self.linkage_keys.get(party, {})
                return _json({"items": [{"sender": s, "envelope": e.model_dump(mode="json")} for s, e in sent.items()]})
            case ["PUT", party, "linkage-keys", sender]:
                self.linkage_keys.setdefault(party, {})[sender] = parse_envelope(request.content)
                return _json({}, 201)
        return _problem(404, "http", "Not Found")

    def _on_release(self, request: httpx.Request, method: str, release: str, rest: list[str]) -> httpx.Response:
        match [method, *rest]:
            case ["GET"]:
                return _json(self.shown(self._view(release)))
            case ["PUT", "approvals", party]:
                return self._approve(release, party, request.content)
            case ["PUT", "rejections", party]:
                return self._reject(release, party, request.content)
            case ["PUT", "blocks", party]:
                return self._store(release, party, request)
            case [_, _, party]:
                return self._on_exchange(request, release, party, rest[0])
        return _problem(404, "http", "Not Found")

    def _on_exchange(self, request: httpx.Request, release: str, party: str, what: str) -> httpx.Response:
        match [request.method, what]:
            case ["GET", "deal"]:
                return self._hand(release, party)
            case ["GET", "masks"]:
                return httpx.Response(200, content=self.releases[release].masked[party])
            case ["PUT", "masks"]:
                return self._store_mask(release, party, request)
            case ["PUT", "countersignatures"]:
                return self._countersign(release, party, request.content)
        return _problem(404, "http", "Not Found")

    def _listed(self, member: Enrolment) -> dict[str, Any]:
        identity = self.identities.get(member.name)
        return {**_member(member), "identity": identity and identity.model_dump(mode="json")}

    def _enrol(self, request: httpx.Request) -> httpx.Response:
        statement = decode(SignedDocument, request.content).open(Enrolment, kind="enrolment").document
        if not statement.invite.endswith("good-and-long-enough"):
            return _problem(403, "invite", "the invite is not valid")
        self.members[statement.name] = statement
        return _json(_member(statement), 201)

    def _approve(self, release: str, party: str, body: bytes) -> httpx.Response:
        found, sent = self.releases[release], decode(ApprovalRequest, body)
        share = found.document.party(party)
        open_approval(sent.approval, share, spec=release)
        alignment = open_alignment(sent.alignment, share, spec=release).document
        if party in found.approvals:
            same = found.approvals[party] == sent.approval and found.alignments[party] == sent.alignment
            return _json(self._view(release)) if same else _problem(409, "other-bytes", "another approval")
        event = Approve(party, Alignment(alignment.subjects, alignment.digest))
        return self._advance(release, event, lambda: self._keep(found, party, sent))

    def _keep(self, found: Release, party: str, sent: ApprovalRequest) -> None:
        found.approvals[party], found.alignments[party] = sent.approval, sent.alignment
        if found.document.interactive and len(found.approvals) == len(found.document.parties):
            self.deal(found.spec.digest)

    def exchange(self, release: str) -> Exchange:
        """Of a release that everybody has approved."""
        found = self.releases[release]
        return Exchange.of(open_spec(found.spec, [self.key.verifying_key]), found.approvals)

    def deal(self, release: str) -> None:
        """Deal; a second time only where a test makes it a cheat."""
        dealt = deal(self.exchange(release), entropy=secrets.token_bytes)
        found = self.releases[release]
        found.deal, found.packages = seal(dealt.statement, kind="deal", key=self.key), dealt.packages

    def _hand(self, release: str, party: str) -> httpx.Response:
        found = self.releases[release]
        if found.deal is None:
            return _problem(409, "not-dealt", "nothing is dealt")
        package = b64encode(found.packages[party]).decode()
        return _json({"statement": found.deal.model_dump(mode="json"), "package": package})

    def _store_mask(self, release: str, party: str, request: httpx.Request) -> httpx.Response:
        found, body = self.releases[release], request.content
        self.received.setdefault(f"mask of {party}", []).append(body)
        assert request.headers["Content-Type"] == "application/octet-stream"
        envelope = parse_envelope(request.headers["Commingle-Mask"].encode("ascii"))
        statement = open_mask(self.exchange(release), envelope, party).document
        assert found.deal is not None
        assert (statement.deal, statement.body_sha256) == (found.deal.digest, sha256(body).hexdigest())
        if party in found.masks:
            same = found.masks[party] == envelope and found.masked[party] == body
            return _json({}) if same else _problem(409, "other-bytes", "another mask")
        found.masks[party], found.masked[party] = envelope, body
        return _json({}, 201)

    def _countersign(self, release: str, party: str, body: bytes) -> httpx.Response:
        found, envelope = self.releases[release], parse_envelope(body)
        open_countersignature(self.exchange(release), envelope, party)
        if found.countersignatures.setdefault(party, envelope) != envelope:
            return _problem(409, "other-bytes", "another countersignature")
        return _json({}, 201)

    def _transcript(self, release: str) -> str | None:
        """What every party must have countersigned before a block is accepted."""
        found = self.releases[release]
        if found.deal is None:
            return None
        exchange = self.exchange(release)
        masks = {name: open_mask(exchange, found.masks[name], name) for name in exchange.parties}
        seen = transcript(exchange, deal=found.deal.digest, masks=masks)
        return agreed(exchange, transcript=seen, countersignatures=found.countersignatures).transcript

    def _reject(self, release: str, party: str, body: bytes) -> httpx.Response:
        found, envelope = self.releases[release], parse_envelope(body)
        reason = open_rejection(envelope, found.document.party(party), spec=release).document.reason
        if party in found.rejections:
            same = found.rejections[party] == envelope
            return _json(self._view(release)) if same else _problem(409, "other-bytes", "another rejection")
        return self._advance(release, Reject(party, reason), lambda: found.rejections.update({party: envelope}))

    def _store(self, release: str, party: str, request: httpx.Request) -> httpx.Response:
        found, body = self.releases[release], request.content
        self.received.setdefault(party, []).append(body)
        assert request.headers["Content-Type"] == "application/vnd.apache.arrow.stream"
        envelope = parse_envelope(request.headers["Commingle-Block"].encode("ascii"))
        statement = open_block_statement(envelope, found.document.party(party), spec=release).document
        check_block(body, statement)
        opened = open_spec(found.spec, [self.key.verifying_key])
        assert statement.approvals == approval_set_digest(open_approvals(found.approvals, opened))
        assert statement.transcript == self._transcript(release)
        if party in found.blocks:
            same = found.blocks[party] == envelope and found.bodies[party] == body
            return _json(self._view(release)) if same else _problem(409, "other-bytes", "another block")

        def keep() -> None:
            found.blocks[party], found.bodies[party] = envelope, body

        response = self._advance(release, StoreBlock(party), keep)
        if complete(found.round):
            self._advance(release, Publish(), lambda: None)
        return response

    def _advance(
        self, release: str, event: Approve | Reject | StoreBlock | Publish, keep: Callable[[], None]
    ) -> httpx.Response:
        found = self.releases[release]
        after = advance(found.round, event, now=self.now)
        if isinstance(after, Refused):
            return _problem(409, "state", after.reason)
        found.round = after
        keep()
        return _json(self._view(release), 201)

    def _summary(self, release: str) -> dict[str, Any]:
        found = self.releases[release]
        names = [party.name for party in found.document.parties]
        parties = [{"name": n, "approved": n in found.approvals, "uploaded": n in found.blocks} for n in names]
        facts = {"study", "mechanism", "created", "expires", "n", "k", "epsilon", "delta"}
        shown = found.document.model_dump(mode="json", include=facts)
        return {**shown, "id": release, "state": found.round.state, "reason": found.round.reason, "parties": parties}

    def _view(self, release: str) -> dict[str, Any]:
        found = self.releases[release]
        kinds: dict[str, dict[str, Envelope]] = {
            "approvals": found.approvals,
            "rejections": found.rejections,
            "blocks": found.blocks,
        }
        shown = {kind: _shown(by) for kind, by in kinds.items()}
        exchange = {
            "dealt": found.deal is not None,
            "masks": _shown(found.masks),
            "countersignatures": _shown(found.countersignatures),
        }
        return {
            **self._summary(release),
            "spec": found.spec.model_dump(mode="json"),
            **shown,
            "exchange": exchange if found.document.interactive else None,
        }

    def _page(self, request: httpx.Request, items: list[dict[str, Any]]) -> httpx.Response:
        start = int(request.url.params.get("cursor", "0"))
        more = str(start + 1) if start + 1 < len(items) else None
        return _json({"items": items[start : start + 1], "next": more})


def end(coordinator: FakeCoordinator, release: str, event: Reject | Tick) -> None:
    """The round ends because of somebody else, or of time."""
    found = coordinator.releases[release]
    after = advance(found.round, event, now=coordinator.now)
    assert not isinstance(after, Refused)
    found.round = after


def _shown(envelopes: Mapping[str, Envelope]) -> dict[str, Any]:
    return {party: envelope.model_dump(mode="json") for party, envelope in envelopes.items()}


def _member(member: Enrolment) -> dict[str, Any]:
    fingerprint = VerifyingKey.from_hex(member.signing_key).fingerprint
    keys = {"signing_key": member.signing_key, "sealing_key": member.sealing_key, "fingerprint": fingerprint}
    return {"name": member.name, **keys, "enrolled": NOW.isoformat()}


def _json(value: object, status: int = 200) -> httpx.Response:
    return httpx.Response(status, content=json.dumps(value).encode(), headers={"Content-Type": "application/json"})


def _problem(status: int, code: str, detail: str) -> httpx.Response:
    body = {"type": f"urn:commingle:problem:{code}", "title": "x", "status": status, "detail": detail, "remedy": "y"}
    content_type = {"Content-Type": "application/problem+json"}
    return httpx.Response(status, content=json.dumps(body).encode(), headers=content_type)
