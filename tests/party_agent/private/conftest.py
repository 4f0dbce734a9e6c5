"""What several tests of rows share."""

from tempfile import SpooledTemporaryFile
from typing import Any

import pytest

from commingle.party_agent.private import sorting


@pytest.fixture
def to_disk(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """All that is written to temporary files from now on."""
    written = list[bytes]()

    class Noted(SpooledTemporaryFile[bytes]):
        def write(self, data: Any) -> int:
            written.append(bytes(data))
            return super().write(data)

    monkeypatch.setattr(sorting, "SpooledTemporaryFile", Noted)
    return written
