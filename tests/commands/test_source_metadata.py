"""Packages that have no wheel: uv builds what it considers, and archives state it for `resolve` or where that fails.

Every backend here leaves a mark when it is started, whichever of its hooks is called.
"""

import project_packages
import pytest
import tomli
from environment_facts import HERE, ok, refused
from loopback import Index, serving, wheel_bytes
from made_env import jax_env
from marked_builds import Marks

CPU = ("--device", "cpu", "--python", HERE)


@pytest.fixture
def marks(tmp_path, gpuenv):
    (tmp_path / "code").mkdir()
    return Marks(tmp_path / "code", gpuenv.env["HOME"])


@pytest.fixture
def jax(gpuenv, index):
    """An index with jax for the CPU, and two packages without requirements."""
    plan = gpuenv("resolve", "--json", "--framework", "jax", *CPU).json
    index.add_plan(plan)
    index.add("plain", "1.0")
    index.add("other", "1.0")
    gpuenv.env["PIP_INDEX_URL"] = index.url


def locked(gpuenv):
    return {p["name"]: p for p in tomli.loads((gpuenv.work / "pylock.toml").read_text())["packages"]}


def ask(gpuenv, *packages):
    return ("--framework", "jax", *CPU, *(word for name in packages for word in ("--with", name)))


DYNAMIC = {"since": "2.2", "dynamic": ("Requires-Dist",)}
OLD = {"since": "1.2"}
FAILS = {**DYNAMIC, "fails": True}
IN_PLACE = "to learn its requirements: those that its source states are used"


# --- uv builds what it considers ----------------------------------------------------------------------


def test_what_a_build_says_is_solved_and_its_package_is_named(gpuenv, jax, index, marks):
    marks.stated(index, "built", "1.0", ("plain",), ("plain", "other>=1"), **DYNAMIC)
    ran = ok(gpuenv("lock", *ask(gpuenv, "built")))
    assert marks.left() == ["built"]
    told = " ".join(ran.err.split())
    assert "built 1.0 has no wheel" in told and "installed from source, which needs no compiler" in told
    assert told.count("uv runs the build code of built") == 1 and told.count("built 1.0") == 1
    held = locked(gpuenv)
    assert "plain" in held and "other" in held, "the build decides, and not PKG-INFO"
    assert "tool" not in held["built"], "nothing is to be compared"


def test_an_older_release_is_taken_where_the_newest_does_not_fit(gpuenv, jax, index, marks):
    marks.stated(index, "stated", "3.0", ("absent",), **DYNAMIC)
    marks.stated(index, "stated", "2.0", ("plain>=5",), **DYNAMIC)
    marks.stated(index, "stated", "1.0", ("plain",), **DYNAMIC)
    ok(gpuenv("lock", *ask(gpuenv, "stated")))
    assert locked(gpuenv)["stated"]["version"] == "1.0" and "plain" in locked(gpuenv)


def test_a_source_that_requires_an_older_framework_gets_it(gpuenv, jax, index, marks):
    newest = gpuenv("resolve", "--json", "--framework", "jax", *CPU).json["builds"][0]["version"]
    index.add_plan(gpuenv("resolve", "--json", "--framework", f"jax!={newest}", *CPU).json)
    marks.stated(index, "stated", "1.0", ("plain",), **DYNAMIC)
    marks.stated(index, "stated", "4.0", (f"jax<{newest}",), **DYNAMIC)
    ran = gpuenv("lock", *ask(gpuenv, "stated"), "--json")
    assert ran.code == 0 and locked(gpuenv)["stated"]["version"] == "4.0", ran.err
    (held,) = ran.json["held_back"]
    assert held["package"] == "jax" and held["because"] == f"stated 4.0 requires jax<{newest}"


def test_sources_that_require_other_sources_are_built_too(gpuenv, jax, index, marks):
    marks.stated(index, "first", "1.0", ("second", "plain"), **DYNAMIC)
    marks.stated(index, "second", "2.0", ("other",), **OLD)
    ran = gpuenv("lock", *ask(gpuenv, "first"))
    assert ran.code == 0 and marks.left() == ["first", "second"], ran.err
    assert {"first", "second", "plain", "other"} <= set(locked(gpuenv))


# --- resolve reads ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kinds", [DYNAMIC, pytest.param(OLD, marks=pytest.mark.slow)], ids=["dynamic", "old"]
)
def test_resolve_takes_what_archives_state_and_agrees_with_lock(gpuenv, jax, index, marks, kinds):
    newest = gpuenv("resolve", "--json", "--framework", "jax", *CPU).json["builds"][0]["version"]
    older = gpuenv("resolve", "--json", "--framework", f"jax!={newest}", *CPU).json
    index.add_plan(older)
    marks.stated(index, "stated", "3.0", ("absent",), **kinds)
    marks.stated(index, "stated", "2.0", ("plain>=5",), **kinds)
    marks.stated(index, "stated", "1.0", ("second",), **kinds)
    marks.stated(index, "second", "1.0", (f"jax<{newest}",), **kinds)
    ran = gpuenv("resolve", "--json", *ask(gpuenv, "stated"))
    assert ran.code == 0 and marks.left() == [], ran.out + ran.err
    assert ran.json["builds"] == older["builds"], "the requirements of sources decide"
    assert gpuenv("lock", *ask(gpuenv, "stated")).code == 0
    assert locked(gpuenv)["stated"]["version"] == "1.0"
    assert locked(gpuenv)["jax"]["version"] == older["builds"][0]["version"]


def test_resolve_leaves_out_what_states_nothing_and_says_so(gpuenv, jax, index, marks):
    marks.archive(index, "archived")
    ran = gpuenv("resolve", "--json", *ask(gpuenv, "archived", "plain"))
    told = " ".join(ran.err.split())
    assert ran.code == 0 and marks.left() == [], ran.out + ran.err
    assert "no file of archived 1.0 states its requirements" in told and "the package is left out" in told


# --- what archives state, where uv cannot build metadata ----------------------------------------------


@pytest.mark.parametrize(
    "kinds", [DYNAMIC, pytest.param(OLD, marks=pytest.mark.slow)], ids=["dynamic", "old"]
)
def test_stated_requirements_are_solved_where_metadata_cannot_be_built(gpuenv, jax, index, marks, kinds):
    requires = ("plain>=1.0", "other; python_version<'3'", "other; extra=='more'")
    marks.stated(index, "stated", "1.0", requires, fails=True, **kinds)
    ran = ok(gpuenv("lock", *ask(gpuenv, "stated")))
    told = " ".join(ran.err.split())
    assert told.count(f"uv cannot build stated {IN_PLACE}") == 1
    assert "stated 1.0 has no wheel" in told and "installed from source, which needs no compiler" in told
    assert "requirements are those of its PKG-INFO" in told
    held = locked(gpuenv)
    assert "plain" in held and "other" not in held
    assert held["stated"]["tool"]["gpuenv"]["depends"] == ["python", "plain >=1.0"]


def test_a_failed_build_is_the_reason_where_the_archive_states_nothing(gpuenv, jax, index):
    own = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    file, data = project_packages.sdist(
        "broken", "1.0", {"pyproject.toml": own, "backend.py": "import absent_helper\n"}
    )
    index.wheels["broken"] = {file: data}
    assert "No module named 'absent_helper'" in refused(gpuenv("lock", *ask(gpuenv, "broken")), 6).err
    file, data = project_packages.sdist("older", "1.0", {"setup.py": ""})  # its build needs setuptools
    index.wheels["older"] = {file: data}
    ran = gpuenv("lock", *ask(gpuenv, "older"))
    assert "setuptools was not found" in ran.err and "Did you mean setuptools" not in ran.err, ran.err


def test_what_is_built_has_to_require_what_its_source_states(gpuenv, jax, index, marks):
    marks.stated(index, "stated", "1.0", ("plain",), ("plain", "other>=1"), **FAILS)
    marks.stated(index, "extras", "1.0", ("plain", "other>=1; extra=='more'"), **FAILS)
    marks.stated(index, "marked", "1.0", ("plain>=1.0", "other; python_version<'3'"), **FAILS)
    marks.stated(index, "built", "1.0", ("plain",), ("plain", "other>=1"), **DYNAMIC)
    ok(gpuenv("lock", *ask(gpuenv, "stated")))
    ran = gpuenv("create", "--locked", "--no-verify")
    told = " ".join(ran.err.split())
    assert ran.code == 7, ran.err
    assert "the built stated 1.0 requires other >=1, plain; " in told
    assert "requirements of its source archive: plain" in told and "hint: lock again: gpuenv lock" in told
    assert not (gpuenv.work / ".venv").exists()
    # what was built is known from then on
    ok(gpuenv("lock", *ask(gpuenv, "stated", "extras[more]", "marked", "built")))
    held = locked(gpuenv)
    assert "other" in held
    assert held["extras"]["tool"]["gpuenv"]["depends"] == ["python", 'other >=1 ; extra == "more"', "plain"]
    ok(gpuenv("create", "--locked", "--no-verify"))


def test_a_difference_rolls_back_what_add_did(gpuenv, index, marks):
    jax_env(gpuenv, index)
    marks.stated(index, "stated", "1.0", ("more",), (), **FAILS)
    ran = gpuenv("add", "stated", "--no-verify")
    assert ran.code == 7 and "the built stated 1.0 requires no package" in " ".join(ran.err.split()), ran.err
    names = {
        p.name.partition("-")[0]
        for p in (gpuenv.work / ".venv").glob("lib/python3*/site-packages/*.dist-info")
    }
    assert "jax" in names and not names & {"stated", "more"}


# --- no build --------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", [("--no-build",), ("--only-binary", "stated"), ("--only-binary", ":all:")])
def test_no_build_stops_at_the_release_that_is_named(gpuenv, jax, index, marks, option):
    marks.stated(index, "stated", "2.0", ("plain",), **DYNAMIC)
    index.add("stated", "1.0")
    ran = gpuenv("lock", *ask(gpuenv, "stated==2.0"), *option)
    told = " ".join(ran.err.split())
    assert ran.code == 6 and "stated has no wheel" in told and f"{' '.join(option)} forbids" in told, ran.err
    assert not (gpuenv.work / "pylock.toml").exists() and marks.left() == []


def test_no_build_names_the_release_that_requires_a_source(gpuenv, jax, index, marks):
    marks.stated(index, "stated", "1.0", (), **DYNAMIC)
    index.add("brings", "2.0", requires=("stated>=1",))
    ran = gpuenv("lock", *ask(gpuenv, "brings==2.0"), "--no-build")
    told = " ".join(ran.err.split())
    assert ran.code == 6 and "stated has no wheel for Python" in told, ran.err
    assert "all versions of brings depend on stated" in told, ran.err


def test_an_older_python_and_framework_are_taken_where_a_compiler_is_spared(gpuenv, index):
    """matplotlib 3.5.2 of May 2022 has wheels up to Python 3.10, which torch 2.15 does not support."""
    gpuenv.env["PIP_INDEX_URL"] = index.url
    target = (
        "--framework",
        "torch",
        "--driver",
        "595.45.04",
        "--gpu",
        "H100",
        "--platform",
        "linux-aarch64",
        "--index",
        "pypi",
    )
    for python in ("3.13", "3.10"):
        index.add_plan(gpuenv("resolve", "--json", *target, "--python", python).json)
    setup = "from setuptools import setup, Extension\nsetup(ext_modules=[Extension('k', ['k.c'])])\n"
    files = {"PKG-INFO": project_packages.about("kernels", "1.0", since="2.2"), "setup.py": setup, "k.c": ""}
    file, data = project_packages.sdist("kernels", "1.0", files)
    index.add("kernels", "1.0")
    (wheel,) = index.wheels["kernels"].values()
    index.wheels["kernels"] = {file: data, "kernels-1.0-cp310-cp310-manylinux2014_aarch64.whl": wheel}
    index.uploaded = "2022-05-03T00:00:00Z"
    ran = ok(gpuenv("lock", "--json", *target, "--with", "kernels"))
    assert ran.json["plan"]["python"] == "3.10"
    assert not ran.json["plan"]["builds"][0]["version"].startswith("2.15")


def test_the_warning_says_what_compiling_needs(gpuenv, jax, index):
    setup = (
        "from setuptools import setup\nfrom torch.utils.cpp_extension import CUDAExtension\n"
        "setup(ext_modules=[CUDAExtension('k', ['csrc/k.cu', 'csrc/k.cpp'])])\n"
    )
    files = {
        "PKG-INFO": project_packages.about("kernels", "1.0", "plain", since="2.2"),
        "setup.py": setup, "csrc/k.cu": "", "csrc/k.cpp": "",
    }  # fmt: skip
    file, data = project_packages.sdist("kernels", "1.0", files)
    index.wheels["kernels"] = {file: data}
    ran = gpuenv("lock", *ask(gpuenv, "kernels"))
    told = " ".join(ran.err.split())
    assert ran.code == 0 and "plain" in locked(gpuenv), ran.err
    assert "warning: kernels 1.0 has no wheel" in told
    assert "which needs a compiler: setup.py uses CUDAExtension" in told


def test_an_older_wheel_in_place_of_what_has_to_be_compiled_has_its_reason(gpuenv, jax, index):
    setup = "from setuptools import Extension, setup\nsetup(ext_modules=[Extension('s', ['s.c'])])\n"
    for name in ("sampling", "brought"):
        files = {"PKG-INFO": project_packages.about(name, "2.0", since="2.2"), "setup.py": setup, "s.c": ""}
        file, data = project_packages.sdist(name, "2.0", files)
        index.wheels.setdefault(name, {})[file] = data
        index.add(name, "1.0")
    index.add("bringing", "1.0", requires=("brought",))
    ran = ok(gpuenv("lock", "--json", *ask(gpuenv, "sampling", "bringing")))
    versions = {p["name"]: p["version"] for p in ran.json["packages"]}
    assert (versions["sampling"], versions["brought"]) == ("1.0", "1.0")
    held = {h["package"]: h for h in ran.json["held_back"]}
    for name in ("sampling", "brought"):
        assert (held[name]["locked"], held[name]["newest"]) == ("1.0", "2.0")
        assert held[name]["because"].startswith(f"{name} 2.0 has no wheel for Python")
        assert "a build needs a compiler: " in held[name]["because"]
    assert ran.json["plan"]["held_back"] == ran.json["held_back"]


def test_a_lock_with_another_form_of_requirements_is_refused(gpuenv, jax, index, marks):
    marks.stated(index, "stated", "1.0", ("plain",), **FAILS)
    assert gpuenv("lock", *ask(gpuenv, "stated")).code == 0
    path = gpuenv.work / "pylock.toml"
    text = path.read_text()
    assert '"plain"' in text
    path.write_text(text.replace('    "plain",\n', '    "plain; rm",\n', 1))
    ran = gpuenv("create", "--locked", "--no-verify")
    assert ran.code == 6 and not (gpuenv.work / ".venv").exists(), ran.err


@pytest.mark.usefixtures("real_uv")
def test_a_package_of_one_index_is_read_there(gpuenv, jax, index, marks):
    with serving(Index()) as own:
        marks.stated(index, "stated", "1.0", ("plain",), **FAILS)
        marks.stated(own, "stated", "1.0", ("other",), **FAILS)
        (gpuenv.work / "pyproject.toml").write_text(
            '[project]\nname = "mine"\nversion = "1"\ndependencies = ["stated"]\n'
            f'[tool.uv.sources]\nstated = {{ index = "own" }}\n[[tool.uv.index]]\nname = "own"\nurl = "{own.url}"\n'
            "explicit = true\n[tool.uv]\npackage = false\n"
        )
        ok(gpuenv("lock", "--framework", "jax", *CPU, "--project", "."))
        assert "other" in locked(gpuenv) and "plain" not in locked(gpuenv)
        assert locked(gpuenv)["stated"]["index"] == own.url
        assert not [path for path in index.requests if path.endswith(".tar.gz")]


# --- releases that the index withdrew ----------------------------------------------------------------


def test_a_withdrawn_release_is_no_reason_for_sources(gpuenv, jax, index, marks):
    """uv says of a withdrawn release that it has no usable wheels, in a refusal which other packages cause."""
    index.add("gone", "1.0")
    index.add("many", "3.0", requires=("gone>=2",))
    index.add("many", "2.0", requires=("other<2",))
    index.add("many", "1.0", requires=("other<2",))
    for version in ("1.5", "1.7"):
        index.add("many", version)
        marks.stated(index, "many", version, (), **DYNAMIC)
    index.yanked = {file: "broken" for file in index.wheels["many"] if "-1.5" in file or "-1.7" in file}
    index.add("other", "2.0")
    index.add("other", "1.0")
    ran = ok(gpuenv("lock", "-v", *ask(gpuenv, "many", "other")))
    taken = locked(gpuenv)
    assert (taken["many"]["version"], taken["other"]["version"]) == ("2.0", "1.0"), ran.err
    assert "wheels" in taken["many"] and "no wheel" not in ran.err


def test_a_release_with_a_wheel_is_not_taken_from_source_for_the_sake_of_older_ones(
    gpuenv, jax, index, marks
):
    index.add("brings", "1.0", requires=("many",))
    index.add("many", "2.0", requires=("other<2",))
    for version in ("1.0", "2.0"):
        marks.stated(index, "many", version, ("other<2",), **DYNAMIC)
    for version in ("1.0", "2.0"):
        index.add("other", version)
    ran = ok(gpuenv("lock", "-v", *ask(gpuenv, "brings", "other")))
    taken = locked(gpuenv)
    assert (taken["many"]["version"], taken["other"]["version"]) == ("2.0", "1.0"), ran.err
    assert "wheels" in taken["many"] and "from source" not in ran.err
    before = (gpuenv.work / "pylock.toml").read_text()
    (gpuenv.work / "pylock.toml").unlink()
    again = gpuenv("lock", "-v", *ask(gpuenv, "brings", "other"))
    assert (gpuenv.work / "pylock.toml").read_text() == before, again.err


# --- the next run ------------------------------------------------------------------------------------


def again(gpuenv, *packages):
    """The lock of the same question once more, without the one that is there."""
    (gpuenv.work / "pylock.toml").unlink()
    return ok(gpuenv("lock", "-v", *ask(gpuenv, *packages)))


def test_a_wheel_in_a_folder_is_taken_beside_a_named_source(gpuenv, jax, index, marks, tmp_path):
    marks.stated(index, "first", "1.0", ("plain",), **DYNAMIC)
    marks.stated(index, "second", "1.0", ("plain",), **DYNAMIC)
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "second-1.0-py3-none-any.whl").write_bytes(wheel_bytes("second", "1.0"))
    links = ("--find-links", str(tmp_path / "wheels"))
    ok(gpuenv("lock", *ask(gpuenv, "first==1.0", "second==1.0"), *links))
    assert "sdist" in locked(gpuenv)["first"] and "wheels" in locked(gpuenv)["second"]


def test_a_wheel_that_is_there_by_now_is_taken(gpuenv, jax, index, marks):
    marks.stated(index, "stated", "1.0", (), **DYNAMIC)
    assert gpuenv("lock", *ask(gpuenv, "stated==1.0")).code == 0
    assert "sdist" in locked(gpuenv)["stated"]
    index.add("stated", "1.0")
    again(gpuenv, "stated==1.0")
    assert "wheels" in locked(gpuenv)["stated"]


def test_another_lock_of_the_same_sources_is_the_same(gpuenv, jax, index, marks):
    marks.archive(index, "archived")
    marks.stated(index, "stated", "1.0", ("plain",), **FAILS)
    assert gpuenv("lock", *ask(gpuenv, "archived", "stated")).code == 0
    before = (gpuenv.work / "pylock.toml").read_text()
    again(gpuenv, "archived", "stated")
    assert (gpuenv.work / "pylock.toml").read_text() == before
    marks.stated(index, "archived", "2.0", ("plain",), **DYNAMIC)
    again(gpuenv, "archived", "stated")
    assert locked(gpuenv)["archived"]["version"] == "2.0"
