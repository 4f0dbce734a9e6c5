"""What is signed, hashed or computed stays what it was when these files were written, byte by byte."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from commingle.shared.documents.dsse import Envelope, Signature, SigningKey
from commingle.shared.documents.manifest import TRUST_WITH_NO_ROWS, Manifest
from commingle.shared.documents.model import decode, encode
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.documents.terms import Bounds
from commingle.shared.errors import VerificationError
from commingle.shared.mechanisms.moments.exchange.messages import Columns, Reply
from commingle.shared.mechanisms.moments.exchange.products import verify_bounds, verify_reply
from commingle.shared.release.verification import verify_release
from tests.golden import world
from tests.golden.documents import integers
from tests.golden.make import FILES, LOOSE, build
from tests.golden.world import load

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


@pytest.mark.parametrize("mechanism", world.RELEASES)
def test_files_are_the_frozen_ones_where_pyarrow_is(mechanism: str) -> None:
    drawn = load("drawn")
    if MADE_BY_DRAWN_PYARROW:  # of another version only what is in the files is the same; see `files` of the releases
        assert world.parquet_of(mechanism).hex() == drawn["matrices"][mechanism]
        assert {n: b.hex() for n, b in world.bodies_of(mechanism).items()} == drawn["bodies"][mechanism]


def parsed(written: dict[str, str]) -> Envelope:
    return Envelope(
        payload=b64encode(written["payload"].encode()).decode(),
        payloadType=written["payloadType"],
        signatures=(Signature(keyid=written["keyid"], sig=written["sig"]),),
    )


@pytest.mark.parametrize(("name", "bounds"), [("exchange", None), ("exchange_trusted", "trusted")])
def test_frozen_parts_open_to_products_of_the_rows_and_the_frozen_noise(name: str, bounds: Bounds | None) -> None:
    frozen, made = load(name), world.exchanged(bounds)
    for pair, opened in frozen["opened"].items():
        owner, evaluator = pair.split()
        noise = np.array([line.split() for line in frozen["reply_noise"][pair]], np.int64)
        products = made.rows[owner].T @ made.rows[evaluator]
        assert opened == integers(products + noise) == integers(made.open(owner, evaluator))


def test_frozen_proofs_hold_for_the_frozen_columns_and_replies() -> None:
    """Their bytes are those of the frozen digests: another version that refuses them could not end their release."""
    made, frozen = world.exchanged(), load("exchange")
    columns = {name: Columns(made.exchange, name, body) for name, body in made.bodies.items()}
    assert {name: sha256(body).hexdigest() for name, body in made.bodies.items()} == frozen["columns_bodies_sha256"]
    assert {name: sha256(body).hexdigest() for name, body in made.answers.items()} == frozen["reply_bodies_sha256"]
    for name, sent in columns.items():
        if made.exchange.encrypts(name):
            verify_bounds(sent)
        if made.exchange.owners(name):
            verify_reply(Reply(made.exchange, name, made.answers[name]), columns)


@pytest.mark.parametrize("sentence", ["", TRUST_WITH_NO_ROWS, "Nobody else sees anything."])
def test_manifest_with_a_trust_sentence_that_no_version_wrote_does_not_verify(sentence: str) -> None:
    manifest_bytes, *files = world.release("moments", load("drawn")).files
    signed = decode(SignedDocument, manifest_bytes)
    manifest = signed.open(Manifest).document
    privacy = manifest.privacy.model_copy(update={"trust": sentence})
    forged = SignedDocument.of(manifest.model_copy(update={"privacy": privacy}), world.COORDINATOR)
    with pytest.raises(VerificationError, match="privacy statement"):
        verify_release(encode(forged), *files, trusted_coordinator=None)


@pytest.mark.parametrize("name", EXACT)
def test_frozen_signatures_are_ed25519_over_the_dsse_encoding(name: str) -> None:
    signers = ["coordinator", "new key", *(f"signing {party}" for party in world.NAMES)]
    keys = {str(SigningKey(world.secret(label)).fingerprint): world.secret(label) for label in signers}
    for signed in envelopes(load(name)):
        kind, payload = signed["payloadType"].encode(), signed["payload"].encode()
        encoded = b"DSSEv1 " + b" ".join([b"%d" % len(kind), kind, b"%d" % len(payload), payload])
        key = Ed25519PrivateKey.from_private_bytes(keys[signed["keyid"]])
        assert key.sign(encoded) == b64decode(signed["sig"])
