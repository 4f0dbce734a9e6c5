import json
from pathlib import Path

import pytest

from tests.tools.fuzz import damaged, fuzz, main
from tests.tools.fuzz_targets import targets

NAMES = {
    *("attributes", "block", "documents", "envelope", "manifest", "matrix", "moments", "request", "spec", "study"),
    *("answers", "body of a reply", "ciphertexts", "columns", "reply", "submission"),
    *("proved columns", "proved reply"),
    *("manifest of moments", "noisy moments", "regression asked", "regression shown"),
}


def test_every_target_accepts_its_corpus_and_lets_only_our_errors_out(tmp_path: Path) -> None:
    assert targets().keys() == NAMES
    for name in NAMES:
        found = fuzz(name, seconds=0.2, seed=1, progress=tmp_path / "progress")
        assert found.faults == (), name
        assert found.inputs == found.accepted + found.refused > 0


def test_seed_and_number_give_the_same_input_in_every_process() -> None:
    first, second = targets(), targets()
    for name in first.keys() - {"request"}:  # a nonce is never the same
        chosen = first[name]
        inputs = [damaged(name, chosen, seed=3, number=number) for number in range(20)]
        assert inputs == [damaged(name, second[name], seed=3, number=number) for number in range(20)], name
        assert len(set(inputs)) > 10


def test_quick_run_prints_a_table_and_writes_well_formed_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "fuzz.json"
    main(["--quick", "--target", "block", "--json", str(target)])  # leaves with SystemExit where there is a fault
    [result] = json.loads(target.read_text())["results"]
    assert (result["target"], result["faults"]) == ("block", [])
    assert result["inputs"] > 0
    assert len(capsys.readouterr().out.splitlines()) == 2
