"""Encrypt, evaluate, reply, open: exact, refused where it must be, and byte for byte what Python integers make."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from commingle.shared.errors import CiphertextError, DomainError
from commingle.shared.ring.encryption import encrypt, public_key, secret_key
from commingle.shared.ring.parameters import (
    ENTRY_LIMIT,
    STANDARD,
    Layout,
    Parameters,
    byte_count,
    format_residues,
    parse_residues,
)
from commingle.shared.ring.replies import InnerProducts, make_reply, open_reply
from tests.world import ring as oracle
from tests.world.ring import seeded, toy

SEED = bytes(range(32))
LARGEST = 2**63 - 1


def entries(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.int64]:
    return rng.integers(-ENTRY_LIMIT, ENTRY_LIMIT, shape, endpoint=True)


def encrypted(layout: Layout, columns: NDArray[np.int64], seed: int = 1) -> tuple[bytes, list[bytes]]:
    """The public key and all blocks."""
    key, entropy = secret_key(SEED, layout.parameters), seeded(seed)
    published = public_key(key, layout, entropy)
    return published, [encrypt(key, layout, (a, b), columns[a:b], entropy) for a, b in layout.blocks()]


def evaluated(layout: Layout, blocks: Sequence[bytes], columns: NDArray[np.int64]) -> InnerProducts:
    found = InnerProducts(layout, columns.shape[1])
    for (start, stop), block in zip(layout.blocks(), blocks, strict=True):
        found.add(block, columns[start:stop])
    return found


def opened(
    layout: Layout, left: NDArray[np.int64], right: NDArray[np.int64], noise: NDArray[np.int64]
) -> NDArray[np.int64]:
    """What the owner of the left columns reads."""
    published, blocks = encrypted(layout, left)
    replies = make_reply(evaluated(layout, blocks, right), published, noise, seeded(2))
    key = secret_key(SEED, layout.parameters)
    return np.stack([open_reply(key, layout, reply, largest=LARGEST) for reply in replies], axis=1)


@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 120),
    left=st.integers(1, 36),
    right=st.integers(1, 4),
    extreme=st.booleans(),
)
@settings(max_examples=40)
def test_opening_is_the_inner_product_and_the_noise_exactly(
    seed: int, rows: int, left: int, right: int, extreme: bool
) -> None:
    rng = np.random.default_rng(seed)
    x, y = entries(rng, (rows, left)), entries(rng, (rows, right))
    if extreme:
        x, y = np.where(x < 0, -ENTRY_LIMIT, ENTRY_LIMIT), np.where(y < 0, -ENTRY_LIMIT, ENTRY_LIMIT)
    noise = rng.integers(-(2**60), 2**60, (left, right))
    found = opened(Layout(b"release and owner", rows, left, toy(64)), x, y, noise)
    np.testing.assert_array_equal(found, x.T @ y + noise)


@pytest.mark.parametrize(("rows", "left", "right"), [(8192, 1, 2), (20_000, 10, 3), (1000, 17, 2)])
def test_standard_ring_is_exact_over_several_stripes_blocks_and_groups(rows: int, left: int, right: int) -> None:
    rng = np.random.default_rng(rows)
    x, y, noise = entries(rng, (rows, left)), entries(rng, (rows, right)), rng.integers(-(2**60), 2**60, (left, right))
    found = opened(Layout(b"", rows, left), x, y, noise)
    np.testing.assert_array_equal(found, x.T @ y + noise)


@pytest.mark.parametrize("message", [-LARGEST, LARGEST, 2**62, -1, 0])
def test_messages_of_all_64_bits_are_opened(message: int) -> None:
    found = opened(Layout(b"", 5, 1, toy(64)), np.zeros((5, 1), int), np.zeros((5, 1), int), np.array([[message]]))
    assert found.tolist() == [[message]]


def worst(count: int) -> bytes:
    """Entropy that makes every error as large as it can be."""
    return b"\xff\xff\xff\xff\0\0\0\0" * (count // 8)


@pytest.mark.parametrize("message", [-LARGEST, LARGEST])
@pytest.mark.parametrize("flood", [b"\0", b"\xff"])
def test_largest_errors_flood_and_message_at_once_open_rightly(message: int, flood: bytes) -> None:
    """Errors all of one sign against rows of one sign: the bound of the proof's 2.2 is attained in the rows' part."""
    layout, rows = Layout(b"", 200, 2, toy(64)), 200
    x, y = np.zeros((rows, 2), int), np.full((rows, 1), ENTRY_LIMIT)
    key = secret_key(SEED, layout.parameters)
    published = public_key(key, layout, worst)
    blocks = [encrypt(key, layout, (a, b), x[a:b], worst) for a, b in layout.blocks()]
    drawn = iter([bytes(64), worst(8 * 64)])  # blinds of -1, then errors
    noise = np.full((2, 1), message)
    (reply,) = make_reply(
        evaluated(layout, blocks, y), published, noise, lambda count: next(drawn, flood * count)[:count]
    )
    assert open_reply(key, layout, reply, largest=LARGEST).tolist() == [message] * 2


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 18))
@settings(max_examples=10)
def test_bytes_are_those_of_the_definition_in_python_integers(seed: int, rows: int, columns: int) -> None:
    ring, rng = toy(16), np.random.default_rng(seed)
    layout = Layout(b"context", rows, columns, ring)
    x, y, noise = entries(rng, (rows, columns)), entries(rng, (rows, 1)), rng.integers(-(2**60), 2**60, (columns, 1))
    published, blocks = encrypted(layout, x, seed)
    made = oracle.encrypt(layout, x, seed=SEED, entropy=seeded(seed))
    planes = [[[c % p for c in first] for first in made.firsts] for p in ring.primes]
    sizes = [layout.stripes(*block) * layout.groups for block in layout.blocks()]
    cut = np.split(np.array(planes, "<u4"), np.cumsum(sizes)[:-1], axis=1)
    assert blocks == [part.tobytes() for part in cut]
    (reply,) = make_reply(evaluated(layout, blocks, y), published, noise, seeded(seed + 1))
    exact = oracle.evaluate(made, y[:, 0], noise[:, 0].tolist(), entropy=seeded(seed + 1))
    assert reply == oracle.sent(layout, exact)


def test_sizes_are_those_that_the_layout_says_for_everybody() -> None:
    layout, right = Layout(b"", 1000, 18, toy(64)), 3
    rng = np.random.default_rng(1)
    published, blocks = encrypted(layout, entries(rng, (1000, 18)))
    found = evaluated(layout, blocks, entries(rng, (1000, right)))
    replies = list(make_reply(found, published, np.zeros((18, right), np.int64), seeded(1)))
    assert (layout.groups, layout.width, layout.stripe_rows) == (2, 9, 7)
    assert len(published) == byte_count(layout.key_shape) == 5 * 64 * 4
    assert [len(block) for block in blocks] == [byte_count(layout.block_shape(*block)) for block in layout.blocks()]
    assert {len(reply) for reply in replies} == {byte_count(layout.reply_shape)} == {3 * (2 * 64 + 18) * 4}


def test_a_hundred_thousand_rows_of_ten_columns_are_twenty_megabytes_and_one_to_reply() -> None:
    layout = Layout(b"", 100_000, 10)
    assert sum(byte_count(layout.block_shape(*block)) for block in layout.blocks()) < 20.2e6
    assert 10 * byte_count(layout.reply_shape) < 1e6


@pytest.mark.parametrize("columns", [1, 16, 17, 80, 255])
def test_blocks_follow_each_other_and_every_public_polynomial_has_one_number(columns: int) -> None:
    layout = Layout(b"", 100_000, columns)
    blocks = list(layout.blocks())
    assert [start for start, _ in blocks] == [0, *(stop for _, stop in blocks[:-1])]
    assert blocks[-1][1] == 100_000
    numbers = [number for block in blocks for number in layout.indices(*block)]
    assert numbers == list(range(1, len(numbers) + 1))  # 0 is the key's


@pytest.mark.parametrize(
    "other", [{"context": b"b"}, {"context": b"a\0"}, {"rows": 6}, {"columns": 3}, {"parameters": toy(16)}]
)
def test_no_two_layouts_share_a_label(other: dict[str, object]) -> None:
    layout = Layout(b"a", 5, 2, toy(64))
    assert replace(layout, **other).label != layout.label  # type: ignore[arg-type] # one field of many types


@pytest.mark.parametrize("sizes", [(0, 1), (2**24 + 1, 1), (5, 0)])
def test_sizes_outside_the_bounds_are_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(DomainError):
        Layout(b"", *sizes)


@pytest.mark.parametrize("entry", [ENTRY_LIMIT + 1, -ENTRY_LIMIT - 1, -(2**63)])
def test_entry_beyond_the_bound_is_neither_encrypted_nor_multiplied(entry: int) -> None:
    layout, rows = Layout(b"", 3, 1, toy(64)), np.array([[0], [entry], [1]])
    with pytest.raises(DomainError, match="16384"):
        encrypt(secret_key(SEED, layout.parameters), layout, (0, 3), rows, seeded(1))
    _, (block,) = encrypted(layout, np.zeros((3, 1), np.int64))
    with pytest.raises(DomainError, match="16384"):
        InnerProducts(layout, 1).add(block, rows)


def changed(received: bytes, ring: Parameters, plane: int) -> bytes:
    """With the last residue of a plane of the first primes no longer reduced."""
    words = np.frombuffer(received, "<u4").reshape(-1 if plane < 0 else len(ring.primes), -1).copy()
    words[plane, -1] = ring.primes[plane]
    return words.tobytes()


def test_ciphertexts_that_are_not_reduced_or_of_another_size_are_refused_and_nothing_is_added() -> None:
    layout = Layout(b"", 300, 2, toy(64))
    x, y = np.ones((300, 2), np.int64), np.ones((300, 1), np.int64)
    published, blocks = encrypted(layout, x)
    found, (start, stop) = InnerProducts(layout, 1), next(layout.blocks())
    for wrong in (b"", blocks[0][:-4], blocks[0] + bytes(4), blocks[-1], changed(blocks[0], layout.parameters, 4)):
        with pytest.raises(CiphertextError):
            found.add(wrong, y[start:stop])
    for (start, stop), block in zip(layout.blocks(), blocks, strict=True):
        found.add(block, y[start:stop])
    for wrong in (b"", published[:-1], changed(published, layout.parameters, 0)):
        with pytest.raises(CiphertextError):
            make_reply(found, wrong, np.zeros((2, 1), np.int64), seeded(1))
    (reply,) = make_reply(found, published, np.zeros((2, 1), np.int64), seeded(1))
    assert open_reply(secret_key(SEED, layout.parameters), layout, reply, largest=LARGEST).tolist() == [300, 300]


def test_reply_that_is_not_reduced_or_of_another_size_is_refused() -> None:
    layout = Layout(b"", 3, 1, toy(64))
    published, blocks = encrypted(layout, np.ones((3, 1), np.int64))
    found = evaluated(layout, blocks, np.ones((3, 1), np.int64))
    (reply,) = make_reply(found, published, np.zeros((1, 1), np.int64), seeded(1))
    key, prime = secret_key(SEED, layout.parameters), layout.parameters.primes[2]
    for wrong in (reply[:-4], reply + bytes(4), reply[:-4] + prime.to_bytes(4, "little")):
        with pytest.raises(CiphertextError):
            open_reply(key, layout, wrong, largest=LARGEST)


@pytest.mark.parametrize("added", [0, 1])
@pytest.mark.parametrize("sign", [-1, 1])
def test_opening_at_its_bound_is_read_and_one_beyond_is_refused(added: int, sign: int) -> None:
    layout, key = Layout(b"", 3, 1, toy(64)), secret_key(SEED, toy(64))
    published, blocks = encrypted(layout, np.ones((3, 1), np.int64))
    found = evaluated(layout, blocks, np.full((3, 1), sign))
    (reply,) = make_reply(found, published, np.array([[sign * added]]), seeded(1))
    if added:
        with pytest.raises(CiphertextError, match="beyond its bound"):
            open_reply(key, layout, reply, largest=3)
    else:
        assert open_reply(key, layout, reply, largest=3).tolist() == [3 * sign]


def test_reply_for_another_key_opens_beyond_64_bits_or_to_something_unrelated() -> None:
    layout = Layout(b"", 3, 4, toy(64))
    published, blocks = encrypted(layout, np.ones((3, 4), np.int64))
    zero, refused = np.zeros((4, 1), np.int64), 0
    for number in range(20):
        (reply,) = make_reply(evaluated(layout, blocks, np.ones((3, 1), np.int64)), published, zero, seeded(number))
        try:
            found = open_reply(secret_key(bytes([number] * 32), layout.parameters), layout, reply, largest=LARGEST)
            assert not (np.abs(found) < 2**40).any()
        except CiphertextError:
            refused += 1
    assert refused > 2  # a message of 65 bits is as likely as not


@pytest.mark.parametrize("added", [0, 1])
def test_no_reply_before_all_blocks_or_with_noise_of_another_shape_and_no_block_after_the_last(added: int) -> None:
    layout = Layout(b"", 700, 2, toy(64))
    published, blocks = encrypted(layout, np.ones((700, 2), np.int64))
    found, y = InnerProducts(layout, 1), np.ones((700, 1), np.int64)
    for (start, stop), block in list(zip(layout.blocks(), blocks, strict=True))[:added]:
        found.add(block, y[start:stop])
    with pytest.raises(DomainError, match="all blocks"):
        make_reply(found, published, np.zeros((2, 1), np.int64), seeded(1))
    full = evaluated(layout, blocks, y)
    with pytest.raises(DomainError, match="noise"):  # of another shape
        make_reply(full, published, np.zeros((1, 2), np.int64), seeded(1))
    with pytest.raises(DomainError, match="all blocks"):
        full.add(blocks[-1], y[:1])


def test_key_and_sums_say_nothing_of_themselves() -> None:
    key, layout = secret_key(SEED, toy(64)), Layout(b"", 3, 2, toy(64))
    assert repr(key) == "SecretKey(…)"
    assert repr(InnerProducts(layout, 1)) == "InnerProducts(…)"


@given(st.integers(0, 2**32))
def test_residues_are_what_was_formatted(seed: int) -> None:
    ring, rng = toy(16), np.random.default_rng(seed)
    words = np.stack([rng.integers(0, prime, 7).astype(np.uint32) for prime in ring.primes[:3]])
    np.testing.assert_array_equal(parse_residues(format_residues(words), (3, 7), ring.primes), words)


def test_entropy_of_the_standard_ring_is_read_for_every_ciphertext_anew() -> None:
    layout = Layout(b"", 10, 1, STANDARD)
    key, x = secret_key(SEED, STANDARD), np.zeros((10, 1), np.int64)
    assert encrypt(key, layout, (0, 10), x, seeded(1)) != encrypt(key, layout, (0, 10), x, seeded(2))
