"""Passwords in git addresses: git gets them from a private file, and never on its command line."""

import base64
import functools
import http.server
import subprocess
import threading

import project_packages
import pytest
from environment_facts import HERE, ok
from programs import run_program
from rows import rows, sampled

from provision.index.uv import variables, without_credentials

CPU = ("--framework", "jax", "--device", "cpu", "--python", HERE)
LOGIN = base64.b64encode(b"us3r:s3cr3t-pw").decode()


@rows(
    ("text", "bare", "logins"),
    [
        ("a @ git+https://u:p@h/o/r", "a @ git+https://h/o/r", ("https://u:p@h",)),
        ("git+http://u:p@h:81/r@v1#egg=a", "git+http://h:81/r@v1#egg=a", ("http://u:p@h:81",)),
        ("git+https://token@h/r", "git+https://h/r", ("https://token:@h",)),
        ("git+https://h/o/r@v1", "git+https://h/o/r@v1", ()),
        ("git+ssh://git@h/o/r", "git+ssh://git@h/o/r", ()),
        ("a==1\nb @ https://u:p@h/b.whl", "a==1\nb @ https://u:p@h/b.whl", ()),
        ("git+https://u:p@h/r\ngit+https://u:p@h/s", "git+https://h/r\ngit+https://h/s", ("https://u:p@h",)),
    ],
)
def test_logins_are_taken_out_of_git_addresses(text, bare, logins):
    assert without_credentials(text) == (bare, logins)


def test_the_users_own_helpers_stay_and_the_file_is_private(tmp_path):
    found = variables(tmp_path, ["https://u:p@h"], {"GIT_CONFIG_COUNT": "2"})
    assert found["GIT_CONFIG_COUNT"] == "3" and found["GIT_CONFIG_KEY_2"] == "credential.helper"
    path = tmp_path / "git-credentials"
    assert path.read_text() == "https://u:p@h\n" and path.stat().st_mode & 0o777 == 0o600
    assert str(path) in found["GIT_CONFIG_VALUE_2"]
    assert variables(tmp_path, [], {}) == {}


class Locked(http.server.SimpleHTTPRequestHandler):
    """A repository for git's simple protocol, for one user alone."""

    def do_GET(self):
        if self.headers.get("Authorization") == f"Basic {LOGIN}":
            super().do_GET()
            return
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="here"')
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def repository(tmp_path):
    """The address, without a login, of a repository that wants one."""
    source = project_packages.folder(tmp_path / "source", "fromgit", "1.0")
    git = functools.partial(subprocess.run, cwd=source, check=True, capture_output=True)
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"],
    ):
        git(["git", *words])
    bare = tmp_path / "served" / "r.git"
    git(["git", "clone", "-q", "--bare", str(source), str(bare)])
    git(["git", "-C", str(bare), "update-server-info"])
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Locked, directory=str(tmp_path / "served"))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}/r.git"
    server.shutdown()
    server.server_close()


@pytest.fixture
def recorded(gpuenv, tmp_path):
    """Each command line that a program `git` on PATH is started with."""
    tools, log = tmp_path / "tools", tmp_path / "git.log"
    tools.mkdir()
    real = run_program(["which", "git"], check=True).stdout.strip()
    (tools / "git").write_text(f'#!/bin/sh\necho "$*" >> {log}\nexec {real} "$@"\n')
    (tools / "git").chmod(0o755)
    gpuenv.env["PATH"] = f"{tools}:{gpuenv.env['PATH']}"
    return log


@pytest.mark.parametrize("form", sampled(["${GIT_USER}:${GIT_PASSWORD}", "us3r:s3cr3t-pw"], 2))
def test_git_is_let_in_without_a_password_on_its_command_line(gpuenv, index, repository, recorded, form):
    plan = gpuenv("resolve", "--json", *CPU)
    index.add_plan(plan.json)
    gpuenv.env |= {"PIP_INDEX_URL": index.url, "GIT_USER": "us3r", "GIT_PASSWORD": "s3cr3t-pw"}
    server = f"http://{repository.partition('/')[0]}"
    gpuenv.env["GPUENV_GRANT"] = f"GIT_USER={server} GIT_PASSWORD={server}"
    scratch = gpuenv.folder / "scratch"  # another run of the tests has its own
    scratch.mkdir()
    gpuenv.env["TMPDIR"] = str(scratch)
    (gpuenv.work / "r.txt").write_text(f"fromgit @ git+http://{form}@{repository}\n")
    ran = ok(gpuenv("lock", *CPU, "-r", "r.txt"))
    lines = recorded.read_text()
    assert "fetch" in lines and "s3cr3t-pw" not in lines
    assert "s3cr3t-pw" not in ran.out + ran.err + (gpuenv.work / "pylock.toml").read_text()
    assert not list(scratch.glob("gpuenv-scratch-*/git-credentials"))
