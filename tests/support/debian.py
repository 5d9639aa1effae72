"""Programs of Debian packages that some tests start."""

import os
import shutil

import pytest

REQUIRE = "GPUENV_REQUIRE_DEBIAN"
"""Set to 1 where missing programs are an error, as in .ci/run."""


def need_programs(*programs, packages):
    """Skip or fail the test where a program is missing."""
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        skip_or_fail(f"{', '.join(missing)} not on PATH: apt-get install {packages}")


def skip_or_fail(reason):
    """Skip the test; fail it where GPUENV_REQUIRE_DEBIAN is 1."""
    if os.environ.get(REQUIRE) == "1":
        pytest.fail(reason)
    pytest.skip(reason)
