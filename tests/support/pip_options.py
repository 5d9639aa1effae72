"""What pip's own parser reads in a command line.

It runs in a child. In this process importing pip would make a later import of setuptools take the standard library's
distutils (`_distutils_hack`, `spec_for_pip`), and fail other tests.
"""

import json
import subprocess
import sys

_PROGRAM = """
import json, sys
from pip._internal.commands import create_command

def read(words):
    try:
        options, names = create_command(words[0]).parse_args(words[1:])
    except SystemExit:
        return None  # pip has printed the wrong option
    return {"names": names, "force_reinstall": bool(vars(options).get("force_reinstall"))}

print(json.dumps([read(words) for words in json.load(sys.stdin)]))
"""


def read_pip_options(lines):
    """Return for each command line, without `pip`, its requirements and whether it reinstalls, or None if pip refuses it."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _PROGRAM], input=json.dumps(lines), capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    return json.loads(done.stdout)
