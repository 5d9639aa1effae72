"""Words and paths that are no environment: the message says what was meant, and nothing proposes a harmful step."""

import errno
from pathlib import Path

import pytest
from environment_facts import refused
from framework_envs import framework_env, venv
from made_env import jax_index

from driver_stub import build, scenario
from provision.environment import interpreter
from provision.errors import UsageError
from provision.model import Environment


def test_a_machine_at_its_limits_is_not_a_python_that_is_broken(monkeypatch, tmp_path):
    env = Environment(path=str(tmp_path), manager=None, python=str(tmp_path / "python"))
    for number, kind in ((errno.EMFILE, OSError), (errno.ENOEXEC, UsageError)):

        def fail(*_, number=number, **__):
            raise OSError(number, "told")

        monkeypatch.setattr(interpreter, "start", fail)
        with pytest.raises(kind):
            interpreter.ask_version(env)


@pytest.mark.parametrize(
    ("word", "option"),
    [
        ("torch", "--framework torch"),
        ("pytorch", "--framework torch"),
        ("TensorFlow", "--framework tensorflow"),
        ("jax>=0.5", "--framework 'jax>=0.5'"),
        ("torch==2.6.0", "--framework torch==2.6.0"),
    ],
)
def test_a_framework_in_the_place_of_a_path_is_corrected(gpuenv, word, option):
    for more in ((), ("--dry-run",), ("--device", "cpu")):
        ran = gpuenv("create", word, *more)
        assert ran.code == 2 and f"error: {word} is a framework" in ran.err
        assert f"gpuenv create {option}" in " ".join(ran.err.split())
    assert not list(gpuenv.work.iterdir())


def test_a_path_that_is_called_like_a_framework_is_a_path(gpuenv, index):
    jax_index(gpuenv, index)
    words = ("--device", "cpu", "--dry-run", "--index", "pypi", "--framework", "jax")
    assert gpuenv("create", "./torch", *words).code == 0
    assert gpuenv("create", "torch", *words).code == 0
    (gpuenv.work / "torch").mkdir()
    for named in ("torch", "./jax"):
        assert "no gpuenv.yaml here" in refused(gpuenv("create", named, "--dry-run"), 2).err


def test_a_project_does_not_make_a_framework_a_path(gpuenv):
    (gpuenv.work / "gpuenv.yaml").write_text("frameworks: [jax]\ndevice: cpu\n")
    assert "error: torch is a framework" in refused(gpuenv("create", "torch", "--dry-run"), 2).err


@pytest.mark.parametrize("command", ["resolve", "lock"])
def test_a_framework_without_its_option_is_corrected(gpuenv, command):
    assert f"hint: gpuenv {command} --framework 'torch>=2.6'" in refused(gpuenv(command, "torch>=2.6"), 2).err
    assert "--framework" not in refused(gpuenv(command, "nonsense"), 2).err


def test_nobody_is_advised_to_create_where_another_tool_is_at_home(gpuenv):
    ran = gpuenv("verify", "/usr", "--device", "cpu", "--json")
    assert "gpuenv create /usr" not in ran.out
    ran = gpuenv("verify", "/usr", "--device", "cpu")
    assert ran.code == 8 and "create /usr" not in ran.out + ran.err
    (gpuenv.work / "thesis").mkdir()
    ran = gpuenv("run", "thesis", "--", "python")
    assert ran.code == 2 and "has no Python: bin/python is missing" in ran.err and "create" not in ran.err


@pytest.mark.parametrize("place", ["/", "/usr", "/tmp", "~", "home/.."])
def test_no_advice_to_remove_the_system_or_a_home_by_hand(gpuenv, place):
    home = Path(gpuenv.env["HOME"])
    named = {"~": str(home), "home/..": str(home.parent)}.get(place, place)
    (home / "thesis.tex").write_text("x")
    ran = gpuenv("remove", named)
    assert ran.code == 2 and "gpuenv did not make; it is left" in ran.err
    assert "hint: `gpuenv list`" in ran.err
    ran = refused(gpuenv("create", named, "--framework", "jax", "--device", "cpu"), 2)
    for word in ("yourself", "by hand", " rm"):
        assert word not in ran.err
    assert (home / "thesis.tex").read_text() == "x"


def test_a_link_to_a_folder_is_called_a_link(gpuenv, golden):
    (gpuenv.work / "thesis").mkdir()
    (gpuenv.work / "link").symlink_to("thesis")
    golden("remove", refused(gpuenv("remove", "link"), 2).err, {str(gpuenv.work): "WORK"})


def test_a_link_to_a_home_is_no_environment_either(gpuenv):
    link = gpuenv.work / "link"
    link.symlink_to(gpuenv.env["HOME"])
    assert "rm" not in refused(gpuenv("remove", "link"), 2).err.split() and link.is_symlink()


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    return build(tmp_path_factory.mktemp("driver"))


def stages(ran):
    return {s["stage"]: s["status"] for s in ran.json["stages"]}


@pytest.mark.parametrize("machine", ["no-driver", "580-h200"])
def test_an_environment_without_a_framework_is_told_so_with_and_without_a_gpu(gpuenv, libraries, machine):
    path, _ = venv(gpuenv.work / "plain")
    gpuenv.env |= scenario(libraries, machine)
    ran = gpuenv("verify", path, "--json")
    assert ran.code == 8 and ran.json["verdict"] == "fails"
    assert stages(ran)["framework"] == "fail"
    assert str(path) in "".join(s["detail"] for s in ran.json["stages"])
    assert machine == "580-h200" or ("--framework" in ran.json["hint"] and not ran.json["findings"])


def test_a_cpu_framework_that_another_tool_installed_works_on_the_cpu(gpuenv, libraries):
    path = framework_env("onnxruntime")
    gpuenv.env |= scenario(libraries, "no-driver")
    ran = gpuenv("verify", path, "--json")
    assert (ran.code, ran.json["verdict"], stages(ran)["convolution"]) == (0, "cpu", "pass"), ran.out
    ran = gpuenv("verify", path, "--device", "cuda", "--json")
    assert (ran.code, ran.json["verdict"], stages(ran)["driver"]) == (8, "fails", "fail")
    gpuenv.env |= scenario(libraries, "mismatch")
    ran = gpuenv("verify", path, "--json")
    assert (ran.code, stages(ran)["driver"]) == (8, "fail"), "a GPU whose driver does not work is a failure"


def test_remove_of_a_package_names_drop(gpuenv):
    assert "`gpuenv drop numpy`" in refused(gpuenv("remove", "numpy", "--json"), 2).json["error"]["hint"]
    for path in ("/etc", "no/such"):
        assert "drop" not in gpuenv("remove", path, "--json").json["error"]["hint"]
