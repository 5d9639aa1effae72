"""`gpuenv create` of torch from an index on loopback."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

GPU = ("--driver", "580.65.06", "--gpu", "9.0")


HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


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


def installed(env: Path) -> dict[str, str]:
    code = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
    done = subprocess.run([env / "bin" / "python", "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)
