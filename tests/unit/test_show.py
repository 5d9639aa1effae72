"""Values in words."""

import io

from rows import rows

from provision import show
from provision.model import (
    Bundle,
    BundleFile,
    BundlePlan,
    CreateResult,
    DeviceVerdict,
    Driver,
    Environment,
    Findings,
    Fleet,
    FleetPlan,
    FrameworkVerdict,
    Gpu,
    GradedResult,
    HardwareDevice,
    HostClass,
    KeptPackage,
    LibraryFile,
    Machine,
    NodeVerdict,
    Plan,
    RemovedPackage,
    RepairResult,
    RestoredPackage,
    StageResult,
    Target,
    TargetGpu,
    UnservedHosts,
    Verdict,
)  # fmt: skip
from provision.show.plan import show_fleet
from provision.show.result import shorten_list
from provision.show.terminal import _share_width
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


def shown(value, *, environ=NARROW, **screen):
    """The result of a command as text."""
    out = io.StringIO()
    show.show_result(show.Screen(out=out, environ=environ, **screen), value)
    return out.getvalue()


LINUX = Target(platform="linux-x86_64")
PASSED = StageResult(stage="driver", status="pass", detail="driver 580")
LIBRARY = LibraryFile(soname="libcudnn.so.9", path="/usr/lib/libcudnn.so.9", version="9.1.0", inside=False)


@rows(
    ("value", "verbose", "lines"),
    [
        (Findings(), False, []),
        (NodeVerdict(fault=False, text="driver 580"), True, ["driver 580"]),
        (
            NodeVerdict(fault=False, text="fine", verdict=Verdict(env="/e", python="p", verdict="works", stages=(PASSED,))),
            True, ["driver 580", "fine"],
        ),
        (
            Verdict(env="/e", python="p", verdict="works", frameworks=(FrameworkVerdict(name="torch", libraries=(LIBRARY,)),)),
            True, ["  libcudnn.so.9 9.1.0 OUTSIDE, no package: /usr/lib/libcudnn.so.9"],
        ),
        (
            Machine(target=LINUX, gpus=(Gpu(index=1, name="H200", capability="9.0", memory_mib=9, mig=("a", "b")),),
                    hardware=(HardwareDevice(vendor="nvidia", address="0000:19:00.0", device="0x2335"),)),
            False, ["GPU 1      H200, capability 9.0, 9 MiB, 2 MIG devices", "hardware   nvidia 0x2335 at 0000:19:00.0"],
        ),
        (
            Bundle(gpuenv="1", manager="venv", lock="a.toml", target=LINUX, device="cpu", frameworks=("jax",), python="3.12", asked="",
                   files=(BundleFile(path="wheels/a.whl", size=1 << 20),),
                   plans=(BundlePlan(lock="a.toml", target=LINUX, device="cpu", frameworks=("jax",), python="3.12",
                                     classes=(HostClass(id="c", target=LINUX, device="cpu", hosts=("one", "two")),)),)),
            True, ["a.toml: jax for cpu: Python 3.12, linux-x86_64", "for c (2 hosts)", "  wheels/a.whl"],
        ),
        (
            RepairResult(
                packages=(RestoredPackage(name="a", had=None, now="2", why=""), RestoredPackage(name="b", had="1", now="2", why="")),
                removed=(RemovedPackage(name="c", version="3", why="it overwrote b"),), left=(KeptPackage(name="d", version="4"),),
                environment=Environment(path="/e", manager="venv", python="/e/bin/python"),
            ),
            False,
            ["  restored  a 2, which was missing", "  restored  b 1 -> 2", "  removed   c 3: it overwrote b", "  left      d 4: not in the lock",
             "/e: 2 packages restored, 1 removed"],
        ),
        (
            CreateResult(environment=Environment(path="/an env", manager="venv", python="p", changed=True)), False,
            ["unproven. To verify, run `gpuenv verify '/an env'`"],
        ),
    ],
)  # fmt: skip
def test_a_result_has_a_line_for_each_fact(value, verbose, lines):
    text = shown(value, verbose=verbose)
    assert [line for line in lines if line not in text] == [], text


def test_more_hosts_without_a_plan_than_fit_are_counted():
    unserved = tuple(UnservedHosts(hosts=2, reason=f"no build {i}", classes=(f"c{i}",)) for i in range(23))
    fleet = Fleet(classes=(), plans=(), unserved=unserved)
    assert "no plan for 6 more hosts (-v lists them)" in shown(fleet)
    assert "no build 22" in shown(fleet, verbose=True) and "more hosts" not in shown(fleet, verbose=True)


def test_a_plan_of_a_fleet_is_explained_and_an_unknown_driver_named():
    target = Target(platform="linux-x86_64", gpus=(TargetGpu(capability="9.0", name="NVIDIA H200"),))
    plan = Plan(
        builds=(), python="3.12", platform="linux-x86_64", manager="venv", device="cuda", target=target
    )
    fleet = Fleet(
        classes=(HostClass(id="h200", target=target, device="cuda", hosts=("one",)),),
        plans=(FleetPlan(plan=plan, classes=("h200",), hosts=1),),
    )
    out = io.StringIO()
    show_fleet(show.Screen(out=out, environ=NARROW), fleet, explain=True)
    assert "H200, no driver given, any is assumed" in out.getvalue()
    assert "no build fits" in out.getvalue().partition("assumed")[2], "the plan itself"


def test_a_list_is_as_long_as_the_line_and_counts_the_others():
    for columns, text in (
        (40, "packages: einops, numpy, pillow"),
        (31, "packages: einops, numpy, pillow"),
        (30, "packages: einops and 2 more"),
        (26, "packages: einops"),
        (10, "package..."),
    ):
        assert shorten_list("packages: ", ["einops", "numpy", "pillow"], columns) == text


def test_columns_that_cannot_give_more_are_left_as_wide_as_they_are():
    assert _share_width([50, 50], [50, 50], 40) == [50, 50]
    assert _share_width([50, 20], [10, 20], 40) == [18, 20]


def test_a_reason_that_stages_were_skipped_for_goes_on_in_the_next_row():
    why = "the driver stage failed, and then " + "word " * 20
    stages = tuple(StageResult(stage=s, status="skip", detail=why) for s in ("runtime", "libraries", "cudnn"))
    text = shown(Verdict(env="/e", python="p", verdict="fails", stages=stages))
    assert "skip  runtime to cudnn: the driver stage failed" in text
    assert text.count("word") == 20 and max(map(len, text.splitlines())) <= 80
