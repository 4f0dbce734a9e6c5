"""What an application offers, by its own OpenAPI document."""

from fastapi import FastAPI

Endpoint = tuple[str, str]
"""Method and path."""


def endpoints(app: FastAPI) -> set[Endpoint]:
    """Every one."""
    return {(method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods}
