"""`commingle demo` as a newcomer starts it: links into a consortium that waits for one party."""

import re
import subprocess
import sys
from contextlib import closing

import httpx
import pytest

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
