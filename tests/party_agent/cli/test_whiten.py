"""`commingle party whiten` on public rows."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from commingle.__main__ import main
from commingle.shared.documents.model import decode
from commingle.shared.documents.schema import Whitening
from commingle.shared.dp.whitening import IntegerMap

SCHEMA = [
    {"kind": "numeric", "name": "temp", "lower": 0, "upper": 40},
    {"kind": "numeric", "name": "felt", "lower": 0, "upper": 40},
    {"kind": "categorical", "name": "season", "levels": ["winter", "spring", "summer"]},
]


def public_rows(n: int, seed: int = 0) -> NDArray[np.str_]:
    draw = np.random.default_rng(seed)
    temp = draw.normal(30, 2, n)
    felt = temp + draw.normal(0, 0.2, n)
    return np.column_stack([temp.astype(str), felt.astype(str), draw.choice(["winter", "spring", "summer"], n)])


def whiten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: NDArray[np.str_], *options: object
) -> tuple[int, Any, str]:
    """Exit code, printed document and complaint."""
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "public.csv").write_text("\n".join(["temp,felt,season", *(",".join(row) for row in rows)]))
    files = ("--public", tmp_path / "public.csv", "--schema", tmp_path / "schema.json", "--out", tmp_path / "w.json")
    with pytest.raises(SystemExit) as ended:
        main(["party", "whiten", *map(str, (*files, "--json", *options))])
    said = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, json.loads(said.out) if said.out else None, said.err


def test_whitening_of_public_rows_makes_other_rows_of_the_same_law_isotropic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said, _ = whiten(tmp_path, capsys, public_rows(400), "--ridge", 1e-7, "--radius", 8)
    assert code == 0
    assert (said["columns"], said["public_rows"], said["row_norm"], said["share_clipped"]) == (4, 400, 1.0, 0.0)
    assert said["condition_number_before"] > 1000
    assert said["condition_number_after"] == pytest.approx(1, abs=0.02)  # but for the ridge
    made = decode(Whitening, (tmp_path / "w.json").read_bytes())
    rows = public_rows(20_000, seed=1)
    encoded = np.column_stack([
        rows[:, :2].astype(float) / 20 - 1, rows[:, 2] == "spring", rows[:, 2] == "summer",
    ])  # fmt: skip
    z = IntegerMap.of(made.matrix, made.centre).rows((encoded * 2**15).astype(np.int64)) / 2**15 * 8
    assert np.abs(z.mean(axis=0)).max() < 0.15
    assert np.abs(np.cov(z.T) - np.eye(4)).max() < 0.25  # 400 public rows: about 3 / sqrt(400)


def test_average_row_fills_the_norm_where_no_radius_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, said, _ = whiten(tmp_path, capsys, public_rows(400))
    assert 0.2 < said["share_clipped"] < 0.6


def test_direction_in_which_public_rows_do_not_vary_is_held_by_the_ridge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = public_rows(50)
    rows[:, 2] = "winter"
    code, said, _ = whiten(tmp_path, capsys, rows)
    assert code == 0
    assert said["condition_number_before"] is None
    code, _, complaint = whiten(tmp_path, capsys, rows, "--ridge", 0)
    assert code == 1
    assert "--ridge" in complaint


def test_single_public_row_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, complaint = whiten(tmp_path, capsys, public_rows(1))
    assert code == 1
    assert "1 public rows" in complaint


def test_printed_document_and_text_say_that_the_matrix_is_published(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, said, _ = whiten(tmp_path, capsys, public_rows(50))
    assert "PUBLIC rows only" in said["warning"]
    files = ("--public", tmp_path / "public.csv", "--schema", tmp_path / "schema.json", "--out", tmp_path / "w.json")
    with pytest.raises(SystemExit):
        main(["party", "whiten", *map(str, files)])
    assert "PUBLIC rows only" in capsys.readouterr().out
