"""Where bounds are proved: honest messages of three parties pass everybody's checks, and cheats are refused by name.

What one of two can send over the real coordinator is in tests/hostile/test_false_proofs.py.
"""

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import pytest

from commingle.shared.documents.statements import DeviationError
from commingle.shared.errors import DomainError
from commingle.shared.mechanisms.moments.exchange.messages import Columns, Exchange, Reply
from commingle.shared.mechanisms.moments.exchange.products import (
    encrypted_columns,
    reply_pieces,
    verify_bounds,
    verify_reply,
)
from commingle.shared.proving.columns import four_squares
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


def refused_columns(body: bytes, party: str = "clinic") -> str:
    """Why everybody refuses them; they name their sender."""
    with pytest.raises(DeviationError, match=party) as refused:
        verify_bounds(honest().sent(party, body))
    assert refused.value.party == party
    return str(refused.value)


# --- columns ----------------------------------------------------------------------------------------------------------


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
    "the proof of another party": lambda: (
        honest().bodies["clinic"][: -proof_size()] + honest().bodies["lab"][-proof_size() :]
    ),
    "all that another party sent": lambda: honest().bodies["lab"],
    "ciphertexts before the key": lambda: swapped(honest().bodies["clinic"]),
}


def swapped(body: bytes) -> bytes:
    key = byte_count(honest().exchange.layout("clinic").key_shape)
    return body[key : 2 * key] + body[:key] + body[2 * key :]


@pytest.mark.parametrize("cheat", COLUMNS)
def test_columns_that_are_not_proved_are_refused(cheat: str) -> None:
    refused_columns(COLUMNS[cheat]())


def test_what_is_refused_of_one_party_or_reply_holds_where_it_was_made() -> None:
    again = honest().sent("clinic", encrypted_again())
    for columns in (again, *map(honest().sent, NAMES[:-1])):
        verify_bounds(columns)


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


def to_other_columns() -> bytes:
    """A reply to columns that are as good as those of everybody else, but were shown to the registry alone."""
    return honest().reply_body("registry", zeros_for, columns={"clinic": honest().sent("clinic", encrypted_again())})


def with_part_of(body: bytes) -> bytes:
    """What is proved of the registry's replies, and another part for the clinic."""
    size = honest().exchange.part_size("clinic", "registry")
    return body[:size] + honest().answers["registry"][size:]


REPLIES: Mapping[str, Callable[[], bytes]] = {
    "a reply of another release": lambda: of_another_release().answers["registry"],
    "to other columns than were sent": to_other_columns,
    "parts in another order": lambda: parts_swapped(honest().answers["registry"]),
    "the part of another reply to the same columns": lambda: with_part_of(
        honest().reply_body("registry", zeros_for, entropy=seeded(8))
    ),
}


def parts_swapped(body: bytes) -> bytes:
    size = honest().exchange.part_size("clinic", "registry")
    return body[size : 2 * size] + body[:size] + body[2 * size :]


@pytest.mark.parametrize("cheat", REPLIES)
def test_replies_that_are_no_evaluations_of_their_partys_columns_are_refused(cheat: str) -> None:
    refused_reply(REPLIES[cheat]())


def test_reply_to_other_columns_holds_for_who_was_shown_those() -> None:
    shown = {name: honest().sent(name) for name in NAMES} | {"clinic": honest().sent("clinic", encrypted_again())}
    verify_reply(Reply(honest().exchange, "registry", to_other_columns()), shown)


def test_columns_of_other_rows_are_no_columns_of_a_reply() -> None:
    """The evaluator is held to the columns that everybody has, not to those that it says it meant."""
    other = start(SPEC, {**honest().rows, "lab": honest().rows["lab"][::-1].copy()})
    meant = honest().sent("lab", other.side("lab").columns(seeded(4)))
    verify_bounds(meant)
    sent = {name: honest().sent(name) for name in NAMES} | {"lab": meant}
    with pytest.raises(DeviationError, match="lab"):
        verify_reply(honest().answered("lab"), sent)
