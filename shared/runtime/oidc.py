"""OpenID Connect, the authorization-code flow with PKCE: where a browser is sent, and what its return proves.

We believe a provider only in what it signed for this client and for this very sign-in. A sign-in needs no memory here:
a browser keeps a random text, from which state, nonce and verifier follow by a key of this process. No other browser
has that text, so nobody can be signed on with another person's code.
"""

import base64
import hmac
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from threading import Lock
from typing import Any
from urllib.parse import quote_plus, urlencode

import httpx
from pydantic import BaseModel

from commingle.shared.errors import MissingExtraError
from commingle.shared.runtime.errors import (
    NonsenseError,
    RemoteProblemError,
    SettingsError,
    SignInError,
    UnreachableError,
)
from commingle.shared.runtime.remote import call, connect, model_of, reaching
from commingle.shared.runtime.settings import read_token
from commingle.shared.runtime.sso import SsoSettings, require_web
from commingle.shared.text import printable, quoted

_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519")
_ATTEMPT_SECONDS = 600.0
_METADATA_SECONDS, _FAILURE_SECONDS = 600.0, 5.0
_TIMEOUT_SECONDS = 5.0
_LARGEST_BYTES = 1 << 20
_LEEWAY_SECONDS = 60
_LONGEST_PATH, _LONGEST_SUBJECT, _LONGEST_NAME = 2000, 255, 40
_LONGEST_HINT = 2500  # many servers and proxies take no longer head or address than 4096
_LOGGED_OUT = "http://schemas.openid.net/event/backchannel-logout"
_AGAIN = "Open the console's address and sign in again."
_CLOCKS = "Compare the clocks of this machine and of the provider (NTP), and sign in again."


@dataclass(frozen=True, slots=True)
class Attempt:
    """One sign-in of one browser; the browser alone has `kept`, and first asked for `path`."""

    kept: str = field(repr=False)
    state: str
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)
    path: str


def begin(key: bytes, path: str, *, secret: str, now: float) -> Attempt:
    """A new sign-in. `key` is of this process, `secret` is 256 random bits as text, `now` is in seconds."""
    path = path if len(path.encode()) <= _LONGEST_PATH else "/"
    return _attempt(key, f"{secret}.{int(now)}.{_text(path.encode())}", path)


def resume(key: bytes, kept: str, *, now: float) -> Attempt | None:
    """The sign-in that a browser kept; None if it is none, or too old."""
    try:
        _, begun, path = kept.split(".")
        if not 0 <= now - int(begun) <= _ATTEMPT_SECONDS:
            return None
        return _attempt(key, kept, base64.urlsafe_b64decode(path + "==").decode())
    except ValueError:
        return None


def _attempt(key: bytes, kept: str, path: str) -> Attempt:
    state, nonce, verifier = (
        _text(hmac.digest(key, f"{use} {kept}".encode(), "sha256")) for use in ("state", "nonce", "verifier")
    )
    return Attempt(kept, state, nonce, verifier, path)


def _text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


@dataclass(frozen=True, slots=True)
class Principal:
    """A person who signed on."""

    # issuer, subject: these identify the person: names can change, and two people can share one
    issuer: str
    subject: str
    name: str  # the provider's name for the person, for display
    scopes: frozenset[str]  # what the person's groups may do
    id_token: str = field(repr=False)  # the proof, with which we ask the provider to end its own session
    sid: str = ""  # the provider's name of that session; empty if it gives none

    @property
    def person(self) -> str:
        """Subject and issuer, as decisions name them."""
        return f"{self.subject} at {self.issuer}"


@dataclass(frozen=True, slots=True)
class Ended:
    """A session that the provider has ended or, where `sid` is empty, all sessions of a subject.

    `jti` names the token that says so. The token holds until `until`, in seconds since 1970.
    """

    subject: str
    sid: str
    jti: str
    until: float

    def ends(self, principal: Principal) -> bool:
        """Whether that person is signed out. A session with an unknown `sid` ends with any of the subject's."""
        same = not self.sid or principal.sid == self.sid or (not principal.sid and self.subject != "")
        return same and self.subject in {"", principal.subject}


class _Metadata(BaseModel):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    end_session_endpoint: str | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class _Answer(BaseModel):
    id_token: str


class Provider:
    """The provider of these settings, over the network. Several threads may use it.

    Raises MissingExtraError: joserfc is not installed; SettingsError: the client's secret cannot be read.
    """

    def __init__(self, settings: SsoSettings, *, clock: Callable[[], float] = time.time) -> None:
        try:
            import joserfc  # noqa: F401, PLC0415 - an extra, without which nobody should be sent to sign in
        except ImportError:
            raise MissingExtraError("joserfc", extra="sso") from None
        self.settings, self._clock, self._guard = settings, clock, Lock()
        self._known: tuple[float, _Metadata | UnreachableError, float] | None = None
        self._keys = -_FAILURE_SECONDS, b""
        self._secret = read_token(settings.client_secret_file)

    def address(self, attempt: Attempt) -> str:
        """Where a browser signs in. Raises UnreachableError."""
        metadata, settings = self._metadata(), self.settings
        asked = {
            "response_type": "code",
            "client_id": settings.client_id,
            "redirect_uri": f"{settings.url}/enter/callback",
            "scope": " ".join(settings.scopes),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": _text(sha256(attempt.verifier.encode()).digest()),
            "code_challenge_method": "S256",
        }
        return _with(metadata.authorization_endpoint, asked)

    def principal(self, attempt: Attempt, answer: Mapping[str, str]) -> Principal:
        """The person who came back from there with this answer. Raises SignInError, UnreachableError."""
        settings = self.settings
        if not hmac.compare_digest(answer.get("state", "").encode(), attempt.state.encode()):
            raise SignInError("this sign-in did not begin in this browser", remedy=_AGAIN)
        if answer.get("iss", settings.issuer) != settings.issuer:
            raise SignInError("another provider answered", remedy=_AGAIN)
        if "code" not in answer:
            why = " ".join(answer[name] for name in ("error", "error_description") if name in answer)
            raise SignInError(f"the provider did not sign you in. It says: {quoted(why)}", remedy=_AGAIN)
        metadata = self._metadata()
        try:
            token = model_of(_Answer, self._post(metadata, answer["code"], attempt)).id_token
        except (NonsenseError, RemoteProblemError) as error:
            raise SignInError(f"the provider does not take this code, or no longer: {error}", remedy=_AGAIN) from None
        return self._proved(token, self._get(metadata.jwks_uri), attempt.nonce)

    def goodbye(self, id_token: str) -> str | None:
        """The address at which the provider ends its own session; None if it has none. Raises UnreachableError.

        Without a proof, if that is too long for an address, the provider asks who it is.
        """
        endpoint, settings = self._metadata().end_session_endpoint, self.settings
        after = {"client_id": settings.client_id, "post_logout_redirect_uri": f"{settings.url}/enter/left"}
        hint = {"id_token_hint": id_token} if len(id_token) <= _LONGEST_HINT else {}
        return _with(endpoint, {**hint, **after}) if endpoint else None

    def ended(self, token: str) -> Ended:
        """What a logout token says that the provider sent here. Raises SignInError, UnreachableError."""
        now, settings = self._clock(), self.settings
        if not 0 <= now - self._keys[0] < _FAILURE_SECONDS:
            self._keys = now, self._get(self._metadata().jwks_uri)
        return verify_logout_token(
            token, self._keys[1], issuer=settings.issuer, client_id=settings.client_id, now=int(self._clock())
        )

    def _proved(self, token: str, keys: bytes, nonce: str) -> Principal:
        settings = self.settings
        claims = verify_id_token(
            token, keys, issuer=settings.issuer, client_id=settings.client_id, nonce=nonce, now=int(self._clock())
        )
        said = claims.get(settings.groups_claim)
        groups = [group for group in said if isinstance(group, str)] if isinstance(said, list) else []
        scopes = frozenset[str]().union(*(settings.groups.get(group, frozenset()) for group in groups))
        names = (claims.get(name) for name in ("name", "preferred_username"))
        name = next((printable(name).strip() for name in names if isinstance(name, str) and name.strip()), "")
        sid = claims.get("sid", "")
        sid = sid if isinstance(sid, str) else ""
        return Principal(settings.issuer, claims["sub"], name[:_LONGEST_NAME], scopes, token, sid)

    def _metadata(self) -> _Metadata:
        with self._guard:
            now = self._clock()
            if self._known is None or not 0 <= now - self._known[0] < self._known[2]:
                at, found = self._clock(), self._discovered()
                self._known = at, found, _FAILURE_SECONDS if isinstance(found, UnreachableError) else _METADATA_SECONDS
            found = self._known[1]
        if isinstance(found, UnreachableError):
            raise UnreachableError(str(found), remedy=found.remedy)
        return found

    def _discovered(self) -> _Metadata | UnreachableError:
        issuer = self.settings.issuer
        try:
            found = _Metadata.model_validate_json(self._get(f"{issuer.rstrip('/')}/.well-known/openid-configuration"))
            for url in (found.authorization_endpoint, found.token_endpoint, found.jwks_uri):
                require_web(url)
            require_web(found.end_session_endpoint or issuer)
        except UnreachableError as error:
            return error
        except ValueError:
            return _astray(issuer, "describes itself in no way that is known")
        return found if found.issuer == issuer else _astray(issuer, f"calls itself {printable(found.issuer)[:200]}")

    def _get(self, url: str) -> bytes:
        try:
            return self._call("GET", url).content
        except (NonsenseError, RemoteProblemError):
            raise _astray(url, "does not answer as a provider does") from None

    def _post(self, metadata: _Metadata, code: str, attempt: Attempt) -> httpx.Response:
        client, secret = self.settings.client_id, self._secret
        form = {"grant_type": "authorization_code", "code": code, "code_verifier": attempt.verifier}
        form |= {"redirect_uri": f"{self.settings.url}/enter/callback", "client_id": client}
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if secret and "client_secret_basic" in metadata.token_endpoint_auth_methods_supported:
            pair = f"{quote_plus(client)}:{quote_plus(secret)}".encode()  # RFC 6749, 2.3.1
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        elif secret:
            form["client_secret"] = secret
        return self._call("POST", metadata.token_endpoint, content=urlencode(form).encode(), headers=headers)

    def _call(self, method: str, url: str, **options: Any) -> httpx.Response:  # noqa: ANN401 - those of `call`
        asked = {"largest_bytes": _LARGEST_BYTES, "patience_seconds": _TIMEOUT_SECONDS, **options}
        try:
            with reaching(url), connect(url, ca_file=self.settings.ca_file, timeout_seconds=_TIMEOUT_SECONDS) as client:
                return call(client, method, url, **asked)
        except SettingsError as error:  # of certificates, which somebody can remove while we run
            raise UnreachableError(str(error), remedy=error.remedy) from None


def verify_id_token(token: str, keys: bytes, *, issuer: str, client_id: str, nonce: str, now: int) -> Mapping[str, Any]:
    """The claims of an ID token (OpenID Connect Core 1.0, 3.1.3.7), if they hold.

    `keys` is the provider's JWK set, `now` is in seconds since 1970. Raises SignInError: the token is of another
    issuer, for another client, of another sign-in, expired, or not signed as it must be.
    """
    expected = {"nonce": {"essential": True, "value": nonce}, "sub": {"essential": True}}
    claims = _claims(token, keys, issuer=issuer, client_id=client_id, now=now, expected=expected)
    alone = claims["aud"] in (client_id, [client_id])
    if claims["nonce"] != nonce or claims.get("azp", client_id if alone else None) != client_id:
        raise SignInError("the provider's token is for another", remedy=_AGAIN)
    subject = claims["sub"]
    if not (len(subject) <= _LONGEST_SUBJECT and subject.isascii() and subject.isprintable() and subject.strip()):
        raise SignInError("the provider's token names nobody", remedy=_AGAIN)
    return claims


def verify_logout_token(token: str, keys: bytes, *, issuer: str, client_id: str, now: int) -> Ended:
    """What a logout token (OpenID Connect Back-Channel Logout 1.0, 2.6) ends, if it holds; arguments as above.

    Raises SignInError: it does not hold, or it is an ID token, which has a nonce and no such event.
    """
    claims = _claims(token, keys, issuer=issuer, client_id=client_id, now=now, expected={"jti": {"essential": True}})
    events, *names = (
        claims.get(name, usual) for name, usual in (("events", {}), ("sub", ""), ("sid", ""), ("jti", ""))
    )
    if "nonce" in claims or not (isinstance(events, dict) and isinstance(events.get(_LOGGED_OUT), dict)):
        raise SignInError("this is not a logout token", remedy=_AGAIN)
    subject, sid, jti = names
    if not (all(isinstance(name, str) for name in names) and (subject or sid)):
        raise SignInError("the logout token names nobody", remedy=_AGAIN)
    return Ended(subject, sid, jti, claims["exp"] + _LEEWAY_SECONDS)


def _claims(
    token: str, keys: bytes, *, issuer: str, client_id: str, now: int, expected: Mapping[str, Any]
) -> dict[str, Any]:
    from joserfc import errors, jwt  # noqa: PLC0415 - an extra; Provider says so where it is missing
    from joserfc.jwk import JWKRegistry, KeySet  # noqa: PLC0415 - as above

    registry = jwt.JWTClaimsRegistry(
        now=now,
        leeway=_LEEWAY_SECONDS,
        iss={"essential": True, "value": issuer},
        aud={"essential": True, "value": client_id},
        exp={"essential": True},
        iat={"essential": True},
        **expected,
    )
    wrong = errors.JoseError, ValueError, TypeError, KeyError, AttributeError, RecursionError
    known = list[Any]()
    try:
        for key in json.loads(keys)["keys"]:
            with suppress(*wrong):  # RFC 7517, 5: a key of a kind that we do not know disturbs no other
                known.append(JWKRegistry.import_key(key))
        claims = jwt.decode(token, KeySet(known), algorithms=_ALGORITHMS).claims
        registry.validate(claims)
    except errors.ClaimError as error:
        remedy = _CLOCKS if error.claim in {"exp", "iat", "nbf"} else _AGAIN
        raise SignInError(f"the provider's token does not hold ({error.claim})", remedy=remedy) from None
    except wrong as error:
        raise SignInError(f"the provider's token does not hold ({type(error).__name__})", remedy=_AGAIN) from None
    return claims


def _astray(where: str, said: str) -> UnreachableError:
    return UnreachableError(f"{where} {said}", remedy='Check "issuer" in the settings of single sign-on.')


def _with(endpoint: str, asked: Mapping[str, str]) -> str:
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(asked)}"
