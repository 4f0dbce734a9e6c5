"""Writes the demonstration's files: a made-up table and schema for every clinic, and the studies to propose.

Usage: tables.py DIRECTORY STUDIES. Nothing here comes from a person; see services/simulation/dataset.py. Clinics hold
different people: of everybody each has a share of its own, drawn by itself.
"""

import json
import sys
from pathlib import Path

import numpy as np

from commingle.services.simulation.dataset import TARGET, cohort
from commingle.services.simulation.run import write_party_table
from commingle.shared.documents.study import Study, StudyParty
from commingle.shared.documents.terms import MechanismName

_DATASET = "stays"
_PEOPLE = 60_000
"""As many as `rmgm` asks for a fit with intervals; fit.py makes up the same."""
_SHARE = 0.8
"""Of everybody, that a clinic holds: two of them share four fifths of their people."""
_EPSILON: dict[MechanismName, float] = {"rmgm": 3.0, "moments": 1.0}


def write(directory: Path, studies: Path) -> None:
    """One folder per clinic with `table.csv` and `schema.json`, and a study file for each mechanism."""
    made_up = cohort(seed=0, subjects=_PEOPLE)
    for number, (clinic, attributes) in enumerate(made_up.parties.items()):
        folder, draw = directory / clinic, np.random.default_rng(1 + number)  # not the seed of their values
        folder.mkdir(parents=True, exist_ok=True)
        known = np.flatnonzero(draw.random(made_up.table.n) < _SHARE)
        own = made_up.table.only([attribute.name for attribute in attributes]).rows(known)
        write_party_table(folder / "table.csv", own, draw=draw)
        schema = [attribute.model_dump(mode="json") for attribute in attributes]
        (folder / "schema.json").write_text(json.dumps(schema, indent=2))
    parties = tuple(StudyParty(name=name, dataset=_DATASET, attributes=own) for name, own in made_up.parties.items())
    for mechanism, epsilon in _EPSILON.items():
        study = Study(
            study=f"Length of stay, three clinics ({mechanism})",
            purpose="A demonstration on made-up people.",
            target=TARGET,
            mechanism=mechanism,
            subjects="keyed",
            epsilon=epsilon,
            delta=1e-5,
            n=round(_SHARE * made_up.table.n),
            parties=parties,
        )
        (studies / f"{mechanism}.json").write_text(study.model_dump_json(indent=2))
    print(f"wrote the tables of {len(made_up.parties)} clinics, data set name {_DATASET}")  # noqa: T201


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
