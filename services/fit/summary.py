"""A fit as text, laid out as statsmodels lays out its own."""

import math
import textwrap
from typing import TYPE_CHECKING

from commingle.shared.mechanisms import mechanism_of

if TYPE_CHECKING:  # result.py renders through this module
    from commingle.services.fit.result import Fit

_WIDTH = 78
COVERED = {
    "table": "Intervals are for the same fit on the full private table.",
    "population": "Intervals are for the population the table was drawn from.",
    "release": "Intervals are for the noisy release itself, not for the private table.",
    "none": "There are no intervals for this fit.",
}


def render(fit: "Fit", *, epsilon: str | None, delta: str | None) -> str:
    """Header, coefficients, warnings."""
    rule, thin = "=" * _WIDTH, "-" * _WIDTH
    header = [
        ("Target:", fit.target, "Subjects (n):", str(fit.n)),
        ("Estimator:", fit.estimator, "Published rows (k):", str(fit.rows) if mechanism_of(fit).of_rows else "-"),
        ("Mechanism:", fit.mechanism, "Df residuals:", str(fit.degrees_of_freedom)),
        ("Epsilon:", epsilon or "not given", "Expected R-squared:", _r_squared(fit)),
        ("Delta:", delta or "not given", "Signal to noise:", _number(fit.diagnostics.signal_to_noise)),
    ]
    lines = ["Linear model on a private release".center(_WIDTH).rstrip(), rule]
    lines += [f"{a:<11}{b:<28.28}{c:<20}{d:>19}".rstrip() for a, b, c, d in header]
    lines += [rule, *_table(fit, thin), rule, COVERED[fit.interval_for]]
    if fit.warnings:
        lines += ["", "Warnings:"]
    for number, warning in enumerate(fit.warnings, start=1):
        lines += _wrapped(warning, first=f"[{number}] ", rest="    ")
    return "\n".join(lines)


def _table(fit: "Fit", thin: str) -> list[str]:
    label = min(26, max(12, *(len(term) for term in fit.terms)))
    tail = (1 - fit.confidence_level) / 2
    heads = ("coef", "std err", "t", "P>|t|", f"[{tail:.4g}", f"{1 - tail:.4g}]")
    columns = zip(
        fit.terms, fit.coefficients, fit.standard_errors, fit.t_values, fit.p_values, fit.intervals, strict=True
    )
    rows = [
        f"{term:<{label}.{label}}{b:>10.4g}{_cell(se, '.4g')}{_cell(t, '.2f', 8)}{_cell(p, '.3f', 8)}"
        f"{_cell(low, '.4g', 12)}{_cell(high, '.4g', 12)}"
        for term, b, se, t, p, (low, high) in columns
    ]
    widths = (10, 11, 8, 8, 12, 12)
    head = " " * label + "".join(f"{text:>{width}}" for text, width in zip(heads, widths, strict=True))
    return [head, thin, *rows]


def _cell(value: float, form: str, width: int = 11) -> str:
    return f"{format(value, form) if not math.isnan(value) else '-':>{width}}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _r_squared(fit: "Fit") -> str:
    d = fit.diagnostics
    if d.r_squared is None or d.r_squared_error is None:
        return "-"
    return f"{d.r_squared:.3f} (se {d.r_squared_error:.3f})"


def _wrapped(text: str, first: str = "", rest: str = "") -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=first, subsequent_indent=rest)
