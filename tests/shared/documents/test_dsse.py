import json
from base64 import b64decode, b64encode
from hashlib import sha256
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from commingle.shared.documents.dsse import (
    Envelope,
    SigningKey,
    VerifyingKey,
    open_envelope,
    parse_envelope,
    payload_type,
    pre_authentication_encoding,
    seal,
)
from commingle.shared.documents.model import WireModel
from commingle.shared.documents.statements import Enrolment
from commingle.shared.errors import DocumentError, SignatureError

KEY = SigningKey(b"\x01" * 32)
OTHER = SigningKey(b"\x02" * 32)


class Note(WireModel):
    text: str

    @classmethod
    def signed_as(cls) -> str:
        return "note"


class Letter(Note):
    @classmethod
    def signed_as(cls) -> str:
        return "letter"


class NewerNote(Note):
    language: str = "en"


SEALED = seal(Note(text="hello"), key=KEY)


def reopen(envelope: Envelope, key: SigningKey = KEY) -> str:
    return open_envelope(envelope, Note, keys=[key.verifying_key]).document.text


def altered(**fields: Any) -> Envelope:
    return Envelope.model_validate_json(json.dumps({**json.loads(SEALED.to_json()), **fields}))


def flipped(text: str, position: int) -> str:
    data = bytearray(b64decode(text))
    data[position] ^= 1
    return b64encode(bytes(data)).decode()


@pytest.mark.parametrize(
    ("kind", "payload", "encoded"),
    [
        # https://github.com/secure-systems-lab/dsse/blob/master/protocol.md, test vectors
        ("http://example.com/HelloWorld", b"hello world", "DSSEv1 29 http://example.com/HelloWorld 11 hello world"),
        ("é", "ü".encode(), "DSSEv1 2 é 2 ü"),
    ],
    ids=["published vector", "lengths count bytes"],
)
def test_pre_authentication_encoding_is_that_of_the_standard(kind: str, payload: bytes, encoded: str) -> None:
    assert pre_authentication_encoding(kind, payload) == encoded.encode()


def test_signature_verifies_with_a_bare_ed25519_over_a_hand_made_encoding() -> None:
    kind, payload = b"application/vnd.commingle.note+json", b'{"text":"hello"}'
    message = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
    key = Ed25519PublicKey.from_public_bytes(KEY.verifying_key.raw)
    key.verify(b64decode(SEALED.signatures[0].sig), message)
    assert SEALED.payload_bytes == payload


def test_sealed_document_opens_from_its_own_json() -> None:
    received = parse_envelope(SEALED.to_json())
    verified = open_envelope(received, Note, keys=[OTHER.verifying_key, KEY.verifying_key])
    assert verified.document == Note(text="hello")
    assert verified.signer == KEY.fingerprint
    assert verified.digest == received.digest


SIG = SEALED.signatures[0].sig


def signed_with(sig: str, *, keyid: str = KEY.fingerprint) -> Envelope:
    return altered(signatures=[{"keyid": keyid, "sig": sig}])


@pytest.mark.parametrize(
    "envelope",
    [
        *(altered(payload=flipped(SEALED.payload, position)) for position in (0, 5, 15)),
        *(signed_with(flipped(SIG, position)) for position in (0, 31, 32, 63)),
        *(signed_with(sig) for sig in ("", "AA==", b64encode(b"\0" * 64).decode(), b64encode(b"\xff" * 64).decode())),
        signed_with(SIG, keyid=OTHER.fingerprint),  # claiming another signer's key id
        altered(payload=b64encode(b"not json").decode()),  # and no DocumentError: verify first, parse after
    ],
)
def test_signature_that_is_not_over_these_bytes_by_that_key_is_refused_before_they_are_parsed(
    envelope: Envelope,
) -> None:
    with pytest.raises(SignatureError, match="does not verify"):
        open_envelope(envelope, Note, keys=[KEY.verifying_key, OTHER.verifying_key])


def test_unexpected_signer_is_named_in_the_refusal() -> None:
    with pytest.raises(SignatureError, match=KEY.fingerprint[:16]):
        reopen(SEALED, OTHER)


def test_document_of_another_kind_is_refused_before_its_signature_counts_and_relabelled_by_its_signature() -> None:
    with pytest.raises(DocumentError, match="expected a document of type"):
        open_envelope(SEALED, Letter, keys=[KEY.verifying_key])
    with pytest.raises(SignatureError, match="does not verify"):
        open_envelope(altered(payloadType=payload_type("letter")), Letter, keys=[KEY.verifying_key])


@pytest.mark.parametrize("text", ["%%%", "a", "aGVsbG8", "aGVs bG8=", "aGVsbG8=\n", "é"])
def test_base64_with_foreign_characters_or_padding_is_refused(text: str) -> None:
    with pytest.raises(DocumentError, match="base64"):
        reopen(altered(payload=text))
    with pytest.raises(DocumentError, match="base64"):
        reopen(altered(signatures=[{"keyid": KEY.fingerprint, "sig": text}]))


def with_changes(**changes: Any) -> bytes:
    return json.dumps({**json.loads(SEALED.to_json()), **changes}).encode()


def with_signature(**changes: str) -> bytes:
    return with_changes(signatures=[{"keyid": KEY.fingerprint, "sig": "AA==", **changes}])


@pytest.mark.parametrize(
    "raw",
    [
        *(
            with_changes(**change)
            for change in ({"payload": 5}, {"payload": None}, {"payloadType": None}, {"extra": 1})
        ),
        with_changes(signatures=[]),
        with_changes(signatures=[{"keyid": KEY.fingerprint, "sig": "AA=="}] * 2),
        *(with_signature(keyid=keyid) for keyid in ("short", KEY.fingerprint.upper())),
        with_signature(sig="A" * 129),
        with_signature(cert="x"),
        *(b"", b"\0", b"\xff\xfe", b"[]", b"null", b'{"payload":', b"[" * 100_000, b'{"a":' * 50_000, b"NaN"),
    ],
    ids=lambda raw: repr(raw[:40]),
)
def test_bytes_that_are_no_envelope_are_refused(raw: bytes) -> None:
    assert parse_envelope(with_signature(keyid=KEY.fingerprint))
    with pytest.raises(DocumentError):
        parse_envelope(raw)


@given(st.binary(min_size=32, max_size=32))
def test_arbitrary_public_key_bytes_raise_only_our_errors(raw: bytes) -> None:
    key = VerifyingKey(raw)
    with pytest.raises(SignatureError):
        key.verify(KEY.sign(b"message"), b"message")


def test_document_that_was_opened_does_not_open_what_looks_like_it() -> None:
    assert reopen(SEALED) == reopen(SEALED) == "hello"
    (signature,) = SEALED.signatures
    other = seal(Note(text="hello"), key=OTHER).signatures[0]
    for sig in (flipped(signature.sig, 5), other.sig):
        with pytest.raises(SignatureError):
            reopen(altered(signatures=[{"keyid": signature.keyid, "sig": sig}]))
    with pytest.raises(SignatureError):
        reopen(SEALED, OTHER)
    with pytest.raises(DocumentError):
        open_envelope(SEALED, Letter, keys=[KEY.verifying_key])
    assert open_envelope(SEALED, NewerNote, keys=[KEY.verifying_key]).document.language == "en"
    assert reopen(SEALED) == "hello"


# RFC 8032, section 7.1, test 2
SEED = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
PUBLIC = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
SIGNATURE = (
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)


def test_key_and_signature_are_those_of_the_rfc_8032_vector_and_the_fingerprint_is_sha256_of_the_key() -> None:
    key = SigningKey(SEED)
    assert key.verifying_key == VerifyingKey.from_hex(PUBLIC)
    assert key.sign(b"\x72").hex() == SIGNATURE
    key.verifying_key.verify(bytes.fromhex(SIGNATURE), b"\x72")
    assert key.fingerprint == sha256(bytes.fromhex(PUBLIC)).hexdigest()


@pytest.mark.parametrize("show", [repr, str, "{}".format, "{!r}".format, "%s".__mod__])
def test_no_way_of_printing_a_signing_key_shows_the_secret(show: object) -> None:
    assert callable(show)
    shown = show(SigningKey(SEED))
    assert SEED.hex() not in shown
    assert repr(SEED)[2:-1] not in shown
    assert SigningKey(SEED).fingerprint[:16] in shown
    assert not hasattr(SigningKey(SEED), "__dict__")


def test_printing_an_enrolment_does_not_show_the_invite() -> None:
    invite = "commingle-invite.v1.0000.the-secret-part"
    enrolment = Enrolment(invite=invite, name="clinic", signing_key="aa" * 32, sealing_key="bb" * 32)
    assert "the-secret-part" not in f"{enrolment!r} {enrolment}"
