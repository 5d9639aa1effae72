"""`--exclude-newer`: no later upload is taken, the lock keeps the limit, and an index without times is named."""

# ruff: noqa: F811  # fixtures are imported by their names

import dataclasses
import os
import re
import sys
from datetime import datetime, timedelta, timezone

import project_packages
import pytest
import tomllib
from environment_facts import HERE, ok, refused
from index_server import server  # noqa: F401  # a fixture
from loopback import Index, serving
from programs import run_program
from rows import rows, sampled

from provision.config.options import NONE, Choices
from provision.config.sources import exclude_newer, has_same_limit, read_locked_sources
from provision.errors import GrantError, LockError, MissingVariableError, UsageError
from provision.index import uv
from provision.index.places import UploadTimes
from provision.model import Lock, LockedPackage, PackageSources, Plan, PlannedBuild, Target

CPU = ("--device", "cpu", "--python", HERE)
ASK = ("--framework", "jax", *CPU, "--with", "plain")
LONG_AGO = "2024-01-01T00:00:00Z"
TARGET = Target(platform="linux-x86_64")
PLAN = Plan(builds=(), python=HERE, platform=TARGET.platform, manager="venv", device="cpu", target=TARGET)
LOCK = Lock(manager="venv", target=TARGET, plan=PLAN, packages=())


def file(name, version):
    return f"{name}-{version}-py3-none-any.whl"


def days_ago(days):
    return (datetime.now(timezone.utc) - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.fixture
def dated(gpuenv, index):
    """An index that states upload times: all of it is old, but for plain 2.0."""
    index.add_plan(gpuenv("resolve", "--json", "--framework", "jax", *CPU).json)
    index.add("plain", "1.0")
    index.add("plain", "2.0")
    index.uploaded = LONG_AGO
    index.uploads = {file("plain", "2.0"): "2025-06-01T00:00:00Z"}
    gpuenv.env["PIP_INDEX_URL"] = index.url
    return index


def locked(gpuenv, path="pylock.toml"):
    """The version of plain, and what the lock says of the limit."""
    data = tomllib.loads((gpuenv.work / path).read_text())
    (plain,) = (p["version"] for p in data["packages"] if p["name"] == "plain")
    return plain, data["tool"]["gpuenv"].get("exclude_newer")


def test_a_manager_that_cannot_keep_a_limit_refuses_one(gpuenv):
    for option in (("--exclude-newer", "2025-03-01"), ("--exclude-newer-except", "pypi")):
        ran = gpuenv("lock", *ASK, "--manager", "conda", *option)
        assert ran.code == 2 and "not with --manager conda" in ran.err, ran.err


def test_a_later_upload_is_not_taken_and_the_lock_keeps_the_limit(gpuenv, dated):
    ok(gpuenv("lock", *ASK, "--exclude-newer", "2025-03-01T00:00:00Z"))
    limit = {"cutoff": "2025-03-01T00:00:00Z", "excepted": []}
    assert locked(gpuenv) == ("1.0", limit)
    for more in (("--check",), (), ("--upgrade",), ("--upgrade", "plain")):
        ran = ok(gpuenv("lock", *ASK, *more))
        assert locked(gpuenv) == ("1.0", limit), more
    ran = gpuenv("lock", *ASK, "--check", "--exclude-newer", "2026-01-01")
    assert ran.code == 6 and "another --exclude-newer" in " ".join(ran.err.split())
    ok(gpuenv("lock", *ASK, "--upgrade", "--exclude-newer", "false"))
    assert locked(gpuenv) == ("2.0", None)


def test_a_duration_counts_from_now_and_again_at_upgrade(gpuenv, dated):
    dated.uploads = {file("plain", "2.0"): days_ago(3)}
    assert gpuenv("lock", *ASK, "--exclude-newer", "7 days").code == 0
    version, limit = locked(gpuenv)
    assert version == "1.0" and limit["span"] == "7 days"
    assert days_ago(7.1) < limit["cutoff"] < days_ago(6.9)
    path = gpuenv.work / "pylock.toml"
    path.write_text(path.read_text().replace(limit["cutoff"], "2025-01-01T00:00:00Z"))
    assert gpuenv("lock", *ASK, "--check").code == 0
    assert gpuenv("lock", *ASK, "--force").code == 0
    assert locked(gpuenv)[1]["cutoff"] == "2025-01-01T00:00:00Z", "a lock that stays keeps the moment"
    dated.uploads = {file("plain", "2.0"): days_ago(8)}
    assert gpuenv("lock", *ASK, "--upgrade").code == 0
    version, limit = locked(gpuenv)
    assert version == "2.0" and limit["span"] == "7 days" and limit["cutoff"] > days_ago(7.1)


def test_an_index_without_upload_times_is_named_and_the_solve_stops(gpuenv, dated):
    dated.uploaded, dated.uploads = None, {}
    dated.wheels["plain"] |= [project_packages.archive(gpuenv.folder, "plain", "1.5")]
    ask = ("lock", *ASK, "--exclude-newer", "2025-03-01")
    ran = gpuenv(*ask)
    told = " ".join(ran.err.split())
    assert ran.code == 6 and f"{dated.url} does not state upload times of " in told
    assert f"--exclude-newer-except {dated.url}" in told and not (gpuenv.work / "pylock.toml").exists()
    for place in (dated.url + "/", "pypi"):
        ran = ok(gpuenv(*ask, "--exclude-newer-except", place))
        assert locked(gpuenv) == (
            "2.0",
            {"cutoff": locked(gpuenv)[1]["cutoff"], "excepted": [place.rstrip("/")]},
        )
        assert gpuenv("lock", *ASK, "--check").code == 0
    # the advice holds for a limit of the project too
    (gpuenv.work / "pylock.toml").unlink()
    text = "[project]\nname = 'mine'\nversion = '1'\n[tool.uv]\nexclude-newer = '2025-03-01'\n"
    (gpuenv.work / "pyproject.toml").write_text(text)
    ran = gpuenv("lock", *ASK, "--project", ".", "--exclude-newer-except", "pypi")
    assert ran.code == 0 and locked(gpuenv)[0] == "2.0", ran.err


def test_an_extra_index_without_upload_times_is_the_one_that_is_named(gpuenv, dated):
    with serving(Index()) as extra:
        extra.add("plain", "3.0")
        gpuenv.env["PIP_EXTRA_INDEX_URL"] = extra.url.replace("//", "//me:hunter2@")
        ask = ("lock", *ASK, "--exclude-newer", "2025-03-01")
        ran = gpuenv(*ask)
        told = " ".join(ran.err.split())
        assert ran.code == 6 and f"{extra.url} does not state upload times of plain" in told
        assert dated.url not in told and "hunter2" not in told
        ok(gpuenv(*ask, "--exclude-newer-except", extra.url))
        assert locked(gpuenv)[0] == "3.0"
        assert "hunter2" not in (gpuenv.work / "pylock.toml").read_text()


def test_the_pytorch_index_is_named_and_excepted_by_its_word(server):
    build = PlannedBuild(
        framework="torch", version="2.8.0", cuda=None, index="pytorch", requirements=("torch===2.8.0+cpu",)
    )
    plan = Plan(
        builds=(build,),
        python="3.12",
        platform="linux-x86_64",
        manager="venv",
        device="cpu",
        target=Target(platform="linux-x86_64"),
    )
    for page, link in (
        ("/whl/cpu/torch/", "torch-2.8.0%2Bcpu-cp312-cp312-linux_x86_64.whl"),
        ("/simple/plain/", "plain-1.5.tar.gz"),
    ):
        server.pages[page] = (200, {"Content-Type": "text/html"}, f'<a href="{link}">file</a>'.encode())
    sources = PackageSources(
        exclude_newer="2025-01-01", pytorch=f"{server.url}/whl", default=f"{server.url}/simple"
    )
    for name, word, log in (
        ("torch", "pytorch", "`torch-2.8.0+cpu-cp312-cp312-linux_x86_64.whl` is missing an upload date"),
        ("plain", f"{server.url}/simple", "`plain-1.5.tar.bz2` is missing an upload date"),
    ):
        with pytest.raises(LockError, match=f"does not state upload times of {name},") as caught:
            UploadTimes(sources, plan).exempt_undated(log)
        assert f"--exclude-newer-except {word} " in caught.value.hint
        times = UploadTimes(dataclasses.replace(sources, exclude_newer_except=(word,)), plan)
        assert times.exempt_undated(log) and not times.exempt_undated(log)
        assert times.options() == ["--exclude-newer-package", f"{name}=false"]


def test_an_older_framework_is_taken_where_the_newest_is_too_new(gpuenv, dated):
    newest = gpuenv("resolve", "--json", "--framework", "jax", *CPU).json["builds"][0]
    older = gpuenv("resolve", "--json", "--framework", f"jax!={newest['version']}", *CPU).json
    dated.add_plan(older)
    dated.uploads |= {file("jax", newest["version"]): "2025-06-01T00:00:00Z"}
    ran = ok(gpuenv("lock", *ASK, "--exclude-newer", "2025-03-01", "--json"))
    assert ran.json["plan"]["builds"][0]["version"] == older["builds"][0]["version"]
    assert ran.json["exclude_newer"]["cutoff"].startswith("2025-03-0")
    assert ran.json["held_back"][0]["package"] == "jax"


def test_a_projects_create_takes_a_lock_with_a_limit_as_it_stands_and_its_environment_keeps_it(gpuenv, dated):
    (gpuenv.work / "gpuenv.yaml").write_text("frameworks: [jax]\npackages: [plain<9]\ndevice: cpu\n")
    assert gpuenv("lock", "--python", HERE, "--exclude-newer", "2025-03-01").code == 0
    ran = ok(gpuenv("create", "--no-verify", "--python", HERE))
    assert "solving again" not in ran.err and locked(gpuenv, ".venv/.gpuenv/pylock.toml")[0] == "1.0"
    other = ok(gpuenv("create", "new", "--dry-run", "--python", HERE, "--exclude-newer", "2026-01-01"))
    assert "solving again" in other.err
    for name in ("gpuenv.yaml", "pylock.toml"):
        (gpuenv.work / name).unlink()
    ok(gpuenv("add", "plain", "--no-verify"))  # solved again, by what the environment was made for
    version, limit = locked(gpuenv, ".venv/.gpuenv/pylock.toml")
    assert version == "1.0" and limit["cutoff"].startswith("2025-03-0")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("2 months",), "write days"),
        (("P1M",), "write days"),
        (("yesterday",), "write a date"),
        (("2025-13-01",), "write a date"),
        (("7",), "write a date"),
        (("7 days", "--manager", "conda"), "--manager venv"),
    ],
)
def test_a_text_that_is_no_limit_is_a_usage_error(gpuenv, words, told):
    assert told in " ".join(refused(gpuenv("lock", *ASK, "--exclude-newer", *words), 2).err.split())


def test_an_exception_without_a_limit_is_a_usage_error(gpuenv):
    assert gpuenv("lock", *ASK, "--exclude-newer-except", "pypi").code == 2


@pytest.mark.parametrize("zone", sampled(["Asia/Kathmandu", "America/Los_Angeles", "UTC"], 3))
def test_dates_and_durations_mean_the_same_as_to_uv(index, tmp_path, monkeypatch, zone):
    """uv names the moment in the warning on a file without an upload time."""
    import time

    monkeypatch.setenv("TZ", zone)
    time.tzset()
    index.add("plain", "1.0")
    try:
        for text in ("2025-01-01", "2025-07-01T10:00:00Z", "2025-07-01T10:00:00+02:00", "7 days", "P7D", "PT24H",
                     "1 week", "24h", "30 days ago", "P1DT2H", "1 day 2 hours", "2 weeks, 1 day"):  # fmt: skip
            ours = datetime.fromisoformat(exclude_newer(text).cutoff.replace("Z", "+00:00"))
            theirs = _of_uv(index, tmp_path, text)
            assert theirs is not None and abs(ours - theirs) < timedelta(seconds=60), text
        for text in ("2 months", "P1M", "yesterday", "2025-13-01", "P", "", "7", "days"):
            with pytest.raises(UsageError):
                exclude_newer(text)
            assert not text or _of_uv(index, tmp_path, text) is None, text
    finally:
        monkeypatch.undo()
        time.tzset()


@rows(
    ("typed", "kept", "current"),
    [(None, "7 days", True), (NONE, None, True), (NONE, "7 days", False), ("7 days", None, False),
     ("7 days", "7 days", True), ("7 days", LONG_AGO, False), (LONG_AGO, LONG_AGO, True)],
)  # fmt: skip
def test_a_lock_is_current_that_has_the_same_limit(typed, kept, current):
    lock = dataclasses.replace(LOCK, exclude_newer=exclude_newer(kept) if kept else None)
    assert has_same_limit(Choices(exclude_newer=typed), lock) == current


@pytest.mark.parametrize(
    ("text", "granted", "url", "error"),
    [
        ("--index-url https://h/${WORD}/simple", False, "https://h/${WORD}/a.whl", GrantError),
        ("--index-url https://h/${GONE}/simple", True, "https://h/${GONE}/a.whl", MissingVariableError),
        ("--index-url https://h/${GONE}/simple", True, "https://h/a.whl", None),
        ("--no-such-option", True, "https://h/a.whl", None),
        ("--extra-index-url https://h/${WORD}/simple", True, "https://h/a.whl", ("https://h/secret/simple",)),
    ],
)
def test_a_lock_is_installed_though_a_file_of_the_project_cannot_be_read(
    tmp_path, monkeypatch, text, granted, url, error
):
    """Unless what cannot be read is what the lock needs, or a variable would go to a server that may not get it."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("WORD", "secret")
    monkeypatch.setenv("GPUENV_GRANT", "WORD=https://h" if granted else "")
    (tmp_path / "r.txt").write_text(f"{text}\nplain\n")
    package = LockedPackage(name="a", version="1", url=url, sha256="0" * 64)
    choices = Choices(requirement=[tmp_path / "r.txt"])
    lock = dataclasses.replace(LOCK, packages=(package,))
    if isinstance(error, type):
        with pytest.raises(error):
            read_locked_sources(choices, lock)
    else:
        assert read_locked_sources(choices, lock).extra == (error or ())


def _of_uv(index, folder, text):
    argv = [uv.program(), "pip", "compile", "-", "--no-config", "--default-index", index.url, "--exclude-newer", text,
            "--cache-dir", str(folder / "cache"), "--python", sys.executable]  # fmt: skip
    done = run_program(argv, input="plain\n", cwd=folder)
    found = re.search(r"user provided: (\S+)", done.stderr)
    return datetime.fromisoformat(re.sub(r"\.\d+Z$|Z$", "+00:00", found[1])) if found else None


@rows(
    "text",
    ["9" * 100000 + " days", "P" + "9" * 7 + "W", "99999999 days", "1 " * 50000, "999999 days", "P999999W",
     "0001-01-01T00:00:00+23:00"],
)  # fmt: skip
def test_texts_of_huge_numbers_are_refused_at_once(text):
    with pytest.raises(UsageError):
        exclude_newer(text)
