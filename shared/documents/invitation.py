"""One line that a party joins with: its invite, the members of the consortium, and the coordinator's address.

    commingle-invite.v1.FINGERPRINT.SECRET+ward,laboratory,registration+https://hub.example

The first name is the party's own. The writer of the line names the members. Members read twelve words to each other to
check that all were shown the same names and keys (`words_of`, docs/proofs/words.md).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from commingle.shared.documents.dsse import Fingerprint
from commingle.shared.errors import DocumentError
from commingle.shared.text import printable

INVITE_PREFIX = "commingle-invite.v1"
_INVITE = re.compile(rf"{re.escape(INVITE_PREFIX)}\.([0-9a-f]{{64}})\.[A-Za-z0-9_-]{{16,}}")
_NAME = r"[a-z0-9][a-z0-9_.-]{0,62}"
ADDRESS = re.compile(r"https?://\S+")
_LINE = re.compile(rf"([^+]+)\+({_NAME}(?:,{_NAME})+)\+({ADDRESS.pattern})")


def coordinator_of(invite: str) -> Fingerprint:
    """The fingerprint of the coordinator in an invite. Raises DocumentError."""
    match = _INVITE.fullmatch(invite.strip())
    if match is None:
        raise DocumentError("this is not an invite", remedy="Paste the whole line the coordinator's operator sent.")
    return Fingerprint(match[1])


@dataclass(frozen=True, slots=True)
class Invitation:
    """For one party of a new consortium, whose name is the first of `members`."""

    invite: str
    members: tuple[str, ...]
    url: str

    @classmethod
    def parse(cls, text: str) -> "Invitation":
        """Raises DocumentError: the text is no such line."""
        match = _LINE.fullmatch(text.strip())
        names = () if match is None else tuple(match[2].split(","))
        if match is None or len(set(names)) < len(names):
            raise DocumentError(
                "this is not an invitation",
                remedy="Paste the whole line that `commingle coordinator new-consortium` printed for this member; an "
                "invite of `commingle coordinator invite` is for `commingle party enrol`.",
            )
        coordinator_of(match[1])
        return cls(match[1], names, match[3])

    def __str__(self) -> str:
        return f"{self.invite}+{','.join(self.members)}+{self.url}"

    @property
    def party(self) -> str:
        return self.members[0]

    @property
    def coordinator(self) -> Fingerprint:
        return coordinator_of(self.invite)

    @property
    def key_maker(self) -> str:
        """The member that makes the linkage key, the same one for all."""
        return min(self.members)


_LINES = Path(__file__).with_name("words.txt").read_text("ascii").splitlines()
WORDS = tuple(word for line in _LINES if not line.startswith("#") for word in line.split())
"""2048 English words with different first four letters, for people who read them to each other."""
WORD_COUNT = 12
LETTERS = 4  # so many first letters identify a word
_CONTEXT = b"commingle/v1/words"
_WORD_BITS = 11
_BITS = WORD_COUNT * _WORD_BITS
_BYTES = (_BITS + 7) // 8
# 128 MiB and a quarter of a second for each guess: the attack in the proof needs 2^66 of them
_COST, _BLOCK = 1 << 17, 8


def words_of(coordinator: Fingerprint, members: Mapping[str, Fingerprint]) -> tuple[str, ...]:
    """Twelve words that name all members and the coordinator: 132 bits of scrypt over names and keys."""
    roster = json.dumps([coordinator, sorted(members.items())], separators=(",", ":")).encode()
    derived = Scrypt(salt=_CONTEXT, length=_BYTES, n=_COST, r=_BLOCK, p=1).derive(sha256(roster).digest())
    number = int.from_bytes(derived, "big") >> (8 * _BYTES - _BITS)
    places = (number >> _WORD_BITS * place & (1 << _WORD_BITS) - 1 for place in reversed(range(WORD_COUNT)))
    return tuple(WORDS[place] for place in places)


def wrong_words(typed: str, words: tuple[str, ...]) -> str:
    """What cannot be right in the words that somebody typed, in a sentence with no word that was not typed.

    Empty if all these words were typed in order, each in full or by its first four letters.
    """
    given = typed.lower().replace(",", " ").split()
    if len(given) != len(words):
        return f"{len(given)} words, and there are {len(words)}"
    known = {known for word in WORDS for known in (word, word[:LETTERS])}
    strange = [f"{printable(one)[:20]!r} (word {place})" for place, one in enumerate(given, 1) if one not in known]
    wrong = [place for place, word in enumerate(words, 1) if given[place - 1] not in {word, word[:LETTERS]}]
    if wrong and strange:
        return f"{', '.join(strange)}: on no list of words, so it was misheard or mistyped"
    return f"not the words shown here, from word {wrong[0]} on" if wrong else ""
