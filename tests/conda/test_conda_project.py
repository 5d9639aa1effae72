"""What a project asks for decides a conda environment as it decides a venv: bounds bind the solver, the
rest comes as wheels on top, and a changed file is followed in place. Python is real, jax is not."""

import asyncio
import json
from contextlib import contextmanager

import conda_channel as cc
import pytest
import yaml
from command import Command
from environment_facts import ok, refused
from loopback import Index, serving
from marked_builds import Marks
from programs import run_program

BARE = ("--manager", "conda", "--device", "cpu")


@contextmanager
def wheels():
    """An index with what the channel lacks, and with other versions of what it has."""
    index = Index()
    for name, version, requires in (
        ("pip", "26.0", ()), ("numpy", "9.9", ()), ("numpy", "2.1.0", ()), ("numpy", "1.26.4", ()),
        ("only-a-wheel", "1.0", ("numpy>=1",)), ("only-a-wheel", "1.1", ("numpy>=1",)), ("other", "1.0", ()),
        ("brings-jax", "1.0", ("jax",)), ("jax", "0.7.0", ()), ("jax", "0.6.0", ()),
    ):  # fmt: skip
        index.add(name, version, requires)
    with serving(index) as running:
        yield running


@pytest.fixture
def index():
    with wheels() as running:
        yield running


def files(folder, **texts):
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)
    return [word for name in texts for word in ("-r", f"{name}.txt")]


def resolved(gpuenv, *args, channel=None):
    return gpuenv("resolve", *BARE, "--channel", channel or cc.bare(), "--json", *args)


def versions(lock):
    return {
        p["name"]: (p["version"], "conda" if p["url"].endswith(".conda") else "wheel")
        for p in lock["packages"]
    }


# --- bounds ----------------------------------------------------------------------------------------


def test_bounds_of_a_file_bind_the_solver(gpuenv):
    ran = ok(resolved(gpuenv, *files(gpuenv.work, asked="jax<0.7\n")))
    assert [b["version"] for b in ran.json["builds"]] == ["0.6.0"]
    ran = resolved(gpuenv, "--framework", "jax", *files(gpuenv.work, asked="jax==0.6.*\n"))
    assert [b["version"] for b in ran.json["builds"]] == ["0.6.0"]


def test_bounds_that_nothing_fits_are_named_with_their_line(gpuenv):
    ran = resolved(gpuenv, *files(gpuenv.work, asked="# ours\njax>=9\n"))
    assert ran.code == 5 and "jax>=9 (asked.txt line 2)" in ran.json["notes"][0]
    assert ran.json["hint"].endswith("jax>=9 in asked.txt line 2")
    explained = resolved(gpuenv, "-r", "asked.txt", "--explain")
    assert ["No candidates" in one.err for one in (ran, explained)] == [False, True]


def test_the_python_of_a_project_binds_the_solver(gpuenv, tmp_path):
    folder = tmp_path / "pythons"
    for version in ("3.10.5", "3.12.1"):
        minor = version.rpartition(".")[0]
        cc.write_package(folder, "python", version, "h0_0_cpython")
        tag = minor.replace(".", "")
        cc.write_package(folder, "jaxlib", "0.7.0", f"cpu_py{tag}h0_0", [f"python {minor}.*"])
    cc.write_package(folder, "jax", "0.7.0", "pyh0_0", ["jaxlib 0.7.0"], noarch="generic")
    cc.index(folder)
    project = gpuenv.work / "pyproject.toml"
    text = '[project]\nname = "mine"\nversion = "1"\ndependencies = ["jax"]\nrequires-python = "{}"\n'
    for bound, python in ((">=3.9,<3.12", "3.10"), (">=3.13", None)):
        project.write_text(text.format(bound))
        ran = resolved(gpuenv, "--project", ".", channel=folder)
        assert ran.json["python"] == python, ran.out
    assert ran.code == 5 and ran.json["hint"].startswith("change the bound Python >=3.13 in pyproject.toml")


def test_a_bound_on_what_comes_along_binds_it(gpuenv, index):
    """jaxlib brings numpy 2.1; the file asks for less, and a wheel of it would replace conda's."""
    args = files(gpuenv.work, asked='jax\nnumpy<2\nnumpy<1; python_version < "3.0"\n')
    ran = ok(gpuenv("lock", *BARE, "--channel", cc.bare(), "--json", *args, "--index", index.url))
    assert versions(ran.json)["numpy"] == ("1.26.4", "conda")
    ran = resolved(gpuenv, "--index", index.url, *files(gpuenv.work, asked="jax\nnumpy>=3\n"))
    assert ran.code == 5 and "numpy>=3 (asked.txt line 2)" in ran.json["notes"][0]


def test_a_requirement_of_a_wheel_is_taken_from_conda(gpuenv, index):
    args = files(gpuenv.work, asked="jax\nonly-a-wheel\n")
    ran = ok(gpuenv("lock", *BARE, "--channel", cc.bare(), "--json", *args, "--index", index.url))
    found = versions(ran.json)
    assert found["numpy"] == ("2.1.0", "conda") and found["only-a-wheel"] == ("1.1", "wheel")
    held = yaml.safe_load((gpuenv.work / "conda-lock.yml").read_text())["package"]
    (wheel,) = [p for p in held if p["name"] == "only-a-wheel"]
    assert wheel["manager"] == "pip" and len(wheel["hash"]["sha256"]) == 64 and wheel["url"].endswith(".whl")


def test_a_framework_that_comes_along_is_a_conda_package(gpuenv, index):
    """The file names no framework; what it asks for brings jax."""
    args = files(gpuenv.work, asked="brings-jax\n")
    ran = ok(gpuenv("lock", *BARE, "--channel", cc.bare(), "--json", *args, "--index", index.url))
    found = versions(ran.json)
    assert found["jax"] == ("0.7.0", "conda") and found["brings-jax"] == ("1.0", "wheel")


def test_what_is_compiled_against_a_framework_comes_from_the_channel(gpuenv, tmp_path):
    """A wheel of torchvision is built for the wheel of torch, not for conda's."""
    folder = tmp_path / "torches"
    cc.write_package(folder, "python", "3.11.5", "h0_0_cpython")
    for torch, vision in (("2.7.1", "0.22.1"), ("2.8.0", "0.23.0")):
        build = f"cpu_mkl_{cc.TAG}_h0_100"
        cc.write_package(folder, "pytorch", torch, build, ["python 3.11.*"])
        cc.write_package(folder, "torchvision", vision, f"cpu_{cc.TAG}_h0_0", [f"pytorch {torch}.*"])
    cc.index(folder)
    args = files(gpuenv.work, asked="torch\ntorchvision<0.23\n")
    ran = ok(gpuenv("lock", *BARE, "--channel", folder, "--json", *args))
    found = versions(ran.json)
    assert found["torchvision"] == ("0.22.1", "conda") and found["pytorch"] == ("2.7.1", "conda")


# --- a changed file ----------------------------------------------------------------------------------


FIRST = "jax<0.7\nonly-a-wheel==1.0\n"
LATER = "jax>=0.7\nonly-a-wheel==1.1\nother\n"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A project with gpuenv.yaml, its lock and its environment."""
    gpuenv = Command(tmp_path_factory.mktemp("ein projekt"))
    gpuenv.env["RATTLER_CACHE_DIR"] = str(cc.home() / "rattler-cache")
    with wheels() as index:
        (gpuenv.work / "asked.txt").write_text(FIRST)
        gpuenv.config = (
            f"requirements: [asked.txt]\nmanager: conda\ndevice: cpu\nchannels: [{cc.bare()}]\nindex: {index.url}\n"
            'targets:\n  cluster: {driver: "535.54.03", gpus: ["9.0"], device: cpu}\n'
        )
        (gpuenv.work / "gpuenv.yaml").write_text(gpuenv.config)
        ran = ok(gpuenv("lock"))
        ran = ok(gpuenv("create", "--no-verify", "--json"))
        assert "solving" not in ran.err, "the project's lock is for what is asked"
        yield gpuenv


def brought_to(gpuenv, text):
    """The project with these requirements locked and installed, whatever a test left."""
    wanted = {"asked.txt": text, "gpuenv.yaml": gpuenv.config}
    if any((gpuenv.work / name).read_text() != content for name, content in wanted.items()):
        for name, content in wanted.items():
            (gpuenv.work / name).write_text(content)
        for words in (("lock",), ("create", "--no-verify")):
            ok(gpuenv(*words))
    return gpuenv


@pytest.fixture
def project(shared):
    return brought_to(shared, LATER)


def there(gpuenv):
    """Distributions and versions that the environment's own python sees."""
    code = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
    done = run_program([gpuenv.work / ".venv" / "bin" / "python", "-c", code], check=True)
    return json.loads(done.stdout)


def test_a_changed_file_is_followed_in_place(shared):
    """Wheels and conda packages lie in one environment and change there; what the user put there stays."""
    project = brought_to(shared, FIRST)
    assert there(project) == {
        "jax": "0.6.0", "jaxlib": "0.6.0", "numpy": "2.1.0", "only-a-wheel": "1.0", "pip": "26.0",
    }  # fmt: skip
    env = project.work / ".venv"
    (env / "mine").write_text("kept")
    revisions = (env / "conda-meta" / "history").read_text().count("==> ")
    (project.work / "asked.txt").write_text(LATER)
    ran = ok(project("create", "--no-verify", "--json"))
    assert (
        "in place: jax 0.6.0 -> 0.7.0, jaxlib 0.6.0 -> 0.7.0, only-a-wheel 1.0 -> 1.1, +other 1.0" in ran.err
    )
    found = there(project)
    assert found == {"jax": "0.7.0", "jaxlib": "0.7.0", "numpy": "2.1.0", "only-a-wheel": "1.1", "other": "1.0",
                     "pip": "26.0"}  # fmt: skip
    assert (env / "mine").read_text() == "kept"
    history = (env / "conda-meta" / "history").read_text()
    assert history.count("==> ") == revisions + 1 and "-bare/noarch::jax-0.6.0-pyh0_0" in history
    assert sorted(p.name.split("-")[0] for p in (env / "conda-meta").glob("*.json")) == [
        "jax",
        "jaxlib",
        "numpy",
        "python",
    ]
    again = project("create", "--no-verify", "--json")
    assert again.json["environment"]["changed"] is False and "in place" not in again.err
    assert project("lock").code == 0


def test_a_change_that_cannot_be_had_leaves_all_as_it_was(project):
    before, asked = there(project), (project.work / "asked.txt").read_text()
    (project.work / "asked.txt").write_text("jax>=0.7\nonly-a-wheel==7\n")
    assert "only-a-wheel==7 (asked.txt line 2)" in refused(project("create", "--no-verify"), 6).err
    assert there(project) == before
    (project.work / "asked.txt").write_text(asked)


def test_a_change_that_fails_its_proof_is_taken_back(project):
    """The jax of this channel is none, so every proof fails; the environment that is there has no verdict."""
    before, asked = there(project), (project.work / "asked.txt").read_text()
    (project.work / "asked.txt").write_text("jax<0.7\n")
    assert "Its previous packages were restored" in refused(project("create"), 8).err
    assert there(project) == before
    (project.work / "asked.txt").write_text(asked)
    assert project("create", "--no-verify", "--json").json["environment"]["changed"] is False


def test_what_is_pinned_holds_in_a_later_install(project, tmp_path):
    """conda takes each line of `pinned` as a constraint of every solve."""
    import rattler
    from rattler.exceptions import SolverError

    lines = (project.work / ".venv" / "conda-meta" / "pinned").read_text().splitlines()
    pins = [rattler.MatchSpec(line) for line in lines if not line.startswith("#")]
    assert {str(p.name.normalized) for p in pins} == {"jax", "jaxlib"}
    other = tmp_path / "conda-forge"
    for name, version in (("jaxlib", "0.7.0"), ("jaxlib", "0.9.0"), ("tidy", "1.0"), ("eager", "1.0")):
        wants = {"tidy": ["jaxlib"], "eager": ["jaxlib >=0.9"]}.get(name, ())
        cc.write_package(other, name, version, "h0_0", wants)
    cc.index(other)

    def later(name):
        solved = rattler.solve(
            [rattler.Channel(other.as_uri())], [name], platforms=["linux-64"], constraints=pins
        )
        return {r.name.normalized: str(r.version) for r in asyncio.run(solved)}

    assert later("tidy") == {"tidy": "1.0", "jaxlib": "0.7.0"}
    with pytest.raises(SolverError, match="jaxlib"):
        later("eager")


def test_add_installs_and_locks_a_package(project):
    ok(project("add", "einops", "--no-verify"))
    assert there(project)["einops"] == "0.8.0" and "einops" in (project.work / "gpuenv.yaml").read_text()
    held = yaml.safe_load((project.work / "conda-lock.yml").read_text())["package"]
    assert {"einops", "only-a-wheel"} <= {p["name"] for p in held}
    assert project("lock", "--check").code == 0


def test_locked_stops_where_the_lock_is_not_what_is_asked_for(project):
    assert project("create", "--locked", "--no-verify").code == 0
    before, file = there(project), project.work / "asked.txt"
    asked = file.read_text()
    file.write_text(asked.replace("other", ""))
    ran = project("create", "--locked", "--no-verify")
    assert ran.code == 6 and "other: 1.0 -> not needed" in ran.err and "--frozen" in ran.err, ran.err
    assert project("create", "--frozen", "--no-verify").code == 0
    assert there(project) == before
    file.write_text(asked)
    lock = (project.work / "conda-lock.yml").rename(project.work / "away.yml")
    assert "conda-lock.yml is missing" in refused(project("create", "--locked", "--no-verify"), 6).err
    lock.rename(project.work / "conda-lock.yml")


def test_manager_channel_and_kind_of_machine_are_remembered(gpuenv, index):
    gpuenv.env["RATTLER_CACHE_DIR"] = str(cc.home() / "rattler-cache")
    named = ("--framework", "jax", "--channel", cc.bare(), "--index", index.url)
    ok(gpuenv("create", *BARE, *named, "--no-verify"))
    before = there(gpuenv)
    for more in ((), (*BARE, *named)):
        assert ok(gpuenv("create", *more, "--no-verify", "--json")).json["environment"]["changed"] is False
    ok(gpuenv("add", "other", "--no-verify"))
    assert there(gpuenv) == {**before, "other": "1.0", "pip": "26.0"}, "a first wheel brings pip"
    assert "manager: conda, now venv" in refused(gpuenv("create", "--manager", "venv", "--no-verify"), 2).err


def test_named_targets_have_locks_of_their_own(project):
    """conda-lock knows its files by how their names end."""
    assert "gpuenv create --locked --target cluster" in ok(project("lock", "--target", "cluster")).out
    path = project.work / "cluster.conda-lock.yml"
    assert path.exists()
    done = run_program(
        [cc.BIN / "conda-lock", "render", "-k", "env", "-p", "linux-64", path],
        cwd=project.work,
        env=project.env,
    )
    assert done.returncode == 0, done.stderr
    assert "jaxlib=0.7.0" in (project.work / "conda-linux-64.lock.yml").read_text().replace(" ", "")


# --- a lock that is there ------------------------------------------------------------------------


def test_a_lock_holds_what_it_can_until_it_is_upgraded(gpuenv, tmp_path):
    folder = tmp_path / "conda-forge"
    cc.write_package(folder, "python", "3.11.5", "h0_0_cpython")
    asked = (*BARE, "--framework", "jax", "--channel", folder)

    def release(name, version, depends=("python 3.11.*",), build="pyh0_0"):
        cc.write_package(folder, name, version, build, depends)
        cc.index(folder)

    def locked(*args):
        ran = ok(gpuenv("lock", *asked, "--json", *args))
        return {n: v for n, (v, _) in versions(ran.json).items()}

    release("numpy", "1.0")
    release("scipy", "1.0")
    for version in ("0.6.0", "0.7.0"):
        release("jaxlib", version, ["python 3.11.*", "numpy", "scipy"], build=f"cpu_{cc.TAG}h0_0")
        if version == "0.6.0":
            release("jax", version, [f"jaxlib {version}"])
            first = locked()
            release("numpy", "2.0")
            release("scipy", "2.0")
    release("jax", "0.7.0", ["jaxlib 0.7.0"])
    assert first == {"python": "3.11.5", "jax": "0.6.0", "jaxlib": "0.6.0", "numpy": "1.0", "scipy": "1.0"}
    assert locked("--upgrade", "numpy") == {**first, "numpy": "2.0"}
    everything = {"python": "3.11.5", "jax": "0.7.0", "jaxlib": "0.7.0", "numpy": "2.0", "scipy": "2.0"}
    assert locked("--upgrade") == everything
    assert "the lock does not contain it" in refused(gpuenv("lock", *asked, "--upgrade", "nothing"), 2).err
    next(folder.glob("*/scipy-2.0-*")).unlink()
    cc.index(folder)
    ran = gpuenv("lock", *asked, "--check")
    assert ran.code == 6 and "scipy: 2.0 -> 1.0" in ran.err and "1 package would change" in ran.err


# --- packages without wheels -------------------------------------------------------------------------


def test_a_source_whose_metadata_cannot_be_built_is_solved_by_what_it_states(gpuenv, index, tmp_path):
    (tmp_path / "code").mkdir()
    marks = Marks(tmp_path / "code")
    marks.stated(
        index,
        "stated",
        "1.0",
        ("other",),
        ("only-a-wheel",),
        fails=True,
        since="2.4",
        dynamic=("Requires-Dist",),
    )
    gpuenv.env["PIP_INDEX_URL"] = index.url
    asked = ("--framework", "jax", "--channel", cc.bare(), *files(gpuenv.work, asked="stated\n"))
    ran = gpuenv("lock", *BARE, *asked)
    assert ran.code == 0 and "uv cannot build stated" in ran.err, ran.err
    assert "stated 1.0 has no wheel" in " ".join(ran.err.split())
    rows = {p["name"]: p for p in yaml.safe_load((gpuenv.work / "conda-lock.yml").read_text())["package"]}
    assert "other" in rows and rows["stated"]["dependencies"] == {"python": "", "other": ""}
    ran = gpuenv("create", "--manager", "conda", "--locked", "--no-verify")
    assert ran.code == 7 and "stated 1.0 has no wheel" in ran.err
    assert not (gpuenv.work / ".venv").exists()
