"""A program that adds one to a number in a file, many times, each time with the lock of an environment's place."""

PROGRAM = """
import sys
from pathlib import Path
from provision.environment import place
from provision.errors import BuildError
path, number, turns = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
done = 0
while done < turns:
    try:
        with place.lock_place(path):
            found = int(number.read_text())
            number.write_text(str(found + 1))
            done += 1
    except BuildError:
        pass
"""
