"""Signals, exits and limits are those of a process that was started as users start it."""

import pytest
from command import Command


@pytest.fixture(scope="module", autouse=True)
def _not_forking(_forking):
    inside, servers = Command.inside, Command.servers
    Command.inside, Command.servers = False, None
    yield
    Command.inside, Command.servers = inside, servers
