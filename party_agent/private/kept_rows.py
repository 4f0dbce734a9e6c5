"""A party's bounded rows while the exchange of a release runs: on its own disk, and never leaving in the clear.

Adversary: all other parties and the coordinator together. They get the rows encrypted under a key of this release, and
replies in which a fresh encryption of zero and a flood hide them, with noise inside (docs/proofs/linear-encryption.md),
and proofs of both that tell nothing else (docs/proofs/proved-bounds.md).
On the disk they are encrypted under a key beside them: who reads both reads rows, and once the key is removed nobody.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from commingle.party_agent.errors import LostError
from commingle.party_agent.private.sorting import nonce
from commingle.shared.mechanisms.moments.exchange.messages import Columns, Exchange, Reply
from commingle.shared.mechanisms.moments.exchange.products import (
    encrypted_columns,
    open_part,
    own_moments,
    reply_pieces,
)
from commingle.shared.ring.encryption import SEED_BYTES, Entropy, within_limits
from commingle.shared.ring.errors import DomainError
from commingle.shared.runtime.files import write_durably

_BLOCK = 4096  # rows
_TAG = 16


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The rows of one party in one exchange (n x d), and what it makes of them.

    `secret` is 32 bytes of the operating system, for this set of rows alone.
    """

    exchange: Exchange
    party: str
    path: Path
    secret: bytes = field(repr=False)

    def keep(self, pieces: Iterable[NDArray[np.int64]]) -> None:
        """Store the rows (n x d) durably, some at a time: multiples of 4096 but for the last.

        Raises:
            DomainError: they are of another shape, or an entry is beyond 2^14 and would wrap.
            OSError: the disk is full.
        """
        write_durably(self.path, self._sealed(pieces))

    def _sealed(self, pieces: Iterable[NDArray[np.int64]]) -> Iterator[bytes]:
        rows, columns, kept = self.exchange.terms.table_rows, self.exchange.width(self.party), 0
        for piece in pieces:
            whole = len(piece) if kept + len(piece) == rows else len(piece) - len(piece) % _BLOCK
            words = within_limits(piece, (whole, columns)).astype("<i2")
            for start in range(0, whole, _BLOCK):
                yield self._cipher().encrypt(
                    nonce((kept + start) // _BLOCK), words[start : start + _BLOCK].tobytes(), None
                )
            kept += whole
        if kept != rows:
            raise DomainError(f"{rows} rows are asked for, not {kept}")

    def __call__(self, start: int, stop: int) -> NDArray[np.int16]:
        """Rows start..stop. Raises LostError: they are gone or damaged."""
        first = start - start % _BLOCK
        columns, found = self.exchange.width(self.party), []
        try:
            with self.path.open("rb") as file:
                file.seek(first // _BLOCK * (_BLOCK * columns * 2 + _TAG))
                for place in range(first, stop, _BLOCK):
                    count = min(_BLOCK, self.exchange.terms.table_rows - place)
                    found.append(
                        self._cipher().decrypt(nonce(place // _BLOCK), file.read(count * columns * 2 + _TAG), None)
                    )
        except (FileNotFoundError, InvalidTag):
            raise LostError("the rows of an exchange are lost", remedy="Check the disk of the member's home.") from None
        rows = np.frombuffer(b"".join(found), "<i2").reshape(-1, columns)
        return rows[start - first : stop - first].astype(np.int16, copy=False)

    def encrypted(self, entropy: Entropy) -> Iterator[bytes]:
        """What this party encrypts for others (`products.encrypted_columns`). Made once."""
        return encrypted_columns(self.exchange, party=self.party, seed=self.key_for("ring"), rows=self, entropy=entropy)

    def reply(
        self, own: Columns, owners: Mapping[str, Columns], noise: Callable[[str], NDArray[np.int64]], entropy: Entropy
    ) -> Iterator[bytes]:
        """What this party replies to those before it (`products.reply_pieces`). Made once."""
        return reply_pieces(own, owners, seed=self.key_for("ring"), rows=self, noise=noise, entropy=entropy)

    def open(self, reply: Reply, *, largest: int) -> NDArray[np.int64]:
        """What a party after this one replied to it (`products.open_part`)."""
        return open_part(reply, owner=self.party, seed=self.key_for("ring"), largest=largest)

    def moments(self) -> NDArray[np.int64]:
        """This party's own (`products.own_moments`), without noise: secret."""
        return own_moments(self.exchange, party=self.party, rows=self)

    def _cipher(self) -> AESGCM:
        return AESGCM(self.key_for("rows"))

    def key_for(self, purpose: str) -> bytes:
        """A key of this party in this exchange, for the rows on its disk or for the ring."""
        return HKDF(SHA256(), SEED_BYTES, salt=None, info=self.exchange.info(purpose, self.party)).derive(self.secret)
