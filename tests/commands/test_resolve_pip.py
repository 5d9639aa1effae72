"""`gpuenv resolve --pip`: its commands, typed for pip and uv, install the plan's builds from the two indexes."""

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest
from environment_facts import installed, ok
from framework_envs import venv
from loopback import Index, serving
from packaging.requirements import Requirement
from test_mirrors import ASK, Two, plant
from uv import find_uv_bin


@pytest.fixture
def two(gpuenv, index):
    with serving(Index()) as other:
        yield Two(gpuenv, index, other)


@pytest.fixture
def typed(gpuenv, tmp_path):
    """Type commands in an empty environment; return its packages."""

    def type_them(commands):
        env = tmp_path / "typed"
        venv(env, pip=True)
        settings = {k: v for k, v in gpuenv.env.items() if not k.startswith("GPUENV")}
        settings |= {
            "VIRTUAL_ENV": str(env),
            "PATH": f"{env}/bin:{Path(find_uv_bin()).parent}:{os.environ['PATH']}",
        }
        settings |= {"UV_DEFAULT_INDEX": gpuenv.env["PIP_INDEX_URL"], "UV_PYTHON_DOWNLOADS": "never"}
        for command in commands:
            subprocess.run(["bash", "-c", command], check=True, env=os.environ | settings, cwd=tmp_path)
        return installed(env)

    return type_them


@pytest.mark.parametrize("tool", ["", "uv "])
def test_the_printed_commands_install_the_plan_from_both_indexes(two, typed, tool):
    plant(two)
    two.default.add("detector", "1.0", requires=("torch", "torchvision"))
    for text in two.plan["builds"][0]["requirements"][1:]:  # the PyTorch index has what its wheels require
        two.pytorch.add(Requirement(text).name, str(next(iter(Requirement(text).specifier)).version))
    ran = ok(two.gpuenv("resolve", *ASK, "--with", "torchvision", "--with", "detector", "--pip"))
    printed = [line.strip() for line in ran.out.splitlines()]
    commands = [line for line in printed if line.startswith(f"{tool}pip install ")]
    assert len(commands) == 2
    got = typed(commands)
    assert got["torch"] == two.version and got["torchvision"] == two.vision and got["detector"] == "1.0"
    assert (
        "wrong index"
        not in next((two.gpuenv.work.parent).rglob("typed/lib/*/site-packages/torch/__init__.py")).read_text()
    )


def test_the_json_has_the_commands_and_other_runs_have_none(gpuenv):
    ask = ("resolve", *ASK, "--json")
    plan, plain = gpuenv(*ask, "--pip").json, gpuenv(*ask).json
    (command,) = plan["pip"]
    build = plan["builds"][0]
    assert shlex.split(command)[2] == build["requirements"][0].replace("===", "==")
    assert shlex.split(command)[3:] == ["--index-url", "https://download.pytorch.org/whl/cu126"]
    assert plan["uv"] == ["uv " + command.replace("--index-url", "--default-index")]
    assert {k: v for k, v in plan.items() if k not in ("pip", "uv")} == plain


def test_a_mirror_is_named_without_its_password(gpuenv):
    gpuenv.env["GPUENV_INDEX_PYTORCH"] = "https://user:secret@mirror.example/whl"
    ran = gpuenv("resolve", *ASK, "--pip", "--json")
    assert "https://mirror.example/whl/cu126" in ran.json["pip"][0] and "secret" not in ran.out


def test_the_index_of_the_option_is_named(gpuenv):
    words = ("resolve", "--framework", "jax", "--device", "cpu", "--pip", "--json", "--index")
    ran = gpuenv(*words, "https://mirror.example/simple")
    assert shlex.split(ran.json["pip"][0])[-2:] == ["--index-url", "https://mirror.example/simple"]


def test_local_wheels_are_named_by_their_folder(gpuenv, tmp_path):
    from loopback import wheel_bytes

    links = tmp_path / "links here"
    links.mkdir()
    (links / "torch-2.13.0+cpu-py3-none-any.whl").write_bytes(wheel_bytes("torch", "2.13.0+cpu"))
    ran = ok(
        gpuenv(
            "resolve",
            "--framework",
            "torch",
            "--device",
            "cpu",
            "--offline",
            "--find-links",
            links,
            "--pip",
            "--json",
        )
    )
    assert shlex.split(ran.json["pip"][0])[2:] == [
        "torch==2.13.0+cpu",
        "--find-links",
        str(links),
        "--no-index",
    ]


def test_conda_channels_have_no_command_of_pip(gpuenv):
    ran = gpuenv("resolve", *ASK, "--manager", "conda", "--pip", "--json")
    assert ran.code == 2 and "--manager venv" in ran.json["error"]["hint"]


def test_the_command_says_that_the_projects_files_are_not_in_it(gpuenv, index):
    gpuenv.env["PIP_INDEX_URL"] = index.url
    index.add_plan(gpuenv("resolve", *ASK, "--index", "pypi", "--json").json)
    index.add("numpy", "2.4.0")
    (gpuenv.work / "requirements.txt").write_text("numpy\n")
    plan = gpuenv("resolve", *ASK, "--index", "pypi", "-r", "requirements.txt", "--pip", "--json").json
    assert any("gpuenv export --format requirements" in note for note in plan["notes"])


def test_each_plan_of_a_fleet_has_its_commands(gpuenv):
    hosts = {"old": ("550.54.15", "7.0"), "new": ("595.45.04", "12.0")}
    for name, (driver, capability) in hosts.items():
        target = {
            "platform": "linux-x86_64",
            "glibc": "2.35",
            "driver": driver,
            "driver_os": "linux",
            "gpus": [{"capability": capability}],
        }
        (gpuenv.work / f"{name}.json").write_text(json.dumps(target))
    words = ("resolve", "--framework", "torch", "--target", "old.json", "--target", "new.json", "--pip")
    fleet = gpuenv(*words, "--json").json
    commands = [plan["plan"]["pip"] for plan in fleet["plans"]]
    assert commands and all(len(one) == 1 for one in commands)
    shown = gpuenv(*words).out
    assert all(one[0] in shown for one in commands)
