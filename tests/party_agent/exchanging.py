"""A moments release of a clinic and an insurer at each of its stages, and power cuts of the clinic."""

from dataclasses import dataclass, field

import pytest

from commingle.shared.runtime import faults
from commingle.shared.runtime.errors import UnreachableError
from tests.party_agent.releasing import approved_by_all, dying_at
from tests.world.consortium import Consortium, CrashError
from tests.world.transport import no_fault, unreachable


def dealt(pair: Consortium) -> str:
    """A release that both have approved and the coordinator has dealt for."""
    return approved_by_all(pair, mechanism="moments")


def signed(pair: Consortium) -> str:
    """The same, with the clinic's mask signed and on its disk, and not sent."""
    release = dealt(pair)
    pair.coordinator.before = unreachable("PUT", "/masks/")
    with pytest.raises(UnreachableError):
        pair.step("clinic")
    pair.coordinator.before = no_fault
    return release


def masked(pair: Consortium) -> str:
    """A release that was dealt for, with both masks sent."""
    release = dealt(pair)
    for name in pair.homes:
        pair.step(name)
    assert set(pair.coordinator.found(release).masks) == set(pair.homes)
    return release


def countersigned(pair: Consortium) -> str:
    """The same, with both countersignatures sent."""
    release = masked(pair)
    for name in pair.homes:
        pair.step(name)
    assert set(pair.coordinator.found(release).countersignatures) == set(pair.homes)
    return release


def finish(consortium: Consortium, release: str) -> None:
    for _ in range(6):
        for name in consortium.homes:
            consortium.step(name)
    assert consortium.state(release) == "published"


@dataclass
class Cut:
    """Power is cut when a point is reached by its name, or any for the n-th time."""

    point: str | int
    reached: list[str] = field(default_factory=list)

    def __call__(self, name: str) -> None:
        self.reached.append(name)
        if self.point in {name, len(self.reached)}:
            raise CrashError


def cut_at(point: str | int) -> Cut:
    cut = Cut(point)
    faults.arm(cut)
    return cut


def in_earnest(_: str) -> None:
    """Nothing is cut."""


def crash_at(pair: Consortium, point: str) -> None:
    """The clinic looks, and its power is cut at that point."""
    with dying_at(point):
        pair.step("clinic")
