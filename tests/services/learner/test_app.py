import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from pydantic import TypeAdapter

from commingle import Release
from commingle.services.learner.computing import COMPUTATIONS, MAX_BODY_BYTES
from commingle.services.learner.requests import MAX_ROWS
from commingle.shared.documents.model import decode
from commingle.shared.documents.study import Study
from commingle.shared.forecast.forecast import plan
from commingle.shared.forecast.task import Assumptions
from commingle.shared.release.checks import terms_of
from tests.world.released import (
    SLOPES,
    STRANGER,
    WHITENING,
    ServingCoordinator,
    html,
    learner,
    problem,
    published,
    refused,
    resigned,
    too_slow,
)

TARGET = "charges, yearly"
ID = published()[0]
ROW = {"age": 40, "bmi": 25.5, "smoker": "yes"}


def refusal(response: httpx.Response, status: int) -> dict[str, Any]:
    """The problem document of a refused request."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    assert document["status"] == status
    assert document["type"].startswith("urn:commingle:problem:")
    assert document["detail"]
    assert document["remedy"]
    return document


def test_list_is_the_coordinators(http: httpx.Client) -> None:
    said = http.get("/v1/releases").json()
    assert (said["source"], said["next"]) == ("coordinator", None)
    assert said["items"][0]["id"] == ID
    assert said["items"][0]["parties"] == ["clinic", "insurer"]


def test_list_is_paged() -> None:
    ids = [f"{i:064x}" for i in range(5)]
    with learner(ServingCoordinator(files=dict.fromkeys(ids, published()[1]))) as http:
        first = http.get("/v1/releases", params={"limit": 3}).json()
        second = http.get("/v1/releases", params={"limit": 3, "cursor": first["next"]}).json()
    assert [item["id"] for item in first["items"] + second["items"]] == ids
    assert second["next"] is None


def test_cursor_the_coordinator_did_not_give_is_the_askers_fault(fake: ServingCoordinator, http: httpx.Client) -> None:
    fake.instead = lambda _: problem(422, "cursor")
    assert refusal(http.get("/v1/releases", params={"cursor": "x"}), 422)["type"].endswith("cursor")
    refusal(http.get("/v1/releases"), 502)


def test_release_shows_attributes_size_privacy_and_signal(http: httpx.Client) -> None:
    said = http.get(f"/v1/releases/{ID}").json()
    assert (said["n"], said["k"], said["rows"], said["mechanism"]) == (2000, 400, 400, "rmgm")
    assert [a["name"] for a in said["attributes"]] == ["age", "bmi", "smoker", TARGET]
    assert said["coordinator_pinned"] is True
    assert said["privacy"]["per_subject"]["own"]["epsilon"] > said["epsilon"]
    intercept, *columns = said["columns"]
    assert intercept["signal_to_noise"] is None
    assert all(column["signal_to_noise"] > 10 for column in columns)


@pytest.mark.parametrize("form", ["dcat", "croissant"])
def test_release_has_metadata_for_catalogues_with_the_coordinators_addresses(http: httpx.Client, form: str) -> None:
    answer = http.get(f"/v1/releases/{ID}/metadata?form={form}")
    said = answer.json()
    assert answer.headers["content-type"].startswith("application/ld+json")
    assert said["commingle:privacy"]["commingle:epsilonPerParty"] == 1e4
    files = said["distribution" if form == "croissant" else "dcat:distribution"]
    at = (files[0]["contentUrl"] if form == "croissant" else files[0]["dcat:accessURL"]["@id"]).rpartition("/v1/")[2]
    assert at == f"releases/{ID}/matrix"
    assert f'href="/v1/releases/{ID}/metadata"' in http.get(f"/releases/{ID}").text


def test_signal_to_noise_falls_with_epsilon_to_nothing() -> None:
    release = published(epsilon=0.01)
    with learner(ServingCoordinator.serving(release)) as http:
        said = http.get(f"/v1/releases/{release[0]}").json()
    assert all(abs(column["signal_to_noise"]) < 0.3 for column in said["columns"][1:])


def test_moments_are_the_grams_without_the_expected_noise(http: httpx.Client) -> None:
    said = http.get(f"/v1/releases/{ID}/moments").json()
    prepared = Release.of(published()[1]).prepared
    expected = prepared.gram - prepared.rows * prepared.V
    np.testing.assert_allclose(said["second_moments"], expected, rtol=1e-12)
    assert said["columns"][0] == "(intercept)"
    assert said["noise_variance"][0] == 0
    assert len(said["scale"]) == len(said["labels"]) == 5


def test_moments_of_a_whitened_release_are_in_encoded_units_with_the_covariance_of_their_noise() -> None:
    release = published(whitening=WHITENING)
    with learner(ServingCoordinator.serving(release)) as http:
        said = http.get(f"/v1/releases/{release[0]}/moments").json()
        detail = http.get(f"/v1/releases/{release[0]}").json()
    assert said["columns"] == ["(intercept)", "age", "bmi", "smoker", TARGET]
    V = np.array(said["noise_covariance"])
    np.testing.assert_allclose(np.diag(V), said["noise_variance"])
    assert V[1, 2] > 0.1 * np.sqrt(V[1, 1] * V[2, 2])
    assert np.count_nonzero(V) == 6
    mixing = np.array(said["mixing"])
    np.testing.assert_allclose(mixing[1:3, 1:3] @ np.array(WHITENING.matrix), np.eye(2), atol=1e-5)
    np.testing.assert_allclose(mixing[1:3, 0], WHITENING.centre, atol=1e-4)
    np.testing.assert_array_equal(mixing[3:], np.eye(5)[3:])
    assert [c["name"] for c in detail["columns"]][1:3] == ["whitened[age]", "whitened[bmi]"]
    assert all(c["signal_to_noise"] > 10 for c in detail["columns"][1:])


def test_release_of_keyed_subjects_tells_how_many_there_are_and_a_fit_says_so() -> None:
    release = published(keyed=True)
    with learner(ServingCoordinator.serving(release)) as http:
        detail = http.get(f"/v1/releases/{release[0]}").json()
        moments = http.get(f"/v1/releases/{release[0]}/moments").json()
        fit = http.post(
            f"/v1/releases/{release[0]}/fits", json={"target": TARGET, "features": ["age", "smoker"]}
        ).json()
    assert (detail["subjects"], detail["adjacency"]) == ("keyed", "add_remove")
    counts = {tuple(c["parties"]): (c["subjects"], c["error"]) for c in detail["subject_counts"]}
    assert counts.keys() == {("clinic",), ("insurer",), ("clinic", "insurer")}
    assert all(abs(subjects - 2000) < 5 * error for subjects, error in counts.values())
    assert [c["name"] for c in detail["columns"]] == ["(intercept)", "age", "bmi", "smoker", TARGET]
    assert moments["second_moments"][0][0] == moments["n"]
    assert fit["estimator"] == "ols"
    assert fit["subjects"][0].startswith("clinic holds about ")


def test_fit_is_the_same_as_in_python(http: httpx.Client) -> None:
    body = {"target": TARGET, "features": ["age", "smoker"], "estimator": "ols", "confidence_level": 0.9}
    said = http.post(f"/v1/releases/{ID}/fits", json=body).json()
    fitted = Release.of(published()[1]).fit(TARGET, ["age", "smoker"], estimator="ols", confidence_level=0.9)
    pins = {"coordinator_pinned": True, "members_pinned": []}
    assert said == {"release": ID, **pins, **json.loads(json.dumps(fitted.to_dict()))}


def test_fit_with_a_target_alone_uses_all_other_attributes(http: httpx.Client) -> None:
    said = http.post(f"/v1/releases/{ID}/fits", json={"target": TARGET}).json()
    assert (said["features"], said["estimator"]) == (["age", "bmi", "smoker"], "measurement_error")
    assert dict(zip(said["features"], said["coefficients"][1:], strict=True)) == pytest.approx(SLOPES, abs=0.8)


@pytest.mark.parametrize(
    "estimator", ["measurement_error", "shrunken", "ols", "debiased", "adaptive_ridge", "constant"]
)
def test_every_estimator_answers_as_described_with_and_without_signal(estimator: str) -> None:
    noisy, (described,) = published(epsilon=0.01), (one.gives for one in COMPUTATIONS if one.name == "fit")
    with learner(ServingCoordinator.serving(published(), noisy)) as http:
        for release in (ID, noisy[0]):
            body = {"target": TARGET, "estimator": estimator}
            with_one = http.post(f"/v1/releases/{release}/fits", json=body)
            body["intercept"] = estimator == "constant"  # type: ignore[assignment]
            for answer in (with_one, http.post(f"/v1/releases/{release}/fits", json=body)):
                assert answer.status_code == 200
                TypeAdapter(described).validate_json(answer.content)


def test_predictions_are_those_of_the_fit(http: httpx.Client) -> None:
    rows = [ROW, {**ROW, "smoker": "no", "unused": 1}]
    said = http.post(f"/v1/releases/{ID}/predictions", json={"target": TARGET, "rows": rows}).json()
    assert said["estimator"] == "shrunken"
    assert said["predictions"][0] == pytest.approx(2 * 40 - 25.5 + 12, abs=5)
    assert said["predictions"][0] - said["predictions"][1] == pytest.approx(12, abs=0.8)


BAD_FITS: list[tuple[object, str]] = [
    ({}, "request"),
    ([], "request"),
    ("x", "request"),
    ({"target": None}, "request"),
    ({"target": 3}, "request"),
    ({"target": TARGET, "features": "age"}, "request"),
    ({"target": TARGET, "features": [1]}, "request"),
    ({"target": TARGET, "features": ["age"] * 1000}, "request"),
    ({"target": TARGET, "intercept": "yes"}, "request"),
    ({"target": TARGET, "intercept": 1}, "request"),
    ({"target": TARGET, "confidence_level": "0.9"}, "request"),
    ({"target": TARGET, "confidence_level": 0}, "request"),
    ({"target": TARGET, "confidence_level": 1}, "request"),
    ({"target": TARGET, "interval_for": "me"}, "request"),
    ({"target": TARGET, "unknown": 1}, "request"),
    ({"target": "x" * 10_000}, "request"),
    ({"target": "chargs"}, "unknown-attribute"),
    ({"target": TARGET, "features": ["agee"]}, "unknown-attribute"),
    ({"target": TARGET, "features": []}, "features"),
    ({"target": TARGET, "features": ["age", "age"]}, "features"),
    ({"target": TARGET, "features": [TARGET]}, "target-among-features"),
    ({"target": TARGET, "estimator": "magic"}, "unknown-estimator"),
    ({"target": TARGET, "estimator": "constant", "intercept": False}, "intercept"),
]


@pytest.mark.parametrize(("body", "code"), BAD_FITS)
def test_bad_fit_is_a_problem_document(http: httpx.Client, body: object, code: str) -> None:
    document = refusal(http.post(f"/v1/releases/{ID}/fits", json=body), 422)
    assert document["type"] == f"urn:commingle:problem:{code}"


def test_field_that_a_body_has_not_is_named_with_the_one_that_is_meant(http: httpx.Client) -> None:
    document = refusal(http.post(f"/v1/releases/{ID}/fits", json={"targt": TARGET}), 422)
    assert document["detail"] == "the body has no field 'targt'"
    assert document["remedy"].startswith("Did you mean 'target'? Fields: target, features, ")


def test_number_beyond_its_bounds_is_clipped_with_a_warning_unless_extrapolation_is_asked_for(
    http: httpx.Client,
) -> None:
    def ask(age: float, **more: object) -> httpx.Response:
        body = {"target": TARGET, "estimator": "measurement_error", "rows": [{**ROW, "age": age}], **more}
        return http.post(f"/v1/releases/{ID}/predictions", json=body)

    at, beyond, drawn_on = ask(80).json(), ask(1000).json(), ask(1000, extrapolate=True).json()
    assert beyond["predictions"] == at["predictions"] < drawn_on["predictions"]
    said = "1 of 1 values of age lay outside 20 to 80 and were clipped; set extrapolate to take them as they are."
    assert [said in answer["warnings"] for answer in (at, beyond, drawn_on)] == [False, True, False]
    refusal(ask(1.7e308, extrapolate=True), 422)


BAD_ROWS: list[tuple[object, str]] = [
    ([], "request"),
    ({}, "request"),
    ([1], "request"),
    ([{"age": [1]}], "request"),
    ([{**ROW, "age": None}], "request"),
    ([{**ROW, "age": True}], "request"),
    ([{**ROW, "age": 10**400}], "request"),
    ([{}] * (MAX_ROWS + 1), "request"),
    ([{}], "rows"),
    ([ROW, {"age": 1, "bmi": 20}], "rows"),
    ([{**ROW, "age": "old"}], "rows"),
    ([{**ROW, "smoker": "maybe"}], "rows"),
    ([{**ROW, "smoker": 1}], "rows"),
    ([{**ROW, "age": "nan"}], "rows"),
]


@pytest.mark.parametrize(("rows", "code"), BAD_ROWS)
def test_bad_rows_are_a_problem_document(http: httpx.Client, rows: object, code: str) -> None:
    document = refusal(http.post(f"/v1/releases/{ID}/predictions", json={"target": TARGET, "rows": rows}), 422)
    assert document["type"] == f"urn:commingle:problem:{code}"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe\x00",
        b"[" * 5000,
        b'{"target": NaN}',
        b"1" * 5000,
        b'{"target": "a", "confidence_level": 1e999}',
    ],
)
def test_body_that_is_no_json_is_a_problem_document(http: httpx.Client, body: bytes) -> None:
    response = http.post(f"/v1/releases/{ID}/fits", content=body, headers={"content-type": "application/json"})
    refusal(response, response.status_code)
    assert response.status_code in {400, 422}


def test_body_that_is_too_large_is_stopped_even_without_a_length(http: httpx.Client) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(MAX_BODY_BYTES // (1 << 20) + 2):
            yield b" " * (1 << 20)

    headers = {"content-type": "application/json"}
    refusal(http.post(f"/v1/releases/{ID}/fits", content=endless(), headers=headers), 413)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("DELETE", "/v1/releases", 405),
        ("GET", f"/v1/releases/{'0' * 64}", 404),
        ("GET", "/v1/releases/not-an-id", 404),
        ("GET", "/v1/releases/..%2F..%2Fcoordinator", 404),
        ("GET", f"/v1/releases/{'0' * 64}/moments", 404),
        ("GET", f"/v1/releases/{'0' * 64}/metadata", 404),
        ("GET", f"/v1/releases/{ID}/metadata?form=rdf", 422),
        ("POST", f"/v1/releases/{'0' * 64}/fits", 404),
        ("GET", "/v1/releases?limit=0", 422),
        ("GET", "/v1/releases?limit=x", 422),
        ("GET", f"/v1/releases?cursor={'x' * 1000}", 422),
    ],
)
def test_wrong_address_is_a_problem_document(http: httpx.Client, method: str, path: str, status: int) -> None:
    refusal(http.request(method, path, json={"target": TARGET}), status)


def test_release_that_is_not_published_yet_is_409(fake: ServingCoordinator, http: httpx.Client) -> None:
    fake.unpublished.append("1" * 64)
    assert refusal(http.get(f"/v1/releases/{'1' * 64}"), 409)["type"].endswith("not-published")


@pytest.mark.parametrize(("answer", "status"), [(refused, 503), (too_slow, 503), (html, 502)])
def test_coordinator_away_serves_what_was_kept_and_refuses_the_rest(
    fake: ServingCoordinator, http: httpx.Client, answer: Any, status: int
) -> None:
    http.get(f"/v1/releases/{ID}")
    fake.instead = answer
    assert http.post(f"/v1/releases/{ID}/fits", json={"target": TARGET}).status_code == 200
    refusal(http.get(f"/v1/releases/{'0' * 64}"), status)


def test_release_that_does_not_verify_is_502_and_never_fitted() -> None:
    forged = resigned(published()[1], STRANGER)
    with learner(ServingCoordinator.serving((ID, forged))) as http:
        document = refusal(http.post(f"/v1/releases/{ID}/fits", json={"target": TARGET}), 502)
        assert document["type"].endswith("verification")


STUDY: dict[str, Any] = {
    "study": "Charges",
    "epsilon": 3,
    "delta": 1e-5,
    "n": 100_000,
    "parties": [
        {
            "name": name,
            "dataset": "main",
            "attributes": [{"kind": "numeric", "name": f"{name}-{i}", "lower": 0, "upper": 9} for i in range(2)],
        }
        for name in ("clinic", "insurer")
    ],
}


@pytest.mark.slow
def test_plan_of_a_study_is_the_planners(http: httpx.Client) -> None:
    body = {"study": STUDY, "target": "insurer-0", "features": ["clinic-0", "clinic-1"], "r_squared": 0.5}
    said = http.post("/v1/plans", json=body)
    assert said.status_code == 200, said.text
    assumed = Assumptions(target="insurer-0", features=("clinic-0", "clinic-1"), r_squared=0.5)
    expected = plan(terms_of(decode(Study, json.dumps(STUDY).encode())), assumed)
    assert said.json() == json.loads(json.dumps(asdict(expected)))
    assert said.json()["forecast"]["useful"]


def of_public_rows(http: httpx.Client, **more: int) -> dict[str, Any]:
    """The forecast with second moments of a public table."""
    moments = np.diag([1.0, 0.1, 0.1, 0.1, 0.1])
    moments[1, 3] = moments[3, 1] = 0.05
    body = {"study": STUDY, "target": "insurer-0", "second_moments": moments.tolist(), **more}
    forecast: dict[str, Any] = http.post("/v1/plans", json=body).json()["forecast"]
    return forecast


def test_plan_takes_second_moments_of_a_public_table(http: httpx.Client) -> None:
    said = of_public_rows(http)
    assert (said["public_table"], said["r_squared_assumed"]) == (True, pytest.approx(0.25))


@pytest.mark.slow
@pytest.mark.parametrize("rows", [2, 10**12])
def test_plan_says_how_much_so_few_public_rows_leave_open(http: httpx.Client, rows: int) -> None:
    said = of_public_rows(http, public_rows=rows)
    least, most = said["r_squared_range"]
    assert said["public_rows"] == rows
    assert least <= said["r_squared"] <= most
    assert (most - least < 0.001) is (rows == 10**12)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"public_rows": 1}, "request"),
        ({"public_rows": 10**13}, "request"),
        ({"study": {**STUDY, "epsilon": 0}}, "privacy-parameter"),
        ({"study": {**STUDY, "k": 0}}, "planning"),
        ({"study": {**STUDY, "parties": []}}, "request"),
        ({"study": {**STUDY, "more": 1}}, "request"),
        ({"study": 1}, "request"),
        ({"target": "nobody"}, "planning"),
        ({"r_squared": 1}, "request"),
        ({"second_moments": [[1, 0], [0]]}, "planning"),
        ({"second_moments": []}, "planning"),
        ({"more": 1}, "request"),
    ],
)
def test_plan_that_cannot_be_made_is_a_problem(http: httpx.Client, changes: dict[str, Any], kind: str) -> None:
    document = refusal(http.post("/v1/plans", json={"study": STUDY, **changes}), 422)
    assert document["type"].endswith(f":{kind}")


def test_study_that_is_none_is_explained_without_repeating_it(http: httpx.Client) -> None:
    said = http.post("/v1/plans", json={"study": {**STUDY, "n": "sentinel"}})
    detail = refusal(said, 422)["detail"]
    assert "n: is to be a whole number" in detail
    assert "sentinel" not in detail


def test_kept_releases_are_listed_and_served_after_a_restart_without_coordinator(
    fake: ServingCoordinator, tmp_path: Path
) -> None:
    with learner(fake, cache=tmp_path) as http:
        http.get(f"/v1/releases/{ID}")
    (tmp_path / "releases" / ("2" * 64)).write_text("damaged")
    fake.instead = refused
    with learner(fake, cache=tmp_path) as http:
        said = http.get("/v1/releases").json()
        assert (said["source"], [item["id"] for item in said["items"]]) == ("cache", [ID])
        assert http.get("/readyz").json()["releases_kept"] == 1
        assert http.post(f"/v1/releases/{ID}/fits", json={"target": TARGET}).status_code == 200
    with learner(fake, cache=tmp_path, trusted=STRANGER.fingerprint) as http:
        assert http.get("/v1/releases").json()["items"] == []
        refusal(http.get("/readyz"), 503)


def test_readiness_is_truthful(fake: ServingCoordinator, http: httpx.Client) -> None:
    assert http.get("/readyz").json() == {"status": "ready", "coordinator": "reachable", "releases_kept": 0}
    fake.instead = refused
    assert "no answer" in refusal(http.get("/readyz"), 503)["detail"]
    fake.instead = None
    http.get(f"/v1/releases/{ID}")
    fake.key = STRANGER
    assert "not with the one expected" in http.get("/readyz").json()["coordinator"]
    assert http.get("/healthz").json() == {"status": "ok"}


def test_concurrent_fits_agree_and_fetch_the_release_once(fake: ServingCoordinator, http: httpx.Client) -> None:
    def fit(number: int) -> str:
        features = ["age", "bmi"] if number % 2 else ["age"]
        return http.post(f"/v1/releases/{ID}/fits", json={"target": TARGET, "features": features}).text

    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(fit, range(60)))
    assert len(set(said[0::2])) == len(set(said[1::2])) == 1
    assert len(fake.requests) == 3


def test_metrics_count_by_route_and_estimator(fake: ServingCoordinator) -> None:
    with learner(fake, apart=True) as http:
        http.post(f"/v1/releases/{ID}/fits", json={"target": TARGET})
        http.get("/nowhere")
        text = http.get("/metrics").text
    assert 'commingle_learner_fits_total{estimator="measurement_error"} 1.0' in text
    assert 'route="/v1/releases/{release}/fits",status="200"} 1.0' in text
    assert 'route="none",status="404"} 1.0' in text
    assert "commingle_learner_releases_held 1.0" in text
