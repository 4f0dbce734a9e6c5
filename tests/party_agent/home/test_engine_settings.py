"""Which engine an agent's settings name."""

import pytest
from pydantic import ValidationError

from commingle.party_agent.home.home import EngineSettings
from commingle.party_agent.private.dask_engine import Dask
from commingle.party_agent.private.engine import IN_PROCESS


def test_partitions_are_read_in_this_process_unless_settings_say_otherwise() -> None:
    assert EngineSettings().open() is IN_PROCESS
    assert EngineSettings(kind="dask").open() == Dask(None, 2)


@pytest.mark.parametrize(
    "address", ["tls://cluster.example:8786", "tcp://127.0.0.1:8786", "tcp://localhost:8786", "tcp://[::1]:8786"]
)
def test_scheduler_is_reached_by_tls_or_on_this_machine(address: str) -> None:
    assert EngineSettings(kind="dask", scheduler=address).open() == Dask(address, 2)


@pytest.mark.parametrize("address", ["tcp://cluster.example:8786", "tcp://10.0.0.7:1", "http://127.0.0.1", "cluster"])
def test_other_schedulers_are_refused(address: str) -> None:
    with pytest.raises(ValidationError, match="tls://"):
        EngineSettings(kind="dask", scheduler=address)


def test_scheduler_of_another_machine_without_tls_is_the_operators_decision() -> None:
    address = "tcp://10.0.0.7:8786"
    assert EngineSettings(kind="dask", scheduler=address, allow_tcp=True).open() == Dask(address, 2)
