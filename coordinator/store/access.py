"""Nonces of signed requests and bearer tokens in the database."""

from dataclasses import asdict
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select, update

from commingle.coordinator.store.rows import TokenRow
from commingle.coordinator.store.tables import nonces, tokens


class Access:
    """Nonces and tokens, within one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def remember(self, signer: str, nonce: str, *, forget: datetime, now: datetime) -> bool:
        """Remember a nonce until `forget`; False if it is remembered already. Forgets what is due."""
        self._connection.execute(delete(nonces).where(nonces.c.forget < now))
        known = select(nonces.c.nonce).where(nonces.c.signer == signer, nonces.c.nonce == nonce)
        if self._connection.execute(known).one_or_none() is not None:
            return False
        self._connection.execute(insert(nonces).values(signer=signer, nonce=nonce, forget=forget))
        return True

    def add_token(self, token: TokenRow) -> None:
        """Remember a token."""
        self._connection.execute(insert(tokens).values(asdict(token)))

    def token(self, *, name: str | None = None, digest: str | None = None) -> TokenRow | None:
        """The token of that name, or whose secret has that digest."""
        which = tokens.c.name == name if digest is None else tokens.c.digest == digest
        row = self._connection.execute(select(tokens).where(which)).one_or_none()
        return None if row is None else TokenRow(*row)

    def tokens(self) -> tuple[TokenRow, ...]:
        """All of them, the oldest first."""
        query = select(tokens).order_by(tokens.c.created, tokens.c.name)
        return tuple(TokenRow(*row) for row in self._connection.execute(query))

    def revoke_token(self, name: str, at: datetime) -> None:
        """Let nobody in with it any more."""
        self._connection.execute(update(tokens).where(tokens.c.name == name).values(revoked=at))
