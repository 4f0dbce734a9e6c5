"""`commingle demo` as a newcomer starts it: links into a consortium that waits for one party."""

import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from commingle import Release

pytestmark = pytest.mark.slow


def entered(link: str) -> httpx.Client:
    """A browser that has opened a console's link; names below localhost are this machine to browsers alone."""
    url = httpx.URL(link)
    host = {"Host": url.netloc.decode()}
    client = httpx.Client(base_url=url.copy_with(host="127.0.0.1", path="/"), headers=host, timeout=60)
    assert client.get(url.path).status_code == 303
    return client


def test_demo_prints_links_to_a_proposal_that_two_of_three_owners_have_approved() -> None:
    command = [sys.executable, "-m", "commingle", "demo", "--no-browser"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stderr is not None
            said = ""
            while "Ctrl-C" not in said:
                line = running.stderr.readline()
                assert line, said
                said += line
            decide, follow, learner = re.findall(r"http://\S+", said)
            with closing(entered(decide)) as browser:
                listed = browser.get("/").text
                assert "One proposal waits for your decision" in listed
                [proposal] = re.findall(r'href="(/proposals/\w+)"', listed)
                page = browser.get(proposal).text
                assert page.count(": approved</span>") == 2
                assert "registry, here: not yet" in page
                assert "Are smokers readmitted more often" in page
                assert "If 30 % of what varies in readmitted" in page
            with closing(entered(follow)) as operator:
                assert "2 of 3" in operator.get("/").text
            assert "Nothing is published yet" in httpx.get(learner, timeout=60).text
        finally:
            running.terminate()


def test_demo_without_a_browser_keeps_a_verified_release_and_shows_its_answers_beside_all_rows(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "commingle", "demo", "--out", str(tmp_path / "demo")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    held = re.findall(r"(\d+) of (\d+) 95 % intervals hold what all rows say", done.stdout)
    assert [int(of) for _, of in held] == [39, 8, 12]
    assert sum(int(each) for each, _ in held) > 40
    assert "smoker[current]" in done.stdout
    release = Release.load(tmp_path / "demo/release")
    assert release.spec.epsilon == 1
    assert (tmp_path / "demo/answers.png").read_bytes().startswith(b"\x89PNG")
