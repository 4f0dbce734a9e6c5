"""HTTP Message Signatures (RFC 9421) on requests between Commingle processes: Ed25519, one signature, no options.

A signature covers method, path and query. For requests with a body it also covers the digest (RFC 9530), and every
header that says what the body is. It covers neither scheme nor host: reverse proxies rewrite them. In their place the
signature's `tag` names the key of the service that the request is for, so a request to one coordinator is nothing at
another (docs/adr/0007).
"""

import re
import secrets
from base64 import b64encode
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from http_message_signatures import HTTPMessageSigner, HTTPMessageVerifier, HTTPSignatureKeyResolver, algorithms
from http_message_signatures.exceptions import HTTPMessageSignaturesException

from commingle.shared.documents.dsse import Fingerprint, SigningKey, VerifyingKey
from commingle.shared.errors import CommingleError
from commingle.shared.runtime.errors import ClockSkewError, RequestSignatureError
from commingle.shared.runtime.settings import Clock, system_clock

WINDOW = timedelta(seconds=300)
_LABEL = "commingle"
_TARGET = ("@method", "@path", "@query")
_BOUND = ("content-type", "content-encoding", "commingle-block", "commingle-statement")
_WITHOUT_BODY = frozenset({"GET", "HEAD"})
_NONCE = re.compile(r"[A-Za-z0-9_-]{16,64}")
_REMEDY = "Sign the request with the key this member enrolled with (docs/adr/0007); commingle party does."


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The parts of a received request that a signature covers."""

    method: str
    target: str  # path and query as received, not decoded
    headers: tuple[tuple[str, str], ...]  # names and values, in order, repeated ones apart

    def header(self, name: str) -> str | None:
        """The first header of that lower-case name."""
        return next((value for key, value in self.headers if key.lower() == name), None)


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """A request whose signature holds. The caller still checks that its nonce is new, and its body the one meant."""

    signer: Fingerprint  # fingerprint of the key
    nonce: str  # never accept it again from the same key until `forget`
    forget: datetime
    body: str | None  # what `body_digest` of the body must be; None for requests that have none


class RequestSigner(httpx.Auth):
    """Signs each request of a client, every try with a nonce; `audience` is the fingerprint of the receiver's key."""

    def __init__(self, key: SigningKey, *, audience: str, clock: Clock = system_clock) -> None:
        self._key = key
        self._audience = audience
        self._clock = clock
        self._signer = HTTPMessageSigner(signature_algorithm=algorithms.ED25519)

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        self.sign(request)
        yield request

    def sign(self, request: httpx.Request) -> None:
        """Add Signature-Input and Signature, and Content-Digest unless it is there, as when a file is sent."""
        if request.method not in _WITHOUT_BODY and "Content-Digest" not in request.headers:
            request.headers["Content-Digest"] = body_digest(sha256(request.read()).digest())
        prepared = self._signer.prepare(
            request,
            key_id=self._key.fingerprint,
            created=self._clock(),
            nonce=secrets.token_urlsafe(18),
            label=_LABEL,
            tag=_tag(self._audience),
            covered_component_ids=_covered(request.method, request.headers),
            use_existing_digest=request.method not in _WITHOUT_BODY,
        )
        signature = b64encode(self._key.sign(prepared.signature_base)).decode()
        # its `apply` would make the base anew, for messages that change while somebody else signs: half of the time
        request.headers["Signature-Input"] = f"{_LABEL}={prepared.signature_params}"
        request.headers["Signature"] = f"{_LABEL}=:{signature}:"


def body_digest(digest: bytes) -> str:
    """The value of Content-Digest for a body with this SHA-256 (32 bytes)."""
    return f"sha-256=:{b64encode(digest).decode()}:"


def is_signed(head: RequestHead) -> bool:
    return head.header("signature-input") is not None or head.header("signature") is not None


def verify_request(
    head: RequestHead, *, audience: str, key_of: Callable[[str], VerifyingKey | None], now: datetime
) -> SignedRequest:
    """Check a request's signature and the time at which it was made, for the service whose key has this fingerprint.

    `key_of` gives the key of a fingerprint, None if it is unknown; its errors come out as they are. Raises
    RequestSignatureError: not signed, by an unknown key, or not over what was received; ClockSkewError: signed more
    than `WINDOW` before or after `now`, by this service's clock.
    """
    if not is_signed(head):
        raise RequestSignatureError("the request is not signed", remedy=_REMEDY)
    if "#" in head.target:  # to the signature what follows is no part of the address, to a service it may be
        raise RequestSignatureError("the request's address holds a fragment", remedy="Write # in an address as %23.")
    keys = _Keys(key_of)
    verifier = _Verifier(signature_algorithm=algorithms.ED25519, key_resolver=keys)
    required = _covered(head.method, (name for name, _ in head.headers))
    try:
        (result,) = verifier.verify(_Message(head), expect_tag=_tag(audience), require_components=required)
    except (HTTPMessageSignaturesException, ValueError, TypeError) as error:
        if keys.fault is not None:  # a directory that cannot be read says nothing about the signature
            raise keys.fault from None
        raise RequestSignatureError(f"the request's signature does not hold: {error}", remedy=_REMEDY) from None
    created, nonce = result.parameters.get("created"), result.nonce
    if not isinstance(created, int) or nonce is None or not _NONCE.fullmatch(nonce):
        raise RequestSignatureError("the request's signature lacks `created` or a nonce", remedy=_REMEDY)
    return SignedRequest(
        signer=Fingerprint(str(result.parameters["keyid"])),
        nonce=nonce,
        # twice the window, because the clocks of replicas differ a little, too
        forget=_require_recent(created, now) + 2 * WINDOW,
        body=result.covered_components.get('"content-digest"'),
    )


def _require_recent(created: int, now: datetime) -> datetime:
    try:
        when = datetime.fromtimestamp(created, UTC)
    except (OverflowError, ValueError, OSError):
        raise RequestSignatureError("`created` is not a time", remedy=_REMEDY) from None
    if abs(now - when) > WINDOW:
        apart = round(abs((now - when).total_seconds()))
        raise ClockSkewError(
            f"the request was signed at {when:%Y-%m-%dT%H:%M:%SZ} and this server's clock shows "
            f"{now:%Y-%m-%dT%H:%M:%SZ}, {apart} seconds apart; {WINDOW.total_seconds():.0f} are allowed",
            remedy="Set the clock of the machine that signed (for example with NTP); every new try is signed afresh.",
        )
    return when


def _covered(method: str, headers: Iterable[str]) -> tuple[str, ...]:
    present = {name.lower() for name in headers}
    bound = [name for name in _BOUND if name in present]
    return (*_TARGET, *bound) if method in _WITHOUT_BODY else (*_TARGET, "content-digest", *bound)


def _tag(audience: str) -> str:
    return f"commingle/v1/{audience}"


@dataclass(frozen=True, slots=True)
class _Fields:
    lines: tuple[tuple[str, str], ...]

    def items(self) -> tuple[tuple[str, str], ...]:
        return self.lines


class _Message:
    """A received request as the library reads it; the host is never covered, so any will do."""

    def __init__(self, head: RequestHead) -> None:
        self.method = head.method
        self.url = f"http://service{head.target}"
        self.headers = _Fields(head.headers)


class _Keys(HTTPSignatureKeyResolver):
    """Keys by fingerprint. The library takes whatever is raised here for an invalid signature, so a fault is kept."""

    def __init__(self, key_of: Callable[[str], VerifyingKey | None]) -> None:
        self._key_of = key_of
        self.fault: CommingleError | None = None

    def resolve_public_key(self, key_id: str) -> Ed25519PublicKey | None:
        try:
            key = self._key_of(key_id)
        except CommingleError as error:
            self.fault = error
            raise
        return None if key is None else Ed25519PublicKey.from_public_bytes(key.raw)


class _Verifier(HTTPMessageVerifier):
    def validate_created_and_expires(self, sig_input: object, max_age: object = None) -> None:
        """Left to `_require_recent`, which has the clock of the caller and says what to do."""
