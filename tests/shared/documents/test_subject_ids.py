"""Rules by which ids are written: what they make the same, what they keep apart, what they refuse."""

import hashlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from commingle.shared.documents.linkage import alignment_digest
from commingle.shared.documents.model import explain
from commingle.shared.documents.subject_ids import (
    LONGEST_PART,
    MAX_KEYS,
    RULE_NAMES,
    IdCounts,
    IdRule,
    IdRules,
    SubjectKey,
    canonical_subject,
    forms_of,
    id_parts,
    is_id_rule,
    prefix_rule,
)
from commingle.shared.errors import SpecError
from commingle.shared.values import length_prefixed, subject_ids

rules = st.sampled_from(RULE_NAMES)
dates = st.dates().map(str) | st.dates().map(lambda day: f"{day:%Y%m%d} 00:00")
numbers = st.text("0123456789 .-/\uff10\u0661", max_size=8)
texts = st.text() | numbers | dates | st.text("ﬁẞıİ\u0345\u0301\u200b\u1100\u1161\u11a8¨ \t-aA1", max_size=8)


def written(rule: IdRule, text: str) -> str:
    return SubjectKey(("id",), (rule,)).canonical([text]).decode()


@pytest.mark.parametrize(
    ("rule", "text", "expected"),
    [
        ("exact/1", "  0042 a", "0042 a"),
        ("exact/1", "e\u0301", "é"),
        ("exact/1", "\uff21", "\uff21"),
        ("text/1", "  ANNA \u00a0 Maria\t", "anna maria"),
        ("text/1", "Straße", "strasse"),
        ("text/1", "\uff2dÜLLER\u200b", "müller"),
        ("text/1", "O'Neil-Ruiz", "o'neil-ruiz"),
        ("text/1", "0042", "0042"),
        ("code/1", "AB-12 / 03.x", "ab1203x"),
        ("code/1", "0042", "0042"),
        ("digits/1", "0000100000", "100000"),
        ("digits/1", "100 000", "100000"),
        ("digits/1", "943-476-5919", "9434765919"),
        ("digits/1", "\uff10\uff11", "1"),
        ("digits/1", "000", "0"),
        ("digits-after:P-/1", " p-000123", "123"),
        ("digits-after:P-/1", "123", "123"),
        ("digits-after:NL//1", "NL/017", "17"),
        ("digits-after:P-/1", "\uff30-0", "0"),
        ("date/1", "1980-02-29", "1980-02-29"),
        ("date/1", " 19800229 ", "1980-02-29"),
        ("date/1", "1980-02-29 00:00:00", "1980-02-29"),
        ("date/1", "1980-02-29T00:00:00.000000", "1980-02-29"),
    ],
)
def test_each_rule_writes_ids_in_its_way(rule: IdRule, text: str, expected: str) -> None:
    assert written(rule, text) == expected


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        *((rule, "  ") for rule in RULE_NAMES),
        ("text/1", "\u200b"),
        ("code/1", "--"),
        ("digits/1", "12a"),
        ("digits/1", "1e5"),
        ("digits/1", "½"),
        ("digits/1", "100000.0"),
        ("digits/1", "-5"),
        ("digits/1", "1--2"),
        ("digits/1", "\u0661"),
        *(("digits-after:P-/1", text) for text in ("Q-123", "P-P-1", "P-", "P--5", "P- -5", "P123", "12P-3")),
        ("date/1", "29.2.1980"),
        ("date/1", "02/29/1980"),
        ("date/1", "1981-02-29"),
        ("date/1", "0000-01-01"),
        ("date/1", "1980-02-29 12:30"),
        ("date/1", "1980-2-9"),
    ],
)
def test_what_does_not_follow_its_rule_is_no_id(rule: IdRule, text: str) -> None:
    assert written(rule, text) == ""


@given(rules, texts)
def test_what_a_rule_has_written_it_leaves_as_it_is(rule: IdRule, text: str) -> None:
    once = written(rule, text)
    assert written(rule, once) == once
    assert canonical_subject(once).decode() == once


@given(texts)
def test_exact_is_the_rule_of_specs_that_name_none(text: str) -> None:
    assert SubjectKey.of("id").canonical([text]) == canonical_subject(text)
    assert SubjectKey.of("id") == SubjectKey.of(("id",), ("exact/1",))


_PARTS = st.lists(st.text(min_size=1).filter(str.strip), min_size=2, max_size=MAX_KEYS)


@given(_PARTS, _PARTS)
def test_keys_of_several_columns_are_the_same_only_if_every_part_is(one: list[str], other: list[str]) -> None:
    def key(parts: list[str]) -> bytes:
        return SubjectKey.of(tuple(f"c{i}" for i in range(len(parts)))).canonical(parts)

    parts = [tuple(canonical_subject(part).decode() for part in whole) for whole in (one, other)]
    assert (key(one) == key(other)) == (parts[0] == parts[1])
    assert id_parts(key(one).decode(), len(one)) == parts[0]
    assert canonical_subject(key(one).decode()) == key(one)


def test_each_part_follows_its_own_rule_and_all_must() -> None:
    key = SubjectKey.of(("name", "born", "code"), ("text/1", "date/1", "digits/1"))
    assert key.canonical(["ANNA  Roth", "19800229", "007"]) == b'["anna roth","1980-02-29","7"]'
    assert key.canonical(["ANNA  Roth", "1980", "007"]) == b""
    assert str(key) == "name (text/1), born (date/1), code (digits/1)"
    assert str(SubjectKey.of("id")) == "id"


@pytest.mark.parametrize(
    ("columns", "chosen"), [("id", ("exact/1", "date/1")), (("a", "b"), ("text/1",)), (("a", "a"), None)]
)
def test_key_needs_one_rule_for_each_of_different_columns(
    columns: str | tuple[str, ...], chosen: IdRules | None
) -> None:
    with pytest.raises(SpecError, match="rules"):
        SubjectKey.of(columns, chosen)


def test_counts_are_said_each_with_its_number() -> None:
    counts = IdCounts(5, missing=1, changed=2) + IdCounts(7, invalid=3, changed=1)
    assert counts == IdCounts(12, missing=1, invalid=3, changed=3)
    said = counts.sentence(SubjectKey.of("id", ("digits/1",)))
    assert said == (
        "12 rows, 1 subject id is missing, 3 subject ids do not follow their rule, "
        "3 ids are written otherwise by digits/1"
    )
    assert IdCounts(4).problems == []


@given(ids=st.lists(texts | st.none(), max_size=8))
def test_columns_of_ids_are_written_as_each_cell_is(ids: list[str | None]) -> None:
    cells = pa.array(["x", *ids, "é"], pa.large_string())[1:]
    expected = [canonical_subject(text or "") for text in [*ids, "é"]]
    found = subject_ids(SubjectKey.of("id"), {"id": cells})
    assert found.ids.to_pylist() == expected
    assert found.counts == IdCounts(len(expected), missing=expected.count(b""))
    prefixed = b"".join(len(i).to_bytes(4, "big") + i for i in expected)
    assert length_prefixed(found.ids) == prefixed
    assert length_prefixed(pa.concat_arrays([pa.array([b"x"], pa.large_binary()), found.ids])[1:]) == prefixed
    assert length_prefixed(found.ids[:0]) == b""


@pytest.mark.parametrize("rule", RULE_NAMES)
@pytest.mark.parametrize(
    "cell",
    ["\ud800", "a\udcff", "x" * (LONGEST_PART + 1), "é" * (LONGEST_PART // 2 + 1), "1" + "\u0315\u0300" * 10**6],
    ids=["half a pair", "a byte that was no UTF-8", "long", "long in bytes", "marks that take quadratic time"],
)
def test_cell_that_can_be_no_part_of_an_id_is_none_by_every_rule(rule: IdRule, cell: str) -> None:
    for key, cells in ((SubjectKey.of("a", (rule,)), [cell]), (SubjectKey.of(("a", "b"), (rule, rule)), [cell, "1"])):
        assert key.canonical(cells) == key.written(cells) == b""
    assert canonical_subject(cell) == b""


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([f"P-{i:05d}" for i in range(900)], ("'P-', digits (5, some with leading zeros)",)),
        ([*(f"P-{i:05d}" for i in range(900)), "7"], ("capitals (1), '-', digits (5, some with leading zeros)",)),
        ([f"P-{i}" for i in range(10, 29)], ("capitals (1), '-', digits (2)",)),
        ([f"{'PQ'[i % 2]}{i}" for i in range(10, 99)], ("capitals (1), digits (2)",)),
        ([f"{i}" for i in range(1, 900)], ("digits (1 to 3)",)),
        (["ä7", "b8"] * 30 + ["secret-name"], ("letters (1), digits (1)",)),
        (["7", "A7"], ("capitals (1), digits (1)", "digits (1)")),
        ([], ()),
    ],
    ids=[
        "a prefix",
        "all but one",
        "too few",
        "two prefixes",
        "lengths",
        "rare ones are left out",
        "two forms",
        "none",
    ],
)
def test_form_of_ids_tells_prefix_zeros_and_lengths_and_no_id(ids: list[str], said: tuple[str, ...]) -> None:
    assert forms_of(ids) == said


P5, PLAIN = ("'P-', digits (5, some with leading zeros)",), ("digits (1 to 3)",)


@pytest.mark.parametrize(
    ("members", "rule"),
    [
        ([P5, PLAIN], "digits-after:P-/1"),
        ([P5, P5], "digits-after:P-/1"),
        ([PLAIN, PLAIN], None),
        ([P5, ("'Q-', digits (5)",)], None),
        ([P5, (*PLAIN, "letters (4)")], None),
        ([P5, ("letters (4)",)], None),
        ([P5, ()], None),
        ([P5, ("digits (1 to 3, some with leading zeros)",)], None),
        ([("capitals (1), digits (5)",), PLAIN], None),
        ([("'P 7', digits (5)",), PLAIN], None),
    ],
    ids=["one", "both", "none", "two", "other forms", "letters", "no form", "7 and 07", "no constant", "no rule's"],
)
def test_rule_of_a_prefix_is_proposed_only_where_it_keeps_all_ids_apart(
    members: list[tuple[str, ...]], rule: str | None
) -> None:
    assert prefix_rule(members) == rule


@pytest.mark.parametrize("strange", ["P-\uff11", "P-\u00b2", "P-\u0663"], ids=["full width", "raised", "Arabic"])
def test_no_rule_is_proposed_where_it_writes_another_digit_as_it_does_0_to_9(strange: str) -> None:
    ids = [f"P-{number}" for number in range(1, 30)]
    assert prefix_rule([forms_of(ids)]) == "digits-after:P-/1"
    assert prefix_rule([forms_of([*ids, strange])]) is None


@given(st.sampled_from(["", "P-", "p", "NL/"]), st.sets(st.integers(0, 10**6), min_size=20), st.sampled_from([0, 7]))
def test_proposed_rule_writes_no_two_ids_of_a_member_alike(prefix: str, numbers: set[int], width: int) -> None:
    ids = [f"{prefix}{number:0{width}d}" for number in numbers]
    rule = prefix_rule([forms_of(ids), PLAIN])
    assert (rule is None) == (not prefix)
    if rule is not None:
        assert is_id_rule(rule)
        assert {written(rule, one) for one in ids} == set(map(str, numbers))


def test_rule_that_is_none_is_told_how_one_of_a_prefix_is_written() -> None:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(IdRules).validate_python(("digits-after:P1/1",))
    assert "like 'digits-after:P-/1', its prefix up to 16 of A-Z" in explain(refused.value)


KEY = b"a key known to the parties only"
SPEC = "ab" * 32
IDS = [b"anna", b"bert", "zoë".encode()]
# computed with `openssl dgst -sha256 -hmac KEY` over the context, the spec digest and the prefixed fields
VECTOR = "9f294edcfc26e0a6c0b2d9dbb44ea780c0513648f88c75f37cbe03ad9ed9e987"


def hand_made(key: bytes, spec: str, subjects: int, ids: list[bytes]) -> str:
    block = (key if len(key) <= 64 else hashlib.sha256(key).digest()).ljust(64, b"\0")
    message = b"commingle/v1/alignment" + bytes.fromhex(spec) + subjects.to_bytes(8, "big")
    message += b"".join(len(i).to_bytes(4, "big") + i for i in ids)
    inner = hashlib.sha256(bytes(b ^ 0x36 for b in block) + message).digest()
    return hashlib.sha256(bytes(b ^ 0x5C for b in block) + inner).hexdigest()


def digest(key: bytes = KEY, spec: str = SPEC, subjects: int = 3, ids: list[bytes] = IDS) -> str:
    listed = (len(i).to_bytes(4, "big") + i for i in ids)
    return alignment_digest(key, spec_digest=spec, subjects=subjects, listed=listed)


@given(st.binary(max_size=100), st.integers(0, 2**64 - 1), st.lists(st.binary(max_size=20), max_size=5))
def test_alignment_digest_agrees_with_hmac_written_out_by_hand_and_openssl(
    key: bytes, subjects: int, ids: list[bytes]
) -> None:
    assert digest(key, subjects=subjects, ids=ids) == hand_made(key, SPEC, subjects, ids)
    assert digest() == VECTOR


def test_alignment_digest_depends_on_key_spec_count_order_and_boundaries() -> None:
    others = [
        digest(key=b"another key"),
        digest(spec="cd" * 32),
        digest(subjects=4),
        digest(ids=[b"bert", b"anna", IDS[2]]),
        digest(ids=[b"annab", b"ert", IDS[2]]),
        digest(ids=[b"anna", b"bert" + IDS[2]]),
        digest(ids=[*IDS, b""]),
    ]
    assert len({digest(), *others}) == len(others) + 1


@pytest.mark.parametrize(
    ("one", "same"),
    [("e\u0301", "\u00e9"), ("  id-7\t", "id-7"), ("\u00a0id\u2003", "id"), ("\u212b", "\u00c5"), ("", "  ")],
)
def test_subjects_that_read_the_same_are_the_same_bytes(one: str, same: str) -> None:
    assert canonical_subject(one) == canonical_subject(same)


@pytest.mark.parametrize(("one", "other"), [("A", "a"), ("01", "1"), ("ﬁ", "fi"), ("a b", "ab"), ("1", "1.0")])
def test_subjects_that_differ_stay_different(one: str, other: str) -> None:
    assert canonical_subject(one) != canonical_subject(other)
