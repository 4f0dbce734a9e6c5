"""The whole exchange: what comes out, what is refused and who is named for it, what is signed."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from hashlib import sha256
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from commingle.shared.documents.errors import (
    DeviationError,
    DocumentError,
    ExchangeError,
    SignatureError,
    SpecError,
    VerificationError,
)
from commingle.shared.documents.spec import PartySpec
from commingle.shared.errors import CommingleError
from commingle.shared.mechanisms.moments.block import MOMENTS, block_noise, cross_noise, open_matrix, places
from commingle.shared.mechanisms.moments.exchange.documents import (
    columns_digest,
    open_columns,
    open_reply_statement,
    recorded_transcript,
)
from commingle.shared.mechanisms.moments.exchange.products import Received
from commingle.shared.mechanisms.moments.exchange.submission import own_moments
from commingle.shared.release.matrix import assemble
from commingle.shared.release.plan import plan_blocks
from commingle.shared.release.verification import verify_release
from commingle.shared.ring.layout import Layout, byte_count
from commingle.shared.ring.parameters import ENTRY_LIMIT
from tests.shared.mechanisms.moments.exchange.world import (
    KEYS,
    NAMES,
    NUMBERS,
    SEX,
    STAGED,
    THREE,
    WHITENED,
    World,
    exchanged,
    numbers,
    party_spec,
    published,
    received,
    second_moment,
    silence,
    spec_of,
    start,
)
from tests.world.noise import seeded_noise
from tests.world.ring import seeded

SPEC = spec_of()
PAIR = spec_of((party_spec("clinic", *NUMBERS), party_spec("registry", SEX)), n=300)
PRIMES = Layout(b"", 1, 1).parameters.primes


@pytest.fixture(scope="module")
def world() -> World:
    return exchanged(SPEC, draw=seeded_noise(3))


@cache
def exchanged_pair() -> World:
    return exchanged(PAIR)


@pytest.fixture
def pair() -> World:
    return exchanged_pair()


# --- what comes out -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parties", [THREE, WHITENED, STAGED], ids=["plain", "whitened", "two stages"])
def test_opened_matrix_is_the_second_moment_plus_exactly_the_parties_noise(parties: tuple[PartySpec, ...]) -> None:
    spec = spec_of(parties)
    world = exchanged(spec, draw=seeded_noise(3))
    blocks = {name: world.submission(name, seeded_noise([4, i])) for i, name in enumerate(NAMES)}
    expected, at = second_moment(world), places(spec)
    for i, party in enumerate(spec.parties):
        later = world.exchange.evaluators(party.name)
        noise = block_noise(spec, party, sigma=world.sigma(party.name), draw=seeded_noise([4, i]), others=later)
        own = at[party.name]
        expected[:, own] += noise
        expected[own] += noise.T
        expected[own, own] -= noise[own].T
    for (owner, evaluator), noise in world.noises.items():
        expected[at[owner], at[evaluator]] += noise
        expected[at[evaluator], at[owner]] += noise.T
    matrix = assemble(spec, [blocks[name] for name in NAMES])
    assert np.array_equal(open_matrix(spec, matrix), expected)
    found = MOMENTS.moments(spec, [plan.sigma for plan in plan_blocks(spec)], matrix)
    np.testing.assert_array_equal(found.gram, expected / 4**14)


def test_whitened_release_verifies_under_the_names_of_its_mixtures() -> None:
    world = exchanged(spec_of(WHITENED), draw=seeded_noise(3))
    blocks = {name: world.submission(name, seeded_noise(4)) for name in NAMES}
    checked = verify_release(
        *published(world, blocks, dict.fromkeys(NAMES, world.transcript())), trusted_coordinator=None
    )
    mixtures = ("whitened[age]", "whitened[bmi]", "whitened[blood=A]", "whitened[blood=B]", "whitened[blood=AB]")
    assert checked.moments.columns == ("(intercept)", *mixtures, "sex")


def test_published_release_verifies_and_other_transcripts_do_not(world: World) -> None:
    blocks = {name: world.submission(name, seeded_noise(4)) for name in NAMES}
    seen = world.transcript()
    checked = verify_release(*published(world, blocks, dict.fromkeys(NAMES, seen)), trusted_coordinator=None)
    assert checked.moments.gram[0][0] == SPEC.n
    assert "The coordinator need not be trusted with rows." in checked.manifest.privacy.trust
    for transcripts in ({**dict.fromkeys(NAMES, seen), "lab": "11" * 32}, {}, {"clinic": seen, "lab": seen}):
        with pytest.raises(VerificationError, match="one exchange"):
            verify_release(*published(world, blocks, transcripts), trusted_coordinator=None)


def test_release_of_two_stages_verifies_with_the_sums_that_were_signed_with_the_columns() -> None:
    world = exchanged(spec_of(STAGED), draw=seeded_noise(3))
    blocks = {name: world.submission(name, seeded_noise(4)) for name in NAMES}
    files = published(world, blocks, dict.fromkeys(NAMES, world.transcript()))
    checked = verify_release(*files, trusted_coordinator=None)
    signed = {name: open_columns(world.exchange, world.columns[name], name).document.sums for name in NAMES}
    assert dict(checked.sums) == {name: sums for name, sums in signed.items() if sums is not None}
    assert {name: sums is None for name, sums in signed.items()} == {"clinic": False, "lab": True, "registry": False}


def shapes() -> st.SearchStrategy[tuple[int, tuple[int, ...]]]:
    return st.tuples(st.integers(2, 300), st.lists(st.integers(1, 20), min_size=1, max_size=3).map(tuple))


@given(shapes(), st.integers(0, 2**32), st.booleans())
@settings(max_examples=12, deadline=None)
def test_release_without_noise_is_the_second_moment_exactly(
    shape: tuple[int, tuple[int, ...]], seed: int, extreme: bool
) -> None:
    n, widths = shape
    parties = tuple(party_spec(name, *numbers(name, d)) for name, d in zip(NAMES, widths, strict=False))
    random = np.random.default_rng(seed)
    rows = {p.name: random.integers(-ENTRY_LIMIT, ENTRY_LIMIT, (n, len(p.columns)), endpoint=True) for p in parties}
    if extreme:
        rows = {name: np.where(found < 0, -ENTRY_LIMIT, ENTRY_LIMIT) for name, found in rows.items()}
    world = exchanged(spec_of(parties, n=n), rows)
    blocks = [world.submission(party.name, silence) for party in parties]
    opened = open_matrix(world.spec.document, assemble(world.spec.document, blocks))
    assert opened.tolist() == exact(world)


def exact(world: World) -> list[list[int]]:
    """S in Python integers."""
    spec = world.spec.document
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
    blocks = [world.submission(name, silence) for name in ("clinic", "lab")]
    opened = open_matrix(world.spec.document, assemble(world.spec.document, blocks))
    assert np.array_equal(opened, second_moment(world))


def test_own_moments_are_exact_where_sums_exceed_what_a_float_holds() -> None:
    n = (1 << 14) + 3
    rows = {"registry": np.full((n, 1), ENTRY_LIMIT)}
    world = start(spec_of((party_spec("registry", SEX),), n=n), rows)
    found = own_moments(world.exchange, party="registry", rows=world.rows_of("registry"))
    assert found.tolist() == [[n * ENTRY_LIMIT << 14], [n * ENTRY_LIMIT**2]]


def test_a_party_uploads_nothing_in_the_rows_of_parties_before_it(world: World) -> None:
    at = places(SPEC)
    block = world.submission("lab", seeded_noise(4))
    assert not block[at["clinic"]].any()
    assert block[at["lab"]].all()
    assert block[at["registry"]].all()


def test_opened_entries_read_back_as_signed_up_to_the_correctness_bound() -> None:
    spec = spec_of(THREE[2:], n=2)
    for value in (2**63 - 1, -(2**63), 0, -1):
        matrix = np.array([[0, value], [0, value]])
        assert open_matrix(spec, matrix)[0, 1] == value


def test_entry_farther_out_than_data_and_noise_is_refused_and_one_at_the_limit_is_not() -> None:
    spec = spec_of(THREE[:2], n=50)
    sigmas = [plan.sigma for plan in plan_blocks(spec)]
    matrix = np.zeros((len(spec.columns),) * 2, np.int64)
    clinic, lab = (place.start for place in places(spec).values())
    for sign in (1, -1):
        matrix[clinic, lab] = sign * (50 * 4**14 + 13 * sum(sigmas))
        MOMENTS.moments(spec, sigmas, matrix)
        matrix[clinic, lab] += sign
        with pytest.raises(VerificationError, match="no moments of such data"):
            MOMENTS.moments(spec, sigmas, matrix)
    asymmetric = np.zeros_like(matrix)
    asymmetric[clinic, clinic + 1] = 1
    with pytest.raises(VerificationError, match="no moments of such data"):
        MOMENTS.moments(spec, sigmas, asymmetric)


# --- what is made once ----------------------------------------------------------------------------------------------


def counting(entropy: Callable[[int], bytes]) -> tuple[Callable[[int], bytes], list[int]]:
    """The same entropy, and what it was asked for."""
    asked: list[int] = []

    def read(count: int) -> bytes:
        asked.append(count)
        return entropy(count)

    return read, asked


def test_a_message_reads_one_key_of_entropy_and_another_key_makes_another_message(pair: World) -> None:
    """So a retry must send what was stored: a message made again is another one, about the same rows."""
    zero = np.zeros((2, 1), np.int64)
    makers: tuple[Callable[[Callable[[int], bytes]], bytes], ...] = (
        lambda entropy: pair.ciphertexts("clinic", entropy),
        lambda entropy: pair.part("clinic", "registry", zero, entropy=entropy),
    )
    for make in makers:
        entropy, asked = counting(seeded(1))
        first = make(entropy)
        assert asked == [32]
        assert make(seeded(1)) == first
        other = np.frombuffer(make(seeded(2)), "<u4") != np.frombuffer(first, "<u4")
        assert other.mean() > 0.9, "errors are seldom the same, and floods never"


def test_the_last_party_encrypts_nothing_and_the_first_replies_nothing(world: World) -> None:
    entropy, asked = counting(seeded(1))
    assert world.ciphertexts("registry", entropy) == b""
    assert asked == []
    assert world.parts["clinic"] == {}
    assert world.exchange.columns_size("registry") == world.exchange.reply_size("clinic") == 0


def test_messages_have_the_sizes_and_places_that_follow_from_the_spec(world: World) -> None:
    exchange = world.exchange
    for name in NAMES:
        assert len(world.bodies[name]) == exchange.columns_size(name)
        whole = b"".join(world.parts[name].values())
        assert len(whole) == exchange.reply_size(name)
        for owner, part in world.parts[name].items():
            offset, size = exchange.part_place(owner, name)
            assert whole[offset : offset + size] == part


def test_no_two_owners_releases_or_sets_of_approvals_share_a_layout(world: World) -> None:
    others = (world, start(spec_of(n=4099)), start(SPEC, head="11" * 32))
    labels = {other.exchange.layout(name).label for other in others for name in NAMES}
    assert len(labels) == len(others) * len(NAMES)


# --- who is named for what ------------------------------------------------------------------------------------------


def unreduced(body: bytes, at: int, plane: int = 0) -> bytes:
    """With one residue of a plane that is not below its prime."""
    return body[:at] + PRIMES[plane].to_bytes(4, "little") + body[at + 4 :]


COLUMNS_FAULTS: Mapping[str, Callable[[bytes], bytes]] = {
    "unreduced residue in the key": lambda body: unreduced(body, 0),
    "unreduced residue in a block": lambda body: unreduced(body, byte_count((5, 8192))),
    "last residue not below the last prime": lambda body: unreduced(body, len(body) - 4, 4),
    "a word less": lambda body: body[:-4],
    "a word more": lambda body: body + bytes(4),
    "no block": lambda body: body[: byte_count((5, 8192))],
    "half of the key": lambda body: body[:1000],
    "nothing": lambda _: b"",
}
PART_FAULTS: Mapping[str, Callable[[bytes], bytes]] = {
    "unreduced residue": lambda body: unreduced(body, 0),
    "last residue not below its prime": lambda body: unreduced(body, len(body) - 4, 2),
    "a word less": lambda body: body[:-4],
    "a word more": lambda body: body + bytes(4),
    "another word in what is opened": lambda body: body[:-4] + bytes(4),
    "nothing": lambda _: b"",
}


@pytest.mark.parametrize("fault", COLUMNS_FAULTS)
def test_columns_that_are_no_ciphertexts_are_their_owners_deviation_if_signed_and_altered_if_not(
    pair: World, fault: str
) -> None:
    zero, wrong = np.zeros((2, 1), np.int64), COLUMNS_FAULTS[fault](pair.bodies["clinic"])
    with pytest.raises(DeviationError, match="clinic") as refused:
        pair.part("clinic", "registry", zero, body=received(wrong, "clinic"))
    assert refused.value.party == "clinic"
    with pytest.raises(ExchangeError, match="what clinic sent was altered") as altered:
        pair.part("clinic", "registry", zero, body=received(wrong, "clinic", signed=pair.bodies["clinic"]))
    assert not isinstance(altered.value, DeviationError)


@pytest.mark.parametrize("fault", PART_FAULTS)
def test_part_that_is_no_reply_is_its_evaluators_deviation_if_signed_and_altered_if_not(
    pair: World, fault: str
) -> None:
    whole = pair.parts["registry"]["clinic"]
    wrong = PART_FAULTS[fault](whole)
    with pytest.raises(DeviationError, match="registry") as refused:
        pair.open("clinic", "registry", received(wrong, "registry"))
    assert refused.value.party == "registry"
    with pytest.raises(ExchangeError, match="what registry sent was altered") as altered:
        pair.open("clinic", "registry", received(wrong, "registry", signed=whole))
    assert not isinstance(altered.value, DeviationError)


@pytest.mark.parametrize("at", [0, 4 * 8192 * 3 + 5, byte_count((5, 8192)) + 11, -1])
def test_one_flipped_bit_on_the_way_is_altered_and_nothing_is_replied(pair: World, at: int) -> None:
    whole = pair.bodies["clinic"]
    body = bytearray(whole)
    body[at] ^= 1
    with pytest.raises(ExchangeError, match="altered"):
        pair.part("clinic", "registry", np.zeros((2, 1), np.int64), body=received(bytes(body), "clinic", signed=whole))


def test_evaluators_part_for_ciphertexts_of_another_release_opens_beyond_the_bound(pair: World) -> None:
    """What an evaluator computes with other ciphertexts than the owner's is noise of the whole modulus to the owner."""
    other = exchanged(spec_of(PAIR.parties, n=299), {n: rows[:299] for n, rows in pair.rows.items()})
    with pytest.raises(DeviationError, match="beyond its bound") as refused:
        pair.open("clinic", "registry", received(other.parts["registry"]["clinic"], "registry"))
    assert refused.value.party == "registry"


def test_part_for_another_owners_key_opens_beyond_the_bound() -> None:
    parties = (party_spec("clinic", *NUMBERS), party_spec("lab", *numbers("lab", 2)), party_spec("registry", SEX))
    world = exchanged(spec_of(parties, n=50))
    with pytest.raises(DeviationError, match="beyond its bound") as refused:
        world.open("clinic", "registry", received(world.parts["registry"]["lab"], "registry"))
    assert refused.value.party == "registry"


@pytest.mark.parametrize("sign", [-1, 1])
def test_part_that_opens_at_the_bound_is_read_and_one_beyond_is_refused(pair: World, sign: int) -> None:
    products = pair.rows["clinic"].T @ pair.rows["registry"]
    for beyond in (0, 1):
        noise = sign * (pair.largest("registry") + beyond) - products
        body = received(pair.part("clinic", "registry", noise), "registry")
        if beyond:
            with pytest.raises(DeviationError, match="beyond its bound") as refused:
                pair.open("clinic", "registry", body)
            assert refused.value.party == "registry"
        else:
            assert np.array_equal(pair.open("clinic", "registry", body), products + noise)


def test_largest_noise_on_the_largest_products_is_not_refused() -> None:
    rows = {"clinic": np.full((300, 2), ENTRY_LIMIT), "registry": np.full((300, 1), ENTRY_LIMIT)}
    world = start(PAIR, rows)
    world.encrypt("clinic")
    most = cross_noise(
        PAIR,
        PAIR.party("registry"),
        2,
        sigma=world.sigma("registry"),
        draw=lambda scale, count: np.full(count, 13 * scale),
    )
    opened = world.open("clinic", "registry", received(world.part("clinic", "registry", most), "registry"))
    assert np.array_equal(opened, 300 * ENTRY_LIMIT**2 + most)


@given(st.lists(st.integers(1, 200_000), max_size=12), st.integers(1, 500_000))
@settings(max_examples=15, deadline=None)
def test_bytes_may_come_in_pieces_of_any_sizes(cuts: list[int], size: int) -> None:
    world = exchanged_pair()
    whole = world.bodies["clinic"]
    edges = sorted({0, len(whole), *(cut % len(whole) for cut in cuts)})
    pieces = [whole[a:b] for a, b in pairwise(edges)]
    body = Received([b"", *pieces, b""], sender="clinic", signed=sha256(whole).hexdigest())
    part = world.part("clinic", "registry", np.zeros((2, 1), np.int64), body=body)
    assert part == world.parts["registry"]["clinic"]
    expected = world.rows["clinic"].T @ world.rows["registry"]
    assert np.array_equal(world.open("clinic", "registry", received(part, "registry", size=size)), expected)


def test_pieces_in_another_order_are_altered(pair: World) -> None:
    whole = pair.bodies["clinic"]
    key = byte_count((5, 8192))
    body = Received([whole[key:], whole[:key]], sender="clinic", signed=sha256(whole).hexdigest())
    with pytest.raises(ExchangeError, match="altered"):
        pair.part("clinic", "registry", np.zeros((2, 1), np.int64), body=body)


@given(st.binary(max_size=300), st.booleans())
@settings(max_examples=40, deadline=None)
def test_arbitrary_bytes_raise_only_our_errors(data: bytes, signed: bool) -> None:
    world = exchanged_pair()
    whole = None if signed else b"something else"
    with pytest.raises(CommingleError):
        world.part("clinic", "registry", np.zeros((2, 1), np.int64), body=received(data, "clinic", signed=whole))
    with pytest.raises(CommingleError):
        world.open("clinic", "registry", received(data, "registry", signed=whole))


# --- what is signed -------------------------------------------------------------------------------------------------


def test_columns_signed_by_another_or_for_others_are_refused(world: World) -> None:
    with pytest.raises(SignatureError):
        open_columns(world.exchange, world.signed_columns("clinic", KEYS["lab"]), "clinic")
    with pytest.raises(DocumentError, match="another release or party"):
        open_columns(world.exchange, world.signed_columns("clinic", KEYS["lab"]), "lab")
    with pytest.raises(DocumentError, match="another release or party"):
        open_columns(world.exchange, world.signed_columns("clinic", spec="11" * 32), "clinic")
    with pytest.raises(DocumentError, match="another set of approvals"):
        open_columns(world.exchange, world.signed_columns("clinic", approvals="11" * 32), "clinic")
    again = start(SPEC, head="11" * 32)
    with pytest.raises(DocumentError, match="another set of approvals"):
        open_columns(again.exchange, world.columns["clinic"], "clinic")
    assert open_columns(world.exchange, world.columns["clinic"], "clinic").envelope == world.columns["clinic"]


@pytest.mark.parametrize(
    ("party", "sums"), [("clinic", None), ("clinic", (1, 2, 3)), ("clinic", (1,) * 5), ("lab", (1,))]
)
def test_columns_without_the_sums_of_their_first_stage_are_refused(party: str, sums: tuple[int, ...] | None) -> None:
    staged = start(spec_of(STAGED, n=400))
    staged.bodies[party] = b""
    with pytest.raises(DocumentError, match="sums of its first stage"):
        open_columns(staged.exchange, staged.signed_columns(party, sums=sums), party)
    open_columns(staged.exchange, staged.signed_columns(party), party)


def test_reply_signed_by_another_or_not_to_every_party_before_is_refused(world: World) -> None:
    with pytest.raises(SignatureError):
        open_reply_statement(world.exchange, world.signed_reply("lab", KEYS["clinic"]), "lab")
    with pytest.raises(DocumentError, match="another release or party"):
        open_reply_statement(world.exchange, world.signed_reply("lab", KEYS["registry"]), "registry")
    with pytest.raises(DocumentError, match="another release or party"):
        open_reply_statement(world.exchange, world.signed_reply("lab", spec="11" * 32), "lab")
    digest = "11" * 32
    for parts in ({}, {"clinic": digest, "lab": digest}, {"clinic": digest, "registry": digest}, {"lab": digest}):
        with pytest.raises(DocumentError, match="every party before it"):
            open_reply_statement(world.exchange, world.signed_reply("lab", parts=parts), "lab")


def test_nobody_agrees_before_all_columns_and_replies_are_there(world: World) -> None:
    for missing in NAMES:
        columns = {name: sent for name, sent in world.columns.items() if name != missing}
        replies = {name: sent for name, sent in world.replies.items() if name != missing}
        with pytest.raises(ExchangeError, match=f"no columns by {missing}"):
            columns_digest(world.exchange, columns)
        for changes in ({"columns": columns}, {"replies": replies}):
            with pytest.raises(ExchangeError, match=f"by {missing} yet"):
                replace(world, **changes).transcript()  # type: ignore[arg-type] # either is of its field


def test_columns_of_a_stranger_are_refused(world: World) -> None:
    with pytest.raises(SpecError, match="stranger is not a party"):
        columns_digest(world.exchange, {**world.columns, "stranger": world.columns["lab"]})


def test_party_that_was_shown_other_columns_is_found_out(world: World) -> None:
    """A coordinator or party that shows two sets of columns, each well signed: the replies to them do not agree."""
    other = replace(world, columns={**world.columns, "clinic": world.signed_columns("clinic", body_sha256="11" * 32)})
    mixed = {**world.replies, "registry": other.signed_reply("registry")}
    for columns, named in ((world.columns, "registry"), (other.columns, "clinic")):
        with pytest.raises(ExchangeError, match=f"{named} was shown other columns"):
            replace(world, columns=columns, replies=mixed).transcript()


def test_digests_and_transcript_change_with_everything_they_stand_for(world: World) -> None:
    staged = start(spec_of(STAGED, n=400))
    staged.bodies = dict.fromkeys(NAMES, b"")
    sums = staged.sums["clinic"]
    assert sums is not None
    seen = {columns_digest(staged.exchange, {n: staged.signed_columns(n) for n in NAMES})}
    others = {n: staged.signed_columns(n) for n in ("lab", "registry")}
    changed = staged.signed_columns("clinic", sums=(sums[0] + 1, *sums[1:]))
    seen.add(columns_digest(staged.exchange, {"clinic": changed, **others}))
    seen |= {columns_digest(world.exchange, world.columns), world.transcript()}
    for name in NAMES:
        columns = {**world.columns, name: world.signed_columns(name, body_sha256="11" * 32)}
        seen.add(columns_digest(world.exchange, columns))
        agreed = replace(world, columns=columns)
        seen.add(replace(agreed, replies={n: agreed.signed_reply(n) for n in NAMES}).transcript())
        replies = {**world.replies, name: world.signed_reply(name, body_sha256="11" * 32)}
        seen.add(replace(world, replies=replies).transcript())
    parts = dict.fromkeys(["clinic"], "11" * 32)
    seen.add(replace(world, replies={**world.replies, "lab": world.signed_reply("lab", parts=parts)}).transcript())
    again = start(SPEC, head="11" * 32)
    again.bodies, again.parts = world.bodies, world.parts
    again.columns = {n: again.signed_columns(n) for n in NAMES}
    seen.add(replace(again, replies={n: again.signed_reply(n) for n in NAMES}).transcript())
    assert len(seen) == 4 + 3 * 3 + 2


def test_transcript_of_a_coordinators_history_is_the_one_that_is_signed(world: World) -> None:
    columns, replies = ({n: sent.digest for n, sent in found.items()} for found in (world.columns, world.replies))
    assert recorded_transcript(world.exchange, columns=columns, replies=replies) == world.transcript()
    for kind, name in ((kind, name) for kind in ("columns", "replies") for name in NAMES):
        other: dict[str, dict[str, str]] = {"columns": dict(columns), "replies": dict(replies)}
        other[kind][name] = "11" * 32
        assert recorded_transcript(world.exchange, **other) != world.transcript()
        del other[kind][name]
        assert recorded_transcript(world.exchange, **other) != world.transcript()


def test_release_of_a_kind_without_an_exchange_has_none() -> None:
    with pytest.raises(ExchangeError, match="needs no exchange"):
        start(spec_of(mechanism="dgm", fraction_bits=15))


# --- what nobody sees -----------------------------------------------------------------------------------------------


def test_no_row_and_no_key_is_in_anything_that_is_sent(pair: World) -> None:
    """In the clear, that is; why it cannot be computed either is the proof's to say, and the traps' of the ring."""
    sent = [*pair.bodies.values(), *(part for parts in pair.parts.values() for part in parts.values())]
    sent += [envelope.to_json() for found in (pair.columns, pair.replies) for envelope in found.values()]
    for name, rows in pair.rows.items():
        for kind in ("<i2", "<i4", "<i8"):
            secret = rows.astype(kind)[:8].tobytes()
            assert not any(secret in message for message in sent)
        assert not any(pair.ring_seed(name) in message for message in sent)


def looks_uniform(words: bytes) -> bool:
    """Chi-square over the values of each byte of residues; a uniform source fails with probability 1e-9."""
    residues = np.frombuffer(words, "<u4")
    found = [np.bincount((residues >> shift) & 0xFF, minlength=256) for shift in (0, 8, 16)]
    found.append(np.bincount(residues >> 24, minlength=128))
    return all(bool(stats.chisquare(counts).pvalue > 1e-9 / 4) for counts in found)


def test_ciphertexts_and_replies_of_extreme_tables_look_uniform_to_everybody_else() -> None:
    rows = {"clinic": np.full((300, 2), ENTRY_LIMIT), "registry": np.full((300, 1), -ENTRY_LIMIT)}
    world = exchanged(PAIR, rows)
    assert looks_uniform(world.bodies["clinic"])
    assert looks_uniform(world.parts["registry"]["clinic"])
    assert not looks_uniform(rows["clinic"].astype("<u4").tobytes())


def test_received_bytes_do_not_show_in_a_repr() -> None:
    assert "secret" not in repr(Received([b"secret"], sender="clinic", signed="11" * 32))
