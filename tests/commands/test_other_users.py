"""Files, programs and caches of other users decide nothing: the attacks, through the commands."""
# ruff: noqa: F811  # fixtures are imported by their names

import os
from pathlib import Path

import pytest
from environment_facts import ok, refused
from rows import sampled
from torch_project import GPU, HERE, torch  # noqa: F401

from provision.system import cache

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
STRANGER = 65534
YAML = 'frameworks: ["torch"]\nindexes: {pypi: "%s"}\n'


def give(path, uid=STRANGER):
    os.chown(path, uid, uid, follow_symlinks=False)


def mark_program(path, mark):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ntouch {mark}\nexit 1\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def public(gpuenv):
    """A folder in which everybody can make files, such as /tmp."""
    gpuenv.folder.chmod(0o755)
    gpuenv.work.chmod(0o1777)
    return gpuenv.work


# --- files of a project (finding 7) ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gpuenv.yaml", 'frameworks: ["torch"]\n'),
        ("pyproject.toml", '[tool.gpuenv]\nframeworks = ["torch"]\n'),
    ],
)
@pytest.mark.parametrize("verb", ["resolve", "lock"])
def test_a_project_file_of_another_user_is_refused_and_asks_no_index(gpuenv, public, index, name, text, verb):
    key = 'indexes: {pypi: "%s"}' if name == "gpuenv.yaml" else 'indexes = {pypi = "%s"}'
    (public / name).write_text(text + key % index.url + "\n")
    give(public / name)
    ran = gpuenv(verb, "--json", *GPU, "--python", HERE)
    assert ran.code == 2 and not index.requests
    message = ran.json["error"]["message"]
    assert str(public / name) in message and f"(uid {STRANGER})" in message
    assert "--trust-project" in ran.json["error"]["hint"]


def test_trust_project_accepts_what_it_refuses(gpuenv, public):
    (public / "gpuenv.yaml").write_text('frameworks: ["torch"]\n')
    give(public / "gpuenv.yaml")
    asked = ("resolve", "--json", *GPU, "--python", HERE, "--index", "pypi")
    assert gpuenv(*asked).code == 2
    assert ok(gpuenv(*asked, "--trust-project")).json["builds"][0]["framework"] == "torch"
    gpuenv.env["GPUENV_TRUST_PROJECT"] = "1"  # a variable left in a shell does not permit it
    assert gpuenv(*asked).code == 2


def test_root_uses_a_mounted_checkout_of_another_user(gpuenv):
    (gpuenv.work / "requirements.txt").write_text("torch\n")
    (gpuenv.work / "gpuenv.yaml").write_text('frameworks: ["torch"]\nrequirements: ["requirements.txt"]\n')
    for path in (gpuenv.work, *gpuenv.work.iterdir()):
        give(path, 4242)
        path.chmod(0o775 if path.is_dir() else 0o664)  # with the umask of Debian
    assert gpuenv("resolve", *GPU, "--python", HERE, "--index", "pypi").code == 0
    give(gpuenv.work / "requirements.txt", 12345)
    ran = gpuenv("resolve", "--json", *GPU, "--python", HERE, "--index", "pypi")
    assert ran.code == 2 and "requirements.txt" in ran.json["error"]["message"]


def test_a_lock_of_another_user_is_not_installed(torch, gpuenv, public, index):
    assert torch(verb="lock").code == 0
    lock = public / "pylock.toml"
    give(lock)
    index.forget()
    for more in ((), ("--dry-run",)):
        ran = torch("--locked", "--json", *more)
        assert ran.code == 2 and str(lock) in ran.json["error"]["message"] and not index.requests
    assert torch("--locked", "--trust-project", "--dry-run").code == 0


@pytest.mark.parametrize(
    "verb", [("verify",), ("run", "python", "-c", ""), ("create", "--framework", "torch")]
)
def test_an_environment_of_another_user_in_a_public_folder_is_not_used(gpuenv, public, verb):
    mark = gpuenv.folder / "mark"
    mark_program(public / ".venv" / "bin" / "python", mark)
    (public / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    give(public / ".venv")
    assert f"{public / '.venv'} belongs to" in refused(gpuenv(*verb), 2).err and not mark.exists()
    assert gpuenv("verify", public / ".venv").code == 2 and not mark.exists()  # root names it


# --- root with another user's PATH and HOME (finding 8) --------------------------------------------


def test_root_starts_no_python_of_another_user(gpuenv):
    gpuenv.folder.chmod(0o755)
    mark, alice = gpuenv.folder / "mark", gpuenv.folder / "alice"
    on_path = mark_program(alice / "bin" / "python3.14", mark)
    by_uv = mark_program(alice / "uv" / "cpython-3.14.1-linux-x86_64-gnu" / "bin" / "python3", mark)
    for root, folders, files in os.walk(alice):
        for name in (*folders, *files, "."):
            give(Path(root, name))
    gpuenv.env["PATH"] = f"{on_path.parent}{os.pathsep}{gpuenv.env['PATH']}"
    gpuenv.env["UV_PYTHON_INSTALL_DIR"] = str(alice / "uv")
    ran = gpuenv("detect", "--json")
    found = {python["path"] for python in ran.json["pythons"]}
    assert not {str(on_path), str(by_uv)} & found and not mark.exists()
    assert ran.err.count(f"uid {STRANGER}") == 1 and "1 more" in ran.err


def test_root_installs_from_no_configuration_of_another_user(torch, gpuenv, index):
    gpuenv.folder.chmod(0o755)
    config = gpuenv.folder / "alice"
    (config / "pip").mkdir(parents=True)
    (config / "pip" / "pip.conf").write_text("[global]\nindex-url = http://127.0.0.1:9/simple\n")
    for path in (config, config / "pip", config / "pip" / "pip.conf"):
        give(path)
    del gpuenv.env["PIP_CONFIG_FILE"]
    gpuenv.env["XDG_CONFIG_HOME"] = str(config)
    ran = torch("--dry-run")
    assert ran.code == 0 and f"uid {STRANGER}" in ran.err and "XDG_CONFIG_HOME" in ran.err
    gpuenv.env["PIP_CONFIG_FILE"] = str(config / "pip" / "pip.conf")
    assert "pip.conf" in refused(torch("--dry-run", "--json"), 2).json["error"]["message"]  # it is named


# --- caches (finding 9) ----------------------------------------------------------------------------


@pytest.mark.parametrize("how", sampled(["shared with a stranger", "writable for everybody"], 2))
def test_an_edited_file_in_uvs_cache_is_not_installed_from_a_lock(torch, gpuenv, how):
    assert torch(verb="lock").code == 0 and torch("--locked", "one").code == 0
    cache = gpuenv.folder / "uv-cache"
    (edited,) = cache.glob("archive-v*/*/torch/__init__.py")
    genuine = edited.read_text()
    edited.unlink()
    edited.write_text("import stranger\n")
    if how == "shared with a stranger":
        give(edited)
    else:
        edited.chmod(0o666)
    cache.chmod(0o777)
    ran = ok(torch("--locked", "two"))
    (installed,) = (gpuenv.work / "two").glob("lib/python3*/site-packages/torch/__init__.py")
    assert installed.read_text() == genuine
    assert cache.stat().st_mode & 0o777 == 0o700 and f"{cache} is emptied" in ran.err
    assert "emptied" not in torch("--locked", "three").err


def test_a_named_cache_of_another_user_is_an_error(gpuenv):
    cache = gpuenv.folder / "theirs"
    cache.mkdir()
    give(cache)
    ran = gpuenv("resolve", "--json", "--framework", "torch", *GPU, "--python", HERE, "--cache-dir", cache)
    assert ran.code == 2 and str(cache) in ran.json["error"]["message"]
    assert "--cache-dir" in ran.json["error"]["hint"]


def test_entries_of_another_user_are_not_read(gpuenv):
    asked = ("resolve", "--json", "--framework", "torch", *GPU, "--python", HERE, "--index", "pypi")
    plan = gpuenv(*asked).json
    for entry in cache.list_entries(gpuenv.folder / "cache" / "gpuenv"):
        if entry.is_file():
            entry.write_text("[]")
            give(entry)
    assert gpuenv(*asked).json == plan
