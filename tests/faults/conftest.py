"""Signals, exits and limits are those of a process that was started as users start it."""

import pytest
from command import Command


@pytest.fixture(scope="module", autouse=True)
def _not_forking(_forking):
    servers, Command.servers = Command.servers, None
    yield
    Command.servers = servers
