"""What an evaluator proves of its replies: true statements hold, and each way of cheating is refused."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from commingle.shared.errors import CiphertextError, DomainError, ProofError
from commingle.shared.proving import ciphertexts
from commingle.shared.proving import replies as replies_module
from commingle.shared.proving.evaluator import Replies, prove_replies, reply_witness, verify_replies
from commingle.shared.proving.parameters import NOISE_BITS
from commingle.shared.proving.prover import prove_relations
from commingle.shared.proving.replies import Reply
from commingle.shared.ring.parameters import STANDARD, Layout, byte_count, format_residues, parse_residues
from commingle.shared.ring.replies import HiddenSums, InnerProducts, make_reply, open_reply, round_reply, whole_reply
from tests.world.proving import BOUND, Member, hidden_sums, honest, last_replies_of, replies_of, reply_to, rows_within
from tests.world.ring import seeded

Stated = Callable[[Member, Sequence[Reply]], Replies]
either = pytest.mark.parametrize("stated", [replies_of, last_replies_of])
SHAPES = [(300, 2, (3,)), (300, 2, (3, 3)), (2000, 3, (4, 1)), (900, 2, (17,)), (600, 18, (2,)), (9000, 1, (1,))]


def refused(statement: Replies, received: Sequence[bytes]) -> str:
    with pytest.raises(ProofError) as caught:
        verify_replies(statement, received)
    return caught.value.failed


def forced(
    statement: Replies, evaluating: Member, rows: NDArray[np.int64], hidden: Sequence[list[HiddenSums]]
) -> list[bytes]:
    """A proof by the rules, with what a cheat says it drew and multiplied by."""
    witnesses = [reply_witness(part, evaluating.key, rows, hidden) for part in statement.relations]
    return prove_relations(statement.relations, witnesses.__getitem__, seeded(6))


OWNER, EVALUATOR = honest(300, 3, 1), honest(300, 2, 2)


@pytest.fixture(scope="module")
def hidden() -> list[HiddenSums]:
    return hidden_sums(OWNER, EVALUATOR.rows)


@pytest.fixture(scope="module")
def statement(hidden: list[HiddenSums]) -> Replies:
    return replies_of(EVALUATOR, [reply_to(OWNER, hidden)])


@either
@pytest.mark.parametrize(("rows", "columns", "owners"), SHAPES)
def test_proof_of_an_evaluation_holds_for_every_arrangement(
    rows: int, columns: int, owners: tuple[int, ...], stated: Stated
) -> None:
    """Of the last party without a key: nothing of it is encrypted."""
    own, others = honest(rows, columns, 2), [honest(rows, width, 10 + k) for k, width in enumerate(owners)]
    hidden = [hidden_sums(other, own.rows, k) for k, other in enumerate(others)]
    said = stated(own, [reply_to(other, each) for other, each in zip(others, hidden, strict=True)])
    key = own.key if stated is replies_of else None
    verify_replies(said, prove_replies(said, key, own.rows, hidden, seeded(3)))


@either
def test_proof_holds_where_replies_are_multiplied_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch, stated: Stated
) -> None:
    monkeypatch.setattr(replies_module, "_LINES", 1)
    test_proof_of_an_evaluation_holds_for_every_arrangement(2000, 3, (4, 1, 4), stated)


def off_by(reply: Reply, at: int, by: int) -> Reply:
    """With another number at that place of its first column."""
    primes, (first, *others) = STANDARD.primes, reply.columns
    words = parse_residues(first, reply.layout.whole_reply_shape, primes)
    for k, prime in enumerate(primes):
        words[k, at] = (int(words[k, at]) + by) % prime
    return replace(reply, columns=[format_residues(words), *others])


@either
@pytest.mark.parametrize("at", [-1, 5])
def test_errors_in_two_owners_replies_do_not_cancel(at: int, stated: Stated) -> None:
    own, others = honest(300, 2, 2), [honest(300, 3, 10), honest(300, 3, 11)]
    hidden = [hidden_sums(other, own.rows, k) for k, other in enumerate(others)]
    one, another = (reply_to(other, each) for other, each in zip(others, hidden, strict=True))
    statement = stated(own, [off_by(one, at, 1), off_by(another, at, -1)])
    assert refused(statement, forced(statement, own, own.rows, hidden)) == "total"


@pytest.mark.slow
@either
def test_proof_holds_over_segments_that_do_not_end_where_an_owners_stripes_do(
    stated: Stated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ciphertexts, "SEGMENT_WORDS", 1 << 19)
    own, owner = honest(30_000, 9, 2), honest(30_000, 7, 1)
    hidden = hidden_sums(owner, own.rows)
    said = stated(own, [reply_to(owner, hidden)])
    assert len(said.relations) == 2
    received = prove_replies(said, own.key, own.rows, [hidden], seeded(3))
    verify_replies(said, received)
    assert refused(said, received[:-1]) == "size"


def test_rounded_whole_reply_is_what_the_same_entropy_replies() -> None:
    found = InnerProducts(OWNER.layout, 2)
    found.add(OWNER.blocks[0], EVALUATOR.rows)
    noise = np.random.default_rng(9).integers(-(2**40), 2**40, (3, 2))
    direct = list(make_reply(found, OWNER.public_key, noise, seeded(9)))
    whole = [whole_reply(OWNER.layout, each) for each in hidden_sums(OWNER, EVALUATOR.rows, 9)]
    assert direct == [round_reply(OWNER.layout, each) for each in whole]


@pytest.mark.parametrize("changed", ["all", "one cell"])
def test_reply_made_of_other_columns_than_were_encrypted_is_refused(changed: str) -> None:
    """Whichever of both columns is said to have been multiplied by."""
    others = rows_within(BOUND, 300, 2, 77) if changed == "all" else with_another_cell(EVALUATOR.rows)
    hidden = hidden_sums(OWNER, others)
    said = replies_of(EVALUATOR, [reply_to(OWNER, hidden)])
    for rows in (others, EVALUATOR.rows):
        assert refused(said, forced(said, EVALUATOR, rows, [hidden])) == "total"


def with_another_cell(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    others = rows.copy()
    others[17, 1] += 1
    return others


@either
def test_crafted_reply_that_opens_a_coefficient_of_the_key_is_refused(stated: Stated, hidden: list[HiddenSums]) -> None:
    """A second half of Delta x^k makes each number a coefficient of the secret."""
    crafted = []
    for each in hidden:
        second = np.zeros_like(each.second)
        for k, prime in enumerate(STANDARD.primes):
            second[k, 0, 1] = STANDARD.delta % prime
        crafted.append(replace(each, second=second, first=[0] * 3))
    reply = reply_to(OWNER, crafted)
    opened = open_reply(OWNER.key, OWNER.layout, round_reply(OWNER.layout, reply.columns[0]), largest=2**40)
    assert set(np.abs(opened).tolist()) <= {0, 1}
    said = stated(EVALUATOR, [reply])
    assert refused(said, forced(said, EVALUATOR, EVALUATOR.rows, [hidden])) == "total"


@either
def test_flood_beyond_its_bound_is_refused(stated: Stated, hidden: list[HiddenSums]) -> None:
    """One number is larger by 2^88: no bits make it up, and a bit that is two is none."""
    flooded = replace(hidden[0], first=[(number + (1 << 88)) % STANDARD.modulus for number in hidden[0].first])
    said = stated(EVALUATOR, [reply_to(OWNER, [flooded, hidden[1]])])
    assert refused(said, forced(said, EVALUATOR, EVALUATOR.rows, [hidden])) == "total"
    (joined,) = said.relations
    witness = reply_witness(joined, EVALUATOR.key, EVALUATOR.rows, [hidden])
    witness[0, 88 * 6 : 88 * 6 + 3] += 1  # the last bits of the floods of the first column's numbers
    assert refused(said, prove_relations([joined], lambda _: witness, seeded(6))) == "quadratic"


def test_last_partys_row_one_beyond_its_bound_is_refused_whatever_fills_it_up() -> None:
    """All else is true: the replies are evaluations of that row, too. A larger bound than entries reach is none."""
    hidden = hidden_sums(OWNER, EVALUATOR.rows)
    said, short = (last_replies_of(EVALUATOR, [reply_to(OWNER, hidden)], bound) for bound in (BOUND, BOUND - 1))
    with pytest.raises(DomainError, match="beyond their bound"):
        prove_replies(short, None, EVALUATOR.rows, [hidden], seeded(3))
    witness = reply_witness(said.relations[0], None, EVALUATOR.rows, [hidden])
    (received,) = prove_relations(short.relations, lambda _: witness, seeded(6))
    assert refused(short, [received]) == "quadratic"
    large = [
        last_replies_of(EVALUATOR, said.replies, bound).relations[0].shape.squares for bound in (3 * BOUND, 2 * BOUND)
    ]
    assert large[0] == large[1]


@pytest.mark.parametrize("bound", [0, -1, 2**38])
def test_last_partys_bound_that_is_none_is_refused(bound: int, hidden: list[HiddenSums]) -> None:
    with pytest.raises(DomainError, match="positive"):
        last_replies_of(EVALUATOR, [reply_to(OWNER, hidden)], bound)


@pytest.mark.slow
def test_last_partys_reply_of_other_rows_than_it_proves_is_refused() -> None:
    """One cell, or all of one of two replies: y is the same in all of them, whatever it is."""
    others = with_another_cell(EVALUATOR.rows)
    hidden = hidden_sums(OWNER, others)
    said = last_replies_of(EVALUATOR, [reply_to(OWNER, hidden)])
    assert refused(said, forced(said, EVALUATOR, EVALUATOR.rows, [hidden])) == "total"
    verify_replies(said, forced(said, EVALUATOR, others, [hidden]))
    second = honest(300, 2, 3)
    both = [hidden, hidden_sums(second, EVALUATOR.rows, 4)]
    said = last_replies_of(EVALUATOR, [reply_to(OWNER, both[0]), reply_to(second, both[1])])
    for rows in (others, EVALUATOR.rows):
        assert refused(said, forced(said, EVALUATOR, rows, both)) == "total"


def test_last_partys_proof_holds_for_its_own_name_release_and_bound_alone(hidden: list[HiddenSums]) -> None:
    reply = reply_to(OWNER, hidden)
    said = last_replies_of(EVALUATOR, [reply])
    received = prove_replies(said, None, EVALUATOR.rows, [hidden], seeded(4))
    verify_replies(said, received)
    named = replace(EVALUATOR, layout=replace(EVALUATOR.layout, context=b"another"))
    for other in (last_replies_of(named, [reply]), last_replies_of(EVALUATOR, [reply], BOUND + 1)):
        assert refused(other, received) == "commitment"
    assert refused(replies_of(EVALUATOR, [reply]), received) == "size"


def test_noise_beyond_its_bound_is_not_proved(hidden: list[HiddenSums], statement: Replies) -> None:
    beyond = [replace(hidden[0], noise=[1 << NOISE_BITS, 0, 0]), hidden[1]]
    with pytest.raises(DomainError, match="beyond what is proved"):
        prove_replies(statement, EVALUATOR.key, EVALUATOR.rows, [beyond], seeded(4))


@pytest.mark.slow
def test_parts_of_two_proofs_do_not_mix_and_sums_of_one_are_not_exchanged_once_all_are_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All numbers of the second challenge are others then: also those of a part whose sums stay."""
    monkeypatch.setattr(ciphertexts, "SEGMENT_WORDS", 1 << 19)
    own, owner = honest(40_000, 8, 2), honest(40_000, 1, 1)
    hidden = hidden_sums(owner, own.rows)
    said = replies_of(own, [reply_to(owner, hidden)])
    first, second = (prove_replies(said, own.key, own.rows, [hidden], seeded(seed)) for seed in (4, 5))
    assert len(first) == 2
    assert refused(said, [first[0], second[1]]) == "commitment"
    assert refused(said, first[::-1]) == "size"
    changed = bytearray(first[1])
    changed[32] ^= 1  # the first sum
    assert refused(said, [first[0], bytes(changed)]) in {"commitment", "code"}


def test_statement_about_other_rows_or_malformed_replies_is_none(hidden: list[HiddenSums]) -> None:
    reply = reply_to(OWNER, hidden)
    first, second = reply.columns
    others = honest(301, 2, 2)
    for evaluator, replies in ((EVALUATOR, []), (EVALUATOR, [replace(reply, columns=[first])]), (others, [reply])):
        with pytest.raises(DomainError, match="all rows and columns"):
            replies_of(evaluator, replies)
    with pytest.raises(DomainError, match="all blocks"):
        replace(reply, blocks=())
    for malformed in (first[4:], b"\xff" * len(first)):
        with pytest.raises(CiphertextError):
            replace(reply, columns=[malformed, second])


def test_ciphertexts_of_another_key_are_not_proved(statement: Replies, hidden: list[HiddenSums]) -> None:
    with pytest.raises(DomainError, match="another key"):
        prove_replies(statement, OWNER.key, EVALUATOR.rows, [hidden], seeded(4))
    with pytest.raises(DomainError, match="no proof"):
        prove_replies(statement, None, EVALUATOR.rows, [hidden], seeded(4))


def test_what_was_drawn_for_a_reply_says_nothing(hidden: list[HiddenSums]) -> None:
    assert repr(hidden[0]) == "HiddenSums(…)"


def test_stripes_of_a_wide_owner_are_read_a_block_at_a_time() -> None:
    """An evaluator of one column has thousands of them in one segment: together they would be gigabytes."""
    layout = Layout(b"wide", 20_000, 17)
    blocks = [bytes(byte_count(layout.block_shape(*block))) for block in layout.blocks()]
    reply = Reply(layout, bytes(byte_count(layout.key_shape)), blocks, ())
    read = list(reply.first_stripes(0, 3, 21))
    assert [(first, held.shape) for first, held in read] == [(3, (5, 2, 8192)), (8, (8, 2, 8192)), (16, (5, 2, 8192))]
