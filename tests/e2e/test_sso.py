"""Single sign-on with somebody else's provider, oidc-provider-mock; it, the consoles and the learner are processes."""

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import sync_playwright

from commingle.shared.runtime.settings import system_clock
from commingle.shared.runtime.tls import trust
from tests.e2e.networks import Authority
from tests.e2e.test_first_fit import Clinics, clinics
from tests.party_agent.cli.test_cli import at
from tests.world.consortium import BY_HAND, consortium_of
from tests.world.transport import free_port, on_a_socket

USERS = (
    {"sub": "248289761001", "name": "Dr. Adams", "groups": ["board"]},
    {"sub": "90342.ASDFJWFA", "name": "Dr. Berg", "groups": ["board", "all"]},
    {"sub": "chen", "name": "Chen", "groups": ["all"]},
    {"sub": "dent", "name": "Dent", "groups": []},
)

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
ANYWHERE = "0.0.0.0"  # noqa: S104 - what stands behind a proxy on another machine


class RealProvider:
    """The provider's process, at a name that is another site than 127.0.0.1."""

    def __init__(self, folder: Path) -> None:
        self.folder, port = folder, free_port()
        self.issuer = f"http://localhost:{port}"
        users = [word for user in USERS for word in ("--user-claims", json.dumps(user))]
        options = ["--port", str(port), "--require-nonce", "true", "--require-registration", "true"]
        log = (folder / "provider.log").open("w")
        command = [sys.executable, "-m", "oidc_provider_mock", *options, *users]
        self.process = subprocess.Popen(command, stdout=log, stderr=log)
        log.close()
        for _ in range(600):
            with suppress(httpx.HTTPError):
                if httpx.get(f"{self.issuer}/.well-known/openid-configuration").is_success:
                    return
            time.sleep(0.1)
        raise AssertionError((folder / "provider.log").read_text())

    def client(self, url: str, **changes: Any) -> dict[str, Any]:
        """The settings of a console that is registered there."""
        body = {"redirect_uris": [f"{url}/enter/callback"], "token_endpoint_auth_method": "client_secret_basic"}
        made = httpx.post(f"{self.issuer}/oauth2/clients", json=body).json()
        secret = self.folder / f"{made['client_id']}.secret"
        secret.write_text(made["client_secret"])
        groups = {"board": ["read", "decide"], "all": ["read"]}
        named = {"client_id": made["client_id"], "client_secret_file": str(secret)}
        return {"issuer": self.issuer, "url": url, "groups": groups, **named, **changes}

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=60)


@contextmanager
def real_provider(folder: Path) -> Iterator[RealProvider]:
    provider = RealProvider(folder)
    try:
        yield provider
    finally:
        provider.end()


def sign_in(who: httpx.Client, subject: str, path: str = "/") -> httpx.Response:
    form = who.get(path)
    assert "authorize" in str(form.url)
    return who.post(form.url, data={"sub": subject})


def answered(who: httpx.Client, release: str, decision: str) -> int:
    page = who.get(f"/proposals/{release}")
    csrf = re.search(r'name="csrf" value="([^"]+)"', page.text)
    assert csrf is not None
    given = {"csrf": csrf[1], "why": "vote 12/26", "read": "yes", "decision": decision}
    return who.post(f"/proposals/{release}", data=given, headers={"Origin": str(who.base_url)}).status_code


def test_two_people_sign_on_over_tls_and_one_stops_a_release_without_the_provider(tmp_path: Path) -> None:
    consortium = consortium_of(tmp_path, "clinic", "insurer", policy=BY_HAND.model_copy(update={"approvals": 2}))
    consortium.clock_shows = system_clock()
    first, second = (consortium.propose(title=title) for title in ("Length of stay", "Readmission"))
    consortium.step("clinic")
    home, authority = consortium.homes["clinic"], Authority.create(tmp_path / "ca", "clinic")
    certificate, key = authority.issue()
    port = free_port()
    with ExitStack() as stack:
        provider = stack.enter_context(real_provider(tmp_path))
        at(consortium, stack.enter_context(on_a_socket(consortium.coordinator.handle)))
        started = stack.enter_context(clinics(tmp_path))
        settings = home.root / "settings.json"
        sso = provider.client(f"https://127.0.0.1:{port}")
        settings.write_text(json.dumps({**json.loads(settings.read_text()), "sso": sso}))
        tls = ("--tls-certificate", str(certificate), "--tls-key", str(key))
        console = started.start(
            "party", "console", "--home", str(home.root), "--sso", "--host", ANYWHERE, "--port", str(port), *tls
        )
        console.until(r"People sign in at https://127.0.0.1:\d+; this listens at \S+\n")
        adams, berg, chen, dent = (stack.enter_context(person(sso["url"], authority)) for _ in range(4))
        assert "Length of stay" in sign_in(adams, "248289761001", f"/proposals/{first}").text
        (cookie,) = (cookie for cookie in adams.cookies.jar if cookie.secure)
        assert cookie.name.startswith("__Host-commingle-session-")
        assert sign_in(berg, "90342.ASDFJWFA").status_code == 200
        assert sign_in(chen, "chen").status_code == 200
        assert sign_in(dent, "dent").status_code == 403
        assert [answered(who, first, "approve") for who in (adams, chen, adams, berg)] == [200, 409, 200, 200]
        assert "2 of 2 approvals" in berg.get("/").text
        provider.end()
        assert answered(adams, second, "reject") == 200
        assert "signed in" in console.until(r'"subject": "248289761001".*\n')[0] + console.said
        told = started.run("party", "ledger", "--home", str(home.root))
        assert re.search(rf"approval by “90342.ASDFJWFA at {provider.issuer} \(token sso-\w+ Dr\. Berg\)”", told)
        said = started.run("party", "proposals", "--home", str(home.root), second[:12])
        assert "here rejected" in said


def person(url: str, authority: Authority) -> httpx.Client:
    headers = {"Accept": "text/html"}
    return httpx.Client(base_url=url, verify=trust(authority.file), headers=headers, follow_redirects=True)


def served(started: Clinics, folder: Path, provider: RealProvider) -> tuple[str, str]:
    hub, learner, api = free_port(), free_port(), free_port()
    started.run("coordinator", "init", "--home", "hub")
    settings = folder / "hub" / "settings.json"
    sso = provider.client(f"http://127.0.0.1:{hub}")
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "sso": sso}))
    started.start("coordinator", "serve", "--home", "hub", "--port", str(api)).announced()
    started.start("coordinator", "console", "--home", "hub", "--sso", "--port", str(hub)).until("People sign in at")
    (folder / "learner.json").write_text(json.dumps({"sso": provider.client(f"http://127.0.0.1:{learner}")}))
    options = ("--settings", "learner.json", "--coordinator", f"http://127.0.0.1:{api}", "--port", str(learner))
    started.start("learner", "serve", *options).announced()
    return f"http://127.0.0.1:{hub}", f"http://127.0.0.1:{learner}"


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
def test_coordinator_and_learner_are_entered_and_left_in_a_browser(tmp_path: Path) -> None:
    with real_provider(tmp_path) as provider, clinics(tmp_path) as started, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        hub, learner = served(started, tmp_path, provider)
        for url, path, heading in ((hub, "/members", "Members"), (learner, "/docs", "Commingle learner")):
            page = chromium.new_context().new_page()  # the provider's pages load styles from elsewhere, in vain
            page.goto(f"{url}{path}")
            page.get_by_role("button", name="chen").or_(page.get_by_text("chen")).first.click()
            page.get_by_role("heading", name=heading).first.wait_for()
            assert page.url == f"{url}{path}"
            page.get_by_role("button", name="Leave").click()
            page.wait_for_url(f"{provider.issuer}/**")
            page.goto(f"{url}{path}")
            assert page.url.startswith(provider.issuer)
        chromium.close()


@pytest.mark.parametrize("command", ["party", "coordinator"])
def test_console_without_a_provider_in_its_settings_says_what_to_set(tmp_path: Path, command: str) -> None:
    with clinics(tmp_path) as started:
        started.run(command, "init", "--home", "home", *(("--name", "ward") if command == "party" else ()))
        running = started.start(command, "console", "--home", "home", "--sso")
        running.until("no provider of single sign-on is set in home/settings.json")
