from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from commingle.shared.release.rounds import (
    Abort,
    Alignment,
    Approve,
    Event,
    LoseBlocks,
    Publish,
    Refused,
    Reject,
    Round,
    State,
    StoreBlock,
    Tick,
    advance,
    complete,
)

NOW = datetime(2025, 1, 1, tzinfo=UTC)
EXPIRES = NOW + timedelta(hours=1)
PARTIES = ("clinic", "lab")
SAME = Alignment(subjects=100, digest="aa" * 32)


def begin() -> Round:
    return Round(parties=frozenset(PARTIES), expires=EXPIRES)


def play(*events: Event) -> Round:
    current = begin()
    for event in events:
        after = advance(current, event, now=NOW)
        assert isinstance(after, Round), after
        current = after
    return current


APPROVED = (Approve("clinic", SAME), Approve("lab", SAME))
STORED = (*APPROVED, StoreBlock("clinic"), StoreBlock("lab"))
REACHED: dict[State, tuple[Event, ...]] = {
    State.PROPOSED: (),
    State.APPROVED: APPROVED,
    State.COLLECTING: (*APPROVED, StoreBlock("clinic")),
    State.PUBLISHED: (*STORED, Publish()),
    State.REJECTED: (Reject("lab", "policy"),),
    State.ABORTED: (*APPROVED, Reject("lab", "operator")),
}
FITS: dict[State, dict[type[Event], State]] = {
    State.PROPOSED: {Approve: State.PROPOSED, Reject: State.REJECTED, Abort: State.ABORTED, Tick: State.PROPOSED},
    State.APPROVED: {StoreBlock: State.COLLECTING, Reject: State.ABORTED, Abort: State.ABORTED, Tick: State.APPROVED},
    State.COLLECTING: {
        StoreBlock: State.COLLECTING,
        Reject: State.ABORTED,
        Abort: State.ABORTED,
        Tick: State.COLLECTING,
    },
    State.PUBLISHED: {Tick: State.PUBLISHED},
    State.REJECTED: {Tick: State.REJECTED},
    State.ABORTED: {Tick: State.ABORTED},
}
EVENTS: list[Event] = [Approve("lab", SAME), Reject("lab", "policy"), StoreBlock("lab"), Publish(), Abort("no"), Tick()]


@pytest.mark.parametrize("state", REACHED)
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_event_in_every_state_moves_as_drawn_or_is_refused(state: State, event: Event) -> None:
    current = play(*REACHED[state])
    assert current.state is state
    after = advance(current, event, now=NOW)
    wanted = FITS[state].get(type(event))
    if wanted is None:
        assert isinstance(after, Refused)
    else:
        assert isinstance(after, Round)
        assert after.state is wanted


@pytest.mark.parametrize("state", REACHED)
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("late", [EXPIRES, EXPIRES + timedelta(days=1)])
def test_from_the_expiry_on_only_time_moves_a_round(state: State, event: Event, late: datetime) -> None:
    current = play(*REACHED[state])
    after = advance(current, event, now=late)
    if not isinstance(event, Tick):
        assert isinstance(after, Refused)
    else:
        assert isinstance(after, Round)
        assert after.state is (state if state.final else State.EXPIRED)


def test_event_one_tick_before_the_expiry_still_counts() -> None:
    after = advance(begin(), Approve("lab", SAME), now=EXPIRES - timedelta(microseconds=1))
    assert isinstance(after, Round)


STRANGERS: tuple[Event, ...] = (Approve("stranger", SAME), Reject("stranger", "policy"), StoreBlock("stranger"))


@pytest.mark.parametrize(
    ("before", "event", "said"),
    [
        *((before, event, "stranger") for before in ((), APPROVED) for event in STRANGERS),
        (APPROVED[:1], APPROVED[0], "clinic"),
        (STORED[:3], STORED[2], "clinic"),
        (STORED[:3], Publish(), "blocks are missing from lab"),
    ],
)
def test_stranger_and_what_comes_twice_or_early_are_refused_by_name(
    before: tuple[Event, ...], event: Event, said: str
) -> None:
    refused = advance(play(*before), event, now=NOW)
    assert isinstance(refused, Refused)
    assert said in refused.reason


def test_round_that_expires_with_every_block_in_does_not_blame_missing_blocks() -> None:
    expired = advance(play(*STORED), Tick(), now=EXPIRES)
    assert isinstance(expired, Round)
    assert "every block was in" not in (expired.reason or "")


@pytest.mark.parametrize("other", [Alignment(99, SAME.digest), Alignment(100, "bb" * 32)])
def test_parties_with_other_subjects_abort_the_round_and_are_told_who_agrees(other: Alignment) -> None:
    current = Round(parties=frozenset("abc"), expires=EXPIRES)
    for party, alignment in (("a", SAME), ("b", other), ("c", SAME)):
        after = advance(current, Approve(party, alignment), now=NOW)
        assert isinstance(after, Round)
        current = after
    assert current.state is State.ABORTED
    assert "a and c: 100 people" in (current.reason or "")
    assert f"b: {other.subjects} people" in (current.reason or "")
    assert SAME.digest not in (current.reason or "")


@pytest.mark.parametrize("lost", [{"clinic"}, {"clinic", "lab"}])
def test_blocks_that_are_lost_are_asked_for_again_were_they_all(lost: set[str]) -> None:
    after = advance(play(*STORED), LoseBlocks(frozenset(lost)), now=NOW)
    assert isinstance(after, Round)
    assert (after.state, after.stored) == (State.COLLECTING, frozenset(PARTIES) - lost)
    assert isinstance(advance(after, LoseBlocks(frozenset(lost)), now=NOW), Refused)


def test_advancing_leaves_the_round_before_untouched() -> None:
    before = begin()
    advance(before, Approve("lab", SAME), now=NOW)
    assert before == begin()


class Rounds(RuleBasedStateMachine):
    """Any order of events: what ends stays ended, nothing is published with a block missing, time wins."""

    def __init__(self) -> None:
        super().__init__()
        self.current = begin()
        self.now = NOW

    def _apply(self, event: Event) -> None:
        before = self.current
        after = advance(before, event, now=self.now)
        if isinstance(after, Refused):
            assert after.reason
            return
        if before.state.final:
            assert after == before
        assert after.stored >= before.stored
        assert after.alignments.items() >= before.alignments.items()
        if self.now >= before.expires:
            assert after.state is State.EXPIRED or before.state.final or complete(before)
        self.current = after

    @rule(party=st.sampled_from(PARTIES), subjects=st.sampled_from([100, 100, 100, 99]))
    def approve(self, party: str, subjects: int) -> None:
        self._apply(Approve(party, Alignment(subjects, SAME.digest)))

    @rule(party=st.sampled_from(PARTIES), really=st.integers(0, 9))
    def reject(self, party: str, really: int) -> None:
        if really == 0:  # rarely, so that longer histories are seen
            self._apply(Reject(party, "policy"))

    @rule(really=st.integers(0, 19))
    def abort(self, really: int) -> None:
        if really == 0:
            self._apply(Abort("the coordinator cannot go on"))

    @rule(party=st.sampled_from(PARTIES))
    def store(self, party: str) -> None:
        self._apply(StoreBlock(party))

    @rule()
    def publish(self) -> None:
        self._apply(Publish())

    @rule(minutes=st.integers(0, 8))
    def wait(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)
        self._apply(Tick())

    @invariant()
    def publishes_only_what_is_complete(self) -> None:
        state, stored = self.current.state, self.current.stored
        if state is State.PUBLISHED:
            assert stored == frozenset(PARTIES)
        if stored:
            assert set(self.current.alignments.values()) == {self.current.alignments["lab"]}
            assert set(self.current.alignments) == set(PARTIES)
        assert complete(self.current) == (state is State.COLLECTING and stored == frozenset(PARTIES))

    @invariant()
    def says_why_it_ended_badly(self) -> None:
        badly = self.current.state in (State.REJECTED, State.ABORTED, State.EXPIRED)
        assert badly == (self.current.reason is not None)


TestRounds = Rounds.TestCase
