"""The benchmark of choices in hindsight runs from end to end, and cuts where it says."""

from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.hindsight import main, radius
from commingle.shared.dp.accounting import Rho
from commingle.shared.registry import mechanism_named
from tests.benchmarks.test_second_moments import tables

__all__ = ["tables"]


@pytest.mark.parametrize("mechanism", ["moments", "rmgm"])
def test_quick_run_prints_every_choice(tables: Path, mechanism: str) -> None:
    asked = ["--quick", "--data", str(tables), "--table", "autompg", "--mechanism", mechanism, "--epsilon", "10"]
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 0, result.output
    assert result.output.count("share ") == 24
    assert result.output.count("planned k") == (3 if mechanism == "rmgm" else 0)


def test_radius_is_that_whatever_the_figures_of_a_release() -> None:
    mechanism = mechanism_named("moments")
    usual = mechanism.radius_squared(rho=Rho(1 << 64), n=10**6, columns=Fraction(4))
    with radius("moments", Fraction(3, 2)):
        assert mechanism.radius_squared(rho=Rho(1 << 64), n=10**6, columns=Fraction(4)) == Fraction(3, 2)
    assert mechanism.radius_squared(rho=Rho(1 << 64), n=10**6, columns=Fraction(4)) == usual
