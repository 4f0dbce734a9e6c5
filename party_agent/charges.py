"""A charge as the ledger's file has it."""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from commingle.shared.dp.accounting import Cost, Loss, Rho
from commingle.shared.release.charge import Charge, ChargeKind, ChargeState, ChargeTerms

COSTS = "rho_units, delta, replacement_units, replacement_delta, gaussian"
"""What `sum_of` reads of the table of charges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeRecord(Charge):
    """One charge as the ledger has it: what its chain tells, and what it is about.

    Attributes:
        release: the release's id, or the regression's.
    """

    terms: ChargeTerms
    release: str
    snapshot: str = field(repr=False)

    @property
    def coordinator(self) -> str:
        """Of the terms, as are the following."""
        return self.terms.coordinator

    @property
    def dataset(self) -> str:
        return self.terms.dataset

    @property
    def study(self) -> str:
        return self.terms.study

    @property
    def expires(self) -> datetime:
        return self.terms.expires

    @property
    def kind(self) -> ChargeKind:
        return self.terms.kind


def sum_of(rows: Iterable[sqlite3.Row]) -> Cost:
    """What rows of charges come to together: those without a delta, which are nearly all, by their integers."""
    units, replaced, keyed, gaussian, others = 0, 0, False, True, []
    for row in rows:
        if row["delta"] or row["replacement_delta"]:
            others.append(cost_of(row))
        else:
            units, gaussian = units + int(row["rho_units"]), gaussian and bool(row["gaussian"])
            replaced += int(row["replacement_units"] or row["rho_units"])
            keyed = keyed or row["replacement_units"] is not None
    whole = Cost(Loss(Rho(units), gaussian=gaussian), Loss(Rho(replaced), gaussian=gaussian) if keyed else None)
    return sum(others, start=whole)


def cost_of(row: sqlite3.Row) -> Cost:
    """What a row of charges costs."""
    gaussian, units = bool(row["gaussian"]), row["replacement_units"]
    other = None if units is None else Loss(Rho(int(units)), row["replacement_delta"], gaussian)
    return Cost(Loss(Rho(int(row["rho_units"])), row["delta"], gaussian), other)


def record_of(row: sqlite3.Row) -> ChargeRecord:
    """A whole row of charges. Raises ValueError, TypeError, IndexError where it is none of ours."""
    return ChargeRecord(
        population=row["population"],
        cost=cost_of(row),
        terms=ChargeTerms(
            dataset=row["dataset"],
            study=row["study"],
            kind=row["kind"],
            expires=datetime.fromisoformat(row["expires"]),
            coordinator=row["coordinator"],
        ),
        state=ChargeState(row["state"]),
        attempt=row["attempt"],
        approvals=row["approvals"],
        body_sha256=row["body_sha256"],
        release=row["release"],
        snapshot=row["snapshot"],
    )
