"""People with levels and numbers at two or three parties, and a release of moments of them as a learner takes it."""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.keyed import Party, released
from benchmarks.release_law import of_parties, proposed, study_of
from commingle.shared.documents.model import decode
from commingle.shared.documents.schema import Attribute, Weighted
from commingle.shared.documents.study import StudyParty
from commingle.shared.encoding import cells_for, encode_attribute
from commingle.shared.estimation.prepared import PreparedMoments
from tests.world.noise import no_noise, seeded_noise


def release_of(
    attributes: Sequence[Attribute],
    sizes: Sequence[int],
    cells: Mapping[str, Sequence[Any]],
    *,
    epsilon: float = 1.0,
    overlap: float | None = None,
    seed: int | None = None,
    pseudonyms: int = 0,
    weighted: tuple[int, Weighted] | None = None,
) -> PreparedMoments:
    """Moments of these cells: of listed subjects, or of keyed ones whom each party holds with the chance `overlap`.

    Args:
        attributes: of all parties, in order.
        sizes: attributes of each party.
        cells: a column for each attribute, or part of one, None where there is nothing.
        epsilon: of each party.
        overlap: None for listed subjects.
        seed: of the noise; None for none.
        pseudonyms: a seed of who is whom, and at which party.
        weighted: the place of a party, and its attribute that has a weight.
    """
    columns = {name: pa.array(list(values)) for name, values in cells.items()}
    n = len(next(iter(columns.values())))
    asked = study_of(
        attributes, sizes, n, epsilon, mechanism="moments", subjects="listed" if overlap is None else "keyed"
    )
    asked = of_parties(asked, first_stage_share=None)
    if weighted is not None:
        at, heavy = weighted
        shares = (p.model_copy(update={"weighted": heavy if i == at else None}) for i, p in enumerate(asked.parties))
        asked = asked.model_copy(update={"parties": tuple(shares)})
    ends = np.cumsum([0, *sizes])
    draw, parties = np.random.default_rng(pseudonyms), []
    names = np.frombuffer(draw.bytes(32 * n), np.uint8).reshape(-1, 32)
    for first, last in pairwise(ends):
        rows = np.hstack([encode_attribute(a, *cells_for(a, columns)).exact for a in attributes[first:last]])
        held = np.arange(n) if overlap is None else np.flatnonzero(draw.random(n) < overlap)
        parties.append(Party(held if overlap is None else names[held], rows[held]))
    noise = no_noise if seed is None else seeded_noise(seed)
    return released(proposed(asked), parties, noise)


def asked_attribute(said: Mapping[str, Any]) -> Attribute:
    share = {"name": "clinic", "dataset": "visits", "attributes": [said]}
    (attribute,) = decode(StudyParty, json.dumps(share).encode()).attributes
    return attribute
