"""What Kubernetes and systemd are told to run is what the commands take, and is closed as the pages say.

Where kubectl or systemd-analyze is not installed, what needs it is skipped.
"""

import os
import shutil
import stat
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped] # ships no annotations
from uv import find_uv_bin

from commingle.coordinator.home import CoordinatorHome
from commingle.shared.runtime.files import load_signing_key
from tests.world.command import Command

pytestmark = pytest.mark.slow

DEPLOY = Path(__file__).parents[2] / "deploy"
ROLES = {"coordinator": "coordinator", "agent": "party", "learner": "learner"}
VERSIONS = ("1.32", "1.35", "1.37")
VALIDATOR = ("tool", "run", "--quiet", "--from", "kubernetes-validate==1.37.0", "kubernetes-validate")
CLOSED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
EXPOSURE = 15  # tenths, of `systemd-analyze security`

kubernetes = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")


def ran(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@cache
def built(role: str) -> str:
    return ran("kubectl", "kustomize", DEPLOY / "kubernetes" / role)


def documents(role: str) -> dict[str, dict[str, Any]]:
    return {"Pods" if "template" in d["spec"] else d["kind"]: d for d in yaml.safe_load_all(built(role))}


def containers(role: str) -> list[dict[str, Any]]:
    pod = documents(role)["Pods"]["spec"]["template"]["spec"]
    return [*pod["containers"], *pod.get("initContainers", [])]


@kubernetes
@pytest.mark.parametrize("version", VERSIONS)
def test_manifests_follow_the_schemas_of_kubernetes(tmp_path: Path, version: str) -> None:
    files = [tmp_path / f"{role}.yaml" for role in ROLES]
    for file, role in zip(files, ROLES, strict=True):
        file.write_text(built(role))
    ran(find_uv_bin(), *VALIDATOR, "--kubernetes-version", version, "--strict", "--no-warn", *files)


@kubernetes
@pytest.mark.parametrize("role", ROLES)
def test_every_selector_is_of_the_pods_of_its_role(role: str) -> None:
    found = documents(role)
    assert found.keys() == {"Pods", "Service", "PodDisruptionBudget", "NetworkPolicy", "ServiceMonitor"}
    labels = {"app": f"commingle-{role}"}
    assert found["Pods"]["spec"]["template"]["metadata"]["labels"] == labels
    assert found["Service"]["spec"]["selector"] == found["Service"]["metadata"]["labels"] == labels
    assert found["NetworkPolicy"]["spec"]["podSelector"] == {"matchLabels": labels}
    for kind in ("Pods", "PodDisruptionBudget", "ServiceMonitor"):
        assert found[kind]["spec"]["selector"] == {"matchLabels": labels}, kind
    (port,) = containers(role)[0]["ports"]
    assert found["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]
    assert found["ServiceMonitor"]["spec"]["endpoints"][0]["port"] == found["Service"]["spec"]["ports"][0]["name"]


@kubernetes
@pytest.mark.parametrize("role", ROLES)
def test_pods_are_restricted_and_write_to_volumes_alone(role: str) -> None:
    pod = documents(role)["Pods"]["spec"]["template"]["spec"]
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["seccompProfile"]) == (
        True,
        {"type": "RuntimeDefault"},
    )
    assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)
    for container in containers(role):
        assert container["securityContext"] == CLOSED
        assert "memory" in container["resources"]["limits"]
        assert "tmp" in [mount["name"] for mount in container["volumeMounts"]]
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= containers(role)[0].keys()


@kubernetes
@pytest.mark.parametrize("role", ROLES)
def test_environment_names_settings_that_there_are(
    role: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    container = containers(role)[0]
    service, verb = container["args"]
    assert (service, verb) == (ROLES[role], "serve")
    for variable in container["env"]:
        if not variable["name"].endswith(("_HOME", "_FILE")):
            monkeypatch.setenv(variable["name"], variable["value"])
    made = {
        "coordinator": ("init", "--home", tmp_path / "home", "--name", "hub"),
        "party": ("init", "--home", tmp_path / "home", "--name", "ward", "--epsilon-cap", "6"),
    }
    if service in made:
        command.json(service, *made[service])
    where = ("--coordinator", "https://hub.example") if role == "learner" else ("--home", tmp_path / "home")
    shown = command.json("config", "show", service, *where)["items"]
    prefix = f"COMMINGLE_{service.upper()}_"
    told = {v["name"].removeprefix(prefix).lower() for v in container["env"] if v["name"] in os.environ}
    assert {one["name"] for one in shown if one["source"].startswith(prefix)} == told


@kubernetes
def test_replica_makes_its_home_of_the_secret_and_its_key_is_taken(command: Command, tmp_path: Path) -> None:
    made, secret, home = tmp_path / "hub", tmp_path / "secret", tmp_path / "pod" / "home"
    command.json("coordinator", "init", "--home", made, "--name", "hub")
    secret.mkdir()
    shutil.copy(made / "settings.json", secret)
    shutil.copy(made / "keys" / "signing.key", secret)
    (secret / "signing.key").chmod(0o440)  # as fsGroup has it
    home.parent.mkdir()
    (_, prepare) = containers("coordinator")
    places = {"COMMINGLE_COORDINATOR_HOME": str(home), "SECRET": str(secret)}
    assert places.keys() == {variable["name"] for variable in prepare["env"]}
    subprocess.run(prepare["command"], env={**os.environ, **places}, check=True)
    key = CoordinatorHome(home).signing_key
    assert load_signing_key(key).fingerprint == load_signing_key(made / "keys" / "signing.key").fingerprint
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


@systemd
def test_unit_is_valid_and_no_more_exposed_than_its_page_says(tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / "commingle@.service").read_text()
    program = tmp_path / "commingle"
    program.touch(mode=0o755)
    for service in ROLES.values():
        unit = tmp_path / f"commingle@{service}.service"
        unit.write_text(text.replace("/opt/commingle/bin/commingle", str(program)))
        ran("systemd-analyze", "verify", "--man=no", unit)
    ran("systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE}", unit)
