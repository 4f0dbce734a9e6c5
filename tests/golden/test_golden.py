"""What is signed, hashed or computed stays what it was when these files were written, byte by byte."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from commingle.shared.documents.dsse import Envelope, Signature, seal
from commingle.shared.documents.errors import VerificationError
from commingle.shared.documents.keys import SigningKey
from commingle.shared.documents.manifest import TRUST_NOBODY, Manifest
from commingle.shared.documents.model import decode, encode
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.release.audit import confirm_by_party, verify_party_audit
from commingle.shared.release.verification import verify_release
from tests.golden import world
from tests.golden.make import FILES, HERE, LOOSE, build, load
from tests.golden.records import charges_of

EXACT = tuple(name for name in FILES if name != "fits")
MADE_BY_DRAWN_PYARROW = pa.__version__ == load("drawn")["pyarrow"]


@cache
def built(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(build(name, load("drawn"))))
    return found


def envelopes(content: object) -> Iterator[dict[str, str]]:
    if isinstance(content, dict) and "payloadType" in content and "sig" in content:
        yield content
    elif isinstance(content, dict):
        for part in content.values():
            yield from envelopes(part)


def nearly(content: Any, rel: float) -> Any:
    """The same JSON with figures that may differ by that much."""
    if isinstance(content, dict):
        return {name: nearly(part, rel) for name, part in content.items()}
    if isinstance(content, list):
        return [nearly(part, rel) for part in content]
    return pytest.approx(content, rel=rel) if isinstance(content, float) else content


@pytest.mark.parametrize(("name", "part"), [(name, part) for name in EXACT for part in load(name)])
def test_documents_and_digests_are_the_frozen_ones(name: str, part: str) -> None:
    assert built(name)[part] == load(name)[part]


@pytest.mark.parametrize("name", EXACT)
def test_no_part_is_made_that_is_not_frozen(name: str) -> None:
    assert built(name).keys() == load(name).keys()


@pytest.mark.parametrize("part", load("fits"))
def test_fits_are_the_frozen_ones(part: str) -> None:
    assert built("fits")[part] == nearly(load("fits")[part], rel=1e-9)


@pytest.mark.parametrize("mechanism", world.MECHANISMS)
def test_forecasts_are_near_the_frozen_ones(mechanism: str) -> None:
    assert built(LOOSE)[mechanism] == nearly(load(LOOSE)[mechanism], rel=1e-6)


@pytest.mark.parametrize("mechanism", world.MECHANISMS)
def test_files_are_the_frozen_ones_where_pyarrow_is(mechanism: str) -> None:
    drawn = load("drawn")
    if MADE_BY_DRAWN_PYARROW:  # of another version only what is in the files is the same; see `files` of the releases
        assert world.parquet_of(mechanism, drawn).hex() == drawn["matrices"][mechanism]
        assert {n: b.hex() for n, b in world.bodies_of(mechanism, drawn).items()} == drawn["bodies"][mechanism]


def test_release_an_earlier_version_published_verifies_and_todays_words_stand_beside_its_own() -> None:
    """Published before the trust sentence of moments said what a party that breaks its bounds can take."""
    earlier = json.loads((HERE / "earlier" / "release_moments.json").read_text())
    files = earlier["manifest"].encode(), bytes.fromhex(earlier["matrix"]), earlier["moments"].encode()
    found = verify_release(*files, trusted_coordinator=world.COORDINATOR.fingerprint)
    today = mechanism_of(found.spec).trust
    assert found.manifest.privacy.trust != today
    assert list(found.findings[:-1]) == earlier["findings"]
    assert found.findings[-1].endswith(today)
    assert json.loads(load("release_moments")["manifest"]) != json.loads(earlier["manifest"])


@pytest.mark.parametrize("sentence", ["", TRUST_NOBODY, "Nobody else sees anything."])
def test_manifest_with_a_trust_sentence_that_no_version_wrote_does_not_verify(sentence: str) -> None:
    earlier = json.loads((HERE / "earlier" / "release_moments.json").read_text())
    signed = decode(SignedDocument, earlier["manifest"].encode())
    manifest = signed.open(Manifest, kind="manifest").document
    privacy = manifest.privacy.model_copy(update={"trust": sentence})
    forged = seal(manifest.model_copy(update={"privacy": privacy}), kind="manifest", key=world.COORDINATOR)
    files = bytes.fromhex(earlier["matrix"]), earlier["moments"].encode()
    with pytest.raises(VerificationError, match="privacy statement"):
        verify_release(encode(world.signed_document(forged, world.COORDINATOR)), *files, trusted_coordinator=None)


@pytest.mark.parametrize("name", EXACT)
def test_frozen_signatures_are_ed25519_over_the_dsse_encoding(name: str) -> None:
    signers = ["coordinator", "new key", *(f"signing {party}" for party in world.NAMES)]
    keys = {str(SigningKey(world.secret(label)).fingerprint): world.secret(label) for label in signers}
    for signed in envelopes(load(name)):
        kind, payload = signed["payloadType"].encode(), signed["payload"].encode()
        encoded = b"DSSEv1 " + b" ".join([b"%d" % len(kind), kind, b"%d" % len(payload), payload])
        key = Ed25519PrivateKey.from_private_bytes(keys[signed["keyid"]])
        assert key.sign(encoded) == b64decode(signed["sig"])


@pytest.mark.parametrize(("name", "has_terms"), [("ledger_without_terms", False), ("ledger_not_gaussian", True)])
def test_ledger_of_an_earlier_version_still_verifies_and_confirms_its_release(name: str, *, has_terms: bool) -> None:
    frozen = load(name)
    written = frozen["audit"]
    signed = Envelope(
        payload=b64encode(written["payload"].encode()).decode(),
        payloadType=written["payloadType"],
        signatures=(Signature(keyid=written["keyid"], sig=written["sig"]),),
    )
    history = verify_party_audit(encode(world.signed_document(signed, world.KEYS["clinic"])))
    assert charges_of(history) == frozen["history"]
    assert {charge.terms is not None for charge in history.charges.values()} == {has_terms}
    assert not history.lost.gaussian
    release = verify_release(*world.release("rmgm", load("drawn")).files, trusted_coordinator=None)
    assert confirm_by_party(history, release) == frozen["finding"]
