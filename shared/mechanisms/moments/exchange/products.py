"""Encrypted columns, replies to them, what these open to, and the upload: `ring` and `proving` in one release.

Messages are bytes that their party signed. So an error in them is that party's deviation, and names it. A party's
upload (p x d) holds its own block, and its cross blocks with the parties after it. A cross block stands in the columns
of the party that comes first, with the noise of both; the rows of parties before it are zero in a party's columns. So M
+ M^T is the release, and nothing needs to be unmasked.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.statements import DeviationError
from commingle.shared.dp.noise import Sampler
from commingle.shared.errors import CiphertextError, ProofError
from commingle.shared.mechanisms.moments.entries import block_noise, first_place, places
from commingle.shared.mechanisms.moments.exchange.messages import Columns, Exchange, Reply
from commingle.shared.proving import columns as statements
from commingle.shared.proving import replies as evaluations
from commingle.shared.proving.ciphertexts import Ciphertexts, segments
from commingle.shared.proving.columns import prove_columns, verify_columns
from commingle.shared.proving.evaluator import Encrypted, Replies, prove_replies, verify_replies
from commingle.shared.proving.lengths import column_sizes
from commingle.shared.ring.encryption import SEED_BYTES, Entropy, encrypt, keystream, public_key, secret_key
from commingle.shared.ring.replies import (
    Hiding,
    InnerProducts,
    hide_sums,
    make_reply,
    open_reply,
    round_reply,
    whole_reply,
)

Rows: TypeAlias = Callable[[int, int], NDArray[np.int16]]
"""Rows start..stop of a party's n x d, entries at most 2^14 in absolute value."""
_ROWS = 1 << 14  # 2^14 products of 2^28 at most: exact in floating point


def encrypted_columns(exchange: Exchange, *, party: str, seed: bytes, rows: Rows, entropy: Entropy) -> Iterator[bytes]:
    """A party's columns (`messages.Columns`), piece by piece; the last party has none. Made once, and stored.

    `rows` are the party's own, `seed` is that of its key of this release; seed and entropy are the operating system's.
    """
    if not exchange.encrypts(party):
        return
    layout = exchange.layout(party)
    key, private = secret_key(seed, layout.parameters), keystream(entropy(SEED_BYTES))
    published = public_key(key, layout, private)
    yield published
    for start, stop in segments(layout):
        blocks = []
        for block in (block for block in layout.blocks() if start <= block[0] < stop):
            blocks.append(encrypt(key, layout, block, rows(*block), private))
            yield blocks[-1]
        if exchange.proved:
            ciphertexts = Ciphertexts(layout, (start, stop), published, blocks, column_sizes(layout))
            statement = statements.Columns(ciphertexts, exchange.bound(party))
            yield prove_columns(statement, key, rows(start, stop), private)


def verify_bounds(columns: Columns) -> None:
    """Refuse columns without a proof that they are ciphertexts of rows within their party's bound."""
    exchange, party = columns.exchange, columns.party
    layout = exchange.layout(party)
    sizes = column_sizes(layout)
    with _named(party):
        for segment in columns.segments():
            ciphertexts = Ciphertexts(layout, segment.rows, columns.public_key, segment.blocks, sizes)
            verify_columns(statements.Columns(ciphertexts, exchange.bound(party)), segment.proof[0])


def reply_pieces(
    own: Columns,
    owners: Mapping[str, Columns],
    *,
    seed: bytes,
    rows: Rows,
    noise: Callable[[str], NDArray[np.int64]],
    entropy: Entropy,
) -> Iterator[bytes]:
    """The whole reply of an evaluator to all owners (`messages.Reply`), piece by piece. Made once, and stored.

    `own` is the evaluator's own message; `owners` are in order, and verified if bounds are proved. `seed` is of the
    evaluator's key of this release, under which all but the last party encrypted their `rows`. `noise` draws that for
    one owner, (owner's columns x its own), after the debit; `entropy` is that of the operating system. Raises
    DeviationError: an owner signed bytes that are not ciphertexts.
    """
    exchange, private = own.exchange, keystream(entropy(SEED_BYTES))
    replies: list[list[bytes]] = []
    hidden: list[list[Hiding]] = []
    for owner, columns in owners.items():
        with _named(owner):
            found, drawn = _products(columns, rows, exchange.width(own.party)), noise(owner)
            if not exchange.proved:
                yield from make_reply(found, columns.public_key, drawn, private)
                continue
            replies.append([])
            hidden.append([])
            for column in hide_sums(found, columns.public_key, drawn, private):
                replies[-1].append(whole_reply(found.layout, column))
                hidden[-1].append(column.hiding)  # without the sums, which are as large as the reply
            del found, column
        yield from replies[-1]
    if replies:
        encrypted, parameters = exchange.encrypts(own.party), exchange.layout(own.party).parameters
        key = secret_key(seed, parameters) if encrypted else None
        statement = _statement(own, owners, replies)
        yield from prove_replies(statement, key, rows(0, exchange.terms.table_rows), hidden, private)


def verify_reply(reply: Reply, columns: Mapping[str, Columns]) -> None:
    """Refuse a reply without a proof that it is made of its party's own columns, or of rows within its bound."""
    exchange, party = reply.exchange, reply.party
    owners = {owner: columns[owner] for owner in exchange.owners(party)}
    with _named(party):
        said = [list(reply.columns(owner)) for owner in owners]
        own = columns[party] if exchange.encrypts(party) else Columns(exchange, party, b"")
        verify_replies(_statement(own, owners, said), reply.proofs)


def open_part(reply: Reply, *, owner: str, seed: bytes, largest: int) -> NDArray[np.int64]:
    """X_owner^T X_evaluator plus the evaluator's noise, exactly: (owner's columns x evaluator's).

    The reply is verified, if it is proved; `seed` is of the owner's key of this release, and no number that an honest
    evaluator can cause exceeds `largest`. Raises DeviationError: it is no reply, or opens beyond what an honest one
    can. Nothing of it is published.
    """
    exchange, layout = reply.exchange, reply.exchange.layout(owner)
    key, found = secret_key(seed, layout.parameters), []
    with _named(reply.party):
        for column in reply.columns(owner):
            rounded = round_reply(layout, column) if exchange.proved else column
            found.append(open_reply(key, layout, rounded, largest=largest))
    return np.stack(found, axis=1)


def _products(columns: Columns, rows: Rows, count: int) -> InnerProducts:
    layout = columns.exchange.layout(columns.party)
    found = InnerProducts(layout, count)
    for (start, stop), block in zip(layout.blocks(), columns.blocks, strict=True):
        found.add(block, rows(start, stop))
    return found


def _statement(own: Columns, owners: Mapping[str, Columns], replies: list[list[bytes]]) -> Replies:
    exchange = own.exchange
    said = tuple(
        evaluations.Reply(exchange.layout(owner), columns.public_key, columns.blocks, reply)
        for (owner, columns), reply in zip(owners.items(), replies, strict=True)
    )
    encrypted = exchange.encrypts(own.party)
    rows = Encrypted(own.public_key, own.blocks) if encrypted else exchange.bound(own.party)
    return Replies(exchange.layout(own.party), rows, said)


@contextmanager
def _named(party: str) -> Iterator[None]:
    try:
        yield
    except (CiphertextError, ProofError) as error:
        raise DeviationError(party, str(error)) from error


def own_moments(exchange: Exchange, *, party: str, rows: Rows) -> NDArray[np.int64]:
    """Linear terms 2^f 1^T X, where there is an intercept, then X^T X: exact and without noise. Secret."""
    terms, d = exchange.terms, exchange.width(party)
    linear, own = np.zeros(d, np.int64), np.zeros((d, d), np.int64)
    for start in range(0, terms.table_rows, _ROWS):
        block = rows(start, min(start + _ROWS, terms.table_rows)).astype(np.float64)
        own += (block.T @ block).astype(np.int64)
        linear += block.sum(axis=0).astype(np.int64)
    return np.vstack([*[linear << terms.fraction_bits] * first_place(terms), own])


def submission(
    exchange: Exchange,
    *,
    party: str,
    moments: NDArray[np.int64],
    opened: Mapping[str, NDArray[np.int64]],
    sigma: int,
    draw: Sampler,
) -> NDArray[np.int64]:
    """The block that is signed and uploaded, with noise on every entry of it. Made once, and stored.

    `moments` are the party's `own_moments`, `opened` are the results of `open_part` for each party after it, and `draw`
    samples Gaussian noise on a lattice, seeded by the operating system, after the debit.
    """
    terms = exchange.terms
    later = exchange.evaluators(party)
    block = block_noise(terms, exchange.spec.document.party(party), sigma=sigma, draw=draw, others=later)
    at = places(terms)
    first = first_place(terms)
    block[:first] += moments[:first]
    block[at[party]] += moments[first:]
    for name in later:
        block[at[name]] += opened[name].T
    return block
