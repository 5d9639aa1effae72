"""The README says what the program does today."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import readme  # noqa: E402  # scripts/ is no package

TEXT = (ROOT / "README.md").read_text()


def test_the_first_screen_is_what_a_run_prints_today():
    written = readme.SESSION.search(TEXT).group(2)
    assert readme.masked(written) == readme.masked(readme.session())


def commands():
    """Every `gpuenv ...` line of the README's code blocks."""
    for line in TEXT.splitlines():
        match = re.match(r"    (gpuenv .*?)(\s+#.*)?$", line)
        if match:
            yield match.group(1)


@pytest.mark.parametrize("command", list(commands()))
def test_every_option_in_the_readme_exists(command):
    words = command.split()
    if words[1].startswith("-"):
        return
    done = subprocess.run(
        [sys.executable, "-m", "provision", words[1], "--help"], capture_output=True, text=True, check=True,
        env={"COLUMNS": "200", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    for option in re.findall(r"(?<=\s)--[a-z-]+", command):
        assert option in done.stdout, f"{option} is not in gpuenv {words[1]} --help"


def test_the_exit_codes_of_the_readme_are_those_of_the_errors():
    from provision import errors
    from provision.cli import exit_codes

    names = {
        c.name for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.GpuenvError)
    }
    assert names == set(exit_codes.OF_ERRORS)
    codes = set(exit_codes.OF_ERRORS.values())
    table = {int(n) for n in re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)}
    assert codes | {0} == table


def test_no_line_of_output_is_wider_than_a_terminal():
    for line in readme.SESSION.search(TEXT).group(2).splitlines():
        assert len(line) <= 100 and (len(line) <= 80 or line.startswith("$ ") or " " not in line.strip())
