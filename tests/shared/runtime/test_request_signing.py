from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from io import BytesIO

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commingle.shared.documents.dsse import SigningKey, VerifyingKey
from commingle.shared.runtime.errors import ClockSkewError, RequestSignatureError
from commingle.shared.runtime.request_signing import (
    WINDOW,
    RequestHead,
    RequestSigner,
    SignedRequest,
    body_digest,
    is_signed,
    verify_request,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
KEY, OTHER, SERVICE = (SigningKey(bytes([i]) * 32) for i in range(1, 4))
KEYS = {key.fingerprint: key.verifying_key for key in (KEY, OTHER)}
JSON = {"Content-Type": "application/json"}


def find(fingerprint: str) -> VerifyingKey | None:
    return {str(name): key for name, key in KEYS.items()}.get(fingerprint)


def signed(
    method: str = "PUT",
    path: str = "/v1/releases/1/blocks/a?x=1",
    *,
    content: bytes = b"body",
    headers: dict[str, str] | None = None,
    key: SigningKey = KEY,
    audience: SigningKey = SERVICE,
    at: datetime = NOW,
) -> httpx.Request:
    given = JSON if headers is None else headers
    request = httpx.Request(method, f"https://hub.example{path}", content=content or None, headers=given)
    RequestSigner(key, audience=audience.fingerprint, clock=lambda: at).sign(request)
    return request


def head(request: httpx.Request, **changes: str) -> RequestHead:
    raw = request.url.raw_path.decode()
    lines = tuple((name.decode(), value.decode()) for name, value in request.headers.raw)
    return RequestHead(changes.get("method", request.method), changes.get("target", raw), lines)


def verify(received: RequestHead, *, now: datetime = NOW) -> SignedRequest:
    return verify_request(received, audience=SERVICE.fingerprint, key_of=find, now=now)


def test_signed_request_names_signer_and_body() -> None:
    found = verify(head(signed()))
    assert (found.signer, found.body) == (KEY.fingerprint, body_digest(sha256(b"body").digest()))
    assert found.forget >= NOW + WINDOW
    assert verify(head(signed("GET", content=b"", headers={}))).body is None
    assert verify(head(signed("POST", content=b"", headers={}))).body == body_digest(sha256(b"").digest())


def test_file_is_signed_by_its_digest_without_being_read() -> None:
    body, digest = BytesIO(b"body"), body_digest(sha256(b"body").digest())
    request = httpx.Request("PUT", "https://hub.example/", content=body, headers={"Content-Digest": digest})
    RequestSigner(KEY, audience=SERVICE.fingerprint, clock=lambda: NOW).sign(request)
    assert (body.tell(), verify(head(request)).body) == (0, digest)


def test_every_signing_has_a_nonce_of_its_own() -> None:
    request = signed()
    first = verify(head(request)).nonce
    RequestSigner(KEY, audience=SERVICE.fingerprint, clock=lambda: NOW).sign(request)
    assert verify(head(request)).nonce != first


def test_host_and_scheme_may_be_rewritten_on_the_way() -> None:
    request = signed()
    lines = [(n, "127.0.0.1:8000" if n == "host" else v) for n, v in head(request).headers]
    via = [("x-forwarded-proto", "https"), ("x-forwarded-host", "hub.example")]
    verify(RequestHead("PUT", head(request).target, (*lines, *via)))


def without(name: str) -> Callable[[RequestHead], RequestHead]:
    return lambda h: RequestHead(h.method, h.target, tuple((n, v) for n, v in h.headers if n.lower() != name))


def with_header(name: str, value: str) -> Callable[[RequestHead], RequestHead]:
    return lambda h: RequestHead(h.method, h.target, (*without(name)(h).headers, (name, value)))


def in_input(old: str, new: str) -> Callable[[RequestHead], RequestHead]:
    def change(h: RequestHead) -> RequestHead:
        given = h.header("signature-input") or ""
        assert old in given
        return with_header("signature-input", given.replace(old, new))(h)

    return change


ALTERED: dict[str, Callable[[RequestHead], RequestHead]] = {
    "method": lambda h: RequestHead("POST", h.target, h.headers),
    "path": lambda h: RequestHead(h.method, h.target.replace("/a", "/b"), h.headers),
    "query": lambda h: RequestHead(h.method, h.target.replace("x=1", "x=2"), h.headers),
    "query left out": lambda h: RequestHead(h.method, h.target.partition("?")[0], h.headers),
    "query behind a fragment": lambda h: RequestHead(h.method, f"{h.target}#&y=2", h.headers),
    "digest": with_header("content-digest", body_digest(sha256(b"other").digest())),
    "no digest": without("content-digest"),
    "content type": with_header("content-type", "text/plain"),
    "no content type": without("content-type"),
    "encoding added": with_header("content-encoding", "gzip"),
    "statement added": with_header("commingle-block", "{}"),
    "no signature": without("signature"),
    "no input": without("signature-input"),
    "another nonce": in_input('nonce="', 'nonce="x'),
    "fewer components": in_input(' "@query"', ""),
    "another algorithm": in_input('alg="ed25519"', 'alg="hmac-sha256"'),
    "another key": in_input(KEY.fingerprint, OTHER.fingerprint),
    "unknown key": in_input(KEY.fingerprint, SERVICE.fingerprint),
    "another tag": in_input("commingle/v1/", "commingle/v2/"),
    "garbage": with_header("signature", "commingle=:!!:"),
    "a header twice": lambda h: RequestHead("PUT", h.target, (("Content-Type", "text/plain"), *h.headers)),
    "for another service": lambda _: head(signed(audience=OTHER)),
    "a time no calendar has": in_input(f"created={int(NOW.timestamp())}", "created=999999999999999"),
    "two signatures": with_header("signature", "commingle=:AAAA:, other=:AAAA:"),
}


@pytest.mark.parametrize("what", ALTERED)
def test_altered_request_does_not_hold(what: str) -> None:
    with pytest.raises(RequestSignatureError):
        verify(ALTERED[what](head(signed())))


def test_unsigned_request_says_so() -> None:
    bare = RequestHead("PUT", "/", ())
    assert not is_signed(bare)
    with pytest.raises(RequestSignatureError, match="not signed"):
        verify(bare)


@pytest.mark.parametrize("seconds", [-300, 0, 300])
def test_clocks_may_differ_by_the_window(seconds: int) -> None:
    verify(head(signed(at=NOW + timedelta(seconds=seconds))))


@pytest.mark.parametrize("seconds", [-3600, -301, 301, 10**9])
def test_clocks_further_apart_are_told_both_times(seconds: int) -> None:
    with pytest.raises(ClockSkewError, match=r"this server's clock shows 2026-03-01T12:00:00Z") as refused:
        verify(head(signed(at=NOW + timedelta(seconds=seconds))))
    assert f"{abs(seconds)} seconds apart" in str(refused.value)
    assert "NTP" in refused.value.remedy


@given(st.text(max_size=80), st.text(max_size=80), st.text(max_size=40))
def test_nonsense_raises_our_error_only(signature: str, given_input: str, target: str) -> None:
    lines = (("signature", signature), ("signature-input", given_input), ("content-digest", signature))
    with pytest.raises(RequestSignatureError):
        verify(RequestHead("PUT", "/" + target, lines))
