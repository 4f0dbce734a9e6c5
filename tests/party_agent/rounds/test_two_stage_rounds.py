"""Releases of two stages, or sparsely mixed: published, verified, undone; a crash leaves one draw of each."""

from io import StringIO
from typing import Literal

import numpy as np
import pytest
from rich.console import Console

from commingle.party_agent.cli.decide import show_proposal
from commingle.party_agent.edge.views import proposal_view
from commingle.party_agent.rounds.forecasts import Forecasts
from commingle.party_agent.wire.owner_words import Viewer
from commingle.services.client.files import ReleaseFiles
from commingle.services.client.release import Release
from commingle.shared.documents.manifest import PrivacyStatement
from commingle.shared.documents.model import decode, encode
from commingle.shared.documents.row_maps import row_map
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.dp.accounting import ZERO
from commingle.shared.dp.calibration import Calibration
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.dp.two_stages import first_stage_loss
from commingle.shared.errors import VerificationError
from commingle.shared.mechanisms.moments.exchange.messages import ColumnsStatement
from commingle.shared.mechanisms.rows.sketch import SparseEntries
from commingle.shared.release.checks import closed
from commingle.shared.release.plan import plan_block
from tests.party_agent.exchanging import approved, crash_at, messages
from tests.party_agent.releasing import look, published, spent
from tests.party_agent.rounds.test_exchange import rows_by_subject
from tests.world.consortium import Consortium, Noise
from tests.world.noise import no_noise

PAIR = ("clinic", "insurer")


@pytest.mark.parametrize("mechanism", ["dgm", "moments"])
def test_release_without_noise_holds_rows_scaled_and_cut_by_its_sums_and_is_undone(
    pair: Consortium, mechanism: Literal["dgm", "moments"]
) -> None:
    release = pair.propose(mechanism=mechanism, first_stage_share=0.25)
    look(pair, *5 * PAIR, draw=no_noise)
    found = published(pair, release)
    assert found.columns == ("(intercept)", "scaled[age]", "scaled[bmi]", "scaled[charges]")
    assert "a key that calls itself clinic signed the sums by which its columns are undone" in found.published.findings
    undone = []
    for name in PAIR:
        x, sums = rows_by_subject(pair.table(name)), pair.coordinator.found(release).statement(name).sums
        assert sums is not None
        exactly = np.concatenate([x.sum(axis=0) * 2**15, (x**2).sum(axis=0) * 2**30])
        assert sums == pytest.approx(exactly, rel=1e-3, abs=2**15)
        applied = row_map(closed(found.spec), found.spec.party(name), sums)
        assert applied is not None
        gain, centre = np.diag(applied.matrix) / 2**20, applied.centre / 2**15
        z = (x - centre) * gain
        z /= np.maximum(1, np.linalg.norm(z, axis=1))[:, None]
        undone.append(centre + z / gain)
    everything = np.hstack([np.ones((len(undone[0]), 1)), *undone])
    assert found.prepared.gram == pytest.approx(everything.T @ everything, abs=2e-3 * len(everything))


@pytest.mark.parametrize("mechanism", ["rmgm", "moments"])
def test_one_charge_is_the_sum_of_both_stages_and_the_manifest_states_both(
    pair: Consortium, mechanism: Literal["rmgm", "moments"]
) -> None:
    release = pair.propose(mechanism=mechanism, first_stage_share=0.25)
    look(pair, *5 * PAIR)
    found = published(pair, release)
    for name, loss in zip(PAIR, found.privacy.per_party, strict=True):
        plan = plan_block(found.spec, found.spec.party(name))
        assert plan.first_stage is not None
        first = first_stage_loss(plan.first_stage, found.spec.terms.adjacency)
        assert ZERO < first < plan.loss
        assert spent(pair, name) == plan.loss.units
        assert loss.first_stage is not None
        assert loss.first_stage.own.rho == first.rounded_up
        assert loss.loss.own.rho == plan.loss.rounded_up
        assert loss.loss.own.epsilon <= found.spec.epsilon
        assert first.units == pytest.approx(0.25 * plan.loss.units, rel=1e-3)


@pytest.mark.parametrize("party", PAIR)
@pytest.mark.parametrize("point", ["party.columns.written", "party.columns.signed"])
def test_sums_of_a_party_that_crashed_are_those_its_columns_were_signed_with(
    pair: Consortium, point: str, party: str
) -> None:
    release = approved(pair, first_stage_share=0.25)
    noise = Noise()
    crash_at(pair, point, party)
    look(pair, *5 * PAIR, draw=noise)
    columns = decode(ColumnsStatement, messages(pair, release, "columns")[party].payload_bytes)
    assert columns.sums is not None
    assert pair.coordinator.found(release).statement(party).sums == columns.sums
    published(pair, release)


@pytest.mark.parametrize("change", [{"sums": None}, {"sums": (1, 2, 3)}])
def test_block_without_the_sums_that_the_spec_calls_for_is_refused(
    pair: Consortium, change: dict[str, tuple[int, ...] | None]
) -> None:
    release = pair.propose(mechanism="rmgm", first_stage_share=0.25)
    look(pair, *PAIR, *PAIR)
    found = pair.coordinator.found(release)
    statement, spec = found.statement("clinic"), found.document
    plan = plan_block(spec, spec.party("clinic"))
    assert plan.describes(statement)
    assert not plan.describes(statement.model_copy(update=change))


def restated(consortium: Consortium, found: Release, privacy: PrivacyStatement) -> bytes:
    """The manifest of a release, signed again by its coordinator with another privacy statement."""
    said = found.published.manifest.model_copy(update={"privacy": privacy})
    return encode(SignedDocument.of(said, consortium.coordinator.key))


def restatement(privacy: PrivacyStatement, *, outsiders: bool) -> PrivacyStatement:
    """The same figures in the same order, each a place further where that makes a loss look smaller."""
    one, other = privacy.per_party
    bare = one.model_copy(update={"first_stage": None})
    if outsiders:
        moved = other.model_copy(update={"loss": one.first_stage, "first_stage": other.loss})
        return privacy.model_copy(update={"per_party": (bare, moved)})
    moved = other.model_copy(update={"loss": one.first_stage})
    losses = {"per_subject": other.loss, "per_subject_outsiders": privacy.per_subject}
    return privacy.model_copy(update={"per_party": (bare, moved), **losses})


@pytest.mark.parametrize("calibration", [Calibration.ANALYTIC, Calibration.ZCDP])
def test_manifest_with_the_loss_of_a_first_stage_in_another_place_is_refused(
    pair: Consortium, calibration: Calibration
) -> None:
    spec = pair.spec(mechanism="rmgm", first_stage_share=0.25)
    clinic, insurer = spec.parties
    parties = (clinic, insurer.model_copy(update={"first_stage_share": None, "row_norm": None}))
    pair.enrol_everybody()
    changed = spec.model_copy(update={"parties": parties, "calibration": calibration})
    release = pair.coordinator.propose(changed)
    look(pair, *5 * PAIR)
    found = published(pair, release)
    privacy = restatement(found.privacy, outsiders=found.privacy.per_subject_outsiders is not None)
    assert privacy.scopes == found.privacy.scopes
    manifest = restated(pair, found, privacy)
    with pytest.raises(VerificationError, match="privacy statement does not follow"):
        Release.of(ReleaseFiles(manifest, found.files.matrix, found.files.moments))


def test_proposal_says_what_the_first_stage_publishes_and_costs(pair: Consortium) -> None:
    release = pair.propose(mechanism="rmgm", first_stage_share=0.25)
    pair.step("clinic")
    with pair.agent("clinic") as agent:
        view = proposal_view(agent, agent.proposals.get(release), Forecasts(agent.store), Viewer.OPERATOR)
    spec = pair.coordinator.found(release).document
    plan = plan_block(spec, spec.party("clinic"))
    assert plan.first_stage is not None
    assert view.first_stage is not None
    assert view.first_stage.sums == 4, "two columns and their squares"
    assert view.first_stage.rho == float(first_stage_loss(plan.first_stage, Adjacency.REPLACE_ONE))
    assert 0 < view.first_stage.epsilon < view.cost.epsilon
    shown = StringIO()
    show_proposal(Console(file=shown, width=200), view)
    assert "first publishes 4 sums of this member's columns with noise" in shown.getvalue()


def test_sparse_release_without_noise_holds_signed_sums_of_rows(pair: Consortium) -> None:
    release = pair.propose(mechanism="rmgm", projection="sparse", first_stage_share=None)
    pair.step("clinic", draw=no_noise)
    with pair.agent("clinic") as agent:
        view = proposal_view(agent, agent.proposals.get(release), Forecasts(agent.store), Viewer.TOKEN)
    shown = StringIO()
    show_proposal(Console(file=shown, width=200), view)
    assert view.projection == "sparse"
    assert "rmgm, sparse mixing, k = 16" in shown.getvalue()
    look(pair, *3 * PAIR, draw=no_noise)
    found = published(pair, release)
    assert found.spec.projection == "sparse"
    rows = np.hstack([rows_by_subject(pair.table(name)) for name in PAIR])
    assert found.prepared.n == len(rows)
    places, signs = SparseEntries(bytes.fromhex(found.spec.seed), 16).of(np.arange(len(rows)))
    mixed = np.zeros((16, 1 + rows.shape[1]))
    np.add.at(mixed, places, signs[:, None] * np.column_stack([np.ones(len(rows)), rows]))
    assert found.prepared.gram == pytest.approx(mixed.T @ mixed, abs=2**-13 * len(rows))  # values were rounded to 2^-16
