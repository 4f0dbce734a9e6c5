"""What several tests of rows share."""

import pytest

from commingle.party_agent.private import scratch


@pytest.fixture
def to_disk(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """All that is written to temporary files from now on."""
    written, write = list[bytes](), scratch.Scratch.write

    def note(self: scratch.Scratch, data: bytes, place: int | None = None) -> int:
        written.append(bytes(data))
        return write(self, data, place)

    monkeypatch.setattr(scratch.Scratch, "write", note)
    return written
