"""A party's home directory: settings, keys, pins and policy, as files that people can read and back up."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field

from party_agent.errors import ConflictError
from party_agent.ledger import Cap
from party_agent.policy import Policy
from party_agent.store import Store
from shared.protocol.documents import Hex32, Name
from shared.protocol.keys import SigningKey, VerifyingKey
from shared.runtime.errors import SettingsError
from shared.runtime.files import write_durably
from shared.runtime.keyfiles import create_secret, load_secret, load_signing_key, sealing_public_key
from shared.runtime.settings import Settings, load_settings

_FINGERPRINT_DIGITS = 64


class Coordinator(Settings):
    """The coordinator this party enrolled with, its key pinned."""

    url: str
    signing_key: Hex32

    @property
    def key(self) -> VerifyingKey:
        """The pinned key."""
        return VerifyingKey.from_hex(self.signing_key)


class PartySettings(Settings):
    """`settings.json`.

    Attributes:
        population: whose data the budget is for; every data set of this agent belongs to it.
        epsilon_cap, delta_cap: the most it may ever lose, under replace_one.
    """

    name: Name
    population: Name = "default"
    epsilon_cap: Annotated[float, Field(gt=0)] = 10.0
    delta_cap: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    coordinator: Coordinator | None = None

    @property
    def cap(self) -> Cap:
        """The population's cap."""
        return Cap(self.population, self.epsilon_cap, self.delta_cap)


@dataclass(frozen=True, slots=True)
class Identity:
    """What a party signs with, and the linkage key it shares with its fellow members."""

    name: str
    signing_key: SigningKey
    linkage_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Home:
    """Where a party's files are."""

    root: Path

    @property
    def database(self) -> Path:
        """Ledger, data sets and proposals."""
        return self.root / "ledger.sqlite"

    @property
    def outbox(self) -> Path:
        """Privatised blocks that wait for upload."""
        return self.root / "outbox"

    @property
    def running(self) -> Path:
        """Where a running agent says at which address its local API is."""
        return self.root / "running.json"

    def create(self, settings: PartySettings, *, policy: Policy, linkage_key: bytes | None) -> None:
        """Fill an empty home: keys, settings, policy, an empty ledger and the token of the local API.

        Raises:
            ConflictError: there is a party here already.
        """
        if (self.root / "settings.json").exists():
            raise ConflictError(f"{self.root} is a party's home already", remedy="Choose another --home.")
        _ = settings.cap.rho  # refuses caps that cannot be calibrated before anything is written
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        create_secret(self.root / "keys" / "signing.key")
        create_secret(self.root / "keys" / "sealing.key")
        if linkage_key is None:
            create_secret(self.root / "keys" / "linkage.key")
        else:
            write_durably(self.root / "keys" / "linkage.key", linkage_key.hex().encode() + b"\n")
        write_durably(self.root / "token", secrets.token_urlsafe(32).encode())
        self.save_policy(policy)
        Store(self.database).close()
        self.save_settings(settings)

    def settings(self) -> PartySettings:
        """Raises SettingsError."""
        return load_settings(PartySettings, self.root / "settings.json")

    def save_settings(self, settings: PartySettings) -> None:
        """Written last at creation: a home with settings is complete."""
        write_durably(self.root / "settings.json", settings.model_dump_json(indent=2).encode())

    def policy(self) -> Policy:
        """Read at every use, so that an edit counts from the next proposal on. Raises SettingsError."""
        return load_settings(Policy, self.root / "policy.json")

    def save_policy(self, policy: Policy) -> None:
        """Write `policy.json`."""
        write_durably(self.root / "policy.json", policy.model_dump_json(indent=2).encode())

    def pins(self) -> Mapping[str, str]:
        """Fingerprints of fellow members, by name."""
        path = self.root / "pins.json"
        if not path.exists():
            return {}
        try:
            pins = json.loads(path.read_bytes())
        except ValueError:
            pins = None
        if not isinstance(pins, dict) or not all(isinstance(value, str) for value in pins.values()):
            raise SettingsError(f"{path} is not a map of names to fingerprints", remedy="Correct it and start again.")
        return pins

    def pin(self, member: str, fingerprint: str) -> None:
        """Trust a fellow member's key, compared over another channel.

        Raises:
            SettingsError: not a fingerprint.
        """
        digits = fingerprint.strip().lower()
        if len(digits) != _FINGERPRINT_DIGITS or not set(digits) <= set("0123456789abcdef"):
            raise SettingsError(
                "a fingerprint has 64 hex digits", remedy="Copy it from the member's own `commingle party status`."
            )
        pins = {**self.pins(), member: digits}
        write_durably(self.root / "pins.json", json.dumps(pins, indent=2, sort_keys=True).encode())

    def identity(self) -> Identity:
        """Raises KeyFileError."""
        return Identity(
            name=self.settings().name,
            signing_key=load_signing_key(self.root / "keys" / "signing.key"),
            linkage_key=load_secret(self.root / "keys" / "linkage.key"),
        )

    def sealing_key(self) -> bytes:
        """The public sealing key, 32 bytes. Raises KeyFileError."""
        return sealing_public_key(load_secret(self.root / "keys" / "sealing.key"))

    def token(self) -> str:
        """The bearer token of the local API. Raises SettingsError."""
        try:
            return (self.root / "token").read_text().strip()
        except OSError:
            raise SettingsError(f"{self.root} is not a party's home", remedy="Run commingle party init.") from None
