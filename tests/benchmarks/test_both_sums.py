import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.both_sums import FITS, in_shares, main, over_thirds
from benchmarks.methods.in_parts import IN_PARTS
from benchmarks.wang2018_data import made_up
from commingle.party_agent.private.regression.sufficient import adassp
from tests.party_agent.private.regression.cases import Recording, linear_sample, privacy

pytestmark = pytest.mark.slow  # fits of every method


def test_equal_shares_are_the_papers_thirds_but_for_entries_beside_the_diagonal() -> None:
    sample, asked = linear_sample(np.random.default_rng(1)), privacy(0.5)
    mine, papers = Recording(), Recording()
    theta = in_shares(sample, asked, mine, shares=(1 / 3, 1 / 3, 1 / 3))
    assert np.allclose(theta, IN_PARTS["adassp"].run(sample, asked, papers).coefficients)
    assert mine.deviations == pytest.approx(papers.deviations)
    assert (mine.symmetric, papers.symmetric) == ([False, True, False], [False, False, False])


def test_weight_one_is_the_products_adassp() -> None:
    sample, asked = linear_sample(np.random.default_rng(2)), privacy(0.5)
    one, other = Recording(), Recording()
    theta = FITS["at once, k = 1"](sample, privacy(0.5), one)
    if not asked.replaces:  # the benchmark's bound is that of replaced rows
        one.deviations = [sd * 2 / 3 for sd in one.deviations]
    adassp(sample, asked, other)
    assert one.deviations == pytest.approx(other.deviations)
    assert np.isfinite(theta).all()


def test_both_sums_at_once_have_less_error_than_thirds_on_a_made_up_table() -> None:
    table = made_up(4_000)
    found = over_thirds({"made-up": (table.x, table.y)}, runs=9)
    assert found["thirds"]["all"] == 1
    assert found["AdaSSP of the product"]["all"] < 0.97


def test_quick_run_without_the_data_prints_nothing_and_fails_nowhere() -> None:
    done = CliRunner().invoke(main, ["--quick", "--data", "nowhere"], catch_exceptions=False)
    assert done.exit_code == 0
