"""Subjects in one order at every party, and a keyed digest that shows it (docs/design/encoding.md#alignment)."""

import hmac
import unicodedata
from collections.abc import Iterable
from hashlib import sha256

_CONTEXT = b"commingle/v1/alignment"


def canonical_subject(identifier: str) -> bytes:
    """NFC-normalised, stripped UTF-8: what subjects are sorted and compared by."""
    return unicodedata.normalize("NFC", identifier).strip().encode()


def alignment_digest(linkage_key: bytes, *, spec_digest: str, subjects: int, sorted_ids: Iterable[bytes]) -> str:
    """HMAC-SHA256(linkage key, context || spec digest || n || length-prefixed sorted ids), hex.

    n is 8 bytes, each length 4 bytes, big-endian. The coordinator, which has no linkage key, can compare digests but
    cannot test a guess about who is in the list.
    """
    mac = hmac.new(linkage_key, _CONTEXT + bytes.fromhex(spec_digest) + subjects.to_bytes(8, "big"), sha256)
    for identifier in sorted_ids:
        mac.update(len(identifier).to_bytes(4, "big") + identifier)
    return mac.hexdigest()
