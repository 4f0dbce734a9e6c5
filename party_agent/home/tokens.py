"""Bearer tokens of the local API for the party's systems and people: each may do what its scopes say, until revoked.

`HOME/tokens.json` keeps them as digests. The operator needs none: see `local_socket`. Somebody who signs on to a
console has one for as long as the session can last, so that the API checks every page and decision as it does
elsewhere. A token that expired is not listed, and leaves the file at its next change.
"""

import fcntl
import hmac
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Literal, get_args

from pydantic import AwareDatetime

from commingle.party_agent.errors import ConflictError, NotFoundError
from commingle.party_agent.home.home import Home
from commingle.shared.documents.model import Digest, text_digest
from commingle.shared.runtime.files import write_durably
from commingle.shared.runtime.oidc import Principal
from commingle.shared.runtime.settings import HomeFile, Settings, load_settings, system_clock
from commingle.shared.runtime.sso import ConsoleScope

AgentScope = Literal["read", "decide", "register", "propose"]
SCOPE_WORDS: Mapping[AgentScope, str] = MappingProxyType(
    {
        "read": "status, proposals, ledger, jobs, releases",
        "decide": "approve, reject, regress",
        "register": "have declared data sets read again, push rows",
        "propose": "releases, in this member's name",
    }
)
EVERY_SCOPE: frozenset[AgentScope] = frozenset(SCOPE_WORDS)
_PREFIX = "commingle-local.v1"
_MOST_OF_A_PERSON = 20  # made in a console: each is looked at in every request
_USED_TO_WITHIN = timedelta(minutes=1)  # so that most requests write nothing


class LocalToken(Settings):
    """A token as kept, without the secret itself.

    Attributes:
        person: the person it was made for, who decides with it; empty for a system's token.
        made_by: the person who made it in a console; empty for the operator.
        used: when it last let somebody in, to within a minute.
    """

    digest: Digest
    scopes: frozenset[AgentScope]
    created: AwareDatetime
    expires: AwareDatetime | None = None
    person: str = ""
    made_by: str = ""
    used: AwareDatetime | None = None

    def is_of(self, person: str) -> bool:
        """Whether that person made it in a console, for a system."""
        return not self.person and self.made_by == person


class _Tokens(HomeFile):
    tokens: dict[str, LocalToken]


def local_tokens(home: Home, now: datetime) -> Mapping[str, LocalToken]:
    """Tokens that have not expired, by name. Read at every use, so that a revocation counts at once."""
    return {name: one for name, one in _kept(home).items() if one.expires is None or now < one.expires}


def _kept(home: Home) -> Mapping[str, LocalToken]:
    path = home.root / "tokens.json"
    return load_settings(_Tokens, path).tokens if path.exists() else {}


def create_token(
    home: Home,
    *,
    name: str,
    scopes: frozenset[AgentScope],
    lifetime: timedelta | None,
    now: datetime,
    person: str = "",
    made_by: str = "",
) -> str:
    """A new token. Raises ConflictError: the name is taken, or its maker has as many as a person can have."""
    text = f"{_PREFIX}.{secrets.token_urlsafe(32)}"
    expires = None if lifetime is None else now + lifetime
    token = LocalToken(
        digest=text_digest(text), scopes=scopes, created=now, expires=expires, person=person, made_by=made_by
    )
    with _changing(home, now) as known:
        if name in known:
            raise ConflictError(f"there is a token named {name}", remedy="Revoke it, or choose another name.")
        if made_by and not person and sum(one.is_of(made_by) for one in known.values()) >= _MOST_OF_A_PERSON:
            raise ConflictError("you have made as many tokens as you can have", remedy="Revoke one.")
        known[name] = token
    return text


def token_of_session(home: Home, principal: Principal, *, minutes: float) -> str:
    """A token for one session of a person who signed on. The person's former one ends."""
    now, person = system_clock(), principal.person
    with _changing(home, now) as known:
        for name in [name for name, one in known.items() if one.person == person]:
            del known[name]
    name = f"sso-{secrets.token_hex(4)} {principal.name}".strip()
    scopes = frozenset(scope for scope in get_args(ConsoleScope) if scope in principal.scopes)
    lasts = timedelta(minutes=minutes)
    return create_token(home, name=name, scopes=scopes, lifetime=lasts, now=now, person=person, made_by=person)


def revoke_token(home: Home, name: str, now: datetime, *, digest: str | None = None) -> None:
    """Revoke the token of this name, if it has the digest that is given. Raises NotFoundError."""
    with _changing(home, now) as known:
        if name not in known or digest not in {None, known[name].digest}:
            raise NotFoundError(f"there is no token named {name}", remedy="commingle party token list")
        del known[name]


def end_session(home: Home, text: str) -> None:
    """Revoke a session's token, if it has not ended."""
    digest = text_digest(text)
    with _changing(home, system_clock()) as known:
        for name in [name for name, one in known.items() if one.digest == digest]:
            del known[name]


def find_token(home: Home, text: str, now: datetime) -> tuple[str, LocalToken] | None:
    """The valid token with this text, and its name; None if there is none. Its use is noted."""
    digest, found = text_digest(text), None
    for name, token in local_tokens(home, now).items():
        if hmac.compare_digest(token.digest, digest):
            found = name, token
    if found is not None and not _is_noted(found[1], now):
        with suppress(OSError):  # neither a full disk nor who holds the file keeps anybody from rejecting a release
            _note_use(home, *found, now)
    return found


def _is_noted(token: LocalToken, now: datetime) -> bool:
    return token.used is not None and timedelta(0) <= now - token.used < _USED_TO_WITHIN


def _note_use(home: Home, name: str, token: LocalToken, now: datetime) -> None:
    with _changing(home, None, waits=False) as known:  # a clock that is wrong once takes no token out of the file
        same = known.get(name)  # meanwhile it may be revoked, or noted by another request
        if same is not None and same.digest == token.digest and not _is_noted(same, now):
            known[name] = same.model_copy(update={"used": now})


@contextmanager
def _changing(home: Home, now: datetime | None, *, waits: bool = True) -> Iterator[dict[str, LocalToken]]:
    """Tokens to be changed, by one process and thread at a time: no sign-on can undo a revocation.

    Raises BlockingIOError if another has them and this one does not wait.
    """
    held = os.open(home.root, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
        before = _kept(home) if now is None else local_tokens(home, now)
        known = dict(before)
        yield known
        if known != before:
            write_durably(home.root / "tokens.json", _Tokens(tokens=known).model_dump_json(indent=2).encode())
    finally:
        os.close(held)
