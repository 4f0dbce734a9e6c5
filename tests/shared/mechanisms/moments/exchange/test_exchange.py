"""The whole exchange: what comes out, what each attack meets, what each onlooker sees."""

from dataclasses import replace
from hashlib import sha256
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from commingle.shared.documents.dsse import seal
from commingle.shared.documents.errors import DocumentError, ExchangeError, SignatureError, VerificationError
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.errors import CommingleError
from commingle.shared.mechanisms.moments.block import MOMENTS, open_matrix, places
from commingle.shared.mechanisms.moments.exchange.agreement import agreed, countersignature, transcript
from commingle.shared.mechanisms.moments.exchange.deal import open_package
from commingle.shared.mechanisms.moments.exchange.documents import open_deal, open_mask
from commingle.shared.mechanisms.moments.exchange.mask import MaskReader, MaskSealer, MaskSecret, body_size, open_secret
from commingle.shared.mechanisms.moments.exchange.ring import Pad, inner, rows_of, subtracted
from commingle.shared.mechanisms.moments.exchange.sealing import RoundKey, seal_to
from commingle.shared.mechanisms.moments.exchange.submission import mask, share
from commingle.shared.mechanisms.moments.exchange.terms import Exchange
from commingle.shared.release.matrix import assemble
from commingle.shared.release.plan import plan_block, plan_blocks
from commingle.shared.release.verification import verify_release
from tests.shared.mechanisms.moments.exchange.world import (
    KEYS,
    NAMES,
    NUMBERS,
    SEX,
    THREE,
    WHITENED,
    Block,
    World,
    approval,
    entropy,
    exchanged,
    party_spec,
    published,
    redealt,
    spec_of,
    start,
)
from tests.world.noise import seeded_noise

SPEC = spec_of()


@pytest.fixture(scope="module")
def world() -> World:
    return exchanged(SPEC)


def noises(spec: ReleaseSpec, seed: int = 3) -> dict[str, Block]:
    draw = seeded_noise(seed)
    return {p.name: MOMENTS.noise(spec, p, sigma=plan_block(spec, p).sigma, draw=draw) for p in spec.parties}


def second_moment(world: World) -> Block:
    """S in steps, computed where all rows are in one place."""
    spec = world.spec.document
    ones = np.full((spec.n, 1), 2**spec.fraction_bits)
    whole: Block = np.hstack([ones, *(world.rows[name] for name in world.exchange.parties)])
    return whole.T @ whole


# --- what comes out -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parties", [THREE, WHITENED], ids=["plain", "whitened"])
def test_opened_matrix_is_the_second_moment_plus_exactly_the_parties_noise(parties: tuple[PartySpec, ...]) -> None:
    spec = spec_of(parties)
    world, drawn = exchanged(spec), noises(spec)
    matrix = assemble(spec, [world.submission(name, drawn[name]) for name in NAMES])
    nothing = np.zeros(len(spec.columns), np.int64)
    expected = second_moment(world) + open_matrix(spec, np.column_stack([nothing, *drawn.values()]))
    assert np.array_equal(open_matrix(spec, matrix), expected)
    found = MOMENTS.moments(spec, [plan.sigma for plan in plan_blocks(spec)], matrix)
    np.testing.assert_array_equal(found.gram, expected / 4**14)


def test_whitened_release_verifies_under_the_names_of_its_mixtures() -> None:
    spec = spec_of(WHITENED)
    world, drawn = exchanged(spec), noises(spec)
    blocks = {name: world.submission(name, drawn[name]) for name in NAMES}
    files = published(world, blocks, dict.fromkeys(NAMES, world.seen("lab")))
    checked = verify_release(*files, trusted_coordinator=None)
    mixtures = ("whitened[age]", "whitened[bmi]", "whitened[blood=A]", "whitened[blood=B]", "whitened[blood=AB]")
    assert checked.moments.columns == ("(intercept)", *mixtures, "sex")


def test_published_release_verifies_and_other_transcripts_do_not(world: World) -> None:
    drawn = noises(SPEC)
    blocks = {name: world.submission(name, drawn[name]) for name in NAMES}
    seen = world.seen("lab")
    checked = verify_release(*published(world, blocks, dict.fromkeys(NAMES, seen)), trusted_coordinator=None)
    assert checked.moments.gram[0][0] == SPEC.n
    assert "recover every other party's raw table" in checked.manifest.privacy.trust
    for transcripts in ({**dict.fromkeys(NAMES, seen), "lab": "11" * 32}, {}, {"clinic": seen, "lab": seen}):
        with pytest.raises(VerificationError, match="one exchange"):
            verify_release(*published(world, blocks, transcripts), trusted_coordinator=None)


def test_order_of_parties_and_row_blocks_do_not_matter_to_the_transcript(world: World) -> None:
    assert world.seen("clinic") == world.seen("lab") == world.seen("registry")


@pytest.mark.parametrize("parties", [THREE[:1], THREE[:2]])
def test_one_or_two_parties_suffice(parties: tuple[object, ...]) -> None:
    spec = spec_of(THREE[: len(parties)], n=50)
    small = exchanged(spec)
    blocks = [small.submission(p.name, np.zeros((len(spec.columns), len(p.columns)), np.int64)) for p in spec.parties]
    assert np.array_equal(open_matrix(spec, assemble(spec, blocks)), second_moment(small))


@settings(max_examples=20)
@given(st.sampled_from([1, 2, 4095, 4096, 4097]), st.integers(0, 2**32), st.data())
def test_shares_cancel_mod_2_to_the_64_for_any_words(n: int, seed: int, data: st.DataObject) -> None:
    random = np.random.default_rng(seed)
    d = data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=2))
    x = [random.integers(-(2**63), 2**63 - 1, (n, width), endpoint=True) for width in d]
    a = [random.integers(0, 2**64 - 1, (n, width), np.uint64, endpoint=True) for width in d]
    c = random.integers(0, 2**64 - 1, (d[0], d[1]), np.uint64, endpoint=True)
    rows, pads = [rows_of(part) for part in x], [rows_of(pad) for pad in a]
    u = [subtracted(r, p) for r, p in zip(rows, pads, strict=True)]
    first = inner(pads[0], u[1], n) + c
    second = inner(u[0], rows[1], n) + inner(pads[0], pads[1], n) - c
    exact = [[sum(int(p) * int(q) for p, q in zip(left, right, strict=True)) for right in x[1].T] for left in x[0].T]
    assert (first + second).tolist() == [[value % 2**64 for value in row] for row in exact]


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
        with pytest.raises(VerificationError, match="add up"):
            MOMENTS.moments(spec, sigmas, matrix)
    asymmetric = np.zeros_like(matrix)
    asymmetric[clinic, clinic + 1] = 1
    with pytest.raises(VerificationError, match="add up"):
        MOMENTS.moments(spec, sigmas, asymmetric)


# --- what attacks meet ----------------------------------------------------------------------------------------------


def test_mask_made_under_another_deal_is_not_countersigned(world: World) -> None:
    again = redealt(world, seed=99)
    again.masked("lab")
    mixed = replace(world, masks={**world.masks, "lab": again.masks["lab"]}, bodies={**world.bodies, **again.bodies})
    with pytest.raises(ExchangeError, match="one deal"):
        mixed.seen("clinic")


def test_package_of_another_deal_party_or_release_is_refused(world: World) -> None:
    statement = open_deal(world.exchange, world.deal, KEYS["coordinator"].verifying_key)
    other = redealt(world, seed=99)
    for package in (other.dealt.packages["lab"], world.dealt.packages["clinic"], b""):
        with pytest.raises(ExchangeError, match="not the one that was signed"):
            open_package(world.exchange, statement, package, party="lab", key=world.round_keys["lab"])
    with pytest.raises(ExchangeError, match="not sealed"):
        open_package(
            world.exchange, statement, world.dealt.packages["lab"], party="lab", key=world.round_keys["clinic"]
        )
    with pytest.raises(DocumentError, match="another release"):
        open_deal(exchanged(spec_of(n=60)).exchange, world.deal, KEYS["coordinator"].verifying_key)
    with pytest.raises(SignatureError):
        open_deal(world.exchange, world.deal, KEYS["stranger"].verifying_key)


@pytest.mark.parametrize("contents", [b"{}", b"[]", b'{"pad":"' + b"00" * 32 + b'","seeds":{},"shares":{}}'])
def test_package_with_other_contents_is_refused_as_a_document(world: World, contents: bytes) -> None:
    info = world.exchange.info("deal", "lab", world.exchange.round_key("lab"))
    box = seal_to(world.exchange.round_key("lab"), contents, info)
    document = world.dealt.statement.model_copy(
        update={"packages": {**world.dealt.statement.packages, "lab": sha256(box).hexdigest()}}
    )
    signed = seal(document, kind="deal", key=KEYS["coordinator"])
    statement = open_deal(world.exchange, signed, KEYS["coordinator"].verifying_key)
    with pytest.raises(DocumentError):
        open_package(world.exchange, statement, box, party="lab", key=world.round_keys["lab"])


@pytest.mark.parametrize("at", [0, 4096 * 2 * 8 + 3, -1])
def test_altered_mask_is_refused(world: World, at: int) -> None:
    body = bytearray(world.bodies["clinic"])
    body[at] ^= 1
    with pytest.raises(ExchangeError, match="altered"):
        replace(world, bodies={**world.bodies, "clinic": bytes(body)}).read("lab", "clinic")


def test_truncated_mask_is_refused(world: World) -> None:
    cut = world.bodies["clinic"][:-40]
    with pytest.raises(ExchangeError, match="altered"):
        replace(world, bodies={**world.bodies, "clinic": cut}).read("lab", "clinic")


def test_sealer_refuses_a_second_body_under_its_key(world: World) -> None:
    sealer = MaskSealer(world.exchange, party="lab", secret=MaskSecret.draw(entropy(1)))
    list(sealer.body(rows_of(world.rows["lab"])))
    with pytest.raises(ValueError, match="once"):
        list(sealer.body(rows_of(world.rows["lab"])))


def test_body_has_the_size_that_follows_from_the_spec(world: World) -> None:
    for name in NAMES:
        assert len(world.bodies[name]) == body_size(world.exchange, name)


def test_party_that_shows_different_rows_to_different_parties_is_found_out(world: World) -> None:
    """The same commitment over another U, and another commitment: the first fails at once, the second at agreement."""
    statement = open_mask(world.exchange, world.masks["clinic"], "clinic")
    secret = open_secret(world.exchange, statement, recipient="clinic", key=world.round_keys["clinic"])
    sealer = MaskSealer(world.exchange, party="clinic", secret=secret)
    other = b"".join(sealer.body(rows_of(world.rows["clinic"])))
    with pytest.raises(ExchangeError, match="not the one it signed"):
        replace(world, bodies={**world.bodies, "clinic": other}).read("lab", "clinic")

    twice = replace(world, bodies=dict(world.bodies), masks=dict(world.masks))
    twice.masked("clinic", seed=50)
    signed = {"clinic": world.countersigned("clinic"), "lab": world.countersigned("lab")}
    signed["registry"] = twice.countersigned("registry")
    with pytest.raises(ExchangeError, match="registry saw another exchange"):
        agreed(world.exchange, transcript=world.seen("lab"), countersignatures=signed)


def test_mask_signed_by_another_or_for_others_is_refused(world: World) -> None:
    statement = open_mask(world.exchange, world.masks["clinic"], "clinic").document
    with pytest.raises(SignatureError):
        open_mask(world.exchange, seal(statement, kind="mask", key=KEYS["lab"]), "clinic")
    with pytest.raises(DocumentError, match="another release or party"):
        open_mask(world.exchange, seal(statement, kind="mask", key=KEYS["lab"]), "lab")
    fewer = statement.model_copy(update={"keys": {"lab": statement.keys["lab"]}})
    with pytest.raises(DocumentError, match="every party"):
        open_mask(world.exchange, seal(fewer, kind="mask", key=KEYS["clinic"]), "clinic")


def test_secret_sealed_to_one_recipient_opens_for_no_other_and_under_no_other_commitment(world: World) -> None:
    statement = open_mask(world.exchange, world.masks["clinic"], "clinic")
    with pytest.raises(ExchangeError):
        open_secret(world.exchange, statement, recipient="lab", key=world.round_keys["registry"])
    keys = {**statement.document.keys, "registry": statement.document.keys["lab"]}
    for changes in ({"keys": keys}, {"commitment": "11" * 32}, {"body_sha256": "11" * 32}):
        other = replace(statement, document=statement.document.model_copy(update=changes))
        with pytest.raises(ExchangeError):
            open_secret(world.exchange, other, recipient="registry", key=world.round_keys["registry"])


def test_nobody_submits_before_every_party_has_countersigned(world: World) -> None:
    seen = world.seen("lab")
    signed = {name: world.countersigned(name) for name in NAMES}
    assert agreed(world.exchange, transcript=seen, countersignatures=signed).transcript == seen
    for missing in NAMES:
        others = {name: envelope for name, envelope in signed.items() if name != missing}
        with pytest.raises(ExchangeError, match=f"{missing} has not"):
            agreed(world.exchange, transcript=seen, countersignatures=others)
    forged = seal(
        countersignature(world.exchange, party="lab", transcript=seen), kind="countersignature", key=KEYS["clinic"]
    )
    with pytest.raises(SignatureError):
        agreed(world.exchange, transcript=seen, countersignatures={**signed, "lab": forged})


def test_transcript_changes_with_everything_it_stands_for(world: World) -> None:
    masks = {name: open_mask(world.exchange, world.masks[name], name) for name in NAMES}
    seen = {transcript(world.exchange, deal=world.deal.digest, masks=masks)}
    for name in NAMES:
        document = masks[name].document.model_copy(update={"commitment": "11" * 32})
        changed = {**masks, name: replace(masks[name], document=document)}
        seen.add(transcript(world.exchange, deal=world.deal.digest, masks=changed))
    dealt = {n: replace(m, document=m.document.model_copy(update={"deal": "11" * 32})) for n, m in masks.items()}
    seen.add(transcript(world.exchange, deal="11" * 32, masks=dealt))
    keys = {n: approval(world.spec.digest, n, RoundKey(entropy(8)(32)).public) for n in NAMES}
    seen.add(transcript(Exchange.of(world.spec, keys), deal=world.deal.digest, masks=masks))
    assert len(seen) == 6
    with pytest.raises(ExchangeError):
        transcript(world.exchange, deal=world.deal.digest, masks={name: masks[name] for name in NAMES[:2]})


@pytest.mark.parametrize("key", [None, "00" * 32])
def test_approval_without_a_usable_round_key_is_refused(world: World, key: str | None) -> None:
    approvals = {name: approval(world.spec.digest, name, key) for name in NAMES}
    with pytest.raises((DocumentError, ExchangeError), match="round key"):
        seal_to(Exchange.of(world.spec, approvals).round_key("lab"), b"", b"")


def test_round_key_of_small_order_agrees_on_nothing(world: World) -> None:
    with pytest.raises(ExchangeError, match="degenerate"):
        world.round_keys["lab"].agree("00" * 32)


# --- what each onlooker sees ----------------------------------------------------------------------------------------

LONELY = spec_of((party_spec("clinic", *NUMBERS), party_spec("registry", SEX)), n=3)
UNIFORM_RUNS = 400  # of 2 words: 6400 bytes, 255 degrees of freedom


def looks_uniform(words: list[bytes]) -> bool:
    """Chi-square over byte values; a uniform source fails with probability 1e-9."""
    counts = np.bincount(np.frombuffer(b"".join(words), np.uint8), minlength=256)
    return bool(stats.chisquare(counts).pvalue > 1e-9)


def test_masked_cross_shares_look_uniform_to_the_coordinator_and_unmasked_ones_repeat() -> None:
    """One deal, one table, many round keys: what the dealer sees of a submission must not depend on the table."""
    masked, bare = [], []
    fixed = exchanged(LONELY)
    readers = {name: fixed.read("clinic", name)[1] for name in fixed.exchange.parties}
    shares = share(fixed.exchange, party="clinic", hand=fixed.hand("clinic"), masked=readers)
    for run in range(UNIFORM_RUNS):
        keys = {name: RoundKey(entropy(1000 + run)(32 + i)[:32]) for i, name in enumerate(fixed.exchange.parties)}
        approvals = {name: approval(fixed.spec.digest, name, key.public) for name, key in keys.items()}
        exchange = Exchange.of(fixed.spec, approvals)
        hidden = mask(exchange, party="clinic", key=keys["clinic"], agreement=fixed.agreement("clinic"))
        masked.append((shares + hidden)[3].tobytes())
        bare.append(shares[3].tobytes())
        assert not hidden[:3].any()
    assert looks_uniform(masked)
    assert not looks_uniform(bare)


def test_masks_of_a_pair_cancel_and_differ_by_transcript(world: World) -> None:
    agreement = world.agreement("lab")
    blocks = [
        mask(world.exchange, party=name, key=world.round_keys[name], agreement=agreement).astype(np.int64)
        for name in NAMES
    ]
    assert not open_matrix(SPEC, np.column_stack([np.zeros(len(SPEC.columns), np.int64), *blocks])).any()
    other = replace(agreement, transcript="11" * 32)
    again = mask(world.exchange, party="lab", key=world.round_keys["lab"], agreement=other)
    cross = np.delete(np.arange(1, len(SPEC.columns)), np.arange(2, 5))
    assert np.all(again[cross] != blocks[1][cross].astype(np.uint64))


def test_masked_rows_of_extreme_tables_look_uniform_to_the_other_parties() -> None:
    words = []
    for seed in range(40):
        rows = {"clinic": np.full((100, 2), 2**14), "registry": np.full((100, 1), 2**14)}
        world = start(spec_of(LONELY.parties, n=100), rows, seed=seed)
        words.append(subtracted(rows_of(rows["clinic"]), world.hand("clinic").pad)(0, 100).tobytes())
    assert looks_uniform(words)
    assert not looks_uniform([rows["clinic"].tobytes()])


def test_every_seed_pad_and_key_of_an_exchange_is_used_for_one_purpose(world: World) -> None:
    """No two pads, shares or masks of a world have a common word, nor those of a second deal."""
    pads = [world.hand(name).pad(0, 50) for name in NAMES]
    pads += [world.hand(i).shares[j] for i, j in combinations(NAMES, 2)]
    pads += [redealt(world, seed=99).hand(name).pad(0, 50) for name in NAMES]
    everything = np.concatenate([pad.ravel() for pad in pads])
    assert len(np.unique(everything)) == everything.size


def test_pad_is_the_documented_stream_wherever_it_is_entered() -> None:
    pad = Pad(bytes(32), info=b"x", columns=3)
    whole = pad(0, 100)
    for first, last in ((0, 1), (1, 2), (1, 100), (33, 66), (50, 50)):
        assert np.array_equal(pad(first, last), whole[first:last])
    assert sha256(whole.astype("<u8").tobytes()).hexdigest() == reference_stream(bytes(32), b"x", 100 * 3 * 8)


def reference_stream(secret: bytes, info: bytes, size: int) -> str:
    """HKDF and CTR written out (RFC 5869 with its default salt, SP 800-38A)."""
    import hmac

    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    key = hmac.digest(hmac.digest(bytes(32), secret, "sha256"), info + b"\x01", "sha256")
    encrypt = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305 - building counter mode from blocks
    stream = b"".join(encrypt.update(i.to_bytes(16, "big")) for i in range(-(-size // 16)))
    return sha256(stream[:size]).hexdigest()


def test_secrets_do_not_show_in_a_repr(world: World) -> None:
    secret = MaskSecret.draw(entropy(1))
    shown = repr([secret, world.round_keys["lab"], world.hand("lab"), world.hand("lab").pad])
    for hidden in (secret.content_key, secret.blinding):
        assert repr(hidden) not in shown
        assert hidden.hex() not in shown
    assert "array" not in shown


@given(st.binary(max_size=300))
@settings(max_examples=50)
def test_arbitrary_bodies_raise_only_our_errors(data: bytes) -> None:
    exchange = start(LONELY).exchange
    reader = MaskReader(
        exchange,
        party="clinic",
        secret=MaskSecret(bytes(32), bytes(32)),
        read=lambda offset, size: data[offset:][:size],
    )
    with pytest.raises(CommingleError):
        reader(0, 3)
