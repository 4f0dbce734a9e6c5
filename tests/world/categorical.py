"""People with levels and numbers at two or three parties, and a release of moments of them as a learner takes it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import release_law
from commingle.shared.documents.model import decode
from commingle.shared.documents.schema import Attribute, Weighted
from commingle.shared.documents.study import StudyParty
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
    weighted: Weighted | None = None,
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
        weighted: an attribute that has a weight.
    """
    return release_law.release_of(
        attributes,
        sizes,
        cells,
        epsilon=epsilon,
        overlap=overlap,
        draw=np.random.default_rng(pseudonyms),
        seed=bytes(32),
        noise=no_noise if seed is None else seeded_noise(seed),
        weighted=weighted,
    )


def asked_attribute(said: Mapping[str, Any]) -> Attribute:
    share = {"name": "clinic", "dataset": "visits", "attributes": [said]}
    (attribute,) = decode(StudyParty, json.dumps(share).encode()).attributes
    return attribute
