import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commingle.shared.documents.linkage import alignment_digest
from commingle.shared.documents.subject_ids import canonical_subject

KEY = b"a key known to the parties only"
SPEC = "ab" * 32
IDS = [b"anna", b"bert", "zoë".encode()]
# computed with `openssl dgst -sha256 -hmac KEY` over the context, the spec digest and the prefixed fields
VECTOR = "9f294edcfc26e0a6c0b2d9dbb44ea780c0513648f88c75f37cbe03ad9ed9e987"


def hand_made(key: bytes, spec: str, subjects: int, ids: list[bytes]) -> str:
    block = (key if len(key) <= 64 else hashlib.sha256(key).digest()).ljust(64, b"\0")
    message = b"commingle/v1/alignment" + bytes.fromhex(spec) + subjects.to_bytes(8, "big")
    message += b"".join(len(i).to_bytes(4, "big") + i for i in ids)
    inner = hashlib.sha256(bytes(b ^ 0x36 for b in block) + message).digest()
    return hashlib.sha256(bytes(b ^ 0x5C for b in block) + inner).hexdigest()


def digest(key: bytes = KEY, spec: str = SPEC, subjects: int = 3, ids: list[bytes] = IDS) -> str:
    listed = (len(i).to_bytes(4, "big") + i for i in ids)
    return alignment_digest(key, spec_digest=spec, subjects=subjects, listed=listed)


def test_digest_is_the_recorded_vector() -> None:
    assert digest() == VECTOR


@given(st.binary(max_size=100), st.integers(0, 2**64 - 1), st.lists(st.binary(max_size=20), max_size=5))
def test_digest_agrees_with_hmac_written_out_by_hand(key: bytes, subjects: int, ids: list[bytes]) -> None:
    assert digest(key, subjects=subjects, ids=ids) == hand_made(key, SPEC, subjects, ids)


def test_digest_depends_on_key_spec_count_order_and_boundaries() -> None:
    others = [
        digest(key=b"another key"),
        digest(spec="cd" * 32),
        digest(subjects=4),
        digest(ids=[b"bert", b"anna", IDS[2]]),
        digest(ids=[b"annab", b"ert", IDS[2]]),
        digest(ids=[b"anna", b"bert" + IDS[2]]),
        digest(ids=[*IDS, b""]),
    ]
    assert len({digest(), *others}) == len(others) + 1


@pytest.mark.parametrize(
    ("one", "same"),
    [("e\u0301", "\u00e9"), ("  id-7\t", "id-7"), ("\u00a0id\u2003", "id"), ("\u212b", "\u00c5"), ("", "  ")],
)
def test_subjects_that_read_the_same_are_the_same_bytes(one: str, same: str) -> None:
    assert canonical_subject(one) == canonical_subject(same)


@pytest.mark.parametrize(("one", "other"), [("A", "a"), ("01", "1"), ("ﬁ", "fi"), ("a b", "ab"), ("1", "1.0")])
def test_subjects_that_differ_stay_different(one: str, other: str) -> None:
    assert canonical_subject(one) != canonical_subject(other)


@given(st.text())
def test_canonical_form_is_idempotent(identifier: str) -> None:
    canonical = canonical_subject(identifier)
    assert canonical_subject(canonical.decode()) == canonical
