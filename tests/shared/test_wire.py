"""The coordinator's answers, as they are read."""

import json
from base64 import b64encode
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from commingle.shared.wire import (
    Answer,
    CoordinatorIdentity,
    ExchangeProgress,
    PartyKey,
    PartyProgress,
    PartyRecord,
    ReleaseDetails,
    ReleaseEvent,
    ReleaseSummary,
    SealedLinkageKey,
)

DIGEST, AT = "ab" * 32, "2026-03-01T12:00:00Z"
ENVELOPE = {
    "payload": b64encode(b"{}").decode(),
    "payloadType": "application/vnd.commingle.spec+json",
    "signatures": [{"keyid": DIGEST, "sig": b64encode(b"\1" * 64).decode()}],
}
SUMMARY: dict[str, Any] = {
    "id": DIGEST, "study": "s", "mechanism": "dgm", "state": "proposed", "created": AT, "expires": AT, "n": 40,
    "epsilon": 1.0, "delta": 1e-6, "parties": [{"name": "clinic", "approved": False, "uploaded": False}],
}  # fmt: skip
LEAST: dict[type[Answer], dict[str, Any]] = {
    CoordinatorIdentity: {"name": "hub", "signing_key": DIGEST, "fingerprint": DIGEST, "software": "1"},
    PartyRecord: {"name": "clinic", "signing_key": DIGEST, "sealing_key": DIGEST, "fingerprint": DIGEST}
    | {"enrolled": AT},
    PartyKey: {"fingerprint": DIGEST, "signing_key": DIGEST, "since": AT},
    SealedLinkageKey: {"sender": "clinic", "envelope": ENVELOPE},
    PartyProgress: SUMMARY["parties"][0],
    ReleaseSummary: SUMMARY,
    ReleaseDetails: {**SUMMARY, "spec": ENVELOPE, "approvals": {}, "blocks": {}, "rejections": {}},
    ExchangeProgress: {},
    ReleaseEvent: {"seq": 1, "release": DIGEST, "at": AT, "kind": "proposal", "state": "proposed"},
}
"""What every answer needs at least."""


def read(kind: type[Answer], value: object) -> BaseModel:
    return kind.model_validate_json(json.dumps(value))


@pytest.mark.parametrize("kind", LEAST, ids=lambda kind: kind.__name__)
def test_what_a_newer_coordinator_adds_is_ignored_and_what_may_be_absent_is_not_missed(kind: type[Answer]) -> None:
    least = LEAST[kind]
    assert read(kind, least | {"something new": [1]}) == read(kind, least)
    served = set(json.loads(read(kind, least).model_dump_json()))
    assert served == set(kind.model_fields) >= set(least)
    for field in least:
        with pytest.raises(ValidationError, match=field):
            read(kind, {name: value for name, value in least.items() if name != field})


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (CoordinatorIdentity, {"signing_key": "AB" * 32}),
        (PartyRecord, {"name": "../clinic"}),
        (PartyRecord, {"enrolled": 5}),
        (ReleaseSummary, {"id": "ab"}),
        (ReleaseSummary, {"n": "40"}),
        (ReleaseSummary, {"epsilon": "1.0"}),
        (ReleaseSummary, {"state": "forgotten"}),
        (ReleaseDetails, {"spec": {**ENVELOPE, "more": 1}}),
        (ExchangeProgress, {"columns": {"clinic": {**ENVELOPE, "more": 1}}}),
        (ExchangeProgress, {"replies": {"clinic": "signed"}}),
        (ReleaseEvent, {"seq": True}),
        (PartyProgress, {"approved": 1}),
    ],
)
def test_what_is_read_has_its_very_type(kind: type[Answer], wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        read(kind, LEAST[kind] | wrong)


def test_documents_of_an_exchange_are_found_by_kind_where_there_is_none_too() -> None:
    details = ReleaseDetails.model_validate_json(json.dumps(LEAST[ReleaseDetails] | {"approvals": {"a": ENVELOPE}}))
    assert [*details.signed("approval")] == ["a"]
    assert details.signed("columns") == details.signed("reply") == {}
    shown = {"exchange": {"columns": {"a": ENVELOPE}, "replies": {"b": ENVELOPE}}}
    details = ReleaseDetails.model_validate_json(json.dumps(LEAST[ReleaseDetails] | shown))
    assert ([*details.signed("columns")], [*details.signed("reply")]) == (["a"], ["b"])
