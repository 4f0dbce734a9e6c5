"""What people do to the demonstration, in any order, ends in a system that publishes and fits.

Skipped where no Docker engine answers. Each time the same release is asked for, which is published the first time.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.packaging.engine import ROOT, CommandError, docker, eventually
from tests.world.transport import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

_PROJECT = "commingle-tested"
_SECONDS = 900.0
_FITTED = "everybody, without privacy"
_FOREVER = ("postgres", "coordinator", "registration", "registration-system", "learner")
_MOMENTS = (1.0, 4.0, 9.0, 20.0)
"""Of a start, at which it is interrupted: while keys are made, and while services start."""
_UP = ("up", "-d", "--wait", "--no-build")


class Site:
    """The demonstration in a project and at ports of its own."""

    def __init__(self, image: str, postgres_image: str) -> None:
        ports = {name: str(free_port()) for name in ("COORDINATOR_PORT", "LEARNER_PORT")}
        self._environment = {"COMMINGLE_IMAGE": image, "POSTGRES_IMAGE": postgres_image} | ports

    def __call__(self, *arguments: str) -> str:
        try:
            return self._compose(*arguments)
        except CommandError as error:
            raise CommandError(f"{error}\n{self._compose('logs', '--tail', '20')}") from None

    def _compose(self, *arguments: str) -> str:
        return docker("compose", "-p", _PROJECT, *arguments, seconds=_SECONDS, environment=self._environment)

    def works(self) -> bool:
        return _FITTED in self("run", "--rm", "-T", "fit")

    def interrupted_start(self, seconds: float) -> None:
        """By SIGKILL to the command and to all containers."""
        command = ["docker", "compose", "-p", _PROJECT, *_UP]
        with subprocess.Popen(
            command, cwd=ROOT, env=os.environ | self._environment, stderr=subprocess.DEVNULL, start_new_session=True
        ) as starting:
            with suppress(subprocess.TimeoutExpired):
                starting.wait(seconds)
            with suppress(ProcessLookupError):
                os.killpg(starting.pid, signal.SIGKILL)
        with suppress(CommandError):  # none runs yet
            self("kill")


@pytest.fixture(scope="module")
def site(image: str, postgres_image: str) -> Iterator[Site]:
    made = Site(image, postgres_image)
    made("down", "-v")
    try:
        yield made
    finally:
        made("down", "-v")


def test_start_that_is_interrupted_is_finished_by_the_next_one(site: Site) -> None:
    for seconds in _MOMENTS:
        site.interrupted_start(seconds)
    site(*_UP)
    assert site.works()


def test_down_and_up_and_restart_leave_a_system_that_works(site: Site) -> None:
    site(*_UP)
    assert site.works()
    site("down")
    assert site.works()  # which starts what it needs
    site("down")
    site(*_UP)
    assert site.works()
    site("restart")
    assert site.works()


@pytest.mark.parametrize("service", _FOREVER)
def test_service_that_is_killed_is_started_by_the_next_command(site: Site, service: str) -> None:
    site(*_UP)
    site("kill", service)
    assert site.works()


def test_services_that_all_end_at_once_are_started_by_the_engine(site: Site) -> None:
    """As when the machine loses power; what a person has ended stays ended, so `kill` is no such end."""
    site(*_UP)
    for service in _FOREVER:
        with suppress(CommandError):  # it ends with what it stands on
            docker("exec", f"{_PROJECT}-{service}-1", "sh", "-c", "kill -9 $(cat /proc/1/task/1/children)")
    assert eventually(
        lambda: set(_FOREVER) <= set(site("ps", "--services", "--status", "running").split()), seconds=120
    )
    assert site.works()


def test_nothing_is_left_when_it_is_taken_down(site: Site) -> None:
    site(*_UP)
    assert site.works()
    site("down", "-v")
    of_it = ("--filter", f"label=com.docker.compose.project={_PROJECT}", "-q")
    assert [docker(*what, *of_it) for what in (("ps", "-a"), ("network", "ls"), ("volume", "ls"))] == [""] * 3
