"""A party's home directory: settings, keys, policy and consortia, as files that people can read and back up.

One home is one ledger: however many consortia it belongs to, what they may take of its people is one budget. Until the
party is enrolled, pins and linkage key lie at the top; they go with its first consortium.
"""

import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from commingle.party_agent.errors import ConflictError
from commingle.party_agent.home.policy import Policy
from commingle.party_agent.ledger.ledger import Cap
from commingle.party_agent.ledger.store import AgentStore
from commingle.party_agent.private.engine import IN_PROCESS, Dask, Engine
from commingle.shared.documents.dsse import Fingerprint, SigningKey, VerifyingKey, parse_fingerprint
from commingle.shared.documents.model import Hex32, Name
from commingle.shared.runtime.errors import KeyFileError, SettingsError
from commingle.shared.runtime.files import (
    close_to_others,
    create_secret,
    keep_from_backups,
    load_secret,
    load_signing_key,
    remove_durably,
    sealing_public_key,
    sync_directory,
    write_durably,
)
from commingle.shared.runtime.settings import HomeFile, ServiceSettings, Settings, gather, load_settings
from commingle.shared.runtime.sso import SsoSettings
from commingle.shared.runtime.tls import is_this_machine


class PinnedCoordinator(HomeFile):
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
        return VerifyingKey.from_hex(self.signing_key)


class _Pins(HomeFile):
    members: dict[str, str]
    replacing: tuple[str, ...] = ()  # those that may replace what a consortium that was left has


@dataclass(frozen=True, slots=True)
class Membership:
    """A consortium of this party, by its name here: empty before the party is enrolled anywhere."""

    name: str
    folder: Path
    linkage_file: Path

    @property
    def coordinator_file(self) -> Path:
        """Where the coordinator is noted; a folder without it is of a consortium that was left."""
        return self.folder / "coordinator.json"

    @property
    def pins_file(self) -> Path:
        return self.folder / "pins.json"

    def coordinator(self) -> PinnedCoordinator:
        return load_settings(PinnedCoordinator, self.coordinator_file)

    def pins(self) -> Mapping[str, str]:
        return load_settings(_Pins, self.pins_file).members if self.pins_file.exists() else {}

    def pin(self, members: Mapping[str, str], *, replace: bool = False) -> Mapping[str, str]:
        """Trust all these members' keys, compared over another channel, or none; returns their fingerprints."""
        added: dict[str, Fingerprint] = {}
        for member, text in members.items():
            if (known := parse_fingerprint(text)) is None:
                raise SettingsError(
                    f"what is given for {member!r} is not a fingerprint, which has 64 hex digits",
                    remedy="Copy it from the member's own `commingle party status`.",
                )
            added[member] = known
        present, before = self.pins(), self.replacing()
        self._require_no_other({} if replace else added)
        replacing = {*before, *added} if replace and not self.name else before
        pins = _Pins(members=dict(sorted({**present, **added}.items())), replacing=tuple(sorted(replacing)))
        write_durably(self.pins_file, pins.model_dump_json(indent=2).encode())
        return added

    def take_over(self, other: "Membership") -> None:
        """Pin what was pinned while this consortium was left, or nothing. Raises ConflictError."""
        if pins := other.pins():
            replacing = other.replacing()
            self._require_no_other({member: known for member, known in pins.items() if member not in replacing})
            self.pin(pins, replace=True)

    def _require_no_other(self, members: Mapping[str, str]) -> None:
        present = self.pins()
        for member, known in members.items():
            if present.get(member, known) != known:
                raise ConflictError(
                    f"{member} is pinned already, with another key: {present[member]}",
                    remedy=f"Ask {member} over another channel whether its key has changed; if so, pin with --replace.",
                )

    def replacing(self) -> tuple[str, ...]:
        """Members whose pins, made while no consortium was joined, may replace others."""
        return load_settings(_Pins, self.pins_file).replacing if self.pins_file.exists() else ()

    def linkage_key(self) -> bytes:
        return load_secret(self.linkage_file)

    def make_linkage_key(self) -> bytes:
        """The linkage key, made now if there is none yet. Raises KeyFileError."""
        return self.linkage_key() if self.linkage_file.exists() else create_secret(self.linkage_file)

    def adopt_linkage_key(self, linkage_key: bytes, *, replace: bool) -> None:
        present = self.linkage_key() if self.linkage_file.exists() else None
        if present == linkage_key:
            return
        if present is not None and not replace:
            raise ConflictError(
                "this member has another linkage key already",
                remedy="Ask the sender whether all members are to change it; if so, add --replace.",
            )
        write_durably(self.linkage_file, linkage_key.hex().encode() + b"\n")


class EngineSettings(Settings):
    """Where the partitions of tables are read: in this process unless said otherwise.

    Only the operator chooses it: a token that could name a scheduler would get rows.

    Attributes:
        scheduler: Dask's, `tls://host:port`; without it, a cluster on this machine for as long as a table is read.
        workers: how many processes a cluster on this machine has.
        allow_tcp: take a `tcp://` address of another machine, whose network then sees ids and encoded rows.
    """

    kind: Literal["in-process", "dask"] = "in-process"
    scheduler: str | None = None
    workers: Annotated[int, Field(ge=1, le=1024)] = 2
    allow_tcp: bool = False

    @model_validator(mode="after")
    def _protected(self) -> Self:
        address = urlsplit(self.scheduler or "tls://")
        if address.scheme not in {"tls", "tcp"}:
            raise ValueError("the scheduler's address begins with tls:// or tcp://")
        if address.scheme == "tcp" and not self.allow_tcp and not is_this_machine(address.hostname or ""):
            raise ValueError("a scheduler on another machine is reached by tls://, or by tcp:// with allow_tcp")
        return self

    def open(self) -> Engine:
        return IN_PROCESS if self.kind == "in-process" else Dask(self.scheduler, self.workers)


_NOT_IN_NAMES = re.compile("[^a-z0-9_.-]+")
_PRIVATE = 0o700
_LONGEST_NAME = 40


class PushingLimits(Settings):
    """What rows that are pushed may take.

    Attributes:
        token_bytes: the most bytes in one token's open uploads.
        reserve_bytes: the space to keep free on the disk of the home, for ledger and releases.
    """

    token_bytes: Annotated[int, Field(ge=1)] = 4 << 30
    reserve_bytes: Annotated[int, Field(ge=0)] = 1 << 30


class PartySettings(ServiceSettings):
    """`settings.json`, and what the environment says in its place (docs/settings.md).

    Attributes:
        population: the population whose data the budget is for; every data set of this agent belongs to it.
        epsilon_cap, delta_cap: the most it may ever lose, in the unit of each data set.
        engine: where the partitions of tables are read.
        pushing: how much may be pushed.
        sso: the provider that signs people on to the console.
        former_keys: public keys this party signed with before it rotated; only what is over is still read under them.
    """

    prefix = "COMMINGLE_PARTY"
    name: Name
    population: Name = "default"
    epsilon_cap: Annotated[float, Field(gt=0)] = 10.0
    delta_cap: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    engine: EngineSettings = EngineSettings()
    pushing: PushingLimits = PushingLimits()
    sso: SsoSettings | None = None
    former_keys: tuple[Hex32, ...] = ()

    @property
    def cap(self) -> Cap:
        return Cap(self.population, self.epsilon_cap, self.delta_cap)


@dataclass(frozen=True, slots=True)
class Identity:
    name: str
    signing_key: SigningKey
    former_keys: tuple[VerifyingKey, ...] = ()

    @property
    def keys(self) -> tuple[VerifyingKey, ...]:
        """Every key that is or was this party's, the present one first."""
        return (self.signing_key.verifying_key, *self.former_keys)


@dataclass(frozen=True, slots=True)
class Home:
    root: Path

    @property
    def database(self) -> Path:
        return self.root / "ledger.sqlite"

    @property
    def outbox(self) -> Path:
        """Privatised blocks that wait for upload."""
        return self.root / "outbox"

    @property
    def exchanges(self) -> Path:
        """Keys, rows and messages of releases whose parties exchange before they upload."""
        return self.root / "exchanges"

    @property
    def rows(self) -> Path:
        """Rows that were pushed, and snapshots: in no backup."""
        return self.root / "rows"

    @property
    def snapshots(self) -> Path:
        return self.rows / "snapshots"

    @property
    def socket(self) -> Path:
        return self.root / "agent.sock"

    def secure(self) -> None:
        """Close every directory here to others, and keep exchanges and rows from backups. Raises KeyFileError."""
        consortia = sorted(path for path in self._consortia.glob("*") if path.is_dir())
        own = (self.root, self.root / "keys", self.outbox, self.exchanges, self.snapshots, self._consortia)
        for directory in (*own, *consortia):
            close_to_others(directory)
        keep_from_backups(self.exchanges)
        keep_from_backups(self.rows)

    def create(
        self, settings: PartySettings, *, policy: Policy, linkage_key: bytes | None, receives_linkage_key: bool = False
    ) -> None:
        """Fill an empty home: keys, settings, policy and an empty ledger. If that fails, nothing of it stays.

        A linkage key that is not given is made, unless a fellow member is going to send it.
        """
        if (self.root / "settings.json").exists():
            raise ConflictError(f"{self.root} is a member's home already", remedy="Choose another --home.")
        _ = settings.cap.rho  # refuses caps that cannot be calibrated before anything is written
        keys, before = self.root / "keys", {*self.root.rglob("*")}
        try:
            self.secure()
            create_secret(keys / "signing.key")
            create_secret(keys / "sealing.key")
            if linkage_key is not None:
                self.consortium().adopt_linkage_key(linkage_key, replace=False)
            elif not receives_linkage_key:
                self.consortium().make_linkage_key()
            self.save_policy(policy)
            AgentStore(self.database).close()
            self.save_settings(settings)
        except KeyFileError:  # somebody else makes this home
            raise
        except Exception:  # these keys are enrolled nowhere yet, and would be in the way of the next try
            tags = (tag for folder in (self.exchanges, self.rows) for tag in folder.glob("*") if tag.is_file())
            own = {*keys.glob("*.key"), *self.root.glob("ledger.*"), self.root / "policy.json", *tags}
            for made in own - before:
                made.unlink(missing_ok=True)
            for folder in sorted({*self.root.rglob("*")} - before, reverse=True):  # what is in a folder before it
                with suppress(OSError):  # not empty, or no folder
                    folder.rmdir()
            raise

    def settings(self) -> PartySettings:
        return load_settings(PartySettings, self.root / "settings.json")

    def save_settings(self, settings: PartySettings) -> None:
        """Written last at creation: a home with settings is complete."""
        write_durably(self.root / "settings.json", settings.model_dump_json(indent=2).encode())

    def policy(self) -> Policy:
        """Read at every use, so that an edit counts from the next proposal on. Raises SettingsError."""
        return load_settings(Policy, self.root / "policy.json")

    def save_policy(self, policy: Policy) -> None:
        write_durably(self.root / "policy.json", policy.model_dump_json(indent=2).encode())

    def consortia(self) -> Mapping[str, Membership]:
        return {one.name: one for one in self._present()}

    def consortium(self, name: str | None = None) -> Membership:
        """One of them; the only one if none is named. Before the party is enrolled, the one it will join first."""
        known = self.consortia()
        if name is None and len(known) > 1:
            raise SettingsError(
                f"this member belongs to several consortia: {', '.join(known)}", remedy="Say which: --consortium NAME"
            )
        if name is not None and name not in known:
            raise SettingsError(
                f"this member belongs to no consortium {name}", remedy=f"It knows: {', '.join(known) or 'none yet'}."
            )
        if known:
            return known[name] if name is not None else next(iter(known.values()))
        return Membership("", self.root, self.root / "keys" / "linkage.key")

    def join(self, coordinator: PinnedCoordinator, *, name: str) -> Membership:
        """Note a coordinator: a new consortium, or the known one of that key. An interrupted call can be repeated.

        If a consortium at the same address now has another coordinator key, we leave it: nobody answers for it there.
        """
        present = {one.name: one.coordinator() for one in self._present()}
        known = next((one for one, pinned in present.items() if pinned.key == coordinator.key), None)
        joined = self._in(known or name)
        noted = coordinator.model_dump_json(indent=2).encode()
        if joined.folder.exists():
            if not present:
                joined.take_over(self.consortium())
            write_durably(joined.coordinator_file, noted)
        else:
            self._make_folder(joined, noted, take_over=not present)
        for kept in (self.root / "pins.json", self.root / "keys" / "linkage.key"):
            remove_durably(kept)  # it went with the first consortium
        for other, pinned in present.items():
            if pinned.url == coordinator.url and pinned.key != coordinator.key:
                self.leave(other)
        return joined

    def leave(self, name: str) -> None:
        """Belong to a consortium no longer. Its pins and its linkage key stay, should it be joined again."""
        remove_durably(self._in(name).coordinator_file)

    def name_for(self, key: VerifyingKey, *, wanted: str | None, called: str) -> str:
        """The name here of the consortium whose coordinator has this key, which may be known already.

        `wanted` is this party's choice, which may be the name of a consortium it left; otherwise it is as it is
        `called` there.
        """
        present = {one.coordinator().key: one.name for one in self._present()}
        if key in present:
            return present[key]
        if wanted is None:
            name, taken = _name_of(called), {one.name for one in self._folders()}
            names = (name, *(f"{name}-{number}" for number in range(2, len(taken) + 2)))
            return next(free for free in names if free not in taken)
        if _name_of(wanted) != wanted:
            raise SettingsError(
                f"{wanted!r} cannot name a consortium", remedy="Use lower-case letters, digits and dashes."
            )
        if wanted in present.values():
            raise ConflictError(f"{wanted} is another consortium here", remedy="Choose a name: --consortium NAME")
        return wanted

    @property
    def _consortia(self) -> Path:
        return self.root / "consortia"

    def _in(self, name: str) -> Membership:
        folder = self._consortia / name
        return Membership(name, folder, folder / "linkage.key")

    def _folders(self) -> list[Membership]:
        folders = sorted(self._consortia.iterdir()) if self._consortia.is_dir() else []
        return [self._in(folder.name) for folder in folders if not folder.name.startswith(".")]

    def _present(self) -> list[Membership]:
        return [one for one in self._folders() if one.coordinator_file.exists()]

    def _make_folder(self, joined: Membership, coordinator: bytes, *, take_over: bool) -> None:
        # whole or not at all, with what lies at the top
        for folder in (self._consortia, draft := self._consortia / ".new"):
            if folder == draft:
                shutil.rmtree(draft, ignore_errors=True)
            folder.mkdir(mode=_PRIVATE, exist_ok=True)
            folder.chmod(_PRIVATE)
        for source in (self.root / "pins.json", self.root / "keys" / "linkage.key") if take_over else ():
            if source.exists():
                write_durably(draft / source.name, source.read_bytes())
        write_durably(draft / joined.coordinator_file.name, coordinator)
        draft.rename(joined.folder)
        sync_directory(self._consortia)

    @property
    def next_key(self) -> Path:
        """The key that is to replace the signing key, while a rotation is under way."""
        return self.root / "keys" / "next-signing.key"

    @property
    def next_sealing_key(self) -> Path:
        """The next sealing key. It is made before the next signing key and taken over before it."""
        return self.root / "keys" / "next-sealing.key"

    def prepare_next_sealing_key(self) -> bytes:
        """The public sealing key to rotate to. Ask for it before `prepare_next_key`. Raises KeyFileError."""
        if self.next_key.exists() and not self.next_sealing_key.exists():
            return self.sealing_key()  # an interrupted attempt has taken it over already
        make = load_secret if self.next_sealing_key.exists() else create_secret
        return sealing_public_key(make(self.next_sealing_key))

    def prepare_next_key(self) -> SigningKey:
        """The key to rotate to: made now, or by an attempt that was interrupted. Raises KeyFileError."""
        return load_signing_key(self.next_key) if self.next_key.exists() else SigningKey(create_secret(self.next_key))

    def adopt_next_key(self) -> None:
        """Sign and unseal with the next keys from now on. Only the old public signing key is kept."""
        if self.next_sealing_key.exists():
            write_durably(self.root / "keys" / "sealing.key", self.next_sealing_key.read_bytes())
            remove_durably(self.next_sealing_key)
        settings, identity = gather(PartySettings, self.root / "settings.json", {})[0], self.identity()
        old = identity.signing_key.verifying_key.raw.hex()
        # where an earlier attempt got this far, the old key has been noted already or is the next one
        if old not in settings.former_keys and identity.signing_key.fingerprint != self.prepare_next_key().fingerprint:
            self.save_settings(settings.model_copy(update={"former_keys": (*settings.former_keys, old)}))
        write_durably(self.root / "keys" / "signing.key", self.next_key.read_bytes())
        remove_durably(self.next_key)

    def identity(self) -> Identity:
        settings = self.settings()
        signing_key = load_signing_key(self.root / "keys" / "signing.key")
        for one in (self.consortium(name) for name in self.consortia() or (None,)):
            if one.linkage_file.exists():
                one.linkage_key()  # reports a file that others can read at the start
        return Identity(
            name=settings.name,
            signing_key=signing_key,
            former_keys=tuple(map(VerifyingKey.from_hex, settings.former_keys)),
        )

    def sealing_key(self) -> bytes:
        return sealing_public_key(self.sealing_secret())

    def sealing_secret(self) -> bytes:
        return load_secret(self.root / "keys" / "sealing.key")


def _name_of(text: str) -> str:
    return _NOT_IN_NAMES.sub("-", text.lower()).strip("-_.")[:_LONGEST_NAME] or "consortium"
