"""The command line as users and programs meet it: help, version, schemas, streams, escapes."""

import json
import os
import platform
import pty
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from environment_facts import ok, refused
from programs import run_program

from provision import cli

GPU = ("--driver", "550.54.15", "--gpu", "7.5", "--python", "3.12")


@pytest.mark.parametrize("command", [(), ("create",), ("verify",), ("detect",), ("resolve",), ("lock",)])
def test_help_shows_the_usage_and_the_common_options(gpuenv, command):
    ran = gpuenv(*command, "--help")
    assert ran.code == 0 and "Usage: gpuenv" in ran.out
    for word in ("--json", "--quiet", "--verbose") if command else ("create", "verify", "resolve"):
        assert word in ran.out


def test_a_command_line_without_a_command_shows_the_usage(gpuenv):
    for words in ((), ("profiles",)):
        ran = gpuenv(*words)
        assert ran.code == 2 and ran.err.startswith("Usage: gpuenv") and "error" not in ran.err.split("\n")[0]


def test_version_flags_print_the_version(gpuenv):
    from provision import __version__

    for words in (
        ("--version",),
        ("-V",),
        ("version",),
        ("version", "--json"),
        ("-V", "create", ".venv"),
        ("-q", "-V"),
    ):
        ran = gpuenv(*words)
        assert (ran.code, ran.out, ran.err) == (0, f"gpuenv {__version__}\n", "")


def test_a_bug_is_shown_whole_and_without_secrets(gpuenv, monkeypatch):
    def fail(_words):
        raise RuntimeError("https://user:tellnobody@example.com/simple does not answer")

    monkeypatch.setattr(cli, "_refuse_several_targets", fail)
    ran = gpuenv("list", "--json")
    assert ran.code == 1 and "RuntimeError" in ran.err and "this is a bug in gpuenv" in ran.err
    assert (ran.json["error"]["code"], "RuntimeError" in ran.json["error"]["log"]) == (1, True)
    assert "tellnobody" not in ran.out + ran.err
    assert gpuenv("list").out == ""


def test_an_interrupt_outside_of_a_command_is_an_error_in_json(gpuenv, monkeypatch):
    def interrupt(_words):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_refuse_several_targets", interrupt)
    ran = gpuenv("list", "--json")
    assert (ran.code, ran.json["error"]["code"]) == (130, 130)
    assert ran.json["error"]["message"] == "interrupted"


def test_show_completion_prints_a_script_for_bash(gpuenv):
    """Asked from bash, whose name is read off the process above."""
    line = f"{sys.executable} -m provision --show-completion; exit $?"
    done = run_program(["bash", "-c", line], env=gpuenv.env, cwd=gpuenv.work, check=True)
    assert "gpuenv" in done.stdout and "complete" in done.stdout


def test_resolve_prints_a_plan_with_all_its_keys(gpuenv):
    ran = gpuenv("resolve", "--framework", "torch", *GPU, "--json")
    plan = ran.json
    assert ran.code == 0 and ran.err == ""
    assert set(plan) == {
        "schema", "builds", "cuda_major", "cudnn", "python", "platform", "manager", "device", "target",
        "notes", "hint", "rejected", "packages", "held_back", "sets",
    }  # fmt: skip
    assert plan["schema"] == "gpuenv.plan/1"
    (build,) = plan["builds"]
    assert set(build) == {"framework", "version", "cuda", "index", "requirements", "cudnn"}
    assert build["cudnn"] == plan["cudnn"] and plan["cuda_major"] == build["cuda"].split(".")[0]
    assert set(plan["target"]) == {
        "platform", "glibc", "driver", "driver_os", "driver_cuda", "gpus", "forward_compat",
    }  # fmt: skip
    for row in plan["rejected"]:
        assert set(row) == {"framework", "version", "cuda", "index", "reasons"}
        assert row["reasons"] and all(set(r) == {"code", "text"} for r in row["reasons"])
    assert plan["rejected"][0]["version"] > build["version"]
    assert "driver_too_old" in {r["code"] for r in plan["rejected"][0]["reasons"]}


def test_detect_prints_a_machine_with_all_its_keys(gpuenv):
    ran = gpuenv("detect", "--json")
    machine = ran.json
    assert ran.code == 0 and machine["schema"] == "gpuenv.machine/1"
    assert {"target", "driver", "gpus", "context", "pythons", "libraries", "environment", "findings"} <= set(
        machine
    )
    assert set(machine["context"]) == {"container", "wsl", "colab", "slurm"}
    assert any(Path(p["path"]).samefile(sys.executable) for p in machine["pythons"])


def test_the_output_of_detect_can_be_used_as_a_target(gpuenv):
    (gpuenv.work / "node.json").write_text(gpuenv("detect", "--json").out)
    ran = ok(gpuenv("resolve", "--framework", "torch", "--target", "node.json", "--device", "cuda", "--json"))
    assert ran.json["target"] == json.loads((gpuenv.work / "node.json").read_text())["target"]


def test_another_machine_of_this_platform_gets_a_python_that_is_at_hand(gpuenv):
    """As on a login node: the environment is built here."""
    target = {
        "platform": "linux-x86_64",
        "glibc": "2.28",
        "driver": "580.65.06",
        "gpus": [{"capability": "8.0"}],
    }
    (gpuenv.work / "node.json").write_text(json.dumps(target))
    ran = gpuenv("resolve", "--framework", "torch", "--index", "pypi", "--target", "node.json", "--json")
    here = gpuenv("detect", "--json").json
    assert ran.code == 0, ran.err
    if here["target"]["platform"] == "linux-x86_64":
        assert ran.json["python"] in {p["version"].rpartition(".")[0] for p in here["pythons"]}


def test_a_gpu_target_alone_puts_no_driver_limit_and_says_so(gpuenv):
    plan = gpuenv("resolve", "--framework", "torch", "--gpu", "9.0", "--python", "3.12", "--json").json
    assert plan["target"]["driver"] is None and plan["device"] == "cuda"
    assert any("no driver" in n for n in plan["notes"])
    plan = gpuenv(
        "resolve", "--framework", "torch", "--driver", "580.65.06", "--python", "3.12", "--json"
    ).json
    assert plan["target"]["gpus"] == [] and any("no GPU" in n for n in plan["notes"])


def test_options_that_contradict_a_target_are_refused(gpuenv):
    target = {
        "platform": "linux-x86_64",
        "glibc": "2.28",
        "driver": "580.65.06",
        "gpus": [{"capability": "8.0"}],
    }
    (gpuenv.work / "node.json").write_text(json.dumps(target))
    asked = ("resolve", "--framework", "torch", "--python", "3.12", "--json")
    same = ("--driver", "580.65.06", "--platform", "linux-x86_64", "--glibc", "2.28")
    assert gpuenv(*asked, "--target", "node.json", *same).json["target"]["driver"] == "580.65.06"
    for more in (
        ("--driver", "535.129.03"),
        ("--gpu", "9.0"),
        ("--glibc", "2.35"),
        ("--platform", "linux-aarch64"),
    ):
        ran = gpuenv(*asked, "--target", "node.json", *more)
        assert ran.code == 2 and more[0] in ran.json["error"]["message"] and ran.json["error"]["hint"]
    for other in (("--target", "node.json"), ("--gpu", "9.0"), ("--driver", "580.65.06")):
        assert "--gpus" in refused(gpuenv(*asked, *other, "--gpus", "0"), 2).json["error"]["message"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_stopped_ends_with_one_json_document(gpuenv, tmp_path, number, code):
    log = tmp_path / "log"
    os.mkfifo(log)
    argv = [sys.executable, "-m", "provision", "diagnose", "--no-machine", "--json", log]
    child = subprocess.Popen(
        argv, env=gpuenv.env, cwd=gpuenv.work, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with log.open("w"):  # open as soon as it reads there
        child.send_signal(number)
        out, _ = child.communicate(timeout=300)
    assert child.returncode == code and json.loads(out)["error"]["code"] == code


def test_the_last_line_of_a_plan_is_the_command_that_carries_it_out(gpuenv, index):
    plain = ("--gpu", "RTX 4090", "--framework", "torch", "--python", "3.12")
    asked = (*plain, "--with", "einops>=0.8")
    index.add_plan(gpuenv("resolve", *plain, "--json").json)
    index.add("einops", "0.8")
    gpuenv.env["PIP_INDEX_URL"] = index.url
    ran = gpuenv("resolve", *asked, "-q")
    words = shlex.split(ran.out.splitlines()[-1])
    assert words[:2] == ["gpuenv", "create"] and sorted(words[2:]) == sorted(asked)
    ran = gpuenv("resolve", "--framework", "torch", "--platform", "linux-aarch64", "--python", "3.12")
    assert ran.out.splitlines()[-1].startswith("gpuenv lock ") or platform.machine() == "aarch64"
    assert "gpuenv create" not in refused(gpuenv("resolve", "--framework", "torch==99", *GPU), 5).out


def test_a_plan_for_the_cpu_that_nobody_asked_for_says_why(gpuenv):
    asked = ("resolve", "--framework", "torch", "--platform", "linux-aarch64", "--json")
    assert any("building for the CPU" in n for n in gpuenv(*asked).json["notes"])
    assert not any("building for the CPU" in n for n in gpuenv(*asked, "--device", "cpu").json["notes"])


def test_a_plan_for_another_platform_uses_no_facts_of_this_machine(gpuenv):
    args = (
        "resolve",
        "--framework",
        "torch",
        "--platform",
        "linux-aarch64",
        "--gpu",
        "9.0",
        "--python",
        "3.12",
    )
    plan = gpuenv(*args, "--json").json
    assert plan["target"]["glibc"] == "2.35" and plan["platform"] == "linux-aarch64"
    free = gpuenv(*args[:-2], "--json").json
    assert f"no Python given: {free['python']} is the newest that fits" in free["notes"]
    assert not any("no Python given" in note for note in plan["notes"])


def test_every_usage_error_is_one_json_document(gpuenv):
    for args in (
        ("nonsense",), ("create", "--nonsense"), ("resolve",), ("lock", "--check", "--framework"),
        ("resolve", "--framework", "pytorch"), ("resolve", "--framework", "torch", "--gpu", "9.9"),
        ("resolve", "--framework", "torch", "--device", "tpu"), ("verify", "--device", "gpu0"),
        ("resolve", "--framework", "torch", "--profiles", "none"), ("export", "--format", "nothing"),
        ("profiles", "show", "nothing"), ("diagnose", "--no-machine", "--machine", "m.json"),
    ):  # fmt: skip
        ran = refused(gpuenv(*args, "--json"), 2)
        assert set(ran.json) == {"schema", "error"} and ran.json["schema"] == "gpuenv.error/1"
        assert {"code", "message", "hint", "log"} <= set(ran.json["error"])
        assert ran.json["error"]["message"] and ran.json["error"]["hint"], args


def test_a_broken_profile_tells_file_row_and_key_of_every_mistake(gpuenv):
    overlay = gpuenv.folder / "overlay"
    overlay.mkdir()
    rows = '- {capability: 9.9, generation: "X"}\n  - {capability: "9.8", generation: "X", colour: "red"}\n'
    text = f'- table: "gpus"\n  source: "s"\n  read: "2026-01-01"\n  kept: "by hand"\n  rows:\n  {rows}'
    (overlay / "gpus.yaml").write_text(text)
    ran = refused(gpuenv("resolve", "--framework", "torch", *GPU, "--profiles", overlay, "--json"), 3)
    told = "\n".join(ran.json["error"]["problems"])
    assert "gpus.yaml" in told and "capability" in told and "colour" in told


def test_terminal_escapes_from_outside_do_not_reach_the_screen(gpuenv):
    ran = gpuenv("verify", "/tmp/\x1b[31mred\x1b]0;title\x07")
    assert ran.code == 2 and "\x1b" not in ran.out + ran.err
    assert "red" in ran.err


def on_a_terminal(argv, env, cwd):
    """stdout and stderr of a program that sits on a terminal of 80 columns."""
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        argv,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        cwd=cwd,
        env={**env, "COLUMNS": "80", "TERM": "xterm"},
    )
    os.close(follower)
    seen = b""
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:  # the terminal ends when the last program on it does
            break
        if not chunk:
            break
        seen += chunk
    os.close(leader)
    child.wait()
    return seen.decode()


def test_colour_appears_only_on_a_terminal_and_never_under_no_color(gpuenv):
    argv = [sys.executable, "-m", "provision", "resolve", "--framework", "torch", *GPU]
    assert "\x1b[" in on_a_terminal(argv, gpuenv.env, gpuenv.work)
    assert "\x1b[" not in on_a_terminal(argv, {**gpuenv.env, "NO_COLOR": "1"}, gpuenv.work)
    assert "\x1b" not in gpuenv("resolve", "--framework", "torch", *GPU).out


def test_lines_fit_a_terminal(gpuenv):
    gpuenv.env["COLUMNS"] = "80"
    gpuenv.env["COLUMNS"] = "80"
    for args in (
        ("resolve", "--framework", "torch", *GPU),
        ("resolve", "--framework", "torch", *GPU, "--explain"),
        ("resolve", "--framework", "jax", "--driver", "450.80.02", "--gpu", "K80", "--python", "3.12"),
    ):
        ran = gpuenv(*args)
        wide = [x for x in ran.out.splitlines() if len(x) > 80]
        assert not wide, wide


def test_what_goes_to_stderr_is_broken_at_words_on_a_terminal_only(gpuenv):
    argv = [sys.executable, "-m", "provision", "resolve", "--framework", "torch", "--gpu", "9.9"]
    seen = on_a_terminal(argv, {**gpuenv.env, "NO_COLOR": "1"}, gpuenv.work).replace("\r", "")
    rows = seen.splitlines()
    assert len(rows) > 2 and max(map(len, rows)) <= 80, rows
    plain = gpuenv(*argv[3:]).err.splitlines()
    assert len(plain[0]) > 80 and " ".join(seen.split()).startswith(" ".join(plain[0].split()))


def test_a_closed_pipe_is_no_error(gpuenv):
    argv = f"{sys.executable} -m provision resolve --framework torch {' '.join(GPU)} --explain | head -1"
    done = run_program(["bash", "-c", argv], env=gpuenv.env, cwd=gpuenv.work, check=True)
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr


def test_the_objections_are_folded_for_people(gpuenv):
    ran = gpuenv("resolve", "--framework", "torch", "--driver", "550.144.03", "--gpu", "8.0", "--index", "pypi",
                 "--python", "3.12")  # fmt: skip
    flat = re.sub(r"\s+", " ", ran.out)
    assert re.search(r"not torch 2\.15\.0 to 2\.11\.0: CUDA 13 [^;]*580\.65\.06; [^;]*550\.144\.03", flat)
