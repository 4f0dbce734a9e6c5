"""Writes the frozen documents, which the tests only read.

Usage, at the root of the repository: python -m tests.golden.make [--draw] [--keep]

With --draw what depends on the operating system or on a library's version is made anew, too. With --keep so are whole
artefacts of this version, a party's home as its backup and a coordinator's folder as a tar file: what ADR 32 promises
that later versions read. They change as often as a format does until 1.0, and after it never again, but a new folder
stands beside this one for each version that writes another format.
"""

import json
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from commingle.party_agent.edge.webhook import set_webhook
from commingle.party_agent.home.tokens import EVERY_SCOPE, create_token
from commingle.party_agent.operate.backup import write_backup
from commingle.party_agent.regression.service import Regressions
from commingle.shared.documents.regression import RegressionRequest
from tests.golden import documents, figures, records, world
from tests.packaging.openapi import all_promises
from tests.party_agent.regression.asking import GENEROUS
from tests.world.consortium import AUTOMATIC, Consortium, consortium_of
from tests.world.tampering import NOW

FILES = (
    *(f"release_{name}" for name in (*world.RELEASES, *world.KEYED)),
    "exchange",
    "exchange_trusted",
    "records",
    "encoding",
    "plans",
    "statements",
    "fits",
)
LOOSE = "forecasts"
KEPT = world.FOLDER / "kept"
HOME, COORDINATOR, TOLD, INTERFACES = "home.tar", "coordinator.tar", "told.json", "interfaces.json"
PARTY = "clinic"


def keep(folder: Path = KEPT) -> None:
    """Write them anew, and beside them what is in them."""
    folder.mkdir(exist_ok=True)
    for name in (HOME, COORDINATOR):
        (folder / name).unlink(missing_ok=True)
    with TemporaryDirectory() as work:
        pair = consortium_of(Path(work), PARTY, "insurer", policy=AUTOMATIC)
        pair.homes[PARTY].save_policy(AUTOMATIC.model_copy(update={"regressions": GENEROUS.regressions}))
        published = _published(pair)
        reserved = pair.propose(title="reserved")
        pair.step(PARTY)
        with pair.agent(PARTY) as agent:
            Regressions(agent).ask(_request())
            told = {"published": published, "reserved": reserved, **told_of(agent.ledger)}
        create_token(pair.homes[PARTY], name="etl", scopes=EVERY_SCOPE, lifetime=None, now=NOW)
        set_webhook(pair.homes[PARTY], "https://desk.example/hook", ca_file=None, allow_http=False)
        write_backup(pair.homes[PARTY], folder / HOME)
        (folder / HOME).chmod(0o644)  # its keys are nobody's
        pair.coordinator.close()
        with tarfile.open(folder / COORDINATOR, "w") as tar:
            tar.add(pair.root / "coordinator", ".", filter=_of_nobody)
        told["coordinator"] = pair.coordinator.key.fingerprint
    (folder / TOLD).write_text(json.dumps(told, indent=1) + "\n")
    keep_interfaces(folder)


def keep_interfaces(folder: Path = KEPT) -> None:
    """A line for each thing that a client of an HTTP interface can rely on."""
    lines = (
        json.dumps([service, name, *one]) for service, all_ in all_promises().items() for name, one in all_.items()
    )
    (folder / INTERFACES).write_text("[\n" + ",\n".join(sorted(lines)) + "\n]\n")


def told_of(ledger: Any) -> dict[str, Any]:
    charges = {
        release: [c.terms.kind, c.terms.dataset, c.state.value, str(c.loss.rho.units), c.loss.delta]
        for release, c in ledger.charges().items()
    }
    return {"charges": charges, "length": ledger.length, "head": ledger.summit().head}


def _of_nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    return member.replace(uid=0, gid=0, uname="", gname="", mtime=0, deep=False)


def _published(pair: Consortium) -> str:
    release = pair.propose(title="published")
    for name in [*pair.homes] * 3:
        pair.step(name)
    assert pair.state(release) == "published"
    return release


def _request() -> RegressionRequest:
    return RegressionRequest(
        dataset="main", target="age", features=("bmi",), method="ssp", epsilon=1.0, delta=1e-6, nonce="1" * 64
    )


def build(name: str, drawn: world.Drawn) -> dict[str, Any]:
    if name.startswith("release_"):
        mechanism = name.removeprefix("release_")
        return {**documents.release(mechanism, drawn), "files": documents.files_of_pyarrow(mechanism, drawn)}
    makers: dict[str, Callable[[], dict[str, Any]]] = {
        "exchange": lambda: documents.exchange("proved"),
        "exchange_trusted": lambda: documents.exchange("trusted"),
        "records": lambda: records.everything(drawn),
        "encoding": lambda: {**figures.encoding(), **figures.arithmetic()},
        "plans": figures.plans,
        "statements": figures.statements,
        "fits": lambda: figures.fits(drawn),
        LOOSE: figures.forecasts,
    }
    return makers[name]()


def draw() -> world.Drawn:
    """Box, nonce and files as they come out now."""
    return {
        "pyarrow": pa.__version__,
        "linkage": records.sealed_linkage_key().hex(),
        "request": records.sign_request(),
        "bodies": {m: {n: b.hex() for n, b in world.bodies_of(m).items()} for m in (*world.RELEASES, *world.KEYED)},
        "matrices": {m: world.parquet_of(m).hex() for m in (*world.RELEASES, *world.KEYED)},
    }


def write(name: str, content: object) -> None:
    """As JSON that shows in a diff what has changed."""
    (world.FOLDER / f"{name}.json").write_text(
        json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    )


def main() -> None:
    if "--draw" in sys.argv:
        write("drawn", draw())
    if "--keep" in sys.argv:
        keep()
    drawn = world.load("drawn")
    for name in (*FILES, LOOSE):
        write(name, build(name, drawn))


if __name__ == "__main__":
    main()
