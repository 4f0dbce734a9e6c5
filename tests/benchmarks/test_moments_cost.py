from benchmarks.million import _role, _uses


def test_a_process_of_another_simulation_has_no_role() -> None:
    arguments = ["python", "-c", "code", '[41, ["party", "serve", "--home", "x"]]']
    assert _role(arguments, 41) == "party serve"
    assert _role(arguments, 42) is None
    assert _role(["python", "-c", "code", "[41, null]"], 41) == "commands"
    assert _role(["python", "-c", "code"], 41) is None
    assert _role(["echo", "41"], 41) is None


def test_processes_that_are_not_its_own_are_not_counted() -> None:
    assert set(_uses(-1)) == set()
