"""Each export read by the tool that it is for, where a registry has that tool: pip, uv, packaging, conda-lock,
py-rattler, check-jsonschema, dockerfile-parse, hadolint, shellcheck."""

import importlib.util
import json
import sys
from pathlib import Path

import export_locks as el
import pytest
import tomllib
import yaml
from environment_facts import HERE, ok
from framework_envs import venv
from loopback import Index, serving
from programs import run_program

pytestmark = pytest.mark.network

TURING = ("--driver", "550.54.15", "--gpu", "7.5", "--python", HERE, "--index", "pytorch")
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """(gpuenv, its folder with pylock.toml) of torch on one index and nvidia's wheels on another, both serving."""
    from command import Command

    gpuenv = Command(tmp_path_factory.mktemp("export"))
    ask = ("--framework", "torch", *TURING)
    plan = gpuenv("resolve", *ask, "--json").json
    version = plan["builds"][0]["requirements"][0].removeprefix("torch===")
    with serving(Index()) as index, serving(Index()) as other:
        index.add_plan(plan)  # the default index has a torch of that very version, too
        other.add("torch", version, content="# the one that was meant\n")
        other.prefix = "/whl/" + version.partition("+")[2]
        gpuenv.env |= {
            "PIP_INDEX_URL": index.url, "GPUENV_INDEX_PYTORCH": other.url.replace("/simple", "/whl"),
        }  # fmt: skip
        ok(gpuenv("lock", *ask))
        yield gpuenv, index


def exported(gpuenv, form, name):
    ok(gpuenv("export", "--format", form, "-o", name))
    return gpuenv.work / name


def new_python(folder, *, pip):
    venv(folder, pip=pip)
    return folder / "bin" / "python"


def installed(python):
    code = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
    return json.loads(run_program([python, "-I", "-c", code], check=True).stdout)


def run(*argv, gpuenv, **more):
    env = {k: v for k, v in gpuenv.env.items() if not k.startswith(("PIP_INDEX", "GPUENV_"))} | more
    return run_program(argv, env=env, cwd=gpuenv.work, timeout=120)


def locked(gpuenv):
    data = tomllib.loads((gpuenv.work / "pylock.toml").read_text())
    return {p["name"]: p["version"] for p in data["packages"]}


def meant(python):
    text = next(python.parent.parent.glob("lib/python3*/site-packages/torch/__init__.py")).read_text()
    return "the one that was meant" in text


# --- requirements ------------------------------------------------------------------------------------------


def test_pip_installs_the_requirements_with_hashes(two, tmp_path):
    gpuenv, _ = two
    file = exported(gpuenv, "requirements", "requirements.txt")
    python = new_python(tmp_path / "env", pip=True)
    # A configured second index stands for the user's own: it must not answer for what is meant for another.
    done = run(
        python, "-m", "pip", "install", "-q", "--require-hashes", "--no-deps", "-r", file, gpuenv=gpuenv
    )
    assert done.returncode == 0, done.stderr
    have = installed(python)
    assert {n: have[n] for n in locked(gpuenv)} == locked(gpuenv) and meant(python)
    done = run(sys.executable, "-m", "uv", "pip", "check", "--python", python, gpuenv=gpuenv)
    assert done.returncode == 0, f"the lock is not whole: {done.stderr}"


def test_uv_installs_the_requirements_with_hashes(two, tmp_path):
    gpuenv, _ = two
    file = exported(gpuenv, "requirements", "requirements.txt")
    python = new_python(tmp_path / "env", pip=False)
    done = run(
        sys.executable,
        "-m",
        "uv",
        "pip",
        "install",
        "--python",
        python,
        "--require-hashes",
        "-r",
        file,
        gpuenv=gpuenv,
    )
    assert done.returncode == 0, done.stderr
    assert installed(python) == locked(gpuenv) and meant(python)


def test_pip_refuses_a_file_with_another_hash(two, tmp_path):
    gpuenv, index = two
    file = exported(gpuenv, "requirements", "requirements.txt")
    python = new_python(tmp_path / "env", pip=True)
    wheel = next(iter(index.wheels["nvidia-cudnn-cu12"]))
    index.faults[wheel] = "tampered"
    try:
        done = run(
            python, "-m", "pip", "install", "--no-cache-dir", "--require-hashes", "--no-deps", "-r", file,
            gpuenv=gpuenv,
        )  # fmt: skip
    finally:
        index.faults.clear()
    assert done.returncode != 0 and "hash" in done.stderr.lower()


# --- pylock ------------------------------------------------------------------------------------------------


def test_packaging_and_uv_read_the_pylock(two, tmp_path):
    from packaging.pylock import Pylock

    gpuenv, _ = two
    (tmp_path / "x").mkdir()
    text = gpuenv("export", "--format", "pylock").out
    file = tmp_path / "x" / "pylock.toml"
    file.write_text(text)
    read = Pylock.from_dict(tomllib.loads(text))
    assert {str(p.name): str(p.version) for p in read.packages} == locked(gpuenv)
    python = new_python(tmp_path / "env", pip=False)
    done = run(sys.executable, "-m", "uv", "pip", "sync", "--python", python, file, gpuenv=gpuenv)
    assert done.returncode == 0, done.stderr
    assert installed(python) == locked(gpuenv) and meant(python)


# --- conda -------------------------------------------------------------------------------------------------


@pytest.fixture
def conda_lock(gpuenv):
    from provision.conda import locks as conda_file

    conda_file.write(gpuenv.work / "conda-lock.yml", el.of_conda())
    return gpuenv


def test_conda_lock_renders_its_own_format(conda_lock):
    from conda_lock.lockfile import parse_conda_lock_file

    file = exported(conda_lock, "conda-lock", "again.conda-lock.yml")
    read = parse_conda_lock_file(file)
    assert {p.name for p in read.package} == {p.name for p in el.CONDA_PACKAGES}
    done = run(BIN / "conda-lock", "render", "-k", "explicit", "-p", "linux-64", file, gpuenv=conda_lock)
    assert done.returncode == 0, done.stderr
    rendered = (conda_lock.work / "conda-linux-64.lock").read_text()
    assert f"{el.CONDA_PACKAGES[1].url}#{el.CONDA_PACKAGES[1].md5}" in rendered


def specification(path, tmp_path):
    """environment.yml as conda-lock reads it."""
    from conda_lock.src_parser.environment_yaml import parse_environment_file

    names = tmp_path / "names.json"
    names.write_text("{}")
    return parse_environment_file(path, ["linux-64"], mapping_url=str(names))


def test_conda_lock_and_rattler_read_environment_yml_of_conda_packages(conda_lock, tmp_path):
    import rattler

    path = exported(conda_lock, "environment.yml", "environment.yml")
    for text in yaml.safe_load(path.read_text())["dependencies"]:
        if isinstance(text, str):
            spec = rattler.MatchSpec(text)
            package = next(p for p in el.CONDA_PACKAGES if p.name == spec.name.normalized)
            assert package.version in str(spec.version) and spec.build
    read = specification(path, tmp_path)
    found = {d.name: d for d in read.dependencies["linux-64"]}
    assert found["pytorch"].build == "cuda129_py312_h1_300" and found["pytorch"].version == "2.7.1"
    assert found["einops"].url == el.CONDA_PACKAGES[-1].url  # conda-lock.yml says nothing of its index
    assert found["einops"].hashes == [f"sha256:{el.CONDA_PACKAGES[-1].sha256}"]


def test_conda_lock_reads_environment_yml_of_wheels(two, tmp_path):
    gpuenv, _ = two
    found = specification(exported(gpuenv, "environment.yml", "environment.yml"), tmp_path).dependencies[
        "linux-64"
    ]
    wheels = {d.name: d for d in found if d.manager == "pip"}
    assert set(wheels) == set(locked(gpuenv)) - {"pip"}
    assert wheels["nvidia-cudnn-cu12"].version == f"=={locked(gpuenv)['nvidia-cudnn-cu12']}"
    assert wheels["nvidia-cudnn-cu12"].hash.startswith("sha256:")
    assert "/files/torch/" in wheels["torch"].path  # conda-lock takes an address without TLS for a path
    assert {d.name for d in found if d.manager == "conda"} == {"python", "pip"}


def test_pip_installs_the_pip_section_as_conda_passes_it_on(two, tmp_path):
    """conda, mamba and micromamba write the list into a requirements file and call pip."""
    gpuenv, _ = two
    made = yaml.safe_load(exported(gpuenv, "environment.yml", "environment.yml").read_text())
    (tmp_path / "condaenv.requirements.txt").write_text("\n".join(made["dependencies"][-1]["pip"]))
    python = new_python(tmp_path / "env", pip=True)
    done = run(
        python, "-m", "pip", "install", "-U", "-q", "-r", tmp_path / "condaenv.requirements.txt", gpuenv=gpuenv,
        PIP_INDEX_URL=gpuenv.env["PIP_INDEX_URL"],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert meant(python)


# --- workflow, Dockerfile, scripts ------------------------------------------------------------------------


@pytest.mark.skipif(
    not importlib.util.find_spec("check_jsonschema"), reason="check-jsonschema is not installed"
)
@pytest.mark.parametrize("made", [el.of(), el.of(el.MIXED), el.of_conda()], ids=["gpu", "mixed", "conda"])
def test_the_workflow_is_valid_under_the_schema_of_github(made, tmp_path):
    file = tmp_path / "environment.yml"
    file.write_text(el.text("github", made))
    argv = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", file]
    run_program(argv, check=True)


DOCKERFILES = [el.of(), el.of(el.MIXED), el.of_conda()]


@pytest.mark.parametrize("made", DOCKERFILES, ids=["gpu", "mixed", "conda"])
def test_a_dockerfile_parser_reads_the_dockerfile(made, tmp_path):
    import dockerfile_parse

    (tmp_path / "Dockerfile").write_text(el.text("dockerfile", made))
    read = dockerfile_parse.DockerfileParser(path=str(tmp_path))
    assert read.baseimage.startswith("python:3.12-slim-bookworm@sha256:")
    names = [x["instruction"] for x in read.structure if x["instruction"] != "COMMENT"]
    assert set(names) <= {
        "FROM",
        "ARG",
        "RUN",
        "COPY",
        "ENV",
        "USER",
        "WORKDIR",
        "HEALTHCHECK",
        "ENTRYPOINT",
        "CMD",
    }
    assert names[0] == "FROM" and names[-1] == "CMD"
    assert read.envs["PATH"].startswith("/opt/env/bin:")


@pytest.mark.parametrize("made", DOCKERFILES, ids=["gpu", "mixed", "conda"])
def test_hadolint_finds_no_mistake_in_the_dockerfile(made):
    run_program([BIN / "hadolint", "--ignore", "DL3008", "-"], input=el.text("dockerfile", made), check=True)


@pytest.mark.parametrize("form", ["sbatch", "prolog", "healthcheck", "taskprolog"])
def test_shellcheck_finds_no_mistake_in_the_scripts(form):
    run_program([BIN / "shellcheck", "-"], input=el.text(form), check=True)
