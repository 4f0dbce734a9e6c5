import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from commingle.services.errors import TableError
from commingle.services.simulation.dataset import StudyTable, missing_words
from commingle.services.simulation.parties import PartiesError, Wanted, split_evenly
from commingle.services.simulation.preparing import prepare
from commingle.shared.documents.schema import BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.documents.study import Crossed
from commingle.shared.documents.subject_ids import IdRules
from commingle.shared.errors import CommingleError, SpecError
from commingle.shared.runtime.errors import SettingsError

ROWS = 20


def _table(folder: Path, name: str = "table.csv", *, start: int = 0, **columns: str) -> Path:
    rows = [[eval(code, {"i": i}) for code in columns.values()] for i in range(start, start + ROWS)]  # noqa: S307 - own code
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


def _parties(folder: Path, *parties: dict[str, Any]) -> Path:
    path = folder / "parties.json"
    path.write_text(json.dumps({"parties": parties}))
    return path


def _two_tables(folder: Path, one: dict[str, str], two: dict[str, str], *, start: int = 0, **choices: Any) -> Wanted:
    """Of two members; the second's rows begin later."""
    _table(folder, "one.csv", start=0, **one)
    _table(folder, "two.csv", start=start, **two)
    parties = _parties(folder, *({"name": name, "table": f"{name}.csv"} for name in ("one", "two")))
    return Wanted(table=None, target="y", parties=parties, **choices)


def _shape(dataset: StudyTable) -> dict[str, list[str]]:
    return {party: [attribute.name for attribute in own] for party, own in dataset.parties.items()}


def test_even_split_gives_the_target_to_the_last_party(tmp_path: Path) -> None:
    table = _table(tmp_path, a="i", y="i*i", b="-i", c="i%7", constant="5", d="i%3")
    dataset = prepare(Wanted(table=table, target="y", parties=3))
    assert _shape(dataset) == {"member-1": ["a", "b"], "member-2": ["c"], "member-3": ["d", "y"]}
    assert any("'constant' is left out: it does not vary" in notice for notice in dataset.notices)
    assert any("simulation only" in notice for notice in dataset.notices)


@pytest.mark.parametrize(("parties", "sizes"), [(1, [4]), (2, [2, 2]), (3, [1, 1, 2]), (4, [1, 1, 1, 1])])
def test_even_split_leaves_no_party_without_columns(parties: int, sizes: list[int]) -> None:
    assert [len(columns) for columns in split_evenly(["a", "b", "c"], "y", parties).values()] == sizes


def test_more_parties_than_columns_are_refused() -> None:
    with pytest.raises(PartiesError, match="5 members cannot share 3 features"):
        split_evenly(["a", "b", "c"], "y", 5)


def test_features_and_subject_id_limit_what_takes_part(tmp_path: Path) -> None:
    table = _table(tmp_path, key="'k%d' % i", a="i", b="-i", y="i")
    dataset = prepare(Wanted(table=table, target="y", parties=1, features=("b",), subject_id="key"))
    assert _shape(dataset) == {"member-1": ["b", "y"]}
    assert dataset.table.subjects[3] == "k3"


def _pandas_table(folder: Path, *, rows: int) -> Path:
    """A sample with the index that pandas writes beside it, and identifiers in columns of their own."""
    draw = np.random.default_rng(0)
    columns = {
        "age": draw.integers(20, 80, rows),
        "height": draw.uniform(150, 200, rows),
        "record": draw.permutation(rows) + 70_000,
        "code": [f"p-{i}" for i in draw.permutation(rows)],
        "y": draw.permutation(rows),
    }
    path = folder / "table.parquet"
    pd.DataFrame(columns, index=draw.permutation(rows)).to_parquet(path)
    return path


def test_identifiers_of_rows_are_no_features_unless_they_are_chosen(tmp_path: Path) -> None:
    table = _pandas_table(tmp_path, rows=200)
    dataset = prepare(Wanted(table=table, target="y", parties=1))
    assert _shape(dataset) == {"member-1": ["age", "height", "y"]}
    for name in ("record", "code", "__index_level_0__"):
        assert any(f"'{name}' is left out: it looks like an identifier" in notice for notice in dataset.notices)
    chosen = prepare(Wanted(table=table, target="y", parties=1, features=("age", "record")))
    assert _shape(chosen) == {"member-1": ["age", "record", "y"]}


def test_few_rows_may_all_differ_and_an_index_is_known_by_its_name(tmp_path: Path) -> None:
    dataset = prepare(Wanted(table=_pandas_table(tmp_path, rows=40), target="y", parties=1))
    assert _shape(dataset) == {"member-1": ["age", "height", "record", "code", "y"]}


def test_format_of_a_table_is_said_among_the_notices(tmp_path: Path) -> None:
    table = _table(tmp_path, a="i", b="-i", y="i")
    table.write_text(table.read_text().replace(",", "\t"))
    dataset = prepare(Wanted(table=table, target="y", parties=1))
    assert _shape(dataset) == {"member-1": ["a", "b", "y"]}
    assert dataset.notices[0].startswith("table.csv looks like this: tab between columns.")


def test_column_called_subject_id_identifies_rows(tmp_path: Path) -> None:
    dataset = prepare(Wanted(table=_table(tmp_path, subject_id="i", a="i", y="-i"), target="y", parties=2))
    assert _shape(dataset) == {"member-1": ["a"], "member-2": ["y"]}


def test_rows_without_target_or_level_are_left_out_and_gaps_in_numbers_are_not(tmp_path: Path) -> None:
    table = _table(tmp_path, a="'' if i == 0 else i", kind="'' if i == 1 else 'abc'[i % 3]", y="'' if i == 2 else i")
    dataset = prepare(Wanted(table=table, target="y", parties=2))
    assert dataset.table.n == ROWS - 2
    assert dataset.attributes[0] == NumericAttribute(name="a", lower=1, upper=19, missing="midpoint")
    assert "2 of 20 rows are left out because a value is missing: kind 1, y 1." in dataset.notices


def test_missing_cells_are_marked_on_request_and_no_row_is_lost_but_those_without_target(tmp_path: Path) -> None:
    table = _table(tmp_path, a="'' if i == 0 else i", kind="'' if i == 1 else 'abc'[i % 3]", y="'' if i == 2 else i")
    dataset = prepare(Wanted(table=table, target="y", parties=2, missing="indicator"))
    assert dataset.table.n == ROWS - 1
    assert dataset.attributes[:2] == (
        NumericAttribute(name="a", lower=1, upper=19, missing="indicator"),
        CategoricalAttribute(name="kind", levels=("a", "b", "c"), missing="indicator"),
    )
    [first, second] = [missing_words(own, dataset.table) for own in dataset.parties.values()]
    assert first == ["a: 1 missing cells are marked in a column of their own, a[missing]"]
    assert second == ["kind: 1 missing cells are marked in a column of their own, kind[missing]"]


def test_what_counts_as_the_midpoint_is_said_with_its_count(tmp_path: Path) -> None:
    table = _table(tmp_path, a="'' if i % 4 == 0 else i", b="i", y="i")
    dataset = prepare(Wanted(table=table, target="y", parties=2))
    [first, second] = [missing_words(own, dataset.table) for own in dataset.parties.values()]
    assert first == ["a: 5 missing cells count as the midpoint 10"]
    assert second == []


def test_categorical_that_is_mostly_missing_costs_a_column_and_no_rows(tmp_path: Path) -> None:
    table = _table(tmp_path, a="i", kind="'abc'[i % 3] if i < 9 else ''", y="i")
    dataset = prepare(Wanted(table=table, target="y", parties=2))
    assert dataset.table.n == ROWS
    assert "Column 'kind' is left out: most of its values are missing." in dataset.notices


def test_parties_of_one_table_hold_the_columns_they_are_given(tmp_path: Path) -> None:
    parties = _parties(
        tmp_path,
        {"name": "clinic", "columns": ["y", "kind"], "categorical": ["kind"]},
        {"name": "laboratory", "columns": ["b"]},
    )
    table = _table(tmp_path, a="i", b="i", kind="i % 3", y="i")
    dataset = prepare(Wanted(table=table, target="y", parties=parties))
    assert _shape(dataset) == {"clinic": ["y", "kind"], "laboratory": ["b"]}
    assert dataset.parties["clinic"][1].kind == "categorical"


def test_tables_of_several_parties_are_joined_on_the_subjects_all_hold(tmp_path: Path) -> None:
    _table(tmp_path, "one.csv", seqn="i", a="i", y="2*i")
    _table(tmp_path, "two.csv", start=5, person="'%d ' % i", b="-i")
    parties = _parties(
        tmp_path,
        {"name": "one", "table": "one.csv", "subject_id": "seqn"},
        {"name": "two", "table": "two.csv", "subject_id": "person"},
    )
    dataset = prepare(Wanted(table=None, target="y", parties=parties, common_subjects=True))
    assert dataset.table.n == ROWS - 5
    a, b = (dataset.table.columns[name].to_numpy() for name in "ab")
    assert (a == -b).all()
    assert "5 of one's 20 people are not held by all and are left out." in dataset.notices


def test_parties_that_hold_other_subjects_are_refused_as_agents_would(tmp_path: Path) -> None:
    one, two = {"subject_id": "i", "a": "i", "y": "2*i"}, {"subject_id": "i", "b": "-i"}
    with pytest.raises(TableError, match=r"other people \(one 20, two 20; all of them 15\).*dgm are listed") as refused:
        prepare(_two_tables(tmp_path, one, two, start=5, listed=("dgm",)))
    assert "--subjects keyed" in refused.value.remedy


@pytest.mark.parametrize(
    ("listed", "remedy"),
    [
        (("rmgm",), "or use --subjects keyed, with which lists may differ."),
        (("rmgm", "dgm"), "with which lists may differ, and rmgm or moments in place of dgm."),
    ],
)
def test_remedy_for_other_subjects_is_one_that_the_mechanisms_can_follow(
    tmp_path: Path, listed: tuple[str, ...], remedy: str
) -> None:
    one, two = {"subject_id": "i", "a": "i"}, {"subject_id": "i", "y": "-i"}
    wanted = _two_tables(tmp_path, one, two, start=5, listed=listed)
    with pytest.raises(TableError) as refused:
        prepare(wanted)
    assert str(refused.value.remedy).endswith(remedy)


def test_parties_of_keyed_subjects_keep_those_whom_not_all_hold(tmp_path: Path) -> None:
    """What the others hold counts for bounds and levels, and where a level is missing it costs a row of that party."""
    one = {"subject_id": "'%04d' % i", "a": "100 if i == 0 else i", "y": "'' if i == 1 else 2*i"}
    two = {"subject_id": "i", "kind": "'' if i == 24 else 'abc'[i % 3]"}
    dataset = prepare(_two_tables(tmp_path, one, two, start=5, id_rules=("digits/1",)))
    assert sorted(map(int, dataset.table.subjects)) == list(range(5, 20))
    assert sorted(map(int, dataset.others["one"].subjects)) == [0, 2, 3, 4]
    assert sorted(map(int, dataset.others["two"].subjects)) == [20, 21, 22, 23]
    assert list(dataset.others["one"].columns) == ["a", "y"]
    assert dataset.attributes[0] == NumericAttribute(name="a", lower=1, upper=100)
    said = "5 of one's 20 people are not held by all and are in its table all the same"
    assert any(notice.startswith(said) for notice in dataset.notices)


@pytest.mark.parametrize(
    ("ids", "others", "rule", "remedy"),
    [
        ("'%08d' % i", "i", "digits/1", "Check the columns that identify people."),
        (
            "'P-%06d' % i",
            "i",
            "digits-after:P-/1",
            "Their ids differ by a prefix: agree on --id-rule digits-after:P-/1.",
        ),
        ("'P-%06d' % i", "'P-%06d' % (900 + i)", None, "Check the columns that identify people."),
    ],
)
def test_ids_of_other_forms_are_joined_by_the_rule_that_is_proposed_and_not_without_it(
    tmp_path: Path, ids: str, others: str, rule: str | None, remedy: str
) -> None:
    wanted = _two_tables(tmp_path, {"subject_id": ids, "a": "i", "y": "2*i"}, {"subject_id": others, "b": "-i"})
    with pytest.raises(TableError, match="no person is held by every member") as refused:
        prepare(wanted)
    assert refused.value.remedy == remedy.format(rule)
    if rule is not None:
        dataset = prepare(replace(wanted, id_rules=(rule,)))
        assert sorted(map(int, dataset.table.subjects)) == list(range(ROWS))
        assert f"20 of 20 ids of one are written otherwise by {rule}." in dataset.notices
        assert not any("ids of two" in notice for notice in dataset.notices)


def test_several_columns_identify_subjects_each_by_its_rule(tmp_path: Path) -> None:
    rules: IdRules = ("text/1", "date/1")
    table = _table(tmp_path, who="'ANNA  %d' % (i // 2)", born="'1980010%d' % (1 + i % 2)", a="i", y="2*i")
    wanted = Wanted(table=table, target="y", parties=2, subject_id=("who", "born"), id_rules=rules)
    dataset = prepare(wanted)
    assert dataset.table.subjects[3] == '["anna 1","1980-01-02"]'
    assert _shape(dataset) == {"member-1": ["a"], "member-2": ["y"]}
    assert dataset.id_rules == rules
    with pytest.raises(TableError, match=r"column who \(text/1\): 10 duplicate subject ids"):
        prepare(replace(wanted, subject_id="who", id_rules=rules[:1]))
    with pytest.raises(TableError, match="20 subject ids do not follow their rule"):
        prepare(replace(wanted, subject_id="who", id_rules=rules[1:]))
    with pytest.raises(SpecError, match="2 rules"):
        prepare(replace(wanted, subject_id="who"))
    with pytest.raises(TableError, match="no column 'subject_id'"):
        prepare(replace(wanted, subject_id=None, id_rules=rules[:1]))


def test_schema_gives_bounds_and_decides_what_takes_part(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(
        '[{"kind": "numeric", "name": "a", "lower": 0, "upper": 100}, '
        '{"kind": "numeric", "name": "y", "lower": 0, "upper": 5}, '
        '{"kind": "numeric", "name": "z", "lower": 0, "upper": 5}]'
    )
    dataset = prepare(Wanted(table=_table(tmp_path, a="i", b="i", y="i"), target="y", parties=2, schema=schema))
    assert _shape(dataset) == {"member-1": ["a"], "member-2": ["y"]}
    assert dataset.attributes[1] == NumericAttribute(name="y", lower=0, upper=5)
    assert "Column 'b' is left out: the schema does not have it." in dataset.notices
    assert "Attribute 'z' of the schema is not in the table." in dataset.notices
    assert not any("simulation only" in notice for notice in dataset.notices)


def test_schema_that_crosses_attributes_is_refused(tmp_path: Path) -> None:
    parts = [BinaryAttribute(name=name, levels=("0", "1")) for name in ("a", "b")]
    crossed = Crossed(name="both", cross=(parts[0], parts[1])).as_levels
    (schema := tmp_path / "schema.json").write_text(f"[{crossed.model_dump_json()}]")
    with pytest.raises(SettingsError, match="makes attributes of others"):
        prepare(Wanted(table=_table(tmp_path, a="i", b="i", y="i"), target="y", parties=2, schema=schema))


BAD_OPTIONS: list[tuple[dict[str, Any], type[CommingleError], str]] = [
    ({"target": "absent"}, TableError, "no column 'absent'"),
    ({"target": "kind"}, TableError, "more than two levels"),
    ({"target": "constant"}, TableError, "the target 'constant' cannot be used"),
    ({"features": ("a", "absent")}, TableError, "no column 'absent'"),
    ({"features": ("constant",)}, TableError, "no column is left"),
    ({"parties": 9}, PartiesError, "9 members cannot share"),
    ({"schema": Path("absent.json")}, SettingsError, "cannot read absent.json"),
    ({"schema": Path(__file__)}, SpecError, "not a valid attribute schema"),
    ({"parties": Path("absent.json")}, SettingsError, "cannot read absent.json"),
    ({"table": Path("absent.csv")}, TableError, "cannot read absent.csv"),
    ({"table": None}, PartiesError, "there is no table"),
]


@pytest.mark.parametrize(("options", "error", "said"), BAD_OPTIONS)
def test_options_that_make_no_sense_are_refused_with_one_reason(
    tmp_path: Path, options: dict[str, Any], error: type[CommingleError], said: str
) -> None:
    table = _table(tmp_path, a="i", kind="'abc'[i % 3]", constant="1", y="i*i")
    with pytest.raises(error, match=said):
        prepare(Wanted(**{"table": table, "target": "y", "parties": 2, **options}))


BAD_PARTIES: list[tuple[list[dict[str, Any]], type[CommingleError], str]] = [
    ([], SettingsError, "parties"),
    ([{"name": "Clinic A", "columns": ["y"]}], SettingsError, "party Clinic A, name"),
    ([{"name": "a", "columns": ["y"], "color": 1}], SettingsError, "party a, color"),
    ([{"name": "a", "columns": ["y"]}, {"name": "a", "columns": ["a"]}], PartiesError, "the same name"),
    ([{"name": "a", "columns": ["y"]}, {"name": "b", "table": "t.csv"}], PartiesError, "some members have a table"),
    ([{"name": "a", "columns": ["y"]}, {"name": "b", "columns": []}], PartiesError, "b is given no columns"),
    ([{"name": "a", "columns": ["y"]}, {"name": "b", "columns": ["q"]}], TableError, "no column 'q'"),
    ([{"name": "a", "columns": ["y", "a"]}, {"name": "b", "columns": ["a"]}], PartiesError, "two members hold 'a'"),
    ([{"name": "a", "columns": ["a"]}], PartiesError, "no member holds 'y'"),
    ([{"name": "a", "columns": ["a", "y"]}, {"name": "b", "columns": ["constant"]}], PartiesError, "left without"),
    ([{"name": "a", "table": "table.csv"}], PartiesError, "--table was given too"),
]


@pytest.mark.parametrize(("parties", "error", "said"), BAD_PARTIES)
def test_parties_file_that_makes_no_sense_is_refused(
    tmp_path: Path, parties: list[dict[str, Any]], error: type[CommingleError], said: str
) -> None:
    table = _table(tmp_path, a="i", constant="1", y="i*i")
    with pytest.raises(error, match=said):
        prepare(Wanted(table=table, target="y", parties=_parties(tmp_path, *parties)))


def test_tables_without_common_subjects_or_with_common_columns_are_refused(tmp_path: Path) -> None:
    _table(tmp_path, "one.csv", subject_id="i", a="i")
    _table(tmp_path, "two.csv", start=100, subject_id="i", y="i")
    _table(tmp_path, "three.csv", subject_id="i", y="i", a="-i")
    one, two, three = ({"name": name, "table": f"{name}.csv"} for name in ("one", "two", "three"))
    with pytest.raises(TableError, match="no person is held by every member"):
        prepare(Wanted(table=None, target="y", parties=_parties(tmp_path, one, two)))
    with pytest.raises(PartiesError, match="two members hold 'a'"):
        prepare(Wanted(table=None, target="y", parties=_parties(tmp_path, one, three)))


def test_too_few_complete_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="9 complete rows are too few"):
        prepare(Wanted(table=_table(tmp_path, a="i", y="i if i < 9 else ''"), target="y", parties=1))
