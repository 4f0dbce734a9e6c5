"""Imports for the process that a consortium's children are forked from (`processes`).

Nothing runs here but imports: no thread, no key, no number from an entropy pool that forks would share.
"""

import gc
from importlib import import_module

import click

from commingle.__main__ import commingle, leave_out_unused

COMMANDS = (
    ("coordinator", "init"),
    ("coordinator", "invite"),
    ("coordinator", "serve"),
    ("coordinator", "propose"),
    ("party", "init"),
    ("party", "enrol"),
    ("party", "pin"),
    ("party", "token"),
    ("party", "datasets", "add"),
    ("party", "serve"),
    ("learner", "serve"),
)
"""The commands that a consortium runs."""


LATER = (
    "anyio._backends._asyncio",
    "commingle.coordinator.http.app",
    "commingle.party_agent.edge.app",
    "commingle.party_agent.edge.webhook",
    "commingle.shared.mechanisms.rows.block",
    "httpcore",
    "numpy.ma",
    "opendp.measurements",
    "sqlalchemy.dialects.sqlite",
    "uvicorn.lifespan.on",
    "uvicorn.loops.asyncio",
    "uvicorn.protocols.http.h11_impl",
)
"""Modules that more than one command loads while it works."""

leave_out_unused()
for path in COMMANDS:
    found: click.Command | None = commingle
    for name in path:
        found = found.get_command(click.Context(found), name) if isinstance(found, click.Group) else None
for name in LATER:
    import_module(name)
gc.freeze()  # or a collection in a child would touch, and so copy, all memory that it shares
