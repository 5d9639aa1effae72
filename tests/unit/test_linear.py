"""Text from outside is read in linear time: four times the text takes about four times as long."""

import time

import pytest
from rows import rows

from provision import report
from provision.diagnose import facts, processes
from provision.diagnose.lines import Line, read_exceptions
from provision.environment import uv_install
from provision.errors import UsageError
from provision.index import refusals
from provision.lock import uv_errors
from provision.requirements import files, poetry
from provision.requirements.sort import read_project_requirements
from provision.verify import disk
from provision.verify.libraries import PythonPaths


def seconds(read, text):
    """The processor time of one reading; what is too short to measure counts as 20 ms."""
    began = time.process_time()
    read(text)
    return max(0.02, time.process_time() - began)


def is_linear(read, short, long):
    """Whether a text of four times the length takes less than nine times as long. What else runs here may slow one
    reading down, not three."""
    return any(seconds(read, long) / seconds(read, short) < 9 for _ in range(3))


def quietly(read):
    def reading(text):
        try:
            read(text)
        except (UsageError, ValueError):
            return

    return reading


READERS = {
    "progress of uv": (uv_install.parse_progress, ("0", "a ", "a -", "- ", " ")),
    "refusals in a log": (refusals.find_failure, ("(111 ", "https://", "Because a", "`", "Failed to fetch `")),
    "disks in a log": (refusals.find_storage_failure, ("`/a", "'", '"/')),
    "packages that no index has": (uv_errors._ABSENT.search, ("x", "a-", "x was not ")),
    "releases without wheels": (uv_errors.find_unusable, ("a==1 ", "has no usable wheels ", "a==1 have no usable wheels ")),
    "undeclared build requirements": (uv_errors._NEEDS_TO_BUILD.search, ("`", "`a", "`a` depends on `")),
    "a file that the loader refuses": (
        lambda t: disk.explain_damaged("torch", t, None, PythonPaths(prefix="", version="", sites=(), roots=())), ("file ", "ended by SIG", "lib"),
    ),
    "the end of a traceback": (
        lambda t: read_exceptions([Line("-", 1, t)]), ("a.", "aError", "E  ", "rank0: ", "x-| ", "File '"),
    ),
    "a crash": (
        lambda t: processes.read_crash([Line("-", 1, "Fatal Python error: Aborted"), Line("-", 2, t)]),
        ("/a", "liba.so", "a.so.1", "[0x7f", "segfault at 0", "Extension modules: a, "),
    ),
    "names of boards": (facts.split_board_name, ("rtx1", "1")),
    "a poetry constraint": (quietly(lambda t: poetry._convert_clauses(t, "a")), (" ", "\n", "a ,")),
    "an environment file of conda": (quietly(files.convert_specifier), ("\n", " ", "= ")),
    "what a report hides": (lambda t: report.anonymize_text(t, report.PersonalData()), (".", "-", "eyJ-", "MIG-", "token", "a@", "_-", "://", "-token", "=")),
}  # fmt: skip


@rows(("name", "piece"), [(n, p) for n, (_, pieces) in READERS.items() for p in pieces])
def test_every_reader_takes_linear_time(name, piece):
    size = 8_000 if name == "what a report hides" else 30_000
    short, long = (piece * (n // len(piece)) + "\0" for n in (size // 4, size))
    assert is_linear(READERS[name][0], short, long)


SHAPES = ("a", "a ", "a[", "${A", "${HOME}", "a #", "a ; ", "a==1,", "a @ ", "https://h/", "'", "\\\n", "-", "-r x ", "(",
          "a;(", "1", ".", '"a"', "\t;", "https://a:b@", "--hash=sha256:" + "0" * 64 + " ", " ", "[")  # fmt: skip


def read_file(path, text):
    path.write_text(text, encoding="utf-8")
    read_project_requirements({"HOME": "/h"}, {}, requirements=[path])


@rows("piece", SHAPES)
@rows("prefix", ["", "a @ https://h/"])
def test_a_long_requirement_is_read_in_linear_time(tmp_path, prefix, piece):
    """The form with shlex took 38 s for a megabyte."""
    short, long = ((prefix + piece * size)[:size] for size in (8_000, 32_000))
    assert is_linear(quietly(lambda text: read_file(tmp_path / "r.txt", text)), short, long)


@pytest.mark.slow
@rows("piece", SHAPES)
@rows("prefix", ["", "torch", "a @ https://h/", "-e ", "./"])
def test_a_requirement_of_a_megabyte_is_read_in_linear_time(tmp_path, prefix, piece):
    """Measured: less than 0.2 s each."""
    short, long = ((prefix + piece * size)[:size] for size in (250_000, 1_000_000))
    assert is_linear(quietly(lambda text: read_file(tmp_path / "r.txt", text)), short, long)
