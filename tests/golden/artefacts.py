"""Whole artefacts of one version, kept as files: what ADR 32 promises that later versions read.

A party's home with its ledger is kept as its backup, and a coordinator's folder as a tar file. They are written by
`python -m tests.golden.make --keep`: as often as a format changes until 1.0, and after it never again, but a new folder
beside this one for each version that writes another format.
"""

import json
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from commingle.party_agent.operate.backup import write_backup
from commingle.party_agent.regression.service import Regressions
from commingle.shared.documents.regression import RegressionRequest
from tests.party_agent.regression.asking import GENEROUS
from tests.world.consortium import AUTOMATIC, Consortium, consortium_of

KEPT = Path(__file__).parent / "kept"
HOME, COORDINATOR, TOLD = "home.tar", "coordinator.tar", "told.json"
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
        write_backup(pair.homes[PARTY], folder / HOME)
        (folder / HOME).chmod(0o644)  # its keys are nobody's
        pair.coordinator.close()
        with tarfile.open(folder / COORDINATOR, "w") as tar:
            tar.add(pair.root / "coordinator", ".", filter=_of_nobody)
        told["coordinator"] = pair.coordinator.key.fingerprint
    (folder / TOLD).write_text(json.dumps(told, indent=1) + "\n")


def told_of(ledger: Any) -> dict[str, Any]:
    """What a ledger tells."""
    charges = {
        c.release: [c.terms.kind, c.terms.dataset, c.state.value, str(c.rho.units), c.delta] for c in ledger.charges()
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
