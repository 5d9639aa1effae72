"""A project's checks with a real framework: after create, add and repair, and never a reason to roll back."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.network

CONFIG = (
    'frameworks: [jax]\npackages: ["{package}"]\ndevice: cpu\nchecks:\n  - import: einops\n  - run: {run}\n'
)
GOOD, BAD = "python train.py --help", "python train.py --no-such-option"


class Project:
    """A folder with a program, and gpuenv with the user's own configuration and cache."""

    def __init__(self, folder):
        self.folder, self.env = folder, folder / ".venv"
        (folder / "train.py").write_text(
            "import argparse, pathlib\nimport jax\n"
            "pathlib.Path('ran').touch()\nargparse.ArgumentParser().parse_args()\n"
        )
        self.asks(GOOD)

    def asks(self, run, package="einops"):
        (self.folder / "gpuenv.yaml").write_text(CONFIG.format(run=run, package=package))

    def __call__(self, *words, cwd=None):
        env = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH")}
        done = subprocess.run(
            [sys.executable, "-m", "provision", *words, "--json"], cwd=cwd or self.folder, env=env,
            capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return done.returncode, json.loads(done.stdout), done.stderr

    def ran(self):
        """Whether a check ran since the last question."""
        there = (self.folder / "ran").exists()
        (self.folder / "ran").unlink(missing_ok=True)
        return there

    @property
    def kept(self):
        return json.loads((self.env / ".gpuenv" / "verdict.json").read_text())["verdict"]["verdict"]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    made = Project(tmp_path_factory.mktemp("project"))
    code, value, err = made("create")
    assert code == 0, err
    made.first = value["verdict"]
    return made


def checks(verdict):
    """The stage `checks`, which comes last, and its checks."""
    assert [s["stage"] for s in verdict["stages"]].index("checks") == len(verdict["stages"]) - 1
    return verdict["stages"][-1]["status"], [c["status"] for c in verdict["checks"]]


def test_create_ends_with_the_checks_and_keeps_them(project, tmp_path):
    assert project.first["verdict"] == project.kept == "cpu"
    assert checks(project.first) == ("pass", ["pass", "pass"]) and project.ran()
    code, value, err = project("create")
    assert (code, value["verdict"], project.ran()) == (0, project.first, False) and "verifying" not in err
    code, value, _ = project("verify", str(project.env), cwd=tmp_path)
    assert (code, checks(value), project.ran()) == (0, ("pass", ["pass", "pass"]), True)
    code, value, _ = project("verify", "--no-checks", "--check", "import jax")
    assert (code, checks(value), project.ran()) == (0, ("pass", ["pass"]), False)


def test_a_check_that_fails_leaves_the_environment_in_place(project):
    before = project.env.stat().st_ino
    project.asks(BAD)
    code, value, err = project("create")
    assert code == 8 and checks(value["verdict"]) == ("fail", ["pass", "fail"])
    assert value["environment"]["path"] == str(project.env) and "does not cause a rollback" in err
    assert (project.env.stat().st_ino, project.kept) == (before, "fails")
    assert project("verify")[0] == 8 and project("create")[0] == 8  # it is asked again
    code, value, _ = project("create", "--no-checks")
    assert code == 0 and value["verdict"]["checks"] == []
    project.ran()
    project.asks(GOOD)
    code, value, _ = project("create")
    assert (code, checks(value["verdict"]), project.ran()) == (0, ("pass", ["pass", "pass"]), True)
    assert project.env.stat().st_ino == before


def test_a_failed_check_does_not_undo_a_change_or_a_repair(project):
    project.asks(BAD, "einops<0.8.1")
    code, value, err = project("create")
    assert code == 8 and checks(value["verdict"])[0] == "fail" and "in place: einops" in err
    (info,) = project.env.glob("lib/python3*/site-packages/einops-*.dist-info")
    assert info.name == "einops-0.8.0.dist-info" and value["environment"]["changed"] is True
    (info / "METADATA").unlink()
    code, value, _ = project("repair")
    assert code == 8 and [p["name"] for p in value["packages"]] == ["einops"]
    assert checks(value["verdict"])[0] == "fail" and (info / "METADATA").exists()
    (info / "METADATA").unlink()
    code, value, _ = project("repair", "--no-checks")
    assert code == 0 and value["verdict"]["checks"] == [] and (info / "METADATA").exists()
    code, value, _ = project("add", "opt_einsum", "--no-checks")
    assert code == 0 and value["verdict"]["checks"] == []
    code, value, _ = project("add", "packaging")
    assert code == 8 and checks(value["verdict"])[0] == "fail"
    assert list(project.env.glob("lib/python3*/site-packages/packaging-*.dist-info"))
