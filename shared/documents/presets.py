"""The terms of published papers: the one table of `--preset` (docs/presets.md).

A preset sets what its paper fixes. The asker chooses epsilon, and all that the paper leaves open.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from commingle.shared.documents.regression import CalibrationName, RegressionMethod, RowMapping
from commingle.shared.documents.study import Study, Subjects
from commingle.shared.documents.terms import MechanismName
from commingle.shared.dp.calibration import Calibration
from commingle.shared.errors import SpecError

_OF_THE_PAPER = ("method", "calibration", "mapping", "intercept")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasePreset:
    """A release by several parties: one stage, a sketch of k = n^(2/3) or none, and rows neither cut nor whitened."""

    paper: str
    # what it releases; the first, which has a sketch, unless another of them is asked for
    mechanisms: tuple[MechanismName, ...]
    calibration: Calibration
    subjects: Subjects

    def study(self, asked: Study, mechanism: MechanismName | None = None) -> Study:
        """The study with the paper's terms. Raises SpecError for a mechanism that the paper does not have."""
        taken = mechanism or self.mechanisms[0]
        if taken not in self.mechanisms:
            raise SpecError(
                f"{self.paper} has no {taken}", remedy=f"Ask for {' or '.join(self.mechanisms)}, or leave it out."
            )
        plain = {"row_norm": None, "whitening": None, "first_stage_share": None, "weighted": None}
        return asked.model_copy(
            update={
                "mechanism": taken,
                "k": (asked.k or max(2, round(asked.n ** (2 / 3)))) if taken == self.mechanisms[0] else None,
                "projection": None,
                "calibration": self.calibration,
                "subjects": self.subjects,
                "bounds": None,
                "buckets": None,
                "parties": tuple(party.model_copy(update=plain) for party in asked.parties),
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionPreset:
    """A regression by one party."""

    paper: str
    # of the data set: the paper's neighbours differ in a row's presence if keyed, in its values if listed
    subjects: Subjects
    method: RegressionMethod
    calibration: CalibrationName
    mapping: RowMapping
    intercept: bool = False
    # delta is this or 1/n^2, whichever is less; None where the paper has no delta of its own
    most_delta: float | None = None
    public: bool = False

    def fields(self, n: int | None) -> dict[str, Any]:
        """Fields of a `RegressionRequest` about n subjects; n is None if they are listed."""
        if (n is not None) is not (self.subjects == "keyed"):
            raise SpecError(
                f"{self.paper} is about {self.subjects} data sets",
                remedy="Give n, a public figure of about how many there are."
                if self.subjects == "keyed"
                else "Ask it of a data set that lists its people, and leave n out.",
            )
        delta = {} if n is None or self.most_delta is None else {"delta": min(self.most_delta, n**-2)}
        return {name: getattr(self, name) for name in _OF_THE_PAPER} | delta


RELEASES: Mapping[str, ReleasePreset] = {
    "wu2022": ReleasePreset(
        paper="Wu et al. 2022",
        mechanisms=("rmgm", "dgm"),
        calibration=Calibration.CLASSICAL,
        subjects="listed",
    ),
}
REGRESSIONS: Mapping[str, RegressionPreset] = {
    "wang2018": RegressionPreset(
        paper="Wang 2018",
        subjects="keyed",
        method="adassp",
        calibration="analytic",
        mapping="per_row",
        most_delta=1e-6,
    ),
    "kalaja2020": RegressionPreset(
        paper="Kalaja 2020",
        subjects="keyed",
        method="adassp",
        calibration="classical",
        mapping="maximum",
        most_delta=1e-6,
    ),
    "public_moment": RegressionPreset(
        paper="Enhancing DP Linear Regression via Public Second-Moment",
        subjects="listed",
        method="dp_pmtolse",
        calibration="zcdp",
        mapping="maximum",
        public=True,
    ),
}
PRESETS: Mapping[str, ReleasePreset | RegressionPreset] = {**RELEASES, **REGRESSIONS}


def release_preset(name: str) -> ReleasePreset:
    """A preset for releases. Raises SpecError for one of a regression by one party."""
    if name not in RELEASES:
        raise SpecError(
            f"{REGRESSIONS[name].paper} is a regression by one member and no release",
            remedy=f"Ask that member's agent: commingle party regress --preset {name}",
        )
    return RELEASES[name]


def regression_preset(name: str) -> RegressionPreset:
    """A preset for regressions. Raises SpecError for one of a release."""
    if name not in REGRESSIONS:
        raise SpecError(
            f"{RELEASES[name].paper} is a release by several members and no regression",
            remedy=f"Try it: commingle simulate --preset {name}; or plan it: commingle plan --preset {name}",
        )
    return REGRESSIONS[name]
