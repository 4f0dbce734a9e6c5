"""A process loads only its own package and `shared` (ADR 1), and a command no library that it does not need."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

ROOMS = {"party_agent", "coordinator", "services"}


SERVER = {"fastapi", "uvicorn"}
DATABASE = {"alembic", "sqlalchemy"}
NEVER = {
    "charset_normalizer",
    "matplotlib",
    "numpy.f2py.crackfortran",
    "pandas",
    "pydantic.v1",
    "pygments",
    "rich.traceback",
    "sklearn",
}


BARE = {*SERVER, *DATABASE, "httpx", "numpy", "pyarrow", "pydantic", "rich", "structlog"}
AGENT, COORDINATOR, SERVICES = "party_agent", "coordinator", "services"


@pytest.mark.parametrize(
    ("arguments", "own", "unneeded"),
    [
        ("--help", None, BARE),
        ("party --help", AGENT, BARE),
        ("coordinator --help", COORDINATOR, set[str]()),
        ("learner --help", SERVICES, set[str]()),
        ("plan --help", SERVICES, set[str]()),
        ("verify --help", SERVICES, {*SERVER, *DATABASE, "httpx", "opendp", "scipy", "structlog"}),
        ("fit --help", SERVICES, {*SERVER, *DATABASE, "httpx", "opendp", "scipy.optimize", "scipy.stats", "structlog"}),
        ("party serve --help", AGENT, {*DATABASE, "opendp", "rich", "scipy"}),
        ("party status --help", AGENT, {*SERVER, *DATABASE, "opendp", "scipy"}),
        ("coordinator serve --help", COORDINATOR, {"opendp", "pyarrow.compute", "scipy"}),
        ("learner serve --help", SERVICES, {*SERVER, *DATABASE, "numpy", "opendp", "pyarrow", "rich", "scipy"}),
        ("simulate --help", SERVICES, {*SERVER, *DATABASE, "httpx", "opendp", "pyarrow", "rich", "scipy"}),
    ],
)
def test_command_loads_its_own_room_alone_and_no_library_that_it_does_not_need(
    arguments: str, own: str | None, unneeded: set[str]
) -> None:
    script = (
        "import sys, json\n"
        "from commingle.__main__ import start\n"
        "try:\n    start()\nexcept SystemExit:\n    pass\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    command = [sys.executable, "-c", script, *arguments.split()]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    loaded = set(json.loads(run.stdout.splitlines()[-1]))
    assert "commingle.shared.runtime.cli" in loaded
    assert not loaded & (unneeded | NEVER)
    assert {name.split(".")[1] for name in loaded if name.startswith("commingle.")} & ROOMS == ({own} - {None})


@pytest.mark.skipif(sys.platform != "linux", reason="Arrow has that allocator on Linux only, everywhere")
def test_command_has_arrow_return_memory() -> None:
    script = "from commingle.__main__ import leave_out_unused; leave_out_unused()\nimport pyarrow as pa\n"
    script += "print(pa.default_memory_pool().backend_name)"
    own = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    for chosen, found in ({}, "jemalloc"), ({"ARROW_DEFAULT_MEMORY_POOL": "system"}, "system"):
        run = subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True, text=True, env=own | chosen
        )
        assert run.stdout.strip() == found
