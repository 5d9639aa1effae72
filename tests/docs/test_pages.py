"""Every page: its blocks name their tests, its links resolve, its options exist; generated pages are current."""

import ast
import json
import re
import sys

import pytest
from doc_pages import PAGES, ROOT, blocks, commands, read, texts
from made_env import jax_env
from rows import rows

from provision import model
from provision.cli.verbs import ALIASES, COMMANDS, load_command
from provision.config.file import read_config
from provision.model.declare import iterate_options

sys.path.insert(0, str(ROOT / "scripts"))
import command_reference  # scripts/ is no package

NAMES = [str(path.relative_to(ROOT)) for path in PAGES]


@rows("page", NAMES)
def test_every_block_names_its_test_or_says_why_there_is_none(page):
    session = re.compile(r"<!-- session -->\n```console\n.*?```\n<!-- /session -->", re.DOTALL)
    free = {re.search(r"```console\n(.*?)```", m, re.DOTALL)[1] for m in session.findall(read(page))}
    for block in blocks(page):
        if block.text in free:
            continue  # test_readme.py runs it
        if page == "docs/reference/json.md":
            continue  # test_an_example_is_a_value_of_its_schema reads it
        assert block.language, f"{page}: a block without a language:\n{block.text}"
        assert block.test or len(block.reason) > 10, f"{page}: no comment before\n{block.text}"
        if block.test:
            file, name = block.test.split("::")
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, (
                block.test
            )
            assert page.rpartition("/")[2] in "".join(_with_support(file, tree)), (
                f"{file} does not read {page}"
            )


def _with_support(file, tree):
    """Yield the text of a test file and of the modules in tests/support that it imports."""
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    for path in (
        ROOT / file,
        *(ROOT / "tests" / "support" / f"{name}.py" for name in sorted(filter(None, imported))),
    ):
        if path.is_file():
            yield path.read_text(encoding="utf-8")


def test_most_blocks_are_run():
    every = [block for page in NAMES for block in blocks(page) if block.language == "bash"]
    assert len([b for b in every if b.test]) > len([b for b in every if b.reason])


def anchors(path):
    """The anchors of a page, as GitHub makes them of its headings."""
    headings = re.findall(
        r"^#+ (.+)$",
        re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL),
        re.MULTILINE,
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@rows("page", NAMES)
def test_every_link_inside_resolves(page):
    text = re.sub(r"```.*?```", "", read(page), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https://", target):
            continue
        name, _, anchor = target.partition("#")
        path = (ROOT / page).parent / name if name else ROOT / page
        assert path.exists(), f"{page}: {target}"
        assert path.resolve().is_relative_to(ROOT)
        if anchor:
            assert anchor in anchors(path), f"{page}: {target}"


def test_every_page_is_in_the_list_of_pages():
    listed = {
        ((ROOT / "docs") / target.partition("#")[0]).resolve()
        for target in re.findall(r"\]\(([^)\s]+)\)", read("docs/README.md"))
    }
    pages = {path for path in PAGES if path.parent != ROOT and path.name != "README.md"}
    assert pages <= listed


def option_names(words):
    """The options of the command that the words name, from its declaration."""
    verb = next((v for v in (" ".join(words[:2]), ALIASES.get(words[0], words[0])) if v in COMMANDS), None)
    kinds = (load_command(verb)[0], COMMANDS[verb].output) if verb else ()
    flags = [how.flags for kind in kinds for *_, how in iterate_options(kind)]
    return {name for group in flags for flag in group for name in flag.split("/")}


def test_every_option_on_the_pages_exists():
    seen = set()
    for page, line in commands():
        words = line.split(" -- ")[0].split()[1:]
        if not words or words[0].startswith("-") or "." in words[0]:
            continue
        known = option_names(words)
        assert known, f"{page}: {line}"
        given = words if words[0] != "run" else words[:2]
        for option in (word.partition("=")[0] for word in given if word.startswith("--")):
            seen.add(option)
            assert option in known, f"{page}: {option} is no option of gpuenv {words[0]}"
    assert len(seen) > 15


def test_the_reference_of_commands_is_current():
    assert command_reference.PAGE.read_text(encoding="utf-8") == command_reference.page(), (
        "run scripts/command_reference.py --write"
    )


def test_the_reference_has_the_exit_codes_of_the_errors():
    from provision import errors
    from provision.cli import exit_codes
    from provision.model import NodeVerdict

    names = {
        c.name for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.GpuenvError)
    }
    assert names == set(exit_codes.OF_ERRORS)
    codes = {
        *exit_codes.OF_ERRORS.values(),
        exit_codes.get_error_code(errors.LockError("", unreachable="pypi")),
        exit_codes.get_exit_code(NodeVerdict(fault=True, hung=True, text=""), None),
        exit_codes.get_exit_code(NodeVerdict(fault=True, hung=False, text=""), None),
    }
    table = {int(n) for n in re.findall(r"^\| (\d+) \|", read("docs/reference/exit-codes.md"), re.MULTILINE)}
    assert codes | {0} == table


@rows("page", NAMES)
def test_every_yaml_block_is_a_gpuenv_yaml(page, tmp_path):
    for block in blocks(page, "yaml"):
        if block.test:
            (tmp_path / "gpuenv.yaml").write_text(block.text)
            assert read_config(tmp_path / "gpuenv.yaml")


# --- commands of the pages ---------------------------------------------------------------------------------------


def type_lines(gpuenv, block, **codes):
    """Each line of a block with the gpuenv of the tests; `codes` are exit codes by command."""
    done = []
    for line in block.splitlines():
        words = line.partition("#")[0].split()
        assert words[0] == "gpuenv"
        ran = gpuenv(*words[1:])
        assert ran.code == codes.get(words[1], 0), f"{line}\n{ran.out}\n{ran.err}"
        done.append(ran)
    return done


@pytest.fixture
def built(gpuenv, index):
    """An environment of a tiny jax."""
    jax_env(gpuenv, index)
    return gpuenv


def test_the_exports_of_the_page_write_their_files(built):
    (block,) = texts("docs/how-to/export.md", "test_the_exports_of_the_page_write_their_files")
    type_lines(built, block)
    assert "FROM " in (built.work / "Dockerfile").read_text()
    assert "--hash=sha256:" in (built.work / "requirements.lock.txt").read_text()
    assert "#SBATCH" in (built.work / "train.sbatch").read_text()


def test_the_page_has_every_export_format():
    from provision.export import FORMATS

    rows = re.findall(r"^\| (`.+?) \|", read("docs/how-to/export.md"), re.MULTILINE)
    assert set(re.findall(r"`([^`]+)`", "".join(rows))) == set(FORMATS)


def test_the_repair_of_the_page_restores_the_file(built):
    (block,) = texts("docs/how-to/fix-a-failure.md", "test_the_repair_of_the_page_restores_the_file")
    package = next((built.work / ".venv").glob("lib/python*/site-packages/jax/__init__.py"))
    package.unlink()
    built.env["GPUENV_VERIFY"] = "0"  # the tiny jax has no proof
    verified, repaired = type_lines(built, block, verify=8)
    assert "jax" in verified.out + verified.err
    assert package.exists(), repaired.err


def test_the_diagnosis_of_the_page_names_the_failure(built):
    (built.work / "train.log").write_text("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED\n")
    (block,) = texts("docs/how-to/fix-a-failure.md", "test_the_diagnosis_of_the_page_names_the_failure")
    first, _, alone, report = type_lines(built, block)
    assert "CUDNN_STATUS_NOT_INITIALIZED" in first.out and "CUDNN_STATUS_NOT_INITIALIZED" in alone.out
    assert "jax" in report.out


# --- JSON documents ------------------------------------------------------------------------------------------------


def documents():
    """The classes of `provision.model` that have a schema."""
    classes = [getattr(model, name) for name in dir(model)]
    return {c.SCHEMA: c for c in classes if isinstance(c, type) and hasattr(c, "SCHEMA")}


EXAMPLES = {
    block.text: json.loads(block.text)["schema"] for block in blocks("docs/reference/json.md", "json")
}


@rows("text", EXAMPLES, ids=EXAMPLES.values())
def test_an_example_is_a_value_of_its_schema(text):
    """Each has all fields of today, and none that the schema lacks."""
    example, schema = json.loads(text), EXAMPLES[text]
    if schema == "gpuenv.error/1":
        assert {"code", "message", "hint", "log"} <= set(example["error"])
        return
    assert model.as_document(model.from_plain(documents()[schema], example)) == example


def test_every_document_is_on_the_page():
    text = read("docs/reference/json.md")
    internal = {
        "gpuenv.target/1",
        "gpuenv.environment/1",
        "gpuenv.installed/1",
    }  # parts of others, or of files
    assert {schema for schema in documents() if schema not in text} <= internal
    assert len(EXAMPLES) > 15
