"""Lists of commands are written down, so that help loads nothing: they say what the commands say of themselves."""

import click
import pytest

from commingle.__main__ import commingle
from commingle.coordinator.cli import coordinator
from commingle.party_agent.cli.party import party
from commingle.shared.runtime.cli import LazyGroup


@pytest.mark.parametrize("group", [commingle, party, coordinator], ids=lambda group: group.name)
def test_list_of_commands_says_what_each_command_says(group: LazyGroup) -> None:
    context = click.Context(group)
    for name, (_, said) in group._commands_at.items():
        command = group.get_command(context, name)
        assert command is not None
        assert (name, said) == (command.name, command.get_short_help_str(limit=100))
