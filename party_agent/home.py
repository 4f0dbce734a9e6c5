"""A party's home directory: settings, keys, pins and policy, as files that people can read and back up."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from commingle.party_agent.errors import ConflictError
from commingle.party_agent.ledger import Cap
from commingle.party_agent.policy import Policy
from commingle.party_agent.store import AgentStore
from commingle.shared.documents.keys import SigningKey, VerifyingKey
from commingle.shared.documents.model import Hex32, Name
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.files import (
    close_to_others,
    create_secret,
    keep_from_backups,
    load_secret,
    load_signing_key,
    remove_durably,
    sealing_public_key,
    write_durably,
)
from commingle.shared.runtime.settings import Settings, load_settings

_FINGERPRINT_DIGITS = 64


class PinnedCoordinator(Settings):
    """The coordinator this party enrolled with, its key pinned.

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


class PartySettings(Settings):
    """`settings.json`.

    Attributes:
        population: whose data the budget is for; every data set of this agent belongs to it.
        epsilon_cap, delta_cap: the most it may ever lose, under replace_one.
        former_keys: public keys this party signed with before it rotated; only what is over is still read under them.
    """

    name: Name
    population: Name = "default"
    epsilon_cap: Annotated[float, Field(gt=0)] = 10.0
    delta_cap: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    coordinator: PinnedCoordinator | None = None
    former_keys: tuple[Hex32, ...] = ()

    @property
    def cap(self) -> Cap:
        """The population's cap."""
        return Cap(self.population, self.epsilon_cap, self.delta_cap)


@dataclass(frozen=True, slots=True)
class Identity:
    """What a party signs with."""

    name: str
    signing_key: SigningKey
    former_keys: tuple[VerifyingKey, ...] = ()

    @property
    def keys(self) -> tuple[VerifyingKey, ...]:
        """Every key that is or was this party's, the present one first."""
        return (self.signing_key.verifying_key, *self.former_keys)


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
    def exchanges(self) -> Path:
        """Round keys and masked rows of releases whose parties exchange before they upload."""
        return self.root / "exchanges"

    @property
    def socket(self) -> Path:
        """Where a running agent's local API is."""
        return self.root / "agent.sock"

    def secure(self) -> None:
        """Close every directory here to others, and keep round keys from backups. Raises KeyFileError."""
        for directory in (self.root, self.root / "keys", self.outbox, self.exchanges):
            close_to_others(directory)
        keep_from_backups(self.exchanges)

    def create(
        self, settings: PartySettings, *, policy: Policy, linkage_key: bytes | None, receives_linkage_key: bool = False
    ) -> None:
        """Fill an empty home: keys, settings, policy and an empty ledger.

        A linkage key that is not given is made, unless a fellow member is going to send it.

        Raises:
            ConflictError: there is a party here already.
        """
        if (self.root / "settings.json").exists():
            raise ConflictError(f"{self.root} is a party's home already", remedy="Choose another --home.")
        _ = settings.cap.rho  # refuses caps that cannot be calibrated before anything is written
        self.secure()
        create_secret(self.root / "keys" / "signing.key")
        create_secret(self.root / "keys" / "sealing.key")
        if linkage_key is not None:
            self.adopt_linkage_key(linkage_key, replace=False)
        elif not receives_linkage_key:
            self.make_linkage_key()
        self.save_policy(policy)
        AgentStore(self.database).close()
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
        """Trust a fellow member's key: see `pin_all`."""
        self.pin_all({member: fingerprint})

    def pin_all(self, members: Mapping[str, str]) -> Mapping[str, str]:
        """Trust fellow members' keys, compared over another channel: fingerprints by name, as they are now written.

        Raises:
            SettingsError: one is not a fingerprint; none is pinned then.
        """
        added = {member: fingerprint.strip().lower() for member, fingerprint in members.items()}
        for member, digits in added.items():
            if len(digits) != _FINGERPRINT_DIGITS or not set(digits) <= set("0123456789abcdef"):
                raise SettingsError(
                    f"what is given for {member!r} is not a fingerprint, which has 64 hex digits",
                    remedy="Copy it from the member's own `commingle party status`.",
                )
        pins = {**self.pins(), **added}
        write_durably(self.root / "pins.json", json.dumps(pins, indent=2, sort_keys=True).encode())
        return added

    @property
    def next_key(self) -> Path:
        """The key that is to replace the signing key, while a rotation is under way."""
        return self.root / "keys" / "next-signing.key"

    @property
    def next_sealing_key(self) -> Path:
        """The same for the sealing key. It is made before the next signing key and taken over before it."""
        return self.root / "keys" / "next-sealing.key"

    def prepare_next_sealing_key(self) -> bytes:
        """The public sealing key to rotate to; to be asked for before `prepare_next_key`. Raises KeyFileError."""
        if self.next_key.exists() and not self.next_sealing_key.exists():
            return self.sealing_key()  # an interrupted attempt has taken it over already
        make = load_secret if self.next_sealing_key.exists() else create_secret
        return sealing_public_key(make(self.next_sealing_key))

    def prepare_next_key(self) -> SigningKey:
        """The key to rotate to: made now, or by an attempt that was interrupted. Raises KeyFileError."""
        return load_signing_key(self.next_key) if self.next_key.exists() else SigningKey(create_secret(self.next_key))

    def adopt_next_key(self) -> None:
        """Sign and unseal with the next keys from now on. Old private keys are gone, the public signing key is kept."""
        if self.next_sealing_key.exists():
            write_durably(self.root / "keys" / "sealing.key", self.next_sealing_key.read_bytes())
            remove_durably(self.next_sealing_key)
        settings, identity = self.settings(), self.identity()
        old = identity.signing_key.verifying_key.raw.hex()
        # where an earlier attempt got this far, the old key has been noted already or is the next one
        if old not in settings.former_keys and identity.signing_key.fingerprint != self.prepare_next_key().fingerprint:
            self.save_settings(settings.model_copy(update={"former_keys": (*settings.former_keys, old)}))
        write_durably(self.root / "keys" / "signing.key", self.next_key.read_bytes())
        remove_durably(self.next_key)

    def identity(self) -> Identity:
        """Raises KeyFileError."""
        settings = self.settings()
        signing_key = load_signing_key(self.root / "keys" / "signing.key")
        if self.linkage_file.exists():
            self.linkage_key()  # a file that others can read is told at the start
        return Identity(
            name=settings.name,
            signing_key=signing_key,
            former_keys=tuple(map(VerifyingKey.from_hex, settings.former_keys)),
        )

    def sealing_key(self) -> bytes:
        """The public sealing key, 32 bytes. Raises KeyFileError."""
        return sealing_public_key(self.sealing_secret())

    def sealing_secret(self) -> bytes:
        """The private sealing key, 32 bytes. Raises KeyFileError."""
        return load_secret(self.root / "keys" / "sealing.key")

    @property
    def linkage_file(self) -> Path:
        """Where the linkage key is, once there is one."""
        return self.root / "keys" / "linkage.key"

    def linkage_key(self) -> bytes:
        """The key the members share and the coordinator does not have. Raises KeyFileError."""
        return load_secret(self.linkage_file)

    def make_linkage_key(self) -> bytes:
        """The linkage key, made now where there is none yet. Raises KeyFileError."""
        return self.linkage_key() if self.linkage_file.exists() else create_secret(self.linkage_file)

    def adopt_linkage_key(self, linkage_key: bytes, *, replace: bool) -> None:
        """Take over a fellow member's linkage key.

        Raises:
            ConflictError: another key is here and is not to be replaced.
        """
        present = self.linkage_key() if self.linkage_file.exists() else None
        if present == linkage_key:
            return
        if present is not None and not replace:
            raise ConflictError(
                "this party has another linkage key already",
                remedy="Ask the sender whether all members are to change it; if so, add --replace.",
            )
        write_durably(self.linkage_file, linkage_key.hex().encode() + b"\n")
