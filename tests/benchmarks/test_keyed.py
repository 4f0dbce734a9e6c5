"""The benchmark of keyed subjects, small."""

from benchmarks.keyed import OVERLAPS, Setting, covered, markdown


def test_intervals_hold_most_coefficients_at_half_an_overlap() -> None:
    found = covered(Setting("moments", 2000, 50.0, 0.5), releases=12)
    assert found["answered"] == 1
    assert found["coverage"] is not None
    assert 0.85 < found["coverage"] <= 1


def test_report_has_a_line_for_every_setting() -> None:
    facts = {"mechanism": "rmgm", "people": 100, "epsilon": 1.0, "overlap": 0.5, "two_stages": True}
    figures = {"answered": 0.5, "coverage": 0.95, "least": None, "warned": 0.0, "selected": 0.0}
    report = {
        "coverage": [{**facts, **figures}],
        "tables": [
            {"table": "t", "mechanism": "rmgm", "subjects": "keyed", "overlap": o, "r_squared": 0.3} for o in OVERLAPS
        ],
    }
    lines = markdown(report)
    assert "| rmgm | 100 | 1 | 0.5 | two | 50% | 0.950 | - | 0.0% |" in lines
    assert len(lines) == 2 + 1 + 1 + 2 + len(OVERLAPS)
