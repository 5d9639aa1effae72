"""Options that are set by variables, and the values that a shell completes for options."""

import re

import pytest

from provision.cli import typer_app
from provision.cli.verbs import COMMANDS, load_command
from provision.model import declare

EXCLUDED = {
    ("create", "allow_md5"), ("sync", "allow_md5"), ("export", "allow_md5"), ("bundle", "allow_md5"),
    ("export", "force"), ("bundle", "force"), ("lock", "force"), ("verify", "force"), ("report", "force"),
    ("lock", "allow_downgrade"),
    *((words, "trust_project") for words in (
        "create", "sync", "lock", "bundle", "resolve", "verify", "run", "diagnose", "init", "export", "repair", "add", "drop",
    )),
    ("cache prune", "cache_dir"), ("cache clean", "cache_dir"),
}  # fmt: skip


def options():
    for words, verb in COMMANDS.items():
        kind, _ = load_command(words)
        for _, field, how in (
            *declare.iterate_options(kind),
            *declare.iterate_options(verb.output),
        ):
            if not how.is_argument:
                yield words, field.name, how, kind


def test_every_long_option_has_a_variable_but_those_that_permit_or_remove():
    without = set()
    for words, name, how, kind in options():
        variable = typer_app.get_variable(name, how, kind)
        if variable is None:
            without.add((words, name))
        else:
            assert variable.startswith("GPUENV_") and variable.isupper(), (words, name)
    assert without == EXCLUDED


def test_a_variable_is_an_option_and_the_command_line_replaces_it(gpuenv):
    gpuenv.env |= {"GPUENV_FRAMEWORK": "torch jax", "GPUENV_DEVICE": "cpu", "GPUENV_JSON": "1"}
    plan = gpuenv("resolve").json
    assert [b["framework"] for b in plan["builds"]] == ["torch", "jax"] and plan["device"] == "cpu"
    plan = gpuenv("resolve", "--framework", "jax").json
    assert [b["framework"] for b in plan["builds"]] == ["jax"]


def test_gpuenv_json_makes_an_error_one_document(gpuenv):
    gpuenv.env["GPUENV_JSON"] = "true"
    assert gpuenv("nonsense").json["error"]["code"] == 2


def test_a_wrong_value_is_refused_like_an_option(gpuenv):
    gpuenv.env["GPUENV_DEVICE"] = "gpu"
    ran = gpuenv("resolve", "--framework", "jax")
    assert ran.code == 2 and re.search(r"--device gpu: .*\(GPUENV_DEVICE is set\)", ran.err)


def test_an_empty_variable_counts_as_unset(gpuenv):
    gpuenv.env |= {"GPUENV_DEVICE": "", "GPUENV_FRAMEWORK": ""}
    ran = gpuenv("resolve")
    assert ran.code == 2 and "no gpuenv.yaml here" in ran.err


def test_force_and_allow_are_not_taken_from_a_variable(gpuenv):
    gpuenv.env |= {"GPUENV_FORCE": "1", "GPUENV_ALLOW_MD5": "1"}
    (gpuenv.work / "report.html").write_text("mine")
    ran = gpuenv("verify", "--report", "report.html")
    assert ran.code == 2 and (gpuenv.work / "report.html").read_text() == "mine"


def test_a_variable_does_not_say_which_cache_is_removed(gpuenv):
    other = gpuenv.work / "other"
    (other / "uv").mkdir(parents=True)
    gpuenv.env["GPUENV_CACHE_DIR"] = str(other)
    assert gpuenv("cache", "dir").out == f"{other}\n"
    for word in ("prune", "clean"):
        assert str(other) not in gpuenv("cache", word).out
    assert (other / "uv").is_dir()


def completed(gpuenv, *words):
    gpuenv.env |= {
        "_GPUENV_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(("gpuenv", *words)),
        "COMP_CWORD": str(len(words)),
    }
    return gpuenv().out.split("\n")[:-1]


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (("create", "--device", ""), ["auto", "cuda", "cpu"]),
        (("create", "--device", "c"), ["cuda", "cpu"]),
        (("verify", "--device", "c"), ["cpu"]),
        (("lock", "--manager", ""), ["venv", "conda"]),
        (("resolve", "--platform", "linux"), ["linux-x86_64", "linux-aarch64"]),
        (("resolve", "--gpu", "H200"), ["H200", r"H200\ NVL"]),
        (("resolve", "--gpu", "9."), ["9.0"]),
        (("export", "--format", "py"), ["pylock"]),
    ],
)
def test_values_of_options_are_completed(gpuenv, words, values):
    found = completed(gpuenv, *words)
    assert [value for value in found if not value.startswith("cuda:")] == values


def test_completion_escapes_the_blank_in_a_board_name(gpuenv):
    found = completed(gpuenv, "create", "--gpu", "RTX")
    assert r"RTX\ 4090" in found and all(value.startswith("RTX") for value in found)


def test_targets_are_completed_in_a_folder_below_the_project(gpuenv):
    (gpuenv.work / "gpuenv.yaml").write_text("targets: {node-a: {device: cpu}, laptop: {device: cpu}}\n")
    (gpuenv.work / "src").mkdir()
    gpuenv.work = gpuenv.work / "src"
    assert completed(gpuenv, "create", "--target", "n") == ["node-a"]
