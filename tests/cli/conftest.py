"""What is tested here begins with the start of Python."""

import pytest
from command import Command


@pytest.fixture(scope="module", autouse=True)
def _not_forking(_forking):
    inside, servers = Command.inside, Command.servers
    Command.inside, Command.servers = False, None
    yield
    Command.inside, Command.servers = inside, servers


@pytest.fixture
def forked(gpuenv, _forking):
    """For tables of command lines, whose words are what matters."""
    gpuenv.servers = _forking
    return gpuenv
