"""A clinic with one wide table, its agent, and requests to it."""

from functools import cache
from pathlib import Path
from typing import Any, get_args

import numpy as np

from commingle.party_agent.home.datasets import DatasetRequest
from commingle.party_agent.home.home import Home
from commingle.party_agent.home.policy import Policy, RegressionPolicy
from commingle.party_agent.ledger.store import Regression
from commingle.party_agent.private.sources import FileSource
from commingle.party_agent.rounds.agent import Agent
from commingle.shared.documents.model import decode
from commingle.shared.documents.regression import RegressionMethod, RegressionRequest, RegressionResult
from commingle.shared.documents.schema import Attribute, BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.release.charge import Charge
from tests.world.consortium import Consortium, kept_folder, write_csv

ROWS = 3000
ABOUT = 2500
"""What everybody may know of how many they are."""
ATTRIBUTES: tuple[Attribute, ...] = (
    NumericAttribute(name="charges", lower=0, upper=100),
    NumericAttribute(name="age", lower=20, upper=80),
    BinaryAttribute(name="smoker", levels=("no", "yes")),
    CategoricalAttribute(name="blood", levels=("0", "A", "B")),
)
GENEROUS = Policy(regressions=RegressionPolicy(max_epsilon=3.0))
EVERYTHING: frozenset[RegressionMethod] = frozenset(get_args(RegressionMethod))


def table(rows: int = ROWS, *, seed: int = 1) -> list[dict[str, str]]:
    """Charges of 10 + 0.5 age + 20 smoker, within their bounds but for rare rows."""
    draw = np.random.default_rng(seed)
    age, smoker = draw.uniform(20, 80, rows), draw.integers(2, size=rows)
    charges = 10 + 0.5 * age + 20 * smoker + draw.normal(0, 3, rows)
    blood = draw.choice(["0", "A", "B"], rows)
    return [
        {"subject": f"s{i}", "charges": f"{c:.3f}", "age": f"{a:.3f}", "smoker": ("no", "yes")[s], "blood": str(b)}
        for i, (c, a, s, b) in enumerate(zip(charges, age, smoker, blood, strict=True))
    ]


def clinic(
    root: Path, *, policy: Policy = GENEROUS, epsilon_cap: float = 10.0, rows: int = ROWS, keyed: bool = False
) -> Consortium:
    """Made once in this process, then copied."""
    consortium = Consortium(root)
    consortium.homes["clinic"] = Home(root / "clinic")
    consortium.copied_from(_made_once(policy.model_dump_json(), epsilon_cap, rows, keyed))
    return consortium


@cache
def _made_once(policy: str, epsilon_cap: float, rows: int, keyed: bool) -> Path:
    consortium = Consortium(kept_folder())
    consortium.add("clinic", policy=Policy.model_validate_json(policy), epsilon_cap=epsilon_cap)
    write_csv(consortium.table("clinic"), table(rows))
    with consortium.agent("clinic") as agent:
        register(consortium, agent, keyed=keyed)
    consortium.coordinator.close()
    return consortium.root


def register(
    consortium: Consortium,
    agent: Agent,
    *,
    replace: bool = False,
    attributes: tuple[Attribute, ...] = ATTRIBUTES,
    keyed: bool = False,
) -> None:
    wanted = DatasetRequest(
        name="main",
        source=FileSource(path=str(consortium.table("clinic"))),
        subject_id="subject",
        subjects="keyed" if keyed else "listed",
        attributes=attributes,
    )
    agent.datasets.register(wanted, replace=replace)


def request(nonce: int = 1, *, keyed: bool = False, **changes: Any) -> RegressionRequest:
    fields = {
        "dataset": "main",
        "target": "charges",
        "features": ("age", "smoker"),
        "method": "ssp",
        "epsilon": 1.0,
        "delta": 1e-6,
        "nonce": f"{nonce:064x}",
    }
    about = {"n": ABOUT} if keyed else {}
    return RegressionRequest(**{**fields, **about, **changes})


def only_charge(agent: Agent) -> Charge:
    (charge,) = agent.ledger.charges().values()
    return charge


def result_of(regression: Regression) -> RegressionResult:
    assert regression.document is not None
    return decode(RegressionResult, regression.document.envelope.payload_bytes)
