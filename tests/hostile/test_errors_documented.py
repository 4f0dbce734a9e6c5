"""docs/errors.json, from which the page of errors is made: every code is there, with the status it is answered with."""

import json

import pytest

from tests.packaging.errors import FAMILIES, FILE, SERVICES, known, table

KEPT = json.loads(FILE.read_text())


def test_kept_table_is_the_one_of_the_code() -> None:
    assert table() == KEPT, "run: python -m tests.packaging.errors"


def test_every_code_is_documented_with_its_meaning_and_no_other() -> None:
    codes = {kind.code for kind in known()}
    assert KEPT.keys() | FAMILIES == codes | {"request", "http", "fault", "not-ready"}
    assert not KEPT.keys() & FAMILIES
    assert [code for code, row in KEPT.items() if not row["meaning"]] == []


@pytest.mark.parametrize("service", SERVICES)
def test_documented_status_is_the_one_answered(service: str) -> None:
    package, statuses = SERVICES[service]
    elsewhere = {other.__name__ for other, _ in SERVICES.values()} - {package.__name__}
    answered: dict[str, set[int]] = {"request": {422}, "http": {404}, "not-ready": {503}, "fault": {500}}
    for kind in known():
        if not kind.__module__.startswith(tuple(f"{name}." for name in elsewhere)):
            status = next((statuses[base] for base in kind.__mro__ if base in statuses), 500)
            answered.setdefault(kind.code, set()).add(status)
    rows = [(code, row[service]) for code, row in KEPT.items() if service in row]
    assert len(rows) > 20
    assert [(code, status) for code, status in rows if status not in answered[code]] == []
