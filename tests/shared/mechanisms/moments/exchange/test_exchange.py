"""The whole exchange: what comes out, what is refused, who is named for it, and what nobody sees."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from commingle.party_agent.rounds.exchange import ExchangeFiles
from commingle.shared.documents.manifest import Manifest
from commingle.shared.documents.model import decode, encode
from commingle.shared.documents.spec import PartySpec
from commingle.shared.documents.statements import DeviationError, SignedDocument
from commingle.shared.documents.terms import Bounds
from commingle.shared.errors import VerificationError
from commingle.shared.mechanisms.moments.block import TRUST_MOMENTS, TRUST_PROVED
from commingle.shared.mechanisms.moments.entries import block_noise, cross_noise, open_matrix, places
from commingle.shared.mechanisms.moments.exchange.messages import open_columns
from commingle.shared.mechanisms.moments.exchange.products import own_moments, verify_bounds, verify_reply
from commingle.shared.proving.lengths import column_proofs
from commingle.shared.release.matrix import assemble, second_moments
from commingle.shared.release.plan import plan_blocks
from commingle.shared.release.verification import verify_release
from commingle.shared.ring.parameters import ENTRY_LIMIT
from tests.shared.mechanisms.moments.exchange.world import (
    KEYS,
    NAMES,
    NUMBERS,
    SEX,
    STAGED,
    THREE,
    WEIGHTED,
    WHITENED,
    Block,
    exchanged,
    numbers,
    party_spec,
    published,
    second_moment,
    spec_of,
    start,
)
from tests.world.noise import no_noise, seeded_noise
from tests.world.ring import seeded
from tests.world.side import Exchanging

RELEASE = "0" * 64

SPEC = spec_of()
PAIR = spec_of((party_spec("clinic", *NUMBERS), party_spec("registry", SEX)), n=300)
BOTH: tuple[Bounds, ...] = ("trusted", "proved")


@pytest.fixture(scope="module")
def world() -> Exchanging:
    return exchanged(SPEC, draw=seeded_noise(3))


@cache
def exchanged_pair(bounds: Bounds) -> Exchanging:
    return exchanged(PAIR.model_copy(update={"bounds": bounds}))


@pytest.fixture
def pair() -> Exchanging:
    return exchanged_pair("trusted")


@pytest.fixture(params=BOTH)
def either(request: pytest.FixtureRequest) -> Exchanging:
    """A pair whose bounds are trusted, and one whose bounds are proved."""
    return exchanged_pair(request.param)


# --- what comes out -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounds", BOTH)
@pytest.mark.parametrize("parties", [WEIGHTED, WHITENED, STAGED], ids=["weighted", "whitened", "two stages"])
def test_opened_matrix_is_the_second_moment_plus_exactly_the_parties_noise(
    parties: tuple[PartySpec, ...], bounds: Bounds
) -> None:
    spec = spec_of(parties, bounds=bounds)
    world = exchanged(spec, draw=seeded_noise(3))
    blocks = {name: world.submit(name, seeded_noise([4, i])) for i, name in enumerate(NAMES)}
    expected, at = second_moment(world), places(spec.terms)
    for i, party in enumerate(spec.parties):
        later = world.exchange.evaluators(party.name)
        noise = block_noise(
            spec.terms, party, sigma=world.side(party.name).sigma, draw=seeded_noise([4, i]), others=later
        )
        own = at[party.name]
        expected[:, own] += noise
        expected[own] += noise.T
        expected[own, own] -= noise[own].T
    for (owner, evaluator), noise in world.noises.items():
        expected[at[owner], at[evaluator]] += noise
        expected[at[evaluator], at[owner]] += noise.T
    matrix = assemble(spec, [blocks[name] for name in NAMES])
    assert np.array_equal(open_matrix(spec.terms, matrix), expected)
    found = second_moments(spec, RELEASE, matrix)
    np.testing.assert_array_equal(found.gram, expected / 4**spec.fraction_bits)
    files = published(world, blocks, dict.fromkeys(NAMES, world.transcript()))
    checked = verify_release(*files, trusted_coordinator=None)
    assert checked.manifest.privacy.trust == (TRUST_PROVED if bounds == "proved" else TRUST_MOMENTS)
    signed = {name: open_columns(world.exchange, world.columns[name], name).document.sums for name in NAMES}
    assert dict(checked.sums) == {name: sums for name, sums in signed.items() if sums is not None}
    assert {name for name, sums in signed.items() if sums is not None} == {
        party.name for party in parties if party.first_stage_share is not None
    }
    if parties is WHITENED:
        mixtures = ("whitened[age]", "whitened[bmi]", "whitened[blood=A]", "whitened[blood=B]", "whitened[blood=AB]")
        assert checked.moments.columns == ("(intercept)", *mixtures, "sex")


def test_published_release_verifies_and_other_transcripts_do_not(world: Exchanging) -> None:
    blocks = {name: world.submit(name, seeded_noise(4)) for name in NAMES}
    seen = world.transcript()
    checked = verify_release(*published(world, blocks, dict.fromkeys(NAMES, seen)), trusted_coordinator=None)
    assert checked.moments.gram[0][0] == SPEC.n
    assert checked.manifest.privacy.trust == TRUST_MOMENTS
    for transcripts in ({**dict.fromkeys(NAMES, seen), "lab": "11" * 32}, {}, {"clinic": seen, "lab": seen}):
        with pytest.raises(VerificationError, match="one exchange"):
            verify_release(*published(world, blocks, transcripts), trusted_coordinator=None)


def test_release_whose_bounds_are_proved_says_whom_one_has_to_trust_and_a_manifest_that_says_less_is_refused() -> None:
    world = exchanged_pair("proved")
    blocks = {name: world.submit(name, seeded_noise(4)) for name in world.exchange.parties}
    files = published(world, blocks, dict.fromkeys(blocks, world.transcript()))
    assert verify_release(*files, trusted_coordinator=None).manifest.privacy.trust == TRUST_PROVED
    signed = decode(SignedDocument, files[0])
    manifest = signed.open(Manifest).document
    privacy = manifest.privacy.model_copy(update={"trust": TRUST_MOMENTS})
    said = manifest.model_copy(update={"privacy": privacy})
    forged = encode(SignedDocument.of(said, KEYS["coordinator"]))
    with pytest.raises(VerificationError, match="privacy statement"):
        verify_release(forged, *files[1:], trusted_coordinator=None)


def shapes() -> st.SearchStrategy[tuple[int, tuple[int, ...]]]:
    return st.tuples(st.integers(2, 300), st.lists(st.integers(1, 20), min_size=1, max_size=3).map(tuple))


@pytest.mark.slow
@given(shapes(), st.integers(0, 2**32), st.booleans(), st.sampled_from(BOTH))
@settings(max_examples=12, deadline=None)
def test_release_without_noise_is_the_second_moment_exactly(
    shape: tuple[int, tuple[int, ...]], seed: int, extreme: bool, bounds: Bounds
) -> None:
    n, widths = shape
    parties = tuple(party_spec(name, *numbers(name, d)) for name, d in zip(NAMES, widths, strict=False))
    random = np.random.default_rng(seed)
    rows = {p.name: random.integers(-ENTRY_LIMIT, ENTRY_LIMIT, (n, len(p.columns)), endpoint=True) for p in parties}
    if extreme:
        rows = {name: np.where(found < 0, -ENTRY_LIMIT, ENTRY_LIMIT) for name, found in rows.items()}
    world = exchanged(spec_of(parties, n=n, bounds=bounds), rows)
    blocks = [world.submit(party.name, no_noise) for party in parties]
    opened = open_matrix(world.exchange.spec.document.terms, assemble(world.exchange.spec.document, blocks))
    assert opened.tolist() == exact(world)


def exact(world: Exchanging) -> list[list[int]]:
    """S in Python integers."""
    spec = world.exchange.spec.document
    columns = [[1 << spec.fraction_bits] * spec.n]
    for name in world.exchange.parties:
        columns += world.rows[name].T.tolist()
    return [[sum(x * y for x, y in zip(left, right, strict=True)) for right in columns] for left in columns]


def test_rows_of_many_blocks_have_exact_moments_too() -> None:
    parties = tuple(party_spec(name, *numbers(name, d)) for name, d in (("clinic", 16), ("lab", 17)))
    random, n = np.random.default_rng(9), 9000
    rows = {p.name: random.integers(-ENTRY_LIMIT, ENTRY_LIMIT, (n, len(p.columns)), endpoint=True) for p in parties}
    world = exchanged(spec_of(parties, n=n), rows)
    assert len(list(world.exchange.layout("clinic").blocks())) > 2
    blocks = [world.submit(name, no_noise) for name in ("clinic", "lab")]
    opened = open_matrix(world.exchange.spec.document.terms, assemble(world.exchange.spec.document, blocks))
    assert np.array_equal(opened, second_moment(world))


def test_own_moments_are_exact_where_sums_exceed_what_a_float_holds() -> None:
    n = (1 << 14) + 3
    rows = {"registry": np.full((n, 1), ENTRY_LIMIT)}
    world = start(spec_of((party_spec("registry", SEX),), n=n), rows)
    found = own_moments(world.exchange, party="registry", rows=world.side("registry").rows)
    assert found.tolist() == [[n * ENTRY_LIMIT << 14], [n * ENTRY_LIMIT**2]]


def test_a_party_uploads_nothing_in_the_rows_of_parties_before_it(world: Exchanging) -> None:
    at = places(SPEC.terms)
    block = world.submit("lab", seeded_noise(4))
    assert not block[at["clinic"]].any()
    assert block[at["lab"]].all()
    assert block[at["registry"]].all()


def test_opened_entries_read_back_as_signed_up_to_the_correctness_bound() -> None:
    spec = spec_of(THREE[2:], n=2)
    for value in (2**63 - 1, -(2**63), 0, -1):
        matrix = np.array([[0, value], [0, value]])
        assert open_matrix(spec.terms, matrix)[0, 1] == value


def test_entry_farther_out_than_data_and_noise_is_refused_and_one_at_the_limit_is_not() -> None:
    spec = spec_of(THREE[:2], n=50)
    sigmas = [plan.sigma for plan in plan_blocks(spec)]
    matrix = np.zeros((len(spec.matrix_columns),) * 2, np.int64)
    clinic, lab = (place.start for place in places(spec.terms).values())
    for sign in (1, -1):
        matrix[clinic, lab] = sign * (50 * 4**14 + 13 * sum(sigmas))
        second_moments(spec, RELEASE, matrix)
        matrix[clinic, lab] += sign
        with pytest.raises(VerificationError, match="not moments of such data"):
            second_moments(spec, RELEASE, matrix)
    asymmetric = np.zeros_like(matrix)
    asymmetric[clinic, clinic + 1] = 1
    with pytest.raises(VerificationError, match="not moments of such data"):
        second_moments(spec, RELEASE, asymmetric)


# --- what is made once ----------------------------------------------------------------------------------------------


def counting(entropy: Callable[[int], bytes]) -> tuple[Callable[[int], bytes], list[int]]:
    """The same entropy, and what it was asked for."""
    asked: list[int] = []

    def read(count: int) -> bytes:
        asked.append(count)
        return entropy(count)

    return read, asked


def zeros_for(world: Exchanging) -> Callable[[str], Block]:
    """No noise, for the registry's reply."""
    return lambda owner: np.zeros((world.exchange.width(owner), 1), np.int64)


def test_a_message_reads_one_key_of_entropy_and_another_key_makes_another_message(either: Exchanging) -> None:
    """So a retry must send what was stored: a message made again is another one, about the same rows."""
    makers: tuple[Callable[[Callable[[int], bytes]], bytes], ...] = (
        lambda entropy: either.side("clinic").columns(entropy),
        lambda entropy: either.reply_body("registry", zeros_for(either), entropy=entropy),
    )
    proofs = (sum(column_proofs(either.exchange.layout("clinic"))), sum(map(len, either.answered("registry").proofs)))
    for make, proof in zip(makers, proofs if either.exchange.proved else (0, 0), strict=True):
        entropy, asked = counting(seeded(1))
        first = make(entropy)
        assert asked == [32]
        assert make(seeded(1)) == first
        again, said = make(seeded(2)), len(first) - proof
        other = np.frombuffer(again[:said], "<u4") != np.frombuffer(first[:said], "<u4")
        assert other.mean() > 0.9, "errors are seldom the same, and floods never"
        assert again[said:] != first[said:] or not proof


def test_the_last_party_encrypts_nothing_and_the_first_replies_nothing(either: Exchanging) -> None:
    entropy, asked = counting(seeded(1))
    assert either.side("registry").columns(entropy) == b""
    assert asked == []
    assert either.answers["clinic"] == b""
    assert either.exchange.columns_size("registry") == either.exchange.reply_size("clinic") == 0


@pytest.mark.parametrize("bounds", BOTH)
def test_columns_go_to_those_after_their_party_and_where_they_are_proved_to_those_before_too(bounds: Bounds) -> None:
    """A proof of replies is about all columns that they are made of. Of the last there are none."""
    exchange = start(spec_of(bounds=bounds)).exchange
    first, second, last = exchange.parties
    found = {name: exchange.senders(name) for name in exchange.parties}
    others = {first: (first, second), second: (first, second)} if exchange.proved else {first: (first,)}
    assert found == {first: (first,), second: (first, second), last: (first, second, last)} | others


@pytest.mark.parametrize("bounds", [None, *BOTH])
def test_messages_have_the_sizes_and_places_that_follow_from_the_spec(bounds: Bounds | None) -> None:
    world = exchanged(spec_of(n=60, bounds=bounds))
    exchange = world.exchange
    assert exchange.proved == (bounds == "proved")
    for name in NAMES:
        assert len(world.bodies[name]) == exchange.columns_size(name)
        assert len(world.answers[name]) == exchange.reply_size(name)
        reply, owners = world.answered(name), exchange.owners(name)
        pieces = [piece for owner in owners for piece in reply.columns(owner)]
        for owner in owners:
            assert len(reply.columns(owner)) == exchange.width(name)
            assert sum(map(len, reply.columns(owner))) == exchange.part_size(owner, name)
        pieces += reply.proofs if exchange.proved and owners else ()
        assert b"".join(pieces) == world.answers[name]
        if world.bodies[name]:
            sent = world.sent(name)
            parts = [piece for segment in sent.segments() for piece in (*segment.blocks, *segment.proof)]
            assert b"".join([sent.public_key, *parts]) == world.bodies[name]


def test_no_two_owners_releases_or_sets_of_approvals_share_a_layout(world: Exchanging) -> None:
    others = (world, start(spec_of(n=4099)), start(SPEC, head="11" * 32))
    labels = {other.exchange.layout(name).label for other in others for name in NAMES}
    assert len(labels) == len(others) * len(NAMES)


# --- who is named for what ------------------------------------------------------------------------------------------


def test_messages_are_read_from_files_as_they_are_from_memory(either: Exchanging, tmp_path: Path) -> None:
    exchange, files = either.exchange, ExchangeFiles(tmp_path)
    files.put("release", "columns", [either.bodies["clinic"]])
    files.put("release", "reply", [either.answers["registry"]])
    with ExitStack() as held:
        sizes = exchange.columns_size("clinic"), exchange.reply_size("registry")
        columns = files.view(held, "release", "columns", sender="clinic", size=sizes[0])
        reply = files.view(held, "release", "reply", sender="registry", size=sizes[1])
        sent = {"clinic": either.sent("clinic", columns)}
        assert either.reply_body("registry", zeros_for(either), columns=sent) == either.answers["registry"]
        if exchange.proved:
            verify_bounds(sent["clinic"])
            verify_reply(either.answered("registry", reply), {**sent, "registry": either.sent("registry")})
        expected = either.rows["clinic"].T @ either.rows["registry"]
        assert np.array_equal(either.open("clinic", "registry", reply), expected)


def test_evaluators_part_for_ciphertexts_of_another_release_opens_beyond_the_bound() -> None:
    """What an evaluator computes with other ciphertexts than the owner's is noise of the whole modulus to the owner."""
    either = exchanged_pair("trusted")
    spec = either.exchange.spec.document.model_copy(update={"n": 299})
    other = exchanged(spec, {n: rows[:299] for n, rows in either.rows.items()})
    with pytest.raises(DeviationError, match="beyond its bound") as refused:
        either.open("clinic", "registry", other.answers["registry"])
    assert refused.value.party == "registry"


def test_part_for_another_owners_key_opens_beyond_the_bound() -> None:
    parties = (party_spec("clinic", *NUMBERS), party_spec("lab", *numbers("lab", 2)), party_spec("registry", SEX))
    world = exchanged(spec_of(parties, n=50))
    for_clinic, for_lab = (b"".join(world.answered("registry").columns(owner)) for owner in ("clinic", "lab"))
    with pytest.raises(DeviationError, match="beyond its bound") as refused:
        world.open("clinic", "registry", for_lab + for_clinic)
    assert refused.value.party == "registry"


@pytest.mark.parametrize("sign", [-1, 1])
def test_part_that_opens_at_the_bound_is_read_and_one_beyond_is_refused_where_nothing_is_proved(sign: int) -> None:
    world = exchanged_pair("trusted")
    products = world.rows["clinic"].T @ world.rows["registry"]
    for beyond in (0, 1):
        noise = sign * (world.side("clinic").largest("registry") + beyond) - products
        body = world.reply_body("registry", lambda _, noise=noise: noise)  # type: ignore[misc] # of this very run
        if beyond:
            with pytest.raises(DeviationError, match="beyond its bound") as refused:
                world.open("clinic", "registry", body)
            assert refused.value.party == "registry"
        else:
            assert np.array_equal(world.open("clinic", "registry", body), products + noise)


@pytest.mark.parametrize("chosen", [-(2**62) + 1, 2**40, 2**62 - 1])
def test_noise_that_a_proving_evaluator_chose_never_ends_a_release(chosen: int) -> None:
    """Whether a limit is passed is one bit of the owner's rows without noise, so that there is none."""
    world = exchanged_pair("proved")
    products = world.rows["clinic"].T @ world.rows["registry"]
    noise = np.full(products.shape, chosen)
    body = world.reply_body("registry", lambda _: noise)
    verify_reply(world.answered("registry", body), {name: world.sent(name) for name in world.exchange.parties})
    assert np.array_equal(world.open("clinic", "registry", body), products + noise)


@pytest.mark.parametrize("bounds", BOTH)
def test_largest_noise_on_the_largest_products_is_not_refused(bounds: Bounds) -> None:
    rows = {"clinic": np.full((300, 2), ENTRY_LIMIT), "registry": np.full((300, 1), ENTRY_LIMIT)}
    world = start(PAIR.model_copy(update={"bounds": bounds}), rows)
    for name in rows:
        world.encrypt(name)
    most = cross_noise(
        PAIR.terms,
        PAIR.party("registry"),
        2,
        sigma=world.side("registry").sigma,
        draw=lambda scale, count: np.full(count, 13 * scale),
    )
    opened = world.open("clinic", "registry", world.reply_body("registry", lambda _: most))
    assert np.array_equal(opened, 300 * ENTRY_LIMIT**2 + most)


@given(st.binary(max_size=300), st.sampled_from(BOTH))
@settings(max_examples=40, deadline=None)
def test_arbitrary_bytes_are_their_senders_deviation(data: bytes, bounds: Bounds) -> None:
    world = exchanged_pair(bounds)
    with pytest.raises(DeviationError, match="clinic"):
        world.reply_body("registry", zeros_for(world), columns={"clinic": world.sent("clinic", data)})
    with pytest.raises(DeviationError, match="registry"):
        world.open("clinic", "registry", data)
    if world.exchange.proved:
        with pytest.raises(DeviationError, match="clinic"):
            verify_bounds(world.sent("clinic", data))
        with pytest.raises(DeviationError, match="registry"):
            verify_reply(world.answered("registry", data), {name: world.sent(name) for name in world.exchange.parties})


# --- what nobody sees -----------------------------------------------------------------------------------------------


def test_no_row_and_no_key_is_in_anything_that_is_sent(either: Exchanging) -> None:
    """In the clear, that is; why it cannot be computed either is the proofs' to say, and the traps' of the ring."""
    sent = [*either.bodies.values(), *either.answers.values()]
    sent += [envelope.to_json() for found in (either.columns, either.replies) for envelope in found.values()]
    for name, rows in either.rows.items():
        for kind in ("<i2", "<i4", "<i8"):
            secret = rows.astype(kind)[:8].tobytes()
            assert not any(secret in message for message in sent)
        assert not any(either.seeds[name] in message for message in sent)


def looks_uniform(words: bytes) -> bool:
    """Chi-square over the values of each byte of residues; a uniform source fails with probability 1e-9."""
    residues = np.frombuffer(words, "<u4")
    found = [np.bincount((residues >> shift) & 0xFF, minlength=256) for shift in (0, 8, 16)]
    found.append(np.bincount(residues >> 24, minlength=128))
    return all(bool(stats.chisquare(counts).pvalue > 1e-9 / 4) for counts in found)


@pytest.mark.parametrize("bounds", BOTH)
def test_ciphertexts_and_replies_of_extreme_tables_look_uniform_to_everybody_else(bounds: Bounds) -> None:
    """What proofs show besides is in tests/shared/proving/test_zero_knowledge.py."""
    rows = {"clinic": np.full((300, 2), ENTRY_LIMIT), "registry": np.full((300, 1), -ENTRY_LIMIT)}
    world = exchanged(PAIR.model_copy(update={"bounds": bounds}), rows)
    assert looks_uniform(b"".join([world.sent("clinic").public_key, *world.sent("clinic").blocks]))
    assert looks_uniform(b"".join(world.answered("registry").columns("clinic")))
    assert not looks_uniform(rows["clinic"].astype("<u4").tobytes())
