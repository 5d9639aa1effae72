"""Stage `packages` in a project: modules that its programs import and the environment lacks, without running code."""

import json
import shutil
import time

import export_locks as el
import pytest
from elf_files import package
from environment_facts import own
from framework_envs import venv

from provision.actions import prove
from provision.actions.prove import Proof
from provision.config.options import Choices
from provision.model import Machine, StageResult, Target, TargetGpu, Verdict
from provision.verify import Options, locate_environment, modules

PASSED = StageResult(stage="framework", framework="jax", status="pass", detail="jax 1", device="cpu")


@pytest.fixture
def env(tmp_path, monkeypatch):
    """An environment of the project in tmp_path/project. Its record says so."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    project = tmp_path / "project"
    root, site = venv(project / ".venv")
    (project / "gpuenv.yaml").write_text("frameworks: [jax]\n")
    (root / ".gpuenv").mkdir()
    request = {"choices": {"config": str(project / "gpuenv.yaml")}}
    (root / ".gpuenv" / "request.json").write_text(json.dumps(request))
    own(root)
    package(
        site, "there", "1", [], modules={"there/__init__.py": "raise SystemExit('the package was run')\n"}
    )
    return root


def write(env, files):
    for name, text in files.items():
        path = env.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def judged(env, lock=None, stage=PASSED, profiles=(), **options):
    choices, wanted = Choices(cache_dir=env.parent / "cache", profiles=profiles), Options(**options)
    before = Verdict(env=str(env), python=str(env / "bin" / "python"), verdict="cpu", stages=(stage,))
    proof = Proof(locate_environment(env), choices, lambda _: None, wanted, lock)
    with proof.start(driver=False, packages=True):
        return proof.add_packages(before)


def test_a_missing_import_is_a_warning_that_names_file_and_package(env):
    write(
        env,
        {
            "mine/__init__.py": "raise SystemExit('the project was run')\n",
            "mine/bg.py": "import os, there, mine, cv2\nfrom google.cloud import storage\nimport helper\nimport strange_one\n",
            "mine/log.py": "try:\n    import wandb\nexcept ImportError:\n    wandb = None\ndef f():\n    import onnx\n",
            "lib/helper.py": "", "tests/test_a.py": "import pytest\n", "train.py": "import filetype\n",
        },
    )  # fmt: skip
    found = judged(env)
    stage, (finding,) = found.stages[-1], found.findings
    assert (found.verdict, stage.stage, stage.status) == ("cpu", "packages", "warn")
    assert stage.detail == finding.title and "filetype, imported in train.py" in finding.title
    assert "`gpuenv add filetype opencv-python google-cloud-storage`" in finding.fix
    assert finding.fix.endswith("by strange_one"), "no package of this name is guessed"
    assert [(e.text.partition(":")[0], e.source) for e in finding.evidence] == [
        ("import filetype", "train.py"), ("import cv2", "mine/bg.py"), ("import google.cloud.storage", "mine/bg.py"),
        ("import strange_one", "mine/bg.py"),
    ]  # fmt: skip
    assert judged(env, quick=True).findings == found.findings
    assert judged(env, strict=True).verdict == "fails"


def test_a_folder_whose_requirements_the_project_lists_is_its_own(env):
    write(env, {"vim/requirements.txt": "", "vim/a.py": "import filetype\n", "old/requirements.txt": "", "old/b.py": "import strange_one\n", "c.py": ""})  # fmt: skip
    assert judged(env).findings == ()
    write(env, {"gpuenv.yaml": "frameworks: [jax]\nrequirements: [vim/requirements.txt]\n"})
    (finding,) = judged(env).findings
    assert "filetype, imported in vim/a.py" in finding.title and "strange_one" not in finding.fix


def test_a_package_of_the_lock_is_not_one_to_add(env):
    """The stage `lock` says that it is gone, and how to restore it. Nor is one of a group."""
    write(env, {"train.py": "import filetype\nimport cv2\nimport six\n"})
    write(env, {"pyproject.toml": '[dependency-groups]\ndev = ["six"]\n'})
    lock = el.of([el.wheel("filetype", "1.2.0")], device="cpu")
    assert [f.fix.partition(",")[0] for f in judged(env, lock).findings] == ["`gpuenv add opencv-python`"]


@pytest.mark.parametrize(
    ("failed", "status"),
    [("driver", "skip"), ("cudnn", "skip"), ("framework", "warn"), ("variants", "warn"), ("lock", "warn")],
)
def test_the_packages_are_skipped_where_a_stage_before_the_frameworks_failed(env, failed, status):
    write(env, {"train.py": "import filetype\n"})
    judged(env)
    stage = StageResult(stage=failed, status="fail", detail="it failed")
    assert judged(env, stage=stage).stages[-1].status == status


KNOWN_BAD = """- table: "known_bad"
  source: "Public issues."
  read: "2026-11-27"
  kept: "by hand"
  rows:
  - {package: "there", version: "1", effect: "avoid", why: "It fails.", source: "https://example.org/1", CONDITION}
"""


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize(
    ("condition", "device", "status"),
    [
        ('gpu: "9.0", board: "H200"', None, "warn"),
        ('driver: "<600"', None, "warn"),
        ('driver: "<500"', None, "skip"),
        ('gpu: "9.0"', "cpu", "skip"),
    ],
)
def test_driver_and_gpus_decide_whether_a_release_is_bad(
    env, monkeypatch, tmp_path, condition, device, status, quick
):
    """Those of the machine: with --quick and after the commit of a create no framework has named them."""
    rows = tmp_path / "rows"
    rows.mkdir()
    (rows / "known_bad.yaml").write_text(KNOWN_BAD.replace("CONDITION", condition))
    gpus = (TargetGpu(capability="9.0", name="NVIDIA H200"),)
    machine = Machine(target=Target(platform="linux-x86_64", driver="580.1", gpus=gpus))
    monkeypatch.setattr(prove, "machine_for_verdict", lambda **_: machine)
    found = judged(env, profiles=[rows], quick=quick, device=device)
    assert found.stages[-1].status == status
    assert [f.cause for f in found.findings] == (["framework_bug_upgrade"] if status == "warn" else [])


def test_quick_uses_what_is_known(env):
    write(env, {"train.py": "import filetype\n"})
    assert judged(env, quick=True).findings == ()
    assert judged(env).stages[-1].status == "warn"
    write(env, {"train.py": "import wandb\n"})
    assert "filetype" in judged(env, quick=True).stages[-1].detail
    assert "wandb" in judged(env).stages[-1].detail
    write(env, {"train.py": "import there\n"})
    assert judged(env).findings == judged(env, quick=True).findings == ()


def test_a_name_that_the_installed_release_lacks_is_a_warning(env):
    site = next(env.glob("lib/python*/site-packages"))
    package(site, "api", "5.1", [], modules={
        "api/__init__.py": "from .core import run\n", "api/core.py": "def run(): pass\ndef walker(): pass\n", "api/native/data.txt": "",
        "shim/__init__.py": "", "shim/deep/old.py": "sys.meta_path.insert(0, Finder())\n",
        "api/lazy/__init__.py": "def __getattr__(name): ...\n", "api/all/__init__.py": "from .x import *\n",
        "api/all/x.py": "", "plain.py": "one = 1\n",
    })  # fmt: skip
    write(env, {
        "fits.py": "from api import (\n  run,  # first\n  core, native)\nfrom api.lazy import anything\nfrom api.all import other\n"
        "import api.core, api.native\nfrom shim import gone\nimport shim.moved.part\nfrom api.core import *\nfrom plain import one\n"
        "try:\n    from api.core import walk\nexcept ImportError:\n    pass\nfrom json import no_such\n",
        "train.py": "from api.core import (  # moved\n    run,\n    walk,\n)\nimport api.old.part\nfrom plain import two as one\n",
        "tests/test_a.py": "from api import gone\n",
    })  # fmt: skip
    found = judged(env)
    stage, (finding,) = found.stages[-1], found.findings
    assert stage.status == "warn"
    assert stage.detail == finding.title and "walk of api.core, " in finding.title
    assert [e.text for e in finding.evidence] == [
        "from api.core import walk: not in api 5.1", "import api.old.part: not in api 5.1", "from plain import two: not in plain",
    ]  # fmt: skip
    assert "api and plain" in finding.fix and "`" not in finding.fix
    assert judged(env, quick=True).findings == found.findings


def test_a_use_of_a_removed_name_is_a_warning_for_releases_that_lack_it(env):
    site = next(env.glob("lib/python*/site-packages"))
    write(env, {"train.py": "import numpy as np\nprint(np.zeros(3).astype(np.float), 'np.int')\n"})
    for version, names in (("1.23.5", []), ("1.26.4", ["from numpy import float: not in numpy 1.26.4"])):
        package(site, "numpy", version, [], modules={"numpy/__init__.py": "def __getattr__(name): ...\n"})
        assert [e.text for f in judged(env).findings for e in f.evidence] == names
        shutil.rmtree(site / f"numpy-{version}.dist-info")


def test_modules_of_every_kind_of_installation_are_found(env, tmp_path):
    site = next(env.glob("lib/python*/site-packages"))
    for name in ("plain.py", "native.cpython-311-x86_64-linux-gnu.so", "stable.abi3.so", "space/part/x.py"):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text("")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "by_path.py").write_text("")
    (site / "a.pth").write_text(f"import os\n{tmp_path / 'linked'}\n/nowhere\n")
    (site / "__editable___mine_1_finder.py").write_text(
        "MAPPING: dict[str, str] = {'by_finder': '/x'}\nNAMESPACES = {}\n"
    )
    (site / "__editable___bad_1_finder.py").write_text("MAPPING: dict[str, str] = {" + "'a': " * 9 + "}\n")
    (site / "loop.pth").symlink_to(site / "loop.pth")
    names = ("plain", "native", "stable", "space", "by_path", "by_finder", "gone", "x")
    imports = [modules.ProjectImport(name, "a.py") for name in names]
    assert [one.module for one in modules.find_missing(imports, [str(site)])] == ["gone", "x"]


def test_a_record_that_cannot_be_read_or_kept_costs_a_note(env):
    write(env, {"train.py": "import filetype\n"})
    for text in ("[", "[]", '{"imports": [{"x": 1}]}', '{"imports": 3}'):
        (env / ".gpuenv" / "imports.json").write_text(text)
        assert judged(env, quick=True).findings == ()


def test_a_thousand_programs_take_few_seconds(env):
    """Measured in processor time, as other processes of this machine may take most of it."""
    source = "\n".join(
        f'import os, m{n}\ndef f{n}(a):\n    """Do."""\n    return "x" + a  # {n}\n' for n in range(60)
    )
    write(env, {f"pkg{n % 40}/m{n}.py": source for n in range(1000)})
    judged(env, quick=True)
    start = time.process_time()
    found = judged(env)
    assert time.process_time() - start < 3
    assert found.stages[-1].status == "skip" and (env / ".gpuenv" / "imports.json").exists()
    shutil.rmtree(env.parent / "pkg0")
    start = time.process_time()
    judged(env, quick=True)
    assert time.process_time() - start < 0.3


def test_a_module_of_one_file_may_register_modules_of_its_own(tmp_path):
    """As six does with six.moves."""
    (tmp_path / "six.py").write_text("import sys\nsys.meta_path.append(object())\n")
    (tmp_path / "plain.py").write_text("x = 1\n")
    names = {"six.moves:urllib": "a.py", "plain.moves:urllib": "b.py"}
    found = modules.find_absent([modules.ProjectImport("six", "a.py", "six", names)], [str(tmp_path)], ())
    assert [one.module for one in found] == ["plain.moves"]


def test_a_name_counts_only_as_a_whole_word(tmp_path):
    (tmp_path / "__init__.py").write_text("xwalker = walkers = the_walker = 1\n")
    assert not modules._mentions(tmp_path / "__init__.py", "walker")
    (tmp_path / "other.py").write_text("x = a.walker(1)\n")
    assert modules._mentions(tmp_path / "other.py", "walker")
