"""create and lock through the command line, against an index on 127.0.0.1 of tiny wheels."""
# ruff: noqa: F811  # fixtures are imported by their names

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import tomllib
from environment_facts import ok, refused
from made_env import JAX, jax_env
from programs import run_program
from rows import rows
from torch_project import GPU, HERE, installed, torch  # noqa: F401


def test_what_is_installed_is_what_was_planned_and_unproven_on_another_machine(torch, gpuenv):
    """In the folder of a project, where an empty `.venv` is."""
    (gpuenv.work / "pyproject.toml").write_text('[project]\nname = "mine"\nversion = "1"\n')
    (gpuenv.work / ".venv").mkdir()
    args = ("--framework", "torch", "--python", HERE, "--index", "pypi", *GPU, "--json")
    first, again = (ok(gpuenv("create", *args)) for _ in range(2))
    for ran in (first, again):
        assert ran.json["verdict"] is None and "unproven on this machine" in ran.err
        assert "were copied" not in ran.err, "on one file system uv links"
    assert sorted(p.name for p in gpuenv.work.iterdir()) == [".venv", "pyproject.toml"]
    made = first.json
    assert made["schema"] == "gpuenv.create/1" and not again.json["environment"]["changed"]
    assert made["environment"]["made_by_gpuenv"] and made["environment"]["changed"]
    assert gpuenv("verify", "--json").code == 8
    have = installed(gpuenv.work / ".venv")
    build = made["plan"]["builds"][0]
    assert have["torch"] == build["version"] == torch.plan["builds"][0]["version"]
    assert have["nvidia-cudnn-cu13"] == build["cudnn"]
    assert "pip" in have
    assert {p["name"] for p in made["lock"]["packages"]} == set(have)
    assert all(p["sha256"] and p["index"] for p in made["lock"]["packages"])


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
    shutil.rmtree(gpuenv.env["XDG_CACHE_HOME"])
    index.held = "max-age=600"
    plan = ("--framework", "torch", "--python", HERE, "--index", "pypi", *GPU)
    argv = [sys.executable, "-c", _CHILDREN, "create", *plan, "--no-verify"]
    ran = run_program(argv, cwd=gpuenv.work, env=gpuenv.env, check=True)
    again = [page for page, times in index.requests.items() if times > 1]
    assert index.downloads() and not index.heads
    assert again == ["/simple/torch/"], (
        "gpuenv looks for variants of frameworks on indexes that the user names"
    )
    assert index.requests["/simple/torch/"] == 2
    begun = json.loads(ran.stderr.splitlines()[-1])
    uv = [words[1:3] for words in begun if Path(words[0]).name == "uv"]
    # Its own default index, the solve, the wheels from the cache and from the index, and the empty environment.
    assert sorted(uv) == [
        ["help", "--no-pager"],
        ["pip", "compile"],
        *[["pip", "install"]] * 2,
        ["venv", "--quiet"],
    ]
    asked = [words[0] for words in begun if words[1:3] == ["-I", "-S"]]
    assert len(asked) == len(set(asked)), "a Python was asked twice"
    before, inode = dict(index.requests), (gpuenv.work / ".venv").stat().st_ino
    assert ok(torch("--json")).json["environment"]["changed"] is False
    again = run_program([*argv, "--recreate"], cwd=gpuenv.work, env=gpuenv.env, check=True)
    assert index.requests == before, "what is in the cache is put in without the network"
    assert (gpuenv.work / ".venv").stat().st_ino != inode
    uv = [words[1:3] for words in json.loads(again.stderr.splitlines()[-1]) if Path(words[0]).name == "uv"]
    assert uv.count(["pip", "install"]) == 1


def test_the_lock_is_a_pylock_with_index_hash_and_target(torch, gpuenv, index):
    ok(torch(verb="lock"))
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
    assert "pip: 26.0 -> 26.1" in refused(torch("--check", "--with", "pip>=26.1", verb="lock"), 6).err


def test_a_build_that_is_ended_leaves_the_old_environment_or_none(torch, gpuenv, index):
    env = gpuenv.work / ".venv"
    end_download(gpuenv, index, signal.SIGKILL, -9)
    assert not env.exists()
    assert torch().code == 0, "the next run succeeds"
    assert [p.name for p in gpuenv.work.iterdir()] == [".venv"]
    shutil.rmtree(gpuenv.env["UV_CACHE_DIR"])
    before = env.stat().st_ino
    end_download(gpuenv, index, signal.SIGTERM, 143)
    assert [p.name for p in gpuenv.work.iterdir()] == [".venv"]
    assert env.stat().st_ino == before and "torch" in installed(env)
    assert torch("--json").json["environment"]["changed"] is False


def end_download(gpuenv, index, sent, code):
    """Send a signal to a build that waits for a wheel."""
    index.stalled.clear()
    index.released.clear()
    index.faults[next(iter(index.wheels["nvidia-cudnn-cu13"]))] = "stalled"
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


SPOILT = {
    "not valid": lambda t: t[: len(t) // 2],
    "gpuenv": lambda t: t.replace("[tool.gpuenv", "[tool.other"),
    "sha256": lambda t: t.replace('sha256 = "', 'sha1 = "', 1),
    "lock-version": lambda t: "",
    "linux-aarch64": lambda t: t.replace('platform = "linux-x86_64"', 'platform = "linux-aarch64"'),
    "GPU": lambda t: t,  # a lock for a GPU, where there is none
}


def test_a_lock_that_is_damaged_or_for_another_machine_is_refused_with_its_reason(torch, gpuenv):
    assert torch(verb="lock").code == 0
    path = gpuenv.work / "pylock.toml"
    text = path.read_text()
    for said, spoil in SPOILT.items():
        path.write_text(spoil(text))
        ran = refused(gpuenv("create", "--locked", "--no-verify", "--json"), 6)
        assert said in ran.json["error"]["message"]
    assert [p.name for p in gpuenv.work.iterdir()] == ["pylock.toml"]
    path.unlink()
    ran = gpuenv("create", "--locked", "--no-verify", "--json")
    assert ran.code == 6 and "pylock.toml is missing" in ran.json["error"]["message"]


WRONG = [
    ("create", "--framework", "torhc"),
    ("create", "--framework", "pytorch"),
    ("create", "--framework", "torch!2"),
    ("create",),
    ("create", "--framework", "torch", "--manager", "cond"),
    ("create", "--framework", "torch", "--device", "gpu"),
    ("create", "--framework", "torch", "--index", "pipy"),
    ("create", "--framework", "torch", "--find-links", "/nonexistent"),
    ("create", "--framework", "torch", "--target", "/nonexistent.json"),
    ("crate",),
    ("create", "--framwork", "torch"),
    ("create", "--upgrade"),
    ("profiles", "show", "gpu"),
    ("resolve", "--framework", "torch", "--gpu", "RTX 4009"),
    ("resolve", "--framework", "torch", "--gpu", "MI300X"),
    ("resolve", "--framework", "torch", "--python", "2.7"),
    ("resolve", "--framework", "torch", "--target", "/etc/passwd"),
    ("verify", "/nonexistent/env"),
    ("verify", "--device", "gpu0"),
    ("repair",),
    ("export",),
    ("export", "--format", "nosuch"),
    ("export", "--format", "requirements", "-o", "missing/r.txt"),
]


def test_wrong_usage_names_the_nearest_right_word(gpuenv, golden):
    ran = {args: gpuenv(*args, "--json") for args in WRONG}
    assert {r.code for r in ran.values()} == {r.json["error"]["code"] for r in ran.values()} == {2}
    errors = {" ".join(args): r.json["error"] for args, r in ran.items()}
    text = "\n".join(f"$ {a}\nerror: {e['message']}\nhint: {e['hint']}" for a, e in errors.items())
    golden("create", text, {str(gpuenv.work): "WORK"})


@rows(
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


def test_a_first_environment_that_fails_stays_with_its_verdict_and_a_recreate_puts_the_old_one_back(
    torch, gpuenv, index
):
    """This torch cannot even be imported: on this machine, for the CPU, so that verify runs."""
    args = ("--framework", "torch", "--python", HERE, "--index", "pypi", "--device", "cpu", "--json")
    index.add_plan(gpuenv("resolve", *args).json)
    ran = gpuenv("create", *args)
    assert ran.code == 8 and ran.json["environment"]["changed"] is True
    kept = json.loads((gpuenv.work / ".venv" / ".gpuenv" / "verdict.json").read_text())
    assert kept["verdict"]["verdict"] == "fails"
    stages = {s["stage"]: s["status"] for s in ran.json["verdict"]["stages"]}
    assert stages["framework"] == "fail" and stages["convolution"] == stages["loaded"] == "skip"
    inode = (gpuenv.work / ".venv").stat().st_ino
    for proof in ((), ("--quick",)):
        ran = refused(gpuenv("create", *args, "--recreate", *proof), 8)
        assert ran.json["verdict"]["verdict"] == "fails" and ran.json["environment"] is None
        assert (gpuenv.work / ".venv").stat().st_ino == inode
        assert "was not changed" in ran.err
    assert [p.name for p in gpuenv.work.iterdir()] == [".venv"]


def test_a_folder_named_t_is_not_taken_for_a_token(gpuenv, index):
    """What is kept of the options leaves passwords and tokens out: /t/TOKEN is one in an address."""
    jax_env(gpuenv, index)
    links = gpuenv.work / "t" / "links"
    links.mkdir(parents=True)
    ok(gpuenv("create", *JAX, "--find-links", links, "--no-verify"))
    assert f'"{links}"' in (gpuenv.work / ".venv" / ".gpuenv" / "request.json").read_text()
