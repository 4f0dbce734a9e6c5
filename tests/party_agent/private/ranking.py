"""Whose ranks they are."""

from typing import Any

from commingle.party_agent.private.ranks import Ranks


def ids_of(ranks: Ranks) -> list[Any]:
    """The canonical ids by rank."""
    return [identifier for piece in ranks.pieces for identifier in piece.to_pylist()]
