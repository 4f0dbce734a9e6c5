"""A party's home in one file: ledger, settings, policy, pins and keys; and going on after a restore or a fork.

A backup holds nothing that lives for one release only, and nothing that an exchange keeps: it outlives its release, and
the secret of an exchange reads the rows beside it and the ciphertexts that were sent
(docs/proofs/linear-encryption.md, 4.5).

After a restore or a fork, the party adopts what its ledger lacks and its witnesses can show. A lost branch of the
ledger has left two traces outside: what it signed about releases, which names their cost, and the totals in its
witnessed heads. Releases are charged by their specs. Whatever the totals say beyond that was spent on what nobody can
name any more, such as regressions, and is charged without a name. The estimate is conservative: never less than the
branch had debited when it last made anything public (docs/proofs/noise-and-accounting.md, 6.7).
"""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from math import inf, nextafter
from pathlib import Path
from typing import Any

import click

from commingle.party_agent.errors import ConflictError, LedgerError
from commingle.party_agent.home.home import Home
from commingle.party_agent.ledger.store import in_words, open_to_read, require_version, verify_ledger
from commingle.party_agent.operate.compose import compose_agents, home_option
from commingle.party_agent.rounds.agent import Agent
from commingle.party_agent.rounds.agents import Agents
from commingle.shared.documents.dsse import Envelope, Fingerprint, Verified
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import LedgerHead, SignedDocument, Spent, open_head
from commingle.shared.dp.accounting import FREE, Cost, Loss, Rho
from commingle.shared.errors import DocumentError, ProtocolError
from commingle.shared.release.charge import EVERY_DATASET, SHOWS_A_DEBIT, ChargeState, ChargeTerms
from commingle.shared.release.checks import read_spec
from commingle.shared.release.plan import plan_block
from commingle.shared.runtime.archive import copy_sqlite, reading_archive, writing_archive
from commingle.shared.runtime.cli import A_FILE, NEW_FILE, at_home, changes, emit, say
from commingle.shared.runtime.errors import RemoteError, SettingsError
from commingle.shared.runtime.files import CACHE_TAG
from commingle.shared.wire import ReleaseDetails

_KEPT = ("*.json", "*.key")
_LEFT_OUT = frozenset({"outbox"})


def write_backup(home: Home, out: Path) -> tuple[str, ...]:
    """Write what a party is restored from to a tar file that only its owner reads; returns the names in it.

    The agent may run meanwhile: SQLite copies the ledger as it is at one moment.

    Raises:
        SettingsError: not a party's home, or the file cannot be written.
        ConflictError: the file is there already, or keys or settings were changed meanwhile.
        LedgerError: the ledger cannot be copied, or is damaged: nothing takes the place of sound backups.
    """
    population = home.settings().population
    if out.exists():
        raise ConflictError(f"{out} exists already", remedy="Give every backup a name of its own.")
    if not home.database.exists():
        raise SettingsError(
            f"{home.root} is not a member's home: it has no ledger in it",
            remedy="Give the --home of a member; if its ledger is lost, keep the backups that there are.",
        )
    files = _files(home)
    with writing_archive(out) as (folder, add):
        try:
            ledger = copy_sqlite(home.database, folder / home.database.name)
        except SettingsError as error:
            raise LedgerError(str(error), remedy="Run: commingle party doctor") from None
        _verify(ledger, population, remedy="Run: commingle party doctor. Keep the backups that there are.")
        if _files(home) != files:
            raise ConflictError("keys or settings were changed during the backup", remedy="Start it again.")
        for name, data in files.items():
            add(name, data)
        add(ledger.name, ledger)
    return (*files, home.database.name)


def restore_backup(file: Path, home: Home) -> str:
    """Make a home of a backup; returns in words what its ledger holds."""
    with reading_archive(file, home.root) as folder:
        restored = Home(folder)
        if not restored.database.exists():
            raise SettingsError(
                f"{file} is not a member's backup: it has no ledger in it",
                remedy="Give the file that commingle party backup wrote.",
            )
        population = restored.settings().population
        restored.identity()
        return _verify(restored.database, population, remedy="Restore another backup.")


def _verify(ledger: Path, population: str, *, remedy: str) -> str:
    try:
        with closing(open_to_read(ledger)) as db:
            require_version(db)
            return in_words(verify_ledger(db, population=population))
    except sqlite3.Error as error:
        raise LedgerError(f"the ledger is damaged ({type(error).__name__})", remedy=remedy) from None


def _files(home: Home) -> dict[str, bytes]:
    found = sorted({path for pattern in _KEPT for path in home.root.rglob(pattern) if path.is_file()})
    return {str(path.relative_to(home.root)): path.read_bytes() for path in found if _belongs(path, home.root)}


def _belongs(path: Path, root: Path) -> bool:
    above = path.relative_to(root)
    folders = [root / folder for folder in above.parents]
    return _LEFT_OUT.isdisjoint(above.parts) and not any((folder / CACHE_TAG).exists() for folder in folders)


_ONLY_A_REJECTION = frozenset({"rejection"})


@dataclass(frozen=True, slots=True)
class LostRelease:
    """A release about which a lost branch has signed something.

    Attributes:
        spec: None if it came to nothing so long ago that its coordinator has dropped it; then the totals
            have its cost.
        charge: None if all it signed is a rejection, or its spec is gone.
    """

    agent: Agent
    release: str
    view: ReleaseDetails
    spec: Verified[ReleaseSpec] | None
    signed: tuple[tuple[str, Envelope], ...]
    charge: tuple[Cost, ChargeTerms] | None


@dataclass(frozen=True, slots=True)
class LostBranch:
    """What the witnesses can show beyond this ledger.

    Attributes:
        heads: its heads, as witnessed, the furthest last; empty if only signatures are unknown.
        height: of the furthest.
        unexplained: the totals beyond its releases and beyond the last head that both branches have.
    """

    releases: tuple[LostRelease, ...]
    heads: tuple[str, ...]
    height: int
    unexplained: Cost

    def __bool__(self) -> bool:
        return bool(self.releases or self.heads)


def find_lost_branch(agents: Agents) -> LostBranch:
    shown = [_shown_to(agent) for agent in agents.consortia]
    releases = tuple(lost for found, _ in shown for lost in found)
    histories = [history for _, history in shown]
    explained = _newly_spent(agents, releases)
    beyond = [_beyond(lost[-1], common) for lost, common in histories if lost]
    heads = {head.head: head.height for lost, _ in histories for head in lost}
    return LostBranch(
        releases,
        tuple(sorted(heads, key=lambda head: heads[head])),
        max(heads.values(), default=0),
        Cost(
            _unexplained((own for own, _ in beyond), explained.loss),
            _unexplained((replaced for _, replaced in beyond), explained.replaced),
        ),
    )


def _unexplained(beyond: Iterable[Spent], explained: Loss) -> Loss:
    """What was spent beyond the common head and releases do not explain, in the dearest history."""
    spent = tuple(beyond)
    rho = max((units for units, _ in spent), default=0) - explained.rho.units
    delta = max((delta for _, delta in spent), default=Fraction(0)) - Fraction(explained.delta)
    return Loss(Rho(max(rho, 0)), nextafter(float(delta), inf) if delta > 0 else 0.0, gaussian=False)


def adopt_branch(agents: Agents, branch: LostBranch) -> None:
    """Charge it, name its heads, and have the result witnessed. An interrupted call is repeated.

    Raises RemoteError: everything is adopted, and not witnessed yet: the agent does so when it starts.
    """
    for lost in branch.releases:
        seen, coordinator = agents.clock(), lost.agent.coordinator.key.fingerprint
        if lost.spec is None:
            agents.proposals.end(lost.release, state=lost.view.state, seen=seen, coordinator=coordinator)
        else:
            agents.proposals.see(lost.spec, lost.view, seen=seen, coordinator=coordinator)
    # what is adopted already is not charged again, though a coordinator has shown more of it since
    charged = {lost.release: agents.ledger.charge(lost.release) for lost in branch.releases}
    adopted = {release for release, charge in charged.items() if charge and charge.state is ChargeState.ADOPTED}
    lacking = (lost for lost in branch.releases if lost.release not in adopted)
    charges = [(lost.release, *lost.charge) for lost in lacking if lost.charge is not None]
    if any(loss.rho.units or loss.delta for _, loss in branch.unexplained.counted(replacement=True)):
        nobody_knows = ChargeTerms(
            dataset=EVERY_DATASET, study="", kind="unexplained", expires=agents.clock(), coordinator=""
        )
        charges.append((branch.heads[-1], branch.unexplained, nobody_knows))
    signed = [(lost.release, kind, envelope) for lost in branch.releases for kind, envelope in lost.signed]
    agents.ledger.adopt(charges, signed, branch.heads, height=branch.height)
    agents.witnesses.ask()
    agents.witnesses.accept(agents.ledger.length)


def _shown_to(agent: Agent) -> tuple[tuple[LostRelease, ...], tuple[list[LedgerHead], LedgerHead | None]]:
    try:  # what one coordinator hides could be the dearest, so every one must answer
        return tuple(_lost_releases(agent)), _lost_heads(agent)
    except (ProtocolError, RemoteError) as error:
        error.remedy += (
            " Until then nothing is adopted. Should it stay so, first leave that consortium: "
            f"commingle party leave --unannounced --consortium {agent.membership.name}"
        )
        raise


def _lost_releases(agent: Agent) -> Iterable[LostRelease]:
    for listed in agent.client.releases(agent.identity.name, over_too=True):
        view = agent.client.release(listed.id)
        if view.id != listed.id:
            raise DocumentError("the coordinator shows another release under this id", remedy="Ask its operator why.")
        signed = tuple(agent.witnesses.unknown_signatures(view, listed.id, others_too=True))
        if signed:
            yield _lost_release(agent, view, signed)


def _lost_release(agent: Agent, view: ReleaseDetails, signed: tuple[tuple[str, Envelope], ...]) -> LostRelease:
    release = view.id
    if view.spec is None:
        return LostRelease(agent, release, view, None, signed, None)
    # the branch has verified the proposer's signature before it signed: here the digest that it signed is enough
    payload = view.spec.payload_bytes
    signer = Fingerprint(view.spec.signatures[0].keyid)
    spec = Verified(read_spec(payload), payload, signer, view.spec)
    if spec.digest != release:  # it could be a cheaper one
        raise DocumentError("the coordinator shows another spec under this id", remedy="Ask its operator why.")
    charged = not {kind for kind, _ in signed} <= _ONLY_A_REJECTION
    name, coordinator = agent.identity.name, agent.coordinator.key.fingerprint
    terms = ChargeTerms.of(spec.document, name, coordinator=coordinator)
    # how often it has drawn for it is not known here
    charge = (plan_block(spec.document, spec.document.party(name)).cost.approximate(), terms) if charged else None
    return LostRelease(agent, release, view, spec, signed, charge)


def _newly_spent(agents: Agents, releases: Iterable[LostRelease]) -> Cost:
    """The cost of releases that the branch has debited and this ledger has not: only that is part of its totals.

    An approval may have come to nothing. If it explained a part, it could hide a regression on other rows.
    """
    debited = (lost for lost in releases if not SHOWS_A_DEBIT.isdisjoint(kind for kind, _ in lost.signed))
    charged = ((agents.ledger.charge(lost.release), lost.charge[0]) for lost in debited if lost.charge is not None)
    new = (cost for known, cost in charged if not (known is not None and known.spent))
    return sum(new, start=FREE)


def _lost_heads(agent: Agent) -> tuple[list[LedgerHead], LedgerHead | None]:
    lost: list[LedgerHead] = []
    for head in _own_heads(agent, agent.client.head_history(agent.identity.name)):
        if agent.ledger.knows(head.head):
            return lost[::-1], head
        lost.append(head)
    return lost[::-1], None


def _own_heads(agent: Agent, history: Iterable[SignedDocument]) -> Iterable[LedgerHead]:
    own = {key.fingerprint for key in agent.identity.keys}
    for signed in history:
        try:
            head, key = open_head(signed, party=agent.identity.name)
        except ProtocolError:  # the coordinator's mistake
            continue
        if key.fingerprint in own:
            yield head


def _beyond(newest: LedgerHead, common: LedgerHead | None) -> tuple[Spent, Spent]:
    """What was spent between two heads, and the same under replace_one; from the beginning if none is common."""
    (own, replaced), before = newest.spent, common.spent if common else ((0, Fraction(0)), (0, Fraction(0)))
    return (own[0] - before[0][0], own[1] - before[0][1]), (replaced[0] - before[1][0], replaced[1] - before[1][1])


@click.command(epilog="Example: commingle party backup /backup/ward-2026-03-01.tar --home ./ward")
@click.argument("file", type=NEW_FILE)
@home_option
@changes(file=str, holds=list[str])
def backup(*, file: Path, home: Home) -> None:
    """Back up ledger, settings, policy, pins and keys to FILE, even while the agent runs. It holds private keys."""
    names = write_backup(home, file)
    emit(
        {"file": str(file), "holds": list(names)},
        text=f"{len(names)} files in {file}. It holds private keys: keep it as safe as the home.",
    )


@click.command(epilog="Example: commingle party restore /backup/ward-2026-03-01.tar --home ./ward")
@click.argument("file", type=A_FILE)
@home_option
@changes(home=str, holds=str, next=list[str])
def restore(*, file: Path, home: Home) -> None:
    """Restore the newest backup into HOME, which must not exist. What was spent since is adopted afterwards."""
    holds = restore_backup(file, home)
    steps = ("doctor", "adopt", "datasets read NAME", "serve")
    following = tuple(f"commingle party {step} {at_home(home.root)}" for step in steps)
    emit(
        {"home": str(home.root), "holds": holds, "next": list(following)},
        text=(
            f"{home.root} restored: {holds}. Then, in this order: {'; '.join(following)}. What was spent since the "
            "backup counts only once it is adopted."
        ),
    )


@click.command(epilog="Example: commingle party adopt --home ./ward")
@home_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@changes(adopted=bool, releases=dict[str, Any], unexplained=dict[str, float], heads=list[str])
def adopt(*, home: Home, yes: bool) -> None:
    """After a restore, recover charges that the ledger lacks from its witnesses, with the agent stopped."""
    with compose_agents(home) as agents:
        branch = find_lost_branch(agents)
        costs = {lost.release: lost.charge[0] for lost in branch.releases if lost.charge is not None}
        releases = {release: {"unit": cost.unit, "rho": float(cost.loss.rho)} for release, cost in costs.items()}
        unnamed = branch.unexplained.loss
        rest = {"rho": float(unnamed.rho), "delta": unnamed.delta}
        said = {"adopted": bool(branch), "releases": releases, "unexplained": rest, "heads": list(branch.heads)}
        if branch:
            lines = [f"  release {name[:16]}: rho {float(c.loss.rho):.4g} ({c.unit})" for name, c in costs.items()]
            lines.append(f"  unexplained: rho {rest['rho']:.4g}, delta {rest['delta']:.3g}")
            say("\n".join(["A lost branch of this ledger has spent:", *lines]))
            if not yes:
                click.confirm("Charge this for good, and go on?", abort=True, err=True)
            adopt_branch(agents, branch)
    emit(said, text="Adopted." if branch else "The witnesses know nothing that this ledger lacks.")
