"""A release of sparsely mixed rows over the real coordinator: approved, published, verified, fitted."""

from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from commingle.party_agent.cli.decide import show_proposal
from commingle.party_agent.edge.views import proposal_view
from commingle.party_agent.rounds.counts import Viewer
from commingle.party_agent.rounds.forecasts import Forecasts
from commingle.shared.mechanisms.rows.sparse import SparseEntries
from tests.party_agent.rounds.test_exchange import rows_by_subject
from tests.party_agent.rounds.test_two_stage_rounds import PAIR, published
from tests.world.consortium import consortium_of
from tests.world.noise import exact


def test_sparse_release_without_noise_holds_signed_sums_of_rows(tmp_path: Path) -> None:
    consortium = consortium_of(tmp_path, *PAIR)
    release = consortium.propose(mechanism="rmgm", projection="sparse", first_stage_share=None)
    consortium.step("clinic", draw=exact)
    with consortium.agent("clinic") as agent:
        view = proposal_view(agent, agent.proposals.get(release), Forecasts(agent.store), Viewer.TOKEN)
    shown = StringIO()
    show_proposal(Console(file=shown, width=200), view)
    assert view.projection == "sparse"
    assert "rmgm, sparse mixing, k = 16" in shown.getvalue()
    for _ in range(3):
        for name in PAIR:
            consortium.step(name, draw=exact)
    found = published(consortium, release)
    assert found.spec.projection == "sparse"
    rows = np.hstack([rows_by_subject(consortium.table(name)) for name in PAIR])
    assert found.prepared.n == len(rows)
    places, signs = SparseEntries(bytes.fromhex(found.spec.seed), 16).of(np.arange(len(rows)))
    mixed = np.zeros((16, 1 + rows.shape[1]))
    np.add.at(mixed, places, signs[:, None] * np.column_stack([np.ones(len(rows)), rows]))
    assert found.prepared.gram == pytest.approx(mixed.T @ mixed, abs=2**-13 * len(rows))  # values were rounded to 2^-16
