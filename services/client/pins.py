"""Keys known beforehand, from elsewhere: a coordinator's and its members'."""

from collections.abc import Collection, Mapping
from types import MappingProxyType

from commingle.shared.documents.dsse import Fingerprint, parse_fingerprint
from commingle.shared.documents.errors import VerificationError
from commingle.shared.runtime.errors import SettingsError

NO_MEMBERS: Mapping[str, str] = MappingProxyType({})


def fingerprint(text: str | None) -> Fingerprint | None:
    """A fingerprint as typed or pasted, or None for none. Raises SettingsError: it is not 64 hex digits."""
    if text is None:
        return None
    if (known := parse_fingerprint(text)) is None:
        raise SettingsError(
            f"{text[:80]!r} is not a key's fingerprint",
            remedy="Give the 64 hex digits that `commingle coordinator init` or `commingle party init` printed there.",
        )
    return known


def member_pins(members: Mapping[str, str]) -> Mapping[str, Fingerprint]:
    """Fingerprints by member, as typed or pasted. Raises SettingsError where one is not 64 hex digits."""
    pins = {name: fingerprint(text) for name, text in members.items()}
    return MappingProxyType({name: key for name, key in pins.items() if key is not None})


def require_parties(pins: Mapping[str, str], parties: Collection[str]) -> None:
    """Refuse a pin for somebody who has no part in the release, so that a misspelt name pins nobody unnoticed.

    Raises VerificationError: a pinned member is not a party of it.
    """
    absent = sorted(pins.keys() - set(parties))
    if absent:
        raise VerificationError(
            f"not a member of this release, and yet pinned: {', '.join(absent)}",
            remedy=f"Its members call themselves {', '.join(parties)}.",
        )
