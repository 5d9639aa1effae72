"""Real conda environments on the CPU, from a small channel made on the spot: built, proved, locked,
and rendered by the real conda-lock."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("rattler")
pytest.importorskip("conda_lock")

import conda_channel as cc
from conftest import Command

JAX = ("--manager", "conda", "--framework", "jax", "--device", "cpu")
BIN = Path(sys.executable).parent


def command(folder):
    made = Command(folder)
    made.env["RATTLER_CACHE_DIR"] = str(cc.home() / "rattler-cache")  # unpacked once for all tests
    return made


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(gpuenv, JSON of create) of an environment made through a mirror rule, as from conda-forge."""
    gpuenv = command(tmp_path_factory.mktemp("conda für alle"))
    config = gpuenv.folder / "config" / "rattler" / "config.toml"
    config.parent.mkdir(parents=True)
    with cc.serving(cc.channel()) as server:
        config.write_text(f'[mirrors]\n"https://conda.anaconda.org/conda-forge" = ["{server.url}"]\n')
        ran = gpuenv("create", *JAX, "--json")
        assert ran.code == 0, ran.err
        yield gpuenv, ran.json


def test_create_ends_with_a_graded_convolution(made):
    _, result = made
    verdict = result["verdict"]
    assert verdict["verdict"] == "cpu"
    (mine,) = verdict["frameworks"]
    graded = [c for d in mine["devices"] for c in d["convolutions"]]
    assert len(graded) >= 9 and {c["pass"] for c in graded} == {"forward", "grad_input", "grad_weight"}
    assert all(c["ok"] and 0 < c["max_error"] <= c["tolerance"] for c in graded)
    assert result["environment"]["manager"] == "conda"


def test_the_lock_names_the_public_channel_and_every_hash(made):
    _, result = made
    packages = {p["name"]: p for p in result["lock"]["packages"]}
    assert {"python", "pip", "numpy", "jax", "jaxlib"} <= set(packages)
    assert {p["index"] for p in packages.values()} == {"https://conda.anaconda.org/conda-forge"}
    assert all(len(p["sha256"]) == 64 and len(p["md5"]) == 32 for p in packages.values())
    (build,) = result["plan"]["builds"]
    assert build["framework"] == "jax" and build["cuda"] is None and build["index"] == "conda-forge"
    assert "cpu" in packages["jaxlib"]["url"]


def test_create_again_rebuilds_and_verifies_nothing(made):
    gpuenv, first = made
    ran = gpuenv("create", *JAX, "--json")
    assert ran.code == 0 and ran.json["environment"]["changed"] is False
    assert ran.json["verdict"] == first["verdict"] and "verifying" not in ran.err


def test_verify_and_run_work_on_it(made):
    gpuenv, _ = made
    ran = gpuenv("verify", "--json")
    assert ran.code == 0 and ran.json["verdict"] == "cpu"
    ran = gpuenv("run", "--", "python", "-c", "import sys, os; print(sys.prefix, os.environ['CONDA_PREFIX'])")
    assert ran.code == 0 and ran.out.split("\n")[0].count(str(gpuenv.work / ".venv")) == 2


def test_conda_tools_find_what_they_look_for(made):
    gpuenv, _ = made
    env = gpuenv.work / ".venv"
    listed = (gpuenv.folder / "home" / ".conda" / "environments.txt").read_text().splitlines()
    assert listed == [str(env)]
    records = {
        r["name"]: r for r in map(json.loads, (p.read_text() for p in (env / "conda-meta").glob("*.json")))
    }
    assert any(d.startswith("jaxlib ") for d in records["jax"]["depends"])
    assert records["jax"]["url"].startswith("https://conda.anaconda.org/conda-forge/linux-64/jax-")
    history = (env / "conda-meta" / "history").read_text()
    assert "+conda-forge/linux-64::python-" in history and "# update specs: ['jaxlib ==" in history


def test_it_is_exported_for_condas_tools(made):
    import yaml

    gpuenv, result = made
    ran = gpuenv("export", "--format", "environment.yml")
    assert ran.code == 0, ran.err
    found = yaml.safe_load(ran.out)
    assert found["channels"][0] == "https://conda.anaconda.org/conda-forge"
    pins = {tuple(x.split("=")[:2]) for x in found["dependencies"] if isinstance(x, str)}
    locked = {(p["name"], p["version"]) for p in result["lock"]["packages"] if p["url"].endswith(".conda")}
    assert pins == locked and "python" in dict(pins)


def test_the_printed_line_enters_it_without_conda(made):
    gpuenv, _ = made
    line = gpuenv("create", *JAX).out.strip().splitlines()[-1]
    assert line == "source .venv/bin/activate"
    script = (
        f"set -u; before=$PATH; {line.replace('source .', '. ./.')}; command -v python; echo $CONDA_PREFIX; deactivate; "
        'test "$PATH" = "$before" && test -z "${CONDA_PREFIX:-}" && echo left'
    )
    for shell in filter(shutil.which, ("bash", "dash", "zsh", "ksh")):
        done = subprocess.run(
            [shell, "-c", script],
            cwd=gpuenv.work,
            env=gpuenv.env,
            capture_output=True,
            text=True,
            check=False,
        )
        env = str(gpuenv.work / ".venv")
        assert done.stdout.split("\n")[:3] == [f"{env}/bin/python", env, "left"], (shell, done.stderr)


@pytest.fixture(scope="module")
def locked(made):
    gpuenv, _ = made
    ran = gpuenv("lock", *JAX)
    assert ran.code == 0, ran.err
    return gpuenv, gpuenv.work / "conda-lock.yml"


def test_the_real_conda_lock_renders_it(locked):
    gpuenv, path = locked
    done = subprocess.run(
        [BIN / "conda-lock", "render", "-k", "explicit", "-p", "linux-64", path],
        cwd=gpuenv.work, env=gpuenv.env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rendered = (gpuenv.work / "conda-linux-64.lock").read_text()
    assert "@EXPLICIT" in rendered and "/conda-forge/linux-64/jaxlib-" in rendered


def test_conda_locks_input_hash_is_that_of_the_same_pins_and_virtual_packages(locked, tmp_path):
    import yaml
    from conda_lock.content_hash import compute_content_hashes
    from conda_lock.src_parser import make_lock_spec
    from conda_lock.virtual_package import virtual_package_repo_from_specification

    meta = yaml.safe_load(locked[1].read_text())["metadata"]
    plan = json.loads(meta["custom_metadata"]["gpuenv.plan.linux-64"])
    pins = [p for b in plan["builds"] for p in b["requirements"]]
    source, spec = tmp_path / "environment.yml", tmp_path / "virtual-packages.yml"
    channels = [c["url"] for c in meta["channels"]]
    source.write_text(
        json.dumps({"channels": channels, "dependencies": [p.replace(" ", " =", 1) for p in pins]})
    )
    spec.write_text(meta["custom_metadata"]["gpuenv.virtual-packages.linux-64"])
    asked = make_lock_spec(src_files=[source], mapping_url="", platform_overrides=["linux-64"])
    found = compute_content_hashes(asked, virtual_package_repo_from_specification(spec))
    assert found["linux-64"] == meta["content_hash"]["linux-64"]


def test_the_lock_alone_makes_the_same_environment(locked):
    gpuenv, path = locked
    ran = gpuenv("create", "from-lock", "--lock", path, "--no-verify", "--json")
    assert ran.code == 0, ran.err
    assert {p.name for p in (gpuenv.work / "from-lock" / "conda-meta").glob("*.json")} == {
        p.name for p in (gpuenv.work / ".venv" / "conda-meta").glob("*.json")
    }
    assert gpuenv("lock", *JAX, "--check").code == 0


def test_several_platforms_lie_in_one_file(locked, tmp_path):
    gpuenv, path = locked
    other = tmp_path / "aarch64" / "conda-forge"
    for name in ("python-3.11", "jaxlib-", "jax-"):
        (source,) = [p for p in cc.small().glob("*/*.conda") if p.name.startswith(name)]
        place = other / ("noarch" if source.parent.name == "noarch" else "linux-aarch64") / source.name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, place)
    cc.index(other)
    ran = gpuenv("lock", *JAX, "--platform", "linux-aarch64", "--channel", other)
    assert ran.code == 0, ran.err
    import yaml

    held = yaml.safe_load(path.read_text())
    assert held["metadata"]["platforms"] == ["linux-64", "linux-aarch64"]
    assert {p["platform"] for p in held["package"]} == {"linux-64", "linux-aarch64"}
    ran = gpuenv("create", "still", "--lock", path, "--no-verify")
    assert ran.code == 0, ran.err


def test_locks_of_others(locked):
    """An explicit list as conda-lock renders it carries md5 alone; pixi's lock carries both."""
    gpuenv, _ = locked
    text = (gpuenv.work / "conda-linux-64.lock").read_text()
    ran = gpuenv("create", "explicit", "--lock", "conda-linux-64.lock", "--no-verify")
    assert ran.code == 6 and "--allow-md5" in ran.err and text
    ran = gpuenv("create", "explicit", "--lock", "conda-linux-64.lock", "--allow-md5", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["verdict"]["verdict"] == "cpu"
    assert any("not made by gpuenv" in n for n in ran.json["plan"]["notes"])


def test_a_cuda_plan_for_another_machine_and_why_there_is_none(made):
    gpuenv, _ = made
    target = ("--driver", "580.65.06", "--gpu", "9.0", "--glibc", "2.28")
    ran = gpuenv("resolve", "--manager", "conda", "--framework", "jax", *target, "--json")
    (build,) = ran.json["builds"]
    assert (build["cuda"], build["cudnn"], ran.json["device"]) == ("12.9", "9.10.2.21", "cuda")
    ran = gpuenv("resolve", "--manager", "conda", "--framework", "jax", "--driver", "535.54.03", "--json")
    assert [b["cuda"] for b in ran.json["builds"]] == ["12.2"], "never above what the driver speaks"
    ran = gpuenv("resolve", "--manager", "conda", "--framework", "jax", "--driver", "525.60.13", "--json")
    assert ran.code == 5 and ran.json["builds"] == []
    assert ran.json["hint"] == "driver 535.54.03 or newer, which speaks CUDA 12.2"
    assert "__cuda 12.0" in ran.json["notes"][0]


def test_an_override_stands_for_a_gpu_that_is_not_here(made):
    gpuenv, _ = made
    gpuenv.env["CONDA_OVERRIDE_CUDA"] = "12.2"
    try:
        ran = gpuenv("resolve", "--manager", "conda", "--framework", "jax", "--json")
    finally:
        del gpuenv.env["CONDA_OVERRIDE_CUDA"]
    assert [b["cuda"] for b in ran.json["builds"]] == ["12.2"], ran.err
    assert any("CONDA_OVERRIDE_CUDA says" in n for n in ran.json["notes"])


def test_wheels_on_top_replace_no_conda_package(made, index):
    gpuenv, _ = made
    index.add("only-a-wheel", "1.0", ("numpy>=1",))
    index.add("numpy", "9.9")
    index.add("pip", "26.0")
    numpy = next(
        json.loads(p.read_text())["version"]
        for p in (gpuenv.work / ".venv" / "conda-meta").glob("numpy-*.json")
    )
    index.add("numpy", numpy)
    ran = gpuenv(
        "create", "topped", *JAX, "--with", "only-a-wheel", "--index", index.url, "--no-verify", "--json"
    )
    assert ran.code == 0, ran.out + ran.err
    names = {p["name"]: p for p in ran.json["lock"]["packages"]}
    assert names["only-a-wheel"]["url"].endswith(".whl") and names["numpy"]["url"].endswith(".conda")
    code = "import only_a_wheel, numpy; print(numpy.__version__)"
    done = subprocess.run(
        [gpuenv.work / "topped" / "bin" / "python", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == numpy, done.stderr


def test_an_environment_that_fails_its_proof_gives_the_old_one_back(made, tmp_path):
    gpuenv, _ = made
    broken = tmp_path / "conda-forge"
    shutil.copytree(cc.channel(), broken, copy_function=os.link)
    (old,) = broken.glob("linux-64/jax-[0-9]*.conda")
    stem = old.name.removesuffix(".conda")
    version = stem.split("-")[1]
    site = f"lib/python{cc.MINOR}/site-packages/jax/__init__.py"
    bad = [cc.Member(site, data=b"raise RuntimeError('no jax')\n")]
    cc.write_package(broken, "jax", f"{version}.99", "py_0", [f"jaxlib {version}"], bad)
    cc.index(broken)
    ran = gpuenv("create", *JAX, "--channel", broken, "--recreate")
    assert ran.code == 8 and "the old one is as it was" in ran.err
    ran = gpuenv("verify", "--json")
    assert ran.code == 0 and ran.json["verdict"] == "cpu"
    assert {p.name for p in gpuenv.work.iterdir() if "gpuenv-" in p.name} == set()


def test_what_was_edited_in_place_is_mended_though_the_cache_was_edited_with_it(made):
    """An environment's files are hard links into the cache: --recreate holds the cache against its hashes."""
    gpuenv, _ = made
    ran = gpuenv("create", "edited", *JAX, "--no-verify")
    assert ran.code == 0, ran.err
    env = gpuenv.work / "edited"
    (victim,) = env.glob("lib/python3*/site-packages/opt_einsum/__init__.py")
    before = victim.read_bytes()
    with victim.open("ab") as file:
        file.write(b"raise SystemExit('edited')\n")
    assert gpuenv("create", "edited", *JAX, "--no-verify", "--recreate").code == 0
    assert victim.read_bytes() == before


def test_a_lock_for_a_gpu_is_not_installed_where_there_is_none(made, tmp_path):
    gpuenv, _ = made
    lock = tmp_path / "conda-lock.yml"
    ran = gpuenv("lock", "--manager", "conda", "--framework", "jax", "--driver", "580.65.06", "-o", lock)
    assert ran.code == 0, ran.err
    ran = gpuenv("create", "gpu", "--lock", lock)
    assert ran.code == 6 and "the lock is for a GPU" in ran.err
    gpuenv.env["CONDA_OVERRIDE_CUDA"] = "11.8"
    try:
        ran = gpuenv("create", "gpu", "--lock", lock)
    finally:
        del gpuenv.env["CONDA_OVERRIDE_CUDA"]
    assert ran.code == 6 and "above 11.8" in ran.err + ran.out
    assert not (gpuenv.work / "gpu").exists()


def test_a_lock_of_pixi_with_the_hashes_of_its_wheels(made, tmp_path):
    """rattler's reader gives the conda packages, the file itself the wheels' hashes."""
    from provision import profiles
    from provision.lock import conda_foreign

    _, result = made
    conda = result["lock"]["packages"]
    wheel = "https://files.example/x/einops-0.8.0-py3-none-any.whl"
    rows = [f"      - conda: {p['url']}" for p in conda] + [f"      - pypi: {wheel}"]
    text = "version: 6\nenvironments:\n  default:\n    channels:\n    - url: https://conda.anaconda.org/conda-forge/\n"
    text += "    indexes:\n    - https://index.example/simple\n    packages:\n      linux-64:\n" + "\n".join(
        rows
    )
    text += "\npackages:\n"
    for p in conda:
        depends = "".join(f"  - {d}\n" for d in p["depends"])
        text += f"- conda: {p['url']}\n  sha256: {p['sha256']}\n  md5: {p['md5']}\n  size: {p['size']}\n"
        text += f"  depends:\n{depends}" if depends else "  depends: []\n"
    text += f"- pypi: {wheel}\n  name: einops\n  version: 0.8.0\n  sha256: {'e' * 64}\n  requires_python: '>=3.8'\n"
    path = tmp_path / "pixi.lock"
    path.write_text(text)
    lock = conda_foreign.read(path, "linux-x86_64", profiles.load().conda)
    assert {(p.name, p.sha256) for p in lock.packages} == {(p["name"], p["sha256"]) for p in conda} | {
        ("einops", "e" * 64)
    }
    assert [b.framework for b in lock.plan.builds] == ["jax"]
    with pytest.raises(Exception, match="no packages for linux-aarch64"):
        conda_foreign.read(path, "linux-aarch64", profiles.load().conda)


def test_without_the_extra_the_command_that_helps_is_named(tmp_path):
    code = (
        "import sys; sys.modules['rattler'] = None; from provision.cli import run; "
        "sys.exit(run(['create', 'env', '--manager', 'conda', '--framework', 'jax', '--device', 'cpu']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "pip install 'gpuenv[conda]'" in done.stderr


@pytest.mark.slow
def test_torch_in_a_conda_environment(tmp_path):
    from framework_envs import find_links

    tag = f"-cp{cc.TAG[2:]}-"
    wheels = [w for f in find_links() for w in Path(f).glob("torch-*+cpu*.whl") if tag in w.name]
    if not wheels:
        pytest.skip("pip's find-links hold no CPU wheel of torch for this Python")
    folder = tmp_path / "conda-forge"
    shutil.copytree(cc.channel(), folder, copy_function=os.link)
    for one in cc.installed([str(max(wheels))], tmp_path / "wheels"):
        if one.metadata["Name"] == "torch":
            cc.wheel_package(folder, one, f"cpu_{cc.TAG}h0_0", name="pytorch")
        else:
            cc.wheel_package(folder, one)
    cc.index(folder)
    gpuenv = command(tmp_path)
    ran = gpuenv("create", "--manager", "conda", "--framework", "torch", "--device", "cpu", "--channel", folder,
                 "--json", timeout=600)  # fmt: skip
    assert ran.code == 0, ran.err
    assert ran.json["verdict"]["verdict"] == "cpu"
