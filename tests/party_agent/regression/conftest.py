from pathlib import Path

import pytest

from tests.party_agent.regression.asking import clinic
from tests.world.consortium import Consortium


@pytest.fixture
def hospital(tmp_path: Path) -> Consortium:
    return clinic(tmp_path)
