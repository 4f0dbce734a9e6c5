"""Every field of the release spec, attacked. The table of refusals names the field or the fact in each message."""

import json
from copy import deepcopy
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commingle.shared.documents.model import encode
from commingle.shared.documents.spec import INTERCEPT, ReleaseSpec
from commingle.shared.dp.accounting import RHO_UNITS, SIGMA_LIMIT
from commingle.shared.errors import CommingleError, DocumentError, SpecError
from commingle.shared.mechanisms import MECHANISMS, mechanism_named
from commingle.shared.mechanisms.moments.block import TRUST_MOMENTS, TRUST_PROVED
from commingle.shared.proving.lengths import proved_noise
from commingle.shared.release.checks import read_spec
from commingle.shared.release.plan import plan_blocks, privacy_statement, published_columns
from commingle.shared.ring.parameters import ROWS_LIMIT, Layout

Json = dict[str, Any]

AGE: Json = {"kind": "numeric", "name": "age", "lower": 0, "upper": 120, "unit": "years"}
SEX: Json = {"kind": "binary", "name": "sex", "levels": ["female", "male"]}
BLOOD: Json = {"kind": "categorical", "name": "blood", "levels": ["0", "A", "B", "AB"]}
VALID: Json = {
    "type": "commingle/release-spec",
    "version": 1,
    "study": "Blood pressure",
    "created": "2025-01-01T00:00:00Z",
    "expires": "2025-01-04T00:00:00Z",
    "mechanism": "rmgm",
    "k": 20,
    "fraction_bits": 15,
    "seed": "01" * 32,
    "alignment": "exact",
    "calibration": "zcdp",
    "epsilon": 1,
    "delta": 1e-5,
    "n": 1000,
    "parties": [
        {
            "name": "clinic",
            "signing_key": "aa" * 32,
            "sealing_key": "ab" * 32,
            "dataset": "visits",
            "attributes": [AGE, SEX],
        },
        {
            "name": "lab",
            "signing_key": "ba" * 32,
            "sealing_key": "bb" * 32,
            "dataset": "assays",
            "attributes": [BLOOD],
            "row_norm": 0.5,
        },
    ],
    "proposer": "cc" * 32,
}
GONE = object()
WHITENING: Json = {"centre": [0.1, 0, -1], "matrix": [[2, 0.5, 0], [0.5, 3, 0], [0, 0, 1]]}


def changed(path: str, value: object) -> Json:
    """VALID with one field set, or removed where value is GONE. Path parts are keys or list positions."""
    document = deepcopy(VALID)
    *parents, last = path.split("/")
    place: Any = document
    for part in parents:
        place = place[int(part)] if part.isdigit() else place[part]
    key: Any = int(last) if last.isdigit() else last
    if value is GONE:
        del place[key]
    else:
        place[key] = value
    return document


def parse(document: object) -> ReleaseSpec:
    return read_spec(json.dumps(document).encode())


ACCEPTED: list[tuple[str, list[object]]] = [
    ("k", [7, 1000]),
    ("projection", ["sparse", None]),
    ("n", [20, 2**38 - 1]),
    ("epsilon", [1e-3, 100]),
    ("delta", [0.5]),
    ("calibration", ["classical", "analytic", GONE]),
    ("alignment", [GONE]),
    ("fraction_bits", [GONE]),
    ("study", ["x" * 200]),
    ("expires", ["2025-01-01T00:00:01+00:00"]),
    ("parties/0/row_norm", [None, 1, 1000]),
    ("parties/1/whitening", [None, WHITENING]),
    ("parties/1/whitening", [{**WHITENING, "matrix": [[1024, 0, 0], [0, 1, 0], [0, 0, 1]]}]),
    ("parties/0/attributes/0/unit", [None, "", "µ" * 80]),
    ("parties/0/attributes/0/missing", ["midpoint"]),
    ("parties/0/attributes/0/name", ["Größe, im Stehen (cm)"]),
    ("parties/0/attributes/1/levels", [["=", "["]]),
    (
        "parties/0/attributes/0",
        [{**AGE, "lower": low, "upper": high} for low, high in ((-8e307, 8e307), (1e308, 1.1e308))],
    ),
]

REFUSED: list[tuple[str, list[object], str]] = [
    ("type", ["commingle/approval", None], "type"),
    ("version", [2, "1"], "version"),
    ("study", ["", GONE, "x" * 201, "two\nlines", "bell\x07", 5], "study"),
    ("created", [GONE, "2025-01-01", 1735689600, "2025-13-01T00:00:00Z"], "created"),
    ("created", ["2025-01-01T00:00:00"], "timezone"),
    ("expires", ["2025-01-01T00:00:00Z", "2024-01-01T00:00:00Z"], "later than created"),
    ("expires", [None], "expires"),
    ("mechanism", ["RMGM", "laplace", GONE], "mechanism"),
    ("mechanism", ["dgm"], "k belongs to rmgm"),
    ("projection", ["dense", True], "projection"),
    ("k", [GONE, None], "rmgm needs k"),
    ("k", [0, -5, 20.0, "20", True, 1_000_001, 10**30], "k"),
    ("k", [6], "exceed the 6 published columns"),
    ("k", [1001], "not exceed n"),
    ("fraction_bits", [16, 0, True], "fraction_bits"),
    ("fraction_bits", [14], "15 for rmgm"),
    ("parties/0/cross_weight", [2], "nothing is crossed in rmgm"),
    ("parties/0/cross_weight", [5, 0, True], "cross_weight"),
    ("seed", ["01" * 31, "0A" * 32, "01" * 32 + "\n", "zz" * 32, GONE], "seed"),
    ("alignment", ["fuzzy"], "alignment"),
    ("adjacency", ["replace_one"], "adjacency"),
    ("calibration", ["exact", None], "calibration"),
    ("epsilon", [GONE, 0, -0.0, -1, 5e-324, "1", True, None, 1e12], "epsilon"),
    ("epsilon", [float("inf"), float("nan")], "epsilon|JSON"),
    ("delta", [GONE, 0, 1, -1e-5, 5e-324, "1e-5"], "delta"),
    ("n", [1, 0, -1000, 1000.0, True, 2**53, 10**400], "n"),
    ("n", [2**38], "too many"),
    ("parties", [[], {}, GONE], "parties"),
    ("parties/0/name", ["Clinic", "", "../etc", "a" * 64, "clinic\n"], "name"),
    ("parties/0/name", ["lab"], "'lab' appears twice"),
    ("parties/0/dataset", ["a/b"], "dataset"),
    ("parties/0/attributes/0/unit", ["µ" * 81, "mg\nL"], "unit"),
    ("parties/0/signing_key", ["aa" * 31], "signing_key"),
    ("parties/0/signing_key", ["ba" * 32], "signing key"),
    ("parties/0/sealing_key", [None], "sealing_key"),
    ("parties/0/attributes", [[]], "attributes"),
    ("parties/0/attributes", [[AGE, AGE]], "'age' appears twice"),
    ("parties/0/attributes", [[BLOOD]], "'blood' appears twice"),
    ("parties/0/attributes", [[{**AGE, "name": f"x{i}"} for i in range(257)]], "attributes"),
    ("parties/0/row_norm", [0, -1, 1001, "1"], "row_norm"),
    ("parties/0/whitening", [[[1]]], "whitening"),
    ("parties/0/whitening", [{"centre": [0, 0], "matrix": [[1, 0], [0, 1]]}], "row_norm of at most 1"),
    ("parties/1/whitening", [{"centre": [0, 0], "matrix": [[1, 0], [0, 1]]}], "3 encoded columns"),
    ("parties/1/whitening", [{"centre": [], "matrix": []}, {**WHITENING, "centre": [0, 0, 1.1]}], "centre"),
    ("parties/1/whitening", [{**WHITENING, "matrix": [[1, 0], [0, 1], [0, 0]]}], "3 x 3"),
    ("parties/1/whitening", [{**WHITENING, "matrix": [[1025, 0, 0], [0, 1, 0], [0, 0, 1]]}], "more than 1024"),
    ("parties/1/whitening", [{**WHITENING, "matrix": [[1e300, 0, 0], [0, 1, 0], [0, 0, 1]]}], "more than 1024"),
    ("parties/1/whitening", [{**WHITENING, "matrix": [[1, 1, 0], [1, 1, 0], [0, 0, 1]]}], "condition number"),
    ("parties/1/whitening", [{**WHITENING, "matrix": [[0, 0, 0]] * 3}], "condition number"),
    ("parties/1/whitening", [{**WHITENING, "matrix": [[1, 0, 0], [0, 1, 0], [0, 0, 1e-7]]}], "condition number"),
    ("parties/1/whitening", [{**WHITENING, "secret": 1}], "secret"),
    ("parties/0/attributes/0/kind", ["text"], "attribute age: has a .kind. that is none"),
    ("parties/0/attributes/0/kind", [GONE], "attribute age: needs a .kind."),
    ("parties/0/attributes/0/lower", [120, 121], "below upper"),
    ("parties/0/attributes/0/lower", [GONE], "lower"),
    ("parties/0/attributes/0", [{**AGE, "lower": -1e308, "upper": 1e308}], "too far apart"),
    ("parties/0/attributes/0", [{**AGE, "lower": 0, "upper": 5e-301}], "too close together"),
    ("parties/0/attributes/0/upper", [float("inf"), float("nan")], "upper|JSON"),
    ("parties/0/attributes/0/missing", ["mean"], "missing"),
    ("parties/0/attributes/0/name", ["a=b", "a[b]", "a\tb", ""], "name"),
    ("parties/0/attributes/0/name", ["a" * 81], "1 to 80 characters without"),
    ("parties/0/attributes/1/levels", [["a"]], "level number 2: is missing"),
    ("parties/0/attributes/1/levels", [["a", "b", "c"]], "levels"),
    ("parties/0/attributes/1/levels", [["a", "a"]], "levels must differ"),
    ("parties/0/attributes/1/levels", [[0, 1]], "level number 1: is to be text in quotation marks"),
    ("parties/1/attributes/0/levels", [["a", "b"]], "levels"),
    ("parties/1/attributes/0/levels", [["a", "b", "a"]], "levels must differ"),
    ("parties/1/attributes/0/levels", [[f"{i}" for i in range(257)]], "levels"),
    ("parties/1/attributes/0/missing", ["midpoint"], "missing"),
    ("proposer", ["cc" * 16, GONE], "proposer"),
    ("surprise", [1], "surprise"),
    ("parties/0/surprise", [1], "surprise"),
]


@pytest.mark.parametrize(("path", "value"), [(path, value) for path, values in ACCEPTED for value in values])
def test_unusual_but_valid_field_is_accepted(path: str, value: object) -> None:
    spec = parse(changed(path, value))
    assert parse(json.loads(encode(spec))) == spec


@pytest.mark.parametrize(
    ("path", "value", "said"), [(path, value, said) for path, values, said in REFUSED for value in values]
)
def test_invalid_field_is_refused_by_name(path: str, value: object, said: str) -> None:
    with pytest.raises(DocumentError, match=said):
        parse(changed(path, value))


@pytest.mark.parametrize("number", ["1e309", "-1e309", "Infinity", "NaN"])
@pytest.mark.parametrize("field", ["epsilon", "delta"])
def test_number_that_json_cannot_hold_is_refused(field: str, number: str) -> None:
    text = json.dumps(changed(field, 12345)).replace("12345", number)
    with pytest.raises(DocumentError):
        read_spec(text.encode())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_takes_whitened_rows(mechanism: str) -> None:
    chosen: Json = {"mechanism": mechanism, "fraction_bits": mechanism_named(mechanism).fraction_bits}
    if mechanism != "rmgm":
        chosen["k"] = None
    spec = parse({**changed("parties/1/whitening", WHITENING), **chosen})
    assert plan_blocks(spec)[1].columns == ("whitened[blood=A]", "whitened[blood=B]", "whitened[blood=AB]")


def test_whitened_columns_are_published_under_their_own_names() -> None:
    spec = parse(changed("parties/1/whitening", WHITENING))
    names = ("(intercept)", "age", "sex", "whitened[blood=A]", "whitened[blood=B]", "whitened[blood=AB]")
    assert tuple(column.name for column in spec.matrix_columns) == names
    assert plan_blocks(spec)[1].columns == names[3:]
    assert tuple(column.name for column in published_columns(spec)) == names


def test_noise_of_whitened_rows_follows_from_the_row_norm_alone() -> None:
    # blood alone has diameter sqrt(2): whitened with C = 0.99 that bound no longer holds
    document = changed("parties/1/whitening", WHITENING)
    document["parties"][1]["row_norm"] = 0.99
    whitened = plan_blocks(parse(document))[1]
    document["parties"][1]["whitening"] = None
    plain = plan_blocks(parse(document))[1]
    assert whitened.sigma / plain.sigma == pytest.approx(2 * 0.99 / 2**0.5, rel=1e-4)


def test_spec_that_leaves_its_calibration_out_is_one_of_zcdp_as_it_always_was() -> None:
    assert parse({name: value for name, value in VALID.items() if name != "calibration"}).calibration == "zcdp"


CLOSE = [{**AGE, "lower": 0, "upper": 5e-324}]
WIDE = [{**BLOOD, "name": "wide", "levels": [f"{i}" for i in range(256)]}, AGE]
LAB = VALID["parties"][1]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({**VALID, "calibration": "analytic", "epsilon": 1e80}, "cannot be calibrated"),
        ({**VALID, "calibration": "analytic", "epsilon": 1e200}, "cannot be calibrated"),
        ({**VALID, "calibration": "classical", "epsilon": 1.5}, "Use calibration analytic"),
        ({**changed("parties/0/attributes", WIDE), "k": 500}, "260 encoded columns"),
        (changed("parties/0/attributes/0/name", INTERCEPT), "intercept"),
        (changed("parties/0/attributes", CLOSE), "close"),
        (changed("parties/1", {**LAB, "whitening": WHITENING, "row_norm": None}), "row_norm of at most 1"),
        (changed("parties/1", {**LAB, "whitening": WHITENING, "row_norm": 1.001}), "row_norm of at most 1"),
        (
            {**changed("parties/0/attributes", [AGE, AGE]), "k": 2000, "epsilon": -1},
            r"(?s)appears twice.*not exceed n.*epsilon",  # every problem at once
        ),
    ],
)
def test_fields_that_do_not_go_together_are_refused_with_the_reason(document: Json, said: str) -> None:
    with pytest.raises(DocumentError, match=said):
        parse(document)


def test_column_names_are_unique_and_intercept_comes_first() -> None:
    names = [column.name for column in parse(VALID).matrix_columns]
    assert names == ["(intercept)", "age", "sex", "contrast[blood=A]", "contrast[blood=B]", "contrast[blood=AB]"]
    labels = [column.label for column in parse(VALID).matrix_columns]
    assert labels == ["(intercept)", "age", "sex[male]", *(f"contrast[blood[{level}]]" for level in ("A", "B", "AB"))]


def test_decoding_affine_map_takes_encoded_extremes_to_the_bounds() -> None:
    age = parse(VALID).matrix_columns[1]
    assert age.offset - age.scale == 0
    assert age.offset + age.scale == 120


MOMENTS = {**VALID, "mechanism": "moments", "k": None, "fraction_bits": 14}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"fraction_bits": 15}, "14 for moments"),
        ({"k": 20}, "k belongs to rmgm"),
        ({"projection": "sparse"}, "projection belongs to rmgm"),
        ({"n": ROWS_LIMIT + 1}, "too many for an exchange"),
        ({"bounds": "hoped"}, "bounds"),
        ({"bounds": "proved", "mechanism": "dgm", "fraction_bits": 15}, "where members exchange"),
        ({"bounds": "trusted", "mechanism": "dgm", "fraction_bits": 15}, "where members exchange"),
    ],
)
def test_moments_spec_that_makes_no_sense_is_refused_by_name(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(CommingleError, match=said):
        parse({**MOMENTS, **changes})


def test_spec_that_leaves_its_bounds_out_trusts_members_and_says_the_bytes_it_always_said() -> None:
    trusted, said = parse(MOMENTS), {bounds: parse({**MOMENTS, "bounds": bounds}) for bounds in ("trusted", "proved")}
    assert trusted.bounds is None
    assert b"bounds" not in encode(trusted)
    assert {bounds: spec.bounds for bounds, spec in said.items()} == {"trusted": "trusted", "proved": "proved"}
    trust = [privacy_statement(spec).trust for spec in (trusted, said["trusted"], said["proved"])]
    assert trust == [TRUST_MOMENTS, TRUST_MOMENTS, TRUST_PROVED]


def wide(number: int, columns: int) -> Json:
    """A party of so many columns."""
    attributes = [{"kind": "numeric", "name": f"x{number} {i}", "lower": 0, "upper": 1} for i in range(columns)]
    key = f"{number + 1:064x}"
    named = {"name": f"p{number}", "signing_key": key, "sealing_key": key}
    return {**VALID["parties"][0], **named, "attributes": attributes}


def test_more_rows_than_one_proof_can_be_about_are_refused_where_bounds_are_proved_and_taken_where_trusted() -> None:
    """Of a last party with 22 columns at the most rows there are."""
    asked = {**MOMENTS, "n": ROWS_LIMIT, "bounds": "proved"}
    parse({**asked, "parties": [wide(0, 1), wide(1, 21)]})
    many = {**asked, "parties": [wide(0, 1), wide(1, 22)]}
    with pytest.raises(CommingleError, match="too many rows and columns to prove their bounds"):
        parse(many)
    assert parse({**many, "bounds": "trusted"}).bounds == "trusted"


def test_one_opening_more_than_is_flooded_is_refused_where_bounds_are_proved_and_taken_where_trusted() -> None:
    """C V <= 2^49 of the proof's 7.1; drawn errors, which trusted members have, leave more room than there can be."""
    asked = {**MOMENTS, "n": ROWS_LIMIT, "bounds": "proved"}
    assert {2**49 // proved_noise(Layout(b"", ROWS_LIMIT, columns)) for columns in (14, 16)} == {97}
    assert parse({**asked, "parties": [wide(0, 16), wide(1, 6)]})
    beyond = {**asked, "parties": [wide(0, 14), wide(1, 7)]}
    with pytest.raises(CommingleError, match=r"98 products .* hide 97 at most .* fewer columns"):
        parse(beyond)
    assert parse({**beyond, "bounds": "trusted"}).bounds == "trusted"


def test_openings_are_one_for_each_two_columns_of_different_parties() -> None:
    """Three parties of ten columns have 300: at 5 450 824 subjects all of them are flooded, and not with one more."""
    asked = {**MOMENTS, "bounds": "proved", "parties": [wide(number, 10) for number in range(3)]}
    assert parse({**asked, "n": 5_450_824})
    with pytest.raises(CommingleError, match="300 products"):
        parse({**asked, "n": 5_450_825})


def test_moments_of_the_most_subjects_that_stay_exact_are_accepted() -> None:
    spec = parse({**MOMENTS, "n": ROWS_LIMIT})
    assert spec.n * 4**14 + 26 * SIGMA_LIMIT < 2**63
    assert max(plan.sigma for plan in plan_blocks(spec)) <= SIGMA_LIMIT


def test_party_that_is_not_in_the_spec_is_a_spec_error() -> None:
    with pytest.raises(SpecError, match="stranger"):
        parse(VALID).party("stranger")


def test_expiry_is_reached_at_the_very_second() -> None:
    spec = parse(VALID)
    assert not spec.expired(spec.created)
    assert spec.expired(spec.expires)


def test_plan_of_noise_beyond_exact_arithmetic_is_a_spec_error() -> None:
    spec = parse({**VALID, "epsilon": 1e-7, "delta": 1e-13, "k": 10**6, "n": 10**6})
    with pytest.raises(SpecError, match="too much noise"):
        plan_blocks(spec)


def test_sparse_block_has_the_noise_and_step_of_plain_rows_and_a_dense_one_the_same_in_finer_steps() -> None:
    dense = parse({**VALID, "k": 400})
    sparse = parse({**VALID, "k": 400, "projection": "sparse"})
    plain = parse({**VALID, "k": None, "mechanism": "dgm"})
    steps = [mechanism_named(spec.mechanism).step(spec.terms) for spec in (dense, sparse, plain)]
    assert steps == [2**-15 / 20, 2**-15, 2**-15]
    for d, s, p in zip(*map(plan_blocks, (dense, sparse, plain)), strict=True):
        assert (s.rows, s.sigma, s.loss) == (400, p.sigma, p.loss)
        assert 20 * (s.sigma - 1) < d.sigma <= 20 * s.sigma
    assert b"projection" not in encode(dense)


@given(st.sampled_from(["rmgm", "dgm", "keyed"]), st.floats(0.01, 50))
def test_privacy_statement_keeps_every_promise_of_the_spec(mechanism: str, epsilon: float) -> None:
    k, keyed = None if mechanism == "dgm" else 50, mechanism == "keyed"
    said: dict[str, Any] = {**VALID, "mechanism": "rmgm" if keyed else mechanism, "epsilon": epsilon, "k": k}
    if keyed:
        said |= {"alignment": "keyed", "parties": [{**party, "subjects": "keyed"} for party in said["parties"]]}
    spec = parse(said)
    statement = privacy_statement(spec)
    for party, plan in zip(statement.per_party, plan_blocks(spec), strict=True):
        assert Fraction(party.loss.own.rho) >= Fraction(plan.loss.units, RHO_UNITS)
        assert party.loss.own.epsilon <= epsilon * (1 + 1e-12)
        assert party.loss.own.epsilon >= epsilon * 0.999  # no noise is wasted on rounding
        assert (party.loss.replacement is not None) is keyed
    total = statement.per_subject
    assert total.own.rho == pytest.approx(sum(p.loss.own.rho for p in statement.per_party), rel=1e-12)
    if keyed:
        others = [party.loss.replacement for party in statement.per_party if party.loss.replacement is not None]
        assert total.replacement is not None
        assert total.replacement.rho == pytest.approx(sum(other.rho for other in others), rel=1e-12)


def test_refusal_does_not_repeat_the_offending_value() -> None:
    with pytest.raises(DocumentError) as refused:
        parse(changed("seed", "a secret pasted into the wrong field"))
    assert "secret" not in refused.value.diagnostics()
