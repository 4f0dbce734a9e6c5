"""Proposing a release to a coordinator on behalf of this party: signed with its key, as any member may.

What is signed for a caller's key (`Idempotency-Key`) is kept before it is sent, so that repeating the call sends the
same document again, which changes nothing, and never asks everybody's budget twice.
"""

import secrets
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from commingle.party_agent.errors import ConflictError
from commingle.party_agent.rounds.agent import Agent
from commingle.party_agent.rounds.agents import Agents
from commingle.party_agent.rounds.proposals import Decision, Proposal, in_words
from commingle.party_agent.wire.answers import ProposedView
from commingle.shared.documents.dsse import Envelope, seal
from commingle.shared.documents.model import Digest, WireModel, decode, encode
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.study import Study
from commingle.shared.forecast.forecast import with_sketch
from commingle.shared.release.checks import Member, build_spec, read_spec
from commingle.shared.release.plan import privacy_statement
from commingle.shared.release.rounds import State
from commingle.shared.runtime.files import write_durably

_DAYS_KEPT = 30


class _Kept(WireModel):
    asked: Digest
    envelope: Envelope


@dataclass(frozen=True, slots=True)
class Proposing:
    """Proposals of one caller.

    Attributes:
        owner: name of the token; empty for the operator.
    """

    agents: Agents
    owner: str

    def propose(self, study: Study, *, key: str | None = None, consortium: str | None = None) -> ProposedView:
        """Sign a study's release spec and send it; what the coordinator has recorded.

        Args:
            study: what is asked.
            key: the same for the same proposal; None asks anew each time.
            consortium: which, where this party belongs to more than one.
        """
        agent, asked = self._agent(consortium), sha256(encode(study)).hexdigest()
        kept = self._kept(agent, key)
        signed = decode(_Kept, kept.read_bytes()) if kept is not None and kept.exists() else None
        if signed is not None and signed.asked != asked:
            raise ConflictError("this key was used for another study", remedy="Use a new Idempotency-Key.")
        if signed is None:
            signed = _Kept(asked=asked, envelope=self._sign(agent, study))
            if kept is not None:
                self._forget(kept.parent)
                write_durably(kept, encode(signed))
        release = agent.client.propose(signed.envelope)
        spec = read_spec(signed.envelope.payload_bytes)
        return ProposedView(
            id=release.id,
            study=spec.study,
            state=release.state,
            parties=tuple(party.name for party in spec.parties),
            expires=spec.expires.isoformat(),
            trust=privacy_statement(spec).trust,
        )

    def tried(self, study: Study, *, consortium: str | None = None) -> Proposal:
        """What this party would be asked if it proposed that, and what speaks against it; nothing is sent or kept."""
        agent = self._agent(consortium)
        spec = self._spec(agent, study)
        release = sha256(encode(spec)).hexdigest()
        found = agent.examine(spec, spec.party(agent.identity.name), release)
        return Proposal(
            release=release,
            spec=spec,
            state=State.PROPOSED,
            decision=Decision.WAITING,
            findings=in_words(found),
            coordinator=agent.coordinator.key.fingerprint,
            reason=None,
            agreed=(),
        )

    def _agent(self, consortium: str | None) -> Agent:
        known = {agent.membership.name: agent for agent in self.agents.consortia}
        if consortium is None and len(known) == 1:
            return next(iter(known.values()))
        if consortium not in known:
            raise ConflictError(
                "which consortium it is for is not clear", remedy=f"Name one of: {', '.join(known) or 'none yet'}"
            )
        return known[consortium]

    def _sign(self, agent: Agent, study: Study) -> Envelope:
        return seal(self._spec(agent, study), key=agent.identity.signing_key)

    @staticmethod
    def _spec(agent: Agent, study: Study) -> ReleaseSpec:
        members = {one.name: Member(one.signing_key, one.sealing_key) for one in agent.client.members()}
        return build_spec(
            with_sketch(study),
            members=members,
            proposer=agent.identity.signing_key.fingerprint,
            seed=secrets.token_bytes(32),
            now=agent.clock(),
        )

    def _kept(self, agent: Agent, key: str | None) -> Path | None:
        if key is None:
            return None
        name = f"{self.owner}\0{agent.coordinator.key.fingerprint}\0{key}"
        return self.agents.home.root / "proposed" / f"{sha256(name.encode()).hexdigest()}.json"

    def _forget(self, folder: Path) -> None:
        oldest = self.agents.clock().timestamp() - _DAYS_KEPT * 86400
        for path in folder.glob("*.json"):
            if path.stat().st_mtime < oldest:
                path.unlink()
