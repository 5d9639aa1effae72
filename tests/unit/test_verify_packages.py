"""Stage `packages`: reading nominates as the loader would refuse, importing decides, the finding names the fix."""

import json
import os
import sys

import pytest
from elf_files import library, module, package
from framework_envs import venv, write_jax
from programs import run_program

from provision.environment import loader
from provision.model import DlopenedLibrary, Environment, OptionalLibraries, Profiles
from provision.profiles import load
from provision.system.elf import read_elf
from provision.verify.libraries import PythonPaths
from provision.verify.packages import read_packages

VERSION = "{}.{}.{}".format(*sys.version_info)
TAG = f"cpython-{sys.version_info[0]}{sys.version_info[1]}-x86_64-linux-gnu"


@pytest.fixture
def made(tmp_path):
    return venv(tmp_path / "env")


def paths(site, prefix):
    return PythonPaths(prefix=str(prefix), version=VERSION, sites=(str(site),), roots=())


def of(python):
    return Environment(path=str(python.parents[1]), manager="venv", python=str(python))


def nominated(env, site, opened=(), optional=(), **environ):
    plain = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    known = Profiles(opened_libraries=opened, optional_libraries=optional)
    reading = read_packages(of(env / "bin/python"), paths(site, env), {**plain, **environ}, known)
    assert reading.unread is None
    return {n.package.name: n for n in reading.doubtful}


def imports(env, name, **environ):
    """What Python itself says of a module: None, or the error."""
    done = run_program([env / "bin/python", "-c", f"import {name}"], env={**os.environ, **environ})
    return (
        None
        if done.returncode == 0
        else (done.stderr or f"status {done.returncode}").strip().splitlines()[-1]
    )


def lib(folder, name, **how):
    return library(folder / name, **how)


CASES = {
    # name: (options of the module, where its library is put, whether it loads)
    "nowhere": ({}, None, False),
    "runpath": ({"runpath": "$ORIGIN/../pkg.libs"}, "pkg.libs", True),
    "runpath in braces": ({"runpath": "${ORIGIN}/../pkg.libs"}, "pkg.libs", True),
    "rpath": ({"rpath": "$ORIGIN/../pkg.libs"}, "pkg.libs", True),
    "second folder": ({"runpath": "/none:$ORIGIN/../pkg.libs"}, "pkg.libs", True),
    "another folder": ({"runpath": "$ORIGIN/other"}, "pkg.libs", False),
}


@pytest.mark.parametrize("case", CASES)
def test_a_library_is_found_where_the_loader_finds_it(made, tmp_path, case):
    env, site = made
    options, folder, loads = CASES[case]
    needed = lib(tmp_path / "build", "libgpuenv_dep.so.1")
    mine = module(site / "pkg" / f"core.{TAG}.so", needs=[needed], **options)
    if folder:
        (site / folder).mkdir()
        needed.rename(site / folder / needed.name)
    else:
        needed.unlink()
    package(site, "pkg", "1.0", [mine], modules={"pkg/__init__.py": "from . import core\n"})
    assert (imports(env, "pkg") is None) == loads
    assert ("pkg" not in nominated(env, site)) == loads


def test_a_library_of_a_library_is_looked_up_by_its_own_path_and_by_inherited_rpath(made, tmp_path):
    env, site = made
    deep = lib(site / "p.libs", "libgpuenv_deep.so")
    for name, style, loads in (("by_rpath", "rpath", True), ("by_runpath", "runpath", False)):
        middle = lib(site / f"{name}.libs", f"lib{name}_middle.so", needs=[deep])
        folders = f"$ORIGIN/{name}.libs:$ORIGIN/p.libs"
        mine = module(site / f"{name}.{TAG}.so", needs=[middle], **{style: folders})
        package(site, name, "1", [mine, middle])
        assert (imports(env, name) is None) == loads  # a RUNPATH serves its own file only
        assert (name.replace("_", "-") not in nominated(env, site)) == loads


def test_the_loaders_variable_is_searched_before_runpath_and_after_rpath(made, tmp_path):
    env, site = made
    needed = lib(tmp_path / "given", "libgpuenv_given.so")
    mine = module(site / f"wants.{TAG}.so", needs=[needed])
    package(site, "wants", "1", [mine])
    variables = {"LD_LIBRARY_PATH": f"/none:{needed.parent}"}
    assert imports(env, "wants") and "wants" in nominated(env, site)
    assert imports(env, "wants", **variables) is None and not nominated(env, site, **variables)


def test_versioned_symbols_are_compared_with_what_the_library_defines(made, tmp_path):
    env, site = made
    new, old = tmp_path / "new.map", tmp_path / "old.map"
    new.write_text("DEP_1 { global: gpuenv_one; }; DEP_2 { global: gpuenv_two; } DEP_1;")
    old.write_text("DEP_1 { global: gpuenv_one; };")
    source = "int gpuenv_one(void) { return 1; } int gpuenv_two(void) { return 2; }"
    built = lib(tmp_path / "build", "libgpuenv_v.so", source=source, more=[f"-Wl,--version-script={new}"])
    use = "int gpuenv_two(void); int use(void) { return gpuenv_two(); }"
    middle = lib(site / "v.libs", "libgpuenv_use.so", needs=[built], source=use, runpath="$ORIGIN")
    mine = module(site / f"v.{TAG}.so", needs=[middle], runpath="$ORIGIN/v.libs")
    package(site, "v", "1", [mine])
    one = "int gpuenv_one(void) { return 1; }"
    lib(site / "v.libs", "libgpuenv_v.so", source=one, more=[f"-Wl,--version-script={old}"])
    assert "DEP_2" in imports(env, "v")
    problem = nominated(env, site)["v"].problems[0]
    assert (problem.kind, problem.library, problem.detail) == ("version", "libgpuenv_v.so", "DEP_2")
    lib(site / "v.libs", "libgpuenv_v.so", source=source, more=[f"-Wl,--version-script={new}"])
    assert imports(env, "v") is None and not nominated(env, site)


def test_what_a_required_package_has_loaded_satisfies_a_need(made):
    """As torchvision needs libtorch.so, which it has no path to."""
    env, site = made
    shared = lib(site / "base" / "lib", "libgpuenv_base.so")
    core = module(site / "base" / f"core.{TAG}.so", needs=[shared], runpath="$ORIGIN/lib")
    package(site, "base", "1", [shared, core], modules={"base/__init__.py": "from . import core\n"})
    mine = module(site / "top" / f"ops.{TAG}.so", needs=[shared])
    package(
        site,
        "top",
        "1",
        [mine],
        requires=["base>=1"],
        modules={"top/__init__.py": "import base\nfrom . import ops\n"},
    )
    alone = module(site / f"alone.{TAG}.so", needs=[shared])
    package(site, "alone", "1", [alone])
    assert imports(env, "top") is None and imports(env, "alone")
    assert set(nominated(env, site)) == {"alone"}


def test_a_package_that_searches_nvidias_wheels_finds_what_they_have(made, tmp_path):
    """As cupy, which requires cuda-pathfinder and loads libcublas.so with it before its own module."""
    env, site = made
    blas = lib(site / "nvidia" / "lib", "libgpuenv_blas.so")
    gone = lib(tmp_path, "libgpuenv_solver.so")
    package(site, "nvidia-blas", "1", [blas])
    package(site, "cuda-pathfinder", "1", [], modules={"pathfinder.py": ""})
    files = [module(site / "arrays" / f"blas.{TAG}.so", needs=[blas]),
             module(site / "arrays" / f"solver.{TAG}.so", needs=[gone])]  # fmt: skip
    gone.unlink()
    package(site, "arrays", "1", files, requires=["cuda-pathfinder>=1"])
    other = module(site / f"other.{TAG}.so", needs=[blas])
    package(site, "other", "1", [other], requires=["arrays"])
    found = nominated(env, site)
    assert {n: [p.library for p in found[n].problems] for n in found} == {
        "arrays": ["libgpuenv_solver.so"], "other": ["libgpuenv_blas.so"],
    }  # fmt: skip


def test_the_suffix_decides_which_files_are_modules(made, tmp_path):
    env, site = made
    gone = lib(tmp_path, "libgpuenv_gone.so")
    files = {
        "tagged": module(site / "m" / f"tagged.{TAG}.so", needs=[gone]),
        "stable": module(site / "m" / "stable.abi3.so", needs=[gone]),
        "plain": module(site / "m" / "plain.so", needs=[gone]),
    }
    other = module(site / "m" / "old.cpython-27-x86_64-linux-gnu.so", needs=[gone])
    opened = lib(site / "m", "nomodule.so", needs=[gone])
    gone.unlink()
    package(site, "m", "1", [*files.values(), other, opened], modules={"m/__init__.py": ""})
    found = nominated(env, site)["m"]
    assert set(found.modules) == {"m.tagged", "m.stable", "m.plain"}
    assert {p.file for p in found.problems} == {str(f) for f in (*files.values(), opened)}


def test_one_of_several_libraries_that_a_package_opens_is_enough(made, tmp_path):
    env, site = made
    gone = [lib(tmp_path, f"libgpuenv_cuda{n}.so") for n in (11, 12)]
    files = [lib(site / "alt", f"libalt_cuda{n}.so", needs=[g]) for n, g in zip((11, 12), gone, strict=True)]
    fine = lib(site / "alt", "libalt_cpu.so")
    for path in gone:
        path.unlink()
    package(site, "alt", "1", [*files, fine], modules={"alt/__init__.py": ""})
    assert not nominated(env, site)
    fine.write_bytes(b"")
    found = nominated(env, site)["alt"]
    assert {p.library for p in found.problems if p.kind == "missing"} == {
        "libgpuenv_cuda11.so",
        "libgpuenv_cuda12.so",
    }
    assert not found.modules


def test_a_plug_in_beside_a_library_that_others_need_is_no_need(made, tmp_path):
    """As libcufile_rdma.so.1 beside libcufile.so.0, which torch needs."""
    env, site = made
    gone = lib(tmp_path, "libgpuenv_rdma.so")
    shared = lib(site / "wheel" / "lib", "libgpuenv_file.so")
    plugin = lib(site / "wheel" / "lib", "libgpuenv_file_rdma.so", needs=[gone])
    alone = lib(site / "lone" / "lib", "libgpuenv_lone.so", needs=[gone])
    gone.unlink()
    core = module(site / f"core.{TAG}.so", needs=[shared], runpath="$ORIGIN/wheel/lib")
    package(site, "core", "1", [core])
    package(site, "wheel", "1", [shared, plugin])
    package(site, "lone", "1", [alone])
    assert imports(env, "core") is None
    assert set(nominated(env, site)) == {"lone"}


def test_a_plug_in_finds_what_its_program_has_loaded_and_the_driver(made, tmp_path):
    """As the plug-ins of openmm-cuda-12 beside the libraries of openmm, which its metadata does not name."""
    env, site = made
    driver = lib(tmp_path, "libcuda.so.1")
    shared = lib(site / "program.libs" / "lib", "libgpuenv_program.so")
    base = lib(site / "program.libs" / "lib" / "plugins", "libgpuenv_base.so", needs=[shared, driver])
    plugin = lib(site / "program.libs" / "lib" / "plugins", "libgpuenv_plugin.so", needs=[shared, base])
    other = lib(site / "other.libs" / "lib" / "plugins", "libgpuenv_other.so", needs=[shared])
    driver.unlink()
    package(site, "program", "1", [shared])
    package(site, "plugin", "1", [base, plugin])
    package(site, "other", "1", [other])
    assert set(nominated(env, site)) == {"other"}


def test_libraries_that_are_opened_by_name_are_rows(made):
    env, site = made
    package(site, "sounds", "1", [], modules={"sounds.py": ""})
    rows = [
        DlopenedLibrary(
            package="sounds", library="libgpuenv_none.so.2 libgpuenv_none.so", bundled="sounds_data/lib"
        )
    ]
    assert nominated(env, site, rows)["sounds"].problems[0].library == "libgpuenv_none.so.2"
    there = [DlopenedLibrary(package="sounds", library="libc.so")]  # as libc.so.6
    assert not nominated(env, site, there)
    data = lib(site / "sounds_data", "libsounds.so")
    package(site, "sounds", "2", [data])
    assert "sounds" not in nominated(env, site, rows) or len(nominated(env, site, rows)) == 1


def test_libraries_of_optional_modules_alone_are_no_problem(made, tmp_path):
    """As numba tries its threading layers: without libtbb it takes another one."""
    env, site = made
    gone = [lib(tmp_path / "build", f"libgpuenv_{name}.so.12") for name in ("layer", "core")]
    layer = module(site / "fast" / f"layer.{TAG}.so", needs=[gone[0]])
    core = module(site / "fast" / f"core.{TAG}.so", needs=gone)
    other = module(site / "other" / f"layer.{TAG}.so", needs=[gone[0]])
    for path in gone:
        path.unlink()
    package(site, "fast", "1", [layer, core], modules={"fast/__init__.py": ""})
    package(site, "other", "1", [other], modules={"other/__init__.py": ""})
    rows = [OptionalLibraries(package="fast", libraries=("gpuenv_layer",))]
    found = nominated(env, site, optional=rows)
    assert found["fast"].modules == ("fast.core",)
    assert [p.library for p in found["fast"].problems] == ["libgpuenv_core.so.12"]
    assert found["other"].modules == ("other.layer",), "the row is of another package"
    assert set(nominated(env, site)["fast"].modules) == {"fast.layer", "fast.core"}
    assert {"tbb", "gomp"} == {
        n for row in load().optional_libraries if row.package == "numba" for n in row.libraries
    }


def test_a_file_that_is_cut_short_is_damaged(made):
    env, site = made
    mine = module(site / f"cut.{TAG}.so")
    package(site, "cut", "1", [mine])
    mine.write_bytes(mine.read_bytes()[:9000])
    problem = nominated(env, site)["cut"].problems[0]
    assert (problem.kind, problem.file) == ("damaged", str(mine))
    assert imports(env, "cut")


@pytest.mark.parametrize("how", ["searched", "named with its folder"])
def test_a_library_that_is_cut_short_is_named(made, tmp_path, how):
    env, site = made
    own = site / "cut.libs" / "libgpuenv_cut.so"
    needed = lib(own.parent, own.name, soname=str(own) if how != "searched" else None)
    mine = module(site / f"cut.{TAG}.so", needs=[needed], runpath="$ORIGIN/cut.libs")
    package(site, "cut", "1", [mine])
    assert imports(env, "cut") is None and not nominated(env, site)
    needed.write_bytes(needed.read_bytes()[:9000])
    problem = nominated(env, site)["cut"].problems[0]
    assert (problem.kind, problem.file, problem.found) == ("damaged", str(mine), str(own))
    assert imports(env, "cut")


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ("Deep>=1", "deep"),
        ("deep; python_version < '3'", None),
        ("not one", None),
        ("deep; platform == 'x'", None),
    ],
)
def test_a_requirement_that_cannot_be_read_requires_nothing(row, name):
    assert loader._name_if_required(row, VERSION) == name


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("/s/a/b.abi3.so", ("a.b", True)),
        ("/s/a/b.so", ("a.b", False)),
        ("/s/a/b-c.so", None),
        ("/other/b.so", None),
    ],
)
def test_a_module_is_a_file_that_python_imports(path, module):
    assert loader.parse_module(path, "/s", VERSION) == module


def test_symbols_of_a_torch_that_cannot_be_read_are_unknown(tmp_path):
    torch = lib(tmp_path, "libtorch.so")
    use = "void aoti_torch_gone(void); void use(void) { aoti_torch_gone(); }"
    mine = lib(tmp_path, "libuse.so", needs=[torch], source=use)
    node = loader.LoadedFile(str(mine), read_elf(mine), ())
    installed = loader.Package("torch", "2.9.0", str(tmp_path), (str(torch),))
    (problem,) = loader.find_undefined(node, installed)
    assert (problem.kind, problem.detail) == ("symbol", "aoti_torch_gone")
    torch.write_bytes(torch.read_bytes()[:9000])
    assert loader.find_undefined(node, installed) == []


def test_a_python_of_another_libc_is_not_judged(tmp_path, made):
    _, site = made
    program = tmp_path / "musl"
    source = 'const char loader[] __attribute__((section(".interp"))) = "/lib/ld-musl-x86_64.so.1";'
    library(program, source=source)
    reading = read_packages(of(program), paths(site, tmp_path), {}, Profiles())
    assert not reading.doubtful and "glibc" in reading.unread


# --- the stage in a verdict ------------------------------------------------------------------------


@pytest.fixture
def with_jax(made):
    write_jax(made[1])
    return made


def stage_of(ran):
    return next(s for s in ran.json["stages"] if s["stage"] == "packages")


def rows_in(folder, **row):
    folder.mkdir()
    (folder / "system_libraries.yaml").write_text(
        '- table: "system_libraries"\n  source: "a test"\n  read: "2026-11-22"\n  rows:\n  - '
        + json.dumps(row) + "\n"
    )  # fmt: skip
    return str(folder)


def test_a_missing_library_is_a_warning_with_its_fix(gpuenv, with_jax, tmp_path):
    env, site = with_jax
    gone = lib(tmp_path / "build", "libgpuenv_none.so.1")
    mine = module(site / "pkg" / f"core.{TAG}.so", needs=[gone])
    gone.unlink()
    package(site, "pkg", "1.0", [mine], modules={"pkg/__init__.py": "from . import core\n"})
    rows = rows_in(tmp_path / "rows", soname="libgpuenv_none.so.1", deb="libnone1", rpm="none-libs")
    for options in (["--quick"], []):
        ran = gpuenv("verify", str(env), "--device", "cpu", "--json", "--profiles", rows, *options)
        stage = stage_of(ran)
        assert (stage["status"], ran.code) == ("warn", 0)  # gpuenv did not make it
        assert "pkg 1.0" in stage["detail"] and "libgpuenv_none.so.1" in stage["detail"]
        finding = next(f for f in ran.json["findings"] if f["cause"] == "system_library_missing")
        assert any(e["source"] == str(mine) for e in finding["evidence"])
        assert "libnone1" in finding["fix"] or "none-libs" in finding["fix"]
        said = any("cannot open shared object file" in e["text"] for e in finding["evidence"])
        assert said == (not options)  # --quick imports nothing
    assert gpuenv("verify", str(env), "--device", "cpu", "--quick", "--strict").code == 8


def test_a_package_that_imports_in_spite_of_a_missing_library_passes(gpuenv, with_jax, tmp_path):
    """The package opens the library itself before its module needs it."""
    env, site = with_jax
    data = lib(tmp_path / "elsewhere", "libgpuenv_pre.so")
    mine = module(site / "pre" / f"core.{TAG}.so", needs=[data])
    init = f"import ctypes\nctypes.CDLL({str(data)!r})\nfrom . import core\n"
    package(site, "pre", "1", [mine], modules={"pre/__init__.py": init})
    quick = stage_of(gpuenv("verify", str(env), "--device", "cpu", "--json", "--quick"))
    assert quick["status"] == "warn"
    whole = stage_of(gpuenv("verify", str(env), "--device", "cpu", "--json"))
    assert whole["status"] == "pass"


# --- conda -----------------------------------------------------------------------------------------


def test_packages_of_conda_are_read_from_their_records(made, tmp_path):
    """conda's packages need not have a RECORD; its libraries are in the prefix's lib folder."""
    env, site = made
    shared = lib(env / "lib", "libgpuenv_shared.so.3")
    gone = lib(tmp_path, "libgpuenv_gone.so")
    fine = module(site / "fine" / f"core.{TAG}.so", needs=[shared], rpath="$ORIGIN/../../..")
    lacks = module(site / "lacks" / f"core.{TAG}.so", needs=[shared, gone], rpath="$ORIGIN/../../..")
    gone.unlink()
    (env / "conda-meta").mkdir()
    for name, path in (("fine", fine), ("lacks", lacks)):
        rows = [{"_path": str(path.relative_to(env)), "path_type": "hardlink"}]
        data = {
            "name": name, "version": "2.1", "depends": ["pytorch >=2.5,<3", "python"], "paths_data": {"paths": rows}
        }  # fmt: skip
        (env / "conda-meta" / f"{name}-2.1-h0.json").write_text(json.dumps(data, indent=2))
    assert imports(env, "lacks.core") and imports(env, "fine.core") is None
    found = nominated(env, site)
    assert {str(n.package) for n in found.values()} == {"lacks 2.1"}
    assert [p.library for p in found["lacks"].problems] == ["libgpuenv_gone.so"]
    assert found["lacks"].package.requires_always(VERSION) == ("torch", "python")


def test_the_stage_only_reads_after_a_framework_failed(gpuenv, made, tmp_path):
    """The framework's import fails for what this stage finds: the finding names the package of the system."""
    env, site = made
    gone = lib(tmp_path / "build", "libgpuenv_none.so.1")
    mine = module(site / "torch" / f"core.{TAG}.so", needs=[gone])
    other = module(site / "pkg" / f"core.{TAG}.so", needs=[gone])
    gone.unlink()
    package(site, "torch", "2.6.0", [mine], modules={"torch/__init__.py": "from . import core\n"})
    ran_ = f"open({str(tmp_path / 'ran')!r}, 'w')\nfrom . import core\n"
    package(site, "pkg", "1.0", [other], modules={"pkg/__init__.py": ran_})
    rows = rows_in(tmp_path / "rows", soname="libgpuenv_none.so.1", deb="libnone1", rpm="none-libs")
    ran = gpuenv("verify", str(env), "--device", "cpu", "--json", "--profiles", rows)
    assert ran.code == 8 and ran.json["verdict"] == "fails"
    assert [s["status"] for s in ran.json["stages"] if s["stage"] == "framework"] == ["fail"]
    stage = stage_of(ran)
    assert stage["status"] == "warn" and "torch 2.6.0 needs libgpuenv_none.so.1" in stage["detail"]
    assert any("libnone1" in (f["fix"] or "") for f in ran.json["findings"])
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("folder", "requires", "missing"),
    [("cuda_runtime", ("torch",), False), ("cuda_runtime", (), True), ("elsewhere", ("torch",), True)],
)
def test_torch_loads_the_libraries_of_nvidias_wheels_for_what_requires_it(
    made, tmp_path, folder, requires, missing
):
    """Seen on an H200: xformers for CUDA 12 loads beside torch for CUDA 13 where nvidia-cuda-runtime-cu12 is there."""
    env, site = made
    gone = library(tmp_path / "build" / "libcudart.so.12")
    mine = module(site / "former" / f"core.{TAG}.so", needs=[gone])
    gone.unlink()
    package(site, "former", "1", [mine], modules={"former/__init__.py": ""}, requires=requires)
    package(site, "torch", "2", [], modules={"torch/__init__.py": ""})
    package(
        site, "nvidia-cuda-runtime-cu12", "12", [lib(site / "nvidia" / folder / "lib", "libcudart.so.12")]
    )
    assert ("former" in nominated(env, site)) == missing
