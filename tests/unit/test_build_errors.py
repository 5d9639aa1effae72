"""What an error of a build knows of its environment."""

import export_locks
import pytest
from rows import rows

from provision.actions.build import EnvironmentBuild
from provision.actions.repair import RepairOptions
from provision.config.options import Choices
from provision.errors import BuildError
from provision.model import PackageSources, drop_event


@rows("device", ["cpu", "cuda"])
def test_an_error_knows_the_device_of_its_environment(tmp_path, device):
    """On the CPU no cause about GPUs is diagnosed from its log."""

    build = EnvironmentBuild(
        options=RepairOptions(verify=False), env=tmp_path / "env", choices=Choices(), emit=drop_event
    )
    build.set_lock(export_locks.of((), device=device), PackageSources())
    with pytest.raises(BuildError) as caught, build.transaction():
        raise BuildError("no space left", log="RuntimeError: No CUDA GPUs are available")
    assert caught.value.device == device
