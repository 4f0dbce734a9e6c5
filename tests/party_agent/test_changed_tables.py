"""Tables that change after the approval: other subjects end the release, other cells are what is released."""

import pytest

from commingle.party_agent.errors import SubjectsChangedError
from commingle.shared.documents.schema import NumericAttribute
from tests.party_agent.releasing import approved_by_all, change_table, reason_of, spent, state_of
from tests.world.consortium import SCHEMAS, Consortium, CrashError, Noise, rows_of, strictly, write_csv


@pytest.mark.parametrize("what", ["order", "fewer", "subject"])
def test_subjects_that_changed_after_the_approval_withdraw_without_noise_and_the_charge_stays(
    pair: Consortium, what: str
) -> None:
    release = approved_by_all(pair)
    before = spent(pair)
    change_table(pair, what)
    noise = Noise()
    with pytest.raises(SubjectsChangedError):
        pair.step("clinic", draw=noise)
    pair.step("clinic", draw=noise)
    assert (state_of(pair, release), spent(pair), noise.calls) == ("withdrawn", before, [])
    assert (reason_of(pair, release), pair.state(release)) == ("subjects", "aborted")


@pytest.mark.parametrize("what", ["value", "text"])
def test_cells_that_changed_after_the_approval_are_what_is_released(pair: Consortium, what: str) -> None:
    release = approved_by_all(pair)
    change_table(pair, what)
    pair.step("clinic")
    assert state_of(pair, release) == "acked"


def test_cells_that_changed_between_two_attempts_are_what_is_released(pair: Consortium) -> None:
    release = approved_by_all(pair)
    with pytest.raises(CrashError):
        pair.step("clinic", draw=Noise(crash=True))
    change_table(pair, "value")
    before = spent(pair)
    pair.step("clinic")
    assert (state_of(pair, release), spent(pair)) == ("acked", before)


def test_subjects_that_changed_between_two_attempts_are_withdrawn_and_the_charge_stays(pair: Consortium) -> None:
    release = approved_by_all(pair)
    with pytest.raises(CrashError):
        pair.step("clinic", draw=Noise(crash=True))
    before = spent(pair)
    change_table(pair, "subject")
    noise = Noise()
    with pytest.raises(SubjectsChangedError):
        pair.step("clinic", draw=noise)
    assert (state_of(pair, release), spent(pair), noise.calls) == ("withdrawn", before, [])


@pytest.mark.parametrize("debited", [False, True])
def test_data_set_registered_again_with_other_subjects_is_withdrawn(pair: Consortium, debited: bool) -> None:
    release = approved_by_all(pair)
    if debited:
        with pytest.raises(CrashError):
            pair.step("clinic", draw=Noise(crash=True))
    before = spent(pair)
    change_table(pair, "subject")
    noise = Noise()
    with pair.agent("clinic", draw=noise) as agent:
        pair.register(agent, replace=True)
        with pytest.raises(SubjectsChangedError, match="registered again"):
            agent.step(strictly)
    assert noise.calls == []
    assert reason_of(pair, release) == "subjects"
    assert state_of(pair, release) == ("withdrawn" if debited else "released")
    assert spent(pair) == (before if debited else 0)


def test_data_set_registered_again_with_the_same_rows_goes_on(pair: Consortium) -> None:
    release = approved_by_all(pair)
    with pair.agent("clinic") as agent:
        more = (*SCHEMAS["clinic"], NumericAttribute(name="bmi2", lower=0, upper=1))
        rows = [{**row, "bmi2": "0.5"} for row in rows_of("clinic")]
        write_csv(pair.table("clinic"), rows)
        pair.register(agent, replace=True, attributes=more)
        agent.step(strictly)
    assert state_of(pair, release) == "acked"
