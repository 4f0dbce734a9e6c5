"""Examples of what an HTTP interface takes and answers, for its OpenAPI document: what a real run of it has kept.

`python -m tests.packaging.answers` makes that run.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Describe = Callable[[], dict[str, Any]]


def with_answers(describe: Describe, kept: Path) -> Describe:
    """What makes an OpenAPI document, and puts examples into it.

    Args:
        describe: makes it without them.
        kept: a JSON object by method, path and status, such as "GET /v1/status 200", of what was answered and, where
            there was a body, asked. Long texts and lists are cut. A body that has an example already keeps that.
    """

    def described() -> dict[str, Any]:
        whole = describe()
        for name, told in json.loads(kept.read_text()).items():
            method, path, status = name.split()
            operation = whole["paths"].get(path, {}).get(method.lower(), {})
            if (answer := _content(operation.get("responses", {}).get(status))) is None:
                continue  # of another version, or a file
            answer["example"] = told["answer"]
            body = _content(operation.get("requestBody"))
            if body is not None and "examples" not in body and "asked" in told:
                body["example"] = told["asked"]
        return whole

    return described


def _content(described: Any) -> dict[str, Any] | None:  # noqa: ANN401 - JSON
    found: dict[str, Any] | None = (described or {}).get("content", {}).get("application/json")
    return found
