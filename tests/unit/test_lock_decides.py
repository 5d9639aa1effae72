"""What a lock refuses to be or to change, by the values that decide."""

import contextlib
import dataclasses
import json
import re
from pathlib import Path
from types import SimpleNamespace

import export_locks as el
import pytest
from known import KNOWN
from packaging.requirements import Requirement
from packaging.tags import parse_tag
from rows import rows

from provision.config.file import read_config
from provision.config.options import Choices
from provision.environment.place import MARK
from provision.errors import LockError, MachineError, OtherPlatformError, UsageError
from provision.lock import (
    changes,
    channels,
    compile as solver,
    fleet_locks,
    measured,
    pinned,
    project,
    request,
    retry,
    stack,
)
from provision.lock.source_builds import SourceRules, _parse_specifier
from provision.model import (
    FrameworkRequest,
    HostClass,
    LockedPackage,
    PackageSources,
    PackageTrap,
    PlannedBuild,
    Request,
    RequirementLine,
    as_plain,
    drop_event,
)
from provision.wheels import pylock
from provision.wheels.releases import SourceArchives

LOCK = el.of()
PLAN = LOCK.plan
CPU = dataclasses.replace(PLAN.builds[0], cuda=None)
SOURCES = PackageSources(pytorch="https://torch.example/whl")


# --- device, CUDA and Python ---------------------------------------------------------------------------


@rows(
    ("options", "why"),
    [
        ({}, None),
        ({"python": "3.12.4", "cuda": "12.6"}, None),
        ({"python": "3.13"}, "it is for Python 3.12, not 3.13"),
        ({"cuda": "13"}, "it is for CUDA 12.6, not 13"),
        ({"target": "hosts/a.json"}, "it is for linux-x86_64, not linux-aarch64"),
    ],
)
def test_a_lock_of_another_stack_is_not_taken(options, why, monkeypatch):
    monkeypatch.setattr(project, "accept_lock", lambda *_: None)
    target = dataclasses.replace(LOCK.target, platform="linux-aarch64")
    context = SimpleNamespace(request=SimpleNamespace(device="cuda"), target=target, machine=None)
    assert project._explain_unfit(LOCK, Choices(**options), context) == why
    assert not stack.is_of_plan(None, "python", "3.12"), "no plan keeps nothing"


@rows(
    ("change", "said"),
    [
        ({"packages": ("six",)}, None),
        ({"device": "cpu"}, "device cuda, but needs cpu"),
        ({"python": "3.13"}, "Python 3.12, but needs 3.13"),
        ({"builds": (CPU,)}, "CUDA for torch 12.6, but needs none"),
    ],
)
def test_a_change_of_packages_keeps_the_stack_of_an_environment(change, said):
    new = dataclasses.replace(PLAN, **change)
    with pytest.raises(UsageError) if said else contextlib.nullcontext() as refused:
        stack.refuse_other_stack(Path("env"), PLAN, new)
    if said:
        assert refused.value.message.startswith(f"env has {said}.") and "--recreate" in refused.value.hint


def test_a_gpu_environment_is_no_cpu_one_by_itself_but_a_damaged_one_is_replaced(tmp_path):
    (tmp_path / MARK).mkdir()
    context = SimpleNamespace(request=SimpleNamespace(device="cpu"), reason="no driver")
    plan = tmp_path / MARK / "plan.json"
    plan.write_text('{"damaged": 1}')
    stack.refuse_idle_gpu(tmp_path, Choices(device="auto"), context)
    plan.write_text(json.dumps(as_plain(PLAN)))
    with pytest.raises(UsageError, match="no GPU can be used on this machine: no driver"):
        stack.refuse_idle_gpu(tmp_path, Choices(device="auto"), context)
    stack.refuse_idle_gpu(tmp_path, Choices(device="cpu"), context)


@rows(
    ("device", "options", "targets"),
    [
        ("cuda", {}, [None, LOCK.target]),  # that of the plan, where this machine is another
        ("cpu", {}, None),
        ("cuda", {"driver": "550"}, None),
    ],
)
def test_a_machine_without_a_gpu_keeps_the_target_of_a_gpu_plan(device, options, targets, monkeypatch):
    asked = []

    def make_request(choices, _, *, no_code):
        assert not no_code
        asked.append(choices.planned)
        if choices.planned is None:
            raise MachineError("no driver")
        return "context"

    monkeypatch.setattr(stack, "make_request", make_request)
    plan = dataclasses.replace(PLAN, device=device)
    with contextlib.nullcontext() if targets else pytest.raises(MachineError):
        assert stack.read_same_stack_request(Choices(**options), plan, drop_event) == "context"
    assert asked == (targets or [None])


def test_the_lock_of_another_machine_is_not_written_over(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpuenv.yaml").write_text("frameworks: [torch]\n")
    old = dataclasses.replace(LOCK, inputs="1")
    pylock.write(tmp_path / "pylock.toml", old)
    choices, said = Choices(config=read_config(tmp_path / "gpuenv.yaml")), []
    new = dataclasses.replace(LOCK, inputs="2", packages=LOCK.packages[:1])
    other = dataclasses.replace(new, target=dataclasses.replace(LOCK.target, glibc="2.31"))
    assert not project.renew_project_lock(choices, other, said.append)
    assert pylock.read(tmp_path / "pylock.toml") == old and "another machine" in said[0].text
    assert project.renew_project_lock(choices, new, said.append)
    assert pylock.read(tmp_path / "pylock.toml") == new


def test_the_lock_of_another_platform_is_none(tmp_path, monkeypatch):
    def read_lock(*_):
        raise OtherPlatformError("nothing for linux-aarch64")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "pylock.toml").touch()
    monkeypatch.setattr(project, "read_lock", read_lock)
    assert project._read_project_lock(Choices(), "linux-aarch64") is None


def test_a_package_that_is_not_installed_is_not_measured(tmp_path):
    events = []
    measured.measure(LOCK, tmp_path, Choices(cache_dir=tmp_path / "cache"), events.append)
    assert not events and not list((tmp_path / "cache").rglob("*.json"))


# --- a solution and its plan ---------------------------------------------------------------------------


@rows(
    ("packages", "why"),
    [
        (el.PACKAGES, None),
        ((el.wheel("torch", "2.14.1+cu126", el.MAIN), *el.PACKAGES[1:]), "not from the PyTorch index"),
        ((el.wheel("torch", "2.14.1+cpu", el.PYTORCH), *el.PACKAGES[1:]), "the plan needs CUDA 12.6"),
    ],
)
def test_a_solution_has_the_builds_of_its_plan_from_their_index(packages, why):
    torch = dataclasses.replace(PLAN.builds[0], requirements=("torch",))
    plan = dataclasses.replace(PLAN, builds=(torch,))
    answer = SimpleNamespace(packages=packages, by_name={p.name: p for p in packages})
    error = pinned.find_difference(plan, answer, SOURCES, ())
    assert why in error.message if why else error is None


def test_an_address_without_a_file_name_is_refused():
    package = LockedPackage(name="a", version="1", url="https://host/${FILE}", sha256="0" * 64)
    with pytest.raises(LockError, match=r"the address of a has no file name: https://host/\$\{FILE\}"):
        solver._address(package)
    assert (
        solver._address(dataclasses.replace(package, url="https://${HOST}/a.whl")) == "https://${HOST}/a.whl"
    )


def test_an_answer_of_another_uv_is_refused():
    for text in ("lock-version = 3\n", "[[", 'lock-version = "1.0"\n'):
        with pytest.raises(LockError, match="the solver's answer cannot be read"):
            solver.read_pylock(text)


SECOND = (
    "[[packages.wheels]]\nurl = 'https://h/torch-2.14.1%2Bcu126-py3-none-any.whl'\nhashes = {sha256 = 'ab'}\n"
)


@rows(
    ("old", "new", "said"),
    [
        ("[[packages.wheels]]", f"{SECOND}[[packages.wheels]]", "expected one wheel"),
        ('version = "3.20.0"\n', "", "no address or no version"),
        ('commit-id = "0123', 'commit-id = "zz23', "expected a full commit of git"),
        ('type = "git"', 'type = "hg"', "expected a full commit of git"),
        ("[tool.gpuenv]\n", "[[packages]]\nname = 'x'\nversion = '1'\n[tool.gpuenv]\n", "if sdist and wheels are not set"),
        ("[tool.gpuenv]\n", "[tool.gpuenv]\nclasses = 3\n", "tool.gpuenv.classes: expected a list"),
        ("depends = [", "depends = 3\nmore = [", "tool.gpuenv.depends: expected a list"),
    ],
)  # fmt: skip
def test_a_lock_with_a_mistake_is_refused(old, new, said, tmp_path):
    path = tmp_path / "pylock.toml"
    pylock.write(
        path, el.of((*el.PACKAGES, el.COMMITTED, dataclasses.replace(el.SOURCE, depends=("python",))))
    )
    text = path.read_text()
    assert old in text, text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(LockError, match=said):
        pylock.read(path)


def test_a_version_that_a_wheel_does_not_state_is_that_of_its_package():
    package = LockedPackage(name="a", version="1.0", url="https://host/a-1.0.tar.gz", sha256="0" * 64)
    assert pylock.wheel_version(package) == "1.0"
    wheel = dataclasses.replace(package, url="https://host/a-1.0+cu12-py3-none-any.whl")
    assert pylock.wheel_version(wheel) == "1.0+cu12"


ANSWER = """lock-version = "1.0"
created-by = "uv"
[[packages]]
name = "a"
version = "1.0"
sdist = {url = "https://host/a-1.0.tar.gz", hashes = {sha256 = "00"}}
wheels = [{url = "https://host/a-1.0-cp312-cp312-macosx_11_0_arm64.whl", hashes = {sha256 = "11"}}]
"""


def test_the_source_is_taken_where_no_wheel_fits_and_a_package_without_one_is_an_error():
    tags = {tag: i for i, tag in enumerate(parse_tag("cp312-cp312-manylinux_2_28_x86_64"))}
    (package,) = solver.read_pylock(ANSWER).packages
    found = solver._choose_file(package, tags)
    assert (found.url, found.sha256) == ("https://host/a-1.0.tar.gz", "00")
    mac = {tag: i for i, tag in enumerate(parse_tag("cp312-cp312-macosx_11_0_arm64"))}
    assert solver._choose_file(package, mac).sha256 == "11"
    (package,) = solver.read_pylock(re.sub("(?m)^sdist.*", "", ANSWER)).packages
    with pytest.raises(LockError, match="a"):
        solver._choose_file(package, tags)


def test_an_answer_to_a_plan_that_is_not_the_plan_is_an_error(monkeypatch):
    cpu = (el.wheel("torch", "2.14.1+cpu", el.PYTORCH), *el.PACKAGES[1:])
    for packages, fits in ((el.PACKAGES, True), (cpu, False)):
        answer = SimpleNamespace(packages=packages, by_name={p.name: p for p in packages})
        monkeypatch.setattr(
            pinned, "Query", lambda answer=answer, **_: SimpleNamespace(answer=lambda: answer)
        )
        with contextlib.nullcontext() if fits else pytest.raises(LockError, match="torch"):
            assert (
                pinned.lock_plan(PLAN, drop_event, SourceRules(drop_event, SourceArchives(SOURCES))) is answer
            )


# --- sources -------------------------------------------------------------------------------------------


def rules(**more):
    return SourceRules(drop_event, SourceArchives(PackageSources(offline=True, **more)))


def test_a_build_that_uv_may_not_run_names_its_variable():
    with pytest.raises(LockError, match=r"a @ https://host needs a build, .* \(UV_NO_BUILD\)"):
        rules().recover(LockError("", unbuilt="a @ https://host"), (), PLAN)


def test_a_package_is_left_out_once():
    ours = rules(no_code=True)
    assert ours.recover(LockError("", unbuilt="A[x] @ https://host"), (), PLAN) and ours.unread == ["a"]
    assert not ours.recover(LockError("", unbuilt="A[x] @ https://host"), (), PLAN)


def test_bounds_that_are_none_allow_everything():
    assert "1.0" in _parse_specifier("<dev") and "1.0" not in _parse_specifier("<1")


def test_a_source_that_is_not_described_is_announced():
    events = []
    dataclasses.replace(rules(), emit=events.append).announce([el.SOURCE, el.COMMITTED], {}, PLAN)
    said = "old 0.9 has no wheel for Python 3.12 on linux-x86_64: built from source during installation, with a compiler"
    assert [e.kind for e in events] == ["warning"] and events[0].text.startswith(said)


# --- options and what would be done --------------------------------------------------------------------


def test_a_companion_of_torch_may_be_named_as_a_framework():
    wanted, packages = request.read_named(Choices(framework=["torch>2", "torchvision"]), KNOWN)
    assert [(w.name, w.specifier) for w in wanted] == [("torch", ">2")] and packages == ("torchvision",)


def test_a_name_of_a_package_that_is_nowhere_is_to_be_removed():
    trap = PackageTrap(package="mine", why="it is empty", source="")
    assert request._suggest_instead(Requirement("Mine"), trap).startswith("remove Mine")
    assert request._suggest_instead(Requirement("Mine"), trap._replace(instead="other")) == "write other"


def test_hosts_get_the_glibc_of_the_options():
    one = HostClass(id="a", target=LOCK.target, device="cuda", hosts=("h",))
    changed = fleet_locks._apply_options(one, Choices(glibc="2.39", driver="590.1"))
    assert (changed.glibc, changed.driver) == ("2.39", "590.1")
    windows = dataclasses.replace(one, target=dataclasses.replace(LOCK.target, platform="windows-x86_64"))
    assert fleet_locks._apply_options(windows, Choices(glibc="2.39")).glibc == LOCK.target.glibc


def test_a_preview_names_what_would_be_removed(tmp_path):
    events = []
    changes.emit_preview(events.append, tmp_path, LOCK, dataclasses.replace(LOCK, packages=el.PACKAGES[1:]))
    assert [e.text for e in events[1:]] == ["  torch: removed"]


def test_a_conda_version_that_pep_440_does_not_allow_exceeds_no_bound():
    lock = SimpleNamespace(
        packages=(el.conda("tzdata", "2024!x_1", "0"), el.conda("six", "2.0", "0")), plan=PLAN
    )
    needs = [
        RequirementLine(text=f"{name}<2", name=name, origin="a.txt line 1")
        for name in ("tzdata", "six", "absent")
    ]
    assert [b.name for b in channels._find_exceeded(needs, lock, "linux-x86_64")] == ["six"]


# --- another request -----------------------------------------------------------------------------------


def state(*cudas, **options):
    """A state with builds of these CUDA releases, newest first. `with_request` returns what would be asked."""
    asked = Request(frameworks=(FrameworkRequest(name="torch"),), device="cuda", **options)
    builds = [
        PlannedBuild(framework="torch", version="2.14.1", cuda=c, index="pypi", requirements=())
        for c in cudas
    ]
    fitting = SimpleNamespace(newest=SimpleNamespace(builds=builds), chains=[builds])
    return SimpleNamespace(
        context=SimpleNamespace(request=asked, with_request=dict), fitting=fitting, note=[].append
    )


@rows(
    ("cudas", "options", "other"),
    [
        (("13.0", "12.8"), {}, {"cuda": "12"}),
        (("13.0", "13.2"), {}, None),
        ((None, "12.8"), {}, None),
        (("13.0", "12.8"), {"cuda": "13"}, None),
    ],
)
def test_another_cuda_is_tried_once_where_there_is_one(cudas, options, other):
    assert retry._change_cuda(state(*cudas, **options)) == other


def test_a_companion_that_was_required_already_is_not_tried_again():
    error = pinned.CompanionError("torchvision", "no build", hint="")
    assert retry._require_companion(state(along=("torchaudio",)), error) == {
        "along": ("torchaudio", "torchvision")
    }
    assert retry._require_companion(state(along=("torchvision",)), error) is None
