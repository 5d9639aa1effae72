"""Checks: what runs, where and how long, what a failure says, and whose gpuenv.yaml is believed."""

import dataclasses
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
from environment_facts import ok, own, refused
from framework_envs import framework_env, venv

from provision import report
from provision.actions.prove import Proof, read_checks
from provision.config.options import Choices
from provision.environment import record
from provision.errors import DataError, UsageError
from provision.export import pages
from provision.model import Machine, StageResult, Target, Verdict, as_document, from_plain
from provision.system import trust
from provision.verify import Options, locate_environment

PASSED = StageResult(stage="framework", framework="jax", status="pass", detail="jax 1", device="cpu")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A venv of no tool of ours, with a package in it."""
    root, site = venv(tmp_path_factory.mktemp("plain") / "env")
    (site / "inside.py").write_text("")
    return root


@pytest.fixture
def env(plain, tmp_path, monkeypatch):
    """The same as an environment of the project in tmp_path/project. Its record says so."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    project = tmp_path / "project"
    project.mkdir()
    (project / "gpuenv.yaml").write_text("frameworks: [jax]\n")
    root = Path(shutil.copytree(plain, project / ".venv", symlinks=True))
    recorded(root, project / "gpuenv.yaml")
    return root


def recorded(env, config):
    (env / ".gpuenv").mkdir(exist_ok=True)
    (env / ".gpuenv" / "request.json").write_text(json.dumps({"choices": {"config": str(config)}}))
    own(env)


def project_of(env, *checks):
    rows = "".join(f"- {json.dumps(c)}\n" for c in checks)
    (env.parent / "gpuenv.yaml").write_text(f"frameworks: [jax]\nchecks:\n{rows}")


def judged(env, *typed, verdict="cpu", stages=(PASSED,), project=True, events=None, **options):
    """The verdict with what the checks add to one that is there already."""
    before = Verdict(env=str(env), python=str(env / "bin" / "python"), verdict=verdict, stages=stages)
    emit = (lambda _: None) if events is None else events.append
    choices = Choices(cache_dir=env.parent / "cache")
    proof = Proof(locate_environment(env), choices, emit, Options(**options))
    if project:
        proof.read_project()
    return proof.run_checks(before, read_checks(typed))


def last(verdict):
    assert verdict.stages[-1].stage == "checks"
    return verdict.stages[-1]


def test_checks_of_the_project_pass(env):
    (env.parent / "mine.py").write_text("")
    (env.parent / "train.py").write_text("import inside, mine, sys; print(sys.argv, sys.prefix)\n")
    project_of(
        env, {"import": "inside"}, {"import": "mine"}, {"run": "python train.py --help", "name": "train"}
    )
    found = judged(env)
    assert (found.verdict, found.hint, found.findings) == ("cpu", None, ())
    assert (last(found).status, last(found).detail, last(found).device) == (
        "pass", "3 passed: import inside, import mine, train", "cpu",
    )  # fmt: skip
    assert [(c.label, c.status, c.returncode) for c in found.checks] == [
        ("import inside", "pass", 0), ("import mine", "pass", 0), ("train", "pass", 0),
    ]  # fmt: skip
    assert found.checks[2].output == (f"['train.py', '--help'] {env}",)
    assert from_plain(Verdict, json.loads(json.dumps(as_document(found)))) == found


def test_nothing_is_added_where_there_are_no_checks(env):
    assert judged(env).stages == (PASSED,)
    assert judged(env).checks == ()


def test_a_failed_check_fails_the_verdict_and_is_diagnosed(env):
    text = "ImportError: A module that was compiled using NumPy 1.x cannot be run in NumPy 2.2.1"
    (env.parent / "cv2.py").write_text(f"raise ImportError({text.partition(': ')[2]!r})\n")
    project_of(env, {"import": "inside"}, {"import": "cv2"})
    found = judged(env)
    assert found.verdict == "fails" and last(found).status == "fail"
    assert last(found).detail == f"1 of 2 failed: import cv2: exit 1: {text}"
    assert [c.status for c in found.checks] == ["pass", "fail"]
    assert found.checks[1].output[-1] == text
    cause = found.findings[0]
    assert cause.cause == "numpy_abi" and found.hint == cause.fix
    assert any("NumPy 1.x" in e.text and e.source == "import cv2" for e in cause.evidence)


def test_a_failure_without_a_known_cause_names_the_command_to_try(env):
    project_of(env, {"run": "python -c 'raise SystemExit(7)'"})
    found = judged(env)
    assert last(found).detail == "1 of 1 failed: python -c 'raise SystemExit(7)': exit 7"
    assert found.hint == f"Run the check alone: gpuenv run {env} -- python -c 'raise SystemExit(7)'"
    assert found.checks[0].returncode == 7 and found.checks[0].signal is None


def test_a_signal_a_missing_program_and_a_lost_folder_are_results(env):
    code = "import os; os.kill(os.getpid(), 11)"
    project_of(env, {"run": f'python -c "{code}"'}, {"run": "no-such-program --x"})
    found = judged(env)
    assert [(c.status, c.returncode, c.signal) for c in found.checks] == [
        ("fail", -signal.SIGSEGV, "SIGSEGV"), ("fail", None, None),
    ]  # fmt: skip
    assert "ended by SIGSEGV" in last(found).detail
    assert "no-such-program: No such file or directory" in last(found).detail


def test_checks_run_as_gpuenv_run_does_without_stdin_in_the_projects_folder(env, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    code = (
        "import os, shutil, sys; print(os.getcwd(), shutil.which('python'), os.environ['VIRTUAL_ENV'],"
        " sys.stdin.read() == '', os.getpgid(0) == os.getsid(0) == os.getppid() or os.getsid(0) == os.getpid())"
    )
    project_of(env, {"run": f'python -c "{code}"'})
    found = judged(env)
    assert found.checks[0].output == (f"{env.parent} {env}/bin/python {env} True True",)


def test_the_environment_and_the_project_get_no_bytecode(env, plain):
    (env.parent / "mine.py").write_text("")
    project_of(env, {"import": "mine"}, {"import": "inside"})
    assert judged(env).verdict == "cpu"
    assert not list(env.parent.glob("__pycache__")) and not list(plain.rglob("site-packages/__pycache__"))


def test_a_deadline_ends_the_whole_family(env):
    """The check's own, whatever --timeout says: its child, and a grandchild in a session of its own."""
    marks = [env.parent / name for name in ("child", "daemon")]
    code = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
    (env.parent / "starts.py").write_text(
        "import subprocess, sys, time\n"
        f"for mark, alone in {[(str(m), m.name == 'daemon') for m in marks]!r}:\n"
        f"    subprocess.Popen([sys.executable, '-c', {code!r}, mark], start_new_session=alone)\n"
        "print('a word', flush=True)\ntime.sleep(600)\n"
    )
    for seconds in (3, 12, 48):  # how long a Python takes to start is not known beforehand
        project_of(env, {"run": "python starts.py", "timeout": seconds}, {"import": "inside"})
        started = time.monotonic()
        found = judged(env, timeout=300)
        took = time.monotonic() - started
        if all(m.exists() and m.read_text() for m in marks):
            break
    assert took < seconds + 60
    slow, after = found.checks
    assert (slow.status, slow.timed_out, slow.signal, slow.returncode) == ("fail", True, None, None)
    assert after.status == "pass" and slow.output == ("a word",)
    assert f"python starts.py: did not finish within {seconds} s: a word" in last(found).detail
    assert "'python starts.py' more time (timeout: " in found.hint and "--timeout" in found.hint
    for mark in marks:
        assert not running(int(mark.read_text())), mark.name


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_what_a_check_leaves_running_is_ended_with_it(env):
    project_of(env, {"run": "bash -c 'sleep 600 & echo $!'"}, {"import": "inside"})
    started = time.monotonic()
    found = judged(env)
    assert found.verdict == "cpu" and time.monotonic() - started < 60
    assert not running(int(found.checks[0].output[0]))


def test_output_is_bounded(env):
    code = "import sys\nfor _ in range(9 << 10): sys.stderr.write('x' * 1023 + chr(10))\nsys.exit(3)"
    (env.parent / "loud.py").write_text(code)
    project_of(env, {"run": "python loud.py"})
    found = judged(env)
    assert [len(line) for line in found.checks[0].output] == [500] * 8
    assert len(json.dumps(as_document(found))) < 20_000


def test_credentials_that_a_check_names_or_prints_are_not_shown(env):
    project_of(
        env,
        {"run": "python -c \"raise SystemExit('no https://me:hunter2@host/x')\" https://me:hunter2@host/y"},
    )
    text = json.dumps(as_document(judged(env)))
    assert "hunter2" not in text and "host/x" in text


def test_typed_checks_come_after_those_of_the_project(env, monkeypatch, tmp_path):
    project_of(env, {"import": "inside"})
    (env.parent / "mine.py").write_text("")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    found = judged(env, "import mine", "python -c 'import os; print(os.getcwd())'", "import mine")
    assert [c.label for c in found.checks] == [
        "import inside", "import mine", "python -c 'import os; print(os.getcwd())'",
    ]  # fmt: skip
    assert found.checks[2].output == (str(tmp_path / "here"),)
    assert [c.label for c in judged(env, "import mine", project=False).checks] == ["import mine"]


def test_a_typed_import_is_not_taken_from_the_current_folder(plain, monkeypatch, tmp_path):
    """In an environment that has no project."""
    (tmp_path / "inside.py").write_text("raise SystemExit('imported from the working directory')\n")
    (tmp_path / "only_here.py").write_text("")
    monkeypatch.chdir(tmp_path)
    found = judged(plain, "import inside", "import only_here")
    assert [c.status for c in found.checks] == ["pass", "fail"]


def test_a_word_that_is_no_check_is_a_wrong_option():
    with pytest.raises(UsageError, match=r"--check 'import a-b'.*is not a module"):
        read_checks(["import a-b"])


def test_checks_are_skipped_after_a_stage_that_failed(env):
    project_of(env, {"run": "touch ran"})
    failed = StageResult(stage="framework", status="fail", detail="no", device="cpu")
    found = judged(env, verdict="fails", stages=(failed,))
    assert (last(found).status, last(found).detail) == ("skip", "the framework stage failed")
    assert found.verdict == "fails" and not (env.parent / "ran").exists()


def test_quick_and_no_checks_leave_the_projects_out(env):
    project_of(env, {"run": "touch ran"})
    assert judged(env, quick=True).stages == judged(env, project=False).stages == (PASSED,)
    assert not (env.parent / "ran").exists()
    assert [c.status for c in judged(env, "import inside", quick=True).checks] == ["pass"]


# --- whose gpuenv.yaml ---------------------------------------------------------------------------


def test_a_gpuenv_yaml_in_the_current_folder_is_not_believed(env, monkeypatch, tmp_path):
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "gpuenv.yaml").write_text("checks:\n- run: touch ran\n")
    monkeypatch.chdir(other)
    assert judged(env).stages == (PASSED,)
    (env / ".gpuenv" / "request.json").write_text('{"choices": {"framework": ["jax"]}}')
    own(env)
    assert judged(env).stages == (PASSED,)
    assert not (other / "ran").exists()


@pytest.mark.parametrize("named", ["gpuenv.yaml", "../gpuenv.yaml", "/dev/stdin", 7, None])
def test_a_record_that_names_no_gpuenv_yaml_by_its_whole_path_names_none(env, named, monkeypatch):
    project_of(env, {"run": "touch ran"})
    (env / ".gpuenv" / "request.json").write_text(json.dumps({"choices": {"config": named}}))
    own(env)
    monkeypatch.chdir(env.parent)
    assert judged(env).stages == (PASSED,) and not (env.parent / "ran").exists()


def test_a_file_that_everybody_can_write_is_not_believed(env):
    project_of(env, {"run": "touch ran"})
    (env.parent / "gpuenv.yaml").chmod(0o666)
    found = judged(env)
    assert last(found).status == "warn" and found.verdict == "cpu"
    assert f"{env.parent}/gpuenv.yaml belongs to" in last(found).detail
    assert "can be written by every user" in last(found).detail
    assert judged(env, strict=True).verdict == "fails"
    assert not (env.parent / "ran").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_not_believed(env):
    project_of(env, {"run": "touch ran"})
    os.chown(env.parent / "gpuenv.yaml", 4242, -1)
    found = judged(env)
    assert "belongs to uid 4242" in last(found).detail and last(found).status == "warn"
    assert not (env.parent / "ran").exists()
    os.chown(env, 4242, -1)  # whose environment it is: its code runs anyway, once root accepts it
    with pytest.raises(trust.UntrustedError, match="belongs to uid 4242"):
        judged(env)
    trust.accept_project(accepted=True)
    try:
        assert judged(env).checks[0].status == "pass"
    finally:
        trust.accept_project(accepted=False)


def test_a_pipe_in_the_place_of_the_file_holds_nobody(env):
    (env.parent / "gpuenv.yaml").unlink()
    os.mkfifo(env.parent / "gpuenv.yaml")
    assert "is not a regular file" in last(judged(env)).detail


def test_checks_are_skipped_where_gpuenv_yaml_is_missing(env):
    (env.parent / "gpuenv.yaml").unlink()
    found = judged(env)
    assert (last(found).status, found.verdict) == ("skip", "cpu")
    assert last(found).detail == f"the project's checks did not run: {env.parent}/gpuenv.yaml is missing"


@pytest.mark.parametrize("put", [shutil.move, lambda a, b: shutil.copytree(a, b, symlinks=True)])
def test_the_checks_of_a_moved_or_copied_project_run_from_the_file_beside_the_environment(env, put):
    project_of(env, {"run": "touch moved"})
    other = env.parent.with_name("other")
    put(env.parent, other)
    assert [c.status for c in judged(other / ".venv").checks] == ["pass"]
    assert (other / "moved").exists() and not (env.parent / "moved").exists()
    (other / ".venv/.gpuenv/plan.json").write_text("{}")  # of another program: the record is nobody's
    found = judged(other / ".venv")
    assert last(found).status == "warn" and "did not write" in last(found).detail
    (other / ".venv/.gpuenv/plan.json").unlink()
    if env.exists():
        with pytest.raises(UsageError, match="is a copy of an environment"):
            record.require_vouched(other / ".venv")
    else:
        record.require_vouched(other / ".venv")


def test_an_invalid_file_is_an_error_before_anything_runs(env):
    (env.parent / "gpuenv.yaml").write_text("checks:\n- import: a-b\n")
    with pytest.raises(DataError, match="invalid") as caught:
        judged(env)
    assert "checks[0].import" in caught.value.problems[0] and str(env.parent) in caught.value.message
    assert judged(env, project=False).stages == (PASSED,)


# --- the command -------------------------------------------------------------------------------


@pytest.fixture
def fake(gpuenv):
    """An environment with a framework that can be imported: enough for `verify --quick` on the CPU."""
    _root, site = venv(gpuenv.work / "env")
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").write_text(
        "import types\n__version__ = '2.9.0'\nversion = types.SimpleNamespace(cuda=None, hip=None)\n"
    )
    (site / "torch-2.9.0.dist-info").mkdir()
    (site / "torch-2.9.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: torch\nVersion: 2.9.0\n"
    )
    return lambda *more: gpuenv("verify", "env", "--quick", "--device", "cpu", *more)


def test_verify_runs_the_checks_of_its_command_line(fake, gpuenv):
    ran = ok(fake("--check", "import torch", "--check", f"{sys.executable} -c 'print(1)'"))
    assert "  pass  checks                   2 passed: import torch" in ran.out
    ran = fake("--check", "import cv2", "--report", "page.html")
    assert ran.code == 8 and "  fail  checks                   1 of 1 failed: import cv2: exit 1:" in ran.out
    assert "No module named &#x27;cv2&#x27;" in (gpuenv.work / "page.html").read_text()
    ran = refused(fake("--check", "import cv2", "--json"), 8)
    (check,) = ran.json["checks"]
    assert (check["label"], check["kind"], check["status"], check["returncode"]) == (
        "import cv2",
        "import",
        "fail",
        1,
    )
    assert [s["status"] for s in ran.json["stages"] if s["stage"] == "checks"] == ["fail"]
    assert fake("--check", "import x y").code == 2


# --- torch.compile -----------------------------------------------------------------------------


NO_COMPILER = """
import types
cuda = types.SimpleNamespace(is_available=lambda: False)
def linspace(*_):
    raise RuntimeError("Failed to find C compiler")
"""


@pytest.fixture(params=["fake", pytest.param("real", marks=[pytest.mark.slow, pytest.mark.network])])
def torch(request, monkeypatch, tmp_path):
    """An environment with torch, and a PATH without a compiler."""
    if request.param == "real":
        root = framework_env("torch")
    else:
        root, site = venv(tmp_path / "env of torch")
        (site / "torch.py").write_text(NO_COMPILER)
    monkeypatch.setenv("PATH", str(root / "bin"))
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    return root


def test_compile_names_all_that_is_missing(torch, monkeypatch, tmp_path):
    """The headers are where sysconfig says, as for a Python of uv that was moved."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sysconfig\nsysconfig._INSTALL_SCHEMES['posix_prefix']['include'] = '/install/include'\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = judged(torch, "compile")
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert f"C++ compiler and Python.h of Python {here}" in last(found).detail
    assert last(found).evidence[1].text == "Python.h is not in /install/include"
    fix = found.findings[0].fix
    for words in (
        "install gcc",
        f"apt-get install python{here}-dev",
        f"uv python install --reinstall {here}",
    ):
        assert words in fix
    assert "3.X" not in fix


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize("torch", ["real"], indirect=True)
def test_compile_passes_with_a_compiler(torch, monkeypatch, tmp_path):
    """Under a name without a space: with one, torch's own command for the linker is wrong, and the check says so."""
    monkeypatch.setenv("PATH", f"{torch / 'bin'}:{os.defpath}")
    (tmp_path / "plain").symlink_to(torch)
    found = judged(tmp_path / "plain", "compile")
    assert (found.verdict, last(found).detail) == ("cpu", "1 passed: compile torch"), last(found)
    found = judged(torch, "compile")
    assert "exit 1: torch._inductor.exc.InductorError: CppCompileError" in last(found).detail
    assert found.hint.endswith(f": gpuenv verify '{torch}' --check compile -v")


PRINTED = (
    "machine h.example login us3r-x password hunter2x",
    "using wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "OPENAI_KEY=0penai-opaque",
    "DB_PASS='two w0rds-x'",
    "curl -u us3r-x:hunter2x https://host",
    "Cookie: sid=hunter2x; other=w0rds-x",
    "//registry.example/:_authToken=hunter2x",
    "connect name:hunter2x@proxy:3128",
    "https://us3r-x:hunter2x" + "y" * 600 + "@host/simple",
    "it says open-sesame-77",
    "RuntimeError: CUDA out of memory, token=hunter2x",
)
SECRETS = ("us3r-x", "hunter2x", "wJalrXUtnFEMI", "0penai-opaque", "w0rds-x", "open-sesame-77")


@pytest.mark.parametrize("lines", [PRINTED[:6], PRINTED[5:]])
def test_secrets_that_a_check_prints_are_nowhere(env, monkeypatch, lines):
    """Neither in the verdict nor on its page; a report has what checks printed only on request."""
    monkeypatch.setenv("SOME_SERVICE_TOKEN", "open-sesame-77")
    text = "\n".join(("evidence 1.2.3", *lines))
    (env.parent / "leaky.py").write_text(f"import sys; sys.exit({text!r})\n")
    project_of(env, {"run": f"{sys.executable} leaky.py"})
    verdict = judged(env)
    assert verdict.checks[0].status == "fail" and "evidence 1.2.3" in verdict.checks[0].output
    facts = report.ReportFacts(
        gpuenv="1",
        python="3",
        machine=Machine(target=Target(platform="linux-x86_64")),
        when="",
        verdict=verdict,
    )
    without = report.write_report(facts, report.PersonalData()).text
    included = report.write_report(
        dataclasses.replace(facts, include_checks=True), report.PersonalData()
    ).text
    assert "evidence 1.2.3" in included and "evidence" not in without and "leaky.py" in without
    for shown in (json.dumps(as_document(verdict)), pages.verdict_page(verdict, "footer"), included):
        assert not [word for word in SECRETS if word in shown], shown
