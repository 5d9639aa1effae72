"""Whose code runs: commands that read run none, `lock` and `create` name it first, `--no-build` forbids it.

Every backend here leaves a mark when it is started, whichever of its hooks is called.
"""

import project_packages
import pytest
import tomli
from environment_facts import HERE, ok, refused
from made_env import jax_env
from marked_builds import Marks

CPU = ("--device", "cpu", "--python", HERE)


@pytest.fixture
def marks(tmp_path, gpuenv):
    (tmp_path / "work" / "code").mkdir(parents=True)
    return Marks(tmp_path / "work" / "code", gpuenv.env["HOME"])


@pytest.fixture
def jax(gpuenv, index):
    """An index with jax for the CPU, and a package without requirements."""
    plan = gpuenv("resolve", "--json", "--framework", "jax", *CPU).json
    index.add_plan(plan)
    index.add("plain", "1.0")
    gpuenv.env["PIP_INDEX_URL"] = index.url


def asks(gpuenv, *lines):
    (gpuenv.work / "requirements.txt").write_text("\n".join(lines) + "\n")


# --- commands that read ------------------------------------------------------------------------------


@pytest.fixture
def everything(gpuenv, index, jax, marks):
    """A project that asks for code of each kind, and for what brings jax."""
    index.add("brings", "1.0", requires=("jax",))
    marks.archive(index, "archived")
    folder, editable = marks.project("folder"), marks.project("editable")
    asks(
        gpuenv, "brings", "archived", f"{folder}", f"-e {editable}", f"committed @ {marks.commit('committed')}",
        marks.commit("unnamed"),
    )  # fmt: skip
    marks._code(gpuenv.work, "mine", True, ())
    (gpuenv.work / "setup.py").write_text(f"open({str(marks.folder / 'mark-setup')!r}, 'w').close()\n")


@pytest.mark.parametrize("framework", [(), ("--framework", "jax")])
def test_resolve_runs_no_code_and_says_what_it_did_not_read(gpuenv, everything, marks, framework):
    ran = ok(gpuenv("resolve", *CPU, "-r", "requirements.txt", "--json", *framework))
    assert [b["framework"] for b in ran.json["builds"]] == ["jax"]
    assert marks.left() == []
    if not framework:
        told = " ".join(ran.err.split())
        for name in ("folder", "editable", "committed", "archived", "unnamed"):
            assert name in told, name
        assert "requirements.txt line 3" in told and told.count("runs no build code") == 5


def test_where_only_code_would_tell_the_framework_resolve_says_so(gpuenv, jax, marks):
    asks(gpuenv, str(marks.project("folder", requires=("jax",))))
    ran = gpuenv("resolve", *CPU, "-r", "requirements.txt")
    told = " ".join(ran.err.split())
    assert ran.code == 2 and "no package with readable metadata requires one" in told
    assert "--framework torch (or tensorflow, jax, onnxruntime)" in told and marks.left() == []


def test_requirements_that_the_files_state_are_read_completely(gpuenv, jax, marks):
    static = marks.project("static", dynamic=False, requires=("jax",))
    asks(gpuenv, f"-e {static}")
    ran = ok(gpuenv("resolve", *CPU, "-r", "requirements.txt", "--json"))
    assert [b["framework"] for b in ran.json["builds"]] == ["jax"]
    assert "left out" not in ran.err and marks.left() == []


# --- commands that may run it ------------------------------------------------------------------------


def test_lock_names_whose_code_it_runs_and_runs_no_other(gpuenv, jax, index, marks):
    marks.archive(index, "archived")
    folder, static = marks.project("folder"), marks.project("static", dynamic=False)
    commit = marks.commit("committed")
    asks(gpuenv, "plain", "archived", f"-e {folder}", str(static), f"committed @ {commit}")
    ran = ok(gpuenv("lock", "--framework", "jax", *CPU, "-r", "requirements.txt"))
    assert marks.left() == ["archived", "committed", "folder"]
    told = " ".join(ran.err.split())
    for name in ("archived", "committed", "folder"):
        assert told.count(f"uv runs the build code of {name}") == 1, told
    assert told.count("build code") == 3


def test_the_package_is_named_before_its_build_code_runs(gpuenv, jax, marks):
    folder = marks.project("folder")
    with (folder / "backend.py").open("a") as file:
        file.write("raise SystemExit('backend ran')\n")
    asks(gpuenv, str(folder))
    ran = gpuenv("lock", "--framework", "jax", *CPU, "-r", "requirements.txt")
    assert ran.code == 6 and marks.left() == ["folder"]
    assert ran.err.index("uv runs the build code of folder") < ran.err.index("backend ran")


@pytest.mark.parametrize(
    ("verb", "kind", "options"),
    [
        ("lock", "folder", (("--no-build",), ("--only-binary", ":all:"))),
        pytest.param("lock", "committed", (("--no-build",),), marks=pytest.mark.slow),
        ("lock", "archived", (("--no-build",), ("--only-binary", "archived"), ("--only-binary", ":all:"))),
        ("create", "folder", (("--no-build",), ("--only-binary", "folder"))),
        pytest.param("create", "archived", (("--no-build",),), marks=pytest.mark.slow),
        ("bundle", "committed", (("--no-build",),)),
    ],
)
def test_no_build_forbids_it_and_names_what_could_not_be_read(gpuenv, jax, index, marks, verb, kind, options):
    if kind == "archived":
        marks.archive(index, kind)
        asks(gpuenv, kind)
    else:
        asks(gpuenv, f"-e {marks.project(kind)}" if kind == "folder" else f"{kind} @ {marks.commit(kind)}")
    where = ("out",) if verb == "bundle" else ()
    for option in options:
        ran = refused(gpuenv(verb, *where, "--framework", "jax", *CPU, "-r", "requirements.txt", *option), 6)
        told = " ".join(ran.err.split())
        assert kind in told and f"{' '.join(option)} forbids" in told and "hint:" in told
    ran = gpuenv(verb, *where, *CPU, "-r", "requirements.txt", "--no-build")  # no framework is named
    assert ran.code == 6 and "--no-build forbids" in " ".join(ran.err.split())
    assert marks.left() == []
    assert not (gpuenv.work / "pylock.toml").exists() and not (gpuenv.work / ".venv").exists()


def test_the_setting_uv_no_build_forbids_building_too(gpuenv, jax, marks):
    asks(gpuenv, f"-e {marks.project('folder')}")
    ask = ("lock", "--framework", "jax", *CPU, "-r", "requirements.txt")
    for name, value in (("UV_NO_BUILD", "1"), ("UV_NO_BUILD_PACKAGE", "folder")):
        gpuenv.env[name] = value
        assert "forbids" in refused(gpuenv(*ask), 6).err and marks.left() == []
        del gpuenv.env[name]


def test_no_build_takes_what_files_state_and_create_does_not_build_it(gpuenv, jax, marks):
    static = marks.project("static", dynamic=False, requires=("plain",))
    asks(gpuenv, f"-e {static}")
    ask = ("--framework", "jax", *CPU, "-r", "requirements.txt", "--no-build")
    ok(gpuenv("lock", *ask))
    assert "static" in (gpuenv.work / "pylock.toml").read_text()
    for more in (ask, ("--locked", "--no-build")):
        ran = gpuenv("create", "--no-verify", *more)
        assert ran.code == 7 and "--no-build forbids builds: static" in " ".join(ran.err.split()), ran.err
        assert not (gpuenv.work / ".venv").exists()
    assert marks.left() == []


def test_add_runs_no_code_with_no_build(gpuenv, index, marks):
    jax_env(gpuenv, index)
    marks.archive(index, "archived")
    ran = gpuenv("add", "archived", "--no-build", "--no-verify")
    assert ran.code == 6 and "--no-build forbids" in " ".join(ran.err.split()), ran.err
    assert marks.left() == []
    ran = ok(gpuenv("add", "archived", "--no-verify"))
    assert "archived 1.0 has no wheel" in " ".join(ran.err.split()) and marks.left() == ["archived"]


def test_an_older_wheel_in_place_of_a_build_is_named_with_the_option(gpuenv, jax, index, marks, golden):
    """A newer `needy` requires what has no wheel, and the newest `plain` has none itself."""
    index.add("needy", "1.0")
    index.add("needy", "2.0", requires=("archived==1.*",))
    marks.archive(index, "archived")
    marks.stated(index, "plain", "2.0", ())
    asks(gpuenv, "needy", "plain")
    ran = ok(gpuenv("lock", "--json", "--framework", "jax", *CPU, "-r", "requirements.txt", "--no-build"))
    locked = {p["name"]: p["version"] for p in ran.json["packages"]}
    assert (locked["needy"], locked["plain"]) == ("1.0", "1.0")
    golden("lock", "\n".join(line for line in ran.err.splitlines() if line.startswith("warning:")))
    assert marks.left() == []


def test_only_binary_leaves_other_packages_alone(gpuenv, jax, index, marks):
    marks.archive(index, "archived")
    asks(gpuenv, "archived")
    ok(gpuenv("lock", "--framework", "jax", *CPU, "-r", "requirements.txt", "--only-binary", "plain"))
    assert marks.left() == ["archived"]


def test_a_source_without_compiled_code_is_taken_rather_than_an_older_wheel(gpuenv, jax, index, marks):
    marks.archive(index, "archived")
    index.add("archived", "0.9")
    ran = ok(gpuenv("lock", "--framework", "jax", "--with", "archived", *CPU))
    locked = {
        p["name"]: p["version"] for p in tomli.loads((gpuenv.work / "pylock.toml").read_text())["packages"]
    }
    assert locked["archived"] == "1.0" and "archived 1.0 has no wheel" in " ".join(ran.err.split())


def test_where_nothing_may_be_built_an_older_wheel_is_taken(gpuenv, jax, index, marks):
    marks.archive(index, "archived")
    index.add("archived", "0.9")
    for option in (("--no-build",), ("--only-binary", "archived")):
        ran = gpuenv("lock", "--framework", "jax", "--with", "archived", *option, *CPU, "--force")
        assert ran.code == 0 and marks.left() == [], ran.err
        assert 'version = "0.9"' in (gpuenv.work / "pylock.toml").read_text()


def test_the_message_does_not_show_credentials_of_an_address(gpuenv, jax, marks, tmp_path):
    folder = marks.project("committed")
    path = project_packages.committed(folder)
    asks(gpuenv, f"committed @ git+file://me:hunter2@localhost{path}")
    ran = gpuenv("lock", "--framework", "jax", *CPU, "-r", "requirements.txt", "--no-build")
    assert ran.code == 6 and "hunter2" not in ran.err + ran.out


def test_the_python_is_no_more_than_two_years_newer_than_an_archive(gpuenv, index, marks):
    arm = ("--device", "cpu", "--platform", "linux-aarch64", "--glibc", "2.39", "--json")
    index.add_plan(gpuenv("resolve", "--framework", "jax", *arm).json)
    marks.archive(index, "archived")
    index.uploaded = "2026-10-01T00:00:00Z"
    gpuenv.env["PIP_INDEX_URL"] = index.url
    pythons = {}
    for day in ("2022-12-01", "2024-06-01", "2026-01-01"):
        index.uploads = {"archived-1.0.tar.gz": f"{day}T00:00:00Z"}
        ran = gpuenv("lock", "-f", "jax", "--with", "archived", *arm, "-o", f"{day}.toml")
        pythons[day] = ran.json["plan"]["python"]
        named = f"Python {pythons[day]} in place of 3.15: archived 1.0 of {day}"
        assert (named in " ".join(ran.err.split())) == (pythons[day] != "3.15")
    assert pythons == {"2022-12-01": "3.13", "2024-06-01": "3.14", "2026-01-01": "3.15"}


def test_the_solution_with_an_older_python_is_compared_with_others_too(gpuenv, index, marks):
    arm = ("--device", "cpu", "--platform", "linux-aarch64", "--glibc", "2.39", "--json")
    newest = gpuenv("resolve", "-f", "jax", *arm).json
    older = gpuenv("resolve", "-f", f"jax<{newest['builds'][0]['version']}", *arm).json
    for plan in (newest, older):
        index.add_plan(plan)
    marks.archive(index, "archived")
    index.uploaded, index.uploads = "2026-10-01T00:00:00Z", {"archived-1.0.tar.gz": "2022-12-01T00:00:00Z"}
    index.add("serving", "2.0", requires=(f"jax=={older['builds'][0]['version']}",))
    index.add("serving", "1.0")
    gpuenv.env["PIP_INDEX_URL"] = index.url
    ran = ok(gpuenv("lock", "-f", "jax", "--with", "archived", "--with", "serving", *arm))
    locked = {p["name"]: p["version"] for p in ran.json["packages"]}
    assert (ran.json["plan"]["python"], locked["serving"]) == ("3.13", "2.0")
