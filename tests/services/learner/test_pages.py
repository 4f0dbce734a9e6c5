"""The learner's pages in a browser's place: what they show, and that a fit is the one the interface gives."""

import csv
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any, Literal

import httpx
import numpy as np
import pytest

import commingle
from commingle import Release, ReleaseClient
from commingle.__main__ import main
from commingle.services.client.files import ReleaseFiles
from commingle.services.learner.computing import HEIGHT, WIDTH, Asked, bars, figure, shown
from commingle.services.plotting import Intervals
from commingle.services.results import ResultColumn
from commingle.shared.documents.schema import BinaryAttribute
from tests.services.learner.test_app import ID, TARGET
from tests.world.categorical import release_of
from tests.world.pages import Tags
from tests.world.released import (
    ServingCoordinator,
    learner,
    problem,
    published,
    published_counts,
    published_numbers,
    published_survival,
    published_tables,
    refused,
)

TITLES = {
    "fit": "A linear model",
    "describe": "Who is in it",
    "table": "Two attributes",
    "glm": "Odds and rates",
    "survival": "Survival",
    "synthesize": "Synthetic rows",
}
FIT = {"target": TARGET, "attributes": ["age", "bmi", "smoker"]}


def test_first_page_leads_to_every_release(http: httpx.Client) -> None:
    page = http.get("/").text
    assert f'href="/releases/{ID}"' in page
    assert "clinic, insurer" in page


def test_every_page_loads_nothing_from_elsewhere_and_runs_nothing_inline(http: httpx.Client) -> None:
    for path in ("/", f"/releases/{ID}", f"/releases/{ID}/fit?target=age", "/docs", "/releases/none", "/?cursor=x"):
        answer = http.get(path)
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "unsafe" not in policy
        assert answer.headers["content-type"].startswith("text/html")
        loaded = Tags(answer.text).loaded
        assert loaded
        assert all(http.get(address).status_code == 200 for address in loaded)


def test_release_shows_what_it_holds_and_leads_to_fits_of_its_labels(http: httpx.Client) -> None:
    page = unescape(http.get(f"/releases/{ID}").text)
    for expected in (
        "2,000 people",
        "a number from 20 to 80 years",
        "no or yes",
        "epsilon",
        f'href="/releases/{ID}/fit"',
        "Cite as:",
        "Croissant",
    ):
        assert expected in page
    assert "Linear model of" not in page
    page = unescape(http.get(f"/releases/{ID}/fit").text)
    assert f"<option selected>{TARGET}</option>" in page
    assert "trusted_coordinator" in page


def test_fit_on_a_page_is_the_interfaces(http: httpx.Client) -> None:
    body = {"target": TARGET, "features": FIT["attributes"]}
    fit = http.post(f"/v1/releases/{ID}/fits", json=body).json()
    page = http.get(f"/releases/{ID}/fit", params=FIT).text
    shown = re.findall(r'<tr><th scope="row">([^<]+)</th><td class="number">([^<]+)</td>', page)
    expected = [
        (term, f"{b:.4g}".replace("-", "\u2212")) for term, b in zip(fit["terms"], fit["coefficients"], strict=True)
    ]
    assert shown == expected
    assert page.count('class="effect"') == len(fit["terms"]) - 1
    rows = list(csv.DictReader(io.StringIO(http.get(f"/releases/{ID}/fit.csv", params=FIT).text)))
    assert [float(row["coefficient"]) for row in rows] == pytest.approx(fit["coefficients"])
    assert http.get(f"/releases/{ID}/fit.json", params=FIT).json() == fit


def test_links_of_a_fit_ask_for_that_fit(http: httpx.Client) -> None:
    page = http.get(f"/releases/{ID}/fit", params=FIT | {"interval_for": "table"})
    [link] = [address for address in Tags(page.text).addresses if "fit.json" in address]
    assert http.get(unescape(link)).json()["interval_for"] == "table"


def test_label_is_no_feature_of_itself_and_a_fit_of_nothing_named_is_of_all_others(http: httpx.Client) -> None:
    asked: dict[str, Any] = {"target": "age", "attributes": ["age", "bmi"]}
    assert http.get(f"/releases/{ID}/fit.json", params=asked).json()["features"] == ["bmi"]
    answer = http.get(f"/releases/{ID}/fit.json", params={"target": "age"}).json()
    assert sorted(answer["features"]) == sorted({TARGET, "bmi", "smoker"})


def test_page_of_the_mean_alone_draws_no_effect(http: httpx.Client) -> None:
    page = http.get(f"/releases/{ID}/fit", params={"target": "age", "estimator": "constant"})
    assert (page.status_code, "The mean of age alone" in page.text, "<figure" in page.text) == (200, True, False)


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        (f"/releases/{ID}/fit?target=nobody", 422, "nobody"),
        (f"/releases/{ID}/fit?target=age&estimator=oracle", 422, "oracle"),
        (f"/releases/{ID}/fit?target=age&interval_for=me", 422, "interval_for"),
        (f"/releases/{'0' * 64}", 404, "no release"),
        (f"/releases/{ID}/fit.exe?target=age", 404, "no such file"),
        (f"/releases/{ID}/fit.csv?target=nobody", 422, "nobody"),
        (f"/releases/{ID}/describe.csv", 422, "moments"),
        (f"/releases/{ID}/describe.exe", 404, "no such file"),
        (f"/releases/{ID}/hazard-ratios.csv", 404, "no such file"),
        ("/static/base.html", 404, "no such file"),
    ],
)
def test_what_is_refused_is_said_on_a_page(http: httpx.Client, path: str, status: int, said: str) -> None:
    answer = http.get(path)
    assert (answer.status_code, said in answer.text) == (status, True)
    assert 'role="alert"' in answer.text


def test_words_of_a_proposer_are_no_markup() -> None:
    release = published(title="<b>bold</b>")
    with learner(ServingCoordinator.serving(release)) as http:
        for path in ("/", f"/releases/{release[0]}"):
            page = http.get(path).text
            assert "<b>bold" not in page
            assert "&lt;b&gt;bold&lt;/b&gt;" in page


def lines_of(page: str) -> list[str]:
    """Lines in a shell, in R and in Python, and what else a page offers to copy."""
    return [unescape(lines) for lines in re.findall(r"<pre><code>(.*?)</code></pre>", page, re.DOTALL)]


@pytest.mark.parametrize(
    ("made", "question", "asked"),
    [
        (published, "fit", FIT | {"estimator": "shrunken", "interval_for": "table"}),
        (published_tables, "glm", {}),  # with a number, which has no levels
    ],
)
def test_shell_lines_of_the_page_give_the_same(
    made: Callable[[], tuple[str, ReleaseFiles]],
    question: str,
    asked: dict[str, Any],
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    release, files = made()
    with learner(ServingCoordinator.serving((release, files))) as http:
        shell, *_ = lines_of(http.get(f"/releases/{release}/{question}", params=asked).text)
        shown = http.get(f"/releases/{release}/{question}.json", params=asked).json()
    Release.of(files).save(tmp_path / "release")
    monkeypatch.chdir(tmp_path)
    with suppress(SystemExit):
        main([*shlex.split(shell)[1:], "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert [printed[name] for name in ("terms", "coefficients")] == [shown[name] for name in ("terms", "coefficients")]


def test_each_of_two_answers_in_r_has_a_name_of_its_own() -> None:
    release, files = published_survival()
    with learner(ServingCoordinator.serving((release, files))) as http:
        asked = {"outcome": "outcome", "by": "stage", "attributes": ["stage", "site"]}
        _, in_r, *_ = lines_of(http.get(f"/releases/{release}/survival", params=asked).text)
    assert re.findall(r"^(\w+) <-", in_r, re.MULTILINE) == ["answer_1", "answer_2"]


@pytest.mark.slow
def test_lines_in_r_read_what_the_shell_lines_print(tmp_path: Path) -> None:
    r = shutil.which("Rscript")
    if r is None or subprocess.run([r, "-e", "loadNamespace('jsonlite')"], capture_output=True, check=False).returncode:
        pytest.skip("Rscript with jsonlite is not installed")
    release, files = published_tables()
    with learner(ServingCoordinator.serving((release, files))) as http:
        asked = {"row": "stage", "column": "readmitted", "reference": "iii"}
        _, in_r, _ = lines_of(http.get(f"/releases/{release}/table", params=asked).text)
        said = http.post(f"/v1/releases/{release}/analyses/table", json=asked).json()["sentence"]
    Release.of(files).save(tmp_path / "release")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [r, "-e", f"{in_r}\ncat(answer$sentence)"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, said), done.stderr


def test_python_lines_of_the_page_fit_the_same(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    [keeping] = lines_of(http.get(f"/releases/{ID}").text)
    assert f"--release {ID} --save ./release" in keeping
    _, _, lines = lines_of(http.get(f"/releases/{ID}/fit", params=FIT | {"estimator": "shrunken"}).text)
    transport = ServingCoordinator.serving(published()).transport

    def client(url: str, **options: Any) -> ReleaseClient:
        return ReleaseClient(url, transport=transport, **options)

    monkeypatch.setattr(commingle, "ReleaseClient", client)
    names: dict[str, Any] = {}
    exec(lines, names)  # noqa: S102 - what a reader would do
    said = http.get(f"/releases/{ID}/fit.json", params=FIT | {"estimator": "shrunken"}).json()
    assert names["answer"].to_dict()["coefficients"] == said["coefficients"]


def test_what_was_kept_is_listed_while_the_coordinator_is_away() -> None:
    fake = ServingCoordinator.serving(published())
    with learner(fake) as http:
        http.get(f"/releases/{ID}")
        fake.instead = refused
        assert "cannot be reached now" in http.get("/").text
        fake.instead = lambda _: problem(500, "fault")
        assert http.get("/").status_code == 502


def test_effects_are_drawn_to_scale_around_zero() -> None:
    effects = Intervals(
        title="",
        axis="",
        labels=("age", "sex[m]"),
        values=np.array([1.0, -1.0]),
        intervals=np.array([[0.5, 1.5], [np.nan, np.nan]]),
        of="effects",
    )
    drawn = figure(effects)
    assert drawn is not None
    (_, text, age, low, high, *beyond), (_, _, sex, *without, _, _) = drawn["rows"]
    assert (text, beyond) == ("1 (0.5 to 1.5)", [False, False])
    assert high - low == pytest.approx(2 * (age - low))
    assert (without, sex < drawn["none"] < age) == ([None, None], True)
    assert figure(replace(effects, values=np.zeros(2), intervals=np.zeros((2, 2)))) is None


def test_ratios_are_drawn_on_a_log_axis_without_the_ends_that_there_are_not() -> None:
    ratios = Intervals(
        title="",
        axis="",
        labels=("a", "b", "c"),
        values=np.array([0.5, 2.0, np.nan]),
        intervals=np.array([[0.0, 1.0], [1.0, np.inf], [np.nan, np.nan]]),
        of="ratios",
    )
    drawn = figure(ratios)
    assert drawn is not None
    (_, _, at_a, _, high_a, *a_beyond), (_, _, at_b, low_b, _, *b_beyond), (_, text, *places, _, _) = drawn["rows"]
    assert drawn["none"] - at_a == pytest.approx(at_b - drawn["none"])
    assert (a_beyond, b_beyond) == ([True, False], [False, True])
    assert high_a == low_b == drawn["none"]
    assert (text, places) == ("", [None] * 3)
    assert [text for _, text in drawn["ticks"]] == ["0.5", "1", "2"]


@pytest.fixture
def tables() -> Iterator[tuple[str, httpx.Client]]:
    release, files = published_tables()
    with learner(ServingCoordinator.serving((release, files))) as client:
        yield f"/releases/{release}", client


TABLE, WITHIN = {"row": "stage", "column": "readmitted"}, {"within": "smoker"}
EVENT = {"target": "stage", "family": "binomial", "event": "iii", "attributes": "smoker"}
ODDS = {"target": "readmitted", "attributes": ["stage", "readmitted"], "family": "binomial"}
ARROW = "An arrow means that the interval continues."


@pytest.mark.parametrize(
    ("question", "asked", "body", "said"),
    [
        (
            "table",
            TABLE | {"reference": "iii", "event": ""},
            TABLE | {"reference": "iii"},
            ("commingle table ./release stage readmitted --reference iii", "release.table(row=", ARROW),
        ),
        (
            "table",
            TABLE | WITHIN,
            TABLE | WITHIN,
            (
                "commingle table ./release stage readmitted --within smoker",
                "release.stratified(row='stage', column='readmitted', within='smoker')",
            ),
        ),
        (
            "glm",
            EVENT,
            {"formula": "stage[iii] ~ smoker"},
            ("--target 'stage[iii]' --features smoker --family binomial", "<option selected>iii</option>"),
        ),
        (
            "glm",
            ODDS,
            {"formula": "readmitted ~ stage"},
            ("commingle fit ./release --target readmitted --features stage --family binomial",),
        ),
    ],
    ids=["table", "strata", "event", "odds"],
)
def test_question_on_a_page_has_the_interfaces_sentence_as_its_headline_and_its_answer_as_a_file(
    tables: tuple[str, httpx.Client], question: str, asked: dict[str, Any], body: dict[str, Any], said: tuple[str, ...]
) -> None:
    address, http = tables
    answer = http.post(f"/v1{address}/analyses/{question}", json=body).json()
    page = unescape(http.get(f"{address}/{question}", params=asked).text)
    assert re.findall(r"<h1>(.*)</h1>", page) == [answer["sentence"]]
    assert [text for text in said if text not in page] == []
    csv_file, tex_file, json_file = (unescape(a) for a in Tags(page).addresses if f"/{question}." in a)
    assert http.get(csv_file).text.count("\n") > 1
    assert http.get(json_file).json() == answer
    assert http.get(tex_file).text.startswith(r"\begin{tabular}")


def test_page_of_odds_takes_all_attributes_and_any_family(tables: tuple[str, httpx.Client]) -> None:
    address, http = tables
    assert "smoker[yes]" in unescape(http.get(f"{address}/glm").text)
    assert http.get(f"{address}/glm", params=EVENT | {"family": "ordinal"}).status_code == 200
    assert http.get(f"{address}/table", params=TABLE).text.count('<svg class="bar"') == 3 + 2 * 3


def test_headline_says_intervals_as_the_table_does() -> None:
    n = 2000
    age = BinaryAttribute(name="age", levels=("[0, 60)", "[60, 90]"))
    died = BinaryAttribute(name="died", levels=("no", "yes"))
    cells = {
        "age": [age.levels[i % 2] for i in range(n)],
        "died": [died.levels[i % 8 < 1 + 2 * (i % 2)] for i in range(n)],
    }
    asked = Asked(
        release="", pinned=True, members_pinned=(), prepared=release_of((age, died), (1, 1), cells, epsilon=1e4)
    )
    answer = json.loads(shown("glm", asked, b'{"formula": "died ~ age"}').content)
    assert "at age[60, 90] as at age[0, 60) (95 %" in answer["headline"]
    assert answer["labels"] == ["(intercept)", "age[60, 90]"]


def test_page_of_rates_takes_a_number_as_the_time_and_says_so_in_its_lines() -> None:
    release, files = published_counts()
    with learner(ServingCoordinator.serving((release, files))) as http:
        body = {"formula": "falls ~ stage + site", "family": "poisson", "offset": "years"}
        answer = http.post(f"/v1/releases/{release}/analyses/glm", json=body).json()
        asked = {"target": "falls", "family": "poisson", "offset": "years"}
        page = unescape(http.get(f"/releases/{release}/glm", params=asked).text)
        assert http.get(f"/releases/{release}/glm.json", params=asked).json() == answer
    assert answer["outcome"] == "falls per years"
    assert re.findall(r"<h1>(.*)</h1>", page) == [answer["sentence"]]
    assert "--target falls --features stage --features site --family poisson --offset years" in page
    assert "family='poisson', offset='years')" in page
    [times] = re.findall(r'<select name="offset">(.*?)</select>', page)
    assert re.findall(r"<option[^>]*>(.+?)</option>", times) == ["no time", "falls", "years"]


def test_page_of_a_release_that_is_mostly_noise_claims_nothing_in_its_headline() -> None:
    release, files = published_tables(60)
    with learner(ServingCoordinator.serving((release, files))) as http:
        asked = {"target": "age", "attributes": ["stage", "smoker", "readmitted"]}
        fit = unescape(http.get(f"/releases/{release}/fit", params=asked).text)
        assert "<h1>Noise hides what stage, smoker and readmitted explain of age</h1>" in fit
        odds = unescape(http.get(f"/releases/{release}/glm").text)
        assert "<h1>Binomial model of readmitted[yes]</h1>" in odds


def test_rows_on_a_page_are_reported_and_those_of_its_file(tables: tuple[str, httpx.Client]) -> None:
    address, http = tables
    page = unescape(http.get(f"{address}/synthesize", params={"rows": 50, "attributes": ["stage", "smoker"]}).text)
    assert re.findall(r'<tr><th scope="row">([^<]+)<', page) == ["stage and smoker"]
    assert "these 50 rows" in page
    assert page.count('<svg class="bar"') == 3
    assert "commingle synthesize ./release stage smoker --rows 50 --out rows.csv" in page
    assert 'href="' + f'{address}/survival"' not in page
    [link] = [unescape(a) for a in Tags(page).addresses if "synthesize.csv" in a]
    file = http.get(link)
    assert file.headers["content-disposition"].startswith('attachment; filename="synthesize-')
    rows = list(csv.DictReader(io.StringIO(file.text)))
    assert (len(rows), list(rows[0])) == (50, ["stage", "smoker"])
    assert http.get(link).content == file.content
    for asked, said in (("10001", "10000 or less"), ("0", "rows"), ("many", "whole number"), ("9" * 99, "rows")):
        answer = http.get(f"{address}/synthesize", params={"rows": asked})
        assert (answer.status_code, said in answer.text) == (422, True)


@pytest.fixture
def followed() -> Iterator[tuple[str, httpx.Client]]:
    release, files = published_survival()
    with learner(ServingCoordinator.serving((release, files))) as client:
        yield f"/releases/{release}", client


def test_survival_on_a_page_is_drawn_with_who_is_at_risk(followed: tuple[str, httpx.Client]) -> None:
    address, http = followed
    answer = http.post(f"/v1{address}/analyses/survival", json={"outcome": "outcome", "by": "stage"}).json()
    page = unescape(http.get(f"{address}/survival", params={"by": "stage"}).text)
    assert re.findall(r"<h1>(.*)</h1>", page) == [answer["sentence"]]
    assert f'href="{address}/survival" aria-current="page"' in page
    assert (page.count("<polyline"), page.count("<polygon")) == (2, 2)
    for group, at_risk in zip(("i", "ii"), answer["at_risk"], strict=True):
        expected = ", ".join(f"{n:,.0f} at {12 * k}" for k, n in enumerate(at_risk))
        assert f'aria-label="At risk, {group}: {expected}"' in page
    assert "commingle survival ./release outcome --by stage<" in page


def test_hazard_ratios_of_what_is_ticked_stand_below_the_curves(followed: tuple[str, httpx.Client]) -> None:
    address, http = followed
    asked = {"attributes": ["stage", "site", "outcome"]}
    assert "by died (no or yes)" in http.get(address).text
    body = {"outcome": "outcome", "features": ["stage", "site"]}
    answer = http.post(f"/v1{address}/analyses/hazard-ratios", json=body).json()
    page = unescape(http.get(f"{address}/survival", params=asked).text)
    assert f"<b>{answer['sentence']}</b>" in page
    assert "An arrow means that the interval continues." in page
    assert "commingle survival ./release outcome --ratios stage --ratios site" in page
    assert "release.hazard_ratios(outcome='outcome', features=['stage', 'site'])" in page
    assert 'value="died"' not in page  # it is a part of the outcome
    [link] = [unescape(a) for a in Tags(page).addresses if "hazard-ratios.csv" in a]
    rows = list(csv.DictReader(io.StringIO(http.get(link).text)))
    assert [float(row["hazard ratio"]) for row in rows] == answer["ratios"]


def test_hazard_ratios_are_of_the_event_that_is_chosen(followed: tuple[str, httpx.Client]) -> None:
    address, http = followed
    asked = {"attributes": ["stage"], "event": "yes"}
    body = {"outcome": "outcome", "features": ["stage"], "event": "yes"}
    answer = http.post(f"/v1{address}/analyses/hazard-ratios", json=body).json()
    assert http.get(f"{address}/hazard-ratios.json", params=asked).json() == answer
    page = unescape(http.get(f"{address}/survival", params=asked).text)
    assert "<option selected>yes</option>" in page
    assert "commingle survival ./release outcome --event yes --ratios stage" in page
    assert (
        page.count("commingle survival ./release outcome<") + page.count("commingle survival ./release outcome\n") == 1
    )
    refused = http.get(f"{address}/survival", params=asked | {"event": "moved"})
    assert (refused.status_code, "<polyline" in refused.text) == (422, True)


def test_refused_hazard_ratios_leave_the_curves_on_the_page(followed: tuple[str, httpx.Client]) -> None:
    address, http = followed
    answer = http.get(f"{address}/survival", params={"attributes": ["died"]})
    assert answer.status_code == 422
    assert "Hazard ratios: died is a part of outcome" in answer.text
    assert "<polyline" in answer.text


def test_curve_is_drawn_to_scale_as_far_as_there_is_a_share(followed: tuple[str, httpx.Client]) -> None:
    page = followed[1].get(f"{followed[0]}/survival").text
    answer = followed[1].post(f"/v1{followed[0]}/analyses/survival", json={"outcome": "outcome"}).json()
    [line] = re.findall(r'<polyline[^>]* points="([^"]*)"', page)
    shares = [1.0, *(s for s in answer["survival"][0] if s is not None)]
    expected = [(WIDTH * k / 4, HEIGHT * (1 - share)) for k, share in enumerate(shares)]
    drawn = [tuple(map(float, point.split(","))) for point in line.split()]
    assert np.array(drawn) == pytest.approx(np.array(expected), abs=0.01)


def test_description_on_a_page_is_of_what_was_ticked(tables: tuple[str, httpx.Client]) -> None:
    address, http = tables
    page = unescape(http.get(f"{address}/describe", params={"attributes": ["age", "stage"], "by": "smoker"}).text)
    assert re.findall(r'<tr role="row"><th scope="row" role="rowheader">([^<]+)<', page) == [
        "age (years)",
        "stage = i",
        "stage = ii",
        "stage = iii",
    ]
    headings = re.findall(r'role="columnheader">([^<]+)<', page)[1:]
    assert re.findall(r'data-says="([^"]+)"', page) == headings * 4  # where a row of groups is no line
    assert "commingle describe ./release age stage --by smoker" in page


def test_question_that_cannot_be_answered_says_why_on_its_page(
    tables: tuple[str, httpx.Client], http: httpx.Client
) -> None:
    address, of_tables = tables
    for client, path in (
        (of_tables, f"{address}/table?row=age&column=stage"),
        (of_tables, f"{address}/survival"),
        (http, f"/releases/{ID}/describe"),
    ):
        answer = client.get(path)
        assert (answer.status_code, 'role="alert"' in answer.text) == (422, True)
        assert "Ask again" in answer.text
    assert of_tables.get(f"{address}/kmeans").status_code == 404


def test_release_of_numbers_offers_no_question_about_levels_and_says_what_it_lacks() -> None:
    release, files = published_numbers()
    with learner(ServingCoordinator.serving((release, files))) as http:
        page = http.get(f"/releases/{release}").text
        offered = [question for question in TITLES if f'href="/releases/{release}/{question}"' in page]
        assert offered == ["fit", "describe"]
        for question, title in TITLES.items():
            answer = http.get(f"/releases/{release}/{question}")
            assert answer.status_code == (200 if question in offered else 422)
            assert question in offered or f"<h1>{title}</h1>" in answer.text
            assert ("commingle study new --cut" in answer.text) == (question not in offered)


def test_page_of_a_fit_without_errors_has_no_empty_columns(http: httpx.Client) -> None:
    page = http.get(f"/releases/{ID}/fit", params=FIT | {"estimator": "shrunken"}).text
    assert re.findall(r'<th scope="col" class="number">([^<]+)</th>', page) == ["coefficient", "value"]


@pytest.mark.parametrize(
    ("of", "ends", "expected"),
    [
        ("effects", (-0.0707, 0.227), ["0", "0.1", "0.2"]),
        ("effects", (-223, 1030), ["0", "500", "1,000"]),
        ("effects", (2e-6, 3e-6), ["0", "1e\u221206", "2e\u221206", "3e\u221206"]),
        ("ratios", (0.9, 3.9), ["1", "2"]),
        ("ratios", (0.05, 20), ["0.1", "1", "10"]),
        ("ratios", (0.3, 5e8), ["1", "1,000", "1,000,000"]),
    ],
)
def test_axis_has_a_few_round_numbers(
    of: Literal["effects", "ratios"], ends: tuple[float, float], expected: list[str]
) -> None:
    picture = Intervals(
        title="", axis="", labels=("a", "b"), values=np.array(ends), intervals=np.full((2, 2), np.nan), of=of
    )
    drawn = figure(picture)
    assert drawn is not None
    assert [text for _, text in drawn["ticks"]] == expected


def test_interval_without_an_end_is_drawn_to_the_edge() -> None:
    column = ResultColumn("odds", np.array([1.0, 2.0]), interval=np.array([[0.5, np.inf], [1.0, 4.0]]))
    assert [bar and bar[2] == WIDTH for bar in bars(column) or ()] == [True, False]
    assert column.texts() == ["1 (0.5 to \u221e)", "2 (1 to 4)"]
    assert bars(ResultColumn("odds", np.array([np.nan]), interval=np.full((1, 2), np.nan))) is None
