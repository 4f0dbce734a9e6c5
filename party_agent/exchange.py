"""A party's side of the exchange of a release (`shared.mechanisms.moments.exchange`; docs/adr/0011).

Everything that leaves is signed and on disk before it is sent, and is made once: one round key, one deal taken, one
mask, one countersignature. Each call goes as far as what the coordinator shows allows, and can be repeated.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import structlog

from commingle.party_agent.consortium import PinnedCoordinator
from commingle.party_agent.coordinator_client import CoordinatorClient
from commingle.party_agent.errors import ConflictError, LostError
from commingle.party_agent.home import Identity
from commingle.party_agent.ledger import Debit, Ledger
from commingle.party_agent.private.privatise import MaskedRows
from commingle.party_agent.release_files import ExchangeFiles
from commingle.party_agent.store import AgentStore
from commingle.party_agent.witnesses import Witnesses
from commingle.shared.documents.dsse import Envelope, Verified, seal
from commingle.shared.documents.model import decode
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import Sums
from commingle.shared.mechanisms.moments.exchange.agreement import Agreement, agreed, countersignature, transcript
from commingle.shared.mechanisms.moments.exchange.deal import Hand, open_package
from commingle.shared.mechanisms.moments.exchange.documents import (
    Countersignature,
    DealStatement,
    MaskStatement,
    open_deal,
    open_mask,
)
from commingle.shared.mechanisms.moments.exchange.mask import (
    MaskReader,
    MaskSealer,
    MaskSecret,
    body_size,
    check_commitment,
    open_secret,
)
from commingle.shared.mechanisms.moments.exchange.ring import Rows, Words, rows_of
from commingle.shared.mechanisms.moments.exchange.sealing import RoundKey
from commingle.shared.mechanisms.moments.exchange.submission import mask, share
from commingle.shared.mechanisms.moments.exchange.terms import Exchange
from commingle.shared.release.charge import ChargeState
from commingle.shared.runtime import faults
from commingle.shared.wire import ReleaseDetails

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Joined:
    """An exchange with what this party holds in it, in memory only."""

    exchange: Exchange
    deal: Verified[DealStatement]
    key: RoundKey
    hand: Hand = field(repr=False)

    @property
    def release(self) -> str:
        """Its id."""
        return self.exchange.spec.digest


@dataclass(frozen=True, slots=True)
class Shares:
    """What the block is but for its noise.

    Attributes:
        share, mask: p x d words; see `submission` there.
        transcript: what every party has countersigned.
        sums: that this party's rows were mapped by, as it signed them with its mask.
    """

    share: Words = field(repr=False)
    mask: Words = field(repr=False)
    transcript: str
    sums: Sums | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Exchanges:
    """The exchanges of one party."""

    identity: Identity
    coordinator: PinnedCoordinator
    client: CoordinatorClient
    store: AgentStore
    ledger: Ledger
    witnesses: Witnesses
    files: ExchangeFiles
    entropy: Callable[[int], bytes]

    def round_key(self, spec: ReleaseSpec, release: str) -> str | None:
        """The public round key to approve with, where the release needs one."""
        if not spec.interactive:
            return None
        public = self.files.make_round_key(release).public
        faults.reach("party.key.made")
        return public

    def join(self, view: ReleaseDetails, spec: Verified[ReleaseSpec]) -> Joined | None:
        """Take the deal, the first and no other; None while there is none.

        Raises:
            ExchangeError: another deal than before, or a package that is not for this party.
            LostError: the round key is gone.
        """
        if view.exchange is None or not view.exchange.dealt:
            return None
        exchange, name = Exchange.of(spec, view.approvals), self.identity.name
        key = self.files.round_key(spec.digest, public=exchange.round_key(name))
        shown = self.client.sealed_package(spec.digest, name)
        deal = open_deal(exchange, shown.statement, self.coordinator.key)
        hand = open_package(exchange, deal, shown.package, party=name, key=key)
        self.ledger.receive(spec.digest, "deal", shown.statement)
        faults.reach("party.deal.received")
        return Joined(exchange, deal, key, hand)

    def has_mask(self, release: str) -> bool:
        """Whether this party's mask is made, so that its table is not to be read again."""
        return self.ledger.signature(release, "mask") is not None

    def store_mask(self, joined: Joined, debit: Debit, masked: MaskedRows) -> None:
        """Encrypt and store this party's masked rows, and sign them: the point after which nothing can be made anew.

        Raises:
            ConflictError: the release was given up meanwhile.
        """
        name, release = self.identity.name, joined.release
        sealer = MaskSealer(joined.exchange, party=name, secret=MaskSecret.draw(self.entropy))
        self.files.put(release, name, sealer.body(rows_of(masked.words)))
        faults.reach("party.mask.written")
        statement = self._seal(sealer.statement(joined.deal.envelope.digest, masked.sums), "mask")
        with self.store.transaction() as db:
            charge = self.ledger.charge_in(db, release)
            if (charge.state, charge.attempt) != (ChargeState.DEBITED, debit.attempt):
                raise ConflictError("the release was given up meanwhile", remedy="Nothing is to be done.")
            self.ledger.sign_off(db, release, "mask", statement)
        faults.reach("party.mask.signed")
        _log.info("masked", release=release, columns=joined.exchange.columns(name))

    def agree(self, view: ReleaseDetails, joined: Joined, permit: Callable[[], None]) -> Shares | None:
        """Send the mask; check all masks and countersign them; None until every party has.

        `permit` is asked before each thing that is sent.

        Raises:
            ExchangeError, SignatureError, DocumentError: what others sent is not what they signed, or not one exchange.
            LostError: the mask is gone before it was sent.
        """
        name, release, everybody = self.identity.name, joined.release, set(joined.exchange.parties)
        masks, countersignatures = view.signed("mask"), view.signed("countersignature")
        own = self.ledger.signature(release, "countersignature")
        if name not in masks:
            permit()
            self._send_mask(release)
        elif own is not None and name not in countersignatures:
            permit()
            self._countersign(release, own)
        elif set(masks) == everybody and (own is None or set(countersignatures) == everybody):
            statements, rows = self._read_masks(masks, joined)
            seen = transcript(joined.exchange, deal=joined.deal.envelope.digest, masks=statements)
            if own is not None:
                return self._shares(
                    joined, rows, agreed(joined.exchange, transcript=seen, countersignatures=countersignatures)
                )
            permit()
            self._countersign(release, self._sign_transcript(joined, seen))
        return None

    def clear(self, release: str) -> None:
        """Remove round key and masked rows."""
        self.files.clear(release)

    def _send_mask(self, release: str) -> None:
        name, envelope, signed = self.identity.name, self.ledger.signature(release, "mask"), self._signed_mask(release)
        if envelope is None or signed is None:
            return
        if not self.files.has(release, name, signed.body_sha256):
            raise LostError("the masked rows are lost or damaged", remedy="Check the disk of the party's home.")
        self.witnesses.accept(self.ledger.signed_place("mask", release))
        with self.files.mask_file(release, name).open("rb") as file:
            self.client.send_mask(release, name, envelope, file, digest=signed.body_sha256)
        faults.reach("party.mask.sent")
        _log.info("mask sent", release=release)

    def _read_masks(
        self, shown: Mapping[str, Envelope], joined: Joined
    ) -> tuple[Mapping[str, Verified[MaskStatement]], Mapping[str, Rows]]:
        """Every party's mask, its commitment checked."""
        exchange, release, rows = joined.exchange, joined.release, dict[str, Rows]()
        statements = {sender: open_mask(exchange, shown[sender], sender) for sender in exchange.parties}
        for sender, statement in statements.items():
            if not self.files.has(release, sender, statement.document.body_sha256):
                size = body_size(exchange, sender)
                self.files.put(release, sender, self.client.mask(release, sender, size=size))
                faults.reach("party.mask.fetched")
            secret = open_secret(exchange, statement, recipient=self.identity.name, key=joined.key)
            read = partial(self.files.read, release, sender)
            rows[sender] = MaskReader(exchange, party=sender, secret=secret, read=read)
            check_commitment(exchange, statement, rows[sender], secret=secret)
        return statements, rows

    def _sign_transcript(self, joined: Joined, seen: str) -> Envelope:
        document = countersignature(joined.exchange, party=self.identity.name, transcript=seen)
        envelope = self._seal(document, "countersignature")
        with self.store.transaction() as db:
            if self.ledger.charge_in(db, joined.release).state is not ChargeState.DEBITED:
                raise ConflictError("the release was given up meanwhile", remedy="Nothing is to be done.")
            self.ledger.sign_off(db, joined.release, "countersignature", envelope)
        faults.reach("party.countersigned")
        return envelope

    def _countersign(self, release: str, envelope: Envelope) -> None:
        self.client.countersign(release, self.identity.name, envelope)
        faults.reach("party.countersignature.sent")
        _log.info("countersigned", release=release)

    def _shares(self, joined: Joined, rows: Mapping[str, Rows], agreement: Agreement) -> Shares:
        name = self.identity.name
        shares = share(joined.exchange, party=name, hand=joined.hand, masked=rows)
        hidden = mask(joined.exchange, party=name, key=joined.key, agreement=agreement)
        faults.reach("party.agreed")
        own = self._signed_mask(joined.release)
        return Shares(shares, hidden, agreement.transcript, None if own is None else own.sums)

    def _signed_mask(self, release: str) -> MaskStatement | None:
        envelope = self.ledger.signature(release, "mask")
        return None if envelope is None else decode(MaskStatement, envelope.payload_bytes)

    def _seal(self, document: MaskStatement | Countersignature, kind: str) -> Envelope:
        return seal(document, kind=kind, key=self.identity.signing_key)
