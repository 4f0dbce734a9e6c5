"""A coordinator with a release in each state that matters."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.world.coordinator import Hub


@contextmanager
def hub_with_releases(home: Path) -> Iterator[tuple[Hub, list[str]]]:
    """A coordinator with two members, and the ids of a published, an approved and a proposed release."""
    hub = Hub(f"sqlite:///{home / 'coordinator.sqlite'}", home)
    try:
        parties = hub.enrolled("clinic"), hub.enrolled("registry")
        published = hub.complete(parties)
        hub.publisher.run_once()
        assert hub.state(published) == "published"
        releases = published, hub.approved(parties, mechanism="dgm"), hub.proposed(parties, k=20)
        yield hub, [release.id for release in releases]
    finally:
        hub.close()
