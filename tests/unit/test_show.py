"""Values in words."""

import io

from rows import rows

from provision import show
from provision.model import (
    DeviceVerdict,
    Driver,
    FrameworkVerdict,
    GradedResult,
    Machine,
    StageResult,
    Target,
    Verdict,
)
from provision.show.verdict import show_machine


def test_every_value_that_is_shown_has_a_schema_and_a_function_that_shows_it():
    from importlib import import_module

    from provision import model

    for noun, where in show._SHOWN_BY.items():
        assert hasattr(getattr(model, noun), "SCHEMA"), noun
        module, function = where.split(":")
        assert callable(getattr(import_module(module, "provision.show"), function))


NARROW = {"COLUMNS": "80"}


def cpu_verdict(*names, checks):
    one = GradedResult(
        case="conv2d", dtype="float32", pass_="forward", max_error=0.0, tolerance=1e-4, ok=True
    )
    device = DeviceVerdict(index=-1, convolutions=(one,) * checks)
    frameworks = tuple(FrameworkVerdict(name=name, version="1.2", devices=(device,)) for name in names)
    return Verdict(env="/e", python="/e/bin/python", verdict="cpu", frameworks=frameworks)


@rows(
    ("names", "checks", "text"),
    [
        (["jax"], 15, "jax 1.2 works on the CPU (15 checks); no GPU was tested"),
        (["torch", "jax"], 8, "torch 1.2 and jax 1.2 work on the CPU (16 checks); no GPU was tested"),
        (["torch"], 0, "torch 1.2 can be imported on the CPU; nothing was computed"),
        ([], 0, "works on the CPU; no GPU was tested"),
    ],
)
def test_a_verdict_on_the_cpu_names_frameworks_and_checks(names, checks, text):
    out = io.StringIO()
    show.show_result(show.Screen(out=out, environ=NARROW), cpu_verdict(*names, checks=checks))
    assert out.getvalue().split() == f"verdict: {text} (/e)".split()
    assert all(len(line) <= 80 for line in out.getvalue().splitlines())


def test_a_command_in_backticks_stays_in_one_row():
    command = "`pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126`"
    rows = show.Screen(environ=NARROW).fold(
        f"fix: Install a build for the driver of this machine: {command}. Then try again."
    )
    assert f"  {command}." in rows and all(len(row) <= 80 or command in row for row in rows)


def test_a_summary_replaces_the_text_of_a_value_and_not_its_document():
    out = io.StringIO()
    screen = show.Screen(out=out)
    show.show_event(screen, show.Event(kind="summary", stage="lock", text="pylock.toml is up to date"))
    show.show_result(screen, cpu_verdict(checks=0))
    assert out.getvalue() == "pylock.toml is up to date\n"
    screen.json, screen.out = True, io.StringIO()
    show.show_result(screen, cpu_verdict(checks=0))
    assert '"schema": "gpuenv.verdict/1"' in screen.out.getvalue()


@rows("framework", ["torch", "onnxruntime, torch", "onnxruntime, tensorflow, torch"])
def test_a_stage_and_what_it_says_are_apart(framework):
    said = "all of these work in one process, whichever of them is imported first"
    stage = StageResult(stage="framework", framework=framework, status="pass", detail=said)
    out = io.StringIO()
    screen = show.Screen(out=out, environ=NARROW)
    show.show_result(screen, Verdict(env="/e", python="p", verdict="works", stages=(stage,)))
    text = out.getvalue()
    assert f"framework {framework}" in text and f"framework {framework}all" not in text
    rows = text.splitlines()[:-1]
    (row,) = [row for row in rows if "all of these" in row]
    assert row.index("all of these") == 33
    assert max(map(len, rows)) <= 80


@rows(
    ("driver", "line"),
    [
        ({"library": "580.95.05", "cuda": "13.0", "source": "nvml"}, "580.95.05, supports CUDA 13.0 (from nvml)"),
        ({"library": "580.95.05", "source": "proc"}, "580.95.05 (from proc)"),
        ({}, "none"),
        ({"problem": "the module is not loaded"}, "the module is not loaded"),
    ],
)  # fmt: skip
def test_a_driver_is_one_line_with_what_is_known_of_it(driver, line):
    out = io.StringIO()
    show_machine(
        show.Screen(out=out, environ=NARROW),
        Machine(target=Target(platform="linux-x86_64"), driver=Driver(**driver)),
    )
    assert f"driver     {line}\n" in out.getvalue()
