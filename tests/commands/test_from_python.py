"""The commands as functions: what they are called by, and that they return what `--json` prints."""

import dataclasses
import importlib
import inspect
import json
import re
import sys
from pathlib import Path

import pytest
from rows import rows

from provision import errors, model
from provision.cli.verbs import COMMANDS, load_command
from provision.commands import create, detect, list as listing, lock, profiles, remove, resolve, run
from provision.config.options import Choices

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
THERE = {"driver": "550.54.15", "gpu": ["7.5"], "python": "3.12"}


@pytest.fixture
def here(gpuenv, monkeypatch):
    """This process in the folder, the home and the variables of the commands that the test starts."""
    for name in ("PIP_INDEX_URL", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    gpuenv.env["XDG_DATA_HOME"] = str(gpuenv.folder / "data")
    for name, value in gpuenv.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(gpuenv.work)
    return gpuenv


@pytest.fixture
def jax(here, index, monkeypatch):
    """An index with tiny wheels of what a CPU environment of jax consists of."""
    ask = ("--framework", "jax", "--device", "cpu", "--python", HERE, "--index", "pypi")
    index.add_plan(here("resolve", "--json", *ask).json)
    here.env["PIP_INDEX_URL"] = index.url
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    return Choices(framework=["jax"], device="cpu", python=HERE, index="pypi")


def document(value):
    return json.loads(json.dumps(model.as_document(value)))


@rows("words", sorted(COMMANDS))
def test_every_command_is_a_function_with_options(words):
    options, function = load_command(words)
    assert importlib.import_module(f"provision.commands.{words.split()[0]}") is not function
    assert dataclasses.is_dataclass(options) and list(inspect.signature(function).parameters) == [
        "options",
        "emit",
    ]


def test_the_example_of_the_reference_runs_and_returns_what_json_prints(jax, here):
    """As it is written, and its value is the document of the same command."""
    example = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL).group(1)
    example = example.replace('device="cpu"', f'device="cpu", python="{HERE}", index="pypi"')
    found = {}
    exec(example, found)  # the example is the project's own
    made = found["made"]
    assert made.environment.changed and Path(made.environment.path) == here.work / "env"
    again = create.create(found["options"])
    asked = ("--framework", "jax", "--device", "cpu", "--python", HERE, "--index", "pypi")
    printed = here("create", "env", *asked, "--json").json
    assert document(again) | {"verdict": None} == printed | {"verdict": None}
    assert document(again)["verdict"]["verdict"] == printed["verdict"]["verdict"] == made.verdict.verdict
    assert found["document"]["schema"] == "gpuenv.create/1" == printed["schema"]


def test_create_returns_what_json_prints(jax, here):
    options = create.CreateOptions(env=Path("env"), choices=jax, verify=False)
    events = []
    assert create.create(options, events.append).environment.changed
    assert any(e.kind == "next" and "env/bin/activate" in e.text for e in events)
    again = create.create(options)
    asked = ("--framework", "jax", "--device", "cpu", "--python", HERE, "--index", "pypi", "--no-verify")
    assert document(again) == here("create", "env", *asked, "--json").json
    assert again.lock and not again.environment.changed


def test_options_given_in_python_replace_those_of_the_environment(jax, here):
    """As those that a command line names do."""
    create.create(create.CreateOptions(env=Path("env"), choices=jax, verify=False))
    other = Choices(framework=["torch"], device="cpu", python=HERE, index="pypi")
    with pytest.raises(errors.UsageError, match=r"framework: .*jax.*, now .*torch"):
        create.create(create.CreateOptions(env=Path("env"), choices=other, verify=False))


def test_lock_resolve_and_detect_return_what_json_prints(jax, here):
    asked = ("--framework", "jax", "--device", "cpu", "--python", HERE, "--index", "pypi")
    options = lock.LockOptions(choices=jax)
    first = lock.lock(options)
    assert (here.work / "pylock.toml").is_file()
    again = lock.lock(options)  # near to the existing lock
    assert document(again) == here("lock", *asked, "--json").json
    assert again.packages == first.packages
    choices = Choices(framework=["torch"], **THERE)
    words = ("--driver", "550.54.15", "--gpu", "7.5", "--python", "3.12")
    plan = resolve.resolve(resolve.ResolveOptions(choices=choices))
    assert document(plan) == here("resolve", "--framework", "torch", *words, "--json").json
    machine = document(detect.detect(detect.DetectOptions()))
    assert machine.keys() == (printed := here("detect", "--json").json).keys()
    assert machine["pythons"] == printed["pythons"]


def test_run_returns_how_the_program_ended(here):
    root = here.work / "env"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "python").symlink_to(sys.executable)
    options = run.RunOptions(env=root, command=["sh", "-c", "kill -9 $$"])
    ran = run.run(options)
    assert (ran.code, ran.signal, ran.command) == (137, "SIGKILL", ("sh", "-c", "kill -9 $$"))
    events = []
    missing = run.run(run.RunOptions(env=root, command=["no-such-program"]), events.append)
    assert missing.code == 127 and "no-such-program" in events[-1].text
    with pytest.raises(errors.UsageError, match="no program given"):
        run.run(run.RunOptions(env=root))


def test_list_remove_and_profiles_return_what_json_prints(jax, here):
    create.create(create.CreateOptions(env=Path("env"), choices=jax, verify=False))
    listed = listing.list_environments(listing.ListOptions())
    assert [e.path for e in listed.environments] == [str(here.work / "env")]
    assert document(listed)["schema"] == "gpuenv.list/1"
    gone = remove.remove(remove.RemoveOptions(envs=[Path("env")]))
    assert [e.path for e in gone.removed] == [str(here.work / "env")] and not (here.work / "env").exists()
    tables = profiles.show(profiles.ProfilesShowOptions(names=["torch"]))
    assert document(tables) == here("profiles", "show", "torch", "--json").json
