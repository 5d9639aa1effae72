"""Bundles: everything for a machine without a network, made from a loopback index, used where there is none."""
# ruff: noqa: F811  # fixtures are imported by their name

import dataclasses
import errno
import hashlib
import http.server
import importlib.metadata
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import project_packages
import pytest
from bundle_site import ASK, HERE, UV, again, bundle, files, made, no_network, site, target  # noqa: F401  # fixtures
from command import Command
from environment_facts import ok, refused
from loopback import running
from packaging.requirements import Requirement
from programs import run_program

import provision.bundle as bundles
from provision.bundle import install, wheels
from provision.bundle.files import fetch_archive
from provision.bundle.packages import BundledLock, choose_per_platform
from provision.bundle.writer import BundleWriter, merge_items
from provision.config.options import Choices
from provision.errors import BuildError, LockError
from provision.index.downloads import Download
from provision.model import (
    Bundle,
    BundlePlan,
    BundlePython,
    Lock,
    LockedPackage,
    PackageSources,
    Plan,
    Profiles,
    Target,
    drop_event,
)


def manifest(folder):
    return json.loads((folder / "gpuenv-bundle.json").read_text())


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def installed(env):
    return {p.name.partition("-")[0]: p for p in env.glob("lib/python3*/site-packages/*.dist-info")}


def test_a_file_of_gpuenv_itself_that_changed_or_came_is_named(target):
    wheel = next((target.bundle / "gpuenv").glob("gpuenv-*.whl"))
    kept = wheel.read_bytes()
    wheel.write_bytes(kept[:-1] + b"x")
    ran = refused(target.create(), 7)
    assert f"gpuenv/{wheel.name} of the bundle" in ran.err + ran.out and "changed" in ran.out + ran.err
    wheel.unlink()
    ran = target.create()
    assert ran.code == 7 and f"gpuenv/{wheel.name} of the bundle" in ran.err + ran.out
    wheel.write_bytes(kept)
    newer = wheel.with_name("gpuenv-999-py3-none-any.whl")
    newer.write_bytes(kept)
    ran = target.create()
    assert ran.code == 7 and f"gpuenv/{newer.name} in " in ran.err + ran.out, ran.err + ran.out
    newer.unlink()
    install.check_files(target.bundle, drop_event)


# --- what is in it -------------------------------------------------------------------------------


def test_the_manifest_holds_every_file_with_its_hash(bundle):
    made, there = manifest(bundle), files(bundle)
    assert made["schema"] == "gpuenv.bundle/1" and made["complete"] and made["lock"] == "pylock.toml"
    assert {f["path"] for f in made["files"]} == set(there) - {"gpuenv-bundle.json"}
    for file in made["files"]:
        assert (there[file["path"]].stat().st_size, sha256(there[file["path"]])) == (
            file["size"],
            file["sha256"],
        )


def test_every_wheel_of_the_lock_is_in_it_and_gpuenv_with_what_it_requires(bundle):
    there = files(bundle)
    assert {"wheels/" + Path(p).name for p in there if p.startswith("wheels/nvidia_cudnn_cu13")}
    names = {Path(p).name.partition("-")[0] for p in there if p.startswith("gpuenv/")}
    own = {Requirement(t).name for t in wheels.own_requirements()}
    assert {Requirement(t).name for t in wheels.own_requirements("conda")} - own == {
        "conda-lock",
        "py-rattler",
    }
    assert names >= {name.replace("-", "_") for name in own} | {
        "gpuenv",
        "pip",
    }
    assert [p for p in there if "uv-" in p] == [
        f"gpuenv/uv-{UV}-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
    ]


def test_the_gpuenv_wheel_in_a_bundle_holds_the_running_code(bundle, tmp_path):
    wheel = next((bundle / "gpuenv").glob("gpuenv-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        about = archive.read(next(n for n in names if n.endswith("METADATA"))).decode()
    root = Path(__file__).resolve().parents[2]
    assert "provision/profiles_data/torch.yaml" in names and "provision/probes/gpu.py" in names
    assert {
        f"provision/{p.relative_to(root / 'provision').as_posix()}"
        for p in (root / "provision").rglob("*.py")
    } <= names
    assert all(f"Requires-Dist: {Requirement(t).name}" in about for t in wheels.own_requirements())
    argv = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--target",
        tmp_path / "t",
        wheel,
    ]
    subprocess.run(argv, check=True)
    env = {"PYTHONPATH": str(tmp_path / "t"), "PATH": os.environ["PATH"]}
    done = run_program([sys.executable, "-m", "provision", "--version"], env=env, cwd="/", check=True)
    assert done.stdout.startswith("gpuenv ")


def test_the_readme_has_the_two_commands_and_says_what_is_missing(bundle):
    text = (bundle / "README.txt").read_text()
    assert "pip install --no-index --find-links gpuenv gpuenv\n" in text
    assert "gpuenv create ENV --bundle .\n" in text and f"needs Python {HERE}" in text


def test_nothing_but_the_folder_and_the_caches_is_touched(made):
    assert not made.touched


@pytest.mark.parametrize("way", ["address", "netrc"])
def test_a_private_index_is_asked_with_its_password_which_stays_out_of_the_bundle(site, way):
    site.index.needs = "Basic bWU6aHVudGVyMg=="
    if way == "address":
        site.gpuenv.env["PIP_INDEX_URL"] = site.index.url.replace("//", "//me:hunter2@")
    else:
        netrc = site.gpuenv.folder / "home" / ".netrc"
        netrc.write_text("machine 127.0.0.1 login me password hunter2\n")
        netrc.chmod(0o600)
    ran = ok(site.make())
    assert "hunter2" not in ran.err + ran.out
    assert not [n for n, p in files(site.out).items() if b"hunter2" in p.read_bytes()]


# --- for another machine -------------------------------------------------------------------------


def test_a_bundle_for_another_machine_has_that_machines_files(site):
    theirs = {"schema": "gpuenv.target/1", "platform": "linux-aarch64", "glibc": "2.39", "driver": "580.95.05",
              "driver_os": "linux", "driver_cuda": None, "gpus": [{"capability": "9.0", "name": "GH200"}],
              "forward_compat": None}  # fmt: skip
    (site.gpuenv.work / "node.json").write_text(json.dumps(theirs))
    ask = ("--framework", "torch", "--python", "3.12", "--index", "pypi", "--target", "node.json")
    site.index.add_plan(site.gpuenv("resolve", *ask, "--json").json)
    ran = ok(site.make(ask=ask))
    assert ran.json["target"] == {k: v for k, v in theirs.items() if k != "schema"}
    assert ran.json["python"] == "3.12"
    assert [p for p in files(site.out) if "uv-" in p] == [
        f"gpuenv/uv-{UV}-py3-none-manylinux_2_28_aarch64.whl"
    ]
    assert "GH200" in (site.out / "README.txt").read_text()
    ran = site.gpuenv("create", "--bundle", "out", "--json")
    assert ran.code == 6 and re.search("linux-aarch64; .*linux-x86_64", ran.json["error"]["message"])
    ask = (
        "-f",
        "torch",
        "--python",
        "3.12",
        "--index",
        "pypi",
        "--device",
        "cpu",
        "--platform",
        "windows-x86_64",
    )
    site.index.add_plan(site.gpuenv("resolve", *ask, "--json").json)
    assert "runs on Linux" in refused(site.make("--dry-run", ask=ask), 2).json["error"]["message"]


# --- again, and interrupted ----------------------------------------------------------------------


def test_a_second_run_fetches_nothing_and_people_see_size_room_and_the_next_step(again):
    before = {n: sha256(p) for n, p in files(again.folder).items() if not n.startswith("gpuenv")}
    ran = ok(again())
    assert not again.index.downloads()
    assert {n: sha256(p) for n, p in files(again.folder).items() if not n.startswith("gpuenv")} == before
    assert "0 B to download (0 of " in ran.err and " free\n" in ran.err
    assert "the bundle has no Python" in ran.err
    assert ran.out.splitlines()[-1].startswith(f"gpuenv create ENV --bundle '{again.folder}'")


def test_a_second_run_fetches_missing_or_changed_files_and_removes_old_ones(again):
    gone, changed, part = sorted((again.folder / "wheels").glob("nvidia_c*.whl"))[:3]
    gone.unlink()
    changed.write_bytes(changed.read_bytes()[:-1] + b"?")
    part.rename(part.with_name(f".{part.name}.part"))
    begun = again.folder / "wheels" / ".old-1.0-py3-none-any.whl.part"
    for file in (begun, again.folder / "wheels" / "old-1.0-py3-none-any.whl"):
        file.write_text("of the last bundle")
    (again.folder / "mine.txt").write_text("notes")
    data = manifest(again.folder)
    data["files"].append({"path": "wheels/old-1.0-py3-none-any.whl", "size": 18, "sha256": "0" * 64})
    (again.folder / "gpuenv-bundle.json").write_text(json.dumps(data))
    ran = ok(again("--json"))
    assert {p.rpartition("/")[2] for p in again.index.downloads()} == {gone.name, changed.name}
    assert set(files(again.folder)) == {f["path"] for f in ran.json["files"]} | {
        "mine.txt",
        "gpuenv-bundle.json",
    }
    assert "wheels/old-1.0-py3-none-any.whl" not in files(again.folder) and not begun.exists()


def wait_for_all_others(folder):
    """Until one file is lacking: the others come while it hangs."""
    end = time.monotonic() + 300
    lacking = 2
    while lacking > 1:
        assert time.monotonic() < end
        time.sleep(0.05)
        lacking = sum(not (folder / f["path"]).exists() for f in manifest(folder)["files"])


def end_when_one_file_lacks(site, file, sent, *words):
    """What a bundle prints that a signal ends while one file stalls, and that nobody can use."""
    site.index.faults[file] = "stalled"
    argv = [sys.executable, "-m", "provision", "bundle", "out", *words]
    child = subprocess.Popen(
        argv, env=site.gpuenv.env, cwd=site.gpuenv.work, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert site.index.stalled.wait(300)
    wait_for_all_others(site.out)
    child.send_signal(sent)
    _, err = child.communicate(timeout=300)
    assert child.returncode == (130 if sent == signal.SIGINT else -sent), err
    assert not manifest(site.out)["complete"]
    ran = refused(site.gpuenv("create", "--bundle", "out", "--json"), 6)
    assert "unfinished" in ran.json["error"]["message"]
    site.index.released.set()
    site.index.faults.clear()
    return err


@pytest.mark.parametrize("sent", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGKILL])
def test_the_next_run_continues_a_bundle_that_was_interrupted(site, sent):
    file = next(iter(site.index.wheels["nvidia-cudnn-cu13"]))
    err = end_when_one_file_lacks(site, file, sent, *ASK)
    assert sent != signal.SIGINT or b"interrupted\nhint: run the same command again" in err
    before = site.index.downloads()
    site.index.add("pip", "99.0")  # a fresh lock would take it; what was begun is gone on with
    assert "continuing with the lock of" in ok(site.make()).err
    again = {p: n for p, n in site.index.downloads().items() if n > before[p] > 0 and not p.endswith(file)}
    assert not again, again
    assert manifest(site.out)["complete"] and not (site.out / "wheels" / "pip-99.0-py3-none-any.whl").exists()


def test_a_file_that_is_not_what_was_locked_is_named(site):
    site.lock()
    file = next(iter(site.index.wheels["nvidia-cudnn-cu13"]))
    site.index.faults[file] = "tampered"
    ran = refused(site.make(ask=()), 7)
    assert file in ran.json["error"]["message"] and "hash differs" in ran.json["error"]["message"]
    assert not (site.out / "wheels" / file).exists()


def test_a_disk_that_is_too_small_is_named_before_anything_is_fetched(site):
    lock = site.lock()
    first = lock.read_text().index("size = ")
    lock.write_text(
        lock.read_text()[:first]
        + "size = 9"
        + "0" * 14
        + lock.read_text()[first + 6 :].lstrip("0123456789 =")
    )
    site.index.forget()
    assert "free; the bundle needs 900" in refused(site.make(ask=()), 7).json["error"]["message"]
    assert not site.index.downloads()


# --- whose folder --------------------------------------------------------------------------------


def test_a_folder_of_somebody_else_is_left_alone(site):
    site.out.mkdir()
    (site.out / "thesis.tex").write_text("years of work")
    assert "thesis.tex" in refused(site.make(), 2).json["error"]["message"]
    assert [p.name for p in site.out.iterdir()] == ["thesis.tex"]
    (site.gpuenv.work / "file").write_text("")
    (site.gpuenv.work / "link").symlink_to("missing")
    assert site.gpuenv("bundle", "file", *ASK).code == site.gpuenv("bundle", "link", *ASK).code == 2
    ran = site.gpuenv("bundle", "/proc/bundle", *ASK)
    assert ran.code == 7 and "cannot write in /proc" in ran.err and "solving" not in ran.err


def test_a_manifest_that_names_a_path_outside_is_refused(again):
    data = manifest(again.folder)
    data["files"].append({"path": "../keep.txt", "size": 1, "sha256": "0" * 64})
    (again.folder / "gpuenv-bundle.json").write_text(json.dumps(data))
    (again.folder.parent / "keep.txt").write_text("x")
    ran = refused(again("--json"), 6)
    assert "keep.txt" in ran.json["error"]["message"] and (again.folder.parent / "keep.txt").exists()


# --- which lock ----------------------------------------------------------------------------------


def test_a_bundle_is_made_of_the_named_lock_and_needs_a_lock_or_a_framework(site):
    site.lock("--output", "other.toml")
    site.index.add("pip", "99.0")
    ok(site.make("--lock", "other.toml", ask=()))
    assert (site.out / "wheels" / "pip-26.0-py3-none-any.whl").exists()
    begun = manifest(site.out) | {"complete": False}
    (site.out / "gpuenv-bundle.json").write_text(json.dumps(begun))
    site.lock("--output", "other.toml", "--upgrade", "--force")
    ok(site.make("--lock", "other.toml", ask=()))
    assert (site.out / "wheels" / "pip-99.0-py3-none-any.whl").exists(), (
        "the lock that is named is that of now"
    )
    assert "no --framework given" in refused(site.make(ask=()), 2).json["error"]["message"]


def test_a_bundle_can_be_made_offline_from_a_folder_of_wheels(site, tmp_path):
    links = tmp_path / "links"
    links.mkdir()
    for held in site.index.wheels.values():
        for name, data in held.items():
            (links / name).write_bytes(data)
    site.index.forget()
    ok(site.make("--offline", "--find-links", links))
    assert not site.index.requests and manifest(site.out)["complete"]


def test_folders_and_sources_of_a_lock_come_along(site, tmp_path):
    """A project in place becomes a wheel; a source archive is built on the target with what is in the bundle."""
    project = project_packages.folder(site.gpuenv.work / "mine", "mine", "1.0")
    name, data = project_packages.archive(tmp_path / "scratch", "fromsource", "2.0")
    site.index.wheels["fromsource"] = {name: data}
    (site.gpuenv.work / "requirements.txt").write_text(f"-e {project}\nfromsource\n")
    ok(site.gpuenv("lock", *ASK, "-r", "requirements.txt"))
    lock = site.gpuenv.work / "pylock.toml"
    lock.write_text(lock.read_text().replace('device = "cuda"', 'device = "cpu"'))
    ran = ok(site.make("--lock", lock, ask=()))
    assert {"wheels/mine-1.0-py3-none-any.whl", f"wheels/{name}"} <= set(files(site.out))
    assert len(ran.json["notes"]) == 2
    shutil.rmtree(project)
    env = site.gpuenv.env | {
        "UV_CACHE_DIR": str(tmp_path / "fresh"),
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
    }
    site.gpuenv.env = env
    ok(site.gpuenv("create", "there", "--bundle", "out", "--no-verify", "--json"))
    assert {"mine", "fromsource", "torch"} <= set(installed(site.gpuenv.work / "there"))


# --- create --bundle -----------------------------------------------------------------------------


def test_an_environment_from_a_bundle_without_any_network_interface(target):
    if shutil.which("unshare") is None or no_network("true").returncode:
        pytest.skip("no network namespaces here")
    look = no_network(sys.executable, "-c", "import socket; socket.create_connection(('127.0.0.1', 22), 1)")
    assert "Network is unreachable" in look.stderr, "the test itself must be without a network"
    argv = [sys.executable, "-m", "provision", "create", "--bundle", target.bundle, "--no-verify", "--json"]
    done = no_network(*argv, env=target.env, cwd=target.work)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    have = installed(target.work / ".venv")
    assert {p["name"].replace("-", "_") for p in made["lock"]["packages"]} == set(have)
    again = no_network(*argv, env=target.env, cwd=target.work)
    assert again.returncode == 0 and json.loads(again.stdout)["environment"]["changed"] is False


def test_a_bundle_ignores_the_index_settings_of_the_target(target):
    """pip.conf of a machine that has no network often names indexes and folders that are not there."""
    target.env |= {
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_EXTRA_INDEX_URL": "file:///nowhere/simple",
        "PIP_FIND_LINKS": "/nowhere", "UV_INDEX": "http://127.0.0.1:9/more", "GPUENV_INDEX_PYTORCH": "http://127.0.0.1:9",
    }  # fmt: skip
    (target.work / "gpuenv.yaml").write_text("frameworks: [jax]\n")
    assert "torch" in installed(Path(ok(target.create()).json["environment"]["path"]))


def one_wheel(target):
    return next((target.bundle / "wheels").glob("nvidia_cudnn_cu13*.whl"))


@pytest.mark.parametrize("how", ["changed", "short", "gone", "no lock"])
def test_a_damaged_bundle_is_refused_with_the_file(target, how):
    wheel = target.bundle / "pylock.toml" if how == "no lock" else one_wheel(target)
    data = wheel.read_bytes()
    if how in ("gone", "no lock"):
        wheel.unlink()
    else:
        wheel.write_bytes(data[:-1] + b"?" if how == "changed" else data[:-1])
    ran = target.create()
    said = ran.json["error"]["message"]
    assert ran.code == 7 and wheel.name in said and "changed after its creation, or is missing" in said
    assert not list(target.work.iterdir()) and "copy the bundle again" in ran.json["error"]["hint"]


def test_a_changed_lock_in_the_bundle_is_refused(target):
    lock = target.bundle / "pylock.toml"
    lock.write_text(lock.read_text().replace("26.0", "26.1"))
    assert "pylock.toml" in refused(target.create(), 7).json["error"]["message"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"complete": False}, "unfinished"),
        ({"python": "3.1"}, "for Python 3.1, not"),
        ({"schema": "gpuenv.bundle/9"}, "damaged"),
        ({"extra": 1}, "damaged: extra"),
    ],
)
def test_a_bundle_that_does_not_fit_is_exit_6(target, change, told):
    data = manifest(target.bundle) | change
    (target.bundle / "gpuenv-bundle.json").write_text(json.dumps(data))
    assert told in refused(target.create("--python", HERE), 6).json["error"]["message"]


def test_create_names_a_bundled_wheel_that_needs_a_newer_glibc(target):
    data = manifest(target.bundle)
    data["files"].append(
        {"path": "wheels/far-1.0-cp311-cp311-manylinux_2_99_x86_64.whl", "size": 1, "sha256": "0" * 64}
    )
    (target.bundle / "gpuenv-bundle.json").write_text(json.dumps(data))
    ran = refused(target.create(), 6)
    assert "far-1.0" in ran.json["error"]["message"] and "glibc" in ran.json["error"]["message"]


def test_create_refuses_a_folder_that_is_no_bundle_and_other_frameworks(target):
    assert target("create", "--bundle", target.work / "none").code == 2
    ran = target("create", "--bundle", target.work, "--json")
    assert ran.code == 6 and "is not a bundle" in ran.json["error"]["message"]
    assert target.create("--lock", target.bundle / "pylock.toml").code == 2
    assert "jax is required" in refused(target.create("--framework", "jax"), 6).json["error"]["message"]


# --- single steps --------------------------------------------------------------------------------

LINUX = Target(platform="linux-x86_64", glibc="2.35", driver="580.65.06", gpus=())
PYTHON = BundlePython(
    key="cpython-3.12.99-linux-x86_64-gnu", version="3.12.99", path="python/cpython-3.12.99.tar.gz"
)
DEMO = LockedPackage(name="demo", version="1", url="https://h/demo-1-py3-none-any.whl", sha256="0" * 64)


def described(**more):
    values = {
        "gpuenv": "1",
        "manager": "venv",
        "lock": "pylock.toml",
        "target": LINUX,
        "device": "cuda",
        "frameworks": (),
    }
    return Bundle(**values, python="3.12", asked="", **more)


def lock_for(target=LINUX, packages=(DEMO,), folder=Path(), emit=drop_event, **sources):
    plan = Plan(
        builds=(), python="3.12", platform=target.platform, manager="venv", device="cpu", target=target
    )
    lock = Lock(manager="venv", target=target, plan=plan, packages=packages)
    return BundledLock(folder, lock, PackageSources(**sources), Profiles(), Choices(), "", emit)


@pytest.mark.parametrize(("number", "message"), [(errno.ENOSPC, "is full"), (errno.EROFS, "cannot write in")])
def test_an_error_of_the_disk_is_named(tmp_path, number, message):
    with pytest.raises(BuildError, match=message), bundles.writing(tmp_path):
        raise OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("glibc", "newer"),
    [(None, None), ("2.17", "wheels/a-1-cp312-cp312-manylinux_2_28_x86_64.whl"), ("2.28", None)],
)
def test_the_wheel_for_a_newer_glibc_is_found(glibc, newer):
    assert (
        bundles.find_newer_glibc(["gpuenv/x.whl", "wheels/a-1-cp312-cp312-manylinux_2_28_x86_64.whl"], glibc)
        == newer
    )


@pytest.mark.parametrize(("version", "alone"), [("3.12.99", True), ("3.9.20", False)])
def test_the_readme_starts_gpuenv_with_the_python_in_the_bundle(version, alone):
    """gpuenv itself needs Python 3.10."""
    text = bundles.readme(described(archive=dataclasses.replace(PYTHON, version=version)))
    assert f"Python {version} is included" in text
    assert (bundles._WITHOUT_PYTHON.splitlines()[0] in text) == alone


def test_a_python_of_the_folder_is_not_downloaded_again(tmp_path):
    (tmp_path / "python").mkdir()
    (tmp_path / PYTHON.path).write_bytes(b"archive")
    before = described(archive=PYTHON, files=bundles.list_files(tmp_path, [PYTHON.path]))
    writer = BundleWriter(tmp_path, before, [], [].append)
    assert writer._find_archive("3.12", "linux-x86_64") == PYTHON
    assert (
        writer._find_archive("3.1", "linux-x86_64") is writer._find_archive("3.12", "linux-aarch64") is None
    )
    (tmp_path / PYTHON.path).write_bytes(b"changed")
    assert writer._find_archive("3.12", "linux-x86_64") is None


def test_a_python_that_uv_does_not_have_is_named(tmp_path):
    assert fetch_archive(tmp_path, "3.1", "linux-x86_64") == (None, "uv has no Python 3.1 for linux-x86_64")


def test_a_python_is_unpacked_by_uv_if_it_is_the_one_of_the_manifest(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "python").mkdir()
    with tarfile.open(tmp_path / PYTHON.path, "w:gz") as tar:
        data = b"# system configuration generated and used by the sysconfig module\nbuild_time_vars = {}\n"
        for name in (
            "bin/python3.12",
            "bin/python3",
            "lib/python3.12/_sysconfigdata__linux_x86_64-linux-gnu.py",
        ):
            info = tarfile.TarInfo(f"python/{name}")
            info.mode, info.size = 0o755, len(data)
            tar.addfile(info, io.BytesIO(data))
    plan, env, events = lock_for().plan, tmp_path / "env", []
    bundles.write_manifest(tmp_path, described())
    assert install.unpack_python(tmp_path, plan, env, events.append) is None
    files = bundles.list_files(tmp_path, [PYTHON.path])
    bundles.write_manifest(tmp_path, described(archive=PYTHON, files=files))
    python = Path(install.unpack_python(tmp_path, plan, env, events.append))
    assert python.is_relative_to(tmp_path / "data") and python.exists()
    assert [e.kind for e in events] == ["start"]
    shutil.rmtree(tmp_path / "data")
    changed = dataclasses.replace(files[0], sha256="0" * 64)
    bundles.write_manifest(tmp_path, described(archive=PYTHON, files=(changed,)))
    with pytest.raises(BuildError, match="cannot be unpacked"):
        install.unpack_python(tmp_path, plan, env, events.append)


@pytest.mark.parametrize(
    ("choices", "lock"),
    [
        (
            {"driver": "580.65.06", "gpu": ["9.0"]},
            "for windows-x86_64.*for cpu, but this machine requires cuda",
        ),
        ({"driver": "580.65.06", "platform": "linux-aarch64"}, "for windows-x86_64.*for linux-x86_64"),
    ],
)
def test_a_described_machine_gets_a_lock_for_its_device_and_platform(tmp_path, choices, lock):
    plans = [
        BundlePlan(lock=f"{n}.toml", classes=(), target=dataclasses.replace(LINUX, platform=platform), device="cpu",
                   frameworks=(), python="3.12")
        for n, platform in enumerate(("windows-x86_64", "linux-x86_64"))
    ]  # fmt: skip
    with pytest.raises(LockError, match=lock):
        install.choose_lock(tmp_path, described(plans=tuple(plans)), Choices(**choices), [].append)


def test_the_lock_with_the_oldest_glibc_speaks_for_its_platform():
    locks = [lock_for(dataclasses.replace(LINUX, glibc=glibc)) for glibc in ("2.39", "2.9", None)]
    assert choose_per_platform(locks) == [locks[1]]


def test_a_file_without_a_hash_or_of_two_contents_is_refused(tmp_path):
    with pytest.raises(LockError, match="no hash for demo 1"):
        lock_for(folder=tmp_path).items([dataclasses.replace(DEMO, sha256=None, size=1)])
    one, other = (
        Download(path=tmp_path / "a.whl", urls=(), shown=shown, root=tmp_path, hashes={"sha256": shown})
        for shown in "ab"
    )
    assert merge_items([one, one]) == [one]
    with pytest.raises(LockError, match="is a different file in two locks: a and b"):
        merge_items([one, other])


def test_a_server_that_states_no_sizes_is_no_failure(tmp_path):
    class NoHead(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_error(405)

        def log_message(self, *_):
            pass

    with running(NoHead) as server:
        url = f"http://{server}/demo-1-py3-none-any.whl"
        package = dataclasses.replace(DEMO, url=url)
        assert lock_for(folder=tmp_path)._sizes([package]) == {}


def test_a_folder_that_cannot_be_built_is_named_with_the_output_of_uv(tmp_path):
    missing = f"-e {tmp_path}/missing"
    with pytest.raises(BuildError, match="no wheel can be built") as caught:
        wheels.build_unhashed(
            DEMO, missing, tmp_path / "wheels", sys.executable, PackageSources(offline=True)
        )
    assert "missing" in (caught.value.log or "") and [p.name for p in tmp_path.iterdir()] == []


@pytest.mark.parametrize("tag", ["py3-none-any", "cp312-cp312-linux_x86_64"])
def test_a_wheel_is_made_again_of_its_files_inside_unless_they_are_compiled(tmp_path, tag):
    info = tmp_path / "site" / "demo-1.dist-info"
    info.mkdir(parents=True)
    (tmp_path / "site" / "demo.py").write_text("1\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: demo\nVersion: 1\n")
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nTag: {tag}\n")
    (info / "RECORD").write_text(
        "demo.py,,\n../../outside,,\ndemo-1.dist-info/METADATA,,\ndemo-1.dist-info/WHEEL,,\n"
    )
    (dist,) = importlib.metadata.distributions(path=[str(tmp_path / "site")])
    if tag.startswith("cp"):
        with pytest.raises(LockError, match="demo contains compiled code"):
            wheels._rebuild_wheel(dist, tmp_path / "wheels")
        return
    name = wheels._rebuild_wheel(dist, tmp_path / "wheels")
    with zipfile.ZipFile(tmp_path / "wheels" / name) as wheel:
        assert {n.rpartition("/")[2] for n in wheel.namelist()} == {"demo.py", "METADATA", "WHEEL", "RECORD"}


def test_build_requirements_that_cannot_be_had_are_a_note(tmp_path, monkeypatch):
    source = dataclasses.replace(DEMO, url="https://h/demo-1.tar.gz")
    (tmp_path / "wheels").mkdir()
    with tarfile.open(tmp_path / "wheels" / "demo-1.tar.gz", "w:gz"):
        pass
    events = []
    locked = lock_for(packages=(source,), folder=tmp_path, emit=events.append, offline=True, no_index=True)
    assert locked.build_tools() == []
    assert "are not in the bundle" in locked.notes[-1] and events[-1].kind == "warning"


# --- a Python in it ------------------------------------------------------------------------------


def standalone(folder):
    """An archive as uv's Pythons come, of the interpreter that runs the tests, and uv's list with it alone.
    Its number is one that no machine has."""
    import conda_channel

    path = folder / f"cpython-{HERE}.99+20991231-x86_64-unknown-linux-gnu-install_only.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for member in conda_channel.python_members():
            info = tarfile.TarInfo(f"python/{member.path}")
            info.mode = member.mode
            if member.link:
                info.type, info.linkname = tarfile.SYMTYPE, str(member.link)
                tar.addfile(info)
            else:
                info.size = len(member.data)
                tar.addfile(info, io.BytesIO(member.data))
    entry = {
        "name": "cpython", "arch": {"family": "x86_64", "variant": None}, "os": "linux", "libc": "gnu",
        "major": 3, "minor": sys.version_info[1], "patch": 99, "prerelease": "", "variant": None, "build": "20991231",
        "url": path.as_uri(), "sha256": sha256(path),
    }  # fmt: skip
    (folder / "pythons.json").write_text(json.dumps({f"cpython-{HERE}.99-linux-x86_64-gnu": entry}))
    return path


@pytest.mark.network
@pytest.mark.slow
def test_the_python_in_a_bundle_is_unpacked_where_there_is_none(site, tmp_path):
    archive = standalone(tmp_path)
    site.gpuenv.env["UV_PYTHON_DOWNLOADS_JSON_URL"] = str(tmp_path / "pythons.json")
    del site.gpuenv.env["UV_PYTHON_INSTALL_MIRROR"]
    site.lock()
    ran = ok(site.make(ask=()))
    held = site.out / ran.json["archive"]["path"]
    assert held.name == archive.name and sha256(held) == sha256(archive)
    target = Command(tmp_path / "target")
    target.env["UV_PYTHON_INSTALL_DIR"] = str(tmp_path / "pythons")
    pythons = target.folder / "home/.local/share/gpuenv/pythons"
    bundle = Path(shutil.copytree(site.out, tmp_path / "stick"))
    wanted = ("--bundle", bundle, "--no-verify", "--json", "--python", f"{HERE}.99")

    def made(env):
        ran = ok(target("create", env, *wanted))
        return Path(ran.json["environment"]["python"])

    # A create that fails after the Python was unpacked leaves nothing of it.
    manifest, wheel = bundle / "gpuenv-bundle.json", next((bundle / "wheels").glob("*.whl"))
    kept = manifest.read_text(), wheel.read_bytes()
    data = json.loads(kept[0])
    wheel.write_bytes(kept[1] + b"?")
    row = next(f for f in data["files"] if f["path"] == f"wheels/{wheel.name}")
    row |= {"size": wheel.stat().st_size, "sha256": sha256(wheel)}
    manifest.write_text(json.dumps(data))
    assert "unpacking Python" in refused(target("create", *wanted), 7).err and not pythons.exists()
    manifest.write_text(kept[0])
    wheel.write_bytes(kept[1])

    python = made(".venv")
    assert python.resolve().is_relative_to(pythons / sha256(held)) and not (tmp_path / "pythons").exists()
    again = made("again")
    assert again.resolve() == python.resolve()
    shutil.rmtree(bundle)
    found = target("detect", "--json").json["pythons"]
    assert not [p for p in found if p["version"].endswith(".99")]
    ran = target("create", "third", "--offline", "--framework", "torch", "--python", f"{HERE}.99")
    assert ran.code != 0 and not (target.work / "third").exists()
    assert subprocess.run([python, "-c", ""], check=False).returncode == 0
    ran = target("remove", ".venv", "--dry-run", "--json")
    assert ran.json["removes"] == [str(target.work / ".venv")]
    assert target("remove", ".venv").code == 0
    assert subprocess.run([again, "-c", ""], check=False).returncode == 0
    assert str(pythons / sha256(held)) in target("remove", "again", "--dry-run", "--json").json["removes"]
    assert target("remove", "again").code == 0 and not pythons.exists()

    held.write_bytes(held.read_bytes()[:-1] + b"?")
    ran = target("create", "--bundle", site.out, "--no-verify", "--json", "--python", f"{HERE}.99")
    assert ran.code == 7 and held.name in ran.json["error"]["message"] and not pythons.exists()
