"""Input that is made to harm: what tests/faults/hostile.py found, each as small as it can be."""

import json
import os
import sys
import time
from pathlib import Path

import pytest
from rows import rows

from provision.actions.diagnose import read_machine
from provision.conda import locks
from provision.config import target
from provision.config.file import read_config
from provision.config.project import read_cached_config
from provision.environment import place, record, registry, transaction, venv
from provision.environment.activate import activate_line
from provision.environment.uv_install import UvInstall
from provision.errors import BuildError, DataError, LockError, UsageError
from provision.model import Lock, LockedPackage, PackageSources, Plan, Target, drop_event, from_plain
from provision.profiles import load
from provision.system import process, untrusted
from provision.verify import probe
from provision.wheels import pylock

LINE_MORE = "\n--index-url http://127.0.0.1:9/evil"


@pytest.fixture
def outside(tmp_path):
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "precious.txt").write_text("precious\n")
    return folder


@pytest.fixture
def env(tmp_path):
    """What has the shape of an environment that gpuenv made."""
    path = tmp_path / "env"
    (path / "bin").mkdir(parents=True)
    (path / "bin" / "python").symlink_to(sys.executable)
    (path / "lib" / "python3.11" / "site-packages" / "jax").mkdir(parents=True)
    (path / "lib64").symlink_to("lib")
    (path / place.MARK).mkdir()
    (path / place.MARK / "plan.json").write_text("{}")
    return path


# --- environments that lead out --------------------------------------------------------------------


def test_a_normal_environment_passes_the_search_for_links_out(env):
    transaction.check_links(env)


@pytest.mark.parametrize(
    ("where", "target"),
    [
        *((w, "") for w in ("lib/python3.11/site-packages/nvidia", "lib/python3.11/site-packages/jax/a", "share",
                            ".gpuenv/fetched", "conda-meta")),
        *((w, "precious.txt") for w in ("pyvenv.cfg", "bin/activate", ".gpuenv/requirements.txt",
                                        "lib/python3.11/site-packages/_virtualenv.pth")),
    ],
)  # fmt: skip
def test_a_folder_or_file_that_is_a_link_out_is_not_written_through(env, outside, where, target):
    (env / where).symlink_to(outside / target)
    with pytest.raises(BuildError, match="link"):
        transaction.check_links(env)


def test_folders_that_are_too_deep_are_refused(env):
    (env / Path(*["d"] * 80)).mkdir(parents=True)
    with pytest.raises(BuildError, match="deep"):
        transaction.check_links(env)


def test_a_verdict_is_not_kept_through_a_link(env, outside):
    state_folder = env / place.MARK
    state_folder.rename(outside / "mark")
    state_folder.symlink_to(outside / "mark")
    before = sorted(p.name for p in (outside / "mark").iterdir())
    with pytest.raises(BuildError, match="link"):
        record.write(env, "verdict.json", {})
    assert sorted(p.name for p in (outside / "mark").iterdir()) == before


@pytest.mark.parametrize("kind", ["symlink_to", "hardlink_to"])
def test_the_requirements_file_replaces_a_link_and_does_not_follow_it(env, outside, kind):
    getattr(env / place.MARK / "requirements.txt", kind)(outside / "precious.txt")
    plan = Plan(
        builds=(),
        python="3.11",
        platform="linux-x86_64",
        manager="venv",
        device="cpu",
        target=Target(platform="linux-x86_64"),
    )
    lock = Lock(manager="venv", target=plan.target, plan=plan, packages=())
    UvInstall(lock, env, PackageSources(), drop_event, "nothing-of-this-name===1\n").install(offline=True)
    assert (outside / "precious.txt").read_text() == "precious\n"


def test_a_mark_alone_makes_no_environment(tmp_path, outside):
    (outside / place.MARK).mkdir()
    with pytest.raises(UsageError, match="is not an environment"):
        place.check_place(outside)


@pytest.mark.parametrize("name", ["a\nb", "a\x1b]0;x\x07", "\x9b31m", "a\u202eb", "a\udcff"])
def test_a_name_that_no_script_can_hold_is_refused(tmp_path, name):
    with pytest.raises(UsageError, match=r"do(es)? not support"):
        place.check_place(tmp_path / name)


def test_the_root_is_no_place_for_an_environment():
    for asked in (
        place.get_draft_path,
        place.get_old_path,
        place.is_undisturbed,
    ):
        with pytest.raises(UsageError, match="cannot be used for an environment"):
            asked(Path("/"))
    assert not registry._is_gone(Path("/"))


def test_neither_a_name_like_an_option_nor_uvs_own_settings_change_the_new_environment(tmp_path, monkeypatch):
    for name in ("UV_SYSTEM_SITE_PACKAGES", "UV_VENV_SEED", "UV_VENV_RELOCATABLE"):
        monkeypatch.setenv(name, "1")
    env = tmp_path / "-rf"
    venv.make_venv(env, sys.executable, PackageSources(), prompt="-rf")
    assert (env / "bin" / "python").exists()
    config = (env / "pyvenv.cfg").read_text()
    assert "include-system-site-packages = false" in config
    assert "seed" not in config
    assert not list(env.glob("lib/python3*/site-packages/pip"))


def test_a_password_in_gpuenv_yaml_is_not_kept_in_the_cache(tmp_path):
    file = tmp_path / "gpuenv.yaml"
    for address, many in (("https://h/simple", 1), ("https://u:s3cr3t@h/simple", 0)):
        file.write_text(f'frameworks: ["jax"]\nindexes:\n  pypi: "{address}"\n')
        assert read_cached_config(file, tmp_path / str(many)).indexes == {"pypi": address}
        assert len(list(tmp_path.glob(f"{many}/*"))) == many


def test_the_home_folder_is_no_environment(env, monkeypatch):
    monkeypatch.setenv("HOME", str(env / "lib"))
    with pytest.raises(UsageError, match="home"):
        place.check_place(env)


# --- files that are none ---------------------------------------------------------------------------

READERS = {
    "target": (target.read_target, UsageError),
    "machine": (read_machine, UsageError),
    "pylock": (pylock.read, LockError),
    "conda lock": (lambda path: locks.read(path, "linux-x86_64", ()), LockError),
    "profiles": (lambda path: load([path.parent]), DataError),
    "gpuenv.yaml": (read_config, DataError),
}


@pytest.mark.parametrize("reader", sorted(READERS))
@pytest.mark.parametrize("kind", ["a pipe", "a device", "a folder", "itself"])
def test_what_is_no_file_is_refused_at_once(tmp_path, reader, kind):
    path = tmp_path / "data" / "jax.yaml"
    path.parent.mkdir()
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if kind == "a device" else path.name)
    read, refusal = READERS[reader]
    with pytest.raises(refusal):
        read(path)


def test_a_descriptor_that_the_user_hands_on_is_read():
    reading, writing = os.pipe()
    os.write(writing, b"text")
    os.close(writing)
    try:
        assert untrusted.read_bytes(Path(f"/dev/fd/{reading}")) == b"text"
    finally:
        os.close(reading)


def test_pipes_and_devices_among_the_listed_environments_are_ignored(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    folder = tmp_path / "gpuenv" / "environments"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "a.json")
    (folder / "b.json").symlink_to("/dev/zero")
    (folder / "c.json").write_text('{"path": "/"}')
    assert registry.list_environments(prune=False) == []


# --- a line more is an order more -------------------------------------------------------------------


@rows(
    ("key", "text"),
    [("name", "jax" + LINE_MORE), ("name", "--index-url=x"), ("name", "../x"), ("version", "1" + LINE_MORE), ("sha256", "a" * 64 + LINE_MORE),
     ("url", "https://h/x-1-py3-none-any.whl" + LINE_MORE), ("url", "https://h/x.whl --index-url x"), ("name", "jax\x1b]0;x\x07")],
)  # fmt: skip
def test_a_locked_package_with_a_field_of_another_form_is_refused(key, text):
    sound = {"name": "jax", "version": "1", "url": "https://h/jax-1-py3-none-any.whl", "sha256": "a" * 64}
    assert from_plain(LockedPackage, sound).name == "jax"
    with pytest.raises(ValueError, match=key):
        from_plain(LockedPackage, {**sound, key: text})


@pytest.mark.parametrize("place_", ["url", "hash", "no address"])
def test_a_pylock_with_a_line_more_is_refused(tmp_path, place_):
    import tomli_w

    file = {
        "name": "x-1-py3-none-any.whl",
        "url": "https://h/x-1-py3-none-any.whl",
        "hashes": {"sha256": "a" * 64},
    }
    if place_ == "no address":
        file["url"] = "http://[::1"
    elif place_ == "url":
        file["url"] += LINE_MORE
    else:
        file["hashes"]["sha256"] += LINE_MORE
    target = {"platform": "linux-x86_64"}
    plan = {
        "builds": [],
        "python": "3.11",
        "platform": "linux-x86_64",
        "manager": "venv",
        "device": "cpu",
        "target": target,
    }
    lock = {"lock-version": "1.0", "created-by": "x", "packages": [{"name": "x", "version": "1", "wheels": [file]}],
            "tool": {"gpuenv": {"manager": "venv", "target": target, "plan": plan}}}  # fmt: skip
    (tmp_path / "pylock.toml").write_text(tomli_w.dumps(lock))
    with pytest.raises(LockError, match=r"url|sha256|URL"):
        pylock.read(tmp_path / "pylock.toml")


@pytest.mark.parametrize(
    ("key", "text"), [("glibc", "2.35\x1b[2J"), ("glibc", "x"), ("driver", "580; rm"), ("driver", "")]
)
def test_a_target_with_a_field_of_another_form_is_refused(tmp_path, key, text):
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"platform": "linux-x86_64", key: text}))
    with pytest.raises(UsageError, match=key):
        target.read_target(path)


# --- what starts before a probe ----------------------------------------------------------------------


def reported(folder, text):
    """What a probe reports to which a startup file adds."""
    (folder / "sitecustomize.py").write_text(text)
    return probe.run_probe(
        sys.executable, ("report", "python_search_paths"), {"frameworks": ["json"]},
        environ={**process.environ(), "PYTHONPATH": str(folder)}, timeout=30,
    )  # fmt: skip


@pytest.mark.parametrize(
    "start",
    ["os.write(fd, b'{\"kind\": \"where\", \"frameworks\": 7}\\n')", "os.write(fd, b'{\"kind\": \"where\", \"run\": null}\\n' + b'[' * 9999)",
     "os.write(fd, b'half a line {')", "print('{\"kind\": \"where\"}')"],
)  # fmt: skip
def test_text_that_a_startup_file_adds_to_the_report_is_ignored(tmp_path, start):
    report = reported(tmp_path, f"import os\nfd = int(os.environ.get('GPUENV_REPORT', 1))\n{start}\n")
    assert [r["kind"] for r in report.records] == ["where"]
    assert report.records[0]["version"] == ".".join(map(str, sys.version_info[:3]))


def test_a_report_that_a_startup_file_forged_is_not_believed(tmp_path):
    lie = 'import os\nos.write(int(os.environ[\'GPUENV_REPORT\']), b\'{"kind": "where"}\\n{"kind": "done"}\\n\')\nos._exit(0)\n'
    assert reported(tmp_path, lie).records == ()


def test_what_a_child_left_behind_is_not_waited_for():
    began = time.monotonic()
    ended = process.run(["sh", "-c", "sleep 600 & echo told $!"], timeout=500)
    report, number = ended.stdout.split()
    os.kill(int(number), 9)  # it is there still
    assert ended.ok and report == "told"
    assert time.monotonic() - began < 300


# --- users and folders -------------------------------------------------------------------------------


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can take another user's place"
)
def test_with_another_users_rights_nothing_is_done(tmp_path):
    code = "import os, sys\nos.setresuid(12345, 0, 0)\nfrom provision.cli import run\nsys.exit(run(['list']))"
    ended = process.run([sys.executable, "-c", code], timeout=300)
    assert ended.returncode == 2 and "another user's rights" in ended.stderr


def test_an_activate_line_takes_a_name_for_no_option(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert " ./-rf/bin/activate" in activate_line(tmp_path / "-rf", {"SHELL": "/bin/bash"})
