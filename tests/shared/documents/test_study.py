import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from commingle.shared.documents.dsse import Fingerprint
from commingle.shared.documents.model import decode, decode_canonical, encode
from commingle.shared.documents.schema import Whitening
from commingle.shared.documents.spec import ReleaseSpec, require_plain_text
from commingle.shared.documents.study import Study
from commingle.shared.errors import DocumentError, SpecError
from commingle.shared.forecast.forecast import forecast_of, plan, with_sketch
from commingle.shared.forecast.task import Assumptions, assumptions_of
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.release.checks import Member, build_spec, read_spec, terms_of

NOW = datetime(2025, 1, 1, tzinfo=UTC)
PARTY: dict[str, Any] = {
    "name": "clinic",
    "dataset": "visits",
    "attributes": [{"kind": "numeric", "name": "age", "lower": 0, "upper": 120}],
}
WHITENING = {"centre": [0.25], "matrix": [[3.0]]}
STUDY: dict[str, Any] = {
    "study": "Age",
    "mechanism": "rmgm",
    "epsilon": 1,
    "delta": 1e-5,
    "n": 10_000,
    "k": 50,
    "parties": [PARTY],
}
MEMBERS = {"clinic": Member("aa" * 32, "ab" * 32), "lab": Member("ba" * 32, "bb" * 32)}


def study(**changes: Any) -> Study:
    return decode(Study, json.dumps({**STUDY, **changes}).encode())


def build(written: Study, seed: bytes = b"\1" * 32) -> ReleaseSpec:
    return build_spec(written, members=MEMBERS, proposer=Fingerprint("cc" * 32), seed=seed, now=NOW)


def test_study_becomes_a_spec_with_the_members_keys_and_the_default_lifetime() -> None:
    spec = build(study())
    assert spec.expires - spec.created == timedelta(hours=72)
    assert spec.parties[0].signing_key == MEMBERS["clinic"].signing_key
    assert spec.parties[0].sealing_key == MEMBERS["clinic"].sealing_key
    assert spec.seed == "01" * 32
    assert spec.proposer == "cc" * 32
    assert (spec.k, spec.bounds) == (50, None)


@pytest.mark.parametrize(
    ("said", "keyed"),
    [
        ({}, True),
        ({"mechanism": "moments", "k": None}, True),
        ({"mechanism": "dgm", "k": None}, False),
        ({"projection": "sparse"}, False),
        ({"subjects": "listed"}, False),
        ({"subjects": "keyed"}, True),
    ],
)
def test_subjects_are_keyed_where_they_can_be_and_nothing_says_otherwise(said: dict[str, Any], keyed: bool) -> None:
    written = study(**said)
    assert terms_of(written).keyed is keyed
    assert build(written).keyed is keyed
    assert build(written).terms.adjacency == terms_of(written).adjacency == ("add_remove" if keyed else "replace_one")
    assert terms_of(study(**json.loads(encode(written)))).keyed is keyed


def test_rules_of_ids_are_in_a_spec_only_where_the_study_names_them() -> None:
    plain, named = build(study()), build(study(id_rules=["digits/1", "date/1"]))
    assert b"id_rules" not in encode(plain)
    assert plain.id_rules_in_force == ("exact/1",)
    assert b'"id_rules":["digits/1","date/1"]' in encode(named)
    assert decode_canonical(ReleaseSpec, encode(named)) == named


@pytest.mark.parametrize(
    ("asked", "agreed"), [({}, "proved"), ({"bounds": "proved"}, "proved"), ({"bounds": "trusted"}, "trusted")]
)
def test_study_of_an_exchange_has_no_sketch_fourteen_bits_and_bounds_that_are_proved_unless_it_says_trusted(
    asked: dict[str, Any], agreed: str
) -> None:
    spec = build(study(mechanism="moments", k=None, **asked))
    assert (spec.k, spec.fraction_bits, spec.bounds, mechanism_of(spec).interactive) == (None, 14, agreed, True)


@pytest.mark.parametrize(
    ("changes", "party", "weight"),
    [
        ({}, {}, 4),
        ({"n": 50}, {}, 1),
        ({"n": 20}, {}, None),
        ({}, {"first_stage_share": None}, None),
        ({"mechanism": "dgm"}, {}, None),
    ],
)
def test_products_are_given_a_weight_where_there_is_a_first_stage_and_enough_to_learn(
    changes: dict[str, Any], party: dict[str, Any], weight: int | None
) -> None:
    """With n sqrt(rho) / 6 of 316, 1.6 and 0.6."""
    asked = {"mechanism": "moments", "subjects": "listed", "k": None, "parties": [{**PARTY, **party}], **changes}
    spec = build(study(**asked))
    assert spec.parties[0].cross_weight == weight
    assert (b"cross_weight" in encode(spec)) is (weight is not None)


@pytest.mark.parametrize(("weight", "bits"), [(None, 14), (2, 13), (3, 12), (4, 12)])
def test_study_that_weighs_an_attribute_becomes_a_spec_that_leaves_room_for_it(weight: int | None, bits: int) -> None:
    heavy = {} if weight is None else {"weighted": {"attribute": "age", "weight": weight}}
    spec = build(study(mechanism="moments", k=None, parties=[{**PARTY, "first_stage_share": None, **heavy}]))
    assert spec.fraction_bits == bits
    assert (b"weighted" in encode(spec)) is (weight is not None)
    assert [c.name for c in spec.matrix_columns] == ["present[clinic]", "age" if weight is None else "scaled[age]"]


HEAVY = {"attribute": "age", "weight": 2}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"parties": [{**PARTY, "name": "stranger"}]}, "not enrolled: stranger"),
        ({"parties": [{**PARTY, "attributes": []}]}, "no attributes are asked of clinic"),
        ({"parties": [PARTY, PARTY]}, "appears twice"),
        ({"k": None}, "rmgm needs k"),
        ({"k": 1}, "k"),
        ({"k": 10_001}, "not exceed n"),
        ({"mechanism": "dgm", "k": 10}, "k belongs to rmgm"),
        ({"mechanism": "dgm", "k": None, "subjects": "keyed"}, "listed, not keyed: leave subjects out if all"),
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": -1, "mechanism": "dgm", "k": None}, "epsilon"),
        ({"epsilon": 5e-324}, "epsilon"),
        ({"epsilon": 2, "calibration": "classical"}, "classical"),
        ({"delta": 1}, "delta"),
        ({"parties": [{**PARTY, "row_norm": -1}]}, "row_norm"),
        ({"parties": [{**PARTY, "row_norm": 1e9}]}, "row_norm"),
        ({"parties": [{**PARTY, "whitening": WHITENING}]}, "row_norm"),
        ({"subjects": "keyed", "projection": "sparse"}, "keyed"),
        ({"subjects": "keyed", "mechanism": "dgm", "k": None}, "keyed"),
        ({"bounds": "proved"}, "proved or trusted where members exchange"),
        ({"bounds": "trusted"}, "proved or trusted where members exchange"),
        ({"parties": [{**PARTY, "weighted": HEAVY}]}, "in moments alone"),
    ],
)
def test_study_that_makes_no_sense_is_a_spec_error_that_says_why(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        build(study(**changes))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"n": -5}, "n"),
        ({"n": 10**400}, "n"),
        ({"parties": [{**PARTY, "weighted": {**HEAVY, "attribute": "agee"}}]}, "clinic is not asked for 'agee'"),
        ({"parties": [{**PARTY, "weighted": {**HEAVY, "weight": 5}}]}, "weight"),
        ({"parties": [{**PARTY, "weighted": HEAVY, "row_norm": 1, "whitening": WHITENING}]}, "leave weighted out"),
        *(({"id_rules": rules}, "id_rules") for rules in ([], ["digits/2"], "digits/1", ["exact/1"] * 9)),
    ],
)
def test_field_that_no_study_can_have_is_refused_with_the_reason(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(DocumentError, match=said):
        study(**changes)


def test_study_that_whitens_becomes_a_spec_that_does() -> None:
    spec = build(study(parties=[{**PARTY, "row_norm": 0.3, "whitening": WHITENING}]))
    assert spec.parties[0].whitening == Whitening(centre=(0.25,), matrix=((3.0,),))


STATED_ATTRIBUTES = [
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


def stated(**said: Any) -> Study:
    party = {"name": "clinic", "dataset": "visits", "attributes": STATED_ATTRIBUTES}
    return decode(Study, json.dumps({**STUDY, "parties": [party], **said}).encode())


def test_what_a_study_says_it_is_for_is_in_the_spec_and_read_back() -> None:
    spec = build(stated(**SAID))
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
    written, spec = stated(), build(stated())
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
        build(stated(**SAID | changes))


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
        stated(**SAID | changes)


def test_invisible_characters_in_a_purpose_are_refused_in_new_specs() -> None:
    with pytest.raises(SpecError, match="purpose"):
        require_plain_text(build(stated(**SAID | {"purpose": "no\u202ething"})))


def test_forecasts_are_about_the_target_of_the_study() -> None:
    spec = build(with_sketch(stated(**SAID | {"k": None})))
    found = forecast_of(spec)
    assert found is not None
    assert (found.target, found.target_named) == ("stay", True)
    assert [term.term for term in found.terms] == ["(intercept)", "age"]
    assert "of 'stay'. " in found.sentences[-1]
    asked = stated(**SAID)
    assert plan(asked).forecast.target == "stay"
    other = plan(terms_of(asked), assumptions_of(asked, Assumptions(target="bmi"))).forecast
    assert (other.target, len(other.terms)) == ("bmi", 6)  # and the mark of stay
    unsaid = forecast_of(build(stated()))
    assert unsaid is not None
    assert unsaid.target_named is False


_HEAVY = ("scipy", "pyarrow", "commingle.shared.mechanisms", "commingle.shared.estimation", "commingle.shared.release")
_PARSE = """
import sys
from pathlib import Path
from commingle.shared.documents.manifest import Manifest
from commingle.shared.documents.model import decode
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import Approval, BlockStatement, SignedDocument
from commingle.shared.documents.study import Study
from commingle.shared.documents.dsse import parse_envelope

manifest = decode(SignedDocument, Path(sys.argv[1]).read_bytes()).open(Manifest).document
spec = decode(ReleaseSpec, manifest.spec.payload_bytes)
assert spec.matrix_columns and spec.terms.parties
Study.model_validate_json(sys.argv[2])
print([name for name in sys.modules if name.startswith(tuple(sys.argv[3].split()))])
"""


@pytest.mark.slow
def test_study_spec_and_manifest_are_parsed_without_a_mechanism(tmp_path: Path) -> None:
    from tests.world.released import published

    file = tmp_path / "manifest.json"
    file.write_bytes(published()[1].manifest)
    attribute = {"kind": "numeric", "name": "age", "lower": 0, "upper": 100}
    party = {"name": "clinic", "dataset": "main", "attributes": [attribute]}
    study = {"study": "Ages", "epsilon": 1.0, "delta": 1e-5, "n": 100, "parties": [party]}
    asked = [sys.executable, "-c", _PARSE, str(file), json.dumps(study), " ".join(_HEAVY)]
    found = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=120)
    assert (found.returncode, found.stdout.strip()) == (0, "[]"), found.stderr
