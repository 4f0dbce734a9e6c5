"""A key of a coordinator or a party as people hand it on."""

import re

from commingle.shared.documents.keys import Fingerprint
from commingle.shared.runtime.errors import SettingsError

_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


def fingerprint(text: str | None) -> Fingerprint | None:
    """A fingerprint as typed or pasted, or None for none.

    Raises:
        SettingsError: it is not 64 hex digits.
    """
    if text is None:
        return None
    cleaned = text.strip().lower()
    if not _FINGERPRINT.fullmatch(cleaned):
        raise SettingsError(
            f"{text[:80]!r} is not a key's fingerprint",
            remedy="Give the 64 hex digits that `commingle coordinator init` or `commingle party init` printed there.",
        )
    return Fingerprint(cleaned)
