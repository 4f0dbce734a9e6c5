"""A process loads only its own package and `shared` (ADR 1)."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

ROOMS = {"party_agent", "coordinator", "services"}


@pytest.mark.parametrize(
    ("arguments", "own"),
    [
        (["party", "--help"], {"party_agent"}),
        (["coordinator", "--help"], {"coordinator"}),
        (["learner", "--help"], {"services"}),
        (["simulate", "--help"], {"services"}),
        (["fit", "--help"], {"services"}),
        (["plan", "--help"], {"services"}),
        (["--help"], set()),
    ],
)
def test_command_loads_only_its_own_room(arguments: list[str], own: set[str]) -> None:
    script = (
        "import sys, json\n"
        "from commingle.__main__ import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print(json.dumps(sorted({name.split('.')[1] for name in sys.modules if name.startswith('commingle.')})))"
    )
    run = subprocess.run([sys.executable, "-c", script, *arguments], check=True, capture_output=True, text=True)
    loaded = set(json.loads(run.stdout.splitlines()[-1]))
    assert loaded & ROOMS == own
