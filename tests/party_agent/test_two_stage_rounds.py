"""Releases of two stages over the real coordinator: published, verified, undone; a crash leaves one draw of each."""

from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from commingle.services.client.files import ReleaseFiles
from commingle.services.client.release import Release
from commingle.shared.documents.dsse import open_envelope
from commingle.shared.documents.model import decode
from commingle.shared.documents.row_maps import row_map
from commingle.shared.documents.statements import BlockStatement
from commingle.shared.dp.accounting import ZERO
from commingle.shared.dp.first_stage import first_stage_loss
from commingle.shared.mechanisms.moments.exchange.documents import MaskStatement
from commingle.shared.release.plan import plan_block
from tests.party_agent.exchanging import crash_at
from tests.party_agent.releasing import spent
from tests.party_agent.test_exchange import exact, rows_by_subject
from tests.world.consortium import Consortium, Noise, consortium_of

PAIR = ("clinic", "insurer")


def published(consortium: Consortium, release: str) -> Release:
    assert consortium.state(release) == "published"
    with consortium.coordinator.client() as client:
        parts = [client.get(f"/v1/releases/{release}/{name}").content for name in ("manifest", "matrix", "moments")]
    return Release.of(ReleaseFiles(*parts))


def statement_of(consortium: Consortium, release: str, party: str) -> BlockStatement:
    found = consortium.coordinator.found(release)
    keys = [found.document.party(party).verifying_key]
    return open_envelope(found.blocks[party], BlockStatement, kind="block", keys=keys).document


@pytest.mark.parametrize("mechanism", ["dgm", "moments"])
def test_release_without_noise_holds_rows_scaled_and_cut_by_its_sums_and_is_undone(
    tmp_path: Path, mechanism: Literal["dgm", "moments"]
) -> None:
    consortium = consortium_of(tmp_path, *PAIR)
    release = consortium.propose(mechanism=mechanism, first_stage_share=0.25)
    for _ in range(5):
        for name in PAIR:
            consortium.step(name, draw=exact)
    found = published(consortium, release)
    assert found.columns == ("(intercept)", "scaled[age]", "scaled[bmi]", "scaled[charges]")
    assert "clinic scaled its columns as the sums that it signed suggest" in found.published.findings
    undone = []
    for name in PAIR:
        x, sums = rows_by_subject(consortium.table(name)), statement_of(consortium, release, name).sums
        assert sums is not None
        exactly = np.concatenate([x.sum(axis=0) * 2**15, (x**2).sum(axis=0) * 2**30])
        assert sums == pytest.approx(exactly, rel=1e-3, abs=2**15)
        applied = row_map(found.spec, found.spec.party(name), sums)
        assert applied is not None
        gain, centre = np.diag(applied.matrix) / 2**20, applied.centre / 2**15
        z = (x - centre) * gain
        z /= np.maximum(1, np.linalg.norm(z, axis=1))[:, None]
        undone.append(centre + z / gain)
    everything = np.hstack([np.ones((len(undone[0]), 1)), *undone])
    assert found.prepared.gram == pytest.approx(everything.T @ everything, abs=2e-3 * len(everything))


@pytest.mark.parametrize("mechanism", ["rmgm", "moments"])
def test_one_charge_is_the_sum_of_both_stages_and_the_manifest_states_both(
    tmp_path: Path, mechanism: Literal["rmgm", "moments"]
) -> None:
    consortium = consortium_of(tmp_path, *PAIR)
    release = consortium.propose(mechanism=mechanism, first_stage_share=0.25)
    for _ in range(5):
        for name in PAIR:
            consortium.step(name)
    found = published(consortium, release)
    for name, loss in zip(PAIR, found.privacy.per_party, strict=True):
        plan = plan_block(found.spec, found.spec.party(name))
        assert plan.first_stage is not None
        first = first_stage_loss(plan.first_stage, found.spec.adjacency)
        assert ZERO < first < plan.charge
        assert spent(consortium, name) == plan.charge.units
        assert loss.first_stage is not None
        assert loss.first_stage.own.rho == first.rounded_up
        assert loss.loss.own.rho == plan.loss.rounded_up
        assert loss.loss.own.epsilon <= found.spec.epsilon
        assert first.units == pytest.approx(0.25 * plan.loss.units, rel=1e-3)


@pytest.mark.parametrize("point", ["party.mask.written", "party.mask.signed"])
def test_sums_of_a_party_that_crashed_are_those_its_mask_was_signed_with(tmp_path: Path, point: str) -> None:
    consortium = consortium_of(tmp_path, *PAIR)
    release = consortium.propose(mechanism="moments", first_stage_share=0.25)
    for name in PAIR:
        consortium.step(name)
    noise = Noise()
    crash_at(consortium, point)
    for _ in range(5):
        for name in PAIR:
            consortium.step(name, draw=noise)
    mask = decode(MaskStatement, consortium.coordinator.found(release).masks["clinic"].payload_bytes)
    assert mask.sums is not None
    assert statement_of(consortium, release, "clinic").sums == mask.sums
    published(consortium, release)


@pytest.mark.parametrize("change", [{"sums": None}, {"sums": (1, 2, 3)}])
def test_block_without_the_sums_that_the_spec_calls_for_is_refused(
    tmp_path: Path, change: dict[str, tuple[int, ...] | None]
) -> None:
    consortium = consortium_of(tmp_path, *PAIR)
    release = consortium.propose(mechanism="rmgm", first_stage_share=0.25)
    for name in (*PAIR, *PAIR):
        consortium.step(name)
    statement = statement_of(consortium, release, "clinic")
    spec = consortium.coordinator.found(release).document
    plan = plan_block(spec, spec.party("clinic"))
    assert plan.describes(statement)
    assert not plan.describes(statement.model_copy(update=change))
