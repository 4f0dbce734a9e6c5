"""`commingle study`: anybody can write a study, and knows what will be said to it before anybody is asked."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from commingle.party_agent.home.policy import Policy, examine_terms
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.study import CutNumber, Study
from commingle.shared.release.checks import Share, draft, tried, two_digits
from commingle.shared.release.plan import plan_block
from tests.party_agent.rounds.test_proposals import STUDY
from tests.world.command import Command, run_command
from tests.world.consortium import Consortium, Noise
from tests.world.local_api import operator_app, serving_at

NOW = datetime(2025, 1, 1, tzinfo=UTC)
AGE = {"kind": "numeric", "name": "age", "lower": 18, "upper": 100}
STAY = {"kind": "numeric", "name": "stay", "lower": 0, "upper": 30}
SEX = {"kind": "categorical", "name": "sex", "levels": ["f", "m", "x"]}
SIZES = (2, 50, 1999, 150_000, 2_000_000)
Document = dict[str, Any]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys, "study")


@pytest.fixture
def schemas(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "ward.json").write_text(json.dumps([STAY, SEX]))
    (tmp_path / "lab.json").write_text(json.dumps([AGE]))
    return "--member", f"ward={tmp_path / 'ward.json'}", "--member", f"lab/bloods={tmp_path / 'lab.json'}"


@pytest.mark.parametrize("n", SIZES)
def test_default_study_passes_the_default_policy(n: int) -> None:
    shares = {name: Share("main", (NumericAttribute(name=name, lower=0, upper=1),)) for name in ("a", "b")}
    spec = tried(draft(shares, study="x", n=n, target="a"), now=NOW)
    assert [examine_terms(spec, party, plan_block(spec, party), Policy()) for party in spec.parties] == [(), ()]
    assert spec.delta < 1 / spec.n


def test_new_study_that_the_default_policy_refuses_says_so_once_with_what_to_type(
    command: Command, tmp_path: Path, schemas: tuple[str, ...]
) -> None:
    asked = ("--title", "x", "--n", 2000, "--target", "stay", "--out", tmp_path / "study.json", "--replace")
    for epsilon, said in ((1000, ' Type "epsilon": 3 or less.'), (3, None)):
        out = " ".join(command("new", *schemas, *asked, "--epsilon", epsilon)[1].split())
        assert out.count("The default policy would refuse it: ") == (said is not None)
        assert said is None or said in out


def test_number_of_people_keeps_two_digits() -> None:
    assert [two_digits(n) for n in (2, 9, 47, 143, 1873, 20_000)] == [2, 9, 47, 140, 1900, 20_000]


def test_study_is_written_of_schemas_and_options_alone(
    command: Command, tmp_path: Path, schemas: tuple[str, ...]
) -> None:
    out = tmp_path / "study.json"
    wanted = ("--title", "Stays", "--n", 1873, "--target", "stay", "--columns", "stay,lab.age", "--out", out)
    made = command.json("new", *schemas, *wanted)["study"]
    assert made == {**json.loads(out.read_text()), **made}
    assert (made["n"], made["target"], made["mechanism"]) == (1900, "stay", "moments")
    asked = [(p["name"], p["dataset"], [a["name"] for a in p["attributes"]]) for p in made["parties"]]
    assert asked == [("ward", "main", ["stay"]), ("lab", "bloods", ["age"])]
    answers = command.json("check", out)["answers"]
    assert [(each["party"], each["allowed"]) for each in answers] == [("ward", True), ("lab", True)]
    assert "Not compared with what members registered" in command("check", out)[1]
    assert "exists" in command("new", *schemas, *wanted)[2]
    bends = 'give every number "cuts" (study new --cut), or say "first_stage_share": null'
    assert bends in " ".join(command("new", *schemas, *wanted, "--replace")[1].split())
    assert bends in " ".join(command("check", out)[1].split())
    assert bends not in " ".join(command("new", *schemas, *wanted, "--replace", "--one-stage")[1].split())
    assert bends not in " ".join(command("check", out)[1].split())


@pytest.mark.parametrize(("asked", "mechanism"), [((), "rmgm"), (("--mechanism", "dgm"), "dgm")])
def test_preset_writes_the_terms_of_a_paper(
    command: Command, tmp_path: Path, schemas: tuple[str, ...], asked: tuple[str, ...], mechanism: str
) -> None:
    named = ("--title", "x", "--n", 1873, "--preset", "wu2022", *asked, "--out", tmp_path / "study.json")
    command.json("new", *schemas, *named)
    made = Study.model_validate_json((tmp_path / "study.json").read_text())
    assert (made.mechanism, made.calibration, made.subjects) == (mechanism, "classical", "listed")
    assert made.n == 1873  # of a list, which is public
    assert [party.first_stage_share for party in made.parties] == [None, None]


def test_numbers_are_cut_and_columns_crossed_by_options(
    command: Command, tmp_path: Path, schemas: tuple[str, ...]
) -> None:
    out, asked = tmp_path / "study.json", ("--title", "x", "--n", 2000, "--cut", "stay=every 10", "--cut", "age=40,60")
    made = command.json("new", *schemas, *asked, "--cross", "both=stay,sex", "--out", out)["study"]
    levels = {a["name"]: a["levels"] for party in made["parties"] for a in party["attributes"]}
    assert set(levels) == {"both", "age"}
    assert len(levels["both"]) == 3 * len(levels["age"]) == 9
    assert all(each["allowed"] for each in command.json("check", out)["answers"])


def test_time_that_is_crossed_has_advice_about_an_end_that_many_share(
    command: Command, tmp_path: Path, schemas: tuple[str, ...]
) -> None:
    asked = ("--title", "x", "--n", 2000, "--cut", "stay=12,24", "--out", tmp_path / "study.json", "--replace")
    advice = "such as 12, give this time a short interval of its own: --cut stay=12,12.012,"
    assert advice in " ".join(command("new", *schemas, *asked, "--cross", "both=stay,sex")[1].split())
    assert "at one time" not in command("new", *schemas, *asked)[1]


@pytest.mark.parametrize(("upper", "cuts"), [(30, "12,24"), (3650, "60,90"), (1, "0.5,0.75"), (365, "1,30")])
def test_advice_about_a_common_end_is_cuts_that_are_taken_and_is_given_once(
    command: Command, tmp_path: Path, upper: float, cuts: str
) -> None:
    (tmp_path / "ward.json").write_text(json.dumps([STAY | {"upper": upper}, SEX]))
    asked = ("--member", f"ward={tmp_path / 'ward.json'}", "--title", "x", "--n", 2000, "--cross", "end=stay,sex")
    out = ("--out", tmp_path / "study.json", "--replace")
    said = " ".join(command.out("new", *asked, "--cut", f"stay={cuts}", *out).split())
    [advised] = re.findall(r"--cut stay=([0-9.,]+),…", said)
    both = ",".join([advised, *cuts.split(",")[1:]])
    assert "short interval of its own" not in command.out("new", *asked, "--cut", f"stay={both}", *out)


def test_square_of_a_target_is_proposed_where_it_costs_little_and_can_be_asked_for(
    command: Command, tmp_path: Path
) -> None:
    (tmp_path / "ward.json").write_text(json.dumps([STAY, SEX]))
    asked = ("--member", f"ward={tmp_path / 'ward.json'}", "--title", "x", "--target", "stay", "--n", 50_000)
    out = ("--out", tmp_path / "study.json", "--replace")
    said = " ".join(command("new", *asked, "--epsilon", 3, *out)[1].split())
    assert '--product "stay squared=stay,stay" and --one-stage' in said
    taken = ("--product", "stay squared=stay,stay", "--one-stage")
    assert "squared=" not in " ".join(command("new", *asked, "--epsilon", 3, *taken, *out)[1].split())
    (ward,) = Study.model_validate_json((tmp_path / "study.json").read_text()).parties
    assert [a.name for a in ward.attributes] == ["stay", "sex", "stay squared"]
    command("new", *asked, "--epsilon", 3, *taken, "--columns", "stay,sex", *out)
    assert Study.model_validate_json((tmp_path / "study.json").read_text()).parties == (ward,)
    assert "name columns that one member has" in command("new", *asked, "--product", "x=stay", *out)[2]
    assert "for a square, one twice" in command("new", *asked, "--product", "x=stay", *out)[2]
    cut = ("--cut", "stay=10,20", "--product", "x=stay,sex")
    assert "stay has levels: multiply numbers" in command("new", *asked, *cut, *out)[2]


@pytest.mark.parametrize(
    ("lower", "upper", "step", "cuts"),
    [
        (17, 40, "10", [20, 30]),
        (20, 40, "10", [30]),
        (-15, 15, "10", [-10, 0, 10]),
        (0.25, 1, "0.5", [0.5]),
        (0.1 * 3 - 0.2, 0.1 + 0.2, "0.1", [0.2]),  # 0.10000000000000003 and 0.30000000000000004
    ],
)
def test_cuts_at_every_step_are_its_multiples_between_the_bounds(
    lower: float, upper: float, step: str, cuts: list[float]
) -> None:
    number = {"kind": "numeric", "name": "x", "lower": lower, "upper": upper, "cuts": f"every {step}"}
    levels = CutNumber.model_validate(number).as_levels
    assert levels.intervals is not None
    assert [*levels.intervals.cuts] == cuts


def test_column_that_has_one_level_left_is_not_released(command: Command, tmp_path: Path) -> None:
    (tmp_path / "ward.json").write_text(json.dumps([STAY, SEX]))
    asked = ("--member", f"ward={tmp_path / 'ward.json'}", "--title", "x", "--n", 2000, "--where", "sex=f")
    for number, (more, left) in enumerate([((), ["stay"]), (("--columns", "stay,sex"), ["stay", "sex"])]):
        (ward,) = command.json("new", *asked, *more, "--out", tmp_path / f"{number}.json")["study"]["parties"]
        assert [a["name"] for a in ward["attributes"]] == left
        assert ward["where"] == [{"attribute": SEX, "levels": ["f"]}]


def test_pairs_of_a_column_that_has_one_level_left_are_refused(command: Command, tmp_path: Path) -> None:
    (tmp_path / "ward.json").write_text(json.dumps([STAY, SEX]))
    asked = ("--member", f"ward={tmp_path / 'ward.json'}", "--title", "x", "--n", 2000, "--out", tmp_path / "s.json")
    pairs = ("--cut", "stay=10,20", "--cross", "both=stay,sex", "--where")
    for whom, part in (("sex=f", "sex"), ("stay=..10", "stay")):
        assert f"--where leaves one level of {part}" in " ".join(command("new", *asked, *pairs, whom)[2].split())
    for whom in ("sex=f,m", "stay=..20"):
        (ward,) = command.json("new", *asked, *pairs, whom, "--replace")["study"]["parties"]
        assert [a["name"] for a in ward["attributes"]] == ["both"]
    assert "no member has a column called both: stay, sex" in command("new", *asked, *pairs, "both=f", "--replace")[2]


def test_people_are_chosen_at_each_member_that_has_the_column(command: Command, tmp_path: Path) -> None:
    for name, own in {"ward": [STAY, SEX, AGE], "lab": [AGE, {**STAY, "name": "iron"}]}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(own))
    members = [part for name in ("ward", "lab") for part in ("--member", f"{name}={tmp_path / name}.json")]
    asked = ("--title", "x", "--n", 2000, "--columns", "stay,iron", "--where", "age=40..60", "--where", "sex=f,m")
    out = tmp_path / "study.json"
    ward, lab = command.json("new", *members, *asked, "--out", out)["study"]["parties"]
    (ages,) = lab["where"]
    assert (ages["attribute"]["levels"], ages["levels"]) == (["[18, 40)", "[40, 60)", "[60, 100]"], ["[40, 60)"])
    assert ward["where"] == [ages, {"attribute": SEX, "levels": ["f", "m"]}]
    assert [a["name"] for party in (ward, lab) for a in party["attributes"]] == ["stay", "iron"]
    assert all(each["allowed"] for each in command.json("check", out)["answers"])
    _, said, _ = command("new", *members, *asked, "--out", out, "--replace")
    assert "Only those of ward's people count whose age is [40, 60) and whose sex is f or m." in " ".join(said.split())


@pytest.mark.parametrize(
    ("where", "cuts", "left"),
    [
        ("age=60..", "40,60", ["stay"]),
        ("age=40..50", "40,60", ["stay"]),
        ("age=40..60", "40,60", ["stay"]),
        ("age=40..60", "every 10", ["stay", "age"]),
        ("age=50..", "40,60", ["stay", "age"]),
    ],
)
def test_number_with_cuts_is_released_if_a_subset_leaves_two_of_its_intervals(
    command: Command, tmp_path: Path, where: str, cuts: str, left: list[str]
) -> None:
    (tmp_path / "ward.json").write_text(json.dumps([STAY, AGE]))
    asked = ("--member", f"ward={tmp_path / 'ward.json'}", "--title", "x", "--n", 2000, "--where", where)
    made = command.json("new", *asked, "--cut", f"age={cuts}", "--out", tmp_path / "study.json")["study"]
    assert [a["name"] for a in made["parties"][0]["attributes"]] == left


def test_level_with_a_comma_is_one_level(command: Command, tmp_path: Path) -> None:
    (tmp_path / "ward.json").write_text(json.dumps([STAY, {**SEX, "name": "dx", "levels": ["a, b", "c", "d"]}]))
    asked = ("--title", "x", "--n", 2000, "--where", "dx=a, b", "--out", tmp_path / "study.json")
    (ward,) = command.json("new", "--member", f"ward={tmp_path / 'ward.json'}", *asked)["study"]["parties"]
    assert [subset["levels"] for subset in ward["where"]] == [["a, b"]]


@pytest.mark.parametrize(
    ("given", "level"), [("age=..60", "[18, 60)"), ("age=60..", "[60, 100]"), ("age=0..60", "[18, 60)")]
)
def test_range_may_be_open(command: Command, tmp_path: Path, schemas: tuple[str, ...], given: str, level: str) -> None:
    asked = ("--title", "x", "--n", 2000, "--where", given, "--out", tmp_path / "study.json")
    _, lab = command.json("new", *schemas, *asked)["study"]["parties"]
    assert [subset["levels"] for subset in lab["where"]] == [[level]]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "give --title"),
        (("--title", "x", "--n", 9, "--where", "blood=A"), "no member has a column called blood"),
        (("--title", "x", "--n", 9, "--where", "sex=a"), "attribute 'sex' has no level 'a', but f | m | x"),
        (("--title", "x", "--n", 9, "--where", "age=40"), "write values of 18 to 100 that leave somebody out, as age="),
        (
            ("--title", "x", "--n", 9, "--where", "age=60..40"),
            "write values of 18 to 100 that leave somebody out, as age=",
        ),
        (
            ("--title", "x", "--n", 9, "--where", "age=a..b"),
            "write values of 18 to 100 that leave somebody out, as age=",
        ),
        (("--title", "x", "--n", 9, "--where", "age=0..200"), "that leave somebody out"),
        (("--title", "x", "--n", 9, "--where", "sex=f", "--listed"), "these are listed: leave one of the two out"),
        (("--title", "x", "--n", 9, "--where", "sex=f", "--where", "sex=m"), "nobody is in two subsets by 'sex'"),
        (("--title", "x", "--n", 9, "--preset", "wang2018"), "is a regression by one member and no release"),
        (("--title", "x", "--n", 9, "--preset", "wu2022", "--listed"), "--preset sets --listed"),
        (("--title", "x", "--n", 9, "--cut", "stay=-1"), "cuts must increase, and lie between lower and upper"),
        (("--title", "x", "--n", 9, "--cut", "sex=1"), "no member has a number called sex: stay, age"),
        (("--title", "x", "--n", 9, "--cut", "stay=a"), "write 40,60 or 'every 10'"),
        (("--title", "x", "--n", 9, "--cut", "stay=every 0"), "cuts every 0: the step is to be above 0"),
        (("--title", "x", "--n", 9, "--cut", "stay=every 0.001"), "cuts every 0.001 are more than"),
        (("--title", "x", "--n", 9, "--cross", "both=stay,sex"), "cut it too, --cut stay="),
        (("--title", "x", "--n", 9, "--cross", "both=stay,age"), "name two columns that one member has"),
        (("--title", "x", "--n", 9, "--cross", "both=sta,sex"), "no member has a column called sta: stay, sex, age"),
        (("--title", "x", "--n", 9, "--product", "p=stay,age"), "name columns that one member has"),
        (("--title", "x", "--n", 9, "--product", "p=stay,ag"), "no member has a column called ag: stay, sex, age"),
        (("--title", "x"), "give --n"),
        (("--title", "x", "--n", 9, "--target", "weight"), "no attribute 'weight' (there are stay, sex, age)"),
        (("--title", "x", "--n", 9, "--target", "sex"), "the target 'sex' has more than two levels: name no target"),
        (("--title", "x", "--n", 9, "--columns", "weight"), "There are age, sex, stay."),
        (("--title", "x", "--n", 9, "--epsilon", 0), "epsilon"),
        (("--title", "", "--n", 9), "study: is empty"),
        (("--title", "x", "--n", 9, "--member", "clinic"), "write a member's name, = and the path of a file"),
        (("--title", "x", "--n", 9, "--member", "clinic=absent.json"), "cannot read absent.json"),
        (("--title", "x", "--n", 9, "--member", "ward=absent.json"), "ward is named twice"),
    ],
)
def test_study_that_cannot_be_made_is_refused_with_what_to_type(
    command: Command, tmp_path: Path, schemas: tuple[str, ...], given: tuple[object, ...], said: str
) -> None:
    code, _, err = command("new", *schemas, *given, "--out", tmp_path / "study.json")
    assert code != 0
    assert said in err
    assert not (tmp_path / "study.json").exists()


def test_column_of_two_members_is_to_be_named_with_one_of_them(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps([AGE]))
    both = (
        "--member",
        f"a={path}",
        "--member",
        f"b={path}",
        "--title",
        "x",
        "--n",
        9,
        "--out",
        tmp_path / "study.json",
    )
    assert "this one as a.age" in command("new", *both)[2]
    assert command("new", *both, "--columns", "b.age")[0] == 0


def at(*place: str | int) -> Callable[[Document], Any]:
    def found(document: Any) -> Any:
        for part in place:
            document = document[part]
        return document

    return found


STAY_HERE, SEX_HERE = (at("parties", 0, "attributes", place) for place in (0, 1))
MISTAKES: list[tuple[str, Callable[[Document], object]]] = [
    ("n: is missing", lambda d: d.pop("n")),
    ("epsilon: is to be a number, without quotation marks", lambda d: d.update(epsilon="1")),
    ("epsilom: is no field of this; do you mean epsilon?", lambda d: d.update(epsilom=1)),
    ("mechanism: is to be 'rmgm', 'dgm' or 'moments'", lambda d: d.update(mechanism="moment")),
    ("n: is to be a whole number", lambda d: d.update(n=20.5)),
    ("n: is to be 2 or more", lambda d: d.update(n=1)),
    ("study: is empty", lambda d: d.update(study="")),
    ("parties: is empty", lambda d: d.update(parties=[])),
    ("features: is to be a list in brackets", lambda d: d.update(features="age")),
    ("subjects: is to be 'keyed' or 'listed'", lambda d: d.update(subjects="both")),
    ("party Ward 3, name: is to be up to 63 of a-z", lambda d: at("parties", 0)(d).update(name="Ward 3")),
    ("party ward, dataset: is missing", lambda d: at("parties", 0)(d).pop("dataset")),
    ("party ward, attribute stay, lower: is missing", lambda d: STAY_HERE(d).pop("lower")),
    ("party ward, attribute stay, min: is no field of this; do you mean lower?", lambda d: STAY_HERE(d).update(min=0)),
    ("attribute stay: lower (40.0) must be below upper (30.0)", lambda d: STAY_HERE(d).update(lower=40)),
    ('attribute stay: has a "kind" that is none', lambda d: STAY_HERE(d).update(kind="number")),
    ("attribute stay: cuts must increase", lambda d: STAY_HERE(d).update(cuts=[40])),
    ("levels: is to have 3 entries at least; an attribute with two", lambda d: SEX_HERE(d).update(levels=["f", "m"])),
    ("attribute sex, level number 1: is to be text in quotation", lambda d: SEX_HERE(d).update(levels=[0, 1, 2])),
    (
        'cross number 1: needs a "kind": numeric, binary or categorical; write the whole attribute there, not its name',
        lambda d: at("parties", 0, "attributes")(d).append({"name": "x", "cross": ["stay", "sex"]}),
    ),
    ("there is no attribute 'los' (there are stay, sex, age)", lambda d: d.update(target="los")),
]


@pytest.mark.parametrize(("said", "spoil"), MISTAKES, ids=[said[:40] for said, _ in MISTAKES])
def test_mistake_in_a_study_is_told_by_the_columns_name_and_what_to_type(
    command: Command, tmp_path: Path, said: str, spoil: Callable[[Document], object]
) -> None:
    ward, lab = (
        {"name": name, "dataset": "main", "attributes": had} for name, had in (("ward", [STAY, SEX]), ("lab", [AGE]))
    )
    document = {
        "study": "Stays",
        "mechanism": "moments",
        "epsilon": 1,
        "delta": 1e-5,
        "n": 2000,
        "parties": [ward, lab],
    }
    document = json.loads(json.dumps(document))
    spoil(document)
    (tmp_path / "study.json").write_text(json.dumps(document))
    err = command.refused("check", tmp_path / "study.json")
    assert said in err
    assert not {"Input", "Value error", "Field required", "function-after"} & {*err.split(), err}


def test_policy_that_would_reject_says_what_to_type_instead(command: Command, tmp_path: Path) -> None:
    study, policy = tmp_path / "study.json", tmp_path / "policy.json"
    study.write_text(STUDY.model_copy(update={"epsilon": 5.0}).model_dump_json())
    policy.write_text('{"max_epsilon": 5, "mechanisms": ["rmgm"]}')
    code, out, _ = command("check", study, "--policy", f"insurer={policy}")
    assert code == 1
    assert 'Type "epsilon": 3 or less.' in out
    assert 'Type "mechanism": one of rmgm.' in out
    assert (
        "stranger is not in the study: clinic, insurer are."
        in command("check", study, "--policy", f"stranger={policy}")[2]
    )


def test_own_agent_answers_as_it_would_to_the_proposal_and_nothing_is_sent(
    consortium: Consortium, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study, home = tmp_path / "study.json", consortium.homes["clinic"].root
    for changes, expected in (({}, []), ({"n": 41}, ["subjects"]), ({"epsilon": 90.0}, ["max_epsilon", "epsilon_cap"])):
        study.write_text(STUDY.model_copy(update=changes).model_dump_json())
        with consortium.agent("clinic", draw=Noise()) as agent, serving_at(agent.home.socket, operator_app(agent)):
            capsys.readouterr()
            code, out, err = run_command(capsys, "study", "check", study, "--home", home, "--json")
            assert agent.proposals.all() == []
            assert agent.ledger.charges() == {}
        assert code == bool(expected), err
        own = json.loads(out)["own"]
        assert [finding.split(":")[0] for finding in own["findings"]] == expected
        assert own["outlook"]
