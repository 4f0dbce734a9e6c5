"""Bearer tokens of the local API for the party's own systems: each may do what its scopes say, and can be revoked.

They are kept as digests in `HOME/tokens.json`. The operator needs none: see `local_socket`.
"""

import hmac
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Literal, get_args

from pydantic import AwareDatetime, Field, RootModel

from commingle.party_agent.errors import ConflictError, NotFoundError
from commingle.party_agent.home.home import Home
from commingle.shared.documents.model import Digest, text_digest
from commingle.shared.runtime.files import write_durably
from commingle.shared.runtime.settings import Settings, load_settings

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
    known = local_tokens(home)
    if name in known:
        raise ConflictError(f"there is a token named {name}", remedy="Revoke it, or choose another name.")
    text = f"{_PREFIX}.{secrets.token_urlsafe(32)}"
    expires = None if lifetime is None else now + lifetime
    token = LocalToken(digest=text_digest(text), scopes=scopes, created=now, expires=expires, person=person)
    _save(home, {**known, name: token})
    return text


def revoke_token(home: Home, name: str) -> None:
    """Revoke a token. Raises NotFoundError."""
    known = local_tokens(home)
    if name not in known:
        raise NotFoundError(f"there is no token named {name}", remedy="commingle party token list")
    _save(home, {other: token for other, token in known.items() if other != name})


def find_token(home: Home, text: str, now: datetime) -> tuple[str, LocalToken] | None:
    """The token with this text and its name; None where it is no valid one."""
    digest, found = text_digest(text), None
    for name, token in local_tokens(home).items():
        if hmac.compare_digest(token.digest, digest) and (token.expires is None or now < token.expires):
            found = name, token
    return found


def _save(home: Home, tokens: dict[str, LocalToken]) -> None:
    write_durably(home.root / "tokens.json", _Tokens(tokens).model_dump_json(indent=2).encode())
