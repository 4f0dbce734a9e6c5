"""Attacks on what travels in an exchange beside the integers that are opened.

Adversary: the coordinator and all other parties, with all their keys. Of the party it is against it has the ciphertexts
that it encrypted, and both halves of its replies; it knows its table but for one subject, who has one of two rows that
are as far apart as they can be. Neither may tell them apart at all: what is claimed is 0. Beside each attack stands the
same without the protection that it is about, which it must notice.

* ciphertexts: a word less what either row would add to it is a small error for the right one, were there no mask.
* second halves of a reply: a linear function of the evaluator's rows, to compare with that of either table, were there
  no fresh encryption of zero on it.
* proof of columns, where bounds are proved: the columns that it opens are values of polynomials through the rows, to
  compare with those of either table, were there no random tails. These runs cost a proof each, so they are few.

The messages are made by the product; an unprotected one by the same code with a key of zeros, or with blinds of zero.
What is opened besides, `tests/hostile/distinguishing.py` attacks; why nothing is left:
docs/proofs/linear-encryption.md.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.terms import Bounds
from commingle.shared.dp.noise import rounded_gaussian
from commingle.shared.proving import code
from commingle.shared.proving import columns as statements
from commingle.shared.proving.ciphertexts import Ciphertexts
from commingle.shared.proving.columns import rows_in_groups
from commingle.shared.proving.lengths import column_sizes
from commingle.shared.proving.proof import Places, Proof, parse_proof, shown_bytes
from commingle.shared.proving.transcript import first_challenges, opened_places, second_challenges
from commingle.shared.ring.encryption import Entropy, SecretKey, columns_in_stripes, encrypt
from commingle.shared.ring.parameters import ENTRY_LIMIT, Layout, byte_count, parse_residues
from commingle.shared.ring.replies import InnerProducts, make_reply
from commingle.shared.ring.residues import Residues
from tests.hostile.distinguishing import epsilon_bound
from tests.world.side import Exchanging, Integers, approved

_SUBJECTS, _COLUMNS, _PARTIES = 40, 2, 3
_BLOCK = (0, _SUBJECTS)


@dataclass(frozen=True, slots=True)
class Attack:
    """What is looked at.

    Attributes:
        protected, unprotected: that message of the second party, made of its rows.
        bare: what an unprotected one of that table would be, but for errors.
        likeness: how many words of a message are those of a bare one.
        bounds: of the release.
        rarer: it is run so many times less often.
    """

    seen_by: str
    protected: Callable[[Exchanging, Integers], bytes]
    unprotected: Callable[[Exchanging, Integers], bytes]
    bare: Callable[[Exchanging, Integers], Residues]
    likeness: Callable[[Exchanging, bytes, Residues], int]
    bounds: Bounds = "trusted"
    rarer: int = 1


def _ciphertexts(world: Exchanging, rows: Integers) -> bytes:
    _, name, _ = world.exchange.parties
    world.encrypt(name, rows)
    return world.bodies[name][byte_count(world.exchange.layout(name).key_shape) :]


def _without_a_mask(world: Exchanging, rows: Integers) -> bytes:
    layout = world.exchange.layout(world.exchange.parties[1])
    zeros = np.zeros((*layout.key_shape[:1], 1, layout.parameters.degree), np.uint32)
    return encrypt(SecretKey(zeros), layout, _BLOCK, rows, os.urandom)


def _scaled(world: Exchanging, table: Integers) -> Residues:
    layout = world.exchange.layout(world.exchange.parties[1])
    ring, messages = layout.parameters, columns_in_stripes(layout, _BLOCK, table)
    return np.stack([messages * (ring.delta % prime) % prime for prime in ring.primes]).astype(np.uint32)


def _words_within_an_error(world: Exchanging, sent: bytes, bare: Residues) -> int:
    """Of the words to which the table adds anything."""
    layout = world.exchange.layout(world.exchange.parties[1])
    ring, found = layout.parameters, 0
    for words, added, prime in zip(
        parse_residues(sent, layout.block_shape(*_BLOCK), ring.primes), bare, ring.primes, strict=True
    ):
        left = (words.astype(np.int64) - added + ring.error_bound) % prime
        found += int(np.count_nonzero((left <= 2 * ring.error_bound) & (added != 0)))
    return found


def _part(world: Exchanging, rows: Integers) -> bytes:
    owner, name, _ = world.exchange.parties
    world.rows[name] = rows
    world.reply(name, rounded_gaussian)
    return b"".join(world.answered(name).columns(owner))


def _without_fresh_zeros(world: Exchanging, rows: Integers) -> bytes:
    layout = world.exchange.layout(world.exchange.parties[0])
    body = world.bodies[world.exchange.parties[0]]
    key = body[: byte_count(layout.key_shape)]
    sums = InnerProducts(layout, _COLUMNS)
    sums.add(body[len(key) :], rows)
    noise = rounded_gaussian(1 << 20, _COLUMNS * _COLUMNS).reshape(_COLUMNS, _COLUMNS)
    return b"".join(make_reply(sums, key, noise, _no_blinds(layout)))


def _no_blinds(layout: Layout) -> Entropy:
    """Entropy that makes blinds and errors zero, and floods as ever: they are asked for in other sizes."""
    degree = layout.groups * layout.parameters.degree
    zeros = {degree: b"\1" * degree, 8 * degree: bytes(8 * degree)}
    return lambda count: zeros.get(count) or os.urandom(count)


def _second_halves(world: Exchanging, part: bytes) -> Residues:
    layout = world.exchange.layout(world.exchange.parties[0])
    primes, size = layout.parameters.primes[: layout.parameters.kept], byte_count(layout.reply_shape)
    columns = (parse_residues(part[at : at + size], layout.reply_shape, primes) for at in range(0, len(part), size))
    return np.stack([words[:, : -layout.columns] for words in columns])


def _bare_halves(world: Exchanging, table: Integers) -> Residues:
    return _second_halves(world, _without_fresh_zeros(world, table))


def _equal_words(world: Exchanging, sent: bytes, bare: Residues) -> int:
    return int(np.count_nonzero(_second_halves(world, sent) == bare))


def _statement(world: Exchanging) -> tuple[statements.Columns, bytes]:
    """What the second party proves of its columns, and the proof: the table is one segment."""
    _, name, _ = world.exchange.parties
    sent = world.sent(name)
    (segment,) = sent.segments()
    layout = world.exchange.layout(name)
    ciphertexts = Ciphertexts(layout, segment.rows, sent.public_key, segment.blocks, column_sizes(layout))
    return statements.Columns(ciphertexts, world.exchange.bound(name)), segment.proof[0]


def _proof(world: Exchanging, rows: Integers) -> bytes:
    world.encrypt(world.exchange.parties[1], rows)
    return _statement(world)[1]


def _opened(statement: statements.Columns, sent: bytes) -> tuple[Proof, NDArray[np.intp]]:
    """A proof, and the places that it opens: everybody computes them."""
    proof = parse_proof(sent, statement.sizes, Places(statement.sizes, statement.shape.rows).all)
    asked = first_challenges([statement.digest], [proof.root])
    (challenge,) = second_challenges(asked, [shown_bytes(proof.sums)])
    return proof, opened_places(challenge, proof.answers.to_bytes(), statement.sizes)


def _table_rows(statement: statements.Columns) -> NDArray[np.intp]:
    """Numbers of the matrix's rows that hold the table."""
    return statement.column_rows[:, :_COLUMNS].ravel()


def _without_tails(world: Exchanging, rows: Integers) -> bytes:
    """The proof that was made last, with columns as they would be had these rows no random tails."""
    statement, sent = _statement(world)
    proof, places = _opened(statement, sent)
    columns = proof.columns.copy()
    columns[0][:, _table_rows(statement)] = _words(world, rows)[:, places].T
    return replace(proof, columns=columns).to_bytes()


def _words(world: Exchanging, table: Integers) -> Residues:
    """The table's rows of the matrix modulo the first prime, at all places, with tails of zeros."""
    statement, _ = _statement(world)
    sizes, prime = statement.sizes, statement.sizes.ring.primes[0]
    held = rows_in_groups(statement.ciphertexts, table).reshape(-1, sizes.message) % prime
    return code.words(np.pad(held, ((0, 0), (0, sizes.opened))).astype(np.uint32), sizes, prime)


def _equal_columns(world: Exchanging, sent: bytes, bare: Residues) -> int:
    statement, _ = _statement(world)
    proof, places = _opened(statement, sent)
    return int(np.count_nonzero(bare[:, places] == proof.columns[0][:, _table_rows(statement)].T))


ATTACKS = (
    Attack("ciphertexts", _ciphertexts, _without_a_mask, _scaled, _words_within_an_error),
    Attack("second halves of a reply", _part, _without_fresh_zeros, _bare_halves, _equal_words),
    Attack("proof of columns", _proof, _without_tails, _words, _equal_columns, bounds="proved", rarer=6),
)


def tables() -> tuple[Integers, Integers]:
    """Rows that all know, and one that is at either end."""
    known = np.random.default_rng(5).integers(-ENTRY_LIMIT, ENTRY_LIMIT, (_SUBJECTS, _COLUMNS), endpoint=True)
    ends = np.full((1, _COLUMNS), ENTRY_LIMIT)
    return np.vstack([known[:-1], ends]), np.vstack([known[:-1], -ends])


def epsilons(attack: Attack, *, runs: int) -> tuple[float, float]:
    """What an attack demonstrates, and what it would without the protection. Each run makes its message anew."""
    pair, runs = tables(), runs // attack.rarer
    world = approved(_SUBJECTS, _COLUMNS, _PARTIES, epsilon=3.0, bounds=attack.bounds)
    for name in world.exchange.parties:
        world.encrypt(name, pair[0])
    bare = [attack.bare(world, table) for table in pair]

    def score(sent: bytes) -> float:
        """How far a message speaks for the second table and against the first; of a tie a coin decides."""
        first, second = (attack.likeness(world, sent, table) for table in bare)
        return second - first + float(np.random.default_rng().uniform(-0.5, 0.5))

    def demonstrated(make: Callable[[Exchanging, Integers], bytes]) -> float:
        without, within = (np.array([score(make(world, rows)) for _ in range(runs)]) for rows in pair)
        return epsilon_bound(without, within)

    return demonstrated(attack.protected), demonstrated(attack.unprotected)
