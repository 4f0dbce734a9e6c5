"""Designs to forecast."""

from typing import Any

from commingle.shared.documents.schema import BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.documents.terms import PartyTerms, Terms
from commingle.shared.dp.calibration import Calibration


def numeric(columns: int, parties: int = 2, **changes: Any) -> Terms:
    """Columns x0, x1, ... on [0, 10], in order, shared evenly."""
    attributes = [NumericAttribute(name=f"x{i}", lower=0, upper=10) for i in range(columns)]
    each = -(-columns // parties)
    shares = tuple(
        PartyTerms(name=f"p{i}", attributes=tuple(attributes[i * each : (i + 1) * each])) for i in range(parties)
    )
    return design(shares, **changes)


def mixed(**changes: Any) -> Terms:
    """One attribute of each kind and a label at another party."""
    clinic = PartyTerms(
        name="clinic",
        attributes=(
            NumericAttribute(name="age", lower=20, upper=80),
            BinaryAttribute(name="smoker", levels=("no", "yes")),
            CategoricalAttribute(name="site", levels=("north", "east", "south")),
        ),
        row_norm=changes.pop("row_norm", None),
    )
    insurer = PartyTerms(name="insurer", attributes=(NumericAttribute(name="charges", lower=0, upper=400),))
    return design((clinic, insurer), **changes)


def design(shares: tuple[PartyTerms, ...], **changes: Any) -> Terms:
    plain: dict[str, Any] = {
        "mechanism": "rmgm",
        "k": None,
        "n": 100_000,
        "epsilon": 1.0,
        "delta": 1e-5,
        "calibration": Calibration.ANALYTIC,
    }
    return Terms(**{**plain, **changes}, parties=shares)
