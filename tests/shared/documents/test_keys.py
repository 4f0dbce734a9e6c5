from hashlib import sha256

import pytest

from commingle.shared.documents.keys import SigningKey, VerifyingKey
from commingle.shared.documents.statements import Enrolment

# RFC 8032, section 7.1, test 2
SEED = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
PUBLIC = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
SIGNATURE = (
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)


def test_key_and_signature_are_those_of_the_rfc_8032_vector() -> None:
    key = SigningKey(SEED)
    assert key.verifying_key == VerifyingKey.from_hex(PUBLIC)
    assert key.sign(b"\x72").hex() == SIGNATURE
    key.verifying_key.verify(bytes.fromhex(SIGNATURE), b"\x72")


def test_fingerprint_is_sha256_of_the_raw_public_key() -> None:
    assert SigningKey(SEED).fingerprint == sha256(bytes.fromhex(PUBLIC)).hexdigest()


@pytest.mark.parametrize("show", [repr, str, "{}".format, "{!r}".format, "%s".__mod__])
def test_no_way_of_printing_a_signing_key_shows_the_secret(show: object) -> None:
    assert callable(show)
    shown = show(SigningKey(SEED))
    assert SEED.hex() not in shown
    assert repr(SEED)[2:-1] not in shown
    assert SigningKey(SEED).fingerprint[:16] in shown


def test_signing_key_has_no_instance_dictionary_to_dump() -> None:
    assert not hasattr(SigningKey(SEED), "__dict__")


def test_printing_an_enrolment_does_not_show_the_invite() -> None:
    invite = "commingle-invite.v1.0000.the-secret-part"
    enrolment = Enrolment(invite=invite, name="clinic", signing_key="aa" * 32, sealing_key="bb" * 32)
    assert "the-secret-part" not in f"{enrolment!r} {enrolment}"
