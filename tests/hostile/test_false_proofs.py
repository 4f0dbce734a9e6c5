"""Altered members of an exchange whose bounds are proved, and what they sign: over the real coordinator.

A cheat has a member's keys and no agent. Whatever it sends is refused before anything of an honest party is opened, and
anybody who has the bytes that the coordinator relays finds the same. Nothing in an exchange is asked of anybody, so
there is no query to be dishonest about; what an owner could ask by crafted ciphertexts is among the malformed ones.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from io import BytesIO

import numpy as np
import pytest
from numpy.typing import NDArray

from commingle.shared.documents.dsse import seal
from commingle.shared.documents.statements import DeviationError
from commingle.shared.mechanisms.moments.exchange.messages import (
    Columns,
    ColumnsStatement,
    Exchange,
    Reply,
    ReplyStatement,
    quotations,
)
from commingle.shared.mechanisms.moments.exchange.products import (
    encrypted_columns,
    reply_pieces,
    verify_bounds,
    verify_reply,
)
from commingle.shared.proving import columns as statements
from commingle.shared.proving import replies as evaluations
from commingle.shared.proving.ciphertexts import Ciphertexts
from commingle.shared.proving.columns import column_witness
from commingle.shared.proving.evaluator import Replies, reply_witness
from commingle.shared.proving.lengths import column_sizes
from commingle.shared.proving.prover import prove_relations
from commingle.shared.ring.encryption import secret_key
from commingle.shared.ring.parameters import STANDARD, format_residues, parse_residues
from commingle.shared.ring.replies import InnerProducts, hide_sums, whole_reply
from commingle.shared.runtime.coordinator_client import MessageKind
from commingle.shared.runtime.errors import RemoteError
from tests.party_agent.exchanging import (
    approved,
    assert_given_up_because_of,
    body_of,
    kept_by,
    messages,
    second_columns,
    signed_by,
)
from tests.party_agent.releasing import spent
from tests.world.consortium import Consortium, N, Noise
from tests.world.documents import flipped
from tests.world.side import agreed

LIMIT = 2**14
ROW_NORM = 1.0
"""Of the clinic's rows, whose two attributes could otherwise not be beyond their bound."""


class Generous(Exchange):
    """The same exchange with a larger bound than was agreed."""

    def bound(self, party: str) -> int:
        del party
        return 2 * LIMIT**2


def rows_within_bound(columns: int) -> NDArray[np.int16]:
    rows = np.random.default_rng(columns).integers(-LIMIT // 2, LIMIT // 2, (N, columns)).astype(np.int16)
    rows[3] = [LIMIT, 0][:columns]
    return rows


def rows_one_beyond_their_bound() -> NDArray[np.int16]:
    rows = rows_within_bound(2)
    rows[3] = [LIMIT, 1]
    return rows


@dataclass(frozen=True)
class Cheat:
    """A member of a release that all have approved, which signs and sends what it likes.

    Attributes:
        seed: of its key.
    """

    consortium: Consortium
    release: str
    name: str
    seed: bytes = field(default=b"\x05" * 32, repr=False)

    @property
    def exchange(self) -> Exchange:
        return self.consortium.coordinator.exchange(self.release)

    def columns(self, rows: NDArray[np.int16], exchange: Exchange | None = None) -> bytes:
        """Encrypted and proved as the rules ask."""
        made = encrypted_columns(
            exchange or self.exchange,
            party=self.name,
            seed=self.seed,
            rows=lambda start, stop: rows[start:stop],
            entropy=os.urandom,
        )
        return b"".join(made)

    def beyond(self) -> bytes:
        """Columns with a row one beyond its bound, and a proof for a larger one."""
        return self.columns(rows_one_beyond_their_bound(), Generous(self.exchange.spec, self.exchange.approvals))

    def everybodys(self) -> Mapping[str, Columns]:
        return {
            name: Columns(self.exchange, name, body_of(self.consortium, self.release, name, "columns"))
            for name in self.consortium.homes
        }

    def reply(self, rows: NDArray[np.int16], **others: Columns) -> bytes:
        """To everybody before it, by the rules, as if these were its rows, and others had sent these columns."""
        columns = {**self.everybodys(), **others}
        owners = {owner: columns[owner] for owner in self.exchange.owners(self.name)}
        pieces = reply_pieces(
            columns[self.name],
            owners,
            seed=self.seed,
            rows=lambda start, stop: rows[start:stop],
            noise=lambda owner: np.ones((self.exchange.width(owner), rows.shape[1]), np.int64),
            entropy=os.urandom,
        )
        return b"".join(pieces)

    def send(self, kind: MessageKind, body: bytes) -> None:
        exchange, digest = self.exchange, sha256(body).hexdigest()
        statement: ColumnsStatement | ReplyStatement
        if kind == "columns":
            statement = ColumnsStatement(
                spec=self.release, party=self.name, approvals=exchange.approved, body_sha256=digest
            )
        else:
            seen = quotations(exchange, messages(self.consortium, self.release, "columns"))
            statement = ReplyStatement(spec=self.release, party=self.name, columns=seen, body_sha256=digest)
        envelope = seal(statement, key=self.consortium.homes[self.name].identity().signing_key)
        with self.consortium.client(self.name) as client:
            client.send_message(self.release, self.name, envelope, BytesIO(body), kind=kind, digest=digest)

    def relayed(self, kind: MessageKind, *, to: str) -> bytes:
        size = self.exchange.columns_size(self.name) if kind == "columns" else self.exchange.reply_size(self.name)
        with self.consortium.client(to) as client:
            return b"".join(client.message(self.release, self.name, kind=kind, size=size))


def spliced(whole: bytes, start: int, part: bytes) -> bytes:
    return whole[:start] + part + whole[start + len(part) :]


def proof_of(cheat: Cheat, body: bytes) -> tuple[int, int]:
    """Where the proof of its columns stands: there is one segment."""
    (segment,) = Columns(cheat.exchange, cheat.name, body).segments()
    return segment.proof.places[0]


def without_a_proof(cheat: Cheat) -> bytes:
    body = cheat.beyond()
    start, stop = proof_of(cheat, body)
    return spliced(body, start, bytes(stop - start))


def with_the_proof_of(cheat: Cheat, encrypted: bytes, proved: bytes) -> bytes:
    start, stop = proof_of(cheat, encrypted)
    return spliced(encrypted, start, proved[start:stop])


def malformed(cheat: Cheat) -> bytes:
    body = cheat.columns(rows_within_bound(2))
    return spliced(body, Columns(cheat.exchange, cheat.name, body).blocks.places[0][0], b"\xff" * 4)


def with_oversized_noise(cheat: Cheat) -> bytes:
    """One error is larger than any that is drawn, and what is proved is the one that was drawn."""
    exchange, rows = cheat.exchange, rows_within_bound(2)
    layout, body = exchange.layout(cheat.name), cheat.columns(rows)
    columns = Columns(exchange, cheat.name, body)
    (segment,), (block,), key = columns.segments(), columns.blocks, columns.public_key
    words = parse_residues(block, layout.block_shape(0, N), STANDARD.primes)
    for k, prime in enumerate(STANDARD.primes):
        words[k, 0, 0, 5] = (int(words[k, 0, 0, 5]) + 1000) % prime
    sizes, bound = column_sizes(layout), exchange.bound(cheat.name)
    honest, false = (
        statements.Columns(Ciphertexts(layout, segment.rows, key, [each], sizes), bound)
        for each in (block, format_residues(words))
    )
    witness = column_witness(honest, secret_key(cheat.seed, STANDARD), rows)
    (proof,) = prove_relations([false], lambda _: witness, os.urandom)
    return body[: segment.blocks.places[0][0]] + format_residues(words) + proof


def of_another_release(cheat: Cheat) -> bytes:
    """The very same rows under the same key, as they were proved there."""
    consortium, key = cheat.consortium, cheat.consortium.coordinator.key
    other = consortium.spec(mechanism="moments", title="another", row_norm=ROW_NORM, bounds="proved")
    keys = {name: home.identity().signing_key for name, home in consortium.homes.items()}
    return cheat.columns(rows_within_bound(2), agreed(other, {"coordinator": key, **keys}))


def with_a_flipped_byte(cheat: Cheat, part: float) -> bytes:
    body = cheat.columns(rows_within_bound(2))
    start, stop = proof_of(cheat, body)
    return flipped(body, start + int(part * (stop - start - 1)))


FALSE_COLUMNS: Mapping[str, Callable[[Cheat], bytes]] = {
    "beyond their bound, proved for a larger one": Cheat.beyond,
    "beyond their bound, nothing proved": without_a_proof,
    "beyond their bound, others proved": lambda cheat: with_the_proof_of(
        cheat, cheat.beyond(), cheat.columns(rows_within_bound(2))
    ),
    "within their bound, others proved": lambda cheat: with_the_proof_of(
        cheat, cheat.columns(rows_within_bound(2)), cheat.columns(rows_within_bound(2))
    ),
    "malformed": malformed,
    "oversized noise": with_oversized_noise,
    "of another release": of_another_release,
    "first byte of the proof": lambda cheat: with_a_flipped_byte(cheat, 0),
    "byte in the middle of the proof": lambda cheat: with_a_flipped_byte(cheat, 0.5),
    "last byte of the proof": lambda cheat: with_a_flipped_byte(cheat, 1),
}


@pytest.mark.parametrize("how", FALSE_COLUMNS)
def test_columns_that_prove_nothing_are_replied_to_by_nobody(pair: Consortium, how: str) -> None:
    cheat, noise = Cheat(pair, approved(pair, "proved", row_norm=ROW_NORM), "clinic"), Noise()
    cheat.send("columns", FALSE_COLUMNS[how](cheat))
    pair.step("insurer", draw=noise)
    paid, received = spent(pair, "insurer"), cheat.relayed("columns", to="insurer")
    assert paid > 0
    with pytest.raises(DeviationError) as found:
        pair.step("insurer", draw=noise)
    assert (found.value.party, noise.calls) == ("clinic", [])
    assert "reply" not in signed_by(pair, cheat.release, "insurer")
    assert "reply of insurer" not in pair.coordinator.received
    with pytest.raises(DeviationError) as verdict:
        verify_bounds(Columns(cheat.exchange, "clinic", received))
    assert (verdict.value.party, str(verdict.value)) == ("clinic", str(found.value))
    assert_given_up_because_of(pair, cheat.release, "insurer", "clinic", noise)
    assert spent(pair, "insurer") == paid


def test_columns_whose_proof_is_left_out_do_not_reach_anybody(pair: Consortium) -> None:
    cheat = Cheat(pair, approved(pair, "proved", row_norm=ROW_NORM), "clinic")
    body = cheat.beyond()
    start, _ = proof_of(cheat, body)
    with pytest.raises(RemoteError, match="not those of the signed statement"):
        cheat.send("columns", body[:start])
    assert messages(pair, cheat.release, "columns") == {}


def of_other_rows(cheat: Cheat) -> bytes:
    """One cell is another one than in what is proved."""
    exchange, rows, clinic = cheat.exchange, rows_within_bound(1), cheat.everybodys()["clinic"]
    others, layout, (block,) = rows.copy(), exchange.layout("clinic"), clinic.blocks
    others[7, 0] += 1
    found = InnerProducts(layout, 1)
    found.add(block, others)
    hidden = [list(hide_sums(found, clinic.public_key, np.ones((layout.columns, 1), np.int64), os.urandom))]
    said = [whole_reply(layout, column) for column in hidden[0]]
    reply = evaluations.Reply(layout, clinic.public_key, clinic.blocks, said)
    (relation,) = Replies(exchange.layout(cheat.name), exchange.bound(cheat.name), (reply,)).relations
    witness = reply_witness(relation, None, rows, hidden)
    return b"".join([*said, *prove_relations([relation], lambda _: witness, os.urandom)])


def to_other_columns(cheat: Cheat) -> bytes:
    """As good as those that its fellow sent, under the same key: a replay of what answered something else."""
    again = second_columns(cheat.consortium, cheat.release, "clinic")
    return cheat.reply(rows_within_bound(1), clinic=Columns(cheat.exchange, "clinic", again))


def that_opens_the_key(cheat: Cheat) -> bytes:
    """A second half of Delta x makes each number a coefficient of the owner's secret."""
    reply, layout = cheat.reply(rows_within_bound(1)), cheat.exchange.layout("clinic")
    words = np.zeros(layout.whole_reply_shape, np.uint32)
    words[:, 1] = [STANDARD.delta % prime for prime in STANDARD.primes]
    crafted = spliced(reply, 0, format_residues(words))
    opened = kept_by(cheat.consortium, cheat.release, "clinic").open(
        Reply(cheat.exchange, cheat.name, crafted), largest=1
    )
    assert set(np.abs(opened).ravel().tolist()) <= {0, 1}, "were it not verified"
    return crafted


def with_a_residue_changed(cheat: Cheat) -> bytes:
    """The first number is one more: it would open as if nothing was wrong."""
    reply, layout = cheat.reply(rows_within_bound(1)), cheat.exchange.layout("clinic")
    (part,) = Reply(cheat.exchange, cheat.name, reply).columns("clinic")
    words = parse_residues(part, layout.whole_reply_shape, STANDARD.primes)
    for k, prime in enumerate(STANDARD.primes):
        words[k, -layout.columns] = (int(words[k, -layout.columns]) + 1) % prime
    return spliced(reply, 0, format_residues(words))


def reply_with_a_flipped_byte(cheat: Cheat, part: float) -> bytes:
    reply = cheat.reply(rows_within_bound(1))
    ((start, stop),) = Reply(cheat.exchange, cheat.name, reply).proofs.places
    return flipped(reply, start + int(part * (stop - start - 1)))


FALSE_REPLIES: Mapping[str, Callable[[Cheat], bytes]] = {
    "of other rows": of_other_rows,
    "to other columns": to_other_columns,
    "that opens the key": that_opens_the_key,
    "a residue changed": with_a_residue_changed,
    "first byte of the proof": lambda cheat: reply_with_a_flipped_byte(cheat, 0),
    "byte in the middle of the proof": lambda cheat: reply_with_a_flipped_byte(cheat, 0.5),
    "last byte of the proof": lambda cheat: reply_with_a_flipped_byte(cheat, 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", FALSE_REPLIES)
def test_reply_that_proves_nothing_is_opened_by_nobody(pair: Consortium, how: str) -> None:
    cheat, noise = Cheat(pair, approved(pair, "proved", row_norm=ROW_NORM), "insurer"), Noise()
    cheat.send("columns", cheat.columns(rows_within_bound(1)))
    for _ in range(2):
        pair.step("clinic")
    cheat.send("reply", FALSE_REPLIES[how](cheat))
    paid, received, columns = spent(pair), cheat.relayed("reply", to="clinic"), cheat.everybodys()
    with pytest.raises(DeviationError) as found:
        pair.step("clinic", draw=noise)
    assert (found.value.party, noise.calls) == ("insurer", [])
    with pytest.raises(DeviationError) as verdict:
        verify_reply(Reply(cheat.exchange, "insurer", received), columns)
    assert (verdict.value.party, str(verdict.value)) == ("insurer", str(found.value))
    assert_given_up_because_of(pair, cheat.release, "clinic", "insurer", noise)
    assert spent(pair) == paid


def test_what_a_cheat_makes_is_taken_where_it_does_not_cheat(pair: Consortium) -> None:
    """So that what is refused above is refused for what is wrong with it."""
    cheat = Cheat(pair, approved(pair, "proved", row_norm=ROW_NORM), "insurer")
    cheat.send("columns", cheat.columns(rows_within_bound(1)))
    for _ in range(2):
        pair.step("clinic")
    cheat.send("reply", cheat.reply(rows_within_bound(1)))
    pair.step("clinic")
    assert set(pair.coordinator.found(cheat.release).blocks) == {"clinic"}
