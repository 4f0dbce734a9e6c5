"""A signed document has one encoding, and an honest length: nothing can be padded, said twice or said otherwise."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from commingle.shared.documents.dsse import Envelope, Signature, SigningKey, open_envelope, payload_type, seal
from commingle.shared.documents.model import WireModel, decode, decode_canonical, encode
from commingle.shared.documents.regression import RegressionRequest
from commingle.shared.documents.schema import BinaryAttribute, Whitening
from commingle.shared.documents.spec import MAX_COLUMNS, MAX_PARTIES, PartySpec, ReleaseSpec
from commingle.shared.documents.statements import (
    Approval,
    BlockStatement,
)
from commingle.shared.errors import DocumentError
from commingle.shared.mechanisms.moments.exchange.messages import ColumnsStatement
from commingle.shared.release.checks import open_spec
from tests.golden.documents import FROZEN, MODELS, frozen
from tests.golden.world import FOLDER
from tests.world.documents import sign_bytes

KEY = SigningKey(b"\x01" * 32)
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
KINDS = {payload_type(kind): model for kind, model in MODELS.items()}


def test_documents_are_signed_as_what_they_are() -> None:
    assert {model.signed_as(): model for model in MODELS.values()} == MODELS


def share(party: int, columns: int, *, whitened: bool = False, letter: str = "a") -> PartySpec:
    """One party's share with every text at its longest."""
    return PartySpec(
        name=f"{party:02}".ljust(63, "x"),
        signing_key=f"{party + 1:064x}",
        sealing_key="ff" * 32,
        dataset="d" * 63,
        attributes=tuple(
            BinaryAttribute(
                name=f"{party:02}{number:03}".ljust(80, letter), levels=("0" + letter * 79, "1" + letter * 79)
            )
            for number in range(columns)
        ),
        row_norm=0.30000000000000004,
        whitening=Whitening(
            centre=(-0.10000000000000003,) * columns,
            matrix=tuple(
                tuple(-1.2345678901234567e-05 if i != j else 0.9999999999999999 for i in range(columns))
                for j in range(columns)
            ),
        )
        if whitened
        else None,
    )


def spec(*parties: PartySpec) -> ReleaseSpec:
    return ReleaseSpec(
        study="a study",
        created=NOW,
        expires=NOW + timedelta(days=3),
        mechanism="rmgm",
        k=300,
        seed="ab" * 32,
        epsilon=1.0,
        delta=1e-5,
        n=1000,
        parties=parties,
        proposer=KEY.fingerprint,
    )


SPEC = spec(share(0, 1), share(1, 1))


def signed(payload: bytes, kind: str = "spec") -> Envelope:
    """Any bytes under a good signature: what a member can make that does not encode as we do."""
    return sign_bytes(payload, kind=kind, key=KEY)


def swap(old: str, new: str) -> Callable[[str], str]:
    def swapped(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return swapped


OTHERWISE: dict[str, Callable[[str], str]] = {
    "white space at the end": lambda text: text + " " * 1000,
    "white space at the beginning": lambda text: "\n" + text,
    "white space within": swap(":", ": "),
    "a name twice": swap('"n":1000', '"n":1000,"n":1000'),
    "a name twice, first with another value": swap('"n":1000', '"n":5,"n":1000'),
    "true for 1": swap('"version":1', '"version":true'),
    "1.0 for 1": swap('"version":1', '"version":1.0'),
    "1 for 1.0": swap('"epsilon":1.0', '"epsilon":1'),
    "1e0 for 1.0": swap('"epsilon":1.0', '"epsilon":1e0'),
    "1.00 for 1.0": swap('"epsilon":1.0', '"epsilon":1.00'),
    "another exponent": swap('"delta":1e-05', '"delta":0.00001'),
    "a zone of zero hours": swap("2026-03-01T12:00:00Z", "2026-03-01T12:00:00+00:00"),
    "a date with a space": swap("2026-03-01T12:00:00Z", "2026-03-01 12:00:00Z"),
    "fractions of a second that are none": swap("2026-03-01T12:00:00Z", "2026-03-01T12:00:00.000000Z"),
    "an escaped letter": swap("a study", "\\u0061 study"),
    "an escaped slash": swap("commingle/release-spec", "commingle\\/release-spec"),
    "names in another order": lambda text: json.dumps(
        dict(reversed(json.loads(text).items())), separators=(",", ":"), ensure_ascii=False
    ),
}


@pytest.mark.parametrize("said", OTHERWISE)
def test_signed_document_said_otherwise_is_refused(said: str) -> None:
    padded = OTHERWISE[said](encode(SPEC).decode()).encode()
    if said not in {"true for 1", "1.0 for 1"}:  # the others are the same document to a parser
        assert ReleaseSpec.model_validate_json(padded) == SPEC
    with pytest.raises(DocumentError):
        open_spec(signed(padded), [KEY.verifying_key])


def test_document_of_a_version_without_newer_fields_opens() -> None:
    value = json.loads(encode(SPEC))
    del value["fraction_bits"], value["alignment"], value["calibration"]
    older = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    opened = open_spec(signed(older), [KEY.verifying_key])
    assert (opened.document, opened.payload) == (SPEC, older)


def test_base64_whose_last_letter_says_nothing_is_refused() -> None:
    envelope = signed(encode(SPEC) + b" " * (-(len(encode(SPEC)) + 2) % 3))
    assert envelope.payload.endswith("=")
    place = envelope.payload.index("=") - 1
    letter = envelope.payload[place]
    same = envelope.model_copy(
        update={"payload": envelope.payload[:place] + chr(ord(letter) + 1) + envelope.payload[place + 1 :]}
    )
    with pytest.raises(DocumentError, match="base64"):
        open_spec(same, [KEY.verifying_key])


def test_longest_specs_fit_their_limit() -> None:
    most = MAX_COLUMNS - 1
    wide = spec(share(0, most, whitened=True, letter="𐍈"))
    each = most // MAX_PARTIES
    many = spec(*(share(number, each + (number < most % MAX_PARTIES), letter="𐍈") for number in range(MAX_PARTIES)))
    for longest in (wide, many):
        assert len(longest.matrix_columns) == MAX_COLUMNS
        assert open_spec(seal(longest, key=KEY), [KEY.verifying_key]).document == longest


def test_longest_block_statement_fits_its_limit() -> None:
    names = tuple(column.name for column in spec(share(0, MAX_COLUMNS - 1, whitened=True, letter="𐍈")).matrix_columns)
    statement = BlockStatement(
        spec="ab" * 32,
        approvals="ab" * 32,
        party="x" * 63,
        rows=1_000_000,
        columns=tuple(f"{name}={'𐍈' * 80}" for name in names),  # a categorical attribute's names are the longest
        sigma=1 << 50,
        body_sha256="ab" * 32,
        content_sha256="ab" * 32,
        ledger_head="ab" * 32,
        transcript="ab" * 32,
    )
    assert len(encode(statement)) < BlockStatement.largest_bytes


@pytest.mark.parametrize("model", [ReleaseSpec, Approval, ColumnsStatement])
def test_document_too_long_is_refused_before_it_is_parsed_or_verified(model: type[WireModel]) -> None:
    envelope = signed(b" " * (model.largest_bytes + 3), model.signed_as())
    unsigned = envelope.model_copy(update={"signatures": (Signature(keyid=KEY.fingerprint, sig=""),)})
    with pytest.raises(DocumentError, match="longer than"):
        open_envelope(unsigned, model, keys=[KEY.verifying_key])


@pytest.mark.parametrize("path", FROZEN, ids=lambda path: path.relative_to(FOLDER).as_posix())
def test_every_frozen_document_is_in_its_one_encoding(path: Path) -> None:
    for kind, payload in frozen(json.loads(path.read_text())):
        if not payload.startswith('{"invite":"any signed bytes'):
            decode_canonical(KINDS[kind], payload.encode())


def test_some_documents_of_every_kind_are_frozen() -> None:
    seen = {kind for path in FROZEN for kind, _ in frozen(json.loads(path.read_text()))}
    assert seen == KINDS.keys()


REQUEST = RegressionRequest(dataset="main", target="bmi", features=("age",), epsilon=1.0, delta=1e-6, nonce="ab" * 32)


@pytest.mark.parametrize("said", [('"delta"', '"epsilon":9.0,"delta"'), ('"version":1', '"version":true')])
def test_unsigned_request_says_nothing_twice_and_true_is_not_one(said: tuple[str, str]) -> None:
    text = encode(REQUEST).decode()
    assert decode(RegressionRequest, text.replace(",", ", ").encode()) == REQUEST
    with pytest.raises(DocumentError):
        decode(RegressionRequest, swap(*said)(text).encode())
