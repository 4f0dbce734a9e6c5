"""Releases over different, overlapping subjects: what is published, and what nobody is told of who they are."""

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from commingle.party_agent.edge.views import export_audit, ledger_view, proposal_view
from commingle.party_agent.home.policy import Policy
from commingle.party_agent.operate.doctor import examine_home
from commingle.party_agent.rounds.forecasts import Forecasts
from commingle.party_agent.rounds.party import Jobs
from commingle.party_agent.wire.owner_words import Viewer
from commingle.shared.documents.dsse import seal
from commingle.shared.documents.linkage import pseudonyms
from commingle.shared.documents.model import encode
from commingle.shared.documents.schema import CategoricalAttribute, Intervals, Missing
from commingle.shared.documents.statements import AlignmentStatement, ApprovalRequest
from commingle.shared.documents.subsets import Subset
from commingle.shared.documents.terms import MechanismName
from commingle.shared.dp.fixed_point import presence
from commingle.shared.dp.noise import Sampler
from commingle.shared.errors import NoOverlapError
from commingle.shared.mechanisms.moments.block import Buckets
from commingle.shared.mechanisms.rows.sketch import SignStream
from commingle.shared.release.audit import verify_party_audit
from tests.party_agent.home.test_readings import register
from tests.party_agent.releasing import look, published, spent
from tests.party_agent.rounds.test_exchange import matrix_of, rows_by_subject
from tests.world.consortium import (
    BY_A_PERSON,
    LINKAGE,
    SCHEMAS,
    Consortium,
    consortium_of,
    rows_of,
    strictly,
    write_csv,
)
from tests.world.local_api import alone
from tests.world.noise import no_noise

PAIR = ("clinic", "insurer")
HELD = {"clinic": slice(0, 30), "insurer": slice(10, 40)}


def overlapping(pair: Consortium, held: dict[str, slice] = HELD) -> None:
    """Every party holds some of the people, registered so."""
    for name, which in held.items():
        rows = sorted(rows_of(name), key=lambda row: row["subject"])[which]
        write_csv(pair.table(name), rows)
        with pair.agent(name) as agent:
            pair.register(agent, replace=True, subjects="keyed")


def rounds(pair: Consortium, draw: Sampler | None = None) -> None:
    look(pair, *5 * PAIR, draw=draw)


def named_rows(pair: Consortium, name: str, release: str, bits: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pseudonyms and integer rows, presence first, of a party's table as it is."""
    x = np.trunc(rows_by_subject(pair.table(name)) * 2**15)
    x = np.sign(x) * (np.abs(x).astype(np.int64) >> (15 - bits))
    with pair.table(name).open(newline="") as file:
        ids = sorted(row["subject"].encode() for row in csv.DictReader(file))
    return pseudonyms(LINKAGE, ids, spec_digest=release), np.column_stack([np.full(len(x), presence(bits)), x]).astype(
        int
    )


def test_rmgm_without_noise_is_each_partys_own_rows_mixed_by_pseudonyms(pair: Consortium) -> None:
    overlapping(pair)
    release = pair.propose(keyed=True)
    rounds(pair, draw=no_noise)
    found, blocks = published(pair, release), []
    for name in PAIR:
        names, rows = named_rows(pair, name, release, 15)
        bits = np.unpackbits(SignStream(bytes.fromhex(found.spec.seed)).packed(names, 16), axis=1)
        blocks.append((1 - 2 * bits[:, :16].astype(int)).T @ rows)
    assert np.array_equal(matrix_of(pair, release), np.hstack(blocks))
    assert found.columns == ("present[clinic]", "age", "bmi", "present[insurer]", "charges")
    assert found.privacy.adjacency == "add_remove"
    assert "Who is in a member's table is protected" in found.privacy.protects


def middle_aged(missing: Missing = "error") -> Subset:
    ages = Intervals(lower=20, upper=80, unit="years", cuts=(40, 60))
    whole = CategoricalAttribute(name="age", levels=ages.levels, intervals=ages, missing=missing)
    return Subset(attribute=whole, levels=(ages.levels[1],))


@pytest.mark.slow
@pytest.mark.parametrize("first_stage_share", [None, 0.2])
@pytest.mark.parametrize("mechanism", ["rmgm", "moments"])
def test_release_of_a_subset_is_that_of_tables_which_hold_nobody_else(
    tmp_path: Path, mechanism: MechanismName, first_stage_share: float | None
) -> None:
    found = []
    for name in ("everybody", "the subset"):
        pair = consortium_of(tmp_path / name, *PAIR)
        if name == "everybody":
            overlapping(pair)
        else:
            only_middle_aged(pair)
        release = pair.propose(
            keyed=True,
            mechanism=mechanism,
            bounds="trusted" if mechanism == "moments" else None,
            buckets=80 if mechanism == "moments" else None,
            first_stage_share=first_stage_share,
            where={"clinic": (middle_aged(),)},
        )
        approve_by_hand(pair, release)
        rounds(pair, draw=no_noise)
        found.append(published(pair, release))
    whole, part = found
    assert whole.id == part.id, "people have the same pseudonyms in both"
    assert whole.published.moments == part.published.moments
    assert whole.published.manifest.matrix_sha256 == part.published.manifest.matrix_sha256
    whom = "Only those of clinic's people count whose age is [40, 60)."
    assert whom in whole.contents().notes
    if mechanism == "moments":
        assert whom in whole.fit("bmi", features=["age"]).subjects
        assert whom not in whole.fit("charges", estimator="constant").subjects, "the insurer leaves nobody out"


def approve_by_hand(pair: Consortium, release: str) -> None:
    for name in PAIR:
        with pair.agent(name) as agent:
            agent.step(strictly)
            agent.approve(release, BY_A_PERSON)


def only_middle_aged(pair: Consortium) -> None:
    overlapping(pair)
    with pair.table("clinic").open(newline="") as file:
        kept = [row for row in csv.DictReader(file) if 40 <= float(row["age"]) < 60]
    assert 0 < len(kept) < 30
    write_csv(pair.table("clinic"), kept)
    with pair.agent("clinic") as agent:
        pair.register(agent, replace=True, subjects="keyed")


@pytest.mark.parametrize("mechanism", ["rmgm", "moments"])
def test_progress_of_a_subset_counts_everybody_who_is_read(pair: Consortium, mechanism: MechanismName) -> None:
    overlapping(pair)
    bounds = "trusted" if mechanism == "moments" else None
    release = pair.propose(keyed=True, mechanism=mechanism, bounds=bounds, where={"clinic": (middle_aged(),)})
    approve_by_hand(pair, release)
    with pair.agent("clinic") as agent:
        told, advance = list[int](), type(agent.jobs).progress

        def told_of(jobs: Jobs, name: str) -> Callable[[int], None]:
            inner = advance(jobs, name)

            def both(done: int) -> None:
                told.append(done)
                inner(done)

            return both

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Jobs, "progress", told_of)
            agent.step(strictly)
    assert told[-1] == 30, "whom the clinic holds, and not who is middle-aged"


def test_proposal_of_a_subset_says_whom_it_is_about_and_compares_no_n(pair: Consortium) -> None:
    overlapping(pair)
    release = pair.propose(keyed=True, n=400, where={"clinic": (middle_aged(),)})
    pair.step("clinic")
    with pair.agent("clinic") as agent:
        view = proposal_view(agent, agent.proposals.get(release), Forecasts(agent.store), Viewer.OPERATOR)
    assert view.stated_sentences == ("Only those of clinic's people count whose age is [40, 60).",)
    assert (view.held, view.miscounted) == (None, None)
    said = next(one for one in examine_home(pair.homes["clinic"], now=pair.clock_shows) if one.name == "n of proposals")
    assert "the study says" not in said.found


def test_subset_by_an_attribute_that_is_registered_otherwise_is_found_before_approval(pair: Consortium) -> None:
    overlapping(pair)
    release = pair.propose(keyed=True, where={"clinic": (middle_aged("indicator"),)})
    pair.step("clinic")
    with pair.agent("clinic") as agent:
        (said,) = agent.proposals.get(release).findings
    assert "attribute age is asked for with missing indicator where it is error here" in said


def test_doctor_tells_the_owner_alone_that_n_is_far_from_what_is_held(pair: Consortium) -> None:
    overlapping(pair)
    pair.propose(keyed=True, mechanism="moments", bounds="trusted", n=400)
    pair.step("clinic")
    home, now = pair.homes["clinic"], pair.clock_shows
    said = next(one for one in examine_home(home, now=now) if one.name == "n of proposals")
    assert said.ok, "an exit code is seen by more people"
    assert "main holds 30 people, and the study says n = 400" in said.found
    looked = examine_home(home, now=now, viewer=Viewer.PERSON)
    assert "n of proposals" not in [next(looked).name for _ in range(9)]


def test_bounds_much_wider_than_values_are_told_to_the_owner_alone_of_numbers_that_stay_numbers(
    pair: Consortium,
) -> None:
    overlapping(pair)
    asked = [pair.propose(keyed=True, title="as numbers"), pair.propose(keyed=True, where={"clinic": (middle_aged(),)})]
    pair.step("clinic")
    wide = tuple(a.model_copy(update={"upper": 1e5} if a.name == "age" else {}) for a in SCHEMAS["clinic"])
    with pair.agent("clinic") as agent:
        pair.register(agent, replace=True, attributes=wide, subjects="keyed")
        for release in asked:
            found = {
                viewer: proposal_view(agent, agent.proposals.get(release), Forecasts(agent.store), viewer).wide
                for viewer in Viewer
            }
            (said,) = found.pop(Viewer.OPERATOR) or ()
            assert said.startswith("age: nearly all values lie within 1 % of the bounds 20 to 100000. ")
            assert found == {Viewer.TOKEN: None, Viewer.PERSON: None, Viewer.SENDER: (said,)}
        (told,) = (one.view(counts=counts) for one in agent.datasets.all() for counts in (True,))
        assert said in told.cell_words
        (hidden,) = (one.view(counts=False) for one in agent.datasets.all())
        assert (hidden.filled, hidden.cell_words) == (None, [])


def test_moments_without_noise_are_those_of_each_partys_buckets(pair: Consortium) -> None:
    overlapping(pair)
    release = pair.propose(keyed=True, mechanism="moments", bounds="trusted", buckets=80)
    for name in PAIR:
        pair.step(name)
        with pair.agent(name) as agent:
            view = proposal_view(agent, agent.proposals.get(release), Forecasts(agent.store), Viewer.OPERATOR)
            assert (view.buckets, view.kept) == (80, round(40 * (1 - 1 / 80) ** 39))
            assert (view.held, view.miscounted) == (30, None)
            for n in (15, 60):
                told = view.model_copy(update={"n": n}).miscounted
                assert told is not None
                assert told.startswith(f"main holds 30 people, and the study says n = {n}: ")
            other = proposal_view(agent, agent.proposals.get(release), Forecasts(agent.store), Viewer.TOKEN)
            assert (other.held, other.model_copy(update={"n": 60}).miscounted) == (None, None)
            agent.approve(release, BY_A_PERSON)
    rounds(pair, draw=no_noise)
    found, tables = published(pair, release), []
    for name in PAIR:
        names, rows = named_rows(pair, name, release, 14)
        buckets = Buckets(range(80), count=80, d=rows.shape[1])
        buckets.add(names, rows)
        tables.append(buckets.total())
    everything = np.hstack(tables) / 2**14
    assert np.array(found.published.moments.gram) == pytest.approx(everything.T @ everything)


@pytest.mark.slow
def test_small_keyed_release_of_moments_is_proved(pair: Consortium) -> None:
    overlapping(pair)
    release = pair.propose(keyed=True, mechanism="moments")
    rounds(pair)
    assert published(pair, release).spec.bounds == "proved"


@pytest.mark.slow
def test_what_arrives_does_not_depend_on_who_is_held(pair: Consortium) -> None:
    """The same messages of the same sizes, and approvals that say nothing, whatever the lists are."""
    sent: list[list[tuple[str, int]]] = []
    for held in (HELD, {"clinic": slice(0, 1), "insurer": slice(30, 40)}):
        overlapping(pair, held)
        release = pair.propose(keyed=True, title=f"study {len(sent)}")
        rounds(pair)
        shares = pair.coordinator.found(release).row.shares.values()
        assert [share.alignment for share in shares] == [None, None]
        found = pair.coordinator.found(release)
        sent.append([(share.party, len(found.body(share.party))) for share in shares])
    assert sent[0] == sent[1]


@pytest.mark.parametrize("what", ["fewer", "more", "twice", "nobody", "no ids"])
def test_list_that_was_read_again_is_released_as_it_is_and_nothing_is_refused(pair: Consortium, what: str) -> None:
    overlapping(pair)
    rows = sorted(rows_of("clinic"), key=lambda row: row["subject"])
    changed = {
        "fewer": rows[:10],
        "more": rows,
        "twice": [*rows[:30], {**rows[0], "age": "55.5"}],
        "nobody": rows[:0],
        "no ids": [{**row, "subject": ""} for row in rows],
    }[what]
    if changed:
        write_csv(pair.table("clinic"), changed)
    else:
        pair.table("clinic").write_text("subject,age,bmi\n")
    with pair.agent("clinic") as agent:
        agent.datasets.try_again("main")
    release = pair.propose(keyed=True)
    rounds(pair, draw=no_noise)
    [count] = matrix_of(pair, release)[:, :1].T @ matrix_of(pair, release)[:, :1] / (16 * 4**15)
    held = {"fewer": 10, "more": 40, "twice": 30, "nobody": 0, "no ids": 0}[what]
    assert published(pair, release).spec.keyed
    assert count[0] == 0 if held == 0 else count[0] > 0
    if what == "twice":
        names, x = named_rows_of(rows[:30], release)
        bits = np.unpackbits(SignStream(bytes.fromhex(published(pair, release).spec.seed)).packed(names, 16), axis=1)
        assert np.array_equal(matrix_of(pair, release)[:, 0], (1 - 2 * bits[:, :16].astype(int)).T @ x)


def named_rows_of(rows: list[dict[str, str]], release: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pseudonyms and presences."""
    names = pseudonyms(LINKAGE, [row["subject"].encode() for row in rows], spec_digest=release)
    return names, np.full(len(rows), presence(15))


def test_data_set_registered_again_with_other_id_rules_goes_on_as_approved(pair: Consortium) -> None:
    overlapping(pair)
    release = pair.propose(keyed=True)
    look(pair, *PAIR)
    register(pair, "clinic", "subject", ("text/1",), keyed=True)
    rounds(pair)
    assert published(pair, release).spec.keyed


def test_ledger_is_charged_presence_and_keeps_what_other_values_cost(pair: Consortium) -> None:
    overlapping(pair)
    release = pair.propose(keyed=True)
    rounds(pair)
    stated = published(pair, release).privacy
    for party, loss in zip(PAIR, stated.per_party, strict=True):
        assert spent(pair, party) / 2**64 == pytest.approx(loss.loss.own.rho)
        assert loss.loss.own.epsilon <= 1.0
        with pair.agent(party) as agent:
            cost = agent.ledger.charge_of(release).cost
            assert loss.loss.replacement is not None
            assert float(cost.replaced.rho) == pytest.approx(loss.loss.replacement.rho)
            assert verify_party_audit(encode(export_audit(alone(agent)))).told.lost == cost


@pytest.mark.parametrize("mechanism", ["rmgm", "moments"])
def test_study_of_keyed_subjects_at_epsilon_three_passes_the_policy_and_the_cap_that_a_party_starts_with(
    pair: Consortium, mechanism: Literal["rmgm", "moments"]
) -> None:
    """As a study is where nobody chooses: keyed, and its epsilon is what policy, cap and ledger count."""
    overlapping(pair)
    for home in pair.homes.values():
        home.save_policy(Policy())
    buckets = 80 if mechanism == "moments" else None
    release = pair.propose(keyed=True, mechanism=mechanism, epsilon=3.0, buckets=buckets)
    for name in PAIR:
        pair.step(name)
        with pair.agent(name) as agent:
            assert agent.proposals.get(release).findings == ()
            agent.approve(release, BY_A_PERSON)
            cost = agent.ledger.charge_of(release).cost
            assert 2.99 < cost.loss.epsilon(1e-5) <= 3
            assert cost.replaced.rho >= cost.loss.rho
            shown = ledger_view(agent.ledger)
            assert (shown.unit, shown.charges[0].unit) == ("add_remove", "add_remove")
            assert shown.spent.epsilon == pytest.approx(shown.charges[0].epsilon, rel=1e-6)
            other = shown.charges[0].replacement
            assert other is not None
            assert shown.replacement.epsilon == pytest.approx(other.epsilon, rel=1e-6)


def test_policy_that_counts_replacement_refuses_it_and_says_in_which_unit(pair: Consortium) -> None:
    overlapping(pair)
    pair.homes["clinic"].save_policy(Policy(replacement=True))
    release = pair.propose(keyed=True, epsilon=3.0)
    pair.step("clinic")
    with pair.agent("clinic") as agent:
        [finding] = agent.proposals.get(release).findings
        assert re.search(r"it costs epsilon 6\.\d+ \(replace_one\) > 3", finding)
        assert ledger_view(agent.ledger).unit.endswith(", and replace_one")


def test_lists_without_anybody_in_common_are_published_alike_and_a_fit_across_them_is_refused(pair: Consortium) -> None:
    overlapping(pair, {"clinic": slice(0, 20), "insurer": slice(20, 40)})
    release = pair.propose(keyed=True)
    rounds(pair, draw=no_noise)
    found = published(pair, release)
    with pytest.raises(NoOverlapError, match="people clinic and insurer share is too uncertain"):
        found.fit("charges")


@pytest.mark.parametrize("keyed", [True, False])
def test_approval_that_states_a_list_where_it_must_not_or_none_where_it_must_is_refused(
    pair: Consortium, keyed: bool
) -> None:
    if keyed:
        overlapping(pair)
    release = pair.propose(keyed=keyed)
    pair.step("clinic")
    with pair.agent("clinic") as agent:
        assert (agent.ledger.signature(release, "alignment") is None) is keyed
        approval = agent.ledger.signature(release, "approval")
        assert approval is not None
        stated = AlignmentStatement(spec=release, party="clinic", subjects=30, digest="0" * 64)
        alignment = seal(stated, key=agent.identity.signing_key) if keyed else None
        with pytest.raises(Exception, match="states its list of people where they are listed"):
            agent.client.approve(release, "clinic", ApprovalRequest(approval=approval, alignment=alignment))


@pytest.mark.parametrize("mechanism", ["rmgm"])
def test_two_stages_scale_by_sums_with_the_count_among_them(pair: Consortium, mechanism: Literal["rmgm"]) -> None:
    overlapping(pair)
    release = pair.propose(keyed=True, mechanism=mechanism, first_stage_share=0.25)
    rounds(pair, draw=no_noise)
    found = published(pair, release)
    sums = found.published.sums["clinic"]
    assert sums is not None
    assert sums[0] == 30 * 2**15
    assert len(sums) == 1 + 2 + 2


def test_three_parties_hold_different_people(trio: Consortium) -> None:
    overlapping(trio, {"clinic": slice(0, 35), "insurer": slice(5, 40), "lab": slice(0, 40, 2)})
    release = trio.propose(keyed=True)
    look(trio, *3 * ("clinic", "insurer", "lab"))
    assert published(trio, release).prepared.keyed
