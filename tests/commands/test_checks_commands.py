"""A project's checks beside a framework that passes its proof: after create, add and repair, and never a reason to roll back."""

import json

import pytest
from command import Command
from framework_envs import LYING_JAX
from hostile_folder import ASK
from loopback import Index, serving

CONFIG = (
    'frameworks: [jax]\npackages: ["{package}"]\ndevice: cpu\nchecks:\n  - import: einops\n  - run: {run}\n'
)
GOOD, BAD = "python train.py --help", "python train.py --no-such-option"


class Project:
    """A folder with a program, and an index with all that it asks for."""

    def __init__(self, folder, index):
        self.gpuenv = Command(folder)
        self.folder, self.env = self.gpuenv.work, self.gpuenv.work / ".venv"
        plan = self.gpuenv("resolve", "--json", *ASK).json
        index.add_plan(plan)
        version = plan["builds"][0]["version"]
        index.add("jax", version, (f"jaxlib=={version}",), LYING_JAX)
        for name, one in (
            ("einops", "0.8.0"),
            ("einops", "0.8.1"),
            ("opt_einsum", "3.4"),
            ("packaging", "26.0"),
        ):
            index.add(name, one)
        self.gpuenv.env["PIP_INDEX_URL"] = index.url
        (self.folder / "train.py").write_text(
            "import argparse, pathlib\nimport einops\n"
            "pathlib.Path('ran').touch()\nargparse.ArgumentParser().parse_args()\n"
        )
        self.asks(GOOD)

    def asks(self, run, package="einops"):
        (self.folder / "gpuenv.yaml").write_text(CONFIG.format(run=run, package=package))

    def __call__(self, *words, cwd=None):
        self.gpuenv.work = cwd or self.folder
        ran = self.gpuenv(*words, "--json")
        self.gpuenv.work = self.folder
        return ran.code, ran.json, ran.err

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
    with serving(Index()) as index:
        made = Project(tmp_path_factory.mktemp("project"), index)
        code, value, err = made("create")
        assert code == 0, err
        made.first = value["verdict"]
        yield made


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
    code, value, _ = project("verify", "--no-checks", "--check", "import einops")
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
