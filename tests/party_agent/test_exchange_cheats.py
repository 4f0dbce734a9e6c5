"""A dealer, a fellow party or a network that cheats in the exchange of a moments release (docs/adr/0011)."""

from collections.abc import Callable, Iterator
from time import sleep

import httpx
import numpy as np
import pytest

from commingle.party_agent.loop import Loop
from commingle.shared.documents.dsse import seal
from commingle.shared.documents.errors import ExchangeError
from commingle.shared.documents.model import decode
from commingle.shared.mechanisms.moments.exchange.deal import deal
from commingle.shared.mechanisms.moments.exchange.documents import MaskStatement
from commingle.shared.runtime.errors import NonsenseError
from tests.party_agent.exchanging import countersigned, crash_at, dealt, finish, masked, signed
from tests.party_agent.releasing import state_of
from tests.world.consortium import Consortium
from tests.world.transport import no_fault


@pytest.mark.parametrize("stage", [signed, masked, countersigned])
def test_second_deal_is_never_taken(pair: Consortium, stage: Callable[[Consortium], str]) -> None:
    release = stage(pair)
    sent = {what: list(bodies) for what, bodies in pair.coordinator.received.items()}
    pair.coordinator.deal_again(release)
    with pytest.raises(ExchangeError, match="second, different deal"):
        pair.step("clinic")
    assert pair.coordinator.received == sent
    assert state_of(pair, release) == "debited"


def test_second_deal_is_not_taken_even_before_the_debit(pair: Consortium) -> None:
    release = dealt(pair)
    crash_at(pair, "party.deal.received")
    pair.coordinator.deal_again(release)
    with pytest.raises(ExchangeError, match="second, different deal"):
        pair.step("clinic")
    assert state_of(pair, release) == "reserved"


def test_package_of_another_party_is_refused(pair: Consortium) -> None:
    release = dealt(pair)
    found = pair.coordinator.found(release)
    assert found.deal is not None
    packages = found.packages
    pair.coordinator.replace_deal(release, found.deal, packages | {"clinic": packages["insurer"]})
    with pytest.raises(ExchangeError, match="not the one that was signed"):
        pair.step("clinic")
    assert state_of(pair, release) == "reserved"


def test_mask_altered_on_its_way_is_not_countersigned_and_fetched_again(pair: Consortium) -> None:
    release = masked(pair)
    found = pair.coordinator.found(release)
    mask, body = found.masks["insurer"], found.masked("insurer")
    pair.coordinator.replace_mask(release, "insurer", mask, bytes([body[0] ^ 1]) + body[1:])
    with pytest.raises(ExchangeError, match="altered"):
        pair.step("clinic")
    assert "clinic" not in found.countersignatures
    pair.coordinator.replace_mask(release, "insurer", mask, body)
    finish(pair, release)


def test_mask_that_does_not_end_is_cut_off(pair: Consortium) -> None:
    release = masked(pair)
    found = pair.coordinator.found(release)
    pair.coordinator.replace_mask(release, "insurer", found.masks["insurer"], 2 * found.masked("insurer"))
    with pytest.raises(NonsenseError, match="more than the"):
        pair.step("clinic")
    assert not (pair.homes["clinic"].exchanges / release / "insurer.mask").exists()


class Dripping(httpx.SyncByteStream):
    """A body that comes byte by byte, and does not end."""

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield b"x"
            sleep(0.01)


def test_mask_that_drips_is_cut_off_and_other_releases_go_on(pair: Consortium) -> None:
    slow, other = (pair.propose(mechanism="moments", title=title) for title in ("slow", "other"))
    for name in [*pair.homes] * 2:
        pair.step(name)

    def drip(request: httpx.Request) -> httpx.Response | None:
        return httpx.Response(200, stream=Dripping()) if request.url.path.endswith(f"{slow}/masks/insurer") else None

    pair.coordinator.before = drip
    with pair.agent("clinic") as agent:
        object.__setattr__(agent.client, "patience_seconds", 0.2)
        Loop(agent).turn()
        assert "too slowly" in (agent.jobs.get(slow).error or "")  # type: ignore[union-attr]
    assert not (pair.homes["clinic"].exchanges / slow / "insurer.mask").exists()
    signed = {release: set(pair.coordinator.found(release).countersignatures) for release in (slow, other)}
    assert signed == {slow: set(), other: {"clinic"}}
    pair.coordinator.before = no_fault
    for release in signed:
        finish(pair, release)


def test_mask_under_another_deal_is_refused(pair: Consortium) -> None:
    release = masked(pair)
    found, exchange = pair.coordinator.found(release), pair.coordinator.exchange(release)
    said = decode(MaskStatement, found.masks["insurer"].payload_bytes)
    other = seal(
        deal(exchange, entropy=np.random.default_rng(1).bytes).statement, kind="deal", key=pair.coordinator.key
    )
    moved = said.model_copy(update={"deal": other.digest})
    resigned = seal(moved, kind="mask", key=pair.homes["insurer"].identity().signing_key)
    pair.coordinator.replace_mask(release, "insurer", resigned, found.masked("insurer"))
    with pytest.raises(ExchangeError, match="not those of one deal"):
        pair.step("clinic")
    assert "clinic" not in found.countersignatures
