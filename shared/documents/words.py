"""What members of a consortium read to each other to know that all were shown the same keys (docs/proofs/words.md)."""

import json
from collections.abc import Mapping
from hashlib import sha256

from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from commingle.shared.documents.keys import Fingerprint
from commingle.shared.documents.wordlist import WORDS
from commingle.shared.text import printable

WORD_COUNT = 12
LETTERS = 4
"""The first letters of a word that say which one it is."""
_CONTEXT = b"commingle/v1/words"
_WORD_BITS = 11
_BITS = WORD_COUNT * _WORD_BITS
_BYTES = (_BITS + 7) // 8
# 128 MiB and a quarter of a second for each guess: the attack in the proof needs 2^66 of them
_COST, _BLOCK = 1 << 17, 8


def words_of(coordinator: Fingerprint, members: Mapping[str, Fingerprint]) -> tuple[str, ...]:
    """Twelve words that say who all members are and who the coordinator is: 132 bits of scrypt over names and keys."""
    roster = json.dumps([coordinator, sorted(members.items())], separators=(",", ":")).encode()
    derived = Scrypt(salt=_CONTEXT, length=_BYTES, n=_COST, r=_BLOCK, p=1).derive(sha256(roster).digest())
    number = int.from_bytes(derived, "big") >> (8 * _BYTES - _BITS)
    places = (number >> _WORD_BITS * place & (1 << _WORD_BITS) - 1 for place in reversed(range(WORD_COUNT)))
    return tuple(WORDS[place] for place in places)


def same_words(typed: str, words: tuple[str, ...]) -> bool:
    """Whether somebody has typed all of these words in their order, each in full or by its first four letters."""
    given = typed.lower().replace(",", " ").split()
    return len(given) == len(words) and all(
        one in {word, word[:LETTERS]} for one, word in zip(given, words, strict=True)
    )


def wrong_words(typed: str, words: tuple[str, ...]) -> str:
    """Which of what somebody has typed cannot be right, in a sentence. It says no word that was not typed."""
    given = typed.lower().replace(",", " ").split()
    if len(given) != len(words):
        return f"{len(given)} words, and there are {len(words)}"
    known = {known for word in WORDS for known in (word, word[:LETTERS])}
    strange = [f"{printable(one)[:20]!r} (word {place})" for place, one in enumerate(given, 1) if one not in known]
    if strange:
        return f"{', '.join(strange)}: on no list of words, so it was misheard or mistyped"
    others = (
        place
        for place, (one, word) in enumerate(zip(given, words, strict=True), 1)
        if one not in {word, word[:LETTERS]}
    )
    return f"not the words shown here, from word {next(others)} on"
