"""`make audit` in its three branches, with another program in uv's place."""

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "deploy" / "audit-dependencies.sh"
UNREACHABLE = """warning: `uv audit` is experimental
Resolved 103 packages in 8ms
error: Request failed after 1 retries
  cause: error sending request for url (https://api.osv.dev/v1/querybatch)
  cause: failed to lookup address information: Name or service not known"""
FINDINGS = "Found 1 known vulnerability in 1 package\nsomething 1.0 GHSA-0000"


def audit(folder: Path, *, says: str, code: int) -> "subprocess.CompletedProcess[str]":
    (folder / "said").write_text(says)
    uv = folder / "uv"
    uv.write_text(f'#!/bin/sh\n[ "$*" = "audit --locked" ] || exit 99\ncat "{folder}/said" >&2\nexit {code}\n')
    uv.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(["sh", SCRIPT], env=environment, capture_output=True, text=True, check=False)  # noqa: S607 - the shell of the machine


def test_clean_audit_succeeds_and_is_shown(tmp_path: Path) -> None:
    done = audit(tmp_path, says="Found no known vulnerabilities", code=0)
    assert (done.returncode, "no known vulnerabilities" in done.stdout, done.stderr) == (0, True, "")


def test_unreachable_database_succeeds_with_one_line_that_nothing_was_checked(tmp_path: Path) -> None:
    done = audit(tmp_path, says=UNREACHABLE, code=2)
    assert (done.returncode, done.stdout) == (0, "")
    (line,) = done.stderr.splitlines()
    assert "NOT RUN" in line


@pytest.mark.parametrize(
    ("says", "code"),
    [
        (FINDINGS, 1),
        (f"{FINDINGS}\n{UNREACHABLE}", 1),
        ("error: The lockfile at `uv.lock` needs to be updated, but `--locked` was provided", 2),
        ("error: Failed to parse the answer of https://api.osv.dev/v1/querybatch", 2),
        ("error sending request for url (https://elsewhere.example/)", 2),
        ("killed", 137),
    ],
    ids=["findings", "findings and a fault", "stale lock", "nonsense answer", "another address", "killed"],
)
def test_everything_else_is_a_failure_and_shown(tmp_path: Path, says: str, code: int) -> None:
    done = audit(tmp_path, says=says, code=code)
    assert (done.returncode, says in done.stdout) == (code, True)
