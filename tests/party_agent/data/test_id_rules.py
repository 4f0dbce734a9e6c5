"""Parties whose tables write the same people's ids in several ways, with a rule in the spec and without one."""

import json
from pathlib import Path
from typing import Any

import pytest

from commingle.__main__ import main
from commingle.party_agent.data.datasets import DatasetRequest
from commingle.party_agent.operate.doctor import examine_home
from commingle.party_agent.private.sources import FileSource
from commingle.shared.documents.errors import SpecError
from commingle.shared.documents.subject_ids import IdRules, SubjectColumns
from commingle.shared.runtime.settings import system_clock
from tests.world.consortium import SCHEMAS, Consortium, N, rows_of, write_csv

DIGITS: IdRules = ("digits/1",)
PERSON: IdRules = ("text/1", "date/1")


def write_ids(pair: Consortium, name: str, id_of: Any) -> None:
    """The party's table with other columns of ids, made from each row's number."""
    rows = [{**id_of(int(row.pop("subject")[1:])), **row} for row in rows_of(name)]
    write_csv(pair.table(name), rows)


def register(
    pair: Consortium, name: str, subject_id: SubjectColumns, id_rules: IdRules | None, *, keyed: bool = False
) -> None:
    request = DatasetRequest(
        subjects="keyed" if keyed else "listed",
        name="main",
        source=FileSource(path=str(pair.table(name))),
        subject_id=subject_id,
        id_rules=id_rules,
        attributes=SCHEMAS[name],
    )
    with pair.agent(name) as agent:
        agent.datasets.register(request, replace=True)


def state_after_a_round(pair: Consortium, id_rules: IdRules | None) -> str:
    pair.enrol_everybody()
    release = pair.coordinator.propose(pair.spec().model_copy(update={"id_rules": id_rules}))
    for name in ("clinic", "insurer") * 3:
        pair.step(name)
    return pair.state(release)


@pytest.mark.parametrize(("id_rules", "state"), [(DIGITS, "published"), (None, "aborted")])
def test_leading_zeros_and_blanks_are_matched_by_the_rule_and_abort_without_it(
    pair: Consortium, id_rules: IdRules | None, state: str
) -> None:
    write_ids(pair, "clinic", lambda i: {"subject": f"0000{100_000 + i}"})
    write_ids(pair, "insurer", lambda i: {"subject": f"{100 + i // 1000} {i % 1000:03}"})
    for name in ("clinic", "insurer"):
        register(pair, name, "subject", id_rules)
    assert state_after_a_round(pair, id_rules) == state


def test_several_columns_identify_a_person_together(pair: Consortium) -> None:
    write_ids(pair, "clinic", lambda i: {"name": f"ANNA  {i // 2}", "born": f"1980-01-{1 + i % 2:02}"})
    write_ids(pair, "insurer", lambda i: {"who": f"Anna {i // 2}", "birthday": f"1980010{1 + i % 2}"})
    register(pair, "clinic", ("name", "born"), PERSON)
    register(pair, "insurer", ("who", "birthday"), PERSON)
    assert state_after_a_round(pair, PERSON) == "published"


def test_data_set_registered_with_other_rules_waits_and_both_are_said_for_members_to_agree_on(pair: Consortium) -> None:
    assert state_after_a_round(pair, DIGITS) == "proposed"
    with pair.agent("clinic") as agent:
        (proposal,) = agent.proposals.all()
        said = " ".join(proposal.findings)
        assert "as digits/1 writes them, and data set main is registered with exact/1" in said
        assert "agree on rules" in said


def test_rules_and_columns_must_be_as_many(pair: Consortium) -> None:
    with pytest.raises(SpecError, match="2 rules"):
        register(pair, "clinic", "subject", PERSON)


def test_counts_of_ids_are_told_to_the_operator_by_command_and_doctor(
    pair: Consortium, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_ids(pair, "clinic", lambda i: {"subject": f"{i:04}"})
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps([attribute.model_dump(mode="json") for attribute in SCHEMAS["clinic"]]))
    home = pair.homes["clinic"]
    add = ["party", "datasets", "add", "main", "--home", home.root, "--source", pair.table("clinic"), "--replace"]
    options = ["--subject-id", "subject", "--id-rule", "digits/1", "--schema", schema]
    with pytest.raises(SystemExit):
        main([str(part) for part in (*add, *options)])
    assert "40 ids are written otherwise by digits/1" in capsys.readouterr().out

    def doctor() -> str:
        (check,) = (check for check in examine_home(home, now=system_clock()) if check.name == "data sets")
        return check.found

    assert doctor().startswith("1 registered: main (40 subjects, read ")
    assert "; 40 ids are written otherwise by digits/1; ids are digits (1 to 2) (digits/1)." in doctor()
    write_ids(pair, "clinic", lambda i: {"subject": ["", "x9", "7"][i] if i < 3 else str(i)})
    with pytest.raises(SystemExit):
        main([str(part) for part in (*add, *options)])
    said = capsys.readouterr().err.replace("\n", " ")
    for expected in ("1 subject ids are missing", "1 subject ids do not follow", "1 duplicate subject ids"):
        assert expected in said
    assert N == 40
