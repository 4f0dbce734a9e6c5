import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from commingle.shared.documents.errors import DocumentError, SpecError
from commingle.shared.documents.keys import Fingerprint
from commingle.shared.documents.model import decode, decode_canonical, encode
from commingle.shared.documents.schema import Whitening
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.study import Study
from commingle.shared.errors import CommingleError
from commingle.shared.mechanisms.registry import mechanism_of
from commingle.shared.release.checks import Member, build_spec
from commingle.shared.release.resolve import terms_of

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
    for unknown in ([], ["digits/2"], "digits/1", ["exact/1"] * 9):
        with pytest.raises(DocumentError, match="id_rules"):
            study(id_rules=unknown)


def test_study_of_an_exchange_has_no_sketch_and_fourteen_fraction_bits_and_one_of_dgm_no_sketch() -> None:
    spec = build(study(mechanism="moments", k=None))
    assert (spec.k, spec.fraction_bits, mechanism_of(spec).interactive) == (None, 14, True)
    assert build(study(mechanism="dgm", k=None)).k is None


@pytest.mark.parametrize(
    ("asked", "agreed"), [({}, "proved"), ({"bounds": "proved"}, "proved"), ({"bounds": "trusted"}, "trusted")]
)
def test_bounds_of_a_moments_study_are_proved_unless_it_says_that_they_are_trusted(
    asked: dict[str, Any], agreed: str
) -> None:
    assert build(study(mechanism="moments", k=None, **asked)).bounds == agreed


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


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"weighted": {"attribute": "agee", "weight": 2}}, "clinic is not asked for 'agee'"),
        ({"weighted": {"attribute": "age", "weight": 5}}, "weight"),
        ({"weighted": {"attribute": "age", "weight": 2}}, "in moments alone"),
        ({"weighted": {"attribute": "age", "weight": 2}, "row_norm": 1, "whitening": WHITENING}, "leave weighted out"),
    ],
)
def test_weight_that_nothing_can_have_is_refused_with_the_reason(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(CommingleError, match=said):
        build(study(parties=[{**PARTY, **changes}]))


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
    ],
)
def test_study_that_makes_no_sense_is_a_spec_error_that_says_why(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        build(study(**changes))


@pytest.mark.parametrize(
    "changes",
    [{"parties": []}, {"n": -5}, {"n": 10**400}, {"parties": [{**PARTY, "row_norm": 1e-6}]}],
    ids=["no parties", "negative n", "huge n", "row norm below the resolution"],
)
def test_extreme_study_becomes_a_spec_or_raises_only_our_errors(changes: dict[str, Any]) -> None:
    try:
        build(study(**changes))
    except CommingleError as error:
        assert error.remedy  # noqa: PT017 - the point is that nothing else escapes


def test_seed_of_wrong_length_is_refused() -> None:
    with pytest.raises(SpecError, match="seed"):
        build(study(), seed=b"\1" * 31)


def test_study_that_whitens_becomes_a_spec_that_does() -> None:
    spec = build(study(parties=[{**PARTY, "row_norm": 0.3, "whitening": WHITENING}]))
    assert spec.parties[0].whitening == Whitening(centre=(0.25,), matrix=((3.0,),))
