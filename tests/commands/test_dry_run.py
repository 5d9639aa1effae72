"""`--dry-run` tells paths, sizes and changes, and changes nothing; `-q` leaves errors and the last line."""

import re
from pathlib import Path

import pytest
from bundle_site import add_own
from environment_facts import HERE, ok, refused
from made_env import PROJECT, jax_env, jax_index


@pytest.fixture
def go(gpuenv, index):
    """A project with its index."""
    jax_index(gpuenv, index)
    (gpuenv.work / "gpuenv.yaml").write_text(PROJECT)
    return gpuenv


@pytest.fixture
def made(gpuenv, index):
    """A project with its environment and lock."""
    jax_env(gpuenv, index, PROJECT)
    ok(gpuenv("lock"))
    return gpuenv


def state(folder):
    """Every path of a folder with its time and size; what was read may be new in a cache."""
    return {
        str(p): (p.lstat().st_mtime_ns, p.lstat().st_size)
        for p in sorted(folder.rglob("*")) if "__pycache__" not in p.parts
    }  # fmt: skip


def tried(go, *words):
    """Run a command with --dry-run, in words and as a document. Nothing in the project may change."""
    before = state(go.work)
    ran = ok(go(*words, "--dry-run"))
    value = ok(go(*words, "--dry-run", "--json")).json
    assert state(go.work) == before
    return ran, value


def test_create_shows_the_path_and_the_sizes(made):
    ran, value = tried(made, "create", "new")
    assert value["schema"] == "gpuenv.plan/1"
    assert f"would make {made.work / 'new'}" in ran.err and not (made.work / "new").exists()
    ran, _ = tried(made, "create", "new", "--locked")
    assert "packages" in ran.err and "to download" in ran.err and "free" in ran.err
    ran, _ = tried(made, "create", "--locked")
    assert f"would change nothing: {made.work / '.venv'} has these packages" in ran.err
    ran, _ = tried(made, "create", "--recreate")
    assert f"would rebuild {made.work / '.venv'}" in ran.err


def test_a_dry_run_refuses_what_create_refuses(made):
    other = made.work / "pylock.other.toml"
    other.write_text((made.work / "pylock.toml").read_text().replace("x86_64", "aarch64"))
    there = next(path for path in (made.work / ".venv").rglob("plan.json"))
    for words, code in (
        (("--manager", "conda"), 2),
        (("--with", "more", "--python", "3.9"), 2),
        (("--recreate", "--lock", other), 6),
    ):
        said = [made("create", *words, *dry, "--json") for dry in (("--dry-run",), ())]
        assert [ran.code for ran in said] == [code, code]
        assert said[0].json["error"] == said[1].json["error"]
    assert there.exists()


def test_a_dry_run_changes_the_environment_as_create_would(made):
    """On its device and Python, and not those that a new environment here would have."""
    _, value = tried(made, "create", "--with", "more")
    assert value["device"] == "cpu" and value["python"] == HERE
    ran, value = tried(made, "create")
    assert "would change nothing" in ran.err


def test_add_and_drop_show_their_changes_and_files(made):
    ran, value = tried(made, "add", "more", "kept>=2")
    assert value["schema"] == "gpuenv.preview/1" and value["command"] == "add"
    changes = {p["name"]: (p["before"], p["after"]) for p in value["packages"]}
    assert changes == {"more": (None, "1.0"), "kept": ("1.0", "2.0")}
    assert value["path"] == str(made.work / ".venv")
    assert value["writes"] == [str(made.work / "gpuenv.yaml"), str(made.work / "pylock.toml")]
    assert value["download_bytes"] == sum(p["size"] for p in value["packages"]) > 0
    for row in (
        "+ more 1.0",
        "~ kept 1.0 -> 2.0",
        "would write gpuenv.yaml",
        "would change .venv",
        "would download",
    ):
        assert row in ran.out
    assert ran.out.endswith("dry run: nothing was changed\n")
    ran, value = tried(made, "drop", "kept")
    assert [(p["name"], p["before"], p["after"]) for p in value["packages"]] == [("kept", "1.0", None)]
    assert "- kept 1.0" in ran.out and value["command"] == "drop"


def test_add_outside_of_a_project_writes_no_file(made):
    (made.work / "gpuenv.yaml").unlink()
    _, value = tried(made, "add", "more")
    assert [p["name"] for p in value["packages"]] == ["more"] and value["writes"] == []


def test_repair_shows_what_it_would_reinstall(made):
    ran, value = tried(made, "repair")
    assert value["packages"] == [] and "would not change .venv" in ran.out
    (package,) = (made.work / ".venv").glob("lib/python3*/site-packages/kept")
    package.rename(made.folder / "kept")
    ran, value = tried(made, "repair")
    assert [(p["name"], p["after"]) for p in value["packages"]] == [("kept", "1.0")]
    assert "kept" in ran.out and not package.exists()


def test_remove_shows_the_paths_and_the_freed_space(made):
    ran, value = tried(made, "remove", ".venv")
    assert value["removes"] == [str(made.work / ".venv")] and value["freed_bytes"] > 1000
    assert "would remove .venv" in ran.out and "would free" in ran.out
    refused = made("remove", "/usr", "--dry-run")
    assert refused.code == 2 and "gpuenv did not make; it is left" in refused.err


def test_bundle_shows_its_files_and_its_download(made, index):
    add_own(index)
    ran, value = tried(made, "bundle", "stick")
    names = {Path(path).name.partition("-")[0] for path in value["writes"]}
    assert {"jax", "kept", "typer"} <= names and value["download_bytes"] > 0 < value["free_bytes"]
    assert f"would write {len(value['writes'])} files in stick" in ran.out
    assert not (made.work / "stick").exists()


# --- -q ----------------------------------------------------------------------------------------------


def test_quiet_prints_only_the_last_line(made):
    ran = ok(made("create", "--with", "more", "--no-verify", "-q"))
    assert ran.out.startswith("unproven. To verify, run `gpuenv verify ") and ran.err == ""
    (made.work / "pylock.toml").unlink()
    ran = ok(made("lock", "-q"))
    assert re.fullmatch(r"\d+ packages locked.*\n", ran.out) and ran.err == ""
    ran = ok(made("remove", ".venv", "-q"))
    assert " ".join(ran.out.split()).startswith(f"{made.work / '.venv'}: removed, ") and ran.err == ""


def test_a_checked_lock_is_one_line_and_the_next_step(go):
    ok(go("lock"))
    result, step = ok(go("lock", "--check")).out.splitlines()
    assert result.startswith("pylock.toml is up to date (jax ") and result.endswith(" packages)")
    assert step.startswith("gpuenv create --locked")
    assert ok(go("lock", "--check", "--json")).json["schema"] == "gpuenv.lock/1"


def test_quiet_still_prints_errors_and_requested_output(go):
    assert "missing does not exist" in refused(go("remove", "missing", "-q"), 2).err
    assert "jax" in ok(go("resolve", "-q")).out
    assert ok(go("cache", "dir", "-q")).out.strip() == str(Path(go.env["XDG_CACHE_HOME"]) / "gpuenv")
    ran = go("verify", "/usr", "-q", "--device", "cpu", "--quick")
    assert ran.code == 8 and "verdict:" in ran.out and "driver" in ran.out and ran.err == ""
