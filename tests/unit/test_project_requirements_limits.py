"""Any text and many files as requirements of a project: bounded, and never an internal error."""
# ruff: noqa: F811  # fixtures are imported by their names

import time

import pytest
from hypothesis import given, strategies as st
from packaging.requirements import Requirement
from requirements_folder import SHA, STACK, asked, elsewhere, folder, refusal, write  # noqa: F401  # fixtures

from provision.cli import exit_codes
from provision.errors import GpuenvError
from provision.requirements import files, imports

_WORDS = st.sampled_from(
    [
        "torch", "numpy", "==1.0", ">=2", "+cu118", "[a]", " @ ", "git+https://h/x", "#egg=n", "-r ", "-e ",
        "-c ", "--hash=" + SHA, "-i ", "--pre", "./a", "file:///a", " ; ", "python_version", "<'3'", "\\\n",
        "\n", " ", "#", "${A}", "'", '"', "(", ")", "\0", "\x85", "\u2028", "=", "https://u:p@h/x.whl", "%2f",
        "../", "~", "[", "]", "requirements.txt",
    ]
)  # fmt: skip


def outcome(folder):
    try:
        return None, asked(folder, environ={"A": "b"})
    except GpuenvError as error:
        return error, None


@given(text=st.one_of(st.lists(_WORDS, max_size=30).map("".join), st.text(max_size=200)))
def test_no_text_causes_an_internal_error(folder, text):
    (folder / "requirements.txt").write_bytes(text.encode("utf-8", "surrogatepass"))
    error, found = outcome(folder)
    assert error is None or error.hint
    for need in found.lines if found else ():
        if need.name and not need.editable:
            assert Requirement(need.text)  # what is handed to the solver is PEP 508


@given(data=st.binary(max_size=300))
def test_no_bytes_cause_an_internal_error(folder, data):
    (folder / "requirements.txt").write_bytes(data)
    error, _ = outcome(folder)
    assert error is None or exit_codes.get_error_code(error) == 2


_NAMES = st.from_regex(r"[a-z][a-z0-9]{0,8}(-[a-z0-9]{1,5})?", fullmatch=True).filter(
    lambda n: n not in ("torch", "tensorflow", "jax", "jaxlib", "triton", "tf", "pytorch") and n not in STACK
)


_VERSIONS = st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){0,3}((a|b|rc)[0-9])?", fullmatch=True)


_SPECIFIERS = st.lists(
    st.tuples(st.sampled_from(["==", ">=", "<=", "!=", "<", ">", "~="]), _VERSIONS).filter(
        lambda pair: pair[0] != "~=" or "." in pair[1]
    ),
    max_size=3,
).map(lambda pairs: ",".join(op + v for op, v in pairs))


_EXTRAS = st.lists(st.sampled_from(["a", "b-c", "d"]), max_size=2).map(
    lambda e: f"[{','.join(e)}]" if e else ""
)


@given(
    rows=st.lists(st.tuples(_NAMES, _EXTRAS, _SPECIFIERS), max_size=8), seed=st.randoms(use_true_random=False)
)
def test_a_written_file_reads_back_the_same(folder, rows, seed):
    lines, meant = [], []
    for name, extras, specifier in rows:
        text = name + extras + specifier
        lines += seed.choice([[], [""], ["# a comment"], ["   # more \\"]])
        gap = seed.choice(["", " ", "  # why", "\t#x", " \\\n"])
        lines.append(seed.choice(["", "  "]) + text + gap)
        meant.append(Requirement(text))
    found = asked(folder, seed.choice(["\n", "\r\n"]).join(lines) + seed.choice(["", "\n"]))
    read = [Requirement(n.text) for n in found.lines]
    assert read == list(dict.fromkeys(meant)) or {str(r) for r in read} == {str(r) for r in meant}


def test_many_files_and_lines_are_bounded(folder, monkeypatch):
    write(folder, requirements="".join(f"-r f{i}.txt\n" for i in range(600)))
    for i in range(600):
        (folder / f"f{i}.txt").write_text("numpy\n")
    assert "500" in refusal(folder, None).message
    monkeypatch.setattr(files, "_MOST_LINES", 3)
    assert len(asked(folder, "a\nb\nc\n").lines) == 3
    assert refusal(folder, "a\nb\nc\nd\n").message == "requirements.txt: more than 3 requirements"


@pytest.mark.parametrize(
    "text",
    [
        "numpy" + " " * 1_000_000 + "x",
        "./" + " " * 200_000 + "[",
        "a" * 1_000_000,
        "://" * 300_000,
        "numpy # " + "#" * 1_000_000,
        "x" + "\\\n" * 200_000,
        "--hash " * 50_000,
        "numpy >=" + "1." * 3_000 + "0",
        "x @ " * 2_000,
        "x" + "[" * 7_000,
        "x" + " " * 7_000 + "@" + " " * 500,
        "\n" * 500_000 + "--bogus",
    ],
    ids=range(12),
)
def test_long_texts_are_read_or_refused_soon(folder, text):
    started = time.process_time()
    outcome_of(folder, text)
    assert time.process_time() - started < 20  # some milliseconds; a square of the length would take hours


def outcome_of(folder, text):
    (folder / "requirements.txt").write_text(text)
    return outcome(folder)


def test_deep_includes_are_refused(folder):
    for i in range(60):
        (folder / f"f{i}.txt").write_text(f"-r f{i + 1}.txt\n")
    assert "deep" in refusal(folder, "-r f0.txt\n").message


@pytest.mark.parametrize("name", ["punycode", "idna", "unicode_escape", "nothing", "rot13", "zip"])
def test_a_declared_encoding_that_is_none_of_texts_is_refused(folder, name):
    """The decoder of punycode takes minutes for a megabyte."""
    (folder / "requirements.txt").write_bytes(f"# coding: {name}\n".encode() + b"a-" * (1 << 20))
    began = time.process_time()
    error, _ = outcome(folder)
    assert time.process_time() - began < 5
    assert "requirements.txt" in error.message and name.replace("_", "-") in error.message


@pytest.mark.parametrize("name", ["latin-1", "utf-8-unix", "cp1252", "shift_jis", "koi8-r"])
def test_encodings_of_texts_are_read(folder, name):
    (folder / "requirements.txt").write_bytes(f"# -*- coding: {name} -*-\nnumpy\n".encode())
    assert [need.name for need in outcome(folder)[1].lines] == ["numpy"]


def test_a_program_with_such_an_encoding_is_skipped(folder):
    source = b"# coding: punycode\nimport pandas\n" + b"#" + b"a-" * (200 << 10)
    (folder / "train.py").write_bytes(source)
    (folder / "other.py").write_text("import numpy\n")
    began = time.process_time()
    assert list(imports.find_imports(folder)) == ["numpy"]
    assert time.process_time() - began < 5
