"""How many faults the docker compose deployment survives: every upload recorded, every promise checked at the end.

python -m tests.tools.compose_faults [--faults N] [--seed S] [--json FILE]

Starts docker-compose.yml in a project of its own, with a recording proxy between agents and coordinator
(tests/tools/compose_faults.yml), on the Docker engine that answers. The simulated hospitals propose and approve one
release after the other while containers are killed, frozen and cut off, disks fill, and requests are lost, cut and
repeated, and answered by others. Then faults stop, and what passed the proxy is held against the ledgers by
tests.faults.witness.

Exits with 1 where a promise of docs/faults.md is broken. In the environment: POSTGRES_IMAGE and ports, as of compose.
"""

import argparse
import json
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import httpx

from commingle.shared.release.rounds import State
from tests.faults.witness import Observed, broken_promises
from tests.tools import compose_site as site
from tests.tools.compose_proxy import FATES

_LIFETIME_HOURS = 0.5
_SHORT_LIFETIME_HOURS = 0.005  # nobody can be done by then
_MOMENTS, _WITHDRAWN, _SHORT = 0.2, 0.1, 0.08
_PROXY_SHARE = 0.5
_MOST_LAID_UP = 3
_BETWEEN_SECONDS, _HARM_SECONDS = (0.0, 3.0), (1.0, 6.0)
_RECOVERY_SECONDS = 300.0
_TIME_ENOUGH = timedelta(minutes=10)
_PROPOSAL_SECONDS = 180.0
_START_SECONDS = 1800.0


@dataclass
class Rounds:
    """Releases one after the other, in a thread of their own.

    Attributes:
        studies: what is asked for, by mechanism.
        going_on: set while a release is: what hits an idle deployment proves little.
        proposed: how many proposals were answered.
        refusal: what the last one that was not came to.
        ended_by_hand: those that somebody withdrew from or that had no time.
    """

    coordinator: Observed
    studies: dict[str, Any]
    draw: Random
    stop: threading.Event = field(default_factory=threading.Event)
    going_on: threading.Event = field(default_factory=threading.Event)
    proposed: int = 0
    refusal: str = ""
    ended_by_hand: set[str] = field(default_factory=set)

    def run(self) -> None:
        while not self.stop.is_set():
            short = self.draw.random() < _SHORT
            study = self.studies["moments" if self.draw.random() < _MOMENTS else "rmgm"] | {
                "study": f"round {self.proposed}",
                "epsilon": 1.0,
                "lifetime_hours": _SHORT_LIFETIME_HOURS if short else _LIFETIME_HOURS,
            }
            release = self._propose(study)
            if release and short:
                self.ended_by_hand.add(release)
            elif release and self.draw.random() < _WITHDRAWN:
                self._withdraw(release)
            while release and not self._over(release) and not self.stop.wait(1):
                pass
            self.going_on.clear()

    def _over(self, release: str) -> bool:
        with suppress(httpx.HTTPError):
            return self.coordinator.state(release).final
        return False

    def _propose(self, study: dict[str, Any]) -> str | None:
        """The same proposal again until it is answered."""
        while not self.stop.is_set():
            try:
                release = site.propose(study, key=study["study"])
            except site.CommandError as error:
                self.refusal = str(error)
                self.stop.wait(2)
            else:
                self.proposed += 1
                self.going_on.set()
                return release
        return None

    def _withdraw(self, release: str) -> None:
        self.stop.wait(self.draw.uniform(0, 15))
        self.ended_by_hand.add(release)
        with suppress(site.CommandError):  # it is over, or the agent is down
            site.withdraw(release, self.draw.choice(site.PARTIES))


def harms(proxy: site.Proxy, draw: Random) -> list[tuple[str, Callable[[float], None]]]:
    """What can be done to the deployment from outside, by kind."""
    upload = partial(site.kill_during_upload, "coordinator", proxy=proxy, draw=draw)
    found: list[tuple[str, Callable[[float], None]]] = [
        ("coordinator killed, restarted by Docker", partial(site.kill_process, "coordinator")),
        ("coordinator killed in the middle of an upload", upload),
        ("coordinator's container killed and started", partial(site.kill_container, "coordinator")),
        ("coordinator stopped and started", partial(site.stop, "coordinator")),
        ("coordinator frozen", partial(site.pause, "coordinator")),
        ("coordinator cut off from PostgreSQL", partial(site.cut_off, "coordinator", network="database")),
        ("coordinator cut off from the proxy", partial(site.cut_off, "coordinator", network="consortium")),
        ("coordinator's disk full", partial(site.fill_disk, "coordinator")),
        ("PostgreSQL's container killed and started", partial(site.kill_container, "postgres")),
        ("PostgreSQL stopped and started", partial(site.stop, "postgres")),
        ("PostgreSQL frozen", partial(site.pause, "postgres")),
    ]
    for party in site.PARTIES:
        found += [
            ("agent killed, restarted by Docker", partial(site.kill_process, party)),
            ("agent's container killed and started", partial(site.kill_container, party)),
            ("agent frozen", partial(site.pause, party)),
            ("agent cut off from the network", partial(site.cut_off, party, network="consortium")),
            ("agent's disk full", partial(site.fill_disk, party)),
        ]
    return found


def strike(faults: int, rounds: Rounds, proxy: site.Proxy, draw: Random) -> Counter[str]:
    """Inject that many faults, each while a release goes on; how many of each kind hit.

    Raises TimeoutError where no proposal is answered any more.
    """
    hit, laid_up, kinds = Counter[str](), 0, harms(proxy, draw)
    while True:
        if not rounds.going_on.wait(_PROPOSAL_SECONDS):
            raise TimeoutError(f"no proposal is answered: {rounds.refusal}")
        struck = Counter(each["fate"] for each in proxy.ask()["struck"])
        if hit.total() + struck.total() >= faults:
            proxy.ask(calm=True)
            return hit + struck
        if draw.random() < _PROXY_SHARE and laid_up - struck.total() < _MOST_LAID_UP:
            proxy.ask(fate=draw.choice(FATES), of=draw.choice(["uploads", "uploads", "requests"]))
            laid_up += 1
        else:
            kind, harm = draw.choice(kinds)
            with suppress(site.CommandError):  # what is restarting cannot be harmed
                harm(draw.uniform(*_HARM_SECONDS))
                hit[kind] += 1
        time.sleep(draw.uniform(*_BETWEEN_SECONDS))


def run(faults: int, seed: int) -> dict[str, Any]:
    services, proxy, coordinator = site.running(), site.Proxy(), site.coordinator()
    rounds = Rounds(coordinator, site.studies(), Random(f"rounds {seed}"))
    releasing = threading.Thread(target=rounds.run)
    releasing.start()
    try:
        hit = strike(faults, rounds, proxy, Random(seed))
    finally:
        rounds.stop.set()
        releasing.join()
    broken = [] if site.eventually(lambda: site.healthy(services), seconds=_RECOVERY_SECONDS) else ["not healthy again"]
    hopeful = {each["id"] for each in site.unfinished(coordinator) if _has_agreed(each)} - rounds.ended_by_hand
    if not site.eventually(
        lambda: not site.unfinished(coordinator), seconds=_LIFETIME_HOURS * 3600 + _RECOVERY_SECONDS
    ):
        broken.append("a release does not end")
    if not site.eventually(site.nothing_open, seconds=_RECOVERY_SECONDS):
        broken.append("charges stay open")
    ended = coordinator.ended()
    broken += [f"{release} got stuck" for release in hopeful if ended[release].state is not State.PUBLISHED]
    uploads, trusted = proxy.uploads(), site.fingerprint()
    with tempfile.TemporaryDirectory() as folder:
        broken += broken_promises(uploads, ended, site.copy_homes(Path(folder)), coordinator=trusted)
    return {
        "faults": hit,
        "releases": Counter(str(end.state) for end in ended.values()),
        "mechanisms": Counter(end.spec.mechanism for end in ended.values() if end.files),
        "uploads": Counter(upload.kind for upload in uploads),
        "broken": broken,
    }


def _has_agreed(release: dict[str, Any]) -> bool:
    left = datetime.fromisoformat(release["expires"]) - datetime.now(UTC)
    return State(release["state"]) in {State.APPROVED, State.COLLECTING} and left > _TIME_ENOUGH


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark, print its tally and, where asked, write it as JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.compose_faults", description="Faults over compose.")
    parser.add_argument("--faults", type=int, default=150, help="how many, at least")
    parser.add_argument("--seed", type=int, default=1, help="of what goes wrong and when")
    parser.add_argument("--json", type=Path, help="write the tally to this file")
    options = parser.parse_args(arguments)
    try:
        site.docker("info")
    except site.CommandError as error:
        parser.error(f"no Docker engine answers ({error}). Start one, or name it in DOCKER_HOST")
    began = time.monotonic()
    try:
        site.compose("up", "--build", "--wait", seconds=_START_SECONDS)
        report = run(options.faults, options.seed)
    finally:
        site.compose("down", "--volumes", seconds=_START_SECONDS)
    seconds = time.monotonic() - began
    for title in ("faults", "releases", "mechanisms", "uploads"):
        print(f"{report[title].total()} {title}")
        for kind, count in report[title].most_common():
            print(f"{count:>9}  {kind}")
    for promise in report["broken"]:
        print(f"BROKEN: {promise}")
    print(f"{seconds:.0f} s; {len(report['broken'])} promises broken")
    if options.json:
        facts = {"benchmark": "compose_faults", "cpus": os.cpu_count(), "seed": options.seed, "seconds": round(seconds)}
        options.json.write_text(json.dumps(facts | report, indent=2) + "\n", encoding="utf-8")
    if report["broken"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
