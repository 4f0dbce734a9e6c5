"""Masked rows U = X - A on their way from one party to all others, unread by the coordinator, which knows A.

U is encrypted once, a row block at a time (AES-256-GCM, the block's index as nonce of a key used for nothing else), and
the key is sealed to every party. The commitment SHA-256(blinding || U) makes all of them receive the same U; without
the blinding it would let the dealer test guesses of X.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from commingle.shared.documents.dsse import Verified
from commingle.shared.documents.errors import ExchangeError
from commingle.shared.documents.statements import Sums
from commingle.shared.mechanisms.moments.exchange.documents import MaskStatement
from commingle.shared.mechanisms.moments.exchange.ring import BLOCK_ROWS, Rows, Words, row_blocks
from commingle.shared.mechanisms.moments.exchange.sealing import RoundKey, seal_to
from commingle.shared.mechanisms.moments.exchange.terms import Exchange

_KEY = 32
_NONCE = 12
_TAG = 16
_WORD = 8
_REMEDY = "Propose a new release."


@dataclass(frozen=True, slots=True)
class MaskSecret:
    """Content key and blinding of one mask, 32 bytes each; never used for a second one."""

    content_key: bytes = field(repr=False)
    blinding: bytes = field(repr=False)

    @classmethod
    def draw(cls, entropy: Callable[[int], bytes]) -> "MaskSecret":
        """A new one."""
        return cls(entropy(_KEY), entropy(_KEY))


class MaskSealer:
    """Encrypts a party's masked rows and then says what they were: `body` once, then `statement`."""

    def __init__(self, exchange: Exchange, *, party: str, secret: MaskSecret) -> None:
        self._exchange, self._party, self._secret = exchange, party, secret
        self._commitment, self._body = sha256(secret.blinding), sha256()
        self._begun = False

    def body(self, masked: Rows) -> Iterator[bytes]:
        """The encrypted body of U (n x d), one chunk per row block.

        Raises:
            ValueError: asked a second time, which would use a nonce twice (a fault of the caller).
        """
        if self._begun:
            raise ValueError("a mask is sealed once under its key")
        self._begun = True
        cipher = AESGCM(self._secret.content_key)
        for start, stop in row_blocks(self._exchange.spec.document.n):
            words = masked(start, stop).astype("<u8").tobytes()
            chunk = cipher.encrypt(_nonce(start), words, _about(self._exchange, self._party, start))
            self._commitment.update(words)
            self._body.update(chunk)
            yield chunk

    def statement(self, deal: str, sums: Sums | None = None) -> MaskStatement:
        """What the party signs, after the last chunk; `deal` is the digest of the deal its pad came from.

        `sums` are those that the map of its rows followed from.
        """
        commitment, body = self._commitment.hexdigest(), self._body.hexdigest()
        plain = self._secret.content_key + self._secret.blinding
        keys = {
            name: seal_to(
                self._exchange.round_key(name), plain, _key_info(self._exchange, self._party, name, commitment, body)
            ).hex()
            for name in self._exchange.parties
        }
        return MaskStatement(
            spec=self._exchange.spec.digest,
            party=self._party,
            deal=deal,
            commitment=commitment,
            body_sha256=body,
            keys=keys,
            sums=sums,
        )


class MaskReader:
    """The masked rows in an encrypted body: `Rows`, decrypted as they are asked for.

    Args:
        exchange: spec and approvals.
        party: whose rows they are.
        secret: from `open_secret`.
        read: bytes of the body from an offset, of a size.
    """

    def __init__(
        self, exchange: Exchange, *, party: str, secret: MaskSecret, read: Callable[[int, int], bytes]
    ) -> None:
        self._exchange, self._party, self._read = exchange, party, read
        self._cipher = AESGCM(secret.content_key)
        self._columns = exchange.columns(party)

    def __call__(self, start: int, stop: int) -> Words:
        """One row block of U, (stop - start) x d. Raises ExchangeError where the body was altered."""
        chunk = self._read(*_chunk_place(self._columns, start, stop))
        try:
            words = self._cipher.decrypt(_nonce(start), chunk, _about(self._exchange, self._party, start))
            return np.frombuffer(words, "<u8").astype(np.uint64).reshape(stop - start, self._columns)
        except (InvalidTag, ValueError):
            raise ExchangeError(f"the mask of {self._party} was altered", remedy=_REMEDY) from None


def body_size(exchange: Exchange, party: str) -> int:
    """Bytes of that party's encrypted body."""
    n = exchange.spec.document.n
    return n * exchange.columns(party) * _WORD + len(range(0, n, BLOCK_ROWS)) * _TAG


def open_secret(exchange: Exchange, statement: Verified[MaskStatement], *, recipient: str, key: RoundKey) -> MaskSecret:
    """The secret of a mask, sealed to that recipient. Raises ExchangeError."""
    said = statement.document
    info = _key_info(exchange, said.party, recipient, said.commitment, said.body_sha256)
    plain = key.open(bytes.fromhex(said.keys[recipient]), info)
    return MaskSecret(plain[:_KEY], plain[_KEY:])


def check_commitment(
    exchange: Exchange, statement: Verified[MaskStatement], masked: Rows, *, secret: MaskSecret
) -> None:
    """Raise ExchangeError unless these are the rows their party committed to, before everybody."""
    digest = sha256(secret.blinding)
    for start, stop in row_blocks(exchange.spec.document.n):
        digest.update(masked(start, stop).astype("<u8").tobytes())
    if digest.hexdigest() != statement.document.commitment:
        raise ExchangeError(f"the mask of {statement.document.party} is not the one it signed", remedy=_REMEDY)


def _chunk_place(columns: int, start: int, stop: int) -> tuple[int, int]:
    """Offset and size of a row block's chunk."""
    return start * columns * _WORD + start // BLOCK_ROWS * _TAG, (stop - start) * columns * _WORD + _TAG


def _nonce(start: int) -> bytes:
    return (start // BLOCK_ROWS).to_bytes(_NONCE, "big")


def _about(exchange: Exchange, party: str, start: int) -> bytes:
    return exchange.info("mask", party, start // BLOCK_ROWS, exchange.spec.document.n, exchange.columns(party))


def _key_info(exchange: Exchange, sender: str, recipient: str, commitment: str, body: str) -> bytes:
    return exchange.info("mask-key", sender, recipient, exchange.round_key(recipient), commitment, body)
