"""What the three services answer, recorded in a real run of them and kept as the examples of their OpenAPI documents.

python -m tests.packaging.answers    records them anew
"""

import json
import re
import tempfile
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from commingle import ReleaseClient
from commingle.coordinator.http.app import __file__ as coordinators
from commingle.party_agent.agents import Agents
from commingle.party_agent.app import LocalApi
from commingle.party_agent.app import __file__ as agents_own
from commingle.party_agent.app import create_app as party_app
from commingle.party_agent.coordinator_client import CoordinatorClient
from commingle.party_agent.http import examples
from commingle.party_agent.linkage import publish_identity, send_linkage_key
from commingle.services.learner.app import __file__ as learners
from commingle.services.learner.app import create_app as learner_app
from commingle.services.learner.source import ReleaseSource
from commingle.shared.runtime.request_signing import RequestSigner
from tests.world.consortium import BY_A_PERSON, BY_HAND, Consortium, consortium_of, soon, strictly
from tests.world.coordinator import key_of
from tests.world.documents import enrolment, rotation
from tests.world.released import ServingCoordinator, published, study
from tests.world.transport import InProcess
from tests.world.work import pool_of_threads

KEPT = {
    "coordinator": Path(coordinators).parent / "answers.json",
    "party-agent": Path(agents_own).parent / "http" / "answers.json",
    "learner": Path(learners).parent / "answers.json",
}
_LONGEST, _MOST = 96, 2  # characters of a text and items of a list that an example shows
_TARGET = {"target": "charges, yearly"}
_COMPUTED: Mapping[str, Any] = {
    "fits": {**_TARGET, "features": ["age", "smoker"]},
    "predictions": {**_TARGET, "rows": [{"age": 40, "bmi": 25.5, "smoker": "yes"}]},
    "analyses/compare": {**_TARGET, "smaller": ["age"]},
    "analyses/lasso-path": _TARGET,
    "analyses/partial-correlations": {"attributes": ["age", "bmi", "smoker"]},
    "analyses/pca": {"attributes": ["age", "bmi"]},
    "analyses/ridge-path": {**_TARGET, "penalties": [0.01, 0.1]},
    "analyses/two-stage": {**_TARGET, "endogenous": ["bmi"], "instruments": ["age"], "exogenous": ["smoker"]},
}


@dataclass
class Recorder(httpx.BaseTransport):
    """Calls an application and keeps of each operation the last answer."""

    app: FastAPI
    kept: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._calls = InProcess(self.app)
        self._paths = self.app.openapi()["paths"]

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._calls.handle_request(request)
        if (name := self._described(request, answer)) is not None:
            told = {"answer": shortened(answer.json())}
            if request.headers.get("content-type", "").startswith("application/json"):
                told["asked"] = shortened(json.loads(request.content))
            self.kept[name] = told
        return answer

    def _described(self, request: httpx.Request, answer: httpx.Response) -> str | None:
        """Method, path and status, where the document says that this answers with JSON."""
        patterns = {path: re.sub(r"\{\w+\}", "[^/]+", path) for path in self._paths}
        found = [path for path, pattern in patterns.items() if re.fullmatch(pattern, request.url.path)]
        if not found or not answer.is_success:
            return None
        path = min(found, key=lambda path: path.count("{"))
        responses = self._paths[path][request.method.lower()]["responses"]
        is_json = answer.headers.get("content-type", "").startswith("application/json")
        told = is_json and "application/json" in responses.get(str(answer.status_code), {}).get("content", {})
        return f"{request.method} {path} {answer.status_code}" if told else None


def shortened(value: Any) -> Any:
    """As an example shows it: the beginnings of long texts and lists."""
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else value[:_LONGEST] + "…"
    if isinstance(value, list):
        return [shortened(item) for item in value[:_MOST]]
    if isinstance(value, dict):
        return {name: shortened(item) for name, item in value.items()}
    return value


def shape(value: Any) -> Any:
    """What stays the same from run to run: the names in it."""
    if isinstance(value, dict):
        return {name: shape(item) for name, item in value.items()}
    return [shape(item) for item in value] if isinstance(value, list) else None


def record(folder: Path) -> Mapping[str, Mapping[str, Any]]:
    """The answers of each service by method, path and status."""
    consortium = consortium_of(folder, "clinic", "insurer", policy=BY_HAND)
    coordinator = Recorder(consortium.coordinator.hub.app)
    consortium.coordinator.__dict__["_transport"] = coordinator  # by which agents are answered
    with consortium.agents("clinic") as agents:
        clinic = Recorder(party_app(LocalApi(agents, loops=None, peer_is_operator=True)))
        _at_a_clinic(consortium, agents, httpx.Client(transport=clinic, base_url="http://agent"), folder)
    _between_members(consortium)
    _at_the_coordinator(coordinator)
    return {"coordinator": coordinator.kept, "party-agent": clinic.kept, "learner": _at_a_learner()}


def _at_a_clinic(consortium: Consortium, agents: Agents, http: httpx.Client, folder: Path) -> None:
    place = "/v1/datasets/stays/uploads/monday"
    for name in consortium.homes:
        with nullcontext(agents.consortia[0]) if name == "clinic" else consortium.agent(name) as agent:
            consortium.register(agent, replace=True, subjects="keyed")
    http.post("/v1/datasets", json=_first(examples.DATASET))
    http.put(place)
    http.put(f"{place}/pieces/1", content=examples.CSV_ROWS, headers={"Content-Type": "text/csv"})
    http.get(place)
    http.post(f"{place}/close", json=_first(examples.CLOSE))
    table = folder / "stays.csv"
    table.write_text(examples.CSV_ROWS)
    http.post(
        "/v1/datasets?replace=true",
        json={**_first(examples.DATASET), "source": {"kind": "file", "path": str(table)}},
    )
    http.post("/v1/datasets/stays/reading")
    asked = http.post("/v1/regressions", json=_first(examples.REGRESSION)).json()
    http.post("/v1/proposals", json=_first(examples.STUDY))
    for home in consortium.homes.values():
        home.save_policy(home.policy().model_copy(update={"trusted_bounds": True}))

    def decided(decision: str, title: str, **choices: Any) -> str:
        soon(consortium, hours=0.1)  # so that the newest is always the same one
        release = consortium.propose(title=title, keyed=True, **choices)
        agents.consortia[0].step(strictly)
        http.put(f"/v1/proposals/{release}/{decision}", json=_first(examples.NOTE))
        return release

    decided("rejection", "Readmission")
    exchanged = decided("approval", "Charges", mechanism="moments", bounds="trusted")
    one = decided("approval", "Length of stay")
    with consortium.agents("insurer") as insurer:
        for _ in range(4):
            for each in (insurer, agents):
                each.consortia[0].step(strictly)
            for release in (one, exchanged):
                if insurer.proposals.get(release).decision == "waiting":
                    insurer.approve(release, BY_A_PERSON)
    assert consortium.state(one) == consortium.state(exchanged) == "published"
    for path in ("status", "datasets", "ledger", "jobs", "regressions", "proposals", "audit"):
        http.get(f"/v1/{path}")
    for path in (f"jobs/{one}", f"proposals/{one}", f"regressions/{asked['id']}", f"releases/{one}/manifest"):
        http.get(f"/v1/{path}")
    http.get("/healthz"), http.get("/readyz")


def _between_members(consortium: Consortium) -> None:
    hub, key, new = consortium.coordinator, key_of("registry"), key_of("registry, new")
    with consortium.client("insurer") as insurer, consortium.client("clinic") as clinic:
        publish_identity(consortium.homes["insurer"], insurer)
        clinic.enrol(enrolment(hub.invited("registry"), "registry", key, sealing_key="5e" * 32))
        home, pinned = consortium.homes["clinic"], hub.key.fingerprint
        send_linkage_key(home, home.consortium(), clinic, coordinator=pinned, now=consortium.clock_shows)
        insurer.linkage_keys("insurer")
        list(clinic.head_history("clinic"))
        next(clinic.steps("clinic", after=0, seconds=0, streamed=False))
    auth = RequestSigner(key, audience=hub.key.fingerprint, clock=hub.clock)
    with hub.client(auth) as http:
        request = rotation(key, new, created=consortium.clock_shows, party="registry")
        CoordinatorClient(http).rotate("registry", request)


def _at_the_coordinator(recorder: Recorder) -> None:
    with httpx.Client(transport=recorder, base_url="http://hub") as http:
        release = http.get("/v1/releases").json()["items"][0]["id"]
        for path in (
            "coordinator",
            "events",
            "ledger-heads",
            "member-log",
            "parties",
            "parties/clinic",
            "parties/registry/keys",
        ):
            http.get(f"/v1/{path}")
        for path in ("", "/forecast"):
            http.get(f"/v1/releases/{release}{path}")
        http.get("/healthz"), http.get("/readyz")


def _at_a_learner() -> Mapping[str, Any]:
    release, files = published()
    client = ReleaseClient("http://hub", transport=ServingCoordinator.serving((release, files)).transport)
    recorder = Recorder(learner_app(ReleaseSource(client), pool=pool_of_threads()))
    with httpx.Client(transport=recorder, base_url="http://learner", timeout=60) as http:
        at = f"/v1/releases/{release}"
        for path in ("/healthz", "/readyz", "/v1/releases", at, f"{at}/moments"):
            http.get(path)
        for what, asked in _COMPUTED.items():
            http.post(f"{at}/{what}", json=asked).raise_for_status()
        planned = study(mechanism="rmgm", n=20_000, epsilon=1.0, title="Charges").model_dump(mode="json")
        http.post("/v1/plans", json={"study": planned, **_TARGET}).raise_for_status()
    return recorder.kept


def _first(shown: Mapping[str, Any]) -> Any:
    return next(iter(shown.values()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        for service, told in record(Path(made)).items():
            text = json.dumps(told, indent=1, sort_keys=True, ensure_ascii=False).replace(made, "/srv/ward")
            KEPT[service].write_text(text + "\n")
