"""The options of every command: declared once, and the same as in tests/data/command_line.json."""

import json
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import typer
from programs import run_program
from rows import rows

from provision import cli
from provision.actions.create import CreateOptions
from provision.cli import read_words, typer_app
from provision.cli.verbs import COMMANDS, EXAMPLES, FIRST_COMMANDS, GROUPS, Output, load_command
from provision.config.options import Choices
from provision.model import declare

EXPECTED = json.loads((Path(__file__).resolve().parents[1] / "data" / "command_line.json").read_text())
TOP = typer.main.get_command(cli.app)


def prepared(words):
    """The command that some words ask for, and its context."""
    context = TOP.make_context("gpuenv", [], resilient_parsing=True)
    command = TOP
    for word in words:
        _, command, _ = command.resolve_command(context, [word])
        context = type(context)(command, parent=context, info_name=word)
    return command, context


def described(parameter, context):
    row = parameter.get_help_record(context)
    return {
        "name": parameter.name,
        "kind": parameter.param_type_name,
        "flags": [*parameter.opts, *parameter.secondary_opts],
        "shown": list(row) if row else None,
        "type": parameter.type.name,
        "required": parameter.required,
        "many": parameter.nargs == -1 or bool(getattr(parameter, "multiple", False)),
        "default": None if parameter.default is None else str(parameter.default),
        "completed": parameter._custom_shell_complete is not None,
    }


def by_name(rows):
    return sorted(rows, key=lambda row: row["name"])


@rows("words", EXPECTED, ids=lambda words: words.replace(" ", "-") or "gpuenv")
def test_each_command_has_the_options_in_the_recorded_list(words):
    command, context = prepared(words.split())
    expected = EXPECTED[words]
    assert (command.help, command.get_usage(context)) == (expected["help"], expected["usage"])
    found = [described(parameter, context) for parameter in command.params]
    assert by_name(found) == by_name(expected["params"])


def test_the_commands_are_those_in_the_recorded_list():
    command, context = prepared(())
    groups = set(GROUPS)
    words = {"", *command.list_commands(context)}
    for name in groups:
        inner, below = prepared([name])
        words |= {f"{name} {one}" for one in inner.list_commands(below)}
    assert words == set(EXPECTED) == {"", *COMMANDS, *groups}


@rows("name", COMMANDS)
def test_the_options_of_a_command_have_one_name_each(name):
    kind, function = load_command(name)
    names = [
        f.name
        for _, f, _ in (
            *declare.iterate_options(kind),
            *declare.iterate_options(COMMANDS[name].output),
        )
    ]
    assert len(names) == len(set(names))
    assert callable(function) and function.__doc__


def test_help_is_grouped_and_fits_a_narrow_pipe(gpuenv):
    gpuenv.env |= {"COLUMNS": "80", "NO_COLOR": "1"}
    ran = gpuenv("create", "--help")
    heads = [row[:-1] for row in ran.out.splitlines() if row.endswith(":") and not row.startswith(" ")]
    assert heads == [
        "Arguments", "Frameworks and packages", "Target machine", "Build", "Package sources", "Output", "Examples",
    ]  # fmt: skip
    panels = {head: text.split("\n\n")[0] for head in heads for text in [ran.out.split(f"\n{head}:\n")[1]]}
    for panel, words in {
        "Target machine": ("--driver", "--gpu", "--python"),
        "Frameworks and packages": ("--framework", "--requirement", "--cuda", "--manager", "--device"),
        "Package sources": ("--index", "--offline", "--find-links", "--bundle", "--exclude-newer"),
        "Build": ("--locked", "--recreate", "--verify / --no-verify", "--kernel"),
        "Output": ("--json", "--quiet", "--verbose", "--help"),
    }.items():
        assert all(f"{word} " in panels[panel] for word in words), panels[panel]
    assert max(map(len, ran.out.splitlines())) <= 80 and "\x1b" not in ran.out and ran.err == ""


def test_the_main_commands_come_first_and_each_has_its_line(gpuenv):
    gpuenv.env |= {"COLUMNS": "80", "NO_COLOR": "1"}
    shown = gpuenv("--help").out
    main, more = shown.partition("Main commands:\n")[2].split("\n\nMore commands:\n")
    assert [row.split()[0] for row in main.splitlines()] == list(FIRST_COMMANDS) and len(FIRST_COMMANDS) == 6
    listed = {row.split()[0] for row in (*main.splitlines(), *more.partition("\n\n")[0].splitlines())}
    assert listed == {*(words.split()[0] for words in COMMANDS), *GROUPS}
    assert "..." not in main + more
    assert all(verb.help in " ".join(shown.split()) for words, verb in COMMANDS.items() if " " not in words)
    assert main.splitlines()[0] in gpuenv().err


LINES = [(words, line) for words, rows in EXAMPLES.items() for line, _ in rows]


def test_every_command_has_examples():
    assert {*COMMANDS} - {*EXAMPLES} == {
        "cache dir",
        "cache prune",
        "cache clean",
        "profiles list",
        "profiles check",
    }


@pytest.mark.parametrize(("words", "line"), LINES)
def test_an_example_is_a_valid_command_line(words, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    argv = shlex.split(line.rpartition("| ")[2].partition(" > ")[0])
    assert argv[0] == "gpuenv"
    read = read_words(argv[1:])
    command, _ = prepared(words.split() if words.split()[0] == argv[1] else [argv[1]])
    command.make_context("gpuenv", read.ours[len(words.split()) :])
    assert words == "run" or read.command is None


def test_the_help_of_a_command_ends_with_its_examples(gpuenv):
    gpuenv.env |= {"COLUMNS": "80", "NO_COLOR": "1"}
    for words in (["diagnose"], ["profiles", "update"]):
        shown = gpuenv(*words, "--help").out.partition("\nExamples:\n")[2]
        assert [row for row, _ in EXAMPLES[" ".join(words)] if row not in shown] == []


def test_help_imports_neither_rich_nor_a_stage():
    code = (
        "import sys\nfrom provision.cli import run\ncode = run(['create', '--help'])\n"
        "print(code, *sys.modules, file=sys.stderr)"
    )
    done = run_program([sys.executable, "-c", code], check=True)
    ended, *names = done.stderr.split()
    assert ended == "0" and "--framework" in done.stdout
    stages = {f"provision.{name}" for name in ("resolve", "verify", "conda", "wheels", "detect", "project")}
    assert not {"rich", "yaml", *stages} & set(names)


def test_only_the_command_that_is_asked_for_is_prepared():
    code = (
        "import sys\nfrom provision.cli import run\nrun(['list', '--json'])\n"
        "print(*(m for m in sys.modules if m.startswith('provision.actions.')), file=sys.stderr)"
    )
    done = run_program([sys.executable, "-c", code], check=True)
    own = {f"provision.actions.{words.split()[0]}" for words in COMMANDS}
    assert own & set(done.stderr.split()) == {"provision.actions.list"}


@dataclass(frozen=True, kw_only=True)
class Inner:
    names: list[str] = declare.option(list, help="Names.")
    depth: int = declare.option(3, "--depth", "-d", help="Depth.")
    kept: str = "own"
    named: frozenset[str] = field(default=frozenset(), compare=False)


@dataclass(frozen=True, kw_only=True)
class Outer:
    place: Path = declare.argument(help="A place.")
    inner: Inner = declare.group(Inner, without=("names",))
    all_of_it: bool = declare.option(False, help="All.")


def test_a_signature_is_made_of_nested_groups():
    seen = []

    def call(context, **given):
        seen.append(declare.build_options(Outer, given, typer_app.find_named_options(context, given)))
        return 0

    typer_app.declare_parameters(call, Outer)
    one = typer.Typer(add_completion=False, rich_markup_mode=None)
    one.command()(call)
    command = typer.main.get_command(one)
    command.main(["here", "-d", "3", "--all-of-it"], standalone_mode=False)
    command.main(["here"], standalone_mode=False)
    assert seen[0] == Outer(place=Path("here"), all_of_it=True)
    assert seen[0].inner.named == {"depth"} and seen[1].inner.named == frozenset()
    assert "--names" not in {flag for parameter in command.params for flag in parameter.opts}


def test_what_a_command_line_names_is_known_with_its_default_too():
    command, _ = prepared(["create"])
    seen = []

    def called(options, _emit):
        seen.append(options)
        raise typer.Exit

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("provision.cli.typer_app.load_command", lambda _: (CreateOptions, called))
        command, _ = prepared(["create"])
        command.main(["env", "--device", "auto", "-f", "jax", "-f", "torch"], standalone_mode=False)
    (options,) = seen
    assert options.choices.named == {"device", "framework"} and options.choices.framework == ["jax", "torch"]
    assert options == CreateOptions(env=Path("env"), choices=Choices(framework=["jax", "torch"]), brief=True)
    assert Choices(framework=["jax"]).explicit() == {"framework"}


def test_every_command_has_the_output_options():
    for name, verb in COMMANDS.items():
        assert issubclass(verb.output, Output), name
