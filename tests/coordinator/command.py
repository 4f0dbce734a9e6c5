"""The command line, run in this process. Not for `serve`, which configures logging for good."""

import json
from typing import Any

import pytest

from commingle.__main__ import main


class Command:
    """Runs the command line in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["coordinator", *map(str, arguments)])
        printed = self._capsys.readouterr()
        code = ended.value.code
        return code if isinstance(code, int) else 0, printed.out, printed.err

    def json(self, *arguments: object) -> dict[str, Any]:
        code, out, err = self(*arguments, "--json")
        assert code == 0, err
        printed: dict[str, Any] = json.loads(out)
        return printed
