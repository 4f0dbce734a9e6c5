"""Writes the demonstration's files: a made-up table and schema for every clinic, and the studies to propose.

Usage: tables.py DIRECTORY STUDIES. Nothing here comes from a person; see services/simulation/dataset.py.
"""

import json
import sys
from pathlib import Path

import numpy as np

from commingle.services.simulation.consortium import write_party_table
from commingle.services.simulation.dataset import cohort
from commingle.shared.documents.spec import MechanismName
from commingle.shared.documents.study import Study, StudyParty

_DATASET = "stays"


_EPSILON: dict[MechanismName, float] = {"rmgm": 3.0, "moments": 1.0}


def write(directory: Path, studies: Path) -> None:
    """One folder per clinic with `table.csv` and `schema.json`, and a study file for each mechanism."""
    made_up = cohort(seed=0)
    for number, share in enumerate(made_up.parties):
        folder = directory / share.name
        folder.mkdir(parents=True, exist_ok=True)
        names = [attribute.name for attribute in share.attributes]
        write_party_table(folder / "table.csv", made_up.table.only(names), draw=np.random.default_rng(number))
        schema = [attribute.model_dump(mode="json") for attribute in share.attributes]
        (folder / "schema.json").write_text(json.dumps(schema, indent=2))
    parties = tuple(StudyParty(name=p.name, dataset=_DATASET, attributes=p.attributes) for p in made_up.parties)
    for mechanism, epsilon in _EPSILON.items():
        title = f"Length of stay, three clinics ({mechanism})"
        study = Study(study=title, mechanism=mechanism, epsilon=epsilon, delta=1e-5, n=made_up.table.n, parties=parties)
        (studies / f"{mechanism}.json").write_text(study.model_dump_json(indent=2))
    print(f"wrote the tables of {len(made_up.parties)} clinics, data set name {_DATASET}")  # noqa: T201


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
