"""What a one-round inner product must not forget: attacks that succeed where a protection is left out, and only there.

Left-out variants are made in Python integers (`tests.world.ring`), never by the product. The ring is too small to hide
anything from lattice reduction; none of these attacks needs any.
"""

from itertools import product as choices

import numpy as np
import pytest
from numpy.typing import NDArray

from commingle.shared.dp.noise import rounded_gaussian
from commingle.shared.errors import DomainError
from commingle.shared.ring.encryption import encrypt, public_key, public_slots, secret_key
from commingle.shared.ring.parameters import ENTRY_LIMIT, Layout, format_residues, parse_residues
from commingle.shared.ring.replies import InnerProducts, make_reply, open_reply
from commingle.shared.ring.residues import integers, products, to_coefficients, to_slots
from tests.world import ring as oracle
from tests.world.ring import seeded, toy

RING = toy(64)
SEED = bytes(range(32))
LARGEST = 2**63 - 1
HIDDEN = 2**100  # what an attack finds where it finds nothing is spread over 155 bits


def entries(seed: int, rows: int, columns: int = 1) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(-ENTRY_LIMIT, ENTRY_LIMIT, (rows, columns), endpoint=True)


def found_by(layout: Layout, x: NDArray[np.int64], y: NDArray[np.int64]) -> tuple[InnerProducts, bytes]:
    """The product's evaluator, with the ciphertexts of the product's owner, and the owner's public key."""
    key, entropy, found = secret_key(SEED, layout.parameters), seeded(1), InnerProducts(layout, y.shape[1])
    published = public_key(key, layout, entropy)
    for start, stop in layout.blocks():
        found.add(encrypt(key, layout, (start, stop), x[start:stop], entropy), y[start:stop])
    return found, published


def answered(layout: Layout, x: NDArray[np.int64], y: NDArray[np.int64], noise: int = 0) -> bytes:
    """The product's reply for one column, its noise the same number everywhere."""
    found, published = found_by(layout, x, y)
    (reply,) = make_reply(found, published, np.full((layout.columns, 1), noise), seeded(2))
    return reply


def centred(x: int, modulus: int) -> int:
    return (x + modulus // 2) % modulus - modulus // 2


class TestFreshEncryptionOfZero:
    """The second half of a sum of ciphertexts times y is a known linear function of y."""

    LAYOUT = Layout(b"zero", 40, 1, RING)

    def divided(self, second: list[int]) -> list[int]:
        """The second half over the one ciphertext's public half, nearest to zero: y in reverse if nothing hides it."""
        slots = to_slots(np.array([[x % p for x in second] for p in RING.primes], np.uint32), RING.primes)
        public = [public_slots(self.LAYOUT.label, [1], RING.degree, prime)[0].tolist() for prime in RING.primes]
        inverse = [[pow(a, -1, p) for a in half] for half, p in zip(public, RING.primes, strict=True)]
        quotient = to_coefficients(products(slots, np.array(inverse, np.uint32), RING.primes), RING.primes)
        return [centred(x, RING.modulus) for x in integers(quotient, RING.primes)]

    @pytest.mark.parametrize("fresh_zero", [True, False])
    def test_rows_are_a_quotient_of_public_numbers_unless_zero_is_encrypted_afresh(self, fresh_zero: bool) -> None:
        x, y = entries(1, 40), entries(2, 40)
        made = oracle.encrypt(self.LAYOUT, x, seed=SEED, entropy=seeded(1))
        reply = oracle.evaluate(made, y[:, 0], [2**50], entropy=seeded(2), fresh_zero=fresh_zero)
        found = self.divided(reply.seconds[0])
        if fresh_zero:
            assert min(map(abs, found)) > HIDDEN
        else:
            assert found == oracle.reversed_stripes(self.LAYOUT, y[:, 0])[0]

    @pytest.mark.parametrize("fresh_zero", [True, False])
    def test_guess_of_a_cell_is_confirmed_by_what_travels_unless_zero_is_encrypted_afresh(
        self, fresh_zero: bool
    ) -> None:
        x, y = entries(3, 40), entries(4, 40)
        made = oracle.encrypt(self.LAYOUT, x, seed=SEED, entropy=seeded(1))

        def second_half(rows: NDArray[np.int64]) -> bytes:
            reply = oracle.evaluate(made, rows[:, 0], [0], entropy=seeded(5), fresh_zero=False)
            return second_bytes(self.LAYOUT, oracle.sent(self.LAYOUT, reply))

        received = second_bytes(self.LAYOUT, answered(self.LAYOUT, x, y)) if fresh_zero else second_half(y)
        guesses = range(int(y[17, 0]) - 5, int(y[17, 0]) + 6)
        changed = [np.where(np.arange(40)[:, None] == 17, guess, y) for guess in guesses]
        confirmed = [guess for guess, rows in zip(guesses, changed, strict=True) if second_half(rows) == received]
        assert confirmed == ([] if fresh_zero else [int(y[17, 0])])


def second_bytes(layout: Layout, reply: bytes) -> bytes:
    """The second halves of what travels."""
    words = parse_residues(reply, layout.reply_shape, layout.parameters.primes)
    return format_residues(words[:, : -layout.columns])


@pytest.mark.parametrize("hashed", [True, False])
def test_owner_that_chose_the_random_half_of_its_key_finds_a_column_and_none_where_it_is_hashed(hashed: bool) -> None:
    """With 0 for that half, what hides the second half is an error that dropping primes rounds away."""
    layout, x = Layout(b"chosen", 8, 1, RING), entries(6, 8)
    y = np.array([[0, 1, 1, 0, 1, 0, 0, 1]]).T * ENTRY_LIMIT
    made = oracle.encrypt(layout, x, seed=SEED, entropy=seeded(1), key_half=[0] * RING.degree)
    if hashed:  # the product's evaluator, given the very key that was made for a half of 0
        found, _ = found_by(layout, x, y)
        key = np.array([[c % p for c in made.key] for p in RING.primes], np.uint32)
        published = format_residues(to_slots(key, RING.primes))
        (reply,) = make_reply(found, published, np.zeros((1, 1), np.int64), seeded(7))
    else:
        reply = oracle.sent(layout, oracle.evaluate(made, y[:, 0], [0], entropy=seeded(7)))
    received = parse_residues(second_bytes(layout, reply), (RING.kept, RING.degree), RING.primes)
    public, possible = oracle.public_half(layout, 1), []
    for bits in choices((0, ENTRY_LIMIT), repeat=8):
        (guess,) = oracle.reversed_stripes(layout, np.array(bits))
        expected = [(x + RING.dropped // 2) // RING.dropped for x in oracle.product(public, guess, RING.modulus)]
        distance = [centred(int(received[0, k]) - expected[k], RING.primes[0]) for k in range(RING.degree)]
        if max(map(abs, distance)) <= 1:
            possible.append(bits)
    assert possible == ([] if hashed else [tuple(y[:, 0].tolist())])


@pytest.mark.parametrize("flood", [True, False])
def test_noise_of_an_opening_is_a_linear_function_of_the_rows_unless_it_is_flooded(flood: bool) -> None:
    """The owner knows its errors e: 16 columns give 16 sums of e y for the four rows of their stripe."""
    layout, x, y = Layout(b"flood", 4, 16, RING), entries(8, 4, 16), entries(9, 4)
    made = oracle.encrypt(layout, x, seed=SEED, entropy=seeded(1))
    noise = rounded_gaussian(2**30, 16, entropy=seeded(3)).tolist()
    reply = oracle.evaluate(made, y[:, 0], noise, entropy=seeded(4), flood=flood)
    (phase,) = oracle.phases(made, reply)
    known = np.array(made.errors[0], float).reshape(16, 4)
    left = np.array([centred(phase[4 * a + 3], RING.delta) for a in range(16)], float)
    found = np.linalg.lstsq(known, left)[0]
    errors = np.abs(found - y[:, 0])
    assert errors.min() > 2**60 if flood else errors.max() < 100


class TestOnlyWhatIsMeantIsOpened:
    """Other coefficients of a product hold sums over some of the rows."""

    LAYOUT = Layout(b"partial", 40, 1, RING)

    def recovered(self, x: NDArray[np.int64], sums: dict[int, int]) -> NDArray[np.float64]:
        """The rows y of least norm for which these coefficients of x(X) times reversed y(X) are these."""
        equations = []
        for place in sums:
            row = np.zeros(40)
            for t in range(40):
                shift = place - (self.LAYOUT.stripe_rows - 1 - t)
                column = oracle.in_stripes(self.LAYOUT, x)[0]
                row[t] = column[shift] if shift >= 0 else -column[shift % RING.degree]
            equations.append(row)
        found: NDArray[np.float64] = np.linalg.lstsq(np.array(equations), np.array(list(sums.values()), float))[0]
        return found

    def test_whole_first_half_gives_all_rows(self) -> None:
        x, y = entries(10, 40), entries(11, 40)
        made = oracle.encrypt(self.LAYOUT, x, seed=SEED, entropy=seeded(1))
        reply = oracle.evaluate(made, y[:, 0], [2**50], entropy=seeded(2))
        (phase,) = oracle.phases(made, reply)
        opened = {k: (value + RING.delta // 2) // RING.delta for k, value in enumerate(phase)}
        del opened[self.LAYOUT.stripe_rows - 1]  # the one with noise
        np.testing.assert_array_equal(np.rint(self.recovered(x, opened)), y[:, 0])

    def test_what_is_sent_gives_one_noisy_sum_and_no_row(self) -> None:
        x, y = entries(10, 40), entries(11, 40)
        reply = answered(self.LAYOUT, x, y, noise=2**30)
        words = parse_residues(reply, self.LAYOUT.reply_shape, RING.primes)
        assert words.shape[1] - RING.degree == 1
        opened = open_reply(secret_key(SEED, RING), self.LAYOUT, reply, largest=LARGEST)
        found = self.recovered(x, {self.LAYOUT.stripe_rows - 1: int(opened[0])})
        assert (np.abs(found - y[:, 0]) < 1).sum() <= 1


@pytest.mark.parametrize("inside", [True, False])
def test_owner_reads_cells_within_its_bounds_unless_noise_is_in_the_reply(inside: bool) -> None:
    """A column that is 0 but for one subject is within every bound, and opens that subject's cells."""
    layout, y, sigma = Layout(b"noise", 30, 1, RING), entries(12, 30, 8), 2**34
    x = np.zeros((30, 1), np.int64)
    x[21] = ENTRY_LIMIT
    found, published = found_by(layout, x, y)
    noise = rounded_gaussian(sigma, 8, entropy=seeded(5)) if inside else np.zeros(8, np.int64)
    replies = make_reply(found, published, noise[None, :], seeded(6))
    key = secret_key(SEED, RING)
    cells = np.array([open_reply(key, layout, reply, largest=LARGEST)[0] for reply in replies]) / ENTRY_LIMIT
    if inside:
        assert np.abs(cells - y[21]).mean() > sigma / ENTRY_LIMIT / 4
    else:
        np.testing.assert_array_equal(cells, y[21])


@pytest.mark.parametrize("again", [True, False])
def test_two_sets_of_ciphertexts_under_one_context_open_their_difference_and_under_two_nothing(again: bool) -> None:
    first, second = Layout(b"one", 50, 1, RING), Layout(b"one" if again else b"two", 50, 1, RING)
    x, changed, key = entries(13, 50), entries(14, 50), secret_key(SEED, RING)
    sets = [
        parse_residues(encrypt(key, layout, (0, 50), rows, seeded(number)), (5, 1, 1, RING.degree), RING.primes)
        for number, (layout, rows) in enumerate([(first, x), (second, changed)])
    ]
    numbers = [integers(received[:, 0, 0], RING.primes) for received in sets]
    difference = [(centred(a - b, RING.modulus) + RING.delta // 2) // RING.delta for a, b in zip(*numbers, strict=True)]
    assert (difference[:50] == (x - changed)[:, 0].tolist()) is again


@pytest.mark.slow
def test_owner_that_is_answered_again_averages_noise_away_and_there_is_no_second_answer() -> None:
    layout, x, y, sigma = Layout(b"again", 30, 1, RING), entries(15, 30), entries(16, 30), 2**34
    exact, key = int(x[:, 0] @ y[:, 0]), secret_key(SEED, RING)

    def opened(number: int) -> int:
        found, published = found_by(layout, x, y)
        noise = rounded_gaussian(sigma, 1, entropy=seeded(1000 + number))
        (reply,) = make_reply(found, published, noise[:, None], seeded(number))
        return int(open_reply(key, layout, reply, largest=LARGEST)[0])

    answers = [opened(number) for number in range(400)]
    assert abs(np.mean(answers) - exact) < 5 * sigma / 20
    assert abs(answers[0] - exact) > sigma / 20
    found, published = found_by(layout, x, y)
    make_reply(found, published, np.zeros((1, 1), np.int64), seeded(1))
    with pytest.raises(DomainError, match="one reply"):
        make_reply(found, published, np.zeros((1, 1), np.int64), seeded(2))


def test_reply_that_is_no_evaluation_opens_the_key_and_only_a_proof_would_tell() -> None:
    """What stays open while replies are not proved (the proof's 5.2): ten bits of the opening for each coefficient."""
    layout = Layout(b"oracle", 3, 1, RING)
    secret, found = oracle.secret(layout, SEED), []
    for place in range(0, RING.degree, 5):
        second = [0] * RING.degree
        for k in range(5):  # -x^(N - m) is x^-m: secret coefficient `place` + k comes to the place that is opened
            shift = (layout.places[0] - place - k) % RING.degree
            wrapped = layout.places[0] < place + k
            second[shift] = (1 if wrapped else -1) * 2 ** (RING.scale_bits + 10 * k)
        planes = [[*(x % p for x in second), 0] for p in RING.primes[: RING.kept]]
        crafted = np.array(planes, "<u4").tobytes()
        opened = int(open_reply(secret_key(SEED, RING), layout, crafted, largest=LARGEST)[0])
        for _ in range(5):
            found.append(centred(opened, 1024))
            opened = (opened - found[-1]) // 1024
    assert found[: RING.degree] == secret
