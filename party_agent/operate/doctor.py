"""What can be wrong around a party's agent. Reads only, so it works beside a running agent too."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from commingle.party_agent.edge.client import PartyClient
from commingle.party_agent.errors import ConflictError, LedgerError
from commingle.party_agent.home.datasets import stored_dataset
from commingle.party_agent.home.home import Home, Membership
from commingle.party_agent.ledger.store import catch_up, in_words, open_to_read, require_version, verify_ledger
from commingle.party_agent.operate.compose import calling
from commingle.party_agent.rounds.party import Outbox
from commingle.party_agent.rounds.proposals import REJECT_IT, lost
from commingle.party_agent.rounds.witnesses import SET_BACK, opened_heads, require_own_name
from commingle.party_agent.wire.local_socket import AGENT_URL, AgentTransport, process_at
from commingle.party_agent.wire.owner_words import Viewer, miscounted, sees_counts
from commingle.shared import loops
from commingle.shared.documents.dsse import VerifyingKey
from commingle.shared.errors import CommingleError
from commingle.shared.release.checks import read_spec
from commingle.shared.release.ledger_fold import LedgerFold
from commingle.shared.release.rounds import State
from commingle.shared.runtime.doctor import Check, UnhealthyError, clock_skew, disk_space, look, private_files
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.remote import call, connect, json_of
from commingle.shared.runtime.tls import RENEW, ends_soon_at
from commingle.shared.text import counted, quoted

_TIMEOUT_SECONDS = 10.0
_HANDSHAKE_SECONDS = 2.0  # on this machine
_DAY = timedelta(days=1)
_RESTORE = "Stop the agent and restore the newest backup; never start with an older ledger (docs/operations.md)."
_CLOSED = ("SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_READONLY")  # which say nothing about what is in it
_OPEN = "Run the command as the user that owns the home, and check the modes of the home and of its files."


def examine_home(home: Home, *, now: datetime, viewer: Viewer = Viewer.OPERATOR) -> Iterator[Check]:
    """Every check, in the order in which to mend things; counts for those to whom `sees_counts` shows them."""
    yield look("settings", lambda: f"member {home.settings().name}")
    yield (keys := look("keys", lambda: _keys(home)))
    yield look("policy", lambda: f"{counted(len(home.policy().auto_approve), 'rule')} of automatic approval")
    yield look("ledger file", lambda: _integrity(home))
    yield (chain := look("ledger chain", lambda: _chain(home)))
    yield look("engine", lambda: home.settings().engine.open().describe())
    yield look("data sets", lambda: _datasets(home, viewer))
    if sees_counts(viewer):
        yield look("n of proposals", lambda: _people(home))
    yield look("proposals", lambda: _proposals(home))
    yield look("loops", _loops)
    yield look("outbox", lambda: _outbox(home, now))
    yield look("disk space", lambda: disk_space(home.root))
    yield look("agent", lambda: _agent(home, now))
    try:
        memberships = list(home.consortia().values()) or [home.consortium()]
    except CommingleError:
        return  # the settings, which were looked at first
    for one in memberships:
        which = f" of {one.name}" if len(memberships) > 1 else ""
        yield look(f"linkage key{which}", partial(_linkage_key, one))
        yield look(f"pins{which}", partial(_pins, one))
        yield (reached := look(f"coordinator{which}", partial(_coordinator, one, now)))
        if keys.ok and reached.ok:
            yield (member := look(f"membership{which}", partial(_enrolled, home, one, now)))
            if member.ok and chain.ok:
                yield look(f"witnessed head{which}", partial(_witnessed, home, one, now))


def _keys(home: Home) -> str:
    said = private_files([home.root / "keys" / "signing.key", home.root / "keys" / "sealing.key"])
    home.sealing_key()
    return f"{said}; fingerprint {home.identity().signing_key.fingerprint}"


def _pins(membership: Membership) -> str:
    return f"{counted(len(membership.pins()), 'member')} pinned"


def _linkage_key(membership: Membership) -> str:
    if not membership.linkage_file.exists():
        raise UnhealthyError(
            "no linkage key yet, so nothing can be approved",
            remedy="A fellow member runs: commingle party linkage send; a running agent then takes it over.",
        )
    membership.linkage_key()
    return private_files([membership.linkage_file])


@contextmanager
def _ledger(home: Home) -> Iterator[sqlite3.Connection]:
    if not home.database.exists():
        raise LedgerError(f"{home.database} is missing", remedy=_RESTORE)
    try:
        with closing(open_to_read(home.database)) as connection:
            connection.execute("BEGIN")  # all as it is at one moment, while the agent goes on
            yield connection
    except (sqlite3.Error, ValueError, TypeError, AttributeError) as error:  # its text may quote what stands in it
        name = getattr(error, "sqlite_errorname", None)
        closed = name is not None and name.startswith(_CLOSED)
        said = f"{home.database} cannot be read ({name or type(error).__name__})"
        raise LedgerError(said, remedy=_OPEN if closed else _RESTORE) from None


def _integrity(home: Home) -> str:
    with _ledger(home) as db:
        (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if found != "ok" or not version:
            raise LedgerError(f"{home.database} is damaged: {found if version else 'it is empty'}", remedy=_RESTORE)
        require_version(db)
    return "SQLite finds no damage"


def _chain(home: Home) -> str:
    with _ledger(home) as db:
        require_version(db)
        told = verify_ledger(db, population=home.settings().population)
    return f"{in_words(told)} agree, head {told.head}"


def _datasets(home: Home, viewer: Viewer) -> str:
    with _ledger(home) as db:
        found = [stored_dataset(row[0]) for row in db.execute("SELECT body FROM datasets ORDER BY name")]
    if not sees_counts(viewer):
        return f"{len(found)} registered: {', '.join(dataset.name for dataset in found) or 'none'}"
    said = []
    for dataset in found:
        if dataset.snapshot is not None and not (home.snapshots / dataset.snapshot).is_file():
            raise UnhealthyError(
                f"the snapshot of {dataset.name} is not here; no backup holds it",
                remedy=f"Read it again: commingle party datasets read {dataset.name}; or push its rows.",
            )
        missing = dataset.missing_words(a.name for a in dataset.attributes)
        when = (
            f"{counted(dataset.n or 0, 'person', 'people')}, read {dataset.read:%Y-%m-%d %H:%M} UTC"
            if dataset.read
            else "not pushed yet"
        )
        rules = ", ".join(dataset.id_rules or ())
        written = [f"{dataset.ids_changed} ids are written otherwise by {rules}"] if dataset.ids_changed else []
        forms = [] if dataset.id_words is None else [dataset.id_words]
        said.append(f"{dataset.name} ({'; '.join([when, *map(str, dataset.derived), *written, *forms, *missing])})")
    return f"{len(found)} registered: {', '.join(said) or 'none'}"


def _proposals(home: Home) -> str:
    coordinators = {one.coordinator().key.fingerprint for one in home.consortia().values()}
    with _ledger(home) as db:
        unknown = lost(db, coordinators)
    if unknown:
        ids = ", ".join(release[:16] for release in unknown[:5])
        said = f"its coordinator does not know {counted(len(unknown), 'release')}: {ids}"
        raise UnhealthyError(said, remedy=f"The coordinator was set back (commingle party reject ID). {REJECT_IT}")
    return "the agent has found none that its coordinator does not know"


def _people(home: Home) -> str:
    """Words alone, and never a failure: more people than the owner see an exit code."""
    name = home.settings().name
    with _ledger(home) as db:
        found = {one.name: one for one in (stored_dataset(row[0]) for row in db.execute("SELECT body FROM datasets"))}
        waiting = db.execute("SELECT spec FROM proposals WHERE spec <> x'' AND state = 'proposed'").fetchall()
    said = []
    for spec in (read_spec(row[0]) for row in waiting):
        share = spec.party(name)
        dataset = found.get(share.dataset) if spec.keyed and share.where is None else None
        if dataset is not None and (words := miscounted(dataset.name, dataset.n, spec.n)) is not None:
            said.append(f"{quoted(spec.study)}: {words}")
    return " ".join(said) or f"{len(waiting)} wait, none far from what its data set holds"


def _outbox(home: Home, now: datetime) -> str:
    with _ledger(home) as db:
        proposals = db.execute("SELECT release, state FROM proposals").fetchall()
        going_on = {release for release, state in proposals if not State(state).final}
        published = {release for release, state in proposals if state == State.PUBLISHED}
    blocks, exchanges = _folders(home.outbox), _folders(home.exchanges)
    kept = published & blocks - Outbox(home.outbox).past_keeping(now - _DAY)  # a running agent removes them
    leftover = sorted((blocks - kept | exchanges) - going_on)
    if leftover:
        raise ConflictError(
            f"{len(leftover)} leftovers in {home.root}: {', '.join(name[:16] for name in leftover[:5])}",
            remedy="They belong to releases that are over. With the agent stopped, remove these folders.",
        )
    kept_for = counted(len(blocks | exchanges), "release")
    return f"files of {kept_for} are kept until the end of each, blocks some days longer"


def _loops() -> str:
    if why := loops.missing():
        raise UnhealthyError(f"compiled arithmetic is not available: {why}", remedy=loops.REMEDY)
    return f"compiled; this processor is of level {loops.level()}"


def _folders(root: Path) -> set[str]:
    return {path.name for path in root.iterdir() if path.is_dir()} if root.is_dir() else set()


def _agent(home: Home, now: datetime) -> str:
    if not home.socket.exists():
        return "not running"
    way = AgentTransport(home.socket)
    with PartyClient(AGENT_URL, token=None, transport=way, timeout_seconds=_TIMEOUT_SECONDS) as agent:
        status = agent.status()
    if status.trouble is not None:
        trouble, _, remedy = status.trouble.partition("\n")
        raise UnhealthyError(f"running, and kept from its work: {trouble}", remedy=remedy.strip())
    return f"running at {home.socket}, for its user and root alone; {_open_ports(home, now)}"


def _open_ports(home: Home, now: datetime) -> str:
    process = process_at(home.socket, timeout_seconds=_TIMEOUT_SECONDS)
    try:
        found = None if process is None else open_addresses(process)
    except OSError:
        found = None
    if found is None:
        return "what ports it listens on cannot be seen from here"
    for one in (one for one in found if one.pid == process):
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(one.host, one.host)  # noqa: S104 - asked, not bound
        if (said := ends_soon_at(host, one.port, now, timeout_seconds=_HANDSHAKE_SECONDS)) is not None:
            raise UnhealthyError(f"it listens on {one}: {said}", remedy=RENEW)
    return f"it listens on {', '.join(map(str, found))}" if found else "it listens on no port"


def _coordinator(membership: Membership, now: datetime) -> str:
    if not membership.name:
        raise SettingsError("not enrolled", remedy="Run: commingle party enrol --coordinator URL --invite …")
    pinned = membership.coordinator()
    ca_file, allow_http = pinned.ca_file, pinned.allow_http
    with connect(pinned.url, ca_file=ca_file, allow_http=allow_http, timeout_seconds=_TIMEOUT_SECONDS) as http:
        answer = call(http, "GET", "/v1/coordinator")
    shown = json_of(answer)
    key = shown.get("signing_key") if isinstance(shown, dict) else None
    if key != pinned.signing_key:
        raise UnhealthyError(
            f"{pinned.url} does not answer with the pinned key {VerifyingKey.from_hex(pinned.signing_key).fingerprint}",
            remedy="Check the address and proxies; if it is right, ask its operator over another channel.",
        )
    return f"{pinned.url} answers with the pinned key; {clock_skew(answer, now)}"


def _enrolled(home: Home, membership: Membership, now: datetime) -> str:
    with calling(home, membership, clock=lambda: now) as client:
        client.ledger_heads()  # for members alone, as which this one signs
        require_own_name(home.identity(), client)
    return f"{home.identity().name} is a member there"


def _witnessed(home: Home, membership: Membership, now: datetime) -> str:
    with calling(home, membership, clock=lambda: now) as client:
        shown = client.ledger_heads()  # before the ledger is read, as a running agent goes on
    identity = home.identity()
    head, key, _ = opened_heads(shown).get(identity.name, (None, None, None))
    if head is None or key not in identity.keys:
        return "the coordinator has no head of this ledger yet"
    with _ledger(home) as db:
        known = catch_up(db, LedgerFold()).knows(head.head)
    if not known:
        said = f"the coordinator has a later head of this ledger, {head.head[:16]} of height {head.height}"
        raise UnhealthyError(f"{said}: the ledger was set back", remedy=SET_BACK)
    return f"the ledger holds the head that the coordinator has, of height {head.height}"


_PROC = Path("/proc")
_LISTENS = "0A"  # of proc(5), as the kernel's TCP_LISTEN
_SOCKET = "socket:["


@dataclass(frozen=True, slots=True, order=True)
class OpenAddress:
    pid: int
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port} (process {self.pid})"


def open_addresses(pid: int) -> tuple[OpenAddress, ...]:
    """The addresses of that process and of all below it.

    Raises OSError: it is another user's, or this system has no such /proc.
    """
    return tuple(sorted(one for each in (pid, *_below(pid)) for one in _of(each)))


def _below(pid: int) -> Iterator[int]:
    parents = dict[int, int]()
    for path in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            parents[int(path.parent.name)] = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
    found = [pid]
    while found:
        found = [child for child, parent in parents.items() if parent in found]
        yield from found


def _of(pid: int) -> Iterator[OpenAddress]:
    held = set[str]()
    for path in (_PROC / str(pid) / "fd").iterdir():
        with suppress(OSError):  # it was closed meanwhile
            held.add(str(path.readlink()))
    for name in ("tcp", "tcp6"):
        for line in (_PROC / str(pid) / "net" / name).read_text().splitlines()[1:]:
            _, local, _, state, *others = line.split()
            if state == _LISTENS and f"{_SOCKET}{others[5]}]" in held:
                host, _, port = local.partition(":")
                yield OpenAddress(pid, _host(bytes.fromhex(host)), int(port, 16))


def _host(packed: bytes) -> str:
    """The kernel writes the address as words of this machine, which are little-endian wherever Commingle runs."""
    words = b"".join(packed[start : start + 4][::-1] for start in range(0, len(packed), 4))
    return str(IPv4Address(words) if len(words) == 4 else IPv6Address(words))  # noqa: PLR2004 - bytes of an IPv4 address
