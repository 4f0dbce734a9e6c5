"""Where bounds are proved: honest messages pass everybody's checks, and every cheat is refused by name."""

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import pytest

from commingle.shared.documents.statements import DeviationError
from commingle.shared.mechanisms.moments.exchange.messages import Columns, Exchange, Reply
from commingle.shared.mechanisms.moments.exchange.products import (
    encrypted_columns,
    reply_pieces,
    verify_bounds,
    verify_reply,
)
from commingle.shared.proving.columns import four_squares
from commingle.shared.ring.errors import DomainError
from commingle.shared.ring.parameters import byte_count
from tests.shared.mechanisms.moments.exchange.world import (
    NAMES,
    SEX,
    Block,
    exchanged,
    numbers,
    party_spec,
    spec_of,
    start,
)
from tests.world.documents import flipped
from tests.world.ring import seeded
from tests.world.side import Exchanging

PARTIES = (
    party_spec("clinic", *numbers("clinic", 4), row_norm=0.5),
    party_spec("lab", *numbers("lab", 4), row_norm=0.5),
    party_spec("registry", SEX, row_norm=0.5),
)
SPEC = spec_of(PARTIES, n=20, bounds="proved")


@cache
def honest() -> Exchanging:
    return exchanged(SPEC)


@cache
def of_another_release() -> Exchanging:
    """The same parties, rows and keys under other approvals."""
    return exchanged(SPEC, honest().rows, head="11" * 32)


@cache
def encrypted_again() -> bytes:
    """The clinic's rows once more under the same key: as good as what it sent, and another set of columns."""
    return honest().side("clinic").columns(seeded(9))


class Lenient(Exchange):
    """One in which everybody's bound is larger by one, and that of the last party by a step of its only column."""

    def bound(self, party: str) -> int:
        return (2**13 + 1) ** 2 if party == "registry" else Exchange.bound(self, party) + 1


def with_first_row(squared_norm: int) -> Block:
    """The clinic's rows, the first of them as long as that."""
    rows = honest().rows["clinic"].copy()
    rows[0] = four_squares(np.array([squared_norm])).T
    return rows


def encrypted_in(exchange: Exchange, rows: Block) -> bytes:
    """The clinic's columns of those rows."""
    seed = honest().seeds["clinic"]
    words = rows.astype(np.int16)
    made = encrypted_columns(exchange, party="clinic", seed=seed, rows=lambda a, b: words[a:b], entropy=seeded(3))
    return b"".join(made)


@cache
def beyond_the_bound() -> bytes:
    """A row longer by one step than it may be, with a proof for a bound that is as much larger."""
    terms = honest().exchange
    return encrypted_in(Lenient(terms.spec, terms.approvals), with_first_row(terms.bound("clinic") + 1))


def proof_size() -> int:
    (segment,) = honest().sent("clinic").segments()
    return sum(map(len, segment.proof))


def with_proof_of(body: bytes) -> bytes:
    """The clinic's ciphertexts with the proof of something else."""
    return honest().bodies["clinic"][: -proof_size()] + body[-proof_size() :]


def refused_columns(body: bytes, party: str = "clinic") -> str:
    """Why everybody refuses them; they name their sender."""
    with pytest.raises(DeviationError, match=party) as refused:
        verify_bounds(honest().sent(party, body))
    assert refused.value.party == party
    return str(refused.value)


# --- columns ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("party", NAMES[:-1])
def test_honest_columns_pass(party: str) -> None:
    verify_bounds(honest().sent(party))


def test_rows_at_their_bound_are_proved_and_one_step_beyond_they_are_not() -> None:
    terms = honest().exchange
    bound = terms.bound("clinic")
    assert bound == 4**13
    verify_bounds(honest().sent("clinic", encrypted_in(terms, with_first_row(bound))))
    with pytest.raises(DomainError, match="beyond their bound"):
        encrypted_in(terms, with_first_row(bound + 1))


def test_row_one_beyond_its_bound_is_refused_though_its_proof_holds_for_a_larger_one() -> None:
    terms = honest().exchange
    verify_bounds(Columns(Lenient(terms.spec, terms.approvals), "clinic", beyond_the_bound()))
    refused_columns(beyond_the_bound())


COLUMNS: Mapping[str, Callable[[], bytes]] = {
    "ciphertexts of a row beyond the bound with the proof of honest ones": lambda: (
        beyond_the_bound()[: -proof_size()] + honest().bodies["clinic"][-proof_size() :]
    ),
    "the proof of another party": lambda: with_proof_of(honest().bodies["lab"]),
    "all that another party sent": lambda: honest().bodies["lab"],
    "columns of another release": lambda: of_another_release().bodies["clinic"],
    "the proof of another release": lambda: with_proof_of(of_another_release().bodies["clinic"]),
    "the proof of another encryption of the same rows": lambda: with_proof_of(encrypted_again()),
    "no proof": lambda: honest().bodies["clinic"][: -proof_size()],
    "a proof of zeros": lambda: with_proof_of(bytes(proof_size())),
    "ciphertexts before the key": lambda: swapped(honest().bodies["clinic"]),
}


def swapped(body: bytes) -> bytes:
    key = byte_count(honest().exchange.layout("clinic").key_shape)
    return body[key : 2 * key] + body[:key] + body[2 * key :]


@pytest.mark.parametrize("cheat", COLUMNS)
def test_columns_that_are_not_proved_are_refused(cheat: str) -> None:
    refused_columns(COLUMNS[cheat]())


def test_what_is_refused_of_one_party_or_release_holds_where_it_was_made() -> None:
    again = honest().sent("clinic", encrypted_again())
    for columns in (again, honest().sent("lab"), of_another_release().sent("clinic")):
        verify_bounds(columns)


@pytest.mark.parametrize("place", ["key", "ciphertexts", "start of the proof", "proof", "end"])
def test_one_flipped_bit_of_signed_columns_is_refused(place: str) -> None:
    body = honest().bodies["clinic"]
    key = byte_count(honest().exchange.layout("clinic").key_shape)
    proof = len(body) - proof_size()
    at = {"key": 5, "ciphertexts": key + 40, "start of the proof": proof, "proof": proof + proof_size() // 2, "end": -1}
    refused_columns(flipped(body, at[place]))


# --- replies ----------------------------------------------------------------------------------------------------------


def zeros_for(owner: str, party: str = "registry") -> Block:
    width = honest().exchange.width
    return np.zeros((width(owner), width(party)), np.int64)


def refused_reply(body: bytes, party: str = "registry") -> None:
    """By everybody, and it names who sent it."""
    sent = {name: honest().sent(name) for name in NAMES}
    with pytest.raises(DeviationError, match=party) as refused:
        verify_reply(honest().answered(party, body), sent)
    assert refused.value.party == party


@pytest.mark.parametrize("party", NAMES[1:])
def test_honest_replies_pass(party: str) -> None:
    verify_reply(honest().answered(party), {name: honest().sent(name) for name in NAMES[:-1]})


def of_other_rows(change: Callable[[Block], Block]) -> bytes:
    """The lab multiplies with other rows than it encrypted, and proves as well as it can."""
    words = change(honest().rows["lab"].copy()).astype(np.int16)
    return honest().reply_body("lab", lambda owner: zeros_for(owner, "lab"), rows=lambda start, stop: words[start:stop])


def one_cell_changed(rows: Block) -> Block:
    rows[7, 0] -= 1 if rows[7, 0] > 0 else -1
    return rows


OTHER_ROWS: Mapping[str, Callable[[Block], Block]] = {
    "the same in another order": lambda rows: rows[::-1],
    "one cell is another one": one_cell_changed,
    "zeros": np.zeros_like,
}


@pytest.mark.parametrize("rows", OTHER_ROWS)
def test_replies_made_of_other_rows_than_their_party_encrypted_are_refused(rows: str) -> None:
    refused_reply(of_other_rows(OTHER_ROWS[rows]), "lab")


def last_replies(squared_norm: int, exchange: Exchange) -> bytes:
    """The registry, which encrypts nothing, multiplies with rows of which one is as long as that."""
    rows = honest().rows["registry"].astype(np.int16)
    (rows[0, 0],) = {root for root in range(2**14 + 1) if root**2 == squared_norm}
    sent = {name: Columns(exchange, name, honest().bodies[name]) for name in NAMES}
    own, owners = sent.pop("registry"), sent
    made = reply_pieces(
        own, owners, seed=bytes(32), rows=lambda start, stop: rows[start:stop], noise=zeros_for, entropy=seeded(3)
    )
    return b"".join(made)


def test_last_partys_row_at_its_bound_is_proved_and_one_step_longer_is_refused_by_all() -> None:
    terms = honest().exchange
    lenient, bound = Lenient(terms.spec, terms.approvals), 2**13
    sent = {name: honest().sent(name) for name in NAMES[:-1]}
    assert terms.bound("registry") == bound**2
    verify_reply(honest().answered("registry", last_replies(bound**2, terms)), sent)
    with pytest.raises(DomainError, match="beyond their bound"):
        last_replies((bound + 1) ** 2, terms)
    beyond = last_replies((bound + 1) ** 2, lenient)
    verify_reply(Reply(lenient, "registry", beyond), sent)
    refused_reply(beyond)


def crafted() -> bytes:
    """Second halves of Delta x make every number to the clinic a coefficient of its key."""
    terms, whole = honest().exchange, honest().answers["registry"]
    layout = terms.layout("clinic")
    words = np.zeros(layout.whole_reply_shape, "<u4").reshape(len(layout.parameters.primes), -1)
    words[:, 1] = [layout.parameters.delta % prime for prime in layout.parameters.primes]
    return words.tobytes() + whole[words.nbytes :]


def to_other_columns() -> bytes:
    """A reply to columns that are as good as those of everybody else, but were shown to the registry alone."""
    return honest().reply_body("registry", zeros_for, columns={"clinic": honest().sent("clinic", encrypted_again())})


def with_part_of(body: bytes) -> bytes:
    """What is proved of the registry's replies, and another part for the clinic."""
    size = honest().exchange.part_size("clinic", "registry")
    return body[:size] + honest().answers["registry"][size:]


REPLIES: Mapping[str, Callable[[], bytes]] = {
    "a reply of another release": lambda: of_another_release().answers["registry"],
    "a crafted reply that opens the key": crafted,
    "to other columns than were sent": to_other_columns,
    "parts in another order": lambda: parts_swapped(honest().answers["registry"]),
    "the part of another reply to the same columns": lambda: with_part_of(
        honest().reply_body("registry", zeros_for, entropy=seeded(8))
    ),
    "no proof": lambda: honest().answers["registry"][: -sum(map(len, honest().answered("registry").proofs))],
}


def parts_swapped(body: bytes) -> bytes:
    size = honest().exchange.part_size("clinic", "registry")
    return body[size : 2 * size] + body[:size] + body[2 * size :]


@pytest.mark.parametrize("cheat", REPLIES)
def test_replies_that_are_no_evaluations_of_their_partys_columns_are_refused(cheat: str) -> None:
    refused_reply(REPLIES[cheat]())


def test_crafted_reply_would_open_the_key_and_is_within_every_bound() -> None:
    """So nobody may open a reply before it is verified."""
    opened = honest().open("clinic", "registry", crafted())
    assert set(np.abs(opened).ravel().tolist()) <= {0, 1}


def test_reply_to_other_columns_holds_for_who_was_shown_those() -> None:
    shown = {name: honest().sent(name) for name in NAMES} | {"clinic": honest().sent("clinic", encrypted_again())}
    verify_reply(Reply(honest().exchange, "registry", to_other_columns()), shown)


@pytest.mark.parametrize("owner", ["clinic", "lab"])
def test_one_flipped_bit_of_any_part_is_refused(owner: str) -> None:
    (place,) = honest().answered("registry").columns(owner).places
    for at in (place[0] + 3, sum(place) // 2, place[1] - 4):
        refused_reply(flipped(honest().answers["registry"], at - at % 4))


def test_one_flipped_bit_of_any_proof_is_refused() -> None:
    for start_, stop in honest().answered("registry").proofs.places:
        for at in (start_, (start_ + stop) // 2, stop - 1):
            refused_reply(flipped(honest().answers["registry"], at))


def test_columns_of_other_rows_are_no_columns_of_a_reply() -> None:
    """The evaluator is held to the columns that everybody has, not to those that it says it meant."""
    other = start(SPEC, {**honest().rows, "lab": honest().rows["lab"][::-1].copy()})
    meant = honest().sent("lab", other.side("lab").columns(seeded(4)))
    verify_bounds(meant)
    sent = {name: honest().sent(name) for name in NAMES} | {"lab": meant}
    with pytest.raises(DeviationError, match="lab"):
        verify_reply(honest().answered("lab"), sent)
