"""Finds bytecode that differs from its compiled source, although Python would run it.

The environment's own Python runs it with -I -S, so that no installed code runs. It reads [[source, compiled],
...] as JSON from stdin, and prints the indexes of those that differ as a JSON list. Two code objects are equal
whatever folder they were compiled in, and whatever the order in which marshal wrote their parts. Bytecode that
Python would not run (for another source, another Python) is skipped.
"""

import importlib.util
import json
import marshal
import os
import struct
import sys
import warnings

HEAD = 16  # bytes before the code: magic, flags, and time and size or hash of the source (PEP 552)


def runs(head, source, text):
    """Return whether Python runs bytecode with this head for a source."""
    if len(head) < HEAD or head[:4] != importlib.util.MAGIC_NUMBER:
        return False
    flags, changed, size = struct.unpack("<III", head[4:])
    if flags & ~0b11:
        return False
    if flags & 0b1:
        return not flags & 0b10 or head[8:] == importlib.util.source_hash(text)
    found, low = os.stat(source), 0xFFFFFFFF
    return (int(found.st_mtime) & low, found.st_size & low) == (changed, size)


def differs(source, path):
    try:
        with open(path, "rb") as file:
            data = file.read()
        with open(source, "rb") as file:
            text = file.read()
    except OSError:  # without its source it is not imported
        return False
    if not runs(data[:HEAD], source, text):
        return False
    try:
        return marshal.loads(data[HEAD:]) != compile(text, source, "exec", dont_inherit=True)
    except Exception:  # marshal and the compiler can raise any exception
        return True


def main():
    warnings.simplefilter("ignore")
    pairs = json.load(sys.stdin)
    json.dump([n for n, (source, path) in enumerate(pairs) if differs(source, path)], sys.stdout)


if __name__ == "__main__":
    main()
