"""Tables that commands print."""

import pytest

from commingle.shared.runtime.console import PlainConsole, coefficients


@pytest.mark.parametrize(
    ("terms", "shown", "lacks"),
    [
        ([("age", 0.5, 12.0), ("x", 0.25, None)], ["12", "too large"], ["0.25", "0.5", "encoded"]),
        ([("age", 0.5, None), ("x", 0.25, None)], ["encoded, rows divided", "0.5", "0.25"], ["too large"]),
    ],
)
def test_coefficients_of_one_table_are_all_in_the_same_units(
    terms: list[tuple[str, float, float | None]], shown: list[str], lacks: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    PlainConsole().print(coefficients(terms))
    said = capsys.readouterr().out
    assert all(text in said for text in shown), said
    assert not any(text in said for text in lacks), said
