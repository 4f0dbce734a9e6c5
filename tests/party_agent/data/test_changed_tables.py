"""Tables that change after they were registered: releases are made of what was read, and of nothing else."""

from contextlib import suppress

import numpy as np
import pytest
from numpy.typing import NDArray

from commingle.party_agent.errors import DataError, LostError
from commingle.shared.documents.schema import NumericAttribute
from tests.party_agent.releasing import approved_by_all, change_table, reason_of, spent, state_of
from tests.world.consortium import SCHEMAS, Consortium, CrashError, Noise, rows_of, strictly, write_csv

CHANGES = ["value", "text", "order", "fewer", "subject"]


def without_noise(_: int, count: int) -> NDArray[np.int64]:
    return np.zeros(count, np.int64)


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("again", [False, True], ids=["changed", "registered again"])
@pytest.mark.parametrize("crash", [False, True], ids=["approved", "debited"])
def test_release_is_made_of_the_rows_that_were_approved(
    pair: Consortium, what: str, *, again: bool, crash: bool
) -> None:
    releases = [approved_by_all(pair, mechanism="dgm", title="before")]
    pair.step("clinic", draw=without_noise)
    releases.append(approved_by_all(pair, mechanism="dgm", title="after"))
    if crash:
        with pytest.raises(CrashError):
            pair.step("clinic", draw=Noise(crash=True))
    change_table(pair, what)
    with pair.agent("clinic", draw=without_noise) as agent:
        if again:
            with suppress(DataError):  # of text in a number, which its owner is told
                pair.register(agent, replace=True)
        agent.step(strictly)
    before, after = (pair.coordinator.found(release).body("clinic") for release in releases)
    assert before == after


def test_snapshot_is_kept_while_an_approved_release_needs_it_and_no_longer(pair: Consortium) -> None:
    release = approved_by_all(pair)
    change_table(pair, "value")
    with pair.agent("clinic") as agent:
        pair.register(agent, replace=True)
        assert len(list(agent.datasets.folder.iterdir())) == 2
        agent.step(strictly)
        charge = agent.ledger.charge(release)
        assert charge is not None
        assert charge.state == "acked"
        agent.datasets.sweep()
        assert [path.name for path in agent.datasets.folder.iterdir()] == [agent.datasets.get("main").snapshot]


@pytest.mark.parametrize("damage", ["gone", "altered", "cut"])
def test_snapshot_that_is_lost_after_the_approval_gives_the_release_up_without_noise(
    pair: Consortium, damage: str
) -> None:
    release = approved_by_all(pair)
    [path] = pair.homes["clinic"].snapshots.iterdir()
    if damage == "gone":
        path.unlink()
    else:
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] if damage == "cut" else whole[:-1] + bytes([whole[-1] ^ 1]))
    noise, before = Noise(), spent(pair)
    with pytest.raises(LostError):
        pair.step("clinic", draw=noise)
    assert (reason_of(pair, release), noise.calls, spent(pair) >= before) == ("block_lost", [], True)


def test_data_set_registered_again_with_more_attributes_goes_on(pair: Consortium) -> None:
    release = approved_by_all(pair)
    with pair.agent("clinic") as agent:
        more = (*SCHEMAS["clinic"], NumericAttribute(name="bmi2", lower=0, upper=1))
        rows = [{**row, "bmi2": "0.5"} for row in rows_of("clinic")]
        write_csv(pair.table("clinic"), rows)
        pair.register(agent, replace=True, attributes=more)
        agent.step(strictly)
    assert state_of(pair, release) == "acked"


def test_unreadable_file_and_a_changed_list_neither_end_nor_change_what_a_token_reads_again(pair: Consortium) -> None:
    with pair.agent("clinic") as agent:
        first = agent.datasets.get("main")
        pair.table("clinic").unlink()
        agent.datasets.try_again("main")
        assert agent.datasets.get("main") == first
        change_table(pair, "fewer")
        agent.datasets.try_again("main")
        second = agent.datasets.get("main")
        ids = [[one for piece in agent.datasets.snapshot(second.snapshot).ids() for one in piece.to_pylist()]]
    assert (second.n, len(ids[0])) == (first.n, first.n)  # who is gone has a row of missing cells
