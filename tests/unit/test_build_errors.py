"""What an error of a build knows of its environment."""

import export_locks
import pytest
from rows import rows

from provision.actions.build import BuildJob, build_environment
from provision.actions.repair import RepairOptions
from provision.config.options import Choices
from provision.errors import BuildError
from provision.model import PackageSources, drop_event


@rows("device", ["cpu", "cuda"])
def test_an_error_knows_the_device_of_its_environment(tmp_path, device):
    """On the CPU no cause about GPUs is diagnosed from its log."""

    def fail(prefix):
        raise BuildError("no space left", log="RuntimeError: No CUDA GPUs are available")

    lock = export_locks.of((), device=device)
    job = BuildJob(
        options=RepairOptions(verify=False), env=tmp_path / "env", lock=lock, choices=Choices(),
        sources=PackageSources(), emit=drop_event,
    )  # fmt: skip
    with pytest.raises(BuildError) as caught:
        build_environment(job, fail)
    assert caught.value.device == device
