"""The releases that a simulation asks for, checked by the code of coordinator and agents."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from typing import Any

from pydantic import ValidationError

from commingle.services.simulation.dataset import StudyTable, training_size
from commingle.services.testing.nodes import DATASET
from commingle.shared.documents.dsse import Fingerprint
from commingle.shared.documents.model import explain
from commingle.shared.documents.presets import ReleasePreset
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.study import Study, StudyParty, Subjects
from commingle.shared.documents.terms import AUTO, AskedShare, MechanismName, Projection
from commingle.shared.dp.accounting import NOTHING, delta_left
from commingle.shared.dp.calibration import check_delta, check_epsilon, gaussian_epsilon
from commingle.shared.errors import SpecError
from commingle.shared.forecast.forecast import with_sketch
from commingle.shared.mechanisms import keyed_by_default, mechanism_named, mechanism_of
from commingle.shared.release.checks import tried
from commingle.shared.release.plan import plan_blocks

_LIFETIME_HOURS = 24.0
_ROOM = 1.01
_NOBODY = Fingerprint("0" * 64)
_SOME_TIME = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Releases:
    """The terms of releases, from options of the command line.

    Attributes:
        subjects: as in a study; None lets the study decide.
        overlap: for keyed data sets, the share of its people that each party gets.
        preset: a paper's terms, which replace these.
    """

    mechanisms: tuple[MechanismName, ...]
    epsilons: tuple[float, ...]
    delta: float
    k: int | None
    row_norm: float | None
    subjects: Subjects | None = None
    first_stage_share: AskedShare = AUTO
    projection: Projection | None = None
    overlap: float = 1.0
    preset: ReleasePreset | None = None

    @property
    def listed(self) -> tuple[MechanismName, ...]:
        """Mechanisms with listed subjects, for which all parties must hold the same ones."""
        if self.subjects is not None:
            return self.mechanisms if self.subjects == "listed" else ()
        return tuple(name for name in self.mechanisms if not keyed_by_default(name, self.projection))


@dataclass(frozen=True, slots=True)
class Planned:
    """A release that will be proposed.

    Attributes:
        folder: where its files go.
        spec: the spec that the coordinator will make of the study, but for keys, seed and time.
    """

    folder: str
    study: Study
    spec: ReleaseSpec


def plan_releases(dataset: StudyTable, terms: Releases) -> tuple[Planned, ...]:
    """One release of the training rows per mechanism and epsilon.

    Raises SpecError, ParameterError: a parameter that no release can have.
    """
    more = [dataset.others[party].n if party in dataset.others else 0 for party in dataset.parties]
    n = round((training_size(dataset.table.n) + sum(more) / len(more)) * terms.overlap)
    planned = []
    for mechanism, epsilon in product(dict.fromkeys(terms.mechanisms), dict.fromkeys(terms.epsilons)):
        study = with_sketch(_study(dataset, terms, mechanism=mechanism, epsilon=epsilon, n=n))
        spec = tried(study, now=_SOME_TIME)
        plan_blocks(spec)
        planned.append(Planned(f"{mechanism}-epsilon-{epsilon:g}", study, spec))
    return tuple(planned)


def allowance(planned: Iterable[Planned]) -> dict[str, Any]:
    """What a `Consortium` is given to allow all these releases, of one kind of subjects, with little to spare."""
    releases = tuple(planned)
    plans = [plan for release in releases for plan in plan_blocks(release.spec)]
    parties = {plan.party for plan in plans}
    costs = (sum((p.cost.loss for p in plans if p.party == party), start=NOTHING) for party in parties)
    cost = max(costs, key=lambda loss: loss.rho)
    total, delta = float(cost.rho), releases[0].spec.delta
    mechanisms = tuple(dict.fromkeys(release.spec.mechanism for release in releases))
    policy = {
        "mechanisms": mechanisms,
        "max_epsilon": max(_ROOM * max(p.cost.loss.epsilon(delta) for p in plans), *(r.spec.epsilon for r in releases)),
        "max_delta": delta,
        "max_cells": max(mechanism_of(r.spec).cells(r.spec.terms, party) for r in releases for party in r.spec.parties),
        "max_lifetime_hours": _LIFETIME_HOURS,
        "auto_approve": [{"proposer": "*", "mechanisms": mechanisms, "max_rho": _ROOM * total}],
    }
    cap = _ROOM * gaussian_epsilon(_ROOM * total, delta_left(delta, cost.delta))
    return {"epsilon_cap": cap, "delta_cap": delta, "keyed": releases[0].spec.keyed, "policy": policy}


def _study(dataset: StudyTable, terms: Releases, *, mechanism: MechanismName, epsilon: float, n: int) -> Study:
    shares = [
        {
            "name": name,
            "dataset": DATASET,
            "attributes": attributes,
            "row_norm": terms.row_norm,
            "first_stage_share": terms.first_stage_share,
        }
        for name, attributes in dataset.parties.items()
    ]
    sketched = mechanism_named(mechanism).sketched
    try:
        study = Study(
            target=dataset.target,
            study=f"Simulation: {dataset.target} by {mechanism} at epsilon {epsilon:g}",
            mechanism=mechanism,
            k=terms.k if sketched else None,
            projection=terms.projection if sketched else None,
            epsilon=check_epsilon(epsilon),
            delta=check_delta(terms.delta),
            id_rules=dataset.id_rules,
            n=n,
            subjects=terms.subjects,
            lifetime_hours=_LIFETIME_HOURS,
            parties=tuple(map(StudyParty.model_validate, shares)),
        )
    except ValidationError as error:
        raise SpecError(f"such a release is not possible: {explain(error)}", remedy="Correct the options.") from None
    return study if terms.preset is None else terms.preset.study(study, mechanism)
