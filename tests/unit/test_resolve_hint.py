"""A hint is a promise: what it names is done to the question, and resolve must then succeed; with any
smaller step on that axis, or with one of several changes left out, it must not."""

import dataclasses
import re

from hypothesis import assume, given
from known import KNOWN
from packaging.specifiers import SpecifierSet
from random_machines import VERSIONS, one_below, questions
from resolve_questions import ask, question
from resolve_rules import BRANCHES, BUILDS, CUDNN, FLOORS, GPUS, NATIVE, numbers, version
from rows import rows

from provision.model import FrameworkRequest
from provision.resolve import resolve


def fits(question):
    request, target = question
    return bool(resolve(request, target, KNOWN).builds)


def with_request(question, **changes):
    return dataclasses.replace(question[0], **changes), question[1]


def with_target(question, **changes):
    return question[0], dataclasses.replace(question[1], **changes)


# --- one reader per kind of change: (pattern, do it, the smaller steps) ---------------------------


def by_index(question, _):
    return with_request(question, index="auto"), []


def by_python(question, python):
    """Nearest first: every Python that is nearer must have failed."""
    now = int(question[0].python.split(".")[1])
    away = abs(int(python.split(".")[1]) - now)
    nearer = [f"3.{m}" for m in range(now - away + 1, now + away) if m != now]
    return with_request(question, python=python), [with_request(question, python=p) for p in nearer]


def by_version(question, name, wanted):
    """Every version between the bounds and the one named must have failed."""
    (framework,) = question[0].frameworks
    assert framework.name == name
    known, inside = VERSIONS[name], [v for v in VERSIONS[name] if _within(v, framework.specifier)]
    bound = version(re.sub("[<>=!]", "", framework.specifier))
    ends = [version(v) for v in (inside[:1] + inside[-1:])] or [bound]
    between = [
        v for v in known
        if any(min(e, version(wanted)) < version(v) < max(e, version(wanted)) for e in ends)
        and not any(abs(_steps(known, e, v)) >= abs(_steps(known, e, wanted)) for e in ends[:1])
    ]  # fmt: skip
    asks = [
        with_request(question, frameworks=(FrameworkRequest(name=name, specifier=f"=={v}"),)) for v in between
    ]
    return with_request(question, frameworks=(FrameworkRequest(name=name, specifier=f"=={wanted}"),)), asks


def _within(text, bounds):
    return SpecifierSet(bounds).contains(text, prereleases=True)


def _steps(known, end, text):
    return sum(min(end, version(text)) < version(v) <= max(end, version(text)) for v in known)


def by_cuda(question, fitting):
    """The oldest CUDA version that the hint names must do; without a name, any."""
    return with_request(question, cuda=fitting.split(", ")[0] if fitting else None), []


def by_pre(question, _):
    return with_request(question, pre=True), []


def by_driver(question, driver, _):
    """Every lower floor, and the number just below, must have failed."""
    system, now = question[1].driver_os, question[1].driver
    floors = {r.get(system) for r in (*NATIVE.values(), *FLOORS.values())} | set(BRANCHES)
    floors |= {g.get("first_driver") for g in GPUS.values()}
    less = {f for f in floors if f and numbers(now) < numbers(f) < numbers(driver)}
    if numbers(one_below(driver)) > numbers(now):
        less.add(one_below(driver))
    return with_target(question, driver=driver), [with_target(question, driver=d) for d in sorted(less)]


def by_branch(question, branch):
    """An older driver: no newer branch before the present one may do."""
    between = [b for b in BRANCHES if int(branch) < int(b) < numbers(question[1].driver)[0]]
    return with_target(question, driver=f"{branch}.99"), [
        with_target(question, driver=f"{b}.99") for b in between
    ]


def by_gpus(question, kept, _):
    places = [int(i) for i in kept.split(",")]
    gpus = question[1].gpus
    smaller = []
    if len(places) < len(gpus) - 1:
        smaller = [tuple(g for j, g in enumerate(gpus) if j != i) for i in range(len(gpus))]
    left = tuple(gpus[i] for i in places)
    return with_target(question, gpus=left), [with_target(question, gpus=s) for s in smaller]


def by_glibc(question, glibc):
    known = {r["glibc"] for rows in (*BUILDS.values(), CUDNN) for r in rows if "glibc" in r}
    less = [g for g in known if numbers(question[1].glibc) < numbers(g) < numbers(glibc)]
    return with_target(question, glibc=glibc), [with_target(question, glibc=g) for g in less]


def by_cpu(question, _):
    return with_request(question, device="cpu"), []


CHANGES = (
    (r"use --index auto: (.+)", by_index),
    (r"use --python (3\.\d+)", by_python),
    (r"use --framework '(\w+)==([\w.]+)': the nearest version that fits", by_version),
    (r"remove --cuda(?:, or use one of ([\d., ]+))?", by_cuda),
    (r"install driver ([\d.]+) or newer(?:, up to branch (\d+))?", by_driver),
    (r"install a driver of branch (\d+)", by_branch),
    (r"use --gpus ([\d,]+): exclude (.+)", by_gpus),
    (r"use a system or container with glibc ([\d.]+) or newer", by_glibc),
    (r"use --pre: (.+)", by_pre),
    (r"use --device cpu: (.+)", by_cpu),
)


def read(sentence):
    """The changes that a sentence asks for, as functions of the question."""
    found = []
    for part in sentence.split(", and "):
        hits = [(how, m.groups()) for pattern, how in CHANGES if (m := re.fullmatch(pattern, part))]
        assert len(hits) == 1, part
        found += hits
    return found


def applied(question, changes):
    for how, named in changes:
        question, _ = how(question, *named)
    return question


def keeps_its_promise(question, hint):
    changes = read(hint)
    assert fits(applied(question, changes)), hint
    for i, (how, named) in enumerate(changes):
        others = applied(question, changes[:i] + changes[i + 1 :])
        if how is not by_cpu:
            assert not fits(others), f"not needed: {named} of {hint}"
        for smaller in how(question, *named)[1]:
            less = applied(smaller, changes[:i] + changes[i + 1 :])
            assert not fits(less), f"{hint}: a smaller step does too: {less}"


@given(questions((1, 3)))
def test_a_hint_applied_helps_and_nothing_smaller_does(asked):
    plan = resolve(*asked, KNOWN)
    assume(not plan.builds)
    if plan.hint:
        keeps_its_promise(asked, plan.hint)


# --- hints that are named ------------------------------------------------------------------------


@rows(
    ("asked", "machine", "hint"),
    [
        ("torch", {"driver": "450.80.02", "gpus": ["12.0"]}, "install driver 570 or newer"),
        ("torch", {"driver": "590.48.01", "gpus": ["7.0"]}, "install a driver of branch 580"),
        ("torch<2.1", {"driver": "451.82", "driver_os": "windows", "gpus": ["8.0"], "python": "3.10"},
         "install driver 452.39 or newer"),
        ("torch", {"driver": "495.29.05", "gpus": ["3.7"], "python": "3.10"}, "install a driver of branch 470"),
        ("torch", {"driver": "550.54.15", "gpus": ["9.0"], "python": "3.7"}, "use --python 3.8"),
        ("tensorflow", {"driver": "550.54.15", "gpus": ["8.6"], "python": "3.14"}, "use --python 3.13"),
        ("torch==2.12.0", {"driver": "550.54.15", "gpus": ["7.5"], "index": "pypi"}, None),
        ("tensorflow", {"driver": "580.95.05", "gpus": ["7.0", "10.0"]}, "use --gpus 0: exclude 10.0 (GPU 1)"),
        ("torch", {"driver": "580.95.05", "gpus": ["12.1"], "cuda": "12.6"},
         "remove --cuda, or use one of 12.9, 13.0, 13.2"),
        ("jax", {"driver": "470.256.02", "gpus": ["3.7"], "python": "3.10"},
         "use --device cpu: no GPU build fits"),
        ("jax", {"driver": "580.95.05", "gpus": ["9.0"], "glibc": "2.5"},
         "use a system or container with glibc 2.17 or newer"),
        ("torch", {"driver": "450.80.02", "gpus": ["12.0"], "python": "3.7"},
         "use --python 3.9, and install driver 570 or newer"),
    ],
)  # fmt: skip
def test_the_smallest_change_is_named(asked, machine, hint):
    asking = question(asked, **machine)
    plan = resolve(*asking, KNOWN)
    assert not plan.builds
    if hint:
        assert plan.hint == hint
    keeps_its_promise(asking, plan.hint)


def test_a_cuda_of_the_project_is_named_with_its_file():
    request, *machine = question("torch", driver="580.95.05", gpus=["12.1"], cuda="12.6")
    plan = resolve(dataclasses.replace(request, file="gpuenv.yaml"), *machine, KNOWN)
    assert plan.hint.startswith("remove --cuda (or cuda in gpuenv.yaml), or use one of 12.9")


@rows(
    ("asked", "machine", "wanted"),
    [
        ("torch==2.15.0", {}, "torch==2.14.1"),
        ("torch==2.4.1", {"driver": "570.26", "gpus": ["12.0"]}, "torch==2.7.0"),
        ("torch>=2.13", {"driver": "570.26", "gpus": ["12.0"], "cuda": "12"}, "torch==2.11.0"),
        ("torch<1.0", {"python": "3.10"}, "torch==1.11.0"),
        ("torch==2.7.2", {}, "torch==2.7.1"),
        ("jax==0.4.16", {"python": "3.10"}, "jax==0.4.23"),
    ],
)
def test_another_version_is_the_nearest(asked, machine, wanted):
    machine = {"driver": "550.54.15", "gpus": ["7.5"]} | machine
    plan = ask(asked, **machine)
    assert f"--framework '{wanted}'" in plan.hint
    assert ask(wanted, **machine).builds


def test_a_version_newer_than_every_row_asks_for_newer_profiles():
    machine = {"driver": "580.95.05", "gpus": ["H200"]}
    hint = ask("torch==99", **machine).hint
    assert re.match(r"run gpuenv profiles update: torch==99 .*2\.15\.0", hint)
    assert "profiles update" in ask("jax>=0.13", **machine).hint
    assert "profiles update" not in ask("torch==2.7.2", **machine).hint
    assert "profiles update" not in ask("torch<1.0", **machine).hint
