"""Over the local API and the command line, up to `commingle verify`."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from errno import ENOSPC
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from commingle import PartyClient
from commingle.__main__ import main
from commingle.party_agent.cli import party
from commingle.party_agent.home.policy import Policy, RegressionPolicy
from commingle.party_agent.private.regression.sums import STABLE
from commingle.party_agent.wire.answers import RegressionView
from commingle.services.client.verify_cli import verify
from commingle.shared.documents.model import encode
from commingle.shared.documents.presets import REGRESSIONS
from commingle.shared.documents.regression import RegressionRequest
from commingle.shared.errors import CommingleError, SignatureError, SpecError, VerificationError
from commingle.shared.runtime import faults
from commingle.shared.runtime.errors import UnreachableError
from commingle.shared.runtime.settings import system_clock
from tests.party_agent.regression.asking import clinic, request, table
from tests.world.consortium import Consortium, CrashError, write_csv
from tests.world.local_api import operator
from tests.world.transport import on_a_socket


@contextmanager
def witnessed(consortium: Consortium) -> Iterator[Consortium]:
    """Its commands live in the present and find their coordinator, who witnesses, on a socket."""
    consortium.clock_shows = system_clock()
    with on_a_socket(consortium.coordinator.handle) as url:
        home = consortium.homes["clinic"]
        known = home.consortium()
        home.join(known.coordinator().model_copy(update={"url": url}), name=known.name)
        yield consortium


@pytest.fixture
def hospital(tmp_path: Path) -> Iterator[Consortium]:
    with witnessed(clinic(tmp_path)) as consortium:
        yield consortium


@pytest.fixture
def api(hospital: Consortium) -> Iterator[httpx.Client]:
    with hospital.agent("clinic") as agent, operator(agent) as client:
        yield client


def test_regression_is_made_listed_and_shown(api: httpx.Client) -> None:
    made = api.post("/v1/regressions", content=encode(request()))
    assert made.status_code == 201
    body = made.json()
    assert body["id"] == request().id
    assert body["result"]["method"] == "ssp"
    assert api.post("/v1/regressions", content=encode(request())).json() == body
    assert api.get(f"/v1/regressions/{body['id']}").json() == body
    (line,) = api.get("/v1/regressions").json()["items"]
    assert (line["id"], line["state"]) == (body["id"], "published")
    ledger = api.get("/v1/ledger").json()
    assert [(c["release"], c["kind"]) for c in ledger["charges"]] == [(body["id"], "regression")]
    assert ledger["spent"]["rho"] == pytest.approx(body["charge"]["rho"])


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{}", 422, "document"),
        (encode(request(features=("height",))), 422, "spec"),
        (encode(request(epsilon=9.0)), 409, "conflict"),
        (encode(request(calibration="published")), 422, "privacy-parameter"),
        (encode(request(dataset="other")), 404, "unknown"),
        (encode(request()).replace(b'"age","smoker"', b'"age","age"'), 422, "document"),
    ],
)
def test_refusals_are_problems_and_cost_nothing(api: httpx.Client, body: bytes, status: int, code: str) -> None:
    answer = api.post("/v1/regressions", content=body)
    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:commingle:problem:{code}")
    assert api.get("/v1/ledger").json()["charges"] == []


def run(*arguments: object) -> Result:
    return CliRunner().invoke(party, [str(a) for a in arguments], catch_exceptions=False)


def regress(hospital: Consortium, *more: object) -> Result:
    home = hospital.homes["clinic"].root
    return run("regress", "--home", home, "--dataset", "main", "--target", "charges", "--epsilon", "3", *more)


def test_command_publishes_a_document_that_verify_accepts(hospital: Consortium, tmp_path: Path) -> None:
    out, fingerprint = tmp_path / "charges.json", hospital.homes["clinic"].identity().signing_key.fingerprint
    done = regress(hospital, "--out", out, "--json")
    assert (
        "Costs epsilon 3 at delta 1e-06 (replace_one) on 3000 people. The noise is expected to move predictions"
        in done.stderr
    )
    said = json.loads(done.stdout)
    assert [c["name"] for c in said["result"]["coefficients"]][:3] == ["(intercept)", "age", "smoker"]
    checked = CliRunner().invoke(verify, [str(out), "--party-key", fingerprint, "--json"], catch_exceptions=False)
    found = json.loads(checked.stdout)
    assert (found["regression"], found["party_pinned"]) == (said["id"], True)
    assert found["coefficients"] == said["result"]["coefficients"]
    shown = CliRunner().invoke(verify, [str(out)], catch_exceptions=False)
    assert "Everything holds" in shown.stdout
    assert "was not compared" in shown.stdout


def test_same_command_again_is_told_before_it_costs_again_and_takes_no_document_away(
    hospital: Consortium, tmp_path: Path
) -> None:
    out = tmp_path / "charges.json"
    first = json.loads(regress(hospital, "--epsilon", 0.5, "--out", out, "--json").stdout)
    document = out.read_bytes()
    with pytest.raises(CommingleError, match="exists") as refused:
        regress(hospital, "--epsilon", 0.5, "--out", out)
    assert (refused.value.remedy, out.read_bytes()) == ("Give another --out, or --replace.", document)
    again = regress(hospital, "--epsilon", 0.5, "--out", out, "--replace", "--json")
    assert "You asked for the same before, and paid for it. See it without new costs: " in again.stderr
    assert f"commingle party regressions {first['id'][:12]} --home " in again.stderr
    assert json.loads(again.stdout)["id"] != first["id"]
    assert "before" not in regress(hospital, "--epsilon", 0.25).stderr


def test_document_that_cannot_be_written_is_paid_for_once_and_found_again(
    hospital: Consortium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CommingleError, match="cannot be written") as nowhere:
        regress(hospital, "--out", tmp_path / "absent" / "charges.json")
    assert "Nothing was spent" in nowhere.value.remedy

    def full(*_: object, **__: object) -> None:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr("commingle.party_agent.cli.regression.write_durably", full)
    with pytest.raises(CommingleError, match=r"cannot write .* \(No space left on device\)") as lost:
        regress(hospital, "--out", tmp_path / "charges.json")
    [paid] = json.loads(run("regressions", "--home", hospital.homes["clinic"].root, "--json").stdout)["items"]
    assert lost.value.remedy.startswith("It is paid for. Write it to another file: commingle party regressions ")
    assert f" {paid['id'][:12]} --home " in lost.value.remedy


def test_agent_that_ends_in_a_regression_may_have_charged_it(
    hospital: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(_: PartyClient, request: RegressionRequest) -> RegressionView:
        asked.append(request.id)
        raise UnreachableError("no answer", remedy="Check that the agent runs; the call is safe to repeat.")

    asked = list[str]()
    monkeypatch.setattr(PartyClient, "regress", ends)
    with pytest.raises(UnreachableError) as lost:
        regress(hospital)
    assert lost.value.remedy.startswith("When the agent runs, look whether it charged this, before you ask again: ")
    assert f"commingle party regressions {asked[0][:12]} --home " in lost.value.remedy


@pytest.fixture
def ward(tmp_path: Path) -> Iterator[Consortium]:
    with witnessed(clinic(tmp_path / "ward", keyed=True)) as consortium:
        yield consortium


def test_options_of_the_command_are_those_of_the_request(ward: Consortium, tmp_path: Path) -> None:
    out = tmp_path / "charges.json"
    options = ("--bounds", "charges=0:90", "--bounds", "age=30:70", "--mapping", "per_row", "--no-intercept")
    done = regress(ward, *options, "--n", "2500", "--epsilon", "1", "--out", out, "--json")
    said = json.loads(done.stdout)
    asked = said["request"]
    assert asked["bounds"] == {"charges": [0.0, 90.0], "age": [30.0, 70.0]}
    assert (asked["mapping"], asked["intercept"]) == ("per_row", False)
    assert asked["n"] == said["result"]["n"] == 2500
    assert re.search(r"\(add_remove; 1\.5\d* under replace_one\) on about 2500 people", done.stderr)
    shown = CliRunner().invoke(verify, [str(out), "--replacement"], catch_exceptions=False).stdout
    assert "(add_remove)" in shown
    assert "(replace_one)" in shown
    assert "coefficient (encoded, rows divided by their norms)" in shown
    assert "the number of rows that is stated is a public figure" in " ".join(shown.split())
    assert "n = about 2500" in shown
    listed = run("regressions", "--home", ward.homes["clinic"].root).stdout
    assert f" {said['id'][:12]} " in listed
    again = run("regressions", "--home", ward.homes["clinic"].root, f"{said['id'][:12]}…")
    assert "(encoded, rows divided by their norms)" in again.stdout
    assert "n = about 2500" in again.stdout


def test_preset_asks_what_its_paper_has_and_stands_beside_no_other_answer(
    ward: Consortium, hospital: Consortium
) -> None:
    done = regress(ward, "--preset", "wang2018", "--n", "2500", "--epsilon", "1", "--json")
    said = json.loads(done.stdout)["request"]
    assert said | REGRESSIONS["wang2018"].fields(2500) == said
    for more, words in ((["--method", "ssp"], "sets --method"), (["--no-intercept"], "sets --intercept")):
        assert words in regress(ward, "--preset", "wang2018", "--n", "2500", *more).stderr
    assert "needs public rows" in regress(hospital, "--preset", "public_moment").stderr


def test_public_number_of_rows_is_given_of_keyed_subjects_and_only_of_them(
    ward: Consortium, hospital: Consortium
) -> None:
    with pytest.raises(SpecError, match="whose number is private"):
        regress(ward)
    with pytest.raises(SpecError, match="whose number everybody knows"):
        regress(hospital, "--n", "2500")


@pytest.mark.parametrize("bounds", ["age", "age=30", "age=30:", "age=thirty:70"])
def test_bounds_that_cannot_be_read_are_an_error_of_the_command(hospital: Consortium, bounds: str) -> None:
    assert "is not NAME=LOWER:UPPER" in regress(hospital, "--bounds", bounds).stderr


def test_public_rows_are_bounded_and_mapped_as_the_private_ones(hospital: Consortium, tmp_path: Path) -> None:
    public = write_csv(tmp_path / "public.csv", table(100, seed=9))
    options = ("--mapping", "per_row_with_label", "--bounds", "age=20:70", "--features", "age,smoker")
    done = regress(hospital, "--public", public, *options, "--json")
    moments = json.loads(done.stdout)["request"]["public"]["features"]
    assert sum(moments[j][j] for j in range(3)) == pytest.approx(1, rel=1e-3)  # rows of norm 1, on the grid


def test_tampered_file_and_another_key_are_refused(hospital: Consortium, tmp_path: Path) -> None:
    out = tmp_path / "charges.json"
    regress(hospital, "--out", out)
    with pytest.raises(VerificationError, match="not with the one expected"):
        CliRunner().invoke(verify, [str(out), "--party-key", "0" * 64], catch_exceptions=False)
    document = json.loads(out.read_text())
    payload = document["envelope"]["payload"]
    document["envelope"]["payload"] = ("A" if payload[40] != "A" else "B").join((payload[:40], payload[41:]))
    out.write_text(json.dumps(document))
    with pytest.raises(SignatureError):
        CliRunner().invoke(verify, [str(out)], catch_exceptions=False)


def test_interrupted_regression_is_listed_and_finished_at_no_cost(hospital: Consortium, tmp_path: Path) -> None:
    def strike(point: str) -> None:
        if point == "party.regression.drawn":
            raise CrashError

    faults.arm(strike)
    try:
        with pytest.raises(CommingleError, match="unexpected fault"):
            regress(hospital)
    finally:
        faults.arm(lambda _: None)
    home = hospital.homes["clinic"].root
    (line,) = json.loads(run("regressions", "--home", home, "--json").stdout)["items"]
    assert line["state"].startswith("interrupted")
    shown = run("regressions", "--home", home, line["id"][:12])
    assert "interrupted" in shown.stdout
    out = tmp_path / "finished.json"
    finished = json.loads(
        run("regressions", "--home", home, line["id"][:12], "--finish", "--out", out, "--json").stdout
    )
    assert finished["state"] == "published"
    assert finished["charge"] == line["charge"]
    assert json.loads(out.read_text()) == finished["document"]


@pytest.mark.parametrize("method", ["dp_pmtolse", "dp_pmtse"])
def test_public_rows_go_into_the_request_as_moments(hospital: Consortium, tmp_path: Path, method: str) -> None:
    public = write_csv(tmp_path / "public.csv", table(100, seed=9))
    done = regress(hospital, "--public", public, "--method", method, "--features", "age,smoker", "--json")
    said = json.loads(done.stdout)
    assert said["request"]["public"]["rows"] == 100
    assert said["request"]["public"]["features"][0][0] == 1.0
    assert said["result"]["method"] == method
    (stability,) = said["result"]["published"]["stability"]
    shown = run("regressions", "--home", hospital.homes["clinic"].root, said["id"])
    assert ("Not stable" in shown.stdout) is (stability < STABLE)
    fewer = regress(hospital, "--public", public, "--method", method, "--features", "age,smoker", "--epsilon", 0.1)
    assert "Not stable" in fewer.stdout


@pytest.mark.parametrize("row_norm", ["0", "-1", "nan", "inf", "1e300"])
def test_row_norm_that_makes_no_sense_is_one_error_whether_or_not_there_are_public_rows(
    hospital: Consortium, tmp_path: Path, capsys: pytest.CaptureFixture[str], row_norm: str
) -> None:
    public, home = write_csv(tmp_path / "public.csv", table(100, seed=9)), hospital.homes["clinic"].root
    asked = ["party", "regress", "--home", home, "--dataset", "main", "--target", "charges", "--epsilon", 1]
    for more in ([], ["--public", public]):
        with pytest.raises(SystemExit) as ended:
            main([str(part) for part in (*asked, "--row-norm", row_norm, *more)])
        said = capsys.readouterr()
        assert (ended.value.code, said.out) == (1, "")
        assert said.err.startswith("Error: not a valid RegressionRequest: row_norm: is to be ")
        assert "Traceback" not in said.err
    with hospital.agent("clinic") as agent:
        assert agent.ledger.charges() == {}


@pytest.mark.parametrize(
    ("more", "remedy"),
    [
        (("--features", "age,charges"), "charges is both target and feature: leave it out of --features."),
        (("--features", "age,age"), "age is named twice in --features: name it once."),
        (("--features", "age", "--bounds", "bmi=0:30"), "bmi is neither target nor feature: leave out --bounds bmi="),
    ],
)
def test_names_that_do_not_go_together_are_refused_by_the_options_that_have_them(
    hospital: Consortium, more: tuple[str, ...], remedy: str
) -> None:
    done = regress(hospital, *more)
    assert done.exit_code == 2
    assert remedy in " ".join(done.stderr.split())
    with hospital.agent("clinic") as agent:
        assert agent.ledger.charges() == {}


def test_forecast_is_of_the_method_that_the_policy_lets_auto_take(tmp_path: Path) -> None:
    rules = RegressionPolicy(methods=frozenset({"ssp", "adassp"}), max_epsilon=3.0)
    with witnessed(clinic(tmp_path, policy=Policy(regressions=rules))) as hospital:
        done = regress(hospital, "--epsilon", "0.1", "--json")
    assert done.stderr.startswith("adassp: least predicted error")
    assert json.loads(done.stdout)["result"]["method"] == "adassp"


def test_small_table_is_told_to_be_hopeless_before_anything_is_spent(tmp_path: Path) -> None:
    with witnessed(clinic(tmp_path, rows=30)) as hospital:
        done = regress(hospital, "--method", "adassp")
    assert "hardly be told from noise" in done.stderr
    assert "hardly" not in done.stdout


def test_unknown_data_set_and_regression_are_refused(hospital: Consortium) -> None:
    home = hospital.homes["clinic"].root
    with pytest.raises(CommingleError, match="no data set other"):
        run("regress", "--home", home, "--dataset", "other", "--target", "charges", "--epsilon", 1)
    with pytest.raises(CommingleError, match="0 regressions"):
        run("regressions", "--home", home, "ffff")
