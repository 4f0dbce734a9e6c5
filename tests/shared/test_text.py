import sys
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from commingle.shared.text import counted, hidden_text, printable, quoted

HIDDEN = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}
ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=[]))


def hidden(text: str) -> set[str]:
    return {character for character in text if unicodedata.category(character) in HIDDEN}


def test_every_code_point_is_shown_or_left_out_by_its_category() -> None:
    for point in range(sys.maxunicode + 1):
        shown = printable(chr(point))
        if unicodedata.category(chr(point)) in HIDDEN:
            assert shown in {"", " "}
        else:
            assert shown == chr(point)


def test_one_of_a_thing_has_no_plural() -> None:
    assert [counted(n, "charge") for n in (0, 1, 12_000)] == ["0 charges", "1 charge", "12,000 charges"]
    assert [counted(n, "person", "people") for n in (1, 2)] == ["1 person", "2 people"]


@given(ANY_TEXT)
def test_what_is_printable_has_nothing_hidden_and_stays_as_it_is(text: str) -> None:
    shown = printable(text)
    assert not hidden(shown)
    assert printable(shown) == shown
    assert hidden(printable(text, keep_lines=True)) <= {"\n"}
    assert printable(text, keep_lines=True).count("\n") == text.count("\n")


@given(ANY_TEXT, st.integers(1, 50))
def test_quotation_cannot_be_closed_from_within_and_is_of_limited_length(text: str, longest: int) -> None:
    said = quoted(text, longest=longest)
    assert (said[0], said[-1]) == ("\u201c", "\u201d")
    assert not set("\u201c\u201d") & set(said[1:-1])
    assert len(said) <= longest + 2
    assert not hidden(said)


def test_what_separates_words_becomes_a_blank() -> None:
    assert printable("one\ttwo\u2028three\x85four\u200bfive") == "one two three fourfive"


def test_hidden_text_is_found_wherever_it_stands() -> None:
    document = {"study": "fine", "parties": [{"levels": ("a", "b\u202e")}], "\u200b": 1, "unit": "\x9b"}
    assert list(hidden_text(document)) == ["parties.0.levels.1", "unit"]
