"""The dealer: pads A_j for the parties and, for every pair i before j, shares C_i + C_j = A_i^T A_j mod 2^64.

The dealer sees no data. Whoever knows a party's pad can unmask its rows, so seeds leave this module sealed only.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations

import numpy as np

from commingle.shared.documents.dsse import Verified
from commingle.shared.documents.errors import DocumentError, ExchangeError
from commingle.shared.documents.model import decode, encode
from commingle.shared.mechanisms.moments.block import places
from commingle.shared.mechanisms.moments.exchange.documents import DealPackage, DealStatement
from commingle.shared.mechanisms.moments.exchange.ring import SECRET_BYTES, Pad, Words, inner, side_by_side
from commingle.shared.mechanisms.moments.exchange.sealing import RoundKey, seal_to
from commingle.shared.mechanisms.moments.exchange.terms import Exchange

_REMEDY = "Propose a new release."


@dataclass(frozen=True, slots=True)
class Dealt:
    """A deal, ready to be signed and sent.

    Attributes:
        packages: sealed, by party.
    """

    statement: DealStatement
    packages: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, repr=False)
class Hand:
    """What a deal gave one party.

    Attributes:
        pad: its pad A, rows of d words.
        shares: per other party its share of the product of their pads, d_other x d words.
    """

    pad: Pad
    shares: Mapping[str, Words]


def deal(exchange: Exchange, *, entropy: Callable[[int], bytes]) -> Dealt:
    """Deal, once per release: dealing twice hands the dealer (A - A')^T X exactly.

    Args:
        exchange: spec and approvals.
        entropy: random bytes of the operating system.
    """
    parties = exchange.parties
    pads = {name: entropy(SECRET_BYTES) for name in parties}
    seeds: dict[str, dict[str, str]] = {name: {} for name in parties}
    shares: dict[str, dict[str, str]] = {name: {} for name in parties}
    products = _products(exchange, pads)
    for first, second in combinations(parties, 2):
        seed = entropy(SECRET_BYTES)
        share = products[first, second] - _share(exchange, first, second, seed)
        seeds[first][second] = seed.hex()
        shares[second][first] = b64encode(share.astype("<u8").tobytes()).decode()
    sealed = {}
    for name in parties:
        package = DealPackage(pad=pads[name].hex(), seeds=seeds[name], shares=shares[name])
        sealed[name] = seal_to(exchange.round_key(name), encode(package), _info(exchange, name))
    digests = {name: sha256(box).hexdigest() for name, box in sealed.items()}
    statement = DealStatement(spec=exchange.spec.digest, approvals=exchange.approved, packages=digests)
    return Dealt(statement, sealed)


def open_package(
    exchange: Exchange, statement: Verified[DealStatement], package: bytes, *, party: str, key: RoundKey
) -> Hand:
    """What the deal gave that party.

    Raises:
        ExchangeError: the package is not the one that was signed, or not sealed to this party for this release.
        DocumentError: its contents are not what this party needs.
    """
    if sha256(package).hexdigest() != statement.document.packages.get(party):
        raise ExchangeError("the package is not the one that was signed", remedy="Fetch it again.")
    opened = decode(DealPackage, key.open(package, _info(exchange, party)))
    place = exchange.parties.index(party)
    earlier, later = exchange.parties[:place], exchange.parties[place + 1 :]
    if set(opened.seeds) != set(later) or set(opened.shares) != set(earlier):
        raise DocumentError("the package lacks a share or has one too many", remedy=_REMEDY)
    given = {name: _read(opened.shares[name], exchange.columns(name), exchange.columns(party)) for name in earlier}
    # shares lie as they do in the party's block: rows of the other, columns of its own
    made = {name: _share(exchange, party, name, bytes.fromhex(opened.seeds[name])).T for name in later}
    return Hand(_pad(exchange, party, bytes.fromhex(opened.pad)), {**given, **made})


def _products(exchange: Exchange, seeds: Mapping[str, bytes]) -> dict[tuple[str, str], Words]:
    """A_i^T A_j of every pair, all in one pass over the rows."""
    pads = side_by_side([_pad(exchange, name, seeds[name]) for name in exchange.parties])
    whole = np.pad(inner(pads, pads, exchange.spec.document.n), ((1, 0), (1, 0)))  # places count the intercept
    at = places(exchange.spec.document)
    return {(i, j): whole[at[i], at[j]] for i, j in combinations(exchange.parties, 2)}


def _pad(exchange: Exchange, party: str, seed: bytes) -> Pad:
    return Pad(seed, info=exchange.info("pad", party), columns=exchange.columns(party))


def _share(exchange: Exchange, first: str, second: str, seed: bytes) -> Words:
    """C of the first of a pair, d_first x d_second."""
    pad = Pad(seed, info=exchange.info("share", first, second), columns=exchange.columns(second))
    return pad(0, exchange.columns(first))


def _info(exchange: Exchange, party: str) -> bytes:
    return exchange.info("deal", party, exchange.round_key(party))


def _read(text: str, rows: int, columns: int) -> Words:
    try:
        return np.frombuffer(b64decode(text, validate=True), "<u8").astype(np.uint64).reshape(rows, columns)
    except ValueError:
        raise DocumentError("a share of the deal has another shape", remedy=_REMEDY) from None
