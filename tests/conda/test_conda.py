"""What the conda solver is asked for, and locks held against a machine: pure tables."""

import dataclasses
import json
import re
import sys
from pathlib import Path

import pytest
from known import KNOWN
from programs import run_program
from rows import rows

from provision.conda import build, locks as foreign, solver, solver as conda_target
from provision.environment.managers import BuildSettings
from provision.errors import BuildError, LockError, UsageError
from provision.model import (
    CondaBuild,
    FrameworkRequest,
    Lock,
    LockedPackage,
    PackageSources,
    Plan,
    PlannedBuild,
    Request,
    Target,
    TargetGpu,
    drop_event,
)

H200 = Target(platform="linux-x86_64", glibc="2.35", driver="580.65.06", gpus=(TargetGpu(capability="9.0"),))


def virtual(target, **kwargs):
    found = solver.virtual_packages(target, **{"cuda": None, "kernel": None, "archspec": None, **kwargs})
    return {v["name"]: (v["version"], v["build"]) for v in found}


def test_virtual_packages_come_from_the_target_not_from_this_machine():
    assert virtual(H200, cuda="13.0") == {
        "__archspec": ("1", "x86_64"), "__unix": ("0", "0"), "__linux": ("4.18", "0"), "__glibc": ("2.35", "0"),
        "__cuda": ("13.0", "0"), "__cuda_arch": ("9.0", "0"),
    }  # fmt: skip
    assert "__cuda" not in virtual(H200) and "__cuda_arch" not in virtual(H200)
    windows = virtual(Target(platform="windows-x86_64"), cuda="12.4")
    assert "__win" in windows and not {"__glibc", "__linux", "__unix"} & set(windows)


def test_the_weakest_gpu_is_the_architecture_by_number():
    target = Target(platform="linux-x86_64", gpus=(TargetGpu(capability="10.0"), TargetGpu(capability="9.0")))
    assert virtual(target, cuda="13.0")["__cuda_arch"] == ("9.0", "0")


def test_overrides_of_virtual_packages_are_honoured_and_noted():
    before = solver.virtual_packages(H200, cuda="13.0", kernel=None, archspec=None)
    after, said = solver.override_virtual(before, {"CONDA_OVERRIDE_CUDA": "12.2", "CONDA_OVERRIDE_GLIBC": ""})
    names = {v["name"]: v["version"] for v in after}
    assert names["__cuda"] == "12.2" and "__glibc" not in names
    cuda, glibc = said
    assert re.fullmatch(r"__cuda is 12\.2, .*CONDA_OVERRIDE_CUDA \(.*13\.0\)", cuda)
    assert re.fullmatch(r"__glibc is absent, .*CONDA_OVERRIDE_GLIBC \(.*2\.35\)", glibc)


def test_an_override_that_changes_nothing_says_so():
    _, said = solver.override_virtual(
        solver.virtual_packages(H200, cuda=None, kernel=None, archspec=None), {"CONDA_OVERRIDE_CUDA": ""}
    )
    assert len(said) == 1 and re.fullmatch("__cuda is absent, .*CONDA_OVERRIDE_CUDA", said[0])


@rows(("name", "value"), [("CUDA", "abc"), ("CUDA_ARCH", "sm_90"), ("GLIBC", "2.35 x"), ("ARCHSPEC", "a b")])
def test_an_override_that_is_no_version_is_named(name, value):
    with pytest.raises(UsageError, match=f"CONDA_OVERRIDE_{name} is `{value}`"):
        solver.override_virtual((), {f"CONDA_OVERRIDE_{name}": value})


def test_overrides_change_the_target_for_wheels_too():
    given = {"CONDA_OVERRIDE_CUDA": "11.8", "CONDA_OVERRIDE_GLIBC": "2.28", "CONDA_OVERRIDE_CUDA_ARCH": "7.5"}
    target = solver.override_target(H200, given)
    assert (target.driver, target.driver_cuda, target.glibc) == (None, "11.8", "2.28")
    assert [g.capability for g in target.gpus] == ["7.5"]
    assert solver.override_target(H200, {"CONDA_OVERRIDE_CUDA": ""}) == H200


@rows(
    ("pep440", "conda"),
    [
        ("", "*"),
        ("==2.7.1", "==2.7.1"),
        ("===2.7.1", "==2.7.1"),
        (">=2.6,<2.9", ">=2.6,<2.9"),
        ("!=2.8", "!=2.8"),
    ],
)
def test_bounds_are_converted_to_the_form_of_conda(pep440, conda):
    assert solver.conda_version(pep440) == conda


def test_cuda_never_goes_above_what_the_driver_speaks():
    import rattler

    request = Request(frameworks=(FrameworkRequest(name="torch"),), device="cuda", manager="conda")
    bounds = solver.Bounds(cuda="12.2", oldest="11.8", newest="12.9")
    (text,) = [c for c in solver.constraints(request, bounds) if c.startswith("cuda-version <12.3")]
    spec = rattler.VersionSpec(text.split()[1])
    taken = {
        v: spec.matches(rattler.Version(v)) for v in ("11.8", "12.2", "12.2.140", "12.3", "12.9", "13.0")
    }
    assert taken == {
        "11.8": True,
        "12.2": True,
        "12.2.140": True,
        "12.3": False,
        "12.9": False,
        "13.0": False,
    }
    for name in solver.CUDA_NAMES:
        assert f"{name} >=11.8" in solver.constraints(request, bounds)
    assert solver.constraints(Request(frameworks=(), device="cpu"), bounds) == ()


def test_the_gpus_of_a_target_bound_cuda_on_both_sides():
    bounds = conda_target.find_gpu_bounds(
        Target(platform="linux-x86_64", gpus=(TargetGpu(capability="7.0"), TargetGpu(capability="8.6"))),
        KNOWN,
    )
    rows = {g.capability: g for g in KNOWN.gpus}
    assert (bounds.oldest, bounds.newest) == (rows["8.6"].first_cuda, rows["7.0"].last_cuda)


def test_a_cudnn_that_dropped_the_gpu_is_led_away_from():
    volta = Target(platform="linux-x86_64", gpus=(TargetGpu(capability="7.0"),))
    asked = solver.ChannelQuery(
        request=Request(frameworks=(FrameworkRequest(name="torch"),)), target=volta, rows=(), channels=(), virtual=(),
        bounds=solver.Bounds(),
    )  # fmt: skip
    rows = [r for r in KNOWN.cudnn if r.cuda.startswith("12") and r.platform == "linux-x86_64" and r.kernels]
    dropping = [r.version for r in rows if not any(k.startswith(("7.0", "6.", "5.")) for k in r.kernels)]
    keeping = [r.version for r in rows if "7.0" in r.kernels]
    assert dropping and keeping, "the table must hold both for this test to say anything"
    (bound,) = conda_target.find_cudnn_bounds(asked, KNOWN, "12.9", dropping[0])
    assert bound.removeprefix("<=") in keeping
    assert conda_target.find_cudnn_bounds(asked, KNOWN, "12.9", keeping[0]) == ()
    elsewhere = dataclasses.replace(KNOWN, cudnn=tuple(r for r in KNOWN.cudnn if r not in rows))
    assert conda_target.find_cudnn_bounds(asked, elsewhere, "12.9", dropping[0]) == ()


def record(name, version, build="0", **fields):
    return {"name": name, "version": version, "build": build, "url": f"https://h/c/linux-64/{name}-{version}-{build}.conda",
            "channel": "https://h/c/", "sha256": None, "md5": None, "size": 1, "depends": [], **fields}  # fmt: skip


def test_cuda_and_cudnn_of_old_builds_are_read_from_their_rows():
    old = record("pytorch", "2.1.0", "py3.10_cuda12.1_cudnn8.9.2_0")
    assert solver.find_cuda_and_cudnn(old, {"pytorch": old}, KNOWN.conda) == ("12.1", "8.9.2")
    new = record("pytorch", "2.8.0", "cuda129_mkl_py313_h0_302")
    beside = {
        "pytorch": new,
        "cuda-version": record("cuda-version", "12.9"),
        "cudnn": record("cudnn", "9.12.0.46"),
    }
    assert solver.find_cuda_and_cudnn(new, beside, KNOWN.conda) == ("12.9", "9.12.0.46")


def test_every_row_of_an_old_build_says_what_its_build_string_says():
    for row in KNOWN.conda:
        if row.version:
            assert f"cuda{row.cuda}" in row.build and f"cudnn{row.cudnn.removeprefix('==')}" in row.build


def test_a_cpu_build_in_a_cuda_plan_is_an_error():
    asked = solver.ChannelQuery(
        request=Request(frameworks=(FrameworkRequest(name="torch"),), device="cuda"), target=H200, rows=KNOWN.conda,
        channels=("conda-forge",), virtual=(), bounds=solver.Bounds(cuda="13.0"),
    )  # fmt: skip
    records = (record("python", "3.13.1"), record("pytorch", "2.8.0", "cpu_mkl_py313_h0_302"))
    with pytest.raises(LockError, match=r"the solver chose pytorch .* cpu_mkl_py313_h0_302"):
        solver.make_lock(asked, solver.Solution(records=records, channels=("https://h/conda-forge/",)))
    newer = (
        record("python", "3.13.1"),
        record("pytorch", "2.8.0", "cuda131_h0_302"),
        record("cuda-version", "13.1"),
    )
    with pytest.raises(LockError, match=r"torch comes with CUDA 13\.1, but the driver supports only 13\.0"):
        solver.make_lock(asked, solver.Solution(records=newer, channels=("https://h/conda-forge/",)))


def asked_for(request=None):
    request = request or Request(frameworks=(FrameworkRequest(name="torch"),), device="cpu")
    return solver.ChannelQuery(
        request=request,
        target=H200,
        rows=KNOWN.conda,
        channels=("c",),
        virtual=(),
        bounds=solver.Bounds(cuda="13.0"),
    )


def test_a_separate_environment_for_one_framework_is_proposed():
    request = Request(
        frameworks=(FrameworkRequest(name="torch"), FrameworkRequest(name="jax")),
        device="cpu",
        manager="conda",
    )
    asked = solver.ChannelQuery(
        request=request, target=H200, rows=KNOWN.conda, channels=(), virtual=(), bounds=solver.Bounds()
    )
    told = dict(conda_target.list_alternatives(asked, KNOWN))
    apart = {
        label.split(",")[0].split()[-1]: q.request.frameworks
        for label, q in told.items()
        if "separate environment" in label
    }
    assert {name: [w.name for w in rest] for name, rest in apart.items()} == {
        "torch": ["jax"],
        "jax": ["torch"],
    }


@rows(
    ("status", "told"),
    [
        ("403 Forbidden", "denies access to"),
        ("404 Not Found", "the conda channel does not exist"),
        ("429 Too Many Requests", "rate-limited the request for"),
        ("503 Service Unavailable", "cannot serve"),
        ("407 Proxy Authentication Required", "requires a user name and a password"),
    ],
)
def test_a_refusal_of_a_channel_becomes_a_message_without_credentials(status, told):
    url = "https://me:s3cr3t@h/conda-forge/noarch/repodata.json"
    error = solver.explain_channel({"text": f"HTTP status client error ({status}) for url ({url})"}, ("c",))
    assert told in error.message and "https://h/conda-forge/noarch/repodata.json" in error.message
    assert "s3cr3t" not in error.message + (error.log or "") and error.hint


# --- locks that others made ----------------------------------------------------------------------


def test_an_explicit_list_is_read_as_a_lock(tmp_path):
    path = tmp_path / "spec.txt"
    path.write_text(
        "# platform: linux-64\n@EXPLICIT\n"
        f"https://h/conda-forge/linux-64/python-3.11.7-h0_0_cpython.conda#{'a' * 32}\n"
        f"https://u:pw@h/conda-forge/linux-64/pytorch-2.8.0-cuda129_mkl_py311_h0_302.conda#{'b' * 64}\n"
        f"https://h/conda-forge/noarch/cuda-version-12.9-h0_3.conda#sha256:{'c' * 64}\n"
    )
    lock = foreign.read(path, "linux-x86_64", KNOWN.conda)
    assert [(p.name, p.version, p.md5, p.sha256) for p in lock.packages] == [
        ("python", "3.11.7", "a" * 32, None),
        ("pytorch", "2.8.0", None, "b" * 64),
        ("cuda-version", "12.9", None, "c" * 64),
    ]
    assert "pw" not in json.dumps([p.url for p in lock.packages])
    (build,) = lock.plan.builds
    assert (build.framework, build.version, build.cuda, lock.plan.device) == (
        "torch",
        "2.8.0",
        "12.9",
        "cuda",
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("@EXPLICIT\n", "without a package"),
        ("@EXPLICIT\npython=3.11\n", "spec.txt:2: expected a package address"),
        (f"@EXPLICIT\nhttps://h/c/osx-64/python-3.11.7-h0.conda#{'a' * 64}\n", "is for osx-64"),
        (f"@EXPLICIT\nhttps://h/c/linux-64/numpy-2.0-h0.conda#{'a' * 64}\n", "has no python"),
        (f"@EXPLICIT\nhttps://h/c/linux-64/numpy.conda#{'a' * 64}\n", "is not a conda package"),
        (f"@EXPLICIT\nhttps://h/c/linux-64/..%2Fx-2.0-h0.conda#{'a' * 64}\n", "is not valid"),
        (f"@EXPLICIT\nhttps://[::1/linux-64/x-2.0-h0.conda#{'a' * 64}\n", "is not an address"),
    ],
)
def test_an_unusable_explicit_list_is_refused_with_its_reason(tmp_path, text, told):
    path = tmp_path / "spec.txt"
    path.write_text(text)
    with pytest.raises(LockError, match=told):
        foreign.read(path, "linux-x86_64", KNOWN.conda)


PIXI = """
version: 6
environments: {default: {channels: [], packages: {linux-64: [{conda: C/python-3.11.7-h0.conda}, {pypi: URL}]}}}
packages: [{conda: C/python-3.11.7-h0.conda, sha256: HASH}, ROW]
""".replace("C/", "https://h/c/linux-64/").replace("HASH", "b" * 64)
OLD_PYTHON = "\npackages: [{kind: conda, name: python, version: 3.11.7, build: h0, subdir: linux-64, url: "


@pytest.mark.parametrize(
    ("url", "row", "told"),
    [
        ("https://h/a-1-py3-none-any.whl", "{pypi: URL, name: a, version: '1', sha256: HASH}", None),
        (
            "https://h/a-1-py3-none-any.whl",
            "{kind: pypi, url: URL, name: a, version: '1', sha256: HASH}",
            None,
        ),
        ("https://h/a-1-py3-none-any.whl", "{pypi: https://h/other.whl}", "is not valid"),
        ("https://h/a-1.tar.gz", "{pypi: URL, name: a, version: '1'}", "is not a wheel"),
        ("https://h/a-1-py3-none-any.whl", "[", "is not valid"),
    ],
)
def test_the_wheels_of_a_lock_of_pixi_are_read(tmp_path, url, row, told):
    text = PIXI.replace("ROW", row).replace("URL", url).replace("HASH", "a" * 64)
    if "kind" in row:  # until version 5
        text = text.replace("version: 6", "version: 5").replace("\npackages: [{conda: ", OLD_PYTHON)
    path = tmp_path / "pixi.lock"
    path.write_text(text)
    if told:
        with pytest.raises(LockError, match=told):
            foreign.read(path, "linux-x86_64", KNOWN.conda)
    else:
        _, wheel = foreign.read(path, "linux-x86_64", KNOWN.conda).packages
        assert (wheel.name, wheel.version, wheel.url, wheel.sha256) == ("a", "1", url, "a" * 64)


def test_a_lock_that_cannot_be_written_or_read_is_an_error(tmp_path):
    (package,) = locked().packages
    whole = dataclasses.replace(package, md5="a" * 32, sha256="b" * 64)
    lock = dataclasses.replace(locked(), packages=(whole,))
    with pytest.raises(LockError, match="cannot write the lock /proc"):
        foreign.write(Path("/proc/none/conda-lock.yml"), lock)
    with pytest.raises(LockError, match=r"no md5 for pytorch 2\.8\.0"):
        foreign.write(tmp_path / "conda-lock.yml", locked())
    with pytest.raises(LockError, match="cannot read the lock"):
        foreign.read(tmp_path / "conda-lock.yml", "linux-x86_64", KNOWN.conda)
    foreign.write(tmp_path / "conda-lock.yml", lock)
    assert foreign.read(tmp_path / "conda-lock.yml", "linux-x86_64", KNOWN.conda).plan == lock.plan
    text = (tmp_path / "conda-lock.yml").read_text()
    for field, value in (
        ("plan", "'{'"),
        ("sizes", "'NaN'"),
        ("sizes", "'{\"pytorch\": []}'"),
        ("sizes", "'{\"pytorch\": 1e999}'"),
    ):
        damaged = re.sub(rf"( gpuenv\.{field}\.linux-64: ).*(\n {{6}}.*)*", rf"\1{value}", text)
        assert damaged != text
        (tmp_path / "conda-lock.yml").write_text(damaged)
        with pytest.raises(LockError, match="is not valid"):
            foreign.read(tmp_path / "conda-lock.yml", "linux-x86_64", KNOWN.conda)
    here = [{"name": "__glibc", "version": "2.35", "build": "0"}]
    with pytest.raises(LockError, match="the lock is not valid"):
        foreign.check_target(locked(["__glibc =>2"]), here, solver.Bounds())


def test_a_wheel_with_two_bounds_on_a_package_has_none_in_a_conda_lock():
    """The format has one for each name."""
    wheel = LockedPackage(name="a", version="1", url="https://h/a-1-py3-none-any.whl", sha256="0" * 64)
    for depends, kept in ((("b >=1", "c"), {"b": ">=1", "c": ""}), (("b >=1", "b <2", "c"), {})):
        one = dataclasses.replace(wheel, depends=depends)
        assert foreign._make_dependency(one, "linux-64").dependencies == kept


def test_one_file_is_never_brought_by_conda_and_by_a_wheel(tmp_path):
    lock = locked()
    twice = LockedPackage(
        name="PyTorch", version="2.8.0", url="https://h/pytorch-2.8.0-py3-none-any.whl", sha256="0" * 64
    )
    settings = BuildSettings(
        env=tmp_path, sources=PackageSources(), emit=drop_event, python=lambda: sys.executable
    )
    with pytest.raises(BuildError, match="PyTorch as a conda package and as a wheel"):
        build.install_wheels_on_top(lock, [twice], tmp_path, settings)
    (tmp_path / "lib/python3.12/site-packages/demo-1.0.dist-info").mkdir(parents=True)
    wheel = dataclasses.replace(twice, name="demo", version="1.0+cu12")
    assert build._find_missing([wheel], tmp_path) == []
    with pytest.raises(BuildError, match=r"conda package of demo has version 1\.0"):
        build._find_missing([dataclasses.replace(wheel, version="1.1")], tmp_path)


def test_a_list_of_environments_that_cannot_be_read_costs_the_entry_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".conda" / "environments.txt").mkdir(parents=True)
    assert "environments.txt cannot be read" in (build.finish(tmp_path / "env") or "")


def test_what_the_engine_asks_for():
    """Of channels under another name, frameworks that no channel has, and tokens."""
    from provision.conda.worker import channels

    ways = [
        [
            "torch",
            [{"channel": "conda-forge", "specs": ["pytorch 2.*"]}, {"channel": "other", "specs": ["torch"]}],
        ],
        ["jax", [{"channel": "conda-forge", "specs": ["jax", "jaxlib *cuda*"]}]],
    ]
    attempt = {"python": "python 3.12.*", "frameworks": ways, "packages": ["pip", "gone"]}
    assert channels._choose(attempt, {"jaxlib", "gone"}, {"other"}) == (
        ["python 3.12.*", "torch", "pip"],
        ["jax"],
    )
    known = {"h": {"CondaToken": "tk-1"}, "*.org": {"BasicHTTP": {"username": "me", "password": "a b"}}}
    assert channels._authorize("https://h/c/noarch", known) == "https://h/t/tk-1/c/noarch"
    assert channels._authorize("https://x.org/c", known) == "https://me:a%20b@x.org/c"


def test_a_channel_without_python_is_named(monkeypatch):
    answer = {"missing": ["python"], "channels": ["https://h/c"], "lacking": []}
    monkeypatch.setattr(solver.engine, "ask", lambda *_: answer)
    with pytest.raises(LockError, match="the channels have no python for linux-64: https://h/c"):
        solver.solve(asked_for(), drop_event)


def test_each_bound_of_a_request_is_an_alternative():
    request = Request(
        frameworks=(FrameworkRequest(name="torch", specifier=">=9"),),
        device="cuda",
        cuda="12.6",
        python="3.12",
    )
    told = dict(solver.list_alternatives(asked_for(request), KNOWN))
    assert told["remove --cuda to allow another CUDA"].request.cuda is None
    freed = told["remove >=9 from --framework torch to allow another version"].request
    assert (freed.frameworks, freed.cuda) == ((FrameworkRequest(name="torch"),), "12.6")


def locked(depends=(), cuda="12.9"):
    build = PlannedBuild(framework="torch", version="2.8.0", cuda=cuda, index="conda-forge", requirements=())
    plan = Plan(
        builds=(build,), python="3.11", platform="linux-x86_64", manager="conda", device="cuda", target=H200
    )
    package = LockedPackage(
        name="pytorch", version="2.8.0", url="https://h/c/linux-64/p-1-0.conda", depends=tuple(depends)
    )
    return Lock(manager="conda", target=H200, plan=plan, packages=(package,))


@rows(
    ("depends", "bounds", "told"),
    [
        (["__glibc >=2.36,<3.0.a0"], {}, "pytorch 2.8.0 needs __glibc >=2.36"),
        (
            ["__cuda"],
            {"cuda": "12.2"},
            "its CUDA 12.9 is newer than CUDA 12.2, the newest version that the driver supports",
        ),
        (["__osx >=11"], {}, "needs __osx >=11"),
        ([], {"oldest": "12.10"}, "does not support this GPU"),
        ([], {"newest": "11.8"}, "does not support this GPU"),
        (
            ["__glibc >=2.17,<3.0.a0", "__cuda >=12", "__archspec 1.* *", "python 3.11.*"],
            {"cuda": "13.0"},
            None,
        ),
    ],
)
def test_a_lock_is_held_against_the_machine(depends, bounds, told):
    here = solver.virtual_packages(H200, cuda="13.0", kernel=None, archspec=None)
    if told is None:
        foreign.check_target(locked(depends), here, solver.Bounds(**bounds))
    else:
        with pytest.raises(LockError, match=told):
            foreign.check_target(locked(depends), here, solver.Bounds(**bounds))


def test_a_channel_under_another_name_follows_conda_forges_names():
    rows = (
        CondaBuild(
            framework="torch", channel="conda-forge", package="pytorch", device="cuda", build="*cuda*"
        ),
        CondaBuild(framework="torch", channel="other", package="torch", device="cuda", build="gpu*"),
    )
    (row,) = solver.select_rows("torch", "cuda", ["https://host/other/"], rows)
    assert row.package == "torch"
    assert solver.select_rows("torch", "cuda", ["https://host/mirror/"], rows)[0].package == "pytorch"


def test_conda_locks_are_read_without_conda_locks_command(tmp_path):
    """Its solvers and what they embed take longer to import than all that a lock needs."""
    (tmp_path / "lock.yml").write_text("version: 1\n")
    code = (
        "import sys\nfrom pathlib import Path\nfrom provision.errors import LockError\n"
        "from provision.conda import locks\n"
        f"try:\n    locks.read(Path({str(tmp_path / 'lock.yml')!r}), 'linux-x86_64', ())\nexcept LockError as error:\n    print(error)\n"
        "print(*sorted({'conda_lock.conda_lock', 'conda_lock.pypi_solver', 'ensureconda'} & set(sys.modules)))\n"
        "import conda_lock.lockfile\nprint(conda_lock.lockfile.parse_conda_lock_file.__module__)"
    )
    done = run_program([sys.executable, "-c", code], check=True)
    assert done.stdout.splitlines()[-2:] == ["", "conda_lock.lockfile"]


def test_a_folder_called_t_is_no_token():
    from provision.conda.worker.channels import strip_url

    assert strip_url("file:///x/t/mine/noarch/a-1-0.conda") == "file:///x/t/mine/noarch/a-1-0.conda"
    assert strip_url("https://u:p@host/t/TOKEN/c/noarch/a.conda") == "https://host/c/noarch/a.conda"
