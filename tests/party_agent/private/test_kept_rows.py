"""Rows while an exchange runs: read at any place, noticed where anything was damaged, and nowhere in the clear."""

import os
import stat
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from commingle.party_agent.errors import LostError
from commingle.party_agent.private.privatise import KeptRows
from commingle.shared.documents.dsse import SigningKey
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.terms import Bounds
from commingle.shared.errors import DomainError
from commingle.shared.mechanisms.moments.exchange.messages import Columns, Exchange, Reply
from commingle.shared.mechanisms.moments.exchange.products import verify_reply
from tests.world.documents import HEAD, spec_of, study_of
from tests.world.side import agreed

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BLOCK = 4096
TAG = 16
KEYS = {name: SigningKey(sha256(name.encode()).digest()) for name in ("clinic", "insurer")}
COLUMNS = {"clinic": 3, "insurer": 2}
SECRET = bytes(range(32))
OTHER_SECRET = bytes(range(1, 33))


def exchange_of(n: int, *, head: str = HEAD, seed: bytes = bytes(32), bounds: Bounds = "trusted") -> Exchange:
    """A clinic and an insurer that have approved a release of n people."""
    attributes = {
        name: [NumericAttribute(name=f"{name}{a}", lower=0, upper=1) for a in range(d)] for name, d in COLUMNS.items()
    }
    study = study_of(attributes, mechanism="moments", n=n, bounds=bounds)
    proposer = KEYS["clinic"]
    spec = spec_of(study, KEYS, proposer=proposer, seed=seed, now=NOW)
    return agreed(spec, {"coordinator": proposer, **KEYS}, head=head)


def rows_at_random(n: int, party: str = "clinic") -> NDArray[np.int64]:
    """Up to the largest entry there is, on both sides."""
    rows = np.random.default_rng(n).integers(-(2**14), 2**14 + 1, (n, COLUMNS[party]))
    rows[0, 0], rows[-1, -1] = 2**14, -(2**14)
    return rows


def kept_at(
    path: Path, n: int, party: str = "clinic", *, secret: bytes = SECRET, bounds: Bounds = "trusted"
) -> KeptRows:
    kept = KeptRows(exchange_of(n, bounds=bounds), party, path, secret)
    kept.keep([rows_at_random(n, party)])
    return kept


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> KeptRows:
    """Four blocks, the last of them not full."""
    return kept_at(tmp_path_factory.mktemp("kept") / "rows", 3 * BLOCK + 5)


PLACES = st.sampled_from([0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK - 1, 3 * BLOCK, 3 * BLOCK + 4])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(start=PLACES | st.integers(0, 3 * BLOCK + 4), length=st.integers(1, 2 * BLOCK + 3))
def test_rows_are_read_at_any_place_over_blocks(several: KeptRows, start: int, length: int) -> None:
    rows = rows_at_random(3 * BLOCK + 5)
    stop = min(start + length, len(rows))
    found = several(start, stop)
    assert found.dtype == np.int16
    assert np.array_equal(found, rows[start:stop])


@pytest.mark.parametrize("n", [2, 3, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK])
@pytest.mark.parametrize("party", COLUMNS)
def test_all_rows_are_read_back_whether_or_not_they_fill_their_blocks(tmp_path: Path, n: int, party: str) -> None:
    kept = kept_at(tmp_path / "rows", n, party)
    assert np.array_equal(kept(0, n), rows_at_random(n, party))
    assert np.array_equal(kept(n - 1, n), rows_at_random(n, party)[-1:])
    assert kept.path.stat().st_size == n * COLUMNS[party] * 2 + TAG * -(-n // BLOCK)


@pytest.mark.parametrize("entry", [2**14 + 1, -(2**14) - 1, 2**16])
def test_entry_that_would_wrap_is_refused_and_not_kept(tmp_path: Path, entry: int) -> None:
    rows = rows_at_random(9)
    rows[3, 1] = entry
    with pytest.raises(DomainError):
        KeptRows(exchange_of(9), "clinic", tmp_path / "rows", SECRET).keep([rows])
    assert not (tmp_path / "rows").exists()


def test_rows_kept_in_pieces_are_those_kept_at_once(tmp_path: Path) -> None:
    rows, whole = rows_at_random(2 * BLOCK + 5), kept_at(tmp_path / "whole", 2 * BLOCK + 5)
    kept = KeptRows(exchange_of(len(rows)), "clinic", tmp_path / "rows", SECRET)
    kept.keep([rows[:BLOCK], rows[BLOCK:]])
    assert kept.path.read_bytes() == whole.path.read_bytes()
    for pieces in ([rows[:9], rows[9:]], [rows[:BLOCK]], [rows, rows[:BLOCK]], []):
        with pytest.raises(DomainError):
            KeptRows(exchange_of(len(rows)), "clinic", tmp_path / "none", SECRET).keep(pieces)
        assert not (tmp_path / "none").exists()


def test_damage_of_any_byte_and_any_end_before_the_last_is_a_loss(tmp_path: Path) -> None:
    kept = kept_at(tmp_path / "rows", 9)
    whole = kept.path.read_bytes()
    for place in range(len(whole)):
        flipped = whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :]
        for damaged in (flipped, whole[:place]):
            kept.path.write_bytes(damaged)
            with pytest.raises(LostError):
                kept(0, 9)
    kept.path.write_bytes(whole)
    assert np.array_equal(kept(0, 9), rows_at_random(9))


@pytest.mark.parametrize("what", ["first block", "last block", "swapped", "repeated", "gone"])
def test_blocks_that_are_damaged_or_stand_elsewhere_are_a_loss(tmp_path: Path, what: str) -> None:
    n, size = 2 * BLOCK + 1, BLOCK * COLUMNS["clinic"] * 2 + TAG
    kept = kept_at(tmp_path / "rows", n)
    whole = kept.path.read_bytes()
    first, second, last = whole[:size], whole[size : 2 * size], whole[2 * size :]
    altered = {
        "first block": bytes([first[0] ^ 1]) + first[1:] + second + last,
        "last block": first + second + last[:-1] + bytes([last[-1] ^ 1]),
        "swapped": second + first + last,
        "repeated": first + first + last,
        "gone": b"",
    }[what]
    kept.path.write_bytes(altered) if altered else kept.path.unlink()
    with pytest.raises(LostError) as lost:
        kept(0, n)
    assert "rows of an exchange are lost" in str(lost.value)
    with pytest.raises(LostError):
        kept.moments()
    with pytest.raises(LostError):
        list(kept.encrypted(os.urandom))


def test_disk_that_cannot_be_read_just_now_has_lost_nothing_yet(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        KeptRows(exchange_of(9), "clinic", tmp_path / "rows", SECRET)(0, 9)


@pytest.mark.parametrize("what", ["secret", "approvals", "release", "party"])
def test_rows_are_read_in_their_own_exchange_with_their_own_secret_only(tmp_path: Path, what: str) -> None:
    path = tmp_path / "rows"
    kept_at(path, 9)
    exchange = {"approvals": exchange_of(9, head="1" * 64), "release": exchange_of(9, seed=b"\1" * 32)}.get(what)
    other = KeptRows(
        exchange or exchange_of(9),
        "insurer" if what == "party" else "clinic",
        path,
        OTHER_SECRET if what == "secret" else SECRET,
    )
    with pytest.raises(LostError):
        other(0, 9)


def test_file_is_for_its_owner_alone_and_holds_no_plain_row_and_not_the_secret(tmp_path: Path) -> None:
    kept = kept_at(tmp_path / "exchange" / "rows", BLOCK + 7)
    assert stat.S_IMODE(kept.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.path.parent.stat().st_mode) == 0o700
    assert [path.name for path in kept.path.parent.iterdir()] == ["rows"], "no temporary file is left"
    data, rows = kept.path.read_bytes(), rows_at_random(BLOCK + 7)
    assert not any(rows[i : i + 2].astype("<i2").tobytes() in data for i in range(len(rows) - 1))
    assert SECRET not in data


def test_same_rows_under_two_secrets_have_nothing_in_common(tmp_path: Path) -> None:
    one, other = (
        kept_at(tmp_path / name, 500, secret=secret).path.read_bytes()
        for name, secret in (("one", SECRET), ("other", OTHER_SECRET))
    )
    alike = np.mean(np.frombuffer(one, np.uint8) == np.frombuffer(other, np.uint8))
    assert alike < 1 / 256 + 6 * (1 / 256 / len(one)) ** 0.5, "six standard deviations above chance"


def test_representation_shows_neither_secret_nor_rows(tmp_path: Path) -> None:
    kept = kept_at(tmp_path / "rows", 9)
    said = repr(kept) + str(kept)
    assert "secret" not in said
    assert SECRET.hex() not in said
    assert repr(SECRET)[2:-1] not in said
    assert str(rows_at_random(9)[1, 1]) not in repr(kept.path)


def test_own_moments_are_exact_over_several_blocks(tmp_path: Path) -> None:
    n = 2**14 + BLOCK + 3
    moments = kept_at(tmp_path / "rows", n).moments()
    rows = rows_at_random(n).astype(object)
    assert [int(v) for v in moments[0]] == [sum(column) << 14 for column in rows.T]
    assert moments[1:].tolist() == (rows.T @ rows).tolist()


@pytest.mark.parametrize("bounds", get_args(Bounds))
def test_what_one_encrypts_and_the_other_replies_opens_to_their_inner_products_and_the_noise(
    tmp_path: Path, bounds: Bounds
) -> None:
    n = BLOCK + 50
    exchange = exchange_of(n, bounds=bounds)
    kept = {
        name: kept_at(tmp_path / name, n, name, secret=secret, bounds=bounds)
        for name, secret in (("clinic", SECRET), ("insurer", OTHER_SECRET))
    }
    columns = {name: Columns(exchange, name, b"".join(kept[name].encrypted(os.urandom))) for name in COLUMNS}
    assert [len(each.whole) for each in columns.values()] == [exchange.columns_size(name) for name in COLUMNS]
    assert not columns["insurer"].whole, "nobody multiplies the last's"
    noise = np.random.default_rng(1).integers(-(2**40), 2**40, (3, 2))
    owners = {"clinic": columns["clinic"]}
    pieces = kept["insurer"].reply(columns["insurer"], owners, lambda _: noise, os.urandom)
    reply = Reply(exchange, "insurer", b"".join(pieces))
    assert len(reply.whole) == exchange.reply_size("insurer")
    if exchange.proved:
        verify_reply(reply, columns)
    opened = kept["clinic"].open(reply, largest=2**62)
    assert np.array_equal(opened, rows_at_random(n).T @ rows_at_random(n, "insurer") + noise)


def test_ring_key_and_key_of_the_file_are_not_one_and_the_same(tmp_path: Path) -> None:
    kept = kept_at(tmp_path / "rows", 9)
    keys = {kept.key_for("rows"), kept.key_for("ring"), SECRET}
    assert len(keys) == 3
    assert all(len(key) == 32 for key in keys)
