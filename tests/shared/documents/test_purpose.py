"""What a study says it is for: optional, signed, shown, and what its forecasts are about."""

import json
from typing import Any

import pytest

from commingle.shared.documents.errors import DocumentError, SpecError
from commingle.shared.documents.model import decode, encode
from commingle.shared.documents.spec import require_plain_text
from commingle.shared.documents.study import Study
from commingle.shared.forecast.curves import plan
from commingle.shared.forecast.forecast import forecast_of, with_sketch
from commingle.shared.forecast.task import Assumptions, assumptions_of
from commingle.shared.release.checks import read_spec
from commingle.shared.release.resolve import terms_of
from tests.shared.documents.test_study import STUDY, build

ATTRIBUTES = [
    {"kind": "numeric", "name": "age", "lower": 0, "upper": 120},
    {"kind": "numeric", "name": "stay", "lower": 0, "upper": 30, "missing": "indicator"},
    {"kind": "numeric", "name": "bmi", "lower": 10, "upper": 50, "missing": "midpoint"},
    {"kind": "categorical", "name": "ward", "levels": ["a", "b", "c"]},
]
SAID: dict[str, Any] = {
    "purpose": "Do older people stay longer?",
    "requester": "Dr. Adams, Charité",
    "ethics_reference": "EA1/123/26",
    "target": "stay",
    "features": ["age"],
    "attachments": [{"name": "protocol.pdf", "sha256": "ab" * 32}],
}


def study(**said: Any) -> Study:
    party = {"name": "clinic", "dataset": "visits", "attributes": ATTRIBUTES}
    return decode(Study, json.dumps({**STUDY, "parties": [party], **said}).encode())


def test_what_a_study_says_it_is_for_is_in_the_spec_and_read_back() -> None:
    spec = build(study(**SAID))
    signed = json.loads(encode(spec))
    assert {name: signed[name] for name in SAID} == SAID
    assert read_spec(encode(spec)) == spec
    assert spec.stated_sentences == (
        "Purpose: “Do older people stay longer?”",
        "Requested by “Dr. Adams, Charité”",
        "Ethics reference: “EA1/123/26”",
        "To explain stay by age",
        f"Attachment: “protocol.pdf”, SHA-256 {'ab' * 32}",
    )


def test_study_that_says_nothing_has_the_bytes_it_always_had() -> None:
    written, spec = study(), build(study())
    for document in (written, spec):
        assert not set(SAID) & set(json.loads(encode(document)))
    assert spec.stated_sentences == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"target": "weight"}, "there is no attribute 'weight'"),
        ({"target": "ward"}, "'ward' has more than two levels"),
        ({"features": ["age", "weight"]}, "there is no attribute 'weight'"),
        ({"features": ["age", "age"]}, "named twice"),
        ({"features": ["stay"]}, "or is the target"),
        ({"target": None}, "features need a target"),
        ({"target": "bmi"}, "missing cells of the target 'bmi' would count as its midpoint"),
        ({"mechanism": "dgm", "k": None}, "the target of dgm may not be missing"),
    ],
)
def test_target_and_features_that_cannot_be_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        build(study(**SAID | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"purpose": ""},
        {"purpose": "x" * 2001},
        {"requester": "a\x1b[2Jb"},
        {"attachments": []},
        {"attachments": [{"name": "a", "sha256": "ab"}]},
        {"attachments": [{"name": "a", "sha256": "ab" * 32}] * 17},
    ],
)
def test_words_that_are_too_long_or_cannot_be_shown_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(DocumentError):
        study(**SAID | changes)


def test_invisible_characters_in_a_purpose_are_refused_in_new_specs() -> None:
    with pytest.raises(SpecError, match="purpose"):
        require_plain_text(build(study(**SAID | {"purpose": "no\u202ething"})))


def test_forecasts_are_about_the_target_of_the_study() -> None:
    spec = build(with_sketch(study(**SAID | {"k": None})))
    found = forecast_of(spec)
    assert found is not None
    assert (found.target, found.target_named) == ("stay", True)
    assert [term.term for term in found.terms] == ["(intercept)", "age"]
    assert "of 'stay'. " in found.sentences[-1]
    asked = study(**SAID)
    assert plan(asked).forecast.target == "stay"
    other = plan(terms_of(asked), assumptions_of(asked, Assumptions(target="bmi"))).forecast
    assert (other.target, len(other.terms)) == ("bmi", 6)  # and the mark of stay
    unsaid = forecast_of(build(study()))
    assert unsaid is not None
    assert unsaid.target_named is False
