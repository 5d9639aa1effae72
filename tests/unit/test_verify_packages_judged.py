"""Stage `packages`: what fails it and what only warns, and the fixes."""

import json
import os
import sys

import pytest
from elf_files import library, module, package
from environment_facts import own
from framework_envs import venv
from rows import rows

from provision.config.options import Choices
from provision.config.recall import list_named_packages
from provision.environment.distributions import Distribution
from provision.environment.loader import Package, Problem
from provision.model import Environment, Lock, Plan, Profiles, Replacement, SystemLibrary, Target
from provision.profiles import load
from provision.verify import packages
from provision.verify.fixes import (
    LinuxDistribution,
    Surroundings,
    _choose_step,
    describe_missing,
    describe_other_build,
    read_distribution,
)
from provision.verify.libraries import PythonPaths
from provision.verify.packages import Reading, judge, list_required, read_packages

VERSION = "{}.{}.{}".format(*sys.version_info)
TAG = f"cpython-{sys.version_info[0]}{sys.version_info[1]}-x86_64-linux-gnu"


@pytest.fixture
def made(tmp_path):
    return venv(tmp_path / "env")


def broken(site, tmp_path, name, *, init="from . import core\n", requires=()):
    """A package whose extension module needs a library that is nowhere."""
    gone = library(tmp_path / "build" / f"libgpuenv_{name}.so.1")
    mine = module(site / name / f"core.{TAG}.so", needs=[gone])
    gone.unlink()
    package(site, name, "1.0", [mine], modules={f"{name}/__init__.py": init}, requires=requires)


def stage(made, *, required=None, seconds=300.0):
    env, site = made
    value = Environment(path=str(env), manager="venv", python=str(env / "bin/python"))
    found = PythonPaths(prefix=str(env), version=VERSION, sites=(str(site),), roots=(str(site),))
    reading = read_packages(value, found, dict(os.environ), Profiles())
    return judge(reading, seconds=seconds, load_profiles=load, list_wanted=required)


# --- what fails ------------------------------------------------------------------------------------


def test_with_a_lock_a_named_package_and_what_it_always_requires_fail(made, tmp_path):
    _, site = made
    broken(site, tmp_path, "deep")
    broken(site, tmp_path, "extra")
    package(site, "top", "1.0", [], requires=["deep>=1", "extra; extra == 'all'"], modules={"top.py": ""})
    names = lambda installed: list_required(installed, {"top"}, VERSION)  # noqa: E731
    judged, findings = stage(made, required=names)
    assert judged.status == "fail" and judged.detail.startswith("deep 1.0 needs libgpuenv_deep.so.1")
    assert "1 more package" in judged.detail
    assert [f.cause for f in findings] == ["system_library_missing"]
    assert "libgpuenv_extra.so.1" in findings[0].fix and "libgpuenv_deep.so.1" in findings[0].fix
    other = lambda installed: list_required(installed, {"none"}, VERSION)  # noqa: E731
    assert stage(made, required=other)[0].status == "warn"
    assert stage(made, required=names, seconds=None)[0].status == "warn"


def test_without_a_lock_only_a_framework_fails(made, tmp_path):
    _, site = made
    broken(site, tmp_path, "cv2")
    assert stage(made)[0].status == "warn"
    broken(site, tmp_path, "torch")
    judged, _ = stage(made)
    assert judged.status == "fail" and judged.detail.startswith("torch 1.0")


def test_a_module_that_its_package_does_not_import_warns(made, tmp_path):
    """As PyQt6 imports without libEGL, and PyQt6.QtGui does not."""
    _, site = made
    broken(site, tmp_path, "lazy", init="")
    judged, findings = stage(made, required=lambda installed: {"lazy"})
    assert judged.status == "warn" and findings
    assert any(e.source == "import lazy.core" for e in findings[0].evidence)


def test_a_package_that_fails_for_another_reason_warns(made, tmp_path):
    _, site = made
    broken(site, tmp_path, "odd", init="raise RuntimeError('no licence')\n")
    assert stage(made, required=lambda installed: {"odd"})[0].status == "warn"


def test_a_package_that_hangs_is_ended(made, tmp_path):
    _, site = made
    broken(site, tmp_path, "slow", init="import time\ntime.sleep(600)\n")
    judged, findings = stage(made, required=lambda installed: {"slow"}, seconds=2.0)
    assert judged.status == "warn"
    assert any("no answer within 2 s" in e.text for e in findings[0].evidence)


def test_a_framework_is_imported_first(made, tmp_path):
    """An extension that finds the framework's library only because the framework is loaded, and lacks another."""
    _, site = made
    base = library(site / "torch" / "lib" / "libgpuenv_torch.so")
    core = module(site / "torch" / f"core.{TAG}.so", needs=[base], runpath="$ORIGIN/lib")
    package(site, "torch", "1.0", [base, core], modules={"torch/__init__.py": "from . import core\n"})
    gone = library(tmp_path / "build" / "libgpuenv_none.so")
    fine = module(site / "vision" / f"fine.{TAG}.so", needs=[base])
    lacks = module(site / "vision" / f"lacks.{TAG}.so", needs=[base, gone])
    gone.unlink()
    package(
        site,
        "vision",
        "1.0",
        [fine, lacks],
        requires=["torch"],
        modules={"vision/__init__.py": "from . import fine\n"},
    )
    judged, findings = stage(made, required=lambda installed: {"vision"})
    assert judged.status == "warn"  # `vision` itself imports
    assert [e.source for e in findings[0].evidence if e.source.startswith("import")] == [
        "import vision.lacks"
    ]


def test_an_extension_for_another_cuda_is_named_as_one(made, tmp_path):
    _, site = made
    gone = library(tmp_path / "build" / "libcudart.so.11.0")
    mine = module(site / "xf" / f"core.{TAG}.so", needs=[gone])
    gone.unlink()
    package(site, "xf", "1.0", [mine], modules={"xf/__init__.py": "from . import core\n"}, requires=["torch"])
    _, (finding,) = stage(made)
    assert finding.cause == "extension_built_for_other_torch_or_cuda"
    assert "xf" in finding.fix and "nvidia-cuda-runtime-cu11" in finding.fix


def test_damaged_files_are_put_back(made):
    _, site = made
    mine = module(site / f"cut.{TAG}.so")
    package(site, "cut", "1.0", [mine])
    mine.write_bytes(mine.read_bytes()[:9000])
    _, (finding,) = stage(made, seconds=None)
    assert finding.cause == "package_files_damaged" and "cut==1.0" in finding.fix


# --- who was named ---------------------------------------------------------------------------------


def test_the_names_are_those_of_options_and_project_files(tmp_path, monkeypatch):
    env, file = tmp_path / "env", tmp_path / "requirements.txt"
    (env / ".gpuenv").mkdir(parents=True)
    file.write_text("Opencv_Python>=4\n-c limits.txt\n")
    (tmp_path / "limits.txt").write_text("numpy<2\n")
    plan = Plan(
        builds=(),
        python="3.12",
        platform="linux-x86_64",
        manager="venv",
        device="cpu",
        target=Target(platform="linux-x86_64"),
    )
    lock = Lock(manager="venv", target=plan.target, plan=plan, packages=())
    assert list_named_packages(env, lock, Choices()) is None
    choices = {"framework": ["torch>=2"], "with_": ["einops[x]>=1"], "requirement": [str(file)]}
    (env / ".gpuenv" / "request.json").write_text(json.dumps({"choices": choices}))
    assert list_named_packages(env, lock, Choices()) is None, "nobody vouches for it"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    own(env)
    assert list_named_packages(env, lock, Choices()) == {"torch", "einops", "opencv-python"}
    file.unlink()
    assert list_named_packages(env, lock, Choices()) is None


# --- fixes -----------------------------------------------------------------------------------------

ROWS = Profiles(
    system_libraries=(
        SystemLibrary(soname="libGL.so.1", deb="libgl1", rpm="mesa-libGL"),
        SystemLibrary(soname="libasound.so.2", deb="libasound2", deb_t64="libasound2t64"),
    ),
    replacements=(Replacement(package="opencv-python", instead="opencv-python-headless", without=("libGL.so.1",)),),
)  # fmt: skip


def fix(here, *sonames, name="opencv-python"):
    return describe_missing({name: sonames}, ROWS, here)


@rows(
    ("here", "sonames", "says"),
    [
        (LinuxDistribution(family="deb"), ["libGL.so.1"], "On the machine: `apt-get install libgl1`. Or install opencv-python-headless in place of opencv-python."),
        (LinuxDistribution(family="rpm"), ["libGL.so.1"], "On the machine: `dnf install mesa-libGL`. Or install opencv-python-headless in place of opencv-python."),
        (LinuxDistribution(family=None), ["libGL.so.1"], "On the machine: Debian and Ubuntu: `apt-get install libgl1`. Fedora and RHEL: `dnf install mesa-libGL`. Or install opencv-python-headless in place of opencv-python."),
        (LinuxDistribution(family="deb", needs_sudo=True), ["libGL.so.1", "libasound.so.2"], "On the machine: `sudo apt-get install libgl1 libasound2`."),
        (LinuxDistribution(family="deb", t64=True), ["libasound.so.2"], "On the machine: `apt-get install libasound2t64`."),
        (LinuxDistribution(family="rpm"), ["libasound.so.2"], "On the machine: `dnf install 'libasound.so.2()(64bit)'`."),
        (LinuxDistribution(family="deb"), ["libodd.so.3"], "On the machine: install the system package that has libodd.so.3: `apt-file search libodd.so.3` prints its name."),
        (LinuxDistribution(family="deb"), ["libGL.so.1", "libodd.so.3", "lib;x.so", "libeven.so.2", "libx.so"], "On the machine: `apt-get install libgl1`. On the machine: install the system package that has libodd.so.3, and those of libeven.so.2, libx.so: `apt-file search libodd.so.3` prints its name."),
        (LinuxDistribution(family=None), ["libodd.so.3"], "On the machine: install the system package that has libodd.so.3: `apt-file search libodd.so.3` or `dnf provides '*/libodd.so.3'` prints its name."),
        (LinuxDistribution(family="deb"), ["lib;x.so"], "On the machine: install the system package that has the library of the message."),
    ],
)  # fmt: skip
def test_the_system_package_is_that_of_the_distribution(here, sonames, says):
    assert fix(here, *sonames) == says


@pytest.mark.parametrize(
    ("text", "family", "t64"),
    [
        ('ID=debian\nVERSION_ID="12"\n', "deb", False),
        ('ID=debian\nVERSION_ID="13"\n', "deb", True),
        ('ID=ubuntu\nID_LIKE=debian\nVERSION_ID="22.04"\n', "deb", False),
        ('ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\n', "deb", True),
        ('ID=linuxmint\nID_LIKE="ubuntu debian"\nVERSION_ID="22"\n', "deb", False),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.4"\n', "rpm", False),
        ("ID=fedora\nVERSION_ID=41\n", "rpm", False),
        ("ID=alpine\n", None, False),
    ],
)
def test_the_distribution_is_read_from_os_release(tmp_path, text, family, t64):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "os-release").write_text(text)
    assert read_distribution(tmp_path) == LinuxDistribution(
        family=family, t64=t64, needs_sudo=os.geteuid() != 0
    )
    assert read_distribution(tmp_path / "none") == LinuxDistribution(
        family=None, needs_sudo=os.geteuid() != 0
    )


def test_another_build_names_the_framework():
    package = Package("xformers", "0.0.30", "/site", (), depends=("torch",))
    problems = [Problem(kind="missing", file="/site/x.so", library="libcudart.so.12")]
    env = Environment(path="/env", manager="venv", python="/env/bin/python")
    here = Surroundings(libraries=frozenset({"libcudart.so.13"}))
    text = describe_other_build({package: problems}, Profiles(), here, env, [])
    assert "xformers" in text and "torch" in text and "nvidia-cuda-runtime-cu12" in text


def problem(kind, library, detail="", **more):
    return Problem(kind=kind, file="/site/a/x.so", library=library, detail=detail, **more)


@rows(
    ("problems", "says", "fix"),
    [
        ([problem("version", "libstdc++.so.6", "GLIBCXX_3.4.32")], "needs GLIBCXX_3.4.32 of libstdc++.so.6",
         "built for an older system (without GLIBCXX_3.4.32)"),
        ([problem("missing", n, any_of=True) for n in ("libGL.so.1", "libEGL.so.1")],
         "none can be loaded: libGL.so.1, libEGL.so.1 missing", "libgl1"),
        ([problem("missing", "libGL.so.1")], "needs libGL.so.1, which this system does not have", "libgl1"),
    ],
)  # fmt: skip
def test_a_problem_of_a_package_has_its_words_and_fix(problems, says, fix):
    one = Package("a", "1.0", "/site", ())
    env = Environment(path="/env", manager="venv", python="/env/bin/python")
    paths = PythonPaths(prefix="/env", version="3.12.0", sites=("/site",), roots=("/env",))
    assert says in packages._describe_problems(one, problems)
    assert fix in packages._describe_fix(
        problems[0].kind, {one: problems}, Reading(env, paths, {}, (one,)), ROWS
    )


def test_a_wheel_with_only_some_of_the_libraries_is_no_fix():
    """cuBLAS comes as a wheel, the odd library does not."""
    package = Package("odd", "1.0", "/site", ())
    toolkits = load().toolkits
    here = Surroundings()
    some = _choose_step(package, ["libcublas.so.12", "libodd.so.3"], Profiles(toolkits=toolkits), here)
    assert some == ([], "")
    both = _choose_step(package, ["libcublas.so.12"], Profiles(toolkits=toolkits), here)
    assert both[0] == ["nvidia-cublas-cu12==12.*"]


def test_a_package_without_modules_of_its_name_is_imported_by_the_folders_of_its_files(tmp_path):
    for folder in ("vision", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    info = tmp_path / "opencv_thing-1.0.dist-info"
    info.mkdir()
    (info / "RECORD").write_text("other/__init__.py,,\nvision/__init__.py,,\nvision/x.so,,\n")
    package = Package(
        "opencv-thing", "1.0", str(tmp_path), (), info=Distribution("opencv-thing", "1.0", info)
    )
    broken = Problem(kind="missing", file=f"{tmp_path}/vision/x.so", library="libGL.so.1")
    for problems, modules, tops in (
        ((broken,), (), ("vision",)),
        ((), ("other.x",), ("other",)),
        ((), (), ("other", "vision")),
    ):
        one = packages.DoubtfulPackage(package=package, problems=problems, modules=modules)
        assert packages._list_top_modules(one) == tops
