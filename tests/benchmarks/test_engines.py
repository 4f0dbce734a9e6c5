from click.testing import CliRunner

from benchmarks import engines, push_down


def test_engines_are_held_against_the_block_of_one_process() -> None:
    shown = CliRunner().invoke(engines.main, ["--subjects", "300", "--partitions", "3", "--engine", "in-process"])
    assert shown.exit_code == 0, shown.output
    assert shown.output.splitlines()[-1].startswith("| in-process |")


def test_sums_in_sql_are_held_against_the_encoders() -> None:
    shown = CliRunner().invoke(push_down.main, ["--subjects", "1200"])
    assert shown.exit_code == 0, shown.output
    assert "| True |" in shown.output
