"""Alert rules and the dashboard ask for metrics that there are."""

import json
import re
from pathlib import Path

import httpx
import pytest
import yaml  # type: ignore[import-untyped] # ships no annotations

from commingle import ReleaseClient
from commingle.party_agent.edge.loop import Loops
from commingle.party_agent.edge.views import metrics_text
from commingle.services.learner.app import create_app as learner_app
from commingle.services.learner.source import ReleaseSource
from tests.world.consortium import consortium_of
from tests.world.coordinator import Hub
from tests.world.transport import InProcess

FOLDER = Path(__file__).parents[2] / "deploy" / "monitoring"
ALERTS, DASHBOARD = (FOLDER / name for name in ("alerts.yml", "dashboard.json"))


@pytest.fixture
def served(tmp_path: Path) -> set[str]:
    """The name of every sample that the three services can give, asked of each."""
    hub = Hub(f"sqlite:///{tmp_path / 'coordinator.sqlite'}", tmp_path)
    hub.http.get("/v1/releases")
    texts = [hub.http.get("/metrics").text]
    learner = learner_app(ReleaseSource(ReleaseClient("http://hub", transport=hub.transport)))
    with httpx.Client(transport=InProcess(learner), base_url="http://learner") as http:
        http.get("/healthz")
        texts.append(http.get("/metrics").text)
    hub.close()
    with consortium_of(tmp_path / "party", "clinic").agents("clinic") as agents:
        texts.append(metrics_text(agents, Loops(agents)).decode())
    return {re.split(r"[{ ]", line)[0] for text in texts for line in text.splitlines() if not line.startswith("#")}


def asked(expressions: list[str]) -> set[str]:
    return {name for expression in expressions for name in re.findall(r"commingle_\w+", expression)}


def test_every_alert_asks_for_metrics_that_there_are_and_says_what_to_do(served: set[str]) -> None:
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 10
    assert all(rule["labels"]["severity"] in {"page", "ticket"} and rule["annotations"]["summary"] for rule in rules)
    assert asked([rule["expr"] for rule in rules]) <= served


def test_alerts_that_compare_two_states_ignore_the_state_or_prometheus_finds_no_pair() -> None:
    rules = [rule["expr"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    pairs = [re.split(r"\band\b", expr) for expr in rules if re.search(r"\band\b", expr)]
    assert pairs
    for left, right in pairs:
        states = {state for side in (left, right) for state in re.findall(r'state="(\w+)"', side)}
        assert len(states) == 1 or right.split("commingle_")[0].strip().startswith("ignoring (state)")


def test_every_panel_of_the_dashboard_asks_for_metrics_that_there_are(served: set[str]) -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    targets = [target["expr"] for panel in panels for target in panel["targets"]]
    assert asked(targets) <= served
    assert {name.split("_")[1] for name in asked(targets)} == {"agent", "coordinator", "learner"}


def test_routes_that_alerts_leave_out_are_routes_of_the_coordinator() -> None:
    routes = json.loads((ALERTS.parents[2] / "docs" / "openapi" / "coordinator.json").read_text())["paths"]
    left_out = "|".join(re.findall(r'route!~"([^"]+)"', ALERTS.read_text())).split("|")
    assert left_out != [""]
    assert all(any(re.fullmatch(pattern, route) for route in routes) for pattern in left_out)
