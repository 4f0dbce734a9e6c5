"""A study that somebody begins with: what has a sensible default has it, and a first proposal passes a usual policy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from commingle.shared.documents.errors import SpecError
from commingle.shared.documents.keys import Fingerprint
from commingle.shared.documents.schema import Attribute
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.study import Study, StudyParty
from commingle.shared.release.checks import Member, build_spec

EPSILON, MOST_DELTA = 1.0, 1e-5
_NOBODY = Fingerprint("0" * 64)
_PRECISE_TO = 2  # digits of a number of people


@dataclass(frozen=True, slots=True)
class Share:
    """What a member offers: its public schema, and what it calls the data set."""

    dataset: str
    attributes: tuple[Attribute, ...]


def draft(shares: Mapping[str, Share], *, n: int, columns: Sequence[str] = (), **asked: Any) -> Study:  # noqa: ANN401 - fields of a study
    """A study of these members, to be `tried`.

    Delta is below one in the number of people. Members without a wanted column are left out.

    Args:
        shares: what each member offers.
        n: about how many people a member holds (keyed), or all hold (listed: as it is).
        columns: which of the members' columns, as `age` or `ward.age`; empty for all.
        asked: what else a study says; what is None has its default.

    Raises:
        SpecError: a column is not in any schema, or in two.
        ValidationError: a name or a number is none.
    """
    wanted = _wanted(columns, shares)
    said = {"epsilon": EPSILON} | {name: value for name, value in asked.items() if value is not None}
    n = n if said.get("subjects") == "listed" else two_digits(n)
    return Study(
        delta=min(MOST_DELTA, 10.0 ** -len(str(n))),
        n=n,
        parties=tuple(
            StudyParty(name=name, dataset=share.dataset, attributes=wanted[name])
            for name, share in shares.items()
            if wanted[name]
        ),
        **said,
    )


def two_digits(n: int) -> int:
    """A number of people to two digits: how many exactly a member holds is nobody's business."""
    step: int = 10 ** max(0, len(str(n)) - _PRECISE_TO)
    return max(2, round(n / step) * step)


def tried(study: Study, *, now: datetime) -> ReleaseSpec:
    """The spec that a study would become, with keys that nobody has. Raises SpecError: it cannot become one."""
    members = {
        p.name: Member(*(sha256(f"{what} {p.name}".encode()).hexdigest() for what in "ab")) for p in study.parties
    }
    return build_spec(study, members=members, proposer=_NOBODY, seed=bytes(32), now=now)


def _wanted(columns: Sequence[str], shares: Mapping[str, Share]) -> Mapping[str, tuple[Attribute, ...]]:
    owners = dict[str, list[str]]()
    for name, share in shares.items():
        for attribute in share.attributes:
            if not columns or {attribute.name, f"{name}.{attribute.name}"} & {*columns}:
                owners.setdefault(attribute.name, []).append(name)
    offered = [(owner, a.name) for owner, share in shares.items() for a in share.attributes]
    known = {name for _, name in offered} | {f"{owner}.{name}" for owner, name in offered}
    if unknown := [name for name in columns if name not in known]:
        raise SpecError(
            f"no schema has the column {', '.join(unknown)}",
            remedy=f"There are {', '.join(sorted({name for _, name in offered}))}.",
        )
    if twice := [name for name, found in owners.items() if len(found) > 1]:
        first = twice[0]
        raise SpecError(
            f"the column {first} is in the schemas of {' and '.join(owners[first])}, and a release has each name once",
            remedy=f"Name the columns you want, this one as {owners[first][0]}.{first}; or have one renamed.",
        )
    return {
        name: tuple(a for a in share.attributes if name in owners.get(a.name, ())) for name, share in shares.items()
    }
