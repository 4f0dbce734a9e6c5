import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.exchanged import approved
from benchmarks.mpyc_products import PARTIES, main, matrix


def test_quick_run_gives_ratios_of_products_found_equal(tmp_path: Path) -> None:
    pytest.importorskip("mpyc")
    out = tmp_path / "products.json"
    result = CliRunner().invoke(main, ["--quick", "--json", str(out)], catch_exceptions=False)
    assert result.exit_code == 0, result.output  # leaves with 1 where either gives other products
    report = json.loads(out.read_text())
    assert (report["n"], report["columns"]) == (500, 2)
    assert all(report["ratio"][unit] > 0 for unit in ("cpu", "wall", "bytes"))
    assert report["ours"]["steps"].keys() == {"encrypt", "reply", "submit"}
    assert "MPyC over ours" in result.output


def test_exchange_gives_exact_products_and_counts_what_goes_up_and_down() -> None:
    n, columns = 4100, 3
    matrices = [matrix(party, n, columns) for party in range(PARTIES)]
    exchanging = approved(n, columns, PARTIES)
    whole = np.hstack(matrices)
    np.testing.assert_array_equal(exchanging.products(matrices), whole.T @ whole)
    key, stripes = 5 * 8192 * 4, 2  # of 2730 rows each
    ciphertexts, part = key * (1 + stripes), 3 * (8192 + columns) * 4 * columns
    # the replies have one part and two, and go up once and whole to each party before
    assert exchanging.bytes_sent == (3 + 2) * ciphertexts + (1 * 2 + 2 * 3) * part
    assert sum(map(len, exchanging.bodies.values())) == 2 * ciphertexts
