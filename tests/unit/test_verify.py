"""locate, the culprit search, and the chain on real frameworks on the CPU."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from framework_envs import framework_env, venv
from verified import verify
from verify_stub import hanging

from provision.errors import UsageError
from provision.model import Environment, Verdict, as_document, from_plain
from provision.verify import Options, locate_environment, run_early_probes, state
from provision.verify.state import FRAMEWORK_STAGES

CPU = Options(device="cpu", timeout=120)


def judge(env, options=CPU):
    return verify(locate_environment(Path(env)), options, emit=lambda _: None)


def stage(verdict, name):
    return next(s for s in verdict.stages if s.stage == name)


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "LD_PRELOAD"):
        monkeypatch.delenv(name, raising=False)


FAKES = {
    "torch": "import types\n__version__ = '2.9.0'\nversion = types.SimpleNamespace(cuda=None, hip=None)\n",
    "jax": "import jaxlib\n__version__ = '0.11.0'\ndef devices(kind):\n    return [kind]\n",
}


def stage_of(verdict, name, framework):
    return next(s for s in verdict.stages if (s.stage, s.framework) == (name, framework))


def passes_of(framework):
    """The passes that are graded: ONNX Runtime has no operator for the gradient of weights."""
    return (
        ("forward", "grad_input") if framework == "onnxruntime" else ("forward", "grad_input", "grad_weight")
    )


def snapshot(folder):
    return {p: (p.lstat().st_mtime_ns, p.lstat().st_size) for p in folder.rglob("*")}


@pytest.mark.network
@pytest.mark.parametrize(
    "name",
    ["torch", *(pytest.param(n, marks=pytest.mark.slow) for n in ("jax", "tensorflow", "onnxruntime"))],
)
def test_a_framework_passes_on_the_cpu_and_is_not_changed(name, tmp_path, monkeypatch):
    """The path of the environment has a space and an umlaut; the working directory would shadow the
    framework; bytecode must not land in the environment."""
    # Links of an environment that other workers use, who may write bytecode into it
    env = tmp_path / f"{name} für alle"
    subprocess.run(["cp", "-al", framework_env(name), env], check=True)
    (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the working directory')\n")
    monkeypatch.chdir(tmp_path)
    before = snapshot(env)
    verdict = judge(env, Options(device="cpu", timeout=120))
    assert snapshot(env) == before
    assert verdict.verdict == "cpu"
    assert [s.status for s in verdict.stages] == ["skip"] * 4 + [
        "pass", "pass", "pass", "pass" if name in ("torch", "jax") else "skip", "skip",
    ]  # fmt: skip
    assert all("CPU" in s.detail for s in verdict.stages[:4])
    (framework,) = verdict.frameworks
    assert framework.name == name
    (device,) = framework.devices
    assert device.index == -1
    graded = {(c.case, c.pass_) for c in device.convolutions}
    grouped = [] if name == "tensorflow" else ["conv2d_grouped"]  # on the CPU it has no gradient of these
    for case in ("conv1d", "conv2d", "conv3d", "conv2d_transposed", *grouped):
        assert {(case, p) for p in passes_of(name)} <= graded
    assert {c.case for c in device.matmuls} == {"matmul", "matmul_bias", "matmul_large"}
    assert {c.case for c in device.attentions} == ({"causal_64"} if name in ("torch", "jax") else set())
    assert all(c.ok and 0 < c.max_error < c.tolerance / 10 for c in device.results)
    assert from_plain(Verdict, json.loads(json.dumps(as_document(verdict)))) == verdict
    quick = judge(env, Options(device="cpu", quick=True, timeout=120))
    assert (quick.verdict, stage(quick, "framework").status) == ("cpu", "pass")
    assert quick.frameworks[0].version == framework.version
    assert snapshot(env) == before


PLANTED = """
import importlib.abc, importlib.util, sys

class Patch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != {module!r}:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module
        def execute(module):
            load(module)
            right = module.{function}
            def wrong(*args, **kwargs):
                y = right(*args, **kwargs)
                {change}
            module.{function} = wrong
        spec.loader.exec_module = execute
        return spec

sys.meta_path.insert(0, Patch())
"""
ONE_ELEMENT = PLANTED.format(
    module="torch.nn.functional",
    function="conv2d",
    change="import torch; o = torch.zeros_like(y); o.view(-1)[7] = 0.05; return y + o",
)
ONE_NAN = PLANTED.format(
    module="jax.lax", function="conv_general_dilated", change="return y.at[(0,) * y.ndim].set(float('nan'))"
)


@pytest.mark.network
@pytest.mark.slow
def test_one_wrong_element_is_caught_and_laid_on_pythonpath(tmp_path, monkeypatch):
    env = framework_env("torch")
    (tmp_path / "sitecustomize.py").write_text(ONE_ELEMENT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    verdict = judge(env)
    assert verdict.verdict == "wrong"
    assert stage(verdict, "convolution").status == "fail"
    wrong = [c for f in verdict.frameworks for d in f.devices for c in d.convolutions if not c.ok]
    assert {c.pass_ for c in wrong} == {"forward"}
    assert {c.case for c in wrong} == {"conv2d", "conv2d_grouped"}
    first = verdict.findings[0]
    assert first.confidence == "certain"
    assert first.title.startswith(f"{tmp_path} in PYTHONPATH")
    assert verdict.hint == f"Remove {tmp_path} from PYTHONPATH."


@pytest.mark.network
@pytest.mark.slow
def test_a_wrong_attention_is_caught_and_nothing_before_it(tmp_path, monkeypatch):
    env = framework_env("torch")
    planted = ONE_ELEMENT.replace("conv2d", "scaled_dot_product_attention")
    (tmp_path / "sitecustomize.py").write_text(planted)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    verdict = judge(env)
    assert verdict.verdict == "wrong"
    assert [stage(verdict, s).status for s in ("convolution", "matmul", "attention")] == [
        "pass",
        "pass",
        "fail",
    ]
    assert {c.pass_ for c in verdict.frameworks[0].devices[0].attentions if not c.ok} == {"forward"}


@pytest.mark.network
@pytest.mark.slow
def test_a_nan_never_passes(tmp_path):
    """Planted in the environment itself, so that no setting is guilty."""
    source = framework_env("jax")
    env, site = venv(tmp_path / "env")
    (site / "planted.py").write_text(ONE_NAN)
    (site / "planted.pth").write_text(f"{next(source.glob('lib/python*/site-packages'))}\nimport planted\n")
    verdict = judge(env)
    assert verdict.verdict == "wrong"
    rows = verdict.frameworks[0].devices[0].convolutions
    assert {c.max_error for c in rows if c.pass_ == "forward" and c.case == "conv2d"} == {None}
    assert not any(c.ok for c in rows if c.max_error is None)
    assert "not a number" in stage(verdict, "convolution").detail
    assert [f.cause for f in verdict.findings] == ["framework_bug_upgrade"]


@pytest.fixture
def fake(tmp_path):
    """A venv whose torch is a few lines: `fake("...")`."""

    def make(text):
        env, site = venv(tmp_path / "fake")
        (site / "torch").mkdir()
        (site / "torch" / "__init__.py").write_text(text)
        return env

    return make


def test_a_module_on_pythonpath_that_breaks_every_child_is_a_result(fake, tmp_path, monkeypatch):
    """The process ends before it says what it begins."""
    (tmp_path / "json.py").write_text("raise RuntimeError('the json of PYTHONPATH')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    verdict = judge(fake("__version__ = '1'\n"))
    assert verdict.verdict == "fails"
    assert "the json of PYTHONPATH" in str(verdict.stages) or "PYTHONPATH" in str(verdict.findings)


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGBUS", "SIGABRT"])
def test_a_crash_while_importing_is_a_result(fake, name):
    verdict = judge(fake(f"import os, signal\nos.kill(os.getpid(), signal.{name})\n"))
    assert verdict.verdict == "fails"
    assert stage(verdict, "framework").detail == f"the process was ended by {name} while importing torch"
    assert stage(verdict, "convolution").status == "skip"


def test_a_hang_while_importing_is_a_result(fake):
    env = fake("import time\ntime.sleep(600)\n")
    verdict, seconds = hanging("importing torch", lambda n: judge(env, Options(device="cpu", timeout=n)))
    assert stage(verdict, "framework").detail == f"no answer within {seconds:g} s while importing torch"


def test_a_missing_library_is_named_by_its_cause(fake):
    text = "raise ImportError('libcudnn.so.9: cannot open shared object file: No such file or directory')"
    verdict = judge(fake(text))
    assert stage(verdict, "framework").status == "fail"
    assert verdict.findings[0].cause == "cudnn_not_found"


def test_an_environment_without_frameworks_fails_or_is_unproven(tmp_path):
    env, _ = venv(tmp_path / "bare")
    verdict = judge(env)
    assert verdict.verdict == "fails"
    assert "no torch, tensorflow, jax or onnxruntime" in stage(verdict, "framework").detail
    asked = judge(env, Options(device="cpu", frameworks=("jax",)))
    assert stage(asked, "framework").detail == "jax is not in this environment"
    quick = judge(env, Options(device="cpu", quick=True))
    assert quick.verdict == "unproven"
    assert {s.status for s in quick.stages} == {"skip"}
    assert "no torch, tensorflow, jax or onnxruntime" in stage(quick, "framework").detail
    assert "Install a framework in this environment" in quick.hint
    next(env.glob("lib/python3*")).joinpath("EXTERNALLY-MANAGED").touch()
    assert "This Python belongs to the system" in judge(env).hint
    missing = judge(env, Options(device="cpu", quick=True, frameworks=("jax",)))
    assert (missing.verdict, stage(missing, "framework").status) == ("fails", "fail")


# A framework whose import ends only while another is imported too.
MEETS = """import pathlib, time
pathlib.Path("{site}/{name}.begun").touch()
for _ in range(600):
    if pathlib.Path("{site}/{other}.begun").exists():
        break
    time.sleep(0.1)
else:
    raise ImportError("the other framework is not imported at the same time")
"""


def test_a_quick_look_on_the_cpu_imports_each_framework_and_computes_nothing(tmp_path, monkeypatch):
    env, site = venv(tmp_path / "two")
    for name, told, other in (("torch", "version", "jax"), ("jax", "devices", "torch")):
        (site / name).mkdir()
        (site / name / "__init__.py").write_text(
            MEETS.format(site=site, name=name, other=other) + FAKES[name]
        )
        assert told in FAKES[name]
    (site / "jaxlib").mkdir()
    (site / "jaxlib" / "__init__.py").write_text("__version__ = '0.11.0'\n")
    quick = judge(env, Options(device="cpu", quick=True, timeout=300))
    assert quick.verdict == "cpu"
    rows = [(s.framework, s.stage, s.status) for s in quick.stages if s.framework]
    assert rows == [
        (name, stage, status)
        for name in ("torch", "jax")
        for stage, status in zip(FRAMEWORK_STAGES, ("pass", *["skip"] * 4), strict=True)
    ]
    assert [(f.name, f.version, f.devices[0].convolutions) for f in quick.frameworks] == [
        ("torch", "2.9.0", ()),
        ("jax", "0.11.0", ()),
    ]
    (site / "jax" / "__init__.py").write_text("raise ImportError('numpy._core is not there')\n")
    broken = judge(env, Options(device="cpu", quick=True, timeout=300))
    assert broken.verdict == "fails"
    assert "numpy._core is not there" in stage_of(broken, "framework", "jax").detail
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "shadow"))
    (site / "jax" / "__init__.py").write_text(FAKES["jax"])
    (tmp_path / "shadow" / "jaxlib").mkdir(parents=True)
    (tmp_path / "shadow" / "jaxlib" / "__init__.py").write_text("raise ImportError('of another place')\n")
    shadowed = judge(env, Options(device="cpu", quick=True, timeout=300))
    assert shadowed.verdict == "fails"
    assert "PYTHONPATH" in shadowed.findings[0].title and shadowed.findings[0].confidence == "certain"


def test_an_unknown_device_or_framework_is_a_usage_error(tmp_path):
    env, _ = venv(tmp_path / "bare")
    with pytest.raises(UsageError, match="--device gpu: expected cpu, all, cuda or cuda:N"):
        judge(env, Options(device="gpu"))
    with pytest.raises(UsageError, match="unknown framework 'pytorch'"):
        judge(env, Options(frameworks=("pytorch",)))


def test_a_sitecustomize_that_raises_does_not_hide_the_environment(tmp_path, monkeypatch):
    env, _ = venv(tmp_path / "bare")
    (tmp_path / "sitecustomize.py").write_text("import os; os._exit(3)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    events = []
    verify(locate_environment(env), Options(device="cpu", quick=True), emit=events.append)
    assert any("status 3" in e.text for e in events if e.kind == "warning")


# --- locate --------------------------------------------------------------------------------


def test_locate_takes_a_venv_its_python_and_any_python(tmp_path):
    env, _ = venv(tmp_path / "mit Leerzeichen und ä")
    whole, python = locate_environment(env), locate_environment(env / "bin" / "python")
    assert whole == python
    assert (whole.manager, whole.path, whole.made_by_gpuenv) == ("venv", str(env), False)
    assert whole.python_version == ".".join(map(str, sys.version_info[:3]))
    system = locate_environment(Path(sys.base_prefix, "bin", Path(sys.executable).resolve().name))
    assert system.manager in (None, "conda")


def test_locate_knows_conda_and_what_gpuenv_made(tmp_path):
    env, _ = venv(tmp_path / "conda")
    (env / "conda-meta").mkdir()
    (env / ".gpuenv").mkdir()
    (env / ".gpuenv" / "plan.json").write_text("{}")
    found = locate_environment(env)
    assert (found.manager, found.made_by_gpuenv) == ("conda", True)


@pytest.mark.parametrize(
    ("asked", "message", "hint"),
    [
        (".vnv", "does not exist", "Did you mean {0}/.venv?"),
        ("project", "has no Python: bin/python is missing", "Did you mean {0}/project/.venv?"),
        ("notes.txt", "cannot be run", "name an environment, such as {0}/.venv"),
        ("tool", "is not a working Python interpreter", "name an environment, such as {0}/.venv"),
        ("broken", "is not a Python interpreter", "name an environment, such as {0}/.venv"),
        ("gone", "a link to /nowhere/python", "Create the environment again"),
    ],
)
def test_locate_says_what_is_wrong_and_what_was_meant(tmp_path, asked, message, hint):
    venv(tmp_path / ".venv")
    venv(tmp_path / "project" / ".venv")
    (tmp_path / "notes.txt").write_text("no program\n")
    for name, text in (("tool", "#!/bin/sh\necho hello\n"), ("broken", "\x7fELF")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "gone").symlink_to("/nowhere/python")
    with pytest.raises(UsageError, match=message) as caught:
        judge(tmp_path / asked, Options(device="cpu", quick=True))
    assert hint.format(tmp_path) in caught.value.hint


def test_a_venvs_word_for_its_version_is_taken_until_its_python_has_spoken(tmp_path):
    env, _ = venv(tmp_path / "env")
    real = ".".join(map(str, sys.version_info[:3]))
    config = env / "pyvenv.cfg"
    config.write_text(
        re.sub(r"^version(_info)? *=.*$", "version = 3.4.5", config.read_text(), flags=re.MULTILINE)
    )
    found = locate_environment(env)
    assert found.python_version == "3.4.5"
    with run_early_probes(found, Options(device="cpu"), machine=lambda: None, profiles=None) as begun:
        assert begun.python_paths.result().version == real


def test_a_pipe_in_the_place_of_pyvenv_cfg_holds_nobody(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    os.mkfifo(tmp_path / "pyvenv.cfg")
    with pytest.raises(UsageError, match="not a regular file"):
        locate_environment(tmp_path)


def test_a_venv_whose_python_does_not_work_is_refused(tmp_path):
    env, _ = venv(tmp_path / "env")
    python = env / "bin" / "python"
    python.unlink()
    python.write_text("#!/bin/sh\necho hello\n")
    python.chmod(0o755)
    found = locate_environment(env)
    with pytest.raises(UsageError, match="is not a working Python interpreter"):
        verify(found, Options(device="cpu", quick=True), emit=lambda event: None)


def test_frameworks_that_were_installed_for_a_user_are_in_that_users_folder():
    """Only of a Python that no manager made an environment of."""
    own, user = "/usr/lib/python3/dist-packages", "/home/u/.local/lib/python3.12/site-packages"
    where = {
        "frameworks": {"torch": {"origin": f"{user}/torch/__init__.py"}, "jax": {"error": "no"}}, "user_site": user, "path": [user, own],
        "sites": [own], "prefix": "/usr", "include": "/usr/include", "version": "3.12.3",
    }  # fmt: skip
    for manager, sites in ((None, (own, user)), ("venv", (own,))):
        problems = []
        env = Environment(path="/env", manager=manager, python="/usr/bin/python3")
        assert state._make_python_paths(env, where, (), problems).sites == sites
        assert problems == ["jax: no"]
