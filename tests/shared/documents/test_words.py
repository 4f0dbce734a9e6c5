"""Twelve words say who the members are: other keys are other words, and only all of them in order are taken."""

import pytest

from commingle.shared.documents.dsse import Fingerprint
from commingle.shared.documents.invitation import LETTERS, WORD_COUNT, WORDS, Invitation, words_of, wrong_words
from commingle.shared.errors import DocumentError

HUB, CLINIC, LAB = (Fingerprint(digit * 64) for digit in "abc")
SECRET = f"commingle-invite.v1.{HUB}.a-secret_that-is-long"


def test_list_has_a_word_for_each_eleven_bits_told_apart_by_four_letters() -> None:
    assert len(WORDS) == len({word[:LETTERS] for word in WORDS}) == 1 << 11
    assert all(word.isascii() and word.isalpha() and word.islower() for word in WORDS)


@pytest.mark.slow
def test_words_depend_on_every_name_and_key_and_on_nothing_else() -> None:
    words = words_of(HUB, {"clinic": CLINIC, "lab": LAB})
    assert len(words) == WORD_COUNT
    assert " ".join(words) == KNOWN  # members with other versions read the same ones
    assert words == words_of(HUB, {"lab": LAB, "clinic": CLINIC})
    others = [
        words_of(CLINIC, {"clinic": CLINIC, "lab": LAB}),
        words_of(HUB, {"clinic": LAB, "lab": CLINIC}),
        words_of(HUB, {"clinic": CLINIC, "labs": LAB}),
        words_of(HUB, {"clinic": CLINIC}),
    ]
    assert len({words, *others}) == 5
    assert all(sum(a == b for a, b in zip(words, other, strict=True)) < 3 for other in others)


KNOWN = "enrich deal donate term ghost prison black agent short suspect great confirm"


@pytest.mark.parametrize(
    ("typed", "same"),
    [
        ("able acid also arch army atom aunt away axis baby back ball", True),
        ("  ABLE acid, also arch  army atom aunt away axis baby back ball ", True),
        ("able acid also arch army atom aunt away axis baby back", False),
        ("able acid also arch army atom aunt away axis baby back ball ball", False),
        ("acid able also arch army atom aunt away axis baby back ball", False),
        ("abl acid also arch army atom aunt away axis baby back ball", False),
        ("", False),
    ],
)
def test_all_words_are_taken_in_their_order_by_four_letters_each(typed: str, same: bool) -> None:
    words = ["able", "acid", "also", "arch", "army", "atom", "aunt", "away", "axis", "baby", "back", "balladeer"]
    assert (wrong_words(typed, tuple(words)) == "") == same


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("able acid", "2 words, and there are 3"),
        ("able acid \x1balsx", "'alsx' (word 3): on no list of words"),
        ("able arch also", "not the words shown here, from word 2 on"),
    ],
)
def test_wrong_word_is_said_to_be_wrong_and_the_right_one_is_not_said(typed: str, said: str) -> None:
    found = wrong_words(typed, ("able", "acid", "also"))
    assert said in found
    assert "acid" not in found


def test_invitation_is_read_as_it_was_written() -> None:
    invitation = Invitation(SECRET, ("ward", "clinic.a", "lab"), "https://hub.example:8443")
    assert Invitation.parse(f" {invitation}\n") == invitation
    assert (invitation.party, invitation.key_maker, invitation.coordinator) == ("ward", "clinic.a", HUB)


@pytest.mark.parametrize(
    "line",
    [
        "",
        SECRET,
        f"{SECRET}+ward+https://hub.example",
        f"{SECRET}+ward,ward+https://hub.example",
        f"{SECRET}+ward,Lab+https://hub.example",
        f"{SECRET}+ward,lab+ftp://hub.example",
        f"{SECRET}+ward,lab+https://hub.example and more",
        "commingle-invite.v1.short.x+ward,lab+https://hub.example",
    ],
)
def test_what_is_no_invitation_is_refused(line: str) -> None:
    with pytest.raises(DocumentError):
        Invitation.parse(line)
