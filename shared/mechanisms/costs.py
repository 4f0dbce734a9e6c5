"""What it costs parties to make a release together, besides budget. Plain values: they go over the wire as they are."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyCost:
    """Of one party.

    Attributes:
        name: whose.
        bytes_sent, bytes_received: exact, but for headers and signed statements.
        seconds: of one processor, estimated.
    """

    name: str
    bytes_sent: int
    bytes_received: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeCost:
    """Of what parties exchange before they upload.

    Attributes:
        bounds: proved or trusted.
        parties: each by itself.
        bytes: sent and received by all.
        seconds: of all.
        proof_bytes, proof_seconds: what of it would be saved if bounds were trusted.
    """

    bounds: str
    parties: tuple[PartyCost, ...]
    bytes: int
    seconds: float
    proof_bytes: int
    proof_seconds: float
