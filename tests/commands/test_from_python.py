"""The commands as functions: what they are called by, and that they return what `--json` prints."""

import importlib
import json
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
from environment_facts import HERE
from made_env import JAX, create, jax_index
from rows import rows

from provision import commands, errors, model

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
THERE = {"driver": "550.54.15", "gpu": ["7.5"], "python": "3.12"}


@pytest.fixture
def here(gpuenv, monkeypatch):
    """This process in the folder, the home and the variables of the commands that the test starts."""
    for name in ("PIP_INDEX_URL", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in gpuenv.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(gpuenv.work)
    return gpuenv


@pytest.fixture
def jax(here, index, monkeypatch):
    """What asks for jax for the CPU, on an index that has it."""
    jax_index(here, index)
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    return commands.Choices(framework=["jax"], device="cpu", python=HERE, index="pypi")


def document(value):
    return json.loads(json.dumps(model.as_document(value)))


@rows(
    "lines",
    [
        "import provision.actions.create",
        "import provision.actions.create as ours",
        "from provision.actions.create import CreateOptions",
        "from provision.commands import create; import provision.actions.create, provision.actions.build",
        "import provision.cli; provision.cli.run(['create', '--help'])",
        "import importlib; importlib.import_module('provision.actions.create')",
    ],
)
def test_a_command_is_its_function_whatever_was_imported_first(lines):
    code = (
        f"{lines}\nimport sys, types, provision.commands\n"
        "from provision.commands import create, list as listed\n"
        "assert provision.commands.create is create and isinstance(create, types.FunctionType)\n"
        "module = sys.modules['provision.actions.create']\n"
        "assert module.create is create and module.CreateOptions is provision.commands.CreateOptions\n"
        "assert listed.__module__ == 'provision.actions.list'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@rows("verb", sorted(commands.VERBS))
def test_every_command_is_a_function_with_options(verb):
    function = getattr(commands, verb)
    assert importlib.import_module(f"provision.actions.{verb}") is not function
    assert function.__name__ == verb and getattr(commands, f"{verb.capitalize()}Options")
    assert {verb, f"{verb.capitalize()}Options", "Choices", "profiles"} <= set(dir(commands))


def test_the_module_is_a_module_like_any_other():
    assert type(commands) is types.ModuleType


def test_no_other_name_is_a_command():
    with pytest.raises(AttributeError, match="no attribute 'creat'"):
        commands.creat  # noqa: B018  # asking is the test
    assert callable(commands.profiles.check) and "provision.actions.profiles" in sys.modules


def test_the_example_of_the_reference_runs_and_returns_what_json_prints(jax, here):
    """As it is written, and its value is the document of the same command."""
    example = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL).group(1)
    example = example.replace('device="cpu"', f'device="cpu", python="{HERE}", index="pypi"')
    found = {}
    exec(example, found)  # the example is the project's own
    made = found["made"]
    assert made.environment.changed and Path(made.environment.path) == here.work / "env"
    again = commands.create(found["options"])
    printed = here("create", "env", *JAX, "--json").json
    assert document(again) | {"verdict": None} == printed | {"verdict": None}
    assert document(again)["verdict"]["verdict"] == printed["verdict"]["verdict"] == made.verdict.verdict
    assert found["document"]["schema"] == "gpuenv.create/1" == printed["schema"]


def test_create_list_and_remove_return_what_json_prints(jax, here, index):
    create(here, index, *JAX)
    events = []
    again = commands.create(commands.CreateOptions(choices=jax, verify=False), events.append)
    assert any(e.kind == "next" and ".venv/bin/activate" in e.text for e in events)
    assert document(again) == here("create", *JAX, "--no-verify", "--json").json
    assert again.lock and not again.environment.changed
    # options given in Python replace those of the environment, as those that a command line names do
    other = commands.Choices(framework=["torch"], device="cpu", python=HERE, index="pypi")
    with pytest.raises(errors.UsageError, match=r"framework: .*jax.*, now .*torch"):
        commands.create(commands.CreateOptions(choices=other, verify=False))
    listed = commands.list(commands.ListOptions())
    assert [e.path for e in listed.environments] == [again.environment.path]
    assert document(listed)["schema"] == "gpuenv.list/1"
    gone = commands.remove(commands.RemoveOptions(envs=[Path(".venv")]))
    assert [e.path for e in gone.removed] == [again.environment.path]
    assert not Path(again.environment.path).exists()


def test_lock_resolve_and_detect_return_what_json_prints(jax, here):
    options = commands.LockOptions(choices=jax)
    first = commands.lock(options)
    assert (here.work / "pylock.toml").is_file()
    again = commands.lock(options)  # near to the existing lock
    assert document(again) == here("lock", *JAX, "--json").json
    assert again.packages == first.packages
    choices = commands.Choices(framework=["torch"], **THERE)
    words = ("--driver", "550.54.15", "--gpu", "7.5", "--python", "3.12")
    plan = commands.resolve(commands.ResolveOptions(choices=choices))
    assert document(plan) == here("resolve", "--framework", "torch", *words, "--json").json
    machine = document(commands.detect(commands.DetectOptions()))
    assert machine.keys() == (printed := here("detect", "--json").json).keys()
    assert machine["pythons"] == printed["pythons"]


def test_run_returns_how_the_program_ended(here):
    root = here.work / "env"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "python").symlink_to(sys.executable)
    options = commands.RunOptions(env=root, command=["sh", "-c", "kill -9 $$"])
    ran = commands.run(options)
    assert (ran.code, ran.signal, ran.command) == (137, "SIGKILL", ("sh", "-c", "kill -9 $$"))
    events = []
    missing = commands.run(commands.RunOptions(env=root, command=["no-such-program"]), events.append)
    assert missing.code == 127 and "no-such-program" in events[-1].text
    with pytest.raises(errors.UsageError, match="no program given"):
        commands.run(commands.RunOptions(env=root))


def test_profiles_returns_what_json_prints(here):
    tables = commands.profiles.show(commands.ProfilesShowOptions(names=["torch"]))
    assert document(tables) == here("profiles", "show", "torch", "--json").json
