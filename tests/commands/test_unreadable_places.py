"""A path that cannot be read is an error with its path and reason, never a bug in gpuenv."""

import os
import shutil

import pytest
import unreadable_walk

from provision.cli.exit_codes import BUG


@pytest.mark.skipif(
    os.geteuid() == 0 and not shutil.which("setpriv"), reason="root reads everything, and there is no setpriv"
)
@pytest.mark.parametrize("count", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_no_command_takes_an_unreadable_place_for_a_bug(gpuenv, count):
    """Every path option of every command, in one of five places or all, and every command in a folder that was removed."""
    env = gpuenv.env | {"PIP_INDEX_URL": "http://127.0.0.1:9/simple"}
    runs = unreadable_walk.start(gpuenv.folder, env, count)
    assert len({(run["words"][0], run["place"]) for run in runs}) > 30
    wrong = [run for run in runs if run["code"] in (BUG, 99) or run["code"] < 0 or "Traceback" in run["said"]]
    assert not wrong, "\n".join(
        f"{run['place']}: {' '.join(run['words'])}\n{run['said'][-600:]}" for run in wrong
    )
