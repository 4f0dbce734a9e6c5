"""What `import commingle` brings: pinned, lazy, typed."""

import json
import subprocess
import sys

import pytest

import commingle


def test_public_names_are_these() -> None:
    classes = ["CommingleError", "CommingleRegressor", "Fit", "PartyClient", "Release", "ReleaseClient", "Study"]
    names = [*classes, "PRESETS", "plan"]
    assert sorted(commingle.__all__) == sorted([*names, "__version__"])
    assert sorted(dir(commingle)) == sorted(commingle.__all__)


def test_every_public_name_can_be_had_and_is_documented() -> None:
    for name in commingle.__all__:
        value = getattr(commingle, name)
        assert name == "__version__" or value.__doc__


def test_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(commingle, "Releases")


@pytest.mark.slow
def test_importing_commingle_loads_neither_a_room_nor_a_library() -> None:
    script = "import sys, commingle, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    loaded = json.loads(done.stdout)
    ours = [name for name in loaded if name.startswith("commingle.")]
    assert ours == ["commingle.shared"]
    assert not {"numpy", "pydantic", "httpx", "scipy", "fastapi"} & set(loaded)
