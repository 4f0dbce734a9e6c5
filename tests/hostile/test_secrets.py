"""A whole round with real processes and commands, and nothing secret in what any of them says, logs or shows."""

import json
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from benchmarks.consortium import Commingle, Words
from commingle.party_agent.home.home import Home
from commingle.party_agent.wire.local_socket import AGENT_URL, AgentTransport
from tests.world.command import run_command
from tests.world.documents import study_file

pytestmark = pytest.mark.slow

ROWS = 400
SCHEMAS = {
    "clinic": [{"kind": "numeric", "name": "age", "lower": 0.0, "upper": 100.0}],
    "insurer": [{"kind": "numeric", "name": "charges", "lower": 0.0, "upper": 200.0}],
}
POLICY = {"auto_approve": [{"proposer": "*", "max_rho": 1e6}], "max_epsilon": 1000}
SUBJECT = "subject-sentinel"
VALUE = "31.4159265358"
CELL = "cell-sentinel"


@dataclass
class Everything:
    """All that anybody can see: arguments of commands, what they print, logs, answers, processes."""

    capsys: pytest.CaptureFixture[str]
    folder: Path
    said: list[str] = field(default_factory=list)
    tokens: dict[str, str] = field(default_factory=dict)

    def run(self, *arguments: object, quiet: bool = False) -> Any:
        """A command in this process; the JSON it prints. What is `quiet` prints a secret on purpose."""
        given = [str(argument) for argument in (*arguments, "--json")]
        code, out, err = run_command(self.capsys, *given)
        self.said += [*given, err, *([] if quiet else [out])]
        return json.loads(out) if code == 0 else {"failed": err}

    @contextmanager
    def serving(self, name: str, *arguments: Words) -> Iterator[str]:
        """A server in a process of its own; its URL, or its socket."""
        log = self.folder / f"log-{len(list(self.folder.glob('log-*')))}"
        with log.open("w") as file, Commingle().serving(name, "serve", *arguments, log=file) as (process, said):
            assert process.stdout is not None
            try:
                yield said.get("url") or said["socket"]
                self.said += [json.dumps(said), Path(f"/proc/{process.pid}/cmdline").read_text()]
            finally:
                process.terminate()
                self.said += [process.stdout.read(), log.read_text()]
                assert process.wait(60) in {0, -signal.SIGTERM}

    def call(self, http: httpx.Client, method: str, path: str, **sent: Any) -> httpx.Response:
        response = http.request(method, path, **sent)
        self.said.append(f"{response.headers} {response.text}")
        return response


def write_tables(folder: Path) -> dict[str, tuple[object, ...]]:
    """Each party's table, and the options that register it: one in a database, one in a file."""
    draw = np.random.default_rng(0)
    rows = [(f"{SUBJECT}-{i:04}", f"{draw.uniform(1, 90):.4f}") for i in range(ROWS)]
    rows[7] = (rows[7][0], VALUE)
    with sqlite3.connect(folder / "password-sentinel.db") as db:
        db.execute("CREATE TABLE stays (subject TEXT, age REAL)")
        db.executemany("INSERT INTO stays VALUES (?, ?)", rows)
    db.close()
    (folder / "url").write_text(f"sqlite:///{folder / 'password-sentinel.db'}")
    (folder / "charges.csv").write_text("subject,charges\n" + "\n".join(map(",".join, rows)))
    (folder / "broken.csv").write_text("subject,charges\n" + "\n".join(map(",".join, [*rows, ("last", CELL)])))
    return {
        "clinic": ("--database-url-file", folder / "url", "--query", "SELECT * FROM stays"),
        "insurer": ("--source", folder / "charges.csv"),
    }


def make_parties(seen: Everything, hub: str) -> None:
    """Both parties with keys, enrolled by an invite from a file, pinned, with data sets."""
    folder, fingerprints = seen.folder, {}
    tables = write_tables(folder)
    (folder / "policy.json").write_text(json.dumps(POLICY))
    for name, table in tables.items():
        home = ("--home", folder / name)
        linkage = () if name == "clinic" else ("--linkage-key", Home(folder / "clinic").consortium().linkage_file)
        capped = ("--epsilon-cap", 1000, "--policy", folder / "policy.json")
        made = seen.run("party", "init", *home, "--name", name, *capped, *linkage)
        fingerprints[name] = made["fingerprint"]
        invited = seen.run("coordinator", "invite", "--home", folder / "hub", "--party", name, quiet=True)
        (folder / f"invite-{name}").write_text(invited["invite"] + "\n")
        seen.run("party", "enrol", *home, "--coordinator", hub, "--invite-file", folder / f"invite-{name}")
        reading = ("--name", "own", "--scope", "read")
        seen.tokens[name] = seen.run("party", "token", "create", *home, *reading, quiet=True)["token"]
        (folder / f"{name}.schema.json").write_text(json.dumps(SCHEMAS[name]))
        schema = ("--subject-id", "subject", "--schema", folder / f"{name}.schema.json")
        assert seen.run("party", "datasets", "add", "main", *home, *table, *schema, "--listed")["n"] == ROWS
    for name in tables:
        for member, fingerprint in fingerprints.items():
            seen.run("party", "pin", "--home", folder / name, member, fingerprint)
    schema = ("--subject-id", "subject", "--schema", folder / "insurer.schema.json")
    broken = ("--home", folder / "insurer", "--source", folder / "broken.csv")
    assert "no number" in seen.run("party", "datasets", "add", "broken", *broken, *schema, "--listed")["failed"]
    again = ("--home", folder / "clinic", "--coordinator", hub, "--invite-file", folder / "invite-insurer")
    assert seen.run("party", "enrol", *again)["failed"]


def run_round(seen: Everything, hub: str) -> None:
    """A release from proposal to fit, and requests that are refused."""
    folder = seen.folder
    asked = [{"name": name, "dataset": "main", "attributes": schema} for name, schema in SCHEMAS.items()]
    (folder / "study.json").write_text(json.dumps(study_file(asked, epsilon=100.0, n=ROWS, k=40)))
    with ExitStack() as running:
        agents = {name: running.enter_context(seen.serving("party", "--home", folder / name)) for name in SCHEMAS}
        shown = seen.run(
            "coordinator", "propose", folder / "study.json", "--home", folder / "hub", "--coordinator", hub
        )
        key = json.loads(httpx.get(f"{hub}/v1/coordinator", timeout=60).text)["fingerprint"]
        with httpx.Client(base_url=hub, timeout=60) as http:
            until = time.monotonic() + 90
            while seen.call(http, "GET", f"/v1/releases/{shown['id']}").json()["state"] != "published":
                assert time.monotonic() < until
                time.sleep(0.3)
            for kind in ("approvals", "rejections", "blocks"):
                seen.call(http, "PUT", f"/v1/releases/{shown['id']}/{kind}/clinic", content=b"{}")
            for path in ("/v1/parties", "/v1/events", "/metrics", "/openapi.json"):
                seen.call(http, "GET", path)
        for name, at in agents.items():
            token = seen.tokens[name]
            with httpx.Client(transport=AgentTransport(Path(at)), base_url=AGENT_URL, timeout=60) as http:
                for path in ("status", "datasets", "ledger", "proposals", "jobs"):
                    assert seen.call(http, "GET", f"/v1/{path}").status_code == 200
                seen.call(http, "POST", "/v1/datasets", content=b"{}")
                for sent in (token, f"{token}x"):
                    seen.call(http, "GET", "/v1/status", headers={"Authorization": f"Bearer {sent}"})
        learning = ("--coordinator", hub, "--coordinator-key", key, "--cache", folder / "cache")
        url = running.enter_context(seen.serving("learner", *learning))
        with httpx.Client(base_url=url, timeout=60) as http:
            fit = seen.call(http, "POST", f"/v1/releases/{shown['id']}/fits", json={"target": "charges"})
            assert fit.status_code == 200, fit.text


def test_nothing_secret_is_said_logged_or_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    seen = Everything(capsys, tmp_path)
    url_file = tmp_path / "hub-url"
    url_file.write_text(f"sqlite:///{tmp_path / 'hub-password-sentinel.db'}")
    seen.run("coordinator", "init", "--home", tmp_path / "hub", "--database-url-file", url_file)
    with seen.serving("coordinator", "--home", tmp_path / "hub") as hub:
        make_parties(seen, hub)
        run_round(seen, hub)
    everything = "\n".join(seen.said)
    keys = {str(path.relative_to(tmp_path)): path.read_text().strip() for path in tmp_path.rglob("*.key")}
    assert len(keys) == 7
    secrets = {
        **keys,
        **{f"{name}'s token": token for name, token in seen.tokens.items()},
        **{f"{name}'s invite": (tmp_path / f"invite-{name}").read_text().strip().split(".")[-1] for name in SCHEMAS},
        "database password": "password-sentinel",
        "subject": SUBJECT,
        "value": VALUE,
        "cell of a broken table": CELL,
    }
    assert [name for name, secret in secrets.items() if secret in everything] == []
    held = b"".join(path.read_bytes() for path in (tmp_path / "hub").rglob("*") if path.is_file())
    held += b"".join(path.read_bytes() for path in tmp_path.glob("hub-password-sentinel.db*"))
    own = {"hub/keys/signing.key", "database password"}  # the coordinator's own; all else it never gets to see
    assert [name for name, secret in secrets.items() if name not in own and secret.encode() in held] == []
