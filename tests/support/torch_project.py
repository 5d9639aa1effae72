"""`gpuenv create` of torch from an index on loopback."""

import pytest
from environment_facts import HERE, installed

__all__ = ["GPU", "HERE", "installed", "torch"]

GPU = ("--driver", "580.65.06", "--gpu", "9.0")


@pytest.fixture
def torch(gpuenv, index):
    """`gpuenv create` for a GPU target with everything it needs on the index, nothing verified."""
    plan = gpuenv("resolve", "--json", "--framework", "torch", "--python", HERE, "--index", "pypi", *GPU).json
    index.add_plan(plan)
    gpuenv.env["PIP_INDEX_URL"] = index.url

    def create(*more, verb="create", framework="torch"):
        verify = ("--no-verify",) if verb == "create" else ()
        return gpuenv(
            verb, "--framework", framework, "--python", HERE, "--index", "pypi", *GPU, *verify, *more
        )

    create.plan = plan
    return create
