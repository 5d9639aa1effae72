"""Locks of conda environments, gpuenv's own and others', and what is built from them. Python is real, jax
only looks like it: nothing is proved here."""

import re
import shutil
from pathlib import Path

import conda_channel as cc
import pytest
from command import Command
from environment_facts import ok
from programs import run_program
from rows import rows

from provision.conda import solver

JAX = ("--manager", "conda", "--framework", "jax", "--device", "cpu")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(gpuenv, JSON of create) of an environment made through a mirror rule, as from conda-forge."""
    gpuenv = Command(tmp_path_factory.mktemp("conda locks"))
    gpuenv.env["RATTLER_CACHE_DIR"] = str(cc.home() / "rattler-cache")  # unpacked once for all tests
    config = gpuenv.folder / "config" / "rattler" / "config.toml"
    config.parent.mkdir(parents=True)
    with cc.serving(cc.bare()) as server:
        config.write_text(f'[mirrors]\n"https://conda.anaconda.org/conda-forge" = ["{server.url}"]\n')
        ran = ok(gpuenv("create", *JAX, "--no-verify", "--json"))
        yield gpuenv, ran.json


@pytest.fixture(scope="module")
def locked(made):
    gpuenv, _ = made
    ok(gpuenv("lock", *JAX))
    return gpuenv, gpuenv.work / "conda-lock.yml"


def render(gpuenv, path):
    """The lock as an explicit list, by the real conda-lock."""
    done = run_program(
        [cc.BIN / "conda-lock", "render", "-k", "explicit", "-p", "linux-64", path],
        cwd=gpuenv.work,
        env=gpuenv.env,
    )
    assert done.returncode == 0, done.stderr
    return (gpuenv.work / "conda-linux-64.lock").read_text()


@pytest.mark.slow
def test_conda_lock_itself_renders_our_lock(locked):
    rendered = render(*locked)
    assert "@EXPLICIT" in rendered and "/conda-forge/linux-64/jaxlib-" in rendered


def test_the_lock_alone_makes_the_same_environment(locked):
    gpuenv, path = locked
    ok(gpuenv("create", "from-lock", "--lock", path, "--no-verify", "--json"))
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
    ok(gpuenv("lock", *JAX, "--platform", "linux-aarch64", "--channel", other))
    import yaml

    held = yaml.safe_load(path.read_text())
    assert held["metadata"]["platforms"] == ["linux-64", "linux-aarch64"]
    assert {p["platform"] for p in held["package"]} == {"linux-64", "linux-aarch64"}
    ok(gpuenv("create", "still", "--lock", path, "--no-verify"))


def test_an_explicit_list_of_conda_lock_is_installed_with_allow_md5(locked):
    """An explicit list as conda-lock renders it carries md5 alone; pixi's lock carries both."""
    gpuenv, _ = locked
    text = render(*locked)
    ran = gpuenv("create", "explicit", "--lock", "conda-linux-64.lock", "--no-verify")
    assert ran.code == 6 and "--allow-md5" in ran.err and text
    ran = ok(
        gpuenv("create", "explicit", "--lock", "conda-linux-64.lock", "--allow-md5", "--no-verify", "--json")
    )
    assert [b["framework"] for b in ran.json["plan"]["builds"]] == ["jax"]
    assert any("another tool wrote the lock" in n for n in ran.json["plan"]["notes"])


def test_the_driver_of_another_machine_bounds_the_cuda_of_its_plan(made):
    gpuenv, _ = made
    target = ("--driver", "580.65.06", "--gpu", "9.0", "--glibc", "2.28")
    ran = gpuenv("resolve", "--manager", "conda", "--framework", "jax", *target, "--json")
    (build,) = ran.json["builds"]
    assert (build["cuda"], build["cudnn"], ran.json["device"]) == ("12.9", "9.10.2.21", "cuda")
    ran = gpuenv("resolve", "--manager", "conda", "--framework", "jax", "--driver", "535.54.03", "--json")
    assert [b["cuda"] for b in ran.json["builds"]] == ["12.2"], "never above what the driver speaks"
    ran = gpuenv("resolve", "--manager", "conda", "--framework", "jax", "--driver", "525.60.13", "--json")
    assert ran.code == 5 and ran.json["builds"] == []
    assert ran.json["hint"] == "install driver 535.54.03 or newer, which supports CUDA 12.2"
    assert "__cuda 12.0" in ran.json["notes"][0]


def test_the_locks_that_work_with_another_driver_are_told_before_the_change(made, tmp_path):
    """CUDA 12.9 of the lock runs with driver 580, not with 535. A lock for the CPU needs no driver."""
    gpuenv, _ = made
    ask = ("lock", "--manager", "conda", "--framework", "jax", "-o")
    gpu = (tmp_path / "conda-lock.yml", "--driver", "580.65.06", "--gpu", "9.0")
    for words in (gpu, (tmp_path / "login.conda-lock.yml", "--device", "cpu")):
        ok(gpuenv(*ask, *words))
    assert len(ok(gpuenv("resolve", "--locks", tmp_path, "--driver", "595", "--json")).json["locks"]) == 2
    back = gpuenv("resolve", "--locks", tmp_path, "--driver", "535.54.03", "--json")
    assert back.code == 5 and [Path(o["file"]).name for o in back.json["locks"]] == ["login.conda-lock.yml"]
    (missing,) = back.json["fleet"]["unserved"]
    assert missing["reason"].startswith("conda-lock.yml: ")
    assert "its CUDA 12.9 is newer than CUDA 12.2" in missing["reason"]
    assert missing["hint"].endswith(": gpuenv lock --manager conda")


def test_an_override_stands_for_a_gpu_that_is_not_here(made):
    gpuenv, _ = made
    gpuenv.env["CONDA_OVERRIDE_CUDA"] = "12.2"
    try:
        ran = gpuenv("resolve", "--manager", "conda", "--framework", "jax", "--json")
    finally:
        del gpuenv.env["CONDA_OVERRIDE_CUDA"]
    assert [b["cuda"] for b in ran.json["builds"]] == ["12.2"], ran.err
    assert any(
        re.match(r"__cuda is 12\.2, .*CONDA_OVERRIDE_CUDA .*absent", note) for note in ran.json["notes"]
    )
    assert ran.json["target"]["driver_cuda"] == "12.2"


def test_an_override_that_takes_the_gpu_away_is_named(made):
    gpuenv, _ = made
    gpuenv.env["CONDA_OVERRIDE_CUDA"] = ""
    try:
        ran = gpuenv("resolve", "--manager", "conda", "--framework", "jax", "--driver", "580.65.06", "--json")
    finally:
        del gpuenv.env["CONDA_OVERRIDE_CUDA"]
    assert ran.code == 5 and re.fullmatch(r"unset CONDA_OVERRIDE_CUDA: .*13\.0", ran.json["hint"])


def test_an_environment_that_fails_its_proof_gives_the_old_one_back(made):
    """What looks like jax passes no proof."""
    gpuenv, _ = made
    mark = gpuenv.work / ".venv" / "mine"
    mark.touch()
    ran = gpuenv("create", *JAX, "--recreate")
    assert ran.code == 8 and "the new environment failed. " in ran.err and ".venv was not changed" in ran.err
    assert mark.exists() and (gpuenv.work / ".venv" / "bin" / "python").exists()
    assert {p.name for p in gpuenv.work.iterdir() if "gpuenv-" in p.name} == set()


def test_recreate_restores_an_edited_file_that_is_linked_to_the_cache(made):
    """An environment's files are hard links into the cache: --recreate holds the cache against its hashes."""
    gpuenv, _ = made
    ok(gpuenv("create", "edited", *JAX, "--no-verify"))
    env = gpuenv.work / "edited"
    (victim,) = env.glob("lib/python3*/site-packages/numpy/__init__.py")
    before = victim.read_bytes()
    with victim.open("ab") as file:
        file.write(b"raise SystemExit('edited')\n")
    assert gpuenv("create", "edited", *JAX, "--no-verify", "--recreate").code == 0
    assert victim.read_bytes() == before


def test_a_lock_for_a_gpu_is_not_installed_where_there_is_none(made, tmp_path):
    gpuenv, _ = made
    lock = tmp_path / "conda-lock.yml"
    ok(gpuenv("lock", "--manager", "conda", "--framework", "jax", "--driver", "580.65.06", "-o", lock))
    ran = gpuenv("create", "gpu", "--lock", lock)
    assert ran.code == 6 and "the lock is for a GPU" in ran.err
    gpuenv.env["CONDA_OVERRIDE_CUDA"] = "11.8"
    try:
        ran = gpuenv("create", "gpu", "--lock", lock)
    finally:
        del gpuenv.env["CONDA_OVERRIDE_CUDA"]
    assert ran.code == 6 and "newer than CUDA 11.8" in ran.err + ran.out
    assert not (gpuenv.work / "gpu").exists()


def test_a_lock_that_the_library_of_pixi_wrote_is_installed(made, index, tmp_path):
    """rattler_lock writes pixi.lock for pixi too."""
    import asyncio
    import hashlib

    import rattler
    from rattler.lock import LockChannel, LockFile, LockPlatform

    gpuenv, _ = made
    index.add("other", "1.0")
    ((file, data),) = index.wheels["other"].items()
    wheel, platform = index.url.replace("/simple", f"/files/other/{file}"), LockPlatform("linux-64")
    channel = cc.bare().as_uri()
    records = asyncio.run(
        rattler.solve([rattler.Channel(channel)], ["python", "jax"], platforms=["linux-64", "noarch"])
    )
    written = LockFile([platform])
    written.set_channels("default", [LockChannel(channel)])
    for record in records:
        written.add_conda_package("default", platform, record)
    written.add_pypi_package("default", platform, "other", "1.0", wheel)
    path = tmp_path / "pixi.lock"
    written.to_path(path)
    ran = gpuenv("create", "of-pixi", "--lock", path, "--no-verify")
    assert ran.code == 6 and "no sha256 for 1 of 5 packages (other)" in ran.err and "lock again" in ran.err
    path.write_text(f"{path.read_text().rstrip()}\n  sha256: {hashlib.sha256(data).hexdigest()}\n")
    ok(gpuenv("create", "of-pixi", "--lock", path, "--no-verify", "--index", index.url))
    assert len(list((gpuenv.work / "of-pixi" / "conda-meta").glob("*.json"))) == 4
    assert next((gpuenv.work / "of-pixi").glob("lib/python3*/site-packages/other/__init__.py"))
    path.write_text(path.read_text().replace(hashlib.sha256(data).hexdigest(), "0" * 64))
    ran = gpuenv("create", "of-pixi-2", "--lock", path, "--no-verify", "--index", index.url)
    assert ran.code == 7 and "hash" in ran.err.lower() and not (gpuenv.work / "of-pixi-2").exists(), ran.err


def test_hashes_of_wheels_are_read_from_a_lock_of_pixi(made, tmp_path):
    from provision import profiles
    from provision.conda import locks

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
    lock = locks.read(path, "linux-x86_64", profiles.load().conda)
    assert {(p.name, p.sha256) for p in lock.packages} == {(p["name"], p["sha256"]) for p in conda} | {
        ("einops", "e" * 64)
    }
    assert [b.framework for b in lock.plan.builds] == ["jax"]
    with pytest.raises(Exception, match="no packages for linux-aarch64"):
        locks.read(path, "linux-aarch64", profiles.load().conda)


@rows(
    ("said", "told"),
    [
        ("open '/c/a'\nCaused by: Permission denied", "is not accessible"),
        ("persist /c/a", "the conda package cache cannot be used"),
    ],
)
def test_a_cache_that_cannot_be_used_is_named(said, told):
    error = solver.explain_channel({"kind": "GatewayError", "text": f"failed to {said}"}, ["http://h/c"])
    assert told in error.message and "--cache-dir" in (error.hint or "")
