"""Missing cells from a party's table to a fit: marked or at the midpoint, and said to whoever decides."""

import csv
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from commingle.party_agent.edge.api import LocalApi
from commingle.party_agent.edge.app import create_app
from commingle.party_agent.errors import ConflictError
from commingle.party_agent.home.tokens import EVERY_SCOPE, create_token
from commingle.party_agent.operate.doctor import examine_home
from commingle.services.client.release import Release
from commingle.shared.documents.schema import Attribute, NumericAttribute
from commingle.shared.documents.study import Crossed, CutNumber
from commingle.shared.documents.terms import MechanismName
from commingle.shared.estimation.cross_products import CrossProducts, products
from commingle.shared.runtime.settings import system_clock
from tests.party_agent.releasing import look, published
from tests.world.applications import in_turn
from tests.world.command import Command
from tests.world.consortium import SCHEMAS, Consortium, N, rows_of, write_csv
from tests.world.noise import no_noise
from tests.world.tampering import URL
from tests.world.transport import on_a_socket

BMI = NumericAttribute(name="bmi", lower=15, upper=45, missing="indicator")
AGE = NumericAttribute(name="age", lower=20, upper=80, unit="years", missing="midpoint")
SCHEMA: dict[str, tuple[Attribute, ...]] = {**SCHEMAS, "clinic": (AGE, BMI)}
SAID = [
    "age: 5 missing cells count as the midpoint 50 years",
    "bmi: 10 missing cells are marked in a column of their own, bmi[missing]",
]
PUBLIC = [
    "age: missing cells count as the midpoint 50 years",
    "bmi: missing cells are marked in a column of their own, bmi[missing]",
]


@pytest.fixture
def gaps(pair: Consortium) -> Consortium:
    """Cells of the clinic's table are empty: every fourth BMI, every eighth age."""
    rows = [
        {**row, "bmi": "" if i % 4 == 0 else row["bmi"], "age": "" if i % 8 == 0 else row["age"]}
        for i, row in enumerate(rows_of("clinic"))
    ]
    write_csv(pair.table("clinic"), rows)
    with pair.agent("clinic") as agent:
        pair.register(agent, replace=True, attributes=SCHEMA["clinic"])
    return pair


def release_of(
    gaps: Consortium,
    mechanism: MechanismName,
    share: float | None = None,
    attributes: tuple[Attribute, ...] = (AGE, BMI),
) -> Release:
    schemas = {**SCHEMA, "clinic": attributes}
    release = gaps.propose(mechanism=mechanism, schemas=schemas, first_stage_share=share)
    look(gaps, *5 * ("clinic", "insurer"), draw=no_noise)
    return published(gaps, release)


@pytest.mark.parametrize("mechanism", ["dgm", "moments"])
def test_release_without_noise_has_the_marks_and_zeros_beside_them(gaps: Consortium, mechanism: MechanismName) -> None:
    found = release_of(gaps, mechanism)
    assert found.columns == ("(intercept)", "age", "bmi", "bmi=missing", "charges")
    held = sorted(csv.DictReader(gaps.table("clinic").read_text().splitlines()), key=lambda row: row["subject"])
    marks = np.array([not row["bmi"] for row in held])
    bmi = np.array([np.clip(float(row["bmi"] or 30), 15, 45) for row in held])
    age = np.array([np.clip(float(row["age"] or 50), 20, 80) for row in held])
    encoded = np.column_stack([np.ones(N), (age - 50) / 30, (bmi - 30) / 15, marks])
    assert found.prepared.gram[:4, :4] == pytest.approx(encoded.T @ encoded, abs=0.02)
    fit = found.fit("charges")
    assert fit.terms == ("(intercept)", "age", "bmi", "bmi[missing]")
    compared = ", which is compared with bmi = 30, the middle of its bounds"
    assert fit.imputed == tuple(f"{said}{compared}" if said.startswith("bmi") else said for said in PUBLIC)


@pytest.mark.parametrize("mechanism", ["rmgm", "moments"])
def test_first_stage_sums_marks_too_and_the_release_verifies(gaps: Consortium, mechanism: MechanismName) -> None:
    found = release_of(gaps, mechanism, 0.25)
    assert found.columns == ("(intercept)", "scaled[age]", "scaled[bmi]", "scaled[bmi=missing]", "scaled[charges]")
    sums = gaps.coordinator.found(found.id).statement("clinic").sums
    assert sums is not None
    assert len(sums) == 3 + 2
    assert sums[2] == pytest.approx(10 << 15)
    assert found.prepared.gram.shape == (5, 5)


def test_numbers_are_registered_and_a_study_releases_the_intervals_they_are_in(gaps: Consortium) -> None:
    cut = CutNumber.model_validate({**BMI.model_dump(), "cuts": (20.0, 30.0)}).as_levels
    with gaps.agent("clinic") as agent, pytest.raises(ConflictError, match="intervals of a number"):
        gaps.register(agent, replace=True, attributes=(AGE, cut))
    found = release_of(gaps, "moments", attributes=(cut,))
    cells = [row["bmi"] for row in csv.DictReader(gaps.table("clinic").read_text().splitlines())]
    places = [3 if not cell else int(np.digitize(float(cell), [20, 30])) for cell in cells]
    counts = CrossProducts.of(found.prepared)
    labels, rows = counts.levels("bmi")
    expected = np.bincount(places)
    assert labels == ("[15, 20)", "[20, 30)", "[30, 45]", "missing")
    assert counts.sums(products(rows, counts.present("bmi")[None]))[0] == pytest.approx(expected, abs=0.05)
    assert found.fit("charges").terms == ("(intercept)", "bmi[[20, 30)]", "bmi[[30, 45]]", "bmi[missing]")


def test_parts_are_registered_and_a_study_releases_their_pairs(gaps: Consortium) -> None:
    age = AGE.model_copy(update={"missing": "indicator"})
    parts = (
        CutNumber.model_validate({**one.model_dump(), "cuts": at}).as_levels
        for one, at in ((BMI, (20.0, 30.0)), (age, (50.0,)))
    )
    pairs = Crossed.model_validate({"name": "both", "cross": tuple(parts)}).as_levels
    with gaps.agent("clinic") as agent:
        with pytest.raises(ConflictError, match="made of others"):
            gaps.register(agent, replace=True, attributes=(pairs,))
        gaps.register(agent, replace=True, attributes=(age, BMI))
    counts = CrossProducts.of(release_of(gaps, "moments", attributes=(pairs,)).prepared)
    held = list(csv.DictReader(gaps.table("clinic").read_text().splitlines()))
    places = [
        2 * int(np.digitize(float(row["bmi"]), [20, 30])) + int(float(row["age"]) >= 50)
        if row["bmi"] and row["age"]
        else 6
        for row in held
    ]
    labels, rows = counts.levels("both")
    assert labels[:2] == ("[15, 20), [20, 50)", "[15, 20), [50, 80]")
    found = counts.sums(products(rows, counts.present("both")[None]))[0]
    assert found == pytest.approx(np.bincount(places, minlength=7), abs=0.05)


def words_told(gaps: Consortium, *, token: bool) -> Any:
    with gaps.agents("clinic") as agents:
        way = in_turn(create_app, LocalApi(agents, loops=None, peer_is_operator=not token))
        made = create_token(agents.home, name="etl", scopes=EVERY_SCOPE, lifetime=None, now=agents.clock())
        headers = {"Authorization": f"Bearer {made}"} if token else {}
        with httpx.Client(transport=way, base_url="http://agent", headers=headers) as client:
            return client.get("/v1/proposals").json()["items"][0]["missing"]


@pytest.mark.parametrize(("token", "said"), [(False, SAID), (True, PUBLIC)])
def test_counts_are_told_to_the_operator_and_to_no_token(gaps: Consortium, token: bool, said: list[str]) -> None:
    gaps.propose(schemas=SCHEMA)
    gaps.step("clinic")
    assert words_told(gaps, token=token) == said


def test_whoever_registers_looks_over_or_approves_is_told_what_is_imputed(
    gaps: Consortium, tmp_path: Path, run: Command
) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps([attribute.model_dump(mode="json") for attribute in SCHEMA["clinic"]]))
    home = gaps.homes["clinic"]
    source = ("--source", gaps.table("clinic"), "--subject-id", "subject", "--schema", schema)
    registered = run.out("party", "datasets", "add", "main", "--home", home.root, *source, "--replace", "--listed")
    (check,) = (check for check in examine_home(home, now=system_clock()) if check.name == "data sets")
    (home.root / "policy.json").write_text(json.dumps({"mechanisms": ["rmgm"], "max_epsilon": 2}))
    gaps.clock_shows = system_clock()
    release = gaps.propose(schemas=SCHEMA)
    gaps.step("clinic")
    with on_a_socket(gaps.coordinator.handle) as url:
        file = home.consortium().coordinator_file
        file.write_text(file.read_text().replace(URL, url))
        code, _, approving = run("party", "approve", release[:16], "--home", home.root, "--yes")
    assert code == 0
    for words in SAID:
        assert words in registered
        assert words in check.found
        assert words in approving
