"""A gpuenv.yaml for tests, and its mistakes."""

import pytest

from provision.config.file import read_config


@pytest.fixture
def path(tmp_path):
    return tmp_path / "gpuenv.yaml"


def read(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_config(path)
