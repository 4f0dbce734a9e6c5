"""Commingle over TLS: a private authority, forward proxies, and networks that inspect TLS."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.consortium import Commingle
from commingle.party_agent.home.home import Home
from commingle.shared.documents.dsse import SigningKey, seal
from commingle.shared.documents.statements import Rejection
from commingle.shared.runtime.files import load_signing_key
from commingle.shared.runtime.request_signing import RequestSigner
from commingle.shared.runtime.settings import system_clock
from commingle.shared.runtime.tls import trust
from tests.e2e.networks import Authority, ConnectProxy
from tests.world.documents import study_file
from tests.world.local_api import operator_client

pytestmark = pytest.mark.slow
_COMMAND = [sys.executable, "-m", "commingle"]
_BEGINNING = {"kind": "numeric", "name": "age", "lower": 0.0, "upper": 100.0}


def run(*arguments: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    whole = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()} | (env or {})
    return subprocess.run(
        [*_COMMAND, *map(str, arguments), "--json"], capture_output=True, text=True, env=whole, timeout=120, check=False
    )


def result(*arguments: object, env: dict[str, str] | None = None) -> Any:
    done = run(*arguments, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@dataclass(frozen=True)
class Hub:
    home: Path
    url: str
    authority: Authority
    party: Path

    @property
    def key(self) -> SigningKey:
        return load_signing_key(self.party / "keys" / "signing.key")

    @property
    def fingerprint(self) -> str:
        return load_signing_key(self.home / "keys" / "signing.key").fingerprint

    def proposed(self) -> str:
        study = self.home / "study.json"
        parties = [{"name": "clinic", "dataset": "main", "attributes": [_BEGINNING]}]
        study.write_text(json.dumps(study_file(parties, k=10)))
        where = ("--coordinator", self.url, "--ca-file", self.authority.file)
        release: str = result("coordinator", "propose", study, "--home", self.home, *where)["id"]
        return release


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    root = tmp_path_factory.mktemp("tls")
    authority = Authority.create(root / "ca", "the consortium's authority")
    certificate, key = authority.issue()
    result("coordinator", "init", "--home", root / "hub")
    tls = ("--tls-certificate", certificate, "--tls-key", key)
    with Commingle().reached("coordinator", "serve", "--home", root / "hub", *tls) as url:
        assert url.startswith("https://")
        invite = result("coordinator", "invite", "--home", root / "hub", "--party", "clinic")["invite"]
        result("party", "init", "--home", root / "clinic", "--name", "clinic")
        enrol = ("party", "enrol", "--home", root / "clinic", "--coordinator", url, "--invite", invite)
        refused = run(*enrol)
        assert (refused.returncode, f"the certificate of {url} is not trusted" in refused.stderr) == (1, True)
        assert "--ca-file FILE" in refused.stderr
        result(*enrol, "--ca-file", authority.file)
        yield Hub(root / "hub", url, authority, root / "clinic")


def reject(hub: Hub, release: str, *, ca: Authority, proxy: str) -> httpx.Response:
    """Clinic's signed rejection, sent through a proxy."""
    document = Rejection(spec=release, party="clinic", reason="operator", created=system_clock(), ledger_head="0" * 64)
    auth = RequestSigner(hub.key, audience=hub.fingerprint)
    with httpx.Client(base_url=hub.url, verify=trust(ca.file), proxy=proxy, auth=auth, timeout=60) as http:
        body = seal(document, key=hub.key).to_json()
        return http.put(f"/v1/releases/{release}/rejections/clinic", content=body)


def test_agent_works_over_a_private_authority_it_keeps_in_its_settings(hub: Hub) -> None:
    release = hub.proposed()
    with Commingle().reached("party", "serve", "--home", hub.party), operator_client(Home(hub.party)) as local:
        for _ in range(600):
            known = [item["id"] for item in local.get("/v1/proposals").json()["items"]]
            if release in known:
                break
            time.sleep(0.1)
        assert release in known
        assert local.get("/v1/status").json()["trouble"] is None


def test_commands_honour_https_proxy(hub: Hub) -> None:
    proxy = ConnectProxy()
    where = ("--home", hub.home, "--coordinator", hub.url, "--ca-file", hub.authority.file)
    with proxy.running() as url:
        result("coordinator", "releases", *where, env={"HTTPS_PROXY": url})
    assert proxy.asked == [hub.url.removeprefix("https://")]


def test_learner_serves_tls_and_reads_over_a_private_authority(hub: Hub) -> None:
    certificate, key = hub.authority.issue()
    options = ("--coordinator", hub.url, "--ca-file", hub.authority.file)
    with (
        Commingle().reached("learner", "serve", *options, "--tls-certificate", certificate, "--tls-key", key) as url,
        httpx.Client(base_url=url, verify=trust(hub.authority.file), timeout=60) as http,
    ):
        assert http.get("/v1/releases").json()["source"] == "coordinator"


def test_network_that_inspects_tls_is_no_obstacle_once_its_authority_is_trusted(hub: Hub, tmp_path: Path) -> None:
    release = hub.proposed()
    inspector = Authority.create(tmp_path / "inspector", "the hospital's firewall")
    proxy = ConnectProxy(inspects=inspector, trusts=hub.authority)
    with proxy.running() as url:
        with pytest.raises(httpx.ConnectError):
            reject(hub, release, ca=hub.authority, proxy=url)
        assert reject(hub, release, ca=inspector, proxy=url).status_code == 201


def test_network_that_alters_what_it_inspects_is_found_out(hub: Hub, tmp_path: Path) -> None:
    release = hub.proposed()
    inspector = Authority.create(tmp_path / "inspector", "somebody in between")
    for alters in ((b"commingle.rejection", b"commingle.rejektion"), (b"/rejections/", b"/rejektions/")):
        proxy = ConnectProxy(inspects=inspector, trusts=hub.authority, alters=alters)
        with proxy.running() as url:
            answer = reject(hub, release, ca=inspector, proxy=url)
        assert answer.status_code in {401, 404}
    with httpx.Client(base_url=hub.url, verify=trust(hub.authority.file), timeout=60) as http:
        assert http.get(f"/v1/releases/{release}").json()["state"] == "proposed"
