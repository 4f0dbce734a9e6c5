"""A simulated hospital system: it pushes its clinic's rows to the clinic's agent, proposes and decides, all by REST.

Usage: hospital.py NAME serve | hospital.py NAME propose STUDY. It knows two folders: the table of the clinic, and what
the agent has handed over so that it is reached, its certificate and a token. It stands for a clinic's own software and
for the people who use it: a real one asks them before it approves.
"""

import csv
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from commingle import CommingleError, PartyClient, Study

_TABLES, _ACCESS, _ALIVE = Path("/var/lib/commingle/tables"), Path("/var/lib/commingle/access"), Path("/tmp/alive")  # noqa: S108 - a container's own
_DATASET = "stays"
_LOOK_SECONDS, _PATIENCE_SECONDS = 2.0, 900.0


def connect(clinic: str) -> PartyClient:
    """The agent of a clinic, by the only network that leads to it."""
    access = _ACCESS / clinic
    token = (access / "token").read_text().strip()
    return PartyClient(f"https://agent.{clinic}:8443", token=token, ca_file=access / "api.pem")


def rows(path: Path) -> Iterator[dict[str, str | None]]:
    """Rows of a CSV; empty cells are missing."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            yield {name: cell or None for name, cell in row.items()}


def push(party: PartyClient, table: Path) -> None:
    """Push the table, in place of what the agent has: its owner has declared the data set."""
    made = party.push(_DATASET, rows(table / "table.csv"), upload="first")
    print(f"pushed {made.n} rows", flush=True)  # noqa: T201 - what the container says


def decide(party: PartyClient, clinic: str) -> None:
    """Approve what waits and nothing speaks against."""
    if not any(job.stage == "waiting for a person" for job in party.jobs()):
        return
    for proposal in party.proposals():
        if (proposal.state, proposal.decision) == ("proposed", "waiting") and not proposal.findings:
            party.approve(proposal.id, by=f"data office of {clinic} (simulated)", why="demonstration")
            print(f"approved {proposal.id[:12]}: {proposal.study}", flush=True)  # noqa: T201 - as above


def serve(clinic: str) -> None:
    """Push, then decide for as long as the container runs; the time of `_ALIVE` is that of the last good look."""
    pushed = False
    while True:
        try:
            with connect(clinic) as party:
                if not pushed:
                    push(party, _TABLES / clinic)
                    pushed = True
                while True:
                    decide(party, clinic)
                    _ALIVE.touch()
                    time.sleep(_LOOK_SECONDS)
        except (CommingleError, OSError) as error:
            print(f"tried again: {error}", flush=True)  # noqa: T201 - as above
            time.sleep(_LOOK_SECONDS)


def propose(clinic: str, study: Path) -> None:
    """Propose a study, unless it was before, and wait until it is published."""
    asked = Study.model_validate_json(study.read_bytes())
    with connect(clinic) as party:
        for key in (study.stem, None):  # the same proposal each time, and another one where that came to nothing
            made = party.propose(asked, key=key)
            print(f"proposed {made.id[:12]}: {made.study}", flush=True)  # noqa: T201 - as above
            over = party.wait(made.id, seconds=_PATIENCE_SECONDS)
            print(f"{over.state} {over.id}", flush=True)  # noqa: T201 - as above
            if over.state == "published":
                return
    sys.exit(1)


if __name__ == "__main__":
    name, what, *rest = sys.argv[1:]
    serve(name) if what == "serve" else propose(name, Path(*rest))
