"""Tokens of the local API that a session at the console makes and revokes, for systems.

The adversary is somebody at another person's browser, or a person whose groups are taken away later. A session ends
soon and a token does not. So a token that is made here names no person, and where two people have to approve it
approves nothing; it expires; and a person's session makes tokens that read, and sees and revokes those that this person
made. The operator, who has the machine, grants every scope and revokes every token. Tokens for a person, and tokens
that do not expire, are made at the machine alone: `commingle party token create` (ADR 44).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from commingle.party_agent.edge.api import UnauthorisedError
from commingle.party_agent.errors import ConflictError, NotFoundError
from commingle.party_agent.home.home import Home
from commingle.party_agent.home.tokens import (
    EVERY_SCOPE,
    AgentScope,
    LocalToken,
    create_token,
    find_token,
    local_tokens,
    revoke_token,
)
from commingle.shared.runtime.errors import ScopeError, SettingsError
from commingle.shared.text import printable

DAYS = (1, 7, 30, 90)
"""How long a token may last."""
_LONGEST_NAME, _MOST_OF_A_PERSON = 50, 20
_OF_PEOPLE: frozenset[AgentScope] = frozenset({"read"})
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Maker:
    """Whose session it is, which holds now.

    Attributes:
        person: empty for the operator.
        scopes: what its tokens may be allowed.
    """

    home: Home
    person: str
    scopes: frozenset[AgentScope]
    now: datetime

    def tokens(self) -> Mapping[str, LocalToken]:
        """Those that this session may revoke, by name."""
        known = local_tokens(self.home, self.now)
        return {name: one for name, one in known.items() if self._may_revoke(one)}

    def make(self, name: str, scopes: frozenset[str], days: int) -> str:
        """A new token. Raises ScopeError, SettingsError, ConflictError."""
        granted = frozenset(scope for scope in self.scopes if scope in scopes)
        if granted != scopes:
            raise ScopeError("this session makes no such token", remedy="The operator can.")
        if not granted or days not in DAYS:
            raise SettingsError("a token has a scope and an end", remedy="Choose what it may do, and for how long.")
        if not 0 < len(name) <= _LONGEST_NAME or printable(name) != name:
            raise SettingsError(
                "this cannot be a name", remedy=f"Give 1 to {_LONGEST_NAME} characters that can be seen."
            )
        if self.person and len(self.tokens()) >= _MOST_OF_A_PERSON:  # each is looked at in every request
            raise ConflictError("you have made as many tokens as you can have", remedy="Revoke one.")
        lifetime = timedelta(days=days)
        made = create_token(self.home, name=name, scopes=granted, lifetime=lifetime, now=self.now, made_by=self.person)
        _log.info("token made", token=name, scopes=",".join(sorted(granted)), by=self.person or "the operator")
        return made

    def revoke(self, name: str) -> None:
        """Revoke a token. Raises NotFoundError."""
        if (token := self.tokens().get(name)) is None:
            raise NotFoundError("there is no such token of yours", remedy="Look at the list.")
        revoke_token(self.home, name, self.now, digest=token.digest)
        _log.info("token revoked", token=name, by=self.person or "the operator")

    def _may_revoke(self, token: LocalToken) -> bool:
        return not self.person or (not token.person and token.made_by == self.person)


def maker_of(home: Home, session_token: str | None, now: datetime) -> Maker:
    """Who a session's token says it is, as the local API asks it. Raises UnauthorisedError."""
    if session_token is None:
        return Maker(home, "", EVERY_SCOPE, now)
    found = find_token(home, session_token, now)
    if found is None or not found[1].person:
        raise UnauthorisedError("no valid bearer token", remedy="Sign in again.")
    return Maker(home, found[1].person, found[1].scopes & _OF_PEOPLE, now)
