"""[tool.uv] of a project's pyproject.toml: the keys that are honoured, for solving and installing alike."""
# ruff: noqa: F811  # fixtures are imported by their name

import pytest
import tomllib
from environment_facts import HERE, ok
from loopback import Index, serving
from project_folder import asked, folder  # noqa: F401  # fixtures

from provision.errors import UsageError
from provision.index import uv
from provision.model import PackageSources

GPU = ("--driver", "580.65.06", "--gpu", "9.0")
TORCH = ("--framework", "torch", "--python", HERE, "--index", "pypi", *GPU)


def test_constraints_and_overrides_of_uv_are_read(folder):
    found = asked(folder, """\
        [project]
        name = "x"
        dependencies = ["one[a]>=1", "two; sys_platform == 'linux'"]
        [tool.uv]
        constraint-dependencies = ["three<3"]
        override-dependencies = ["one==0.9", "four==4"]
        """)  # fmt: skip
    got = [(n.text, n.constraint, n.override) for n in found.lines]
    assert got == [
        ("one==0.9", False, False), ('two ; sys_platform == "linux"', False, False),
        ("three<3", True, False), ("one==0.9", True, True), ("four==4", True, True),
    ]  # fmt: skip
    assert found.lines[-1].origin == "pyproject.toml line 6" and not found.left_out


def test_an_override_of_a_framework_replaces_its_bound(folder):
    found = asked(folder, """\
        [project]
        name = "x"
        dependencies = ["torch==2.1"]
        [tool.uv]
        override-dependencies = ["torch>=2.5"]
        """)  # fmt: skip
    assert found.frameworks == ("torch",) and {b.specifier for b in found.bounds} == {">=2.5"}


def test_indexes_and_exclude_newer_of_uv_are_read(folder):
    found = asked(folder, """\
        [project]
        name = "x"
        dependencies = ["bound", "torch", "free"]
        [tool.uv]
        exclude-newer = "2 weeks"
        [tool.uv.sources]
        bound = {index = "own"}
        torch = {index = "own"}
        [[tool.uv.index]]
        name = "own"
        url = "https://own/simple"
        explicit = true
        [[tool.uv.index]]
        url = "https://main/simple"
        default = true
        [[tool.uv.index]]
        name = "more"
        url = "https://more/simple"
        """)  # fmt: skip
    assert {n.name: n.index for n in found.lines} == {"bound": "https://own/simple", "free": None}
    assert found.index_url == "https://main/simple" and found.extra_index_urls == ("https://more/simple",)
    assert found.exclude_newer == "2 weeks"
    assert len(found.left_out) == 1 and found.left_out[0].startswith("tool.uv.sources of torch ")


def test_a_toml_date_is_read_as_exclude_newer(folder):
    found = asked(folder, "[project]\nname='x'\ndependencies=[]\n[tool.uv]\nexclude-newer = 2026-01-02\n")
    assert found.exclude_newer == "2026-01-02"


def test_keys_that_are_not_followed_are_named_once(folder):
    found = asked(folder, """\
        [project]
        name = "x"
        dependencies = ["one"]
        [tool.uv]
        package = false
        dev-dependencies = ["two"]
        environments = ["sys_platform == 'linux'"]
        no-binary-package = ["one"]
        [tool.uv.pip]
        target = "/x"
        """)  # fmt: skip
    assert [s.partition(": ")[2] for s in found.left_out] == ["environments, no-binary-package, pip ignored"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exclude-newer = 5", "exclude-newer: expected a date"),
        ("override-dependencies = 'one'", "override-dependencies: expected a list"),
        ("constraint-dependencies = [1]", "constraint-dependencies: expected a list"),
        ("index = [{name = 'a'}]", "index: expected a url"),
    ],
)
def test_a_key_of_another_form_is_named(folder, text, said):
    with pytest.raises(UsageError) as caught:
        asked(folder, f"[project]\nname='x'\ndependencies=[]\n[tool.uv]\n{text}\n")
    assert said in caught.value.message and "pyproject.toml" in caught.value.message and caught.value.hint


def test_the_date_reaches_a_solve_and_what_builds_but_no_locked_wheel():
    sources = PackageSources(exclude_newer="2024-01-01")
    assert uv.environment(sources, {})["UV_EXCLUDE_NEWER"] == "2024-01-01"
    assert "UV_EXCLUDE_NEWER" not in uv.environment(sources, {}, uv.Settings(locked=True))


# --- through the command line ---------------------------------------------------------------------------


@pytest.fixture
def go(gpuenv, index):
    index.add_plan(gpuenv("resolve", "--json", *TORCH).json)
    for version in ("1.0", "2.0"):
        index.add("plain", version)
    index.add("strict", "1.0", requires=("plain>=2",))
    gpuenv.env["PIP_INDEX_URL"] = index.url

    def run(verb, text, *more):
        (gpuenv.work / "pyproject.toml").write_text(text)
        verify = ("--no-verify",) if verb == "create" else ()
        return gpuenv(verb, *TORCH, "--project", ".", *verify, *more)

    return run


PROJECT = '[project]\nname = "x"\nversion = "1"\ndependencies = ["strict"]\n[tool.uv]\n'


def locked(gpuenv):
    data = tomllib.loads((gpuenv.work / "pylock.toml").read_text())
    return {p["name"]: p for p in data["packages"]}


def test_an_override_and_an_explicit_index_count_for_lock_and_installation(go, gpuenv, index):
    with serving(Index()) as own:
        for name, version in (("strict", "9.0"), ("kept", "2.5"), ("plain", "9.0")):
            own.add(name, version)
        text = PROJECT.replace('["strict"]', '["strict", "kept"]') + (
            'override-dependencies = ["plain==1.0"]\n'
            f'sources.kept.index = "own"\n[[tool.uv.index]]\nname = "own"\nurl = "{own.url}"\nexplicit = true\n'
        )
        ok(go("lock", text))
        found = locked(gpuenv)
        assert found["plain"]["version"] == "1.0", "strict asks for 2"
        assert (found["kept"]["version"], found["kept"]["index"]) == ("2.5", own.url)
        assert (found["strict"]["version"], found["strict"]["index"]) == ("1.0", index.url)
        ok(go("create", text, "--locked"))
        assert own.downloads()
    names = {p.name for p in (gpuenv.work / ".venv").glob("lib/python3*/site-packages/*.dist-info")}
    assert {"plain-1.0.dist-info", "kept-2.5.dist-info"} <= names


def test_a_constraint_that_contradicts_is_named(go):
    ran = go("lock", PROJECT + 'constraint-dependencies = ["plain<2"]\n')
    assert ran.code == 6 and "plain<2 (pyproject.toml line 6)" in ran.err


def test_a_built_project_takes_torch_from_the_index_of_the_plan(go, gpuenv):
    """uv follows [tool.uv.sources] of an editable folder, and refuses two indexes of one package."""
    text = PROJECT.replace('["strict"]', '["strict", "torch"]') + (
        'sources.torch.index = "cu"\n[[tool.uv.index]]\nname = "cu"\nurl = "http://127.0.0.1:9/whl/cu132"\nexplicit = true\n'
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
    )
    assert "127.0.0.1:9" not in ok(go("lock", text)).err
    found = locked(gpuenv)
    assert found["x"]["directory"]["editable"] and "version" not in found["x"]
    assert {"torch", "strict", "plain"} <= found.keys()


def test_a_date_before_everything_leaves_nothing_to_solve(go, gpuenv):
    ran = go("lock", PROJECT + 'exclude-newer = "2001-01-01"\n')
    assert ran.code == 6 and not (gpuenv.work / "pylock.toml").exists()
