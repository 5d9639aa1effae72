"""`${TOKEN}` in a project's addresses: expanded for a request, a reference in all that is written and shown."""

import os
import re
import time
from pathlib import Path

import pytest
from bundle_site import add_own
from environment_facts import HERE

from provision.errors import UsageError
from provision.lock.compile import parse_pylock
from provision.model import Plan, Target
from provision.system import grants

TOKEN = "t0k3n-of-the-path"
USER, PASSWORD = "us3r-name", "p4ssw0rd-x"


@pytest.fixture
def project(gpuenv, index):
    """A project whose index and wheels lie below a token, in a folder of its own."""
    ask = ("--framework", "jax", "--device", "cpu", "--python", HERE)
    index.add_plan(gpuenv("resolve", "--json", *ask).json)
    for name in ("plain", "direct", "third", "later"):
        index.add(name, "1.0")
    add_own(index)
    index.root = f"/{TOKEN}"
    host = index.url.removeprefix("http://").removesuffix("/simple")
    base = f"http://{host}/${{TOKEN}}"
    (gpuenv.work / "requirements.txt").write_text(
        f"--index-url {base}/simple\nplain\ndirect @ {base}/files/direct/direct-1.0-py3-none-any.whl\n"
    )
    (gpuenv.work / "gpuenv.yaml").write_text(
        f'frameworks: ["jax"]\ndevice: "cpu"\npython: "{HERE}"\nrequirements: ["requirements.txt"]\n'
        f'packages: ["third @ {base}/files/third/third-1.0-py3-none-any.whl"]\n'
    )
    gpuenv.env.pop("PIP_INDEX_URL", None)
    gpuenv.env |= {"TOKEN": TOKEN, "GPUENV_GRANT": f"TOKEN=http://{host}"}
    return gpuenv


def files_with(secret, folder):
    """The files below a folder that hold a secret, but those of uv's own cache."""
    found = []
    for at, names, files in os.walk(folder):
        if Path(at) == folder:
            names[:] = [n for n in names if n != "uv-cache"]
        paths = [Path(at, n) for n in files]
        found += [str(p) for p in paths if p.is_file() and secret.encode() in p.read_bytes()]
    return found


@pytest.mark.usefixtures("real_uv")
def test_a_token_in_the_path_is_nowhere_but_in_requests(project, index, tmp_path):
    outputs = []

    def go(*argv, code=0):
        ran = project(*argv, "-v")
        outputs.append((argv, ran.out + ran.err))
        assert ran.code == code, ran.err
        assert not files_with(TOKEN, tmp_path), argv
        return ran

    go("lock")
    locked = (project.work / "pylock.toml").read_text()
    assert locked.count("${TOKEN}/files/") >= 5 and "${TOKEN}/simple" in locked
    go("lock", "--check")
    go("create", "--no-verify")
    go("create", "--no-verify", "--locked", "other")
    go("repair")
    for form in ("requirements", "dockerfile"):
        go("export", "--format", form)
    go("bundle", "stick", "--json")
    index.root = "/closed"
    go("create", "--no-verify", "from-stick", "--bundle", "stick")
    index.root = f"/{TOKEN}"
    go("add", "later", "--no-verify")
    assert [argv for argv, text in outputs if TOKEN in text] == []
    assert index.requests[f"/{TOKEN}/files/direct/direct-1.0-py3-none-any.whl"]


def test_a_variable_that_is_missing_is_named_with_its_line(project, golden):
    assert project("lock").code == 0
    project.env["TOKEN"] = ""
    ran = project("lock")
    named = r"requirements\.txt line 1: .*\$\{TOKEN\}, .*TOKEN is "
    assert ran.code == 2 and re.search(f"{named}empty", ran.err)
    golden("lock", ran.err)
    del project.env["TOKEN"]
    for argv in (["lock"], ["create", "--no-verify", "--locked"]):
        ran = project(*argv)
        assert ran.code == 2 and re.search(f"{named}not set", ran.err)
        assert "export TOKEN=VALUE" in ran.err


def test_addresses_of_a_pyproject_keep_their_references_in_the_lock(gpuenv, index):
    """uv expands variables in every address that it reads, so the lock would have the token."""
    ask = ("--framework", "jax", "--device", "cpu", "--python", HERE)
    index.add_plan(gpuenv("resolve", "--json", *ask).json)
    index.root = f"/{TOKEN}"
    for name in ("plain", "direct", "third"):
        index.add(name, "1.0")
    base = index.url.removesuffix("/simple") + "/${TOKEN}"
    (gpuenv.work / "pyproject.toml").write_text(
        f'[project]\nname = "mine"\nversion = "1"\ndependencies = ["plain", "third",\n'
        f'  "direct @ {base}/files/direct/direct-1.0-py3-none-any.whl"]\n'
        f'[tool.uv.sources]\nthird = {{ url = "{base}/files/third/third-1.0-py3-none-any.whl" }}\n'
        f'[[tool.uv.index]]\nname = "own"\nurl = "{base}/simple"\ndefault = true\n'
    )
    gpuenv.env |= {"TOKEN": TOKEN, "GPUENV_GRANT": f"TOKEN={index.url}"}
    gpuenv.env.pop("PIP_INDEX_URL", None)
    ran = gpuenv("lock", *ask, "--project", ".", "-v")
    locked = (gpuenv.work / "pylock.toml").read_text()
    assert ran.code == 0, ran.err
    assert TOKEN not in locked + ran.out + ran.err
    assert f"{base}/files/direct/" in locked and f"{base}/files/third/" in locked
    assert f"{base}/simple" in locked
    del gpuenv.env["TOKEN"]
    ran = gpuenv("lock", *ask, "--project", ".")
    assert ran.code == 2 and "TOKEN is not set" in ran.err and "pyproject.toml" in ran.err


VALUES = {
    "TOKEN": TOKEN,
    "USER": USER,
    "WORD": PASSWORD,
    "SHORT": "a",
    "SIG": "s1gn4ture",
    "BASE": f"http://h/{TOKEN}",
}
VALUES["GPUENV_GRANT"] = " ".join(f"{name}=http://h" for name in VALUES)


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    for name in ("_starts", "_parts", "_logins"):
        monkeypatch.setattr(grants, name, {})


@pytest.mark.parametrize(
    ("written", "text", "stored"),
    [
        ("http://h/${TOKEN}/simple", f"http://h/{TOKEN}/simple", "http://h/${TOKEN}/simple"),
        ("http://h/${TOKEN}/simple/", f"http://h/{TOKEN}/simple/a/", "http://h/${TOKEN}/simple/a/"),
        ("http://h/${TOKEN}/simple", f"http://h/{TOKEN}/files/a.whl", "http://h/${TOKEN}/files/a.whl"),
        ("http://h/simple/${TOKEN}", f"see (http://h/files/{TOKEN}).", "see (http://h/files/${TOKEN})."),
        ("http://h/${TOKEN}/simple", f"http://cdn/{TOKEN}/a.whl", "http://cdn/${TOKEN}/a.whl"),
        ("http://h/${TOKEN}", f"http://h/{TOKEN}: 404", "http://h/${TOKEN}: 404"),
        ("http://${USER}:${WORD}@h/a.whl", "http://h/a.whl", "http://${USER}:${WORD}@h/a.whl"),
        ("http://${USER}:${WORD}@h/a.whl", "http://****:****@h/a.whl", "http://${USER}:${WORD}@h/a.whl"),
        ("http://${USER}:${WORD}@h/simple", "http://h/files/a.whl", "http://h/files/a.whl"),
        ("http://h/a.whl?sig=${SIG}", "http://h/a.whl?sig=s1gn4ture", "http://h/a.whl?sig=${SIG}"),
        ("http://h/${SHORT}/simple", "http://h/a/simple/a/a.whl", "http://h/${SHORT}/simple/a/a.whl"),
        ("http://h:80/${SHORT}/x", "http://h/a/a.whl", "http://h/${SHORT}/a.whl"),
        ("http://h/${SHORT}/simple", "http://h/b/a/a.whl and a", "http://h/b/a/a.whl and a"),
        ("http://h/x/a-${SHORT}.whl", "http://h/x/a-a.whl", "http://h/x/a-a.whl"),
        ("${BASE}/simple", f"http://h/{TOKEN}/files/a.whl", "${BASE}/files/a.whl"),
        ("git+http://h/${TOKEN}/r@main#egg=a", f"git+http://h/{TOKEN}/r@0123#b", "git+http://h/${TOKEN}/r@0123#b"),
        ("git+http://${USER}:${WORD}@h/o/r", "git+http://h/o/r@0123", "git+http://${USER}:${WORD}@h/o/r@0123"),
    ],
)  # fmt: skip
def test_an_address_gets_its_references_back(monkeypatch, written, text, stored):
    expanded = grants.expand(written, "here", VALUES)
    assert "${" not in expanded
    assert grants.restore(text) == stored
    assert grants.restore(stored) == stored
    again = re.sub(grants.REFERENCE, lambda match: VALUES[match[1]], stored)
    assert again.replace(f"{USER}:{PASSWORD}@", "") == text.replace("****:****@", "")


def test_what_an_index_answers_names_no_variable():
    """A page of a stranger could ask for any variable of the user's, and the lock would send it."""
    plan = Plan(builds=(), python="3.11", platform="linux-x86_64", manager="venv", device="cpu",
                target=Target(platform="linux-x86_64", glibc="2.35", driver=None, driver_os="linux", gpus=()))  # fmt: skip
    text = (
        'lock-version = "1.0"\ncreated-by = "uv"\n[[packages]]\nname = "a"\nversion = "1"\n'
        'wheels = [{ url = "https://evil/a-1-py3-none-any.whl?x=${HOME}", hashes = { sha256 = "00" } }]\n'
    )
    (package,) = parse_pylock(text, plan)
    assert grants.list_variables(package.url) == [] and "HOME" in package.url


@pytest.mark.parametrize("value", ["@evil.example/", "/@evil.example", "x/y", "a?b", "a#b"])
def test_a_value_cannot_change_the_server_of_its_address(value):
    """The address names a server that was granted, and the value would send itself to another one."""
    environ = {"WORD": value, "GPUENV_GRANT": "WORD=https://h"}
    with pytest.raises(UsageError, match="WORD changes the server") as caught:
        grants.expand("https://me:${WORD}@h/simple", "here", environ)
    assert value not in caught.value.message


def test_texts_are_restored_in_linear_time(monkeypatch):
    grants.expand("http://h/${TOKEN}/simple", "here", VALUES)

    def seconds(text):
        began = time.thread_time()
        grants.restore(text)
        return time.thread_time() - began

    for piece in ("://", "https://h/", f"https://h/{TOKEN}/ ", "a", "https://h/a@", "/", "a://b/"):
        text = "https://h/" + piece * (40_000 // len(piece))
        assert seconds(text * 4) / max(0.1, seconds(text)) < 9, piece


def test_a_line_of_too_many_variables_is_refused():
    with pytest.raises(UsageError, match="here names more than 50 variables"):
        grants.expand("http://h/" + "${SHORT}" * 60, "here", VALUES)
