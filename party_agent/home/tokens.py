"""Bearer tokens of the local API for the party's systems and people: each may do what its scopes say, until revoked.

They are kept as digests in `HOME/tokens.json`. The operator needs none: see `local_socket`. Who signs on to a console
has one for as long as the session can last, so that the API checks every page and decision as it does elsewhere.
"""

import fcntl
import hmac
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Literal, get_args

from pydantic import AwareDatetime, Field, RootModel

from commingle.party_agent.errors import ConflictError, NotFoundError
from commingle.party_agent.home.home import Home
from commingle.party_agent.ledger.rulings import is_signed_on
from commingle.shared.documents.model import Digest, text_digest
from commingle.shared.runtime.files import write_durably
from commingle.shared.runtime.oidc import Principal
from commingle.shared.runtime.settings import Settings, load_settings, system_clock
from commingle.shared.runtime.sso import ConsoleScope

AgentScope = Literal["read", "decide", "register", "propose"]
EVERY_SCOPE: frozenset[AgentScope] = frozenset(get_args(AgentScope))
_PREFIX = "commingle-local.v1"


class LocalToken(Settings):
    """A token as kept: the secret itself is not.

    Attributes:
        person: whom it was made for, and whose decisions are made with it; empty where it is a system's.
    """

    digest: Digest
    scopes: frozenset[AgentScope]
    created: AwareDatetime
    expires: AwareDatetime | None = None
    person: str = ""


class _Tokens(RootModel[dict[str, LocalToken]]):
    root: dict[str, LocalToken] = Field(default_factory=dict)


def local_tokens(home: Home) -> Mapping[str, LocalToken]:
    """Tokens by name. Read at every use, so that a revocation counts at once. Raises SettingsError."""
    path = home.root / "tokens.json"
    return load_settings(_Tokens, path).root if path.exists() else {}


def create_token(
    home: Home,
    *,
    name: str,
    scopes: frozenset[AgentScope],
    lifetime: timedelta | None,
    now: datetime,
    person: str = "",
) -> str:
    """A new token. Raises ConflictError where there is one of that name."""
    text = f"{_PREFIX}.{secrets.token_urlsafe(32)}"
    expires = None if lifetime is None else now + lifetime
    token = LocalToken(digest=text_digest(text), scopes=scopes, created=now, expires=expires, person=person)
    with _changing(home) as known:
        if name in known:
            raise ConflictError(f"there is a token named {name}", remedy="Revoke it, or choose another name.")
        known[name] = token
    return text


def token_of_session(home: Home, principal: Principal, *, minutes: float) -> str:
    """A token for one session of a person who signed on. The person's former one ends."""
    now, person = system_clock(), principal.person
    with _changing(home) as known:
        for name, one in tuple(known.items()):
            over = one.expires is not None and one.expires <= now
            if is_signed_on(one.person) and (over or one.person == person):
                del known[name]
    name = f"sso-{secrets.token_hex(4)} {principal.name}".strip()
    scopes = frozenset(scope for scope in get_args(ConsoleScope) if scope in principal.scopes)
    return create_token(home, name=name, scopes=scopes, lifetime=timedelta(minutes=minutes), now=now, person=person)


def revoke_token(home: Home, name: str) -> None:
    """Revoke a token. Raises NotFoundError."""
    with _changing(home) as known:
        if name not in known:
            raise NotFoundError(f"there is no token named {name}", remedy="commingle party token list")
        del known[name]


def find_token(home: Home, text: str, now: datetime) -> tuple[str, LocalToken] | None:
    """The token with this text and its name; None where it is no valid one."""
    digest, found = text_digest(text), None
    for name, token in local_tokens(home).items():
        if hmac.compare_digest(token.digest, digest) and (token.expires is None or now < token.expires):
            found = name, token
    return found


@contextmanager
def _changing(home: Home) -> Iterator[dict[str, LocalToken]]:
    """Tokens to be changed, by one process and thread at a time: no revocation is lost to somebody who signs on."""
    held = os.open(home.root, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        known = dict(local_tokens(home))
        yield known
        write_durably(home.root / "tokens.json", _Tokens(known).model_dump_json(indent=2).encode())
    finally:
        os.close(held)
