"""scripts/trace_command.py: what it counts of a command."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "trace_command.py"


def test_files_chain_and_numbers_are_those_of_functions(tmp_path):
    (tmp_path / "log").write_text("RuntimeError: CUDA out of memory\n")
    argv = [sys.executable, SCRIPT, "--chain", "--files", "diagnose", "--no-machine", "log"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    numbers, *rows = done.stderr.splitlines()
    chain, files = [r for r in rows if ":" in r], [r for r in rows if ":" not in r]
    assert chain[:2] == ["__main__.py:main", "cli/__init__.py:run"] and len(chain) == len(set(chain))
    assert numbers.startswith(f"{len(files)} files, depth {len(chain)}, ")
    assert {"actions/diagnose.py", "diagnose/rules.py"} < set(files)
    assert "diagnose/__init__.py" in files and not any("<listcomp>" in row for row in chain)
    assert "errors.py" not in files, "it is imported, and none of its functions runs"
