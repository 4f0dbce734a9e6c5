"""Whose decision a decision is, and when two approvals are those of two people (docs/design/states.md#two-people).

A person is whom a token was made for, or who signed on: then the name is that of the provider's subject, `SUBJECT at
ISSUER`. At the home's socket nobody says who is there but the operator's own words, so the operator, whatever the name,
is one person. Names from different sources cannot be compared, and two such approvals are not those of two people.
"""

import unicodedata
from typing import Literal

from commingle.party_agent.errors import ConflictError
from commingle.shared.release.ledger_fold import Ruling

Approvals = Literal[1, 2]


def require_person(ruling: Ruling) -> None:
    """Raise ConflictError where two people have to approve and nobody knows whether this is one."""
    if not _folded(ruling.person):
        raise ConflictError(
            "two people have to approve, and this token was made for none",
            remedy="Make one for a person: commingle party token create --person NAME --scope decide",
        )


def require_another(first: Ruling, second: Ruling) -> None:
    """Raise ConflictError where the second of two approvals may be the first one's person or token again."""
    require_person(second)
    if _provider(first) != _provider(second):
        raise ConflictError(
            f"{first.by} has approved already, and nobody can tell whether that is another person: one of the two "
            "signed on and the other did not, or at another provider",
            remedy="The second person approves in the way of the first. Anybody can reject it.",
        )
    if first.token == second.token or _folded(first.person) == _folded(second.person):
        whose = "one person" if first.token or second.token else "the operator, who is one person here,"
        raise ConflictError(
            f"{whose} has approved already ({first.by}), and another one has to",
            remedy="The second person approves with a token, console link or sign-in of their own",
        )


def is_signed_on(person: str) -> bool:
    """Whether the person signed on: no other name has an address in it."""
    return "://" in person


def _provider(ruling: Ruling) -> str:
    return ruling.person.rpartition(" at ")[2] if ruling.token and is_signed_on(ruling.person) else ""


def _folded(name: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())
