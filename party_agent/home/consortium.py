"""What belongs to one consortium of a party: the coordinator, the fellow members' pins and the linkage key."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from commingle.party_agent.errors import ConflictError
from commingle.shared.documents.keys import Fingerprint, VerifyingKey, parse_fingerprint
from commingle.shared.documents.model import Hex32
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.files import create_secret, load_secret, write_durably
from commingle.shared.runtime.settings import Settings, load_settings


class PinnedCoordinator(Settings):
    """A coordinator this party enrolled with, its key pinned.

    Attributes:
        ca_file: PEM certificates of authorities to trust beside the system's when connecting.
        allow_http: whether it may be reached over plain http from another machine.
    """

    url: str
    signing_key: Hex32
    ca_file: Path | None = None
    allow_http: bool = False

    @property
    def key(self) -> VerifyingKey:
        """The pinned key."""
        return VerifyingKey.from_hex(self.signing_key)


@dataclass(frozen=True, slots=True)
class Membership:
    """A consortium of this party, by the name that it has here: empty before the party is enrolled anywhere."""

    name: str
    folder: Path
    linkage_file: Path

    @property
    def coordinator_file(self) -> Path:
        """Where the coordinator is noted; a folder without it is of a consortium that was left."""
        return self.folder / "coordinator.json"

    @property
    def pins_file(self) -> Path:
        """Where the fellow members' fingerprints are."""
        return self.folder / "pins.json"

    def coordinator(self) -> PinnedCoordinator:
        """Raises SettingsError."""
        return load_settings(PinnedCoordinator, self.coordinator_file)

    def pins(self) -> Mapping[str, str]:
        """Fingerprints of fellow members, by name."""
        if not self.pins_file.exists():
            return {}
        try:
            pins = json.loads(self.pins_file.read_bytes())
        except ValueError:
            pins = None
        if not isinstance(pins, dict) or not all(isinstance(value, str) for value in pins.values()):
            raise SettingsError(
                f"{self.pins_file} is not a map of names to fingerprints", remedy="Correct it and start again."
            )
        return pins

    def pin(self, members: Mapping[str, str], *, replace: bool = False) -> Mapping[str, str]:
        """Trust all these members' keys, compared over another channel, or none; fingerprints as they are written."""
        added: dict[str, Fingerprint] = {}
        for member, text in members.items():
            if (known := parse_fingerprint(text)) is None:
                raise SettingsError(
                    f"what is given for {member!r} is not a fingerprint, which has 64 hex digits",
                    remedy="Copy it from the member's own `commingle party status`.",
                )
            added[member] = known
        present = self.pins()
        for member, known in added.items():
            if not replace and present.get(member, known) != known:
                raise ConflictError(
                    f"{member} is pinned already, with another key: {present[member]}",
                    remedy=f"Ask {member} over another channel whether its key has changed; if so, add --replace.",
                )
        pins = {**present, **added}
        write_durably(self.pins_file, json.dumps(pins, indent=2, sort_keys=True).encode())
        return added

    def linkage_key(self) -> bytes:
        """The key the members share and the coordinator does not have. Raises KeyFileError."""
        return load_secret(self.linkage_file)

    def make_linkage_key(self) -> bytes:
        """The linkage key, made now where there is none yet. Raises KeyFileError."""
        return self.linkage_key() if self.linkage_file.exists() else create_secret(self.linkage_file)

    def adopt_linkage_key(self, linkage_key: bytes, *, replace: bool) -> None:
        """Take over a fellow member's linkage key."""
        present = self.linkage_key() if self.linkage_file.exists() else None
        if present == linkage_key:
            return
        if present is not None and not replace:
            raise ConflictError(
                "this member has another linkage key already",
                remedy="Ask the sender whether all members are to change it; if so, add --replace.",
            )
        write_durably(self.linkage_file, linkage_key.hex().encode() + b"\n")
