"""A provider of single sign-on over a real socket: it signs in whom a test says, and can be made to lie."""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, urlencode

import httpx
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet
from joserfc.util import urlsafe_b64encode
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from commingle.shared.runtime.server import Served, listen, serving
from commingle.shared.runtime.sso import SsoSettings

CLIENT, SECRET = "console", "s+e:cr%t"
LOGGED_OUT = "http://schemas.openid.net/event/backchannel-logout"
GROUPS: Mapping[str, Any] = {"board": {"read", "decide"}, "staff": {"read"}}


class SigningProvider:
    """Keeps the rules of OpenID Connect, PKCE among them, but for what `claims` and `sign` change.

    Attributes:
        user: the claims of whoever signs in next.
        claims: changes what an ID token says.
        sign: makes a token of claims.
        discovery: changes how it describes itself.
    """

    def __init__(self, issuer: str, *, secret: bool) -> None:
        self.issuer, self._secret = issuer, secret
        self.key = ECKey.generate_key("P-256", parameters={"kid": "now", "use": "sig"})
        self.user: dict[str, Any] = {"sub": "u-adams", "name": "Dr. Adams", "groups": ["board"]}
        self.claims: Callable[[dict[str, Any]], dict[str, Any]] = lambda claims: claims
        self.sign: Callable[[dict[str, Any]], str] = self.signed
        self.discovery: dict[str, Any] = {}
        self.asked: list[str] = []
        self._codes: dict[str, tuple[dict[str, str], dict[str, Any]]] = {}

    def signed(self, claims: dict[str, Any]) -> str:
        return jwt.encode({"alg": "ES256", "kid": "now"}, claims, self.key)

    def logout_token(self, **changes: Any) -> str:
        """With which it ends u-adams's sessions; a claim that is changed to None is left out."""
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 120, "sub": "u-adams"}
        claims |= {"jti": secrets.token_hex(8), "events": {LOGGED_OUT: {}}, **changes}
        return self.signed({name: value for name, value in claims.items() if value is not None})

    def application(self) -> Starlette:
        routes = {
            "/.well-known/openid-configuration": self._configuration,
            "/authorize": self._authorize,
            "/keys": self._keys,
        }
        return Starlette(
            routes=[
                *(Route(path, endpoint, methods=["GET"]) for path, endpoint in routes.items()),
                Route("/token", self._token, methods=["POST"]),
            ]
        )

    def _configuration(self, _: Request) -> Response:
        self.asked.append("configuration")
        places = {"authorization": "/authorize", "token": "/token", "end_session": "/logout?x=1"}
        said = {f"{name}_endpoint": self.issuer + path for name, path in places.items()}
        return JSONResponse({"issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys", **said, **self.discovery})

    def _keys(self, _: Request) -> Response:
        return JSONResponse(KeySet([self.key]).as_dict(private=False))

    def _authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        code = f"code-{len(self._codes)}"
        self._codes[code] = asked, dict(self.user)
        answer = urlencode({"code": code, "state": asked["state"]})
        return RedirectResponse(f"{asked['redirect_uri']}?{answer}", status_code=302)

    async def _token(self, request: Request) -> Response:
        form = dict(parse_qsl((await request.body()).decode()))
        asked, user = self._codes.pop(form["code"], ({}, {}))
        challenge = urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest()).decode()
        right = {"code_challenge": challenge, "redirect_uri": form["redirect_uri"], "client_id": CLIENT}
        expected = httpx.BasicAuth(CLIENT, "s%2Be%3Acr%25t")._auth_header if self._secret else None
        if request.headers.get("authorization") != expected or any(
            asked.get(name) != value for name, value in right.items()
        ):
            return JSONResponse({"error": "invalid_grant"}, status_code=400)
        now = int(time.time())
        times = {"iat": now, "exp": now + 300}
        claims = {"iss": self.issuer, "aud": CLIENT, "nonce": asked["nonce"], **times, **user}
        return JSONResponse({"access_token": "x", "token_type": "Bearer", "id_token": self.sign(self.claims(claims))})


@contextmanager
def signing_provider(*, secret: bool = True) -> Iterator[SigningProvider]:
    """`secret`: whether its client has one; else it is a public client."""
    listener = listen(host="127.0.0.1", port=0)
    provider = SigningProvider(f"http://127.0.0.1:{listener.getsockname()[1]}", secret=secret)
    with serving([Served(provider.application(), listener)]):
        yield provider


def sso_settings(issuer: str, url: str, **changes: Any) -> SsoSettings:
    return SsoSettings(**{"issuer": issuer, "client_id": CLIENT, "url": url, "groups": GROUPS} | changes)


def browser(url: str, **headers: str) -> httpx.Client:
    """Somebody who looks at pages and follows redirects, with cookies of their own."""
    return httpx.Client(base_url=url, headers={"Accept": "text/html", "Origin": url} | headers, follow_redirects=True)
