"""create and lock through the command line, against an index on 127.0.0.1 of tiny wheels."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib

from provision.environment import place

GPU = ("--driver", "580.65.06", "--gpu", "9.0")
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture
def torch(gpuenv, index):
    """`gpuenv create` for a GPU target with everything it needs on the index, nothing verified."""
    plan = gpuenv("resolve", "--json", "--framework", "torch", "--python", HERE, "--index", "pypi", *GPU).json
    index.add_plan(plan)
    gpuenv.env["PIP_INDEX_URL"] = index.url

    def create(*more, verb="create", framework="torch"):
        verify = ("--no-verify",) if verb == "create" else ()
        return gpuenv(
            verb, "--framework", framework, "--python", HERE, "--index", "pypi", *GPU, *verify, *more
        )

    create.plan = plan
    return create


def installed(env: Path) -> dict[str, str]:
    code = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
    done = subprocess.run([env / "bin" / "python", "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_what_is_installed_is_what_was_planned(torch, gpuenv):
    ran = torch("--json")
    assert ran.code == 0, ran.err
    made = ran.json
    assert made["schema"] == "gpuenv.create/1"
    assert made["environment"]["made_by_gpuenv"] and made["environment"]["changed"]
    have = installed(gpuenv.work / ".venv")
    build = made["plan"]["builds"][0]
    assert have["torch"] == build["version"] == torch.plan["builds"][0]["version"]
    assert have["nvidia-cudnn-cu13"] == build["cudnn"]
    assert "pip" in have
    assert {p["name"] for p in made["lock"]["packages"]} == set(have)
    assert all(p["sha256"] and p["index"] for p in made["lock"]["packages"])


def test_the_last_line_is_the_activate_command(torch, gpuenv):
    ran = torch()
    assert ran.out.splitlines()[-1].endswith(".venv/bin/activate")
    script = ". .venv/bin/activate && command -v python && echo $VIRTUAL_ENV"
    done = subprocess.run(["bash", "-c", script], cwd=gpuenv.work, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(gpuenv.work / ".venv/bin/python"), str(gpuenv.work / ".venv")]


def test_the_same_create_again_downloads_and_rebuilds_nothing(torch, index, gpuenv):
    assert torch().code == 0
    first = index.downloads()
    assert first and set(first.values()) == {1}
    asked = sum(index.requests.values())
    before = (gpuenv.work / ".venv").stat().st_ino
    ran = torch("--json")
    assert ran.code == 0 and ran.json["environment"]["changed"] is False
    assert sum(index.requests.values()) == asked
    assert torch("--recreate").code == 0
    assert index.downloads() == first, "a second build took a wheel from the index that the cache had"
    assert (gpuenv.work / ".venv").stat().st_ino != before


_CHILDREN = """
import json, sys
begun = []
sys.addaudithook(lambda event, args: begun.append(list(map(str, args[1]))) if event == "subprocess.Popen" else None)
sys.argv = ["gpuenv", *sys.argv[1:]]
from provision.__main__ import main
try:
    main()
finally:
    print(json.dumps(begun), file=sys.stderr)
"""


def test_a_create_with_cold_caches_asks_the_index_once_for_each_thing(torch, index, gpuenv):
    """What it costs beside the downloads: that and the programs begun decide, not the load of this machine."""
    index.held, index.tells_sizes = "max-age=600", True
    plan = ("--framework", "torch", "--python", HERE, "--index", "pypi", *GPU)
    argv = [sys.executable, "-c", _CHILDREN, "create", *plan, "--no-verify"]
    ran = subprocess.run(argv, cwd=gpuenv.work, env=gpuenv.env, capture_output=True, text=True, check=True)
    assert index.downloads() and set(index.requests.values()) == {1} and not index.heads
    begun = json.loads(ran.stderr.splitlines()[-1])
    uv = [words[1:3] for words in begun if Path(words[0]).name == "uv"]
    # The platforms it knows, the solve, and the wheels: the cache has none to try first.
    assert sorted(uv) == [["pip", "compile"]] * 2 + [["pip", "install"]]
    asked = [words[0] for words in begun if words[1:3] == ["-I", "-S"]]
    assert len(asked) == len(set(asked)), "a Python was asked twice"
    before = dict(index.requests)
    again = subprocess.run(
        [*argv, "--recreate"], cwd=gpuenv.work, env=gpuenv.env, capture_output=True, text=True, check=True
    )
    assert index.requests == before, "what is in the cache is put in without the network"
    uv = [words[1:3] for words in json.loads(again.stderr.splitlines()[-1]) if Path(words[0]).name == "uv"]
    assert uv.count(["pip", "install"]) == 1


def test_the_lock_is_a_pylock_with_index_hash_and_target(torch, gpuenv, index):
    ran = torch(verb="lock")
    assert ran.code == 0, ran.err
    text = (gpuenv.work / "pylock.toml").read_text()
    data = tomllib.loads(text)
    from packaging.pylock import Pylock

    assert {str(p.name) for p in Pylock.from_dict(data).packages} >= {"torch", "pip", "nvidia-cudnn-cu13"}
    assert all(p["index"] == index.url for p in data["packages"])
    assert all(len(p["wheels"][0]["hashes"]["sha256"]) == 64 for p in data["packages"])
    assert all(p["wheels"][0]["size"] > 0 for p in data["packages"])
    ours = data["tool"]["gpuenv"]
    assert ours["target"]["driver"] == "580.65.06" and ours["target"]["gpus"] == [{"capability": "9.0"}]
    assert ours["plan"]["builds"][0]["requirements"][0].startswith("torch===")


def test_lock_check_tells_what_is_asked_for_and_not_in_the_lock(torch, index):
    assert torch(verb="lock").code == 0
    assert torch("--check", verb="lock").code == 0
    index.add("pip", "26.1")
    assert torch("--check", verb="lock").code == 0, "a release that nobody asked for is no drift"
    ran = torch("--check", "--with", "pip>=26.1", verb="lock")
    assert ran.code == 6 and "pip: 26.0 -> 26.1" in ran.err


def test_a_lock_is_installed_from_another_index_with_the_same_files(torch, gpuenv, index):
    """The address in the lock is gone; another index with the same files does."""
    assert torch(verb="lock").code == 0
    lock = gpuenv.work / "pylock.toml"
    lock.write_text(lock.read_text().replace(index.url.removesuffix("/simple"), "http://127.0.0.1:9"))
    lock.write_text(lock.read_text().replace('device = "cuda"', 'device = "cpu"'))
    ran = gpuenv("create", "--locked", "--no-verify", "--json")
    assert ran.code == 0, ran.err
    assert "torch" in installed(gpuenv.work / ".venv")


def test_a_wheel_with_another_hash_is_refused_and_nothing_stays(torch, gpuenv, index):
    assert torch(verb="lock").code == 0
    lock = gpuenv.work / "pylock.toml"
    lock.write_text(lock.read_text().replace('device = "cuda"', 'device = "cpu"'))
    shutil.rmtree(gpuenv.env["UV_CACHE_DIR"])
    file = next(iter(index.wheels["nvidia-cudnn-cu13"]))
    index.faults[file] = "tampered"
    ran = gpuenv("create", "--locked", "--no-verify", "--json")
    assert ran.code == 7, ran.err
    assert ran.json["schema"] == "gpuenv.error/1"
    assert "nvidia-cudnn-cu13" in ran.json["error"]["message"] and "hash" in ran.json["error"]["message"]
    assert sorted(p.name for p in gpuenv.work.iterdir()) == ["pylock.toml"]


def test_an_index_that_refuses_connections_is_named_without_its_password(torch, gpuenv):
    gpuenv.env["PIP_INDEX_URL"] = "http://user:secret@127.0.0.1:9/simple"
    gpuenv.env["UV_HTTP_RETRIES"] = "0"
    ran = torch("--json")
    assert ran.code == 6
    assert "127.0.0.1:9" in ran.json["error"]["message"]
    assert "secret" not in ran.out + ran.err
    assert not list(gpuenv.work.iterdir())


@pytest.mark.parametrize("status", ["403", "404", "500"])
def test_an_index_that_fails_names_the_package(torch, gpuenv, index, status):
    gpuenv.env["UV_HTTP_RETRIES"] = "0"
    index.faults["/simple/nvidia-cudnn-cu13/"] = status
    ran = torch("--json")
    assert ran.code == 6, ran.out
    assert "nvidia-cudnn-cu13" in json.dumps(ran.json["error"])
    assert not list(gpuenv.work.iterdir())


def test_two_cudnn_packages_are_refused(torch, index):
    name, file = "torch", next(iter(index.wheels["torch"]))
    requires = tuple(r for r in torch.plan["builds"][0]["requirements"][1:] if "===" not in r)
    index.add(name, file.split("-")[1], (*requires, "nvidia-cudnn-cu12"))
    index.add("nvidia-cudnn-cu12", "9.10.2.21")
    ran = torch("--json")
    assert ran.code == 6
    assert "nvidia-cudnn-cu12" in ran.json["error"]["message"] and "two" in ran.json["error"]["message"]


def test_a_cpu_wheel_never_answers_for_a_cuda_plan(torch, gpuenv, index, tmp_path):
    """A +cpu wheel of the same version in find-links is not taken, though `==` would take it."""
    from loopback import wheel_bytes

    version = torch.plan["builds"][0]["version"]
    links = tmp_path / "links"
    links.mkdir()
    (links / f"torch-{version}+cpu-py3-none-any.whl").write_bytes(wheel_bytes("torch", f"{version}+cpu"))
    ran = torch("--json", "--find-links", links)
    assert ran.code == 0, ran.err
    assert installed(gpuenv.work / ".venv")["torch"] == version


# --- indexes -----------------------------------------------------------------------------------

TURING = ("--driver", "550.54.15", "--gpu", "7.5", "--python", HERE)


def test_auto_leaves_out_a_pytorch_index_that_does_not_answer_and_says_so(gpuenv, index):
    """For this target the newest build is on the PyTorch index; the default index has an older one."""
    ask = ("--framework", "torch", *TURING, "--json")
    first = gpuenv("resolve", *ask).json
    assert first["builds"][0]["index"] == "pytorch"
    index.add_plan(gpuenv("resolve", *ask, "--index", "pypi").json)
    gpuenv.env |= {
        "PIP_INDEX_URL": index.url,
        "GPUENV_INDEX_PYTORCH": "http://127.0.0.1:9/whl",
        "UV_HTTP_RETRIES": "0",
    }
    ran = gpuenv("create", *ask, "--no-verify")
    assert ran.code == 0, ran.err
    assert "127.0.0.1:9" in ran.err and "again" in ran.err
    build = ran.json["plan"]["builds"][0]
    assert build["index"] == "pypi" and build["version"] < first["builds"][0]["version"]
    told = [r for r in ran.json["plan"]["rejected"] if r["index"] == "pytorch"]
    assert told and {x["code"] for r in told for x in r["reasons"]} >= {"index_excluded"}


def test_a_named_index_that_does_not_answer_is_exit_6(gpuenv, index):
    gpuenv.env |= {
        "PIP_INDEX_URL": index.url,
        "GPUENV_INDEX_PYTORCH": "http://127.0.0.1:9/whl",
        "UV_HTTP_RETRIES": "0",
    }
    index.add("pip", "26.0")
    ran = gpuenv("create", "--framework", "torch", *TURING, "--index", "pytorch", "--no-verify", "--json")
    assert ran.code == 6 and "127.0.0.1:9" in ran.json["error"]["message"]
    assert not list(gpuenv.work.iterdir())


def test_torch_from_the_pytorch_index_is_never_looked_for_on_another(gpuenv, index):
    """Both indexes hold the very version; the one the plan chose is asked, nvidia's come from the other."""
    from loopback import Index, serving

    ask = ("--framework", "torch", *TURING, "--json")
    plan = gpuenv("resolve", *ask).json
    version = plan["builds"][0]["requirements"][0].removeprefix("torch===")
    index.add_plan(plan)
    with serving(Index()) as other:
        other.add("torch", version, content="# the one that was meant\n")
        other.prefix = "/whl/" + version.partition("+")[2]
        gpuenv.env |= {
            "PIP_INDEX_URL": index.url,
            "GPUENV_INDEX_PYTORCH": other.url.replace("/simple", "/whl"),
        }
        ran = gpuenv("create", *ask, "--no-verify")
    assert ran.code == 0, ran.err
    torch = next(p for p in ran.json["lock"]["packages"] if p["name"] == "torch")
    assert "/whl/" in torch["index"]
    text = next((gpuenv.work / ".venv").glob("lib/python3*/site-packages/torch/__init__.py")).read_text()
    assert "the one that was meant" in text


def test_an_environment_for_another_machine_is_unproven_here(torch, gpuenv):
    args = ("--framework", "torch", "--python", HERE, "--index", "pypi", *GPU, "--json")
    ran = gpuenv("create", *args)
    assert ran.code == 0, ran.err
    assert ran.json["verdict"] is None and "unproven on this machine" in ran.err
    assert gpuenv("verify", "--json").code == 8


# --- interrupted -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
@pytest.mark.parametrize("again", [False, True], ids=["first", "recreate"])
def test_a_build_that_is_ended_leaves_the_old_environment_or_none(torch, gpuenv, index, sent, code, again):
    if again:
        assert torch().code == 0
        shutil.rmtree(gpuenv.env["UV_CACHE_DIR"])
    file = next(iter(index.wheels["nvidia-cudnn-cu13"]))
    index.faults[file] = "stalled"
    argv = [sys.executable, "-m", "provision", "create", "--framework", "torch", "--python", HERE, "--index", "pypi",
            *GPU, "--no-verify", "--recreate"]  # fmt: skip
    child = subprocess.Popen(
        argv, env=gpuenv.env, cwd=gpuenv.work, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert index.stalled.wait(300)
    child.send_signal(sent)
    _, err = child.communicate(timeout=300)
    assert child.returncode == code, err
    index.released.set()
    index.faults.clear()
    left = [p.name for p in gpuenv.work.iterdir()]
    if sent != signal.SIGKILL:
        assert left == ([".venv"] if again else [])
    if again:
        assert "torch" in installed(gpuenv.work / ".venv")
    else:
        assert not (gpuenv.work / ".venv").exists()
    assert torch("--recreate").code == 0, "the next run succeeds"
    assert [p.name for p in gpuenv.work.iterdir()] == [".venv"]


# --- places ------------------------------------------------------------------------------------


def test_create_refuses_a_file_in_the_place_of_the_environment(torch, gpuenv):
    (gpuenv.work / ".venv").write_text("mine")
    ran = torch("--json")
    assert ran.code == 2 and "is a file" in ran.json["error"]["message"]
    assert (gpuenv.work / ".venv").read_text() == "mine"


@pytest.mark.parametrize("more", [(), ("--recreate",)])
def test_a_foreign_folder_is_left_alone(torch, gpuenv, more):
    (gpuenv.work / ".venv").mkdir()
    (gpuenv.work / ".venv" / "thesis.txt").write_text("mine")
    ran = torch("--json", *more)
    assert ran.code == 2 and "did not make" in ran.json["error"]["message"]
    assert (gpuenv.work / ".venv" / "thesis.txt").read_text() == "mine"


def test_a_project_folder_gets_the_environment_and_nothing_else(torch, gpuenv):
    (gpuenv.work / "pyproject.toml").write_text('[project]\nname = "mine"\nversion = "1"\n')
    assert torch().code == 0
    assert sorted(p.name for p in gpuenv.work.iterdir()) == [".venv", "pyproject.toml"]
    assert (gpuenv.work / ".venv" / "bin" / "python").exists()
    assert torch("--recreate", "env2").code == 0
    assert sorted(p.name for p in gpuenv.work.iterdir()) == [".venv", "env2", "pyproject.toml"]


def test_create_uses_an_empty_folder(torch, gpuenv):
    (gpuenv.work / ".venv").mkdir()
    assert torch().code == 0


def test_a_folder_that_cannot_be_written_is_named(torch, gpuenv):
    ran = torch("--json", "/proc/nowhere/env")
    assert ran.code == 7 and "/proc" in ran.json["error"]["message"]


def test_another_request_for_the_same_place_asks_for_recreate(torch, gpuenv):
    assert torch().code == 0
    version = torch.plan["builds"][0]["version"]
    ran = torch("--json", framework=f"torch=={version}")
    assert ran.code == 2 and "--recreate" in ran.json["error"]["hint"]


def test_a_failing_recreate_keeps_the_old_environment(torch, gpuenv, index):
    assert torch().code == 0
    before = installed(gpuenv.work / ".venv")
    index.faults["/simple/torch/"] = "404"
    shutil.rmtree(gpuenv.env["UV_CACHE_DIR"])
    assert torch("--recreate").code == 6
    assert installed(gpuenv.work / ".venv") == before
    assert [p.name for p in gpuenv.work.iterdir()] == [".venv"]


def test_a_path_with_blanks_quotes_and_umlauts_works(torch, gpuenv):
    env = gpuenv.work / "umgebung für Jürgen's GPU" / "my env"
    ran = torch(env)
    assert ran.code == 0, ran.err
    assert "torch" in installed(env)
    line = ran.out.splitlines()[-1]
    shell = subprocess.run(
        ["bash", "-c", f"{line} && echo $VIRTUAL_ENV"],
        cwd=gpuenv.work,
        capture_output=True,
        text=True,
        check=True,
    )
    assert shell.stdout.strip() == str(env)


def test_a_second_create_of_the_same_environment_is_refused_at_once(torch, gpuenv):
    assert torch().code == 0
    with place.lock_place(gpuenv.work / ".venv"):
        ran = torch("--json")
    assert ran.code == 7 and "another gpuenv" in ran.json["error"]["message"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_a_disk_that_fills_up_is_named_and_nothing_is_left(torch, gpuenv, index):
    index.add("triton", "3.9.0", content=f"blob = {os.urandom(2_000_000).hex()!r}\n")
    pinned = next(r for r in torch.plan["builds"][0]["requirements"] if r.startswith("triton"))
    assert "3.9.0" in pinned
    small = gpuenv.folder / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], check=False)
    if mounted.returncode:
        pytest.skip("this kernel lets nobody mount a tmpfs here")
    try:
        ran = torch("--json", small / "env")
        assert ran.code == 7, ran.out + ran.err
        told = ran.json["error"]
        assert "full" in told["message"] or "disk" in told["message"], told
        assert not list(small.iterdir())
    finally:
        subprocess.run(["umount", small], check=True)


# --- locks -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda t: t[: len(t) // 2], "not valid"),
        (lambda t: t.replace("[tool.gpuenv", "[tool.other"), "gpuenv"),
        (lambda t: t.replace('sha256 = "', 'sha1 = "', 1), "sha256"),
        (lambda t: "", "lock-version"),
        (lambda t: t.replace('platform = "linux-x86_64"', 'platform = "linux-aarch64"'), "linux-aarch64"),
    ],
)
def test_a_damaged_lock_is_refused_with_its_reason(torch, gpuenv, spoil, said):
    assert torch(verb="lock").code == 0
    path = gpuenv.work / "pylock.toml"
    path.write_text(spoil(path.read_text()))
    ran = gpuenv("create", "--locked", "--no-verify", "--json")
    assert ran.code == 6, ran.out
    assert said in ran.json["error"]["message"]
    assert [p.name for p in gpuenv.work.iterdir()] == ["pylock.toml"]


def test_create_locked_names_the_missing_lock(gpuenv):
    ran = gpuenv("create", "--locked", "--no-verify", "--json")
    assert ran.code == 6 and "pylock.toml" in ran.json["error"]["message"]


def test_a_lock_for_a_gpu_is_refused_where_there_is_none(torch, gpuenv):
    assert torch(verb="lock").code == 0
    ran = gpuenv("create", "--locked", "--no-verify", "--json")
    assert ran.code == 6 and "GPU" in ran.json["error"]["message"]


# --- words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("create", "--framework", "torhc"), 2, "torch"),
        (("create", "--framework", "pytorch"), 2, "Did you mean torch"),
        (("create", "--framework", "torch!2"), 2, "torch!2"),
        (("create",), 2, "no --framework given"),
        (("create", "--framework", "torch", "--manager", "cond"), 2, "conda"),
        (("create", "--framework", "torch", "--device", "gpu"), 2, "--device"),
        (("create", "--framework", "torch", "--index", "pipy"), 2, "Did you mean pypi"),
        (("create", "--framework", "torch", "--find-links", "/nonexistent"), 2, "/nonexistent"),
        (("create", "--framework", "torch", "--target", "/nonexistent.json"), 2, "/nonexistent.json"),
        (("crate",), 2, "create"),
        (("create", "--framwork", "torch"), 2, "--framework"),
        (("resolve", "--framework", "torch", "--gpu", "RTX 4009"), 2, "RTX 4090"),
        (("verify", "/nonexistent/env"), 2, "/nonexistent/env"),
        (("verify", "--device", "gpu0"), 2, "cuda:N"),
    ],
)
def test_wrong_usage_names_the_nearest_right_word(gpuenv, args, code, said):
    ran = gpuenv(*args, "--json")
    assert ran.code == code, ran.out + ran.err
    error = ran.json["error"]
    assert said in error["message"] + (error["hint"] or "")
    assert error["code"] == code


@pytest.mark.parametrize(
    "args",
    [
        ("--framework", "torch==99.0"),
        ("--framework", "torch", "--python", "3.99"),
        ("--framework", "torch", "--driver", "390.48", "--gpu", "9.0"),
    ],
)
def test_a_request_that_nothing_fits_ends_with_5_and_every_objection(gpuenv, args):
    ran = gpuenv("create", *args, "--device", "cuda", "--platform", "linux-x86_64", "--json", *(
        () if "--driver" in args else GPU))  # fmt: skip
    assert ran.code == 5, ran.err
    plan = ran.json["plan"]
    assert plan["builds"] == [] and plan["rejected"]
    assert all(r["reasons"] for r in plan["rejected"])
    assert not list(gpuenv.work.iterdir())


def test_activate_scripts_of_a_run_that_was_killed_are_mended(torch, gpuenv):
    assert torch().code == 0
    script = gpuenv.work / ".venv" / "bin" / "activate"
    right = script.read_text()
    script.write_text(right.replace("/.venv", "/..venv.gpuenv-new"))
    assert torch().code == 0
    assert script.read_text() == right


def test_create_again_for_another_machine_is_still_unproven_and_no_failure(torch, gpuenv):
    args = ("--framework", "torch", "--python", HERE, "--index", "pypi", *GPU, "--json")
    assert gpuenv("create", *args).code == 0
    ran = gpuenv("create", *args)
    assert ran.code == 0 and ran.json["environment"]["changed"] is False
    assert ran.json["verdict"] is None and "unproven on this machine" in ran.err


def test_a_recreate_that_fails_its_verdict_puts_the_old_one_back(torch, gpuenv, index):
    """The new torch cannot even be imported: on this machine, for the CPU, so that verify runs."""
    args = ("--framework", "torch", "--python", HERE, "--index", "pypi", "--device", "cpu", "--json")
    index.add_plan(gpuenv("resolve", *args).json)
    assert gpuenv("create", *args, "--no-verify").code == 0
    inode = (gpuenv.work / ".venv").stat().st_ino
    ran = gpuenv("create", *args, "--recreate")
    assert ran.code == 8, ran.out
    assert ran.json["verdict"]["verdict"] == "fails" and ran.json["environment"] is None
    assert (gpuenv.work / ".venv").stat().st_ino == inode
    assert "was not changed" in ran.err
    assert [p.name for p in gpuenv.work.iterdir()] == [".venv"]


def test_a_first_environment_that_fails_stays_with_its_verdict(torch, gpuenv, index):
    args = ("--framework", "torch", "--python", HERE, "--index", "pypi", "--device", "cpu", "--json")
    index.add_plan(gpuenv("resolve", *args).json)
    ran = gpuenv("create", *args)
    assert ran.code == 8 and ran.json["environment"]["changed"] is True
    kept = json.loads((gpuenv.work / ".venv" / ".gpuenv" / "verdict.json").read_text())
    assert kept["verdict"]["verdict"] == "fails"
    stages = {s["stage"]: s["status"] for s in ran.json["verdict"]["stages"]}
    assert stages["framework"] == "fail" and stages["convolution"] == stages["loaded"] == "skip"


def test_a_folder_named_t_is_not_taken_for_a_token(torch, gpuenv):
    """What is kept of the options leaves passwords and tokens out: /t/TOKEN is one in an address."""
    links = gpuenv.work / "t" / "links"
    links.mkdir(parents=True)
    ran = torch("--find-links", links, "--json")
    assert ran.code == 0, ran.err
    assert torch("--find-links", links, "--json").json["environment"]["changed"] is False
