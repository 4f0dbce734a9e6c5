"""What an ID token has to say, how it has to be signed, and what a browser has to bring back."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, RSAKey
from pydantic import ValidationError

from commingle.shared.runtime.errors import SignInError
from commingle.shared.runtime.oidc import begin, resume, verify_id_token
from tests.world.provider import sso_settings

NOW, ISSUER = 1_800_000_000, "https://login.example/realm"
KEY = ECKey.generate_key("P-256", parameters={"kid": "now", "use": "sig"})
OTHER = ECKey.generate_key("P-256", parameters={"kid": "now", "use": "sig"})
KEYS = json.dumps(KeySet([KEY]).as_dict(private=False)).encode()
CLAIMS = {"iss": ISSUER, "aud": "console", "sub": "u-1", "nonce": "n", "iat": NOW, "exp": NOW + 60}


def verified(token: str, keys: bytes = KEYS) -> Any:
    return verify_id_token(token, keys, issuer=ISSUER, client_id="console", nonce="n", now=NOW)


def signed(**changes: Any) -> str:
    claims = {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}
    return jwt.encode({"alg": "ES256", "kid": "now"}, claims, KEY)


@pytest.mark.parametrize(
    "changes",
    [{}, {"aud": ["console"]}, {"aud": ["console", "other"], "azp": "console"}, {"azp": "console"}, {"exp": NOW - 59}],
)
def test_token_for_this_client_and_sign_in_holds(changes: dict[str, Any]) -> None:
    assert verified(signed(**changes))["sub"] == "u-1"


WRONG: dict[str, tuple[object, ...]] = {
    **dict.fromkeys(CLAIMS, (None,)),
    "iss": (None, f"{ISSUER}/", "https://evil.example"),
    "aud": (None, "other", [], ["console", "other"]),
    "azp": ("other",),
    "nonce": (None, "m", ["n"]),
    "exp": (None, NOW - 60, "soon"),
    "iat": (None, NOW + 61),
    "nbf": (NOW + 61,),
    "sub": (None, "", " ", 7, "a" * 256, "ü", "u\n1"),
}


@pytest.mark.parametrize(
    "changes",
    [{"aud": ["console", "other"], "azp": "other"}, *({name: each} for name, wrong in WRONG.items() for each in wrong)],
)
def test_token_of_another_issuer_client_sign_in_or_time_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(SignInError):
        verified(signed(**changes))


def _unsigned() -> str:
    parts = (json.dumps(part).encode() for part in ({"alg": "none", "kid": "now"}, CLAIMS))
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."


FORGED: dict[str, Callable[[], str]] = {
    "alg none": _unsigned,
    "another key of that name": lambda: jwt.encode({"alg": "ES256", "kid": "now"}, CLAIMS, OTHER),
    "an unknown key": lambda: jwt.encode({"alg": "ES256", "kid": "then"}, CLAIMS, OTHER),
    "the public key as a secret": lambda: jwt.encode(
        {"alg": "HS256", "kid": "now"}, CLAIMS, OctKey.import_key(KEY.as_pem(private=False).hex())
    ),
    "another payload": lambda: ".".join(
        [*signed().split(".")[:1], *signed(sub="u-2").split(".")[1:2], *signed().split(".")[2:]]
    ),
    "no token": lambda: "x.y",
    "nothing": lambda: "",
}


@pytest.mark.parametrize("forged", FORGED)
def test_token_that_the_provider_did_not_sign_is_refused(forged: str) -> None:
    with pytest.raises(SignInError):
        verified(FORGED[forged]())


OCTETS = json.dumps({"keys": [{"kty": "oct", "kid": "now", "k": "eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4"}]}).encode()


@pytest.mark.parametrize("keys", [b"", b"[]", b'{"keys": []}', b'{"keys": 3}', OCTETS])
def test_keys_that_are_none_sign_nothing(keys: bytes) -> None:
    with pytest.raises(SignInError):
        verified(signed(), keys)


def test_keys_of_kinds_that_are_not_known_disturb_nothing() -> None:
    known = KeySet([RSAKey.generate_key(2048, parameters={"kid": "then"}), KEY]).as_dict(private=False)["keys"]
    for strange in (
        {"kty": "AKP", "alg": "ML-DSA-44"},
        {"kty": "EC", "crv": "BP-256", "x": "AA", "y": "AA", "kid": "next"},
        {"kty": "OKP", "crv": "Ed1", "x": "AA"},
        {"kty": "RSA", "n": "", "e": "AQAB"},
        {"kid": "next"},
        None,
    ):
        assert verified(signed(), json.dumps({"keys": [strange, *known]}).encode())


@pytest.mark.parametrize(("claim", "value"), [("exp", NOW - 60), ("iat", NOW + 61), ("nbf", NOW + 61)])
def test_token_of_another_time_leads_to_the_clocks(claim: str, value: int) -> None:
    with pytest.raises(SignInError, match=rf"does not hold \({claim}\)") as refused:
        verified(signed(**{claim: value}))
    assert "NTP" in refused.value.remedy


def test_sign_in_is_resumed_by_what_its_browser_kept_and_by_nothing_else() -> None:
    attempt = begin(b"k" * 32, "/proposals/ä?x=1", secret="s" * 43, now=1000.0)
    assert resume(b"k" * 32, attempt.kept, now=1600.0) == attempt
    assert len({attempt.state, attempt.nonce, attempt.verifier}) == 3
    assert len(attempt.verifier) == 43  # the least that RFC 7636 takes
    assert len(begin(b"k" * 32, "/" + "😀" * 1500, secret="s" * 43, now=1000.0).kept) < 4000  # as browsers keep cookies
    assert begin(b"k" * 32, "/", secret="t" * 43, now=1000.0).state != attempt.state
    other = resume(b"o" * 32, attempt.kept, now=1000.0)
    assert other is not None
    assert other.state != attempt.state
    moved = resume(b"k" * 32, attempt.kept.rpartition(".")[0] + ".Lw", now=1000.0)
    assert moved is not None
    assert moved.state != attempt.state
    for kept, now in (
        (attempt.kept, 1601.0),
        (attempt.kept, 999.0),
        ("", 1000.0),
        ("a.b.c", 1000.0),
        ("a.1000.é", 1e3),
    ):
        assert resume(b"k" * 32, kept, now=now) is None


OPEN: dict[str, tuple[object, ...]] = {
    "issuer": ("http://login.example", "https://login.example?x=1", "https://login.example x"),
    "url": (
        "http://console.example",
        "https://console.example/path",
        "https://user@console.example",
        "https://könsole.example",
        "console.example",
    ),
    "groups": ({}, {"board": ["operate"]}),
    "idle_minutes": (0,),
    "session_minutes": (721,),
    "client_secret": ("x",),
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, each in OPEN.items() for value in each])
def test_settings_that_would_let_somebody_listen_or_in_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ValidationError):
        sso_settings(**{"issuer": "https://login.example", "url": "https://console.example", field: value})


def test_address_is_written_as_browsers_write_it() -> None:
    for given, known in (
        ("https://Console.example:443/", "https://console.example"),
        ("https://console.example:8443", "https://console.example:8443"),
        ("http://127.0.0.1:8900", "http://127.0.0.1:8900"),
        ("http://[::1]:8900", "http://[::1]:8900"),
    ):
        assert sso_settings("https://login.example", given).url == known
