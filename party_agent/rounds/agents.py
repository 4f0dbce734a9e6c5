"""A party's agents, one for each of its consortia, over one ledger: each looks at every release that concerns it."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

from commingle.party_agent.errors import ConflictError
from commingle.party_agent.home.datasets import Datasets
from commingle.party_agent.home.home import Home
from commingle.party_agent.ledger.ledger import Ledger
from commingle.party_agent.ledger.store import AgentStore
from commingle.party_agent.rounds.agent import Agent
from commingle.party_agent.rounds.exchange import ExchangeFiles, Exchanges
from commingle.party_agent.rounds.party import Jobs, Outbox, Party
from commingle.party_agent.rounds.proposals import Proposal, Proposals, in_words
from commingle.party_agent.rounds.witnesses import Witness, Witnesses
from commingle.party_agent.wire.answers import ProposedView
from commingle.shared.documents.dsse import Envelope, seal
from commingle.shared.documents.model import Digest, WireModel, decode, encode
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.study import Study
from commingle.shared.dp.noise import Sampler
from commingle.shared.forecast.forecast import with_sketch
from commingle.shared.release.checks import build_spec, read_spec
from commingle.shared.release.ledger_fold import Ruling
from commingle.shared.release.plan import privacy_statement
from commingle.shared.release.rounds import State
from commingle.shared.runtime.coordinator_client import CoordinatorClient
from commingle.shared.runtime.files import write_durably
from commingle.shared.runtime.settings import Clock

_DAYS_KEPT = 30
_signs_one = Lock()  # a caller who repeats a call while the first is under way must send what that signed


class _Kept(WireModel):
    asked: Digest
    envelope: Envelope


@dataclass(frozen=True, slots=True, kw_only=True)
class Agents(Party):
    consortia: tuple[Agent, ...]

    def of(self, release: str) -> Agent:
        """The agent that was shown a release. Raises NotFoundError, ConflictError."""
        coordinator = self.proposals.get(release).coordinator
        for agent in self.consortia:
            if coordinator == agent.coordinator.key.fingerprint:
                return agent
        raise ConflictError("the release is of a consortium that was left", remedy="Enrol with its coordinator again.")

    def approve(self, release: str, ruling: Ruling) -> Proposal:
        return self.of(release).approve(release, ruling)

    def reject(self, release: str, ruling: Ruling) -> Proposal:
        return self.of(release).reject(release, ruling=ruling)

    def propose(
        self, study: Study, *, owner: str = "", key: str | None = None, consortium: str | None = None
    ) -> ProposedView:
        """Sign a study's release spec with this party's key, as any member may, and send it.

        What is signed for a caller's `key` is kept before it is sent, so that repeating the call sends the same
        document again. That changes nothing, and never asks everybody's budget twice. `owner` is the digest of
        the caller's token, as names come again; empty for the operator. `consortium` names one, if this party belongs
        to several.
        """
        agent = self._agent(consortium)
        self.witnesses.ask(agent.coordinator.key.fingerprint)
        kept = self._kept(agent, owner, key)
        envelope = self._signed(agent, study, kept)
        release = agent.client.propose(envelope)
        spec = read_spec(envelope.payload_bytes)
        return ProposedView(
            id=release.id,
            study=spec.study,
            state=release.state,
            parties=tuple(party.name for party in spec.parties),
            expires=spec.expires.isoformat(),
            trust=privacy_statement(spec).trust,
        )

    def tried(self, study: Study, *, consortium: str | None = None) -> Proposal:
        """The proposal this party would see if it proposed that, with what speaks against it. It sends nothing."""
        agent = self._agent(consortium)
        spec = _spec(agent, study)
        release = sha256(encode(spec)).hexdigest()
        found = agent.examine(spec, release)
        return Proposal(
            release=release,
            spec=spec,
            state=State.PROPOSED,
            decision="waiting",
            findings=in_words(found),
            coordinator=agent.coordinator.key.fingerprint,
            reason=None,
            agreed=(),
        )

    def _agent(self, consortium: str | None) -> Agent:
        known = {agent.membership.name: agent for agent in self.consortia}
        if consortium is None and len(known) == 1:
            return next(iter(known.values()))
        if consortium not in known:
            raise ConflictError(
                "it is not clear which consortium this is for", remedy=f"Name one of: {', '.join(known) or 'none yet'}"
            )
        return known[consortium]

    def _signed(self, agent: Agent, study: Study, kept: Path | None) -> Envelope:
        if kept is None:
            return _sealed(agent, study)
        made = None if kept.exists() else _sealed(agent, study)  # asks the coordinator: not under the lock
        asked = sha256(encode(study)).hexdigest()
        with _signs_one:
            if kept.exists():
                signed = decode(_Kept, kept.read_bytes())
                if signed.asked != asked:
                    raise ConflictError("this key was used for another study", remedy="Use a new Idempotency-Key.")
                return signed.envelope
            made = made or _sealed(agent, study)  # the kept one was forgotten just now
            self._forget(kept.parent)
            write_durably(kept, encode(_Kept(asked=asked, envelope=made)))
        return made

    def _kept(self, agent: Agent, owner: str, key: str | None) -> Path | None:
        if key is None:
            return None
        name = f"{owner}\0{agent.coordinator.key.fingerprint}\0{key}"
        return self.home.root / "proposed" / f"{sha256(name.encode()).hexdigest()}.json"

    def _forget(self, folder: Path) -> None:
        oldest = self.clock().timestamp() - _DAYS_KEPT * 86400
        for path in folder.glob("*.json"):
            if path.stat().st_mtime < oldest:
                path.unlink()


def _sealed(agent: Agent, study: Study) -> Envelope:
    return seal(_spec(agent, study), key=agent.identity.signing_key)


def _spec(agent: Agent, study: Study) -> ReleaseSpec:
    return build_spec(
        with_sketch(study),
        members=agent.client.proposable(),
        proposer=agent.identity.signing_key.fingerprint,
        seed=secrets.token_bytes(32),
        now=agent.clock(),
    )


def assemble(
    home: Home, store: AgentStore, clients: Mapping[str, CoordinatorClient], *, clock: Clock, draw: Sampler
) -> Agents:
    """The agents of a home; `clients` reach its coordinators, by the name of the consortium."""
    identity, settings = home.identity(), home.settings()
    ledger = Ledger(store, cap=settings.cap, counts_replacement=lambda: home.policy().replacement)
    memberships = home.consortia()
    pinned = {name: memberships[name].coordinator() for name in clients}
    proposals = Proposals(store, ledger)
    witness = {
        name: Witness(memberships[name], client, pinned[name].key.fingerprint) for name, client in clients.items()
    }
    witnesses = Witnesses(identity, store, ledger, proposals, clock, tuple(witness.values()))
    shared: dict[str, Any] = {
        "home": home,
        "identity": identity,
        "store": store,
        "ledger": ledger,
        "witnesses": witnesses,
        "datasets": Datasets(store, ledger, home.snapshots, clock, settings.engine.open()),
        "proposals": proposals,
        "outbox": Outbox(home.outbox),
        "jobs": Jobs(),
        "clock": clock,
        "draw": draw,
    }
    files = ExchangeFiles(home.exchanges)
    consortia = (
        Agent(
            **shared,
            membership=one.membership,
            client=one.client,
            coordinator=pinned[name],
            exchanges=Exchanges(identity, one.client, store, ledger, witnesses, files),
            witness=one,
        )
        for name, one in witness.items()
    )
    return Agents(**shared, consortia=tuple(consortia))
