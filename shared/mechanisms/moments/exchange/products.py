"""Encrypted columns, replies to them and what they open to: `shared.ring` between the parties of one release.

What a party signed and cannot be read is its deviation, and it is named; bytes that nobody signed are asked for again.
"""

from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.errors import DeviationError, ExchangeError
from commingle.shared.mechanisms.moments.exchange.terms import Exchange
from commingle.shared.ring.encryption import encrypt, public_key, secret_key
from commingle.shared.ring.errors import CiphertextError
from commingle.shared.ring.evaluation import InnerProducts
from commingle.shared.ring.layout import Layout, byte_count
from commingle.shared.ring.randomness import SEED_BYTES, Entropy, keystream
from commingle.shared.ring.replies import make_reply, open_reply

Rows: TypeAlias = Callable[[int, int], NDArray[np.int16]]
"""Rows start..stop of a party's n x d, entries at most 2^14 in absolute value."""


class Received:
    """Bytes as they come, read in the pieces that are asked for, and held against the digest that was signed.

    Args:
        pieces: of any size.
        sender: whose signature is under them.
        signed: their SHA-256, hex.
    """

    def __init__(self, pieces: Iterable[bytes], *, sender: str, signed: str) -> None:
        self._pieces, self._sender, self._signed = iter(pieces), sender, signed
        self._left, self._hash = b"", sha256()

    def take(self, size: int) -> bytes:
        """The next bytes, fewer where they end."""
        found = [self._left]
        missing = size - len(self._left)
        while missing > 0 and (piece := next(self._pieces, None)) is not None:
            self._hash.update(piece)
            found.append(piece)
            missing -= len(piece)
        whole = b"".join(found)
        self._left = whole[size:]
        return whole[:size]

    def check(self, fault: CiphertextError | None = None) -> None:
        """Read to the end.

        Raises:
            ExchangeError: these are not the bytes that were signed.
            DeviationError: they are, and are at fault or more than are asked for.
        """
        more = len(self._left)
        for piece in self._pieces:
            self._hash.update(piece)
            more += len(piece)
        if self._hash.hexdigest() != self._signed:
            raise ExchangeError(f"what {self._sender} sent was altered", remedy="It is fetched again.")
        if fault is not None or more:
            raise DeviationError(self._sender, str(fault or "it is longer than it can be"))


def encrypted_columns(exchange: Exchange, *, party: str, seed: bytes, rows: Rows, entropy: Entropy) -> Iterator[bytes]:
    """What a party sends to all after it: its public key, then its columns block by block. Made once, and stored.

    Args:
        exchange: spec and approvals.
        party: whose columns they are.
        seed: of its key of this release, from the operating system.
        rows: its own.
        entropy: that of the operating system.
    """
    if not exchange.evaluators(party):
        return
    layout = exchange.layout(party)
    key, errors = secret_key(seed, layout.parameters), keystream(entropy(SEED_BYTES))
    yield public_key(key, layout, errors)
    for start, stop in layout.blocks():
        yield encrypt(key, layout, (start, stop), rows(start, stop), errors)


def reply_part(
    exchange: Exchange, *, owner: str, received: Received, rows: Rows, noise: NDArray[np.int64], entropy: Entropy
) -> Iterator[bytes]:
    """What an evaluator replies to one owner, column by column. Made once, and stored.

    Args:
        exchange: spec and approvals.
        owner: whose columns were received.
        received: what the owner's statement is under.
        rows: the evaluator's own.
        noise: its discrete Gaussian noise (owner's columns x its own), drawn after its debit.
        entropy: that of the operating system.

    Raises:
        ExchangeError: something else was received than the owner signed; nothing was made.
        DeviationError: what the owner signed are no ciphertexts; nothing was made.
    """
    layout = exchange.layout(owner)
    key = received.take(byte_count(layout.key_shape))
    try:
        made = make_reply(_products(layout, received, rows, noise.shape[1]), key, noise, keystream(entropy(SEED_BYTES)))
    except CiphertextError as error:
        received.check(error)
        raise
    received.check()
    yield from made


def _products(layout: Layout, received: Received, rows: Rows, columns: int) -> InnerProducts:
    found = InnerProducts(layout, columns)
    for start, stop in layout.blocks():
        found.add(received.take(byte_count(layout.block_shape(start, stop))), rows(start, stop))
    return found


def open_part(
    exchange: Exchange, *, owner: str, evaluator: str, seed: bytes, received: Received, largest: int
) -> NDArray[np.int64]:
    """X_owner^T X_evaluator plus the evaluator's noise, exactly: (owner's columns x evaluator's).

    Args:
        exchange: spec and approvals.
        owner: who opens.
        evaluator: whose reply it is.
        seed: of the owner's key of this release.
        received: the part of the reply that is the owner's.
        largest: what no number exceeds that an honest evaluator can cause.

    Raises:
        ExchangeError: something else was received than the evaluator signed.
        DeviationError: what it signed is no reply, or opens beyond what an honest one can. Nothing of it is published.
    """
    layout = exchange.layout(owner)
    key, size = secret_key(seed, layout.parameters), byte_count(layout.reply_shape)
    opened = np.zeros((layout.columns, exchange.columns(evaluator)), np.int64)
    try:
        for b in range(opened.shape[1]):
            opened[:, b] = open_reply(key, layout, received.take(size), largest=largest)
    except CiphertextError as error:
        received.check(error)
        raise
    received.check()
    return opened
