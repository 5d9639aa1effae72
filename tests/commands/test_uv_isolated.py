"""uv runs isolated: only what the user configured and the project documents decides what it does."""

import ast
import re
import sys
from collections import Counter
from pathlib import Path

import project_packages
import pytest
from bundle_site import add_own
from environment_facts import HERE, ok
from loopback import Index, serving
from programs import run_program
from rows import sampled

from provision.index import uv
from provision.index.config import uv_variables
from provision.model import PackageSources

pytestmark = pytest.mark.usefixtures("real_uv")

ROOT = Path(__file__).resolve().parents[2] / "provision"
GPU = ("--driver", "580.65.06", "--gpu", "9.0")
TORCH = ("--framework", "torch", "--python", HERE, "--index", "pypi", *GPU)


@pytest.fixture
def stack(gpuenv, index):
    """`gpuenv VERB` for a GPU target on an index that has all that the plan pins."""
    index.add_plan(gpuenv("resolve", "--json", *TORCH).json)
    index.add("plain", "1.0")
    gpuenv.env["PIP_INDEX_URL"] = index.url

    def go(verb, *more):
        verify = ("--no-verify",) if verb == "create" else ()
        return gpuenv(verb, *TORCH, *verify, *more)

    return go


@pytest.fixture
def stranger():
    """An index of a stranger, with a newer release of everything small."""
    with serving(Index()) as running:
        for name in ("plain", "pip"):
            running.add(name, "99.0", content="# of a stranger\n")
        yield running


def site_packages(env):
    return next(env.glob("lib/python3*/site-packages"))


def planted_python(folder, mark):
    """A Python of a stranger, which leaves a mark when it is started."""
    python = folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    (folder / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    python.write_text(f'#!/bin/sh\ntouch "{mark}"\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (python.parent / "python3").symlink_to(python)


def test_only_listed_settings_of_the_user_and_nothing_planted_decide(stack, gpuenv, stranger, tmp_path):
    """In the current folder, among the temporary files, and in the user's configuration, which uv itself reads."""
    mark, target, prefix, cache = (tmp_path / name for name in ("ran", "target", "prefix", "doctored"))
    pip = f'[pip]\ntarget = "{target}"\nprefix = "{prefix}"\n'
    planted = f'cache-dir = "{cache}"\n[[index]]\nurl = "{stranger.url}"\n{pip}'
    shared, config = tmp_path / "shared", gpuenv.folder / "config" / "uv"
    for folder, text in ((shared, planted), (gpuenv.work, planted), (config, pip)):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "uv.toml").write_text(text)
    (gpuenv.work / "pyproject.toml").write_text('[tool.uv]\nexclude-newer = "2001-01-01"\n')
    planted_python(shared, mark)
    gpuenv.env["TMPDIR"] = str(shared)
    del gpuenv.env["UV_CACHE_DIR"]
    ok(stack("lock", "--with", "plain"))
    ok(stack("create", "--locked"))
    assert (site_packages(gpuenv.work / ".venv") / "torch").is_dir()
    assert not any(path.exists() for path in (mark, target, prefix, cache)) and not stranger.requests


def test_a_source_of_a_planted_index_is_not_built(stack, gpuenv, stranger, tmp_path):
    """Its source archive would be run for its metadata already."""
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "uv.toml").write_text(f'[[index]]\nurl = "{stranger.url}"\n')
    stranger.wheels["sourced"] = {}
    name, data = project_packages.archive(tmp_path / "made", "sourced", "1.0")
    stranger.wheels["sourced"][name] = data
    gpuenv.env["TMPDIR"] = str(shared)
    ran = stack("lock", "--with", "sourced")
    assert ran.code != 0 and "sourced" in ran.err
    assert not stranger.requests


@pytest.mark.parametrize("verb", sampled(["bundle", "resolve"], 2))
def test_a_planted_python_is_never_started(stack, gpuenv, index, tmp_path, verb):
    shared, mark = tmp_path / "shared", tmp_path / "ran"
    shared.mkdir()
    planted_python(shared, mark)
    gpuenv.env["TMPDIR"] = str(shared)
    if verb == "resolve":  # the packages are solved to find out which framework they bring
        version = gpuenv("resolve", "--json", *TORCH).json["builds"][0]["version"]
        index.add("bringing", "1.0", requires=(f"torch=={version}",))
        (gpuenv.work / "requirements.txt").write_text("bringing\n")
        ran = gpuenv("resolve", "-r", "requirements.txt", "--python", HERE, "--index", "pypi", *GPU)
    else:
        add_own(index)
        gpuenv.env |= {"UV_PYTHON_INSTALL_MIRROR": "file:///nowhere"}
        ran = ok(gpuenv("bundle", "stick", *TORCH))
    assert not mark.exists(), ran.err


def test_build_tools_come_from_no_planted_index(stack, gpuenv, index, stranger, tmp_path):
    """A source archive that needs a build tool which only the planted index has cannot be built."""
    where = project_packages.folder(gpuenv.work / "sourced", "sourced", "1.0")
    text = (where / "pyproject.toml").read_text()
    (where / "pyproject.toml").write_text(text.replace("requires = []", 'requires = ["tool-of-builds"]', 1))
    stranger.add("tool-of-builds", "1.0")
    (gpuenv.work / "uv.toml").write_text(f'[[index]]\nurl = "{stranger.url}"\n')
    (gpuenv.work / "requirements.txt").write_text(f"sourced @ {where.as_uri()}\n")
    assert stack("lock", "-r", "requirements.txt").code == 0, "its metadata is static"
    ran = stack("create", "--locked")
    assert ran.code != 0 and "tool-of-builds" in ran.err
    assert not stranger.requests
    index.add("tool-of-builds", "1.0")
    ok(stack("create", "--locked"))
    assert not stranger.requests


def test_the_users_uv_toml_applies_to_solving_and_installing(stack, gpuenv, index, stranger, tmp_path):
    config = Path(gpuenv.env["XDG_CONFIG_HOME"], "uv", "uv.toml")
    config.parent.mkdir(parents=True)
    url = index.url.replace("://", "://me:s3cret-in-toml@")
    config.write_text(f'cache-dir = "kept"\n[[index]]\nname = "mine"\nurl = "{url}"\ndefault = true\n')
    del gpuenv.env["UV_CACHE_DIR"], gpuenv.env["PIP_INDEX_URL"]
    (gpuenv.work / "uv.toml").write_text(f'[[index]]\nurl = "{stranger.url}"\ndefault = true\n')
    code = (
        "import sys, json\nbegun = []\n"
        "sys.addaudithook(lambda e, a: begun.append(list(map(str, a[1]))) if e == 'subprocess.Popen' else None)\n"
        "sys.argv = ['gpuenv', *sys.argv[1:]]\nfrom provision.__main__ import main\n"
        "try:\n    main()\nfinally:\n    print(json.dumps(begun), file=sys.stderr)\n"
    )
    ran = run_program(
        [sys.executable, "-c", code, "create", *TORCH, "--with", "plain", "--no-verify"],
        cwd=gpuenv.work,
        env=gpuenv.env,
    )
    assert ran.returncode == 0, ran.stderr
    assert index.downloads() and not stranger.requests
    assert list((config.parent / "kept").glob("archive-v*/*")), "the user's own cache"
    assert "s3cret-in-toml" not in ran.stdout + ran.stderr, "a password in what is shown, or in an argument"
    written = [p for p in gpuenv.work.rglob("*.json") if ".venv" in p.parts]
    assert not [p for p in written if "s3cret-in-toml" in p.read_text(errors="replace")]


def test_relative_paths_of_the_user_are_those_of_the_current_folder(stack, gpuenv):
    gpuenv.env["UV_CACHE_DIR"] = "beside"
    gpuenv.env["TMPDIR"] = "."
    ok(stack("lock"))
    assert list((gpuenv.work / "beside").glob("simple-v*/*"))


# --- what reaches uv ----------------------------------------------------------------------------------


MAY_NAME_IT = {
    "index/uv.py": 3,
    "actions/profiles.py": 1,
}
"""Where the program is named: by what starts it, and in a message."""


def test_one_module_starts_uv_and_git_and_build_programs_are_started_through_uv_alone():
    """No list of words that begins with one of them, anywhere."""
    found = Counter()
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text()
        if not re.search(r"\buv\b|\bprogram\(|\brun\(|\battend\(", text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module == "uv" and not node.level:
                assert path == ROOT / "index" / "uv.py", f"{path}:{node.lineno} imports uv"
            if isinstance(node, ast.Import):
                assert "uv" not in [a.name for a in node.names], f"{path}:{node.lineno} imports uv"
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called in ("uv.program", "program", "find_uv_bin"):
                    found[path.relative_to(ROOT).as_posix()] += 1
                if called in ("process.run", "process.attend", "run") and node.args:
                    words = ast.unparse(node.args[0])
                    assert not words.startswith(("['git'", "['pip'", "['uv'", "[uv.")), (
                        f"{path}:{node.lineno}"
                    )
    assert found == MAY_NAME_IT


KEPT = {
    "GIT_SSH_COMMAND": "ssh -i key", "SSH_AUTH_SOCK": "/run/agent", "HTTPS_PROXY": "http://p:1", "GIT_SSL_CAINFO": "/ca",
    "NO_PROXY": "x", "MAX_JOBS": "2", "CC": "gcc", "HOME": "/home/me", "GIT_CONFIG_GLOBAL": "/g", "PATH": "/bin",
}  # fmt: skip
DROPPED = (
    "UV_PROJECT", "UV_PYTHON", "UV_CONFIG_FILE", "UV_SYSTEM_PYTHON", "UV_WORKING_DIR", "UV_NO_VERIFY_HASHES",
    "UV_TORCH_BACKEND", "PIP_TARGET", "PIP_INDEX_URL", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV",
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_EXEC_PATH", "GIT_TEMPLATE_DIR",
)  # fmt: skip


def test_variables_that_would_take_over_do_not_reach_uv():
    environ = KEPT | dict.fromkeys(DROPPED, "/x") | {"UV_CONFIG_FILE": "/nowhere/uv.toml"}
    env = uv.environment(PackageSources(uv=uv_variables(environ)), environ, uv.Settings(builds=True))
    assert {k: env.get(k) for k in KEPT} == KEPT
    assert not set(env) & set(DROPPED)


def test_a_lock_is_installed_without_rules_about_versions(tmp_path):
    environ = {"HOME": str(tmp_path), "UV_OVERRIDE": "over.txt", "UV_EXCLUDE_NEWER": "2020-01-01"}
    sources = PackageSources(exclude_newer="2021-01-01", uv=uv_variables(environ))
    solving = uv.environment(sources, environ)
    assert solving["UV_OVERRIDE"] == str(Path("over.txt").absolute())
    assert solving["UV_EXCLUDE_NEWER"] == "2021-01-01"
    locked = uv.environment(sources, environ, uv.Settings(locked=True))
    assert not {"UV_OVERRIDE", "UV_EXCLUDE_NEWER"} & set(locked)


@pytest.fixture
def files(tmp_path):
    """Writes the user's and the system's uv.toml; gives the environment that finds them."""

    def write(user=None, system=None, **more):
        for name, text in (("user", user), ("system", system)):
            if text is not None:
                (tmp_path / name / "uv").mkdir(parents=True, exist_ok=True)
                (tmp_path / name / "uv" / "uv.toml").write_text(text)
        places = {"XDG_CONFIG_HOME": str(tmp_path / "user"), "XDG_CONFIG_DIRS": str(tmp_path / "system")}
        return {"HOME": str(tmp_path / "home"), **places, **more}

    return write


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ('link-mode = "copy"', "UV_LINK_MODE", "copy"),
        ('[pip]\nlink-mode = "copy"', "UV_LINK_MODE", "copy"),
        ('link-mode = "clone"\n[pip]\nlink-mode = "copy"', "UV_LINK_MODE", "copy"),
        ("compile-bytecode = true", "UV_COMPILE_BYTECODE", "1"),
        ("native-tls = true", "UV_SYSTEM_CERTS", "1"),
        ("concurrent-downloads = 3", "UV_CONCURRENT_DOWNLOADS", "3"),
        ('exclude-newer = "2024-01-01"', "UV_EXCLUDE_NEWER", "2024-01-01"),
        ('index-url = "https://i/s"', "UV_DEFAULT_INDEX", "https://i/s"),
        ('extra-index-url = ["https://a/s", "https://b/s"]', "UV_INDEX", "https://a/s https://b/s"),
        ('[[index]]\nname = "a"\nurl = "https://a/s"', "UV_INDEX", "a=https://a/s"),
        ('[[index]]\nurl = "https://a/s"\ndefault = true', "UV_DEFAULT_INDEX", "https://a/s"),
        ('[[index]]\nname = "a"\nurl = "https://a/s"\nexplicit = true', "UV_INDEX", None),
        ('[[index]]\nurl = "https://a/w"\nformat = "flat"', "UV_FIND_LINKS", "https://a/w"),
        ('allow-insecure-host = ["h"]', "UV_INSECURE_HOST", "h"),
        ('python-install-mirror = "https://m"', "UV_PYTHON_INSTALL_MIRROR", "https://m"),
        ('[pip]\ntarget = "/x"\nprefix = "/y"', "UV_TARGET", None),
    ],
)
def test_keys_of_uv_toml_become_variables_of_uv(files, text, name, value):
    assert uv_variables(files(user=text)).get(name) == value
    assert uv_variables(files(system=text)).get(name) == value


def test_variables_override_the_file_of_the_user_which_overrides_the_system(files):
    environ = files(user='link-mode = "copy"', system='link-mode = "clone"\ncache-dir = "/big"')
    assert uv_variables(environ) == {"UV_LINK_MODE": "copy", "UV_CACHE_DIR": "/big"}
    environ["UV_LINK_MODE"] = "symlink"
    assert uv_variables(environ)["UV_LINK_MODE"] == "symlink"
    assert uv_variables(environ | {"UV_NO_CONFIG": "1"}) == {"UV_LINK_MODE": "symlink"}


def test_a_file_that_uv_config_file_names_replaces_the_others(files, tmp_path):
    (tmp_path / "mine.toml").write_text('cache-dir = "/other"\n')
    environ = files(user='link-mode = "copy"', UV_CONFIG_FILE=str(tmp_path / "mine.toml"))
    assert uv_variables(environ) == {"UV_CACHE_DIR": "/other"}


def test_a_broken_uv_toml_is_named(stack, gpuenv):
    config = Path(gpuenv.env["XDG_CONFIG_HOME"], "uv", "uv.toml")
    config.parent.mkdir(parents=True)
    config.write_text("cache-dir = \n")
    ran = stack("lock")
    assert ran.code not in (0, 70) and str(config) in ran.err and "hint" in ran.err.lower()


def test_an_index_is_named_once():
    """What several places name is handed on once, the strongest first."""
    env = uv.environment(
        PackageSources(extra=("https://a/s",), uv={"UV_INDEX": "https://a/s https://b/s"}), {}
    )
    assert env["UV_INDEX"] == "https://a/s https://b/s"
