"""What an interrupted run says that it leaves is what is there."""

import json
import signal
import subprocess
import sys

import pytest
from rows import rows

from provision.bundle.writer import format_part as part_of
from provision.environment import place

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
ASK = ("--framework", "jax", "--device", "cpu", "--python", HERE)
AGAIN = "hint: run the same command again\n"


@pytest.fixture
def jax(gpuenv, index):
    """`gpuenv` with tiny wheels of jax on an index, and `aa`."""
    index.add_plan(gpuenv("resolve", "--json", *ASK).json)
    index.add("aa", "1.0")
    gpuenv.env["PIP_INDEX_URL"] = index.url
    return gpuenv


@pytest.fixture
def interrupt(jax, index):
    """Run a command until a file is asked for that never comes, and interrupt it: the end of its stderr."""

    def run(*words, file="aa-1.0-py3-none-any.whl", number=signal.SIGINT):
        index.faults[file] = "stalled"
        argv = [sys.executable, "-m", "provision", *map(str, words)]
        with subprocess.Popen(
            argv, env=jax.env, cwd=jax.work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        ) as child:  # fmt: skip
            assert index.stalled.wait(100)
            child.send_signal(number)
            out, err = child.communicate(timeout=100)
        index.released.set()
        index.faults.clear()
        assert child.returncode == 128 + number, err
        return json.loads(out)["error"] if "--json" in words else err

    return run


def test_an_interrupted_create_says_that_nothing_is_left(jax, interrupt):
    err = interrupt("create", *ASK, "--with", "aa", "--no-verify")
    assert err.endswith(f"interrupted; there is no environment at {jax.work / '.venv'}\n{AGAIN}")
    assert not [*jax.work.iterdir()]


def test_an_interrupted_create_with_json_says_it_in_the_error(jax, interrupt):
    error = interrupt("create", *ASK, "--with", "aa", "--no-verify", "--json", number=signal.SIGTERM)
    assert error["message"] == f"terminated; there is no environment at {jax.work / '.venv'}"
    assert error["hint"] == "run the same command again"


def test_an_interrupted_recreate_leaves_the_old_environment(jax, interrupt):
    assert jax("create", *ASK, "--no-verify").code == 0
    env = jax.work / ".venv"
    err = interrupt("create", *ASK, "--with", "aa", "--no-verify", "--recreate")
    assert err.endswith(f"interrupted; nothing was changed: {env} was not changed\n{AGAIN}")
    assert place.is_undisturbed(env)


def test_an_add_to_a_project_names_what_it_changed(jax, interrupt):
    (jax.work / "gpuenv.yaml").write_text(f"frameworks: [jax]\npython: '{HERE}'\ndevice: cpu\n")
    assert jax("create", "--no-verify").code == 0
    before = (jax.work / "gpuenv.yaml").read_text()
    err = interrupt("add", "aa", "--no-verify")
    said = err[err.index("interrupted; ") :]
    config_changed = (jax.work / "gpuenv.yaml").read_text() != before
    assert (
        ("gpuenv.yaml" in said)
        == config_changed
        == ("pylock.toml" in said)
        == (jax.work / "pylock.toml").exists()
    )
    assert f"{jax.work / '.venv'} was not changed\n" in said


def made(env, digest="1"):
    (env / place.MARK).mkdir(parents=True, exist_ok=True)
    (env / place.MARK / "lock.json").write_text(digest)


def test_each_state_that_is_left_has_its_own_message(tmp_path):
    env, file = tmp_path / "env", tmp_path / "gpuenv.yaml"
    nothing = place.remember_state(env, [file])
    assert nothing.look().text == f"there is no environment at {env}"
    made(env)
    assert nothing.look() == place.RunRemains(
        text=f"{env} is new and was not verified", hint=f"gpuenv verify {env}"
    )
    there = place.remember_state(env, [file])
    assert there.look().text == f"nothing was changed: {env} was not changed"
    file.write_text("frameworks: [jax]\n")
    assert there.look().text == f"gpuenv.yaml was changed; {env} was not changed"
    made(env, "2")
    assert there.look().text == f"gpuenv.yaml was changed; {env} is changed and was not verified"
    place.get_draft_path(env).mkdir()
    assert "unfinished" in there.look().text


def test_a_look_is_taken_only_for_what_was_interrupted():
    def say(text):
        return place.describe_when_interrupted(lambda: place.RunRemains(text=text))

    with say("over"):
        pass
    with pytest.raises(ValueError, match="failed"), say("failed"):
        raise ValueError("failed")
    assert place.describe_remains().text == "nothing was changed"
    with pytest.raises(KeyboardInterrupt), say("what is there"):
        raise KeyboardInterrupt
    try:
        assert place.describe_remains().text == "what is there"
    finally:
        place._LOOKS.clear()


@rows(
    ("part", "total", "words"),
    [
        (3_100_000_000, 4_200_000_000, "3.1 of 4.2 GB"),
        (3_000_000, 4_200_000_000, "3 MB of 4.2 GB"),
        (0, 9, "0 of 9 B"),
    ],
)
def test_a_part_of_a_download_is_shown_in_one_unit(part, total, words):
    assert part_of(part, total) == words
