"""No member fills a coordinator's disk: by one large release, by many small ones, by ended ones, or over replicas."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from fastapi import Request

from commingle.coordinator.blobs import BlobDirectory
from commingle.coordinator.coordinator import STAYS, Quotas
from commingle.coordinator.http.access import Arriving
from commingle.shared.documents.model import encode
from commingle.shared.release.checks import read_spec
from commingle.shared.release.matrix import ReleaseSizes, largest_body, release_sizes
from commingle.shared.runtime.bodies import Body
from commingle.shared.runtime.errors import BusyError, TruncatedError
from commingle.shared.runtime.files import Disks
from tests.world.coordinator import Honest, Hub, Proposed, problem
from tests.world.disks import SmallDisk, mounted
from tests.world.exchange import approved

Opened = Callable[..., Hub]
COUNT = 3


@pytest.fixture
def clinic(hub: Hub) -> Honest:
    return hub.enrolled("clinic")


def alone(hub: Hub, clinic: Honest, study: str = "alone", **changes: Any) -> Proposed:
    """What a member proposes that nobody else has to approve."""
    return hub.by_member([clinic], clinic, study=study, **changes)


def with_block(hub: Hub, clinic: Honest, study: str) -> Proposed:
    """The same, proposed, approved, and with its block."""
    proposed = alone(hub, clinic, study)
    assert hub.propose(proposed).status_code == 201
    assert hub.approve(proposed, "clinic", clinic.approval(proposed)).status_code == 201
    assert hub.upload(proposed, "clinic", hub.block(proposed, clinic)).status_code == 201
    return proposed


def whole(sizes: ReleaseSizes) -> int:
    return sizes.exchanged + sizes.kept


def room_for(hub: Hub, clinic: Honest, count: int) -> Quotas:
    size = whole(release_sizes(alone(hub, clinic).spec))
    return Quotas(member=count * size + size // 2)


def columns(count: int) -> list[dict[str, Any]]:
    return [{"kind": "numeric", "name": f"x{i}", "lower": 0.0, "upper": 1.0} for i in range(count)]


@pytest.mark.parametrize("bounds", ["trusted", "proved"])
def test_sizes_of_a_release_are_those_of_its_messages_and_blocks(hub: Hub, bounds: str) -> None:
    parties = [hub.enrolled(name) for name in ("clinic", "registry", "lab")]
    exchanging = approved(hub, parties, bounds=bounds)
    exchange, spec = exchanging.exchange, exchanging.proposed.spec
    names = [party.name for party in parties]
    messages = [size(name) for name in names for size in (exchange.columns_size, exchange.reply_size)]
    found = release_sizes(spec)
    assert found.exchanged == sum(messages)
    assert found.largest == max(messages)
    blocks = [largest_body(len(spec.matrix_columns), len(party.block_columns)) for party in spec.parties]
    assert sum(blocks) < found.kept < 3 * sum(blocks)


def test_release_of_78_gib_is_refused_when_a_member_proposes_it_and_alone_it_exchanges_nothing(
    hub: Hub, clinic: Honest
) -> None:
    assert release_sizes(alone(hub, clinic, mechanism="moments", bounds="proved").spec).exchanged == 0
    both = hub.by_member([clinic, hub.enrolled("lab")], clinic, study="large", mechanism="moments", bounds="trusted")
    said = json.loads(encode(both.spec))
    said["parties"][0]["attributes"], said["n"] = columns(250), 1 << 24
    proposed = hub.signed(read_spec(json.dumps(said).encode()), key=clinic.key)
    assert release_sizes(proposed.spec).largest > 50 << 30
    answer = hub.propose(proposed)
    assert problem(answer) == (422, "spec")
    assert "largest_message_bytes" in answer.json()["remedy"]


def test_release_is_refused_as_a_whole_where_every_message_of_it_would_be_taken(
    hub: Hub, open_hub: Opened, clinic: Honest
) -> None:
    sizes = release_sizes(alone(hub, clinic).spec)
    limited = open_hub(quotas=Quotas(message=sizes.largest, release=whole(sizes) - 1))
    answer = limited.propose(alone(limited, clinic))
    assert problem(answer) == (422, "spec")
    assert "release_bytes" in answer.json()["remedy"]
    enough = open_hub(quotas=Quotas(message=sizes.largest, release=whole(sizes)))
    assert enough.propose(alone(enough, clinic)).status_code == 201


def test_many_small_releases_take_no_more_than_one_large_one_at_any_replica(
    hub: Hub, open_hub: Opened, clinic: Honest
) -> None:
    quotas = room_for(hub, clinic, COUNT)
    replicas = [open_hub(quotas=quotas) for _ in range(COUNT + 1)]
    answers = [one.propose(alone(one, clinic, f"study {i}")) for i, one in enumerate(replicas)]
    assert [answer.status_code for answer in answers] == [201] * COUNT + [507]
    assert problem(answers[-1]) == (507, "quota")
    assert "member_bytes" in answers[-1].json()["remedy"]
    assert replicas[0].propose(replicas[0].signed(replicas[0].spec([clinic]))).status_code == 201  # the operator's own
    other = hub.enrolled("registry")
    assert replicas[0].propose(alone(replicas[0], other)).status_code == 201  # has a share of its own


def test_release_that_ends_before_a_block_gives_its_share_back_at_once(
    hub: Hub, open_hub: Opened, clinic: Honest
) -> None:
    limited = open_hub(quotas=room_for(hub, clinic, 1))
    for number in range(COUNT):
        proposed = alone(limited, clinic, f"study {number}")
        assert limited.propose(proposed).status_code == 201
        assert limited.reject(proposed, "clinic", clinic.rejection(proposed)).status_code == 201


def test_block_of_what_came_to_nothing_counts_until_it_is_removed(hub: Hub, open_hub: Opened, clinic: Honest) -> None:
    limited = open_hub(quotas=room_for(hub, clinic, 1))
    proposed = with_block(limited, clinic, "withdrawn")
    assert limited.reject(proposed, "clinic", clinic.rejection(proposed)).status_code == 201
    assert problem(limited.propose(alone(limited, clinic, "the next"))) == (507, "quota")
    limited.clock.now += STAYS
    limited.clock.move(seconds=1)
    assert limited.propose(alone(limited, clinic, "the next")).status_code == 201


def test_published_releases_count_for_as_long_as_they_are_kept(hub: Hub, open_hub: Opened, clinic: Honest) -> None:
    limited = open_hub(quotas=room_for(hub, clinic, 1))
    with_block(limited, clinic, "published")
    limited.publisher.run_once()
    limited.clock.now += 2 * STAYS
    assert problem(limited.propose(alone(limited, clinic, "the next"))) == (507, "quota")


def before_columns(hub: Hub, *parties: Honest) -> tuple[int, Callable[[], httpx.Response]]:
    """The size of a party's columns, and how they are sent."""
    exchanging = approved(hub, parties)
    made = exchanging.make("columns", parties[0])
    return exchanging.exchange.columns_size("clinic"), lambda: exchanging.send("clinic", made)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_message_that_would_use_the_reserve_is_refused_and_is_taken_when_there_is_room(
    hub: Hub, open_hub: Opened, clinic: Honest, tmp_path: Path
) -> None:
    disk, other = SmallDisk(free=1 << 40), hub.enrolled("registry")
    size, send = before_columns(open_hub(disks=disk.disks(tmp_path, reserve=1000)), clinic, other)
    disk.free = 2 * size + 999
    answer = send()
    assert problem(answer) == (507, "no-room")
    assert "frees space" in answer.json()["remedy"]
    assert files(tmp_path / "blobs") == []
    disk.free = 3 * size + 1000
    assert send().status_code == 201


def test_space_that_others_take_while_a_message_comes_is_seen(
    hub: Hub, open_hub: Opened, clinic: Honest, tmp_path: Path
) -> None:
    asked: list[int] = []

    def usage(_: Path) -> SmallDisk:
        asked.append(1)
        return SmallDisk(free=0 if shrinks and len(asked) > 1 else 1 << 40)

    shrinks, other = False, hub.enrolled("registry")
    _, send = before_columns(open_hub(disks=Disks((tmp_path,), 1000, usage=usage)), clinic, other)
    shrinks = True
    asked.clear()
    assert problem(send()) == (507, "no-room")
    assert len(asked) == 2
    assert files(tmp_path / "blobs") == []


def test_release_is_refused_when_proposed_where_the_disk_has_no_room_for_it(
    hub: Hub, open_hub: Opened, clinic: Honest, tmp_path: Path
) -> None:
    size = whole(release_sizes(alone(hub, clinic).spec))
    limited = open_hub(disks=SmallDisk(free=size + 999).disks(tmp_path, reserve=1000))
    assert problem(limited.propose(alone(limited, clinic))) == (507, "no-room")


@pytest.mark.parametrize("kibibytes", [256, 512], ids=["while it comes", "while it is stored"])
def test_disk_that_is_full_is_said_and_nothing_is_left_on_it(
    hub: Hub, open_hub: Opened, clinic: Honest, tmp_path: Path, kibibytes: int
) -> None:
    other = hub.enrolled("registry")
    with mounted(tmp_path / "small", kibibytes=kibibytes) as small:
        size, send = before_columns(open_hub(blobs=BlobDirectory(small)), clinic, other)
        assert size == 320 << 10
        assert problem(send()) == (507, "no-room")
        assert files(small) == []


def test_message_that_is_larger_than_the_operator_takes_by_now_is_refused_unread(
    hub: Hub, open_hub: Opened, clinic: Honest
) -> None:
    exchanging = approved(hub, [clinic, hub.enrolled("registry")])
    limited = open_hub(quotas=Quotas(message=exchanging.exchange.columns_size("clinic") - 1))
    lowered = replace(exchanging, hub=limited)
    assert problem(lowered.send("clinic", lowered.make("columns", clinic))) == (413, "too-large")


class Sender:
    """Somebody who sends so many bytes and then waits for ever."""

    def __init__(self, piece: bytes = b"", *, more: bool = True) -> None:
        self._piece, self._more = piece, more

    async def stream(self) -> AsyncIterator[bytes]:
        yield self._piece
        if self._more:
            await asyncio.Event().wait()

    def body(self) -> Body:
        return Body(cast("Request", SimpleNamespace(headers={}, stream=self.stream)))


def test_upload_that_is_begun_anew_ends_the_one_before() -> None:
    async def both() -> None:
        arriving, first, second = Arriving(), Sender(b"x").body(), Sender(b"x", more=False).body()

        async def receive(body: Body) -> int:
            with arriving.only("/columns/clinic", "clinic", body, limit=8, most=8):
                return sum([len(piece) async for piece in body.pieces(8)])

        waiting = asyncio.create_task(receive(first))
        await asyncio.sleep(0)
        assert await receive(second) == 1
        with pytest.raises(TruncatedError):
            await asyncio.wait_for(waiting, 60)

    asyncio.run(both())


def test_upload_is_refused_while_the_same_is_stored_or_its_sender_sends_too_much_at_once() -> None:
    async def all_three() -> None:
        arriving, stored = Arriving(), Sender().body()
        stored.complete = True
        with arriving.only("/columns/clinic", "clinic", stored, limit=8, most=16):
            for place in ("/columns/clinic", "/replies/clinic"):
                again = arriving.only(place, "clinic", Sender().body(), limit=9, most=16)
                with pytest.raises(BusyError), again:
                    pass
            with arriving.only("/columns/lab", "lab", Sender().body(), limit=16, most=16):
                pass

    asyncio.run(all_three())
