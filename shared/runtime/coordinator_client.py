"""The coordinator as agents, analysts and its operator see it: typed calls. Callers believe only what is signed."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import BinaryIO, Literal, TypeAlias, TypeVar

import httpx

from commingle.shared.documents.dsse import Envelope, VerifyingKey
from commingle.shared.documents.statements import ApprovalRequest, RotationRequest, SignedDocument, open_head
from commingle.shared.errors import ProtocolError
from commingle.shared.release.checks import Member
from commingle.shared.release.matrix import ARROW_STREAM
from commingle.shared.runtime.remote import (
    MOST_PAGES,
    PATIENCE_SECONDS,
    call,
    download,
    listen,
    model_in,
    model_of,
    pages,
)
from commingle.shared.runtime.request_signing import body_digest
from commingle.shared.wire import (
    CoordinatorIdentity,
    EventPage,
    LedgerHeads,
    PartyKeys,
    PartyPage,
    PartyRecord,
    ReleaseDetails,
    ReleasePage,
    ReleaseSteps,
    ReleaseSummary,
    SealedLinkageKeys,
)

_UPLOAD_TIMEOUT_SECONDS = 600.0  # the coordinator checks what it received before it answers
_LONG_POLL_MARGIN_SECONDS = 15.0
_PAGE = 200
_EXCESS_BYTES = 1 << 20
_LARGEST_PAGE_BYTES = 8 << 20  # of that many releases with 64 parties each
_MOST_MEMBER_PAGES = 50
# while a party's witnesses are asked, its loops wait for each other
_LARGEST_HEADS_BYTES = 1 << 20
_HEADS_PATIENCE_SECONDS = 10.0
_BEYOND_ALL = (1 << 62) - 1  # event numbers
_JSON = {"Content-Type": "application/json"}
MessageKind: TypeAlias = Literal["columns", "reply"]
_MESSAGES: Mapping[MessageKind, str] = MappingProxyType({"columns": "columns", "reply": "replies"})

_List = TypeVar("_List", ReleasePage, PartyPage)


@dataclass(frozen=True, slots=True)
class CoordinatorClient:
    """Calls to one coordinator. Every method raises RemoteError if the call fails."""

    http: httpx.Client
    patience_seconds: float = PATIENCE_SECONDS  # how much longer than a second for every 64 KiB a message may take

    @property
    def url(self) -> str:
        return str(self.http.base_url).rstrip("/")

    def identity(self, *, timeout_seconds: float | None = None) -> CoordinatorIdentity:
        answer = call(self.http, "GET", "/v1/coordinator", timeout_seconds=timeout_seconds)
        return model_of(CoordinatorIdentity, answer)

    def enrol(self, document: SignedDocument) -> None:
        self._send("POST", "/v1/parties", document.model_dump_json().encode())

    def rotate(self, party: str, request: RotationRequest) -> None:
        """Replace this party's key. You can repeat the call."""
        self._send("POST", f"/v1/parties/{party}/keys", request.model_dump_json().encode())

    def depart(self, party: str, departure: Envelope) -> None:
        self._send("PUT", f"/v1/parties/{party}/departure", departure.to_json())

    def member_keys(self) -> list[VerifyingKey]:
        """The directory's keys. Compare them with pins before you trust them."""
        return [VerifyingKey.from_hex(member.signing_key) for member in self.members()]

    def members(self) -> list[PartyRecord]:
        """The whole directory, in the order in which members enrolled."""

        def ask(cursor: str | None) -> PartyPage:
            return self._page(PartyPage, "/v1/parties", cursor=cursor, limit=_PAGE)

        return [member for page in pages(self.url, ask, most=_MOST_MEMBER_PAGES) for member in page.items]

    def proposable(self) -> dict[str, Member]:
        """The members whom a study can ask, by name, with the keys that its spec names."""
        return {one.name: Member(one.signing_key, one.sealing_key) for one in self.members()}

    def member_log(self) -> bytes:
        """Every key of every member, as the coordinator signed it. Nothing is verified yet."""
        return call(self.http, "GET", "/v1/member-log").content

    def rotations(self, party: str) -> tuple[RotationRequest, ...]:
        """How that party came from key to key, the oldest first."""
        keys = model_of(PartyKeys, call(self.http, "GET", f"/v1/parties/{party}/keys"))
        return tuple(item.rotation for item in keys.items if item.rotation is not None)

    def ledger_heads(self) -> tuple[SignedDocument, ...]:
        """How far each member's ledger has come, as the members signed it. Nothing is verified yet."""
        return self._heads("/v1/ledger-heads", {})

    def head_history(self, party: str) -> Iterator[SignedDocument]:
        """A member's statements about its ledger, the newest first. Nothing is verified yet."""
        params: dict[str, str | int] = {"limit": _PAGE}
        for _ in range(MOST_PAGES):
            items = self._heads(f"/v1/parties/{party}/ledger-heads", params)
            yield from items
            heights = [height for item in items if (height := _height(item, party)) is not None]
            if len(items) < _PAGE or not heights:
                return
            params["below"] = min(heights)

    def _heads(self, path: str, params: Mapping[str, str | int]) -> tuple[SignedDocument, ...]:
        answer = call(
            self.http,
            "GET",
            path,
            params=params,
            largest_bytes=_LARGEST_HEADS_BYTES,
            patience_seconds=_HEADS_PATIENCE_SECONDS,
        )
        return model_of(LedgerHeads, answer).items

    def put_ledger_head(self, party: str, head: SignedDocument, *, after: str) -> None:
        """Have a member's head witnessed that follows the head `after`. You can repeat the call."""
        self._send("PUT", f"/v1/parties/{party}/ledger-heads", head.model_dump_json().encode(), params={"after": after})

    def publish_identity(self, party: str, identity: Envelope) -> None:
        """Show this party's keys under its own signature. You can repeat the call."""
        self._send("PUT", f"/v1/parties/{party}/identity", identity.to_json())

    def send_linkage_key(self, recipient: str, sender: str, message: Envelope) -> None:
        self._send("PUT", f"/v1/parties/{recipient}/linkage-keys/{sender}", message.to_json())

    def linkage_keys(self, party: str) -> dict[str, Envelope]:
        answer = model_of(SealedLinkageKeys, call(self.http, "GET", f"/v1/parties/{party}/linkage-keys"))
        return {item.sender: item.envelope for item in answer.items}

    def releases(self, party: str, *, over_too: bool) -> Iterator[ReleaseSummary]:
        """Releases that name this party: those that are not over, or all."""
        found = self.listed(party=party, over=None if over_too else "false")
        return (item for item in found if any(p.name == party for p in item.parties))

    def listed(self, **which: str | None) -> Iterator[ReleaseSummary]:
        """The releases that meet these conditions, page by page, the newest first."""

        def ask(cursor: str | None) -> ReleasePage:
            return self._page(ReleasePage, "/v1/releases", cursor=cursor, limit=_PAGE, **which)

        for page in pages(self.url, ask):
            yield from page.items

    def release_page(self, *, state: str | None, cursor: str | None, limit: int) -> ReleasePage:
        """One page of the list of releases in a state, or in any."""
        return self._page(ReleasePage, "/v1/releases", state=state, cursor=cursor, limit=limit)

    def steps(
        self, party: str, *, after: int, seconds: int, streamed: bool = True
    ) -> Generator[ReleaseSteps, None, None]:
        """Releases that name this party and took a step after event `after`, as soon as there are any, without end.

        After `seconds` without a step an empty list comes. Without `streamed`, each list is a request of its own.
        """
        path, timeout = f"/v1/parties/{party}/releases", seconds + _LONG_POLL_MARGIN_SECONDS
        while True:
            params = {"after": after, "wait_seconds": seconds}
            for answer in listen(self.http, path, params=params, timeout_seconds=timeout, streamed=streamed):
                found = model_in(ReleaseSteps, answer, str(self.http.base_url))
                after = found.last
                items = tuple(item for item in found.items if any(p.name == party for p in item.parties))
                yield found.model_copy(update={"items": items})

    def release(self, release: str) -> ReleaseDetails:
        return model_of(ReleaseDetails, call(self.http, "GET", f"/v1/releases/{release}"))

    def propose(self, spec: Envelope) -> ReleaseDetails:
        """Propose a release. You can repeat the call with the same document."""
        return model_of(ReleaseDetails, self._send("POST", "/v1/releases", spec.to_json()))

    def published(self, release: str, file: str, *, largest_bytes: int) -> Iterator[bytes]:
        """A file of a published release, in pieces: `manifest`, `matrix` or `moments`. It is not verified."""
        path = f"/v1/releases/{release}/{file}"
        return download(self.http, path, largest_bytes=largest_bytes, patience_seconds=self.patience_seconds)

    def approve(self, release: str, party: str, request: ApprovalRequest) -> None:
        """Send an approval. You can repeat the call."""
        self._send("PUT", f"/v1/releases/{release}/approvals/{party}", request.model_dump_json().encode())

    def reject(self, release: str, party: str, rejection: Envelope) -> None:
        """Send a rejection or withdrawal. You can repeat the call."""
        self._send("PUT", f"/v1/releases/{release}/rejections/{party}", rejection.to_json())

    def upload(self, release: str, party: str, statement: Envelope, body: bytes) -> None:
        """Send a block. You can repeat the call with the same bytes."""
        headers = {"Content-Type": ARROW_STREAM, "Commingle-Block": statement.to_json().decode()}
        path = f"/v1/releases/{release}/blocks/{party}"
        call(self.http, "PUT", path, content=body, headers=headers, timeout_seconds=_UPLOAD_TIMEOUT_SECONDS)

    def send_message(
        self, release: str, party: str, statement: Envelope, body: BinaryIO, *, kind: MessageKind, digest: str
    ) -> None:
        """Send a file that an exchange asks for; `digest` is its SHA-256, hex. You can repeat the call."""
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Digest": body_digest(bytes.fromhex(digest)),
            "Commingle-Statement": statement.to_json().decode(),
        }
        path = f"/v1/releases/{release}/{_MESSAGES[kind]}/{party}"
        call(self.http, "PUT", path, content=body, headers=headers, timeout_seconds=_UPLOAD_TIMEOUT_SECONDS)

    def message(self, release: str, party: str, *, kind: MessageKind, size: int) -> Iterator[bytes]:
        """A party's message in an exchange, in pieces.

        It has `size` bytes. Some more are read: a sender may have signed too many, and then a digest of all bytes shows
        who is to blame. Raises NonsenseError for still more.
        """
        path = f"/v1/releases/{release}/{_MESSAGES[kind]}/{party}"
        return download(self.http, path, largest_bytes=size + _EXCESS_BYTES, patience_seconds=self.patience_seconds)

    def messages(
        self, release: str, parties: Sequence[str], *, kind: MessageKind, size: int
    ) -> Generator[bytes, None, None]:
        """Messages of several parties, one after the other, in pieces, of `size` bytes in all; some more are read."""
        path = f"/v1/releases/{release}/{_MESSAGES[kind]}"
        return download(
            self.http,
            path,
            params={"of": parties},
            largest_bytes=size + _EXCESS_BYTES,
            patience_seconds=self.patience_seconds,
        )

    def events(self, *, after: int, wait_seconds: int) -> EventPage:
        """Events of all releases after `after`, as soon as there are any; none once the time is over."""
        params, timeout = {"after": after, "wait_seconds": wait_seconds}, wait_seconds + _LONG_POLL_MARGIN_SECONDS
        return model_of(EventPage, call(self.http, "GET", "/v1/events", params=params, timeout_seconds=timeout))

    def newest_event(self) -> int:
        return self.events(after=_BEYOND_ALL, wait_seconds=0).last

    def _send(self, method: str, path: str, body: bytes, *, params: Mapping[str, str] | None = None) -> httpx.Response:
        return call(self.http, method, path, content=body, headers=_JSON, params=params)

    def _page(self, kind: type[_List], path: str, **asked: str | int | None) -> _List:
        params = {name: value for name, value in asked.items() if value is not None}
        return model_of(kind, call(self.http, "GET", path, params=params, largest_bytes=_LARGEST_PAGE_BYTES))


def _height(signed: SignedDocument, party: str) -> int | None:
    try:
        return open_head(signed, party=party)[0].height
    except ProtocolError:
        return None
