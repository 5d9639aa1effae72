"""Readers of files from outside: what no example leads to, what fuzzing found, and some more of both."""

import os
import random
import sys
import threading
from pathlib import Path

import pytest
from programs import run_program
from rows import rows

sys.path.insert(0, str(Path(__file__).resolve().parent))

import fuzz
from readers import EXTREMES, READERS, bears

from provision.environment import distributions
from provision.errors import DataError
from provision.profiles import load
from provision.system import untrusted

# The long ones are tried by tests/faults/fuzz.py
SHORT = sorted(name for name, data in EXTREMES.items() if len(data) < 500_000)
FOUND = [
    ("RECORD", b"\0,,"),
    ("RECORD", "a,sha256=b,²".encode()),
    ("RECORD", b"a,sha256=x,1"),
    ("RECORD", b'"' + b"a" * 200_000 + b'",,'),
    ("RECORD of cuDNN", b"nvidia/cudnn/lib/libcudnn.so.9"),
    ("RECORD of cuDNN", b"nvidia/cudnn/lib/libcudnn.so.9,sha256=x,y"),
    ("conda-meta", b"[]"),
    (
        "conda-meta",
        b'{"paths_data": {"paths": [{"_path": 1}, 2, {"_path": "lib/libcudnn.so.9", "sha256": []}]}}',
    ),
    ("verdict.json", b'{"under": {}}'),
    ("verdict.json", b'{"verdict": {}, "under": {}}'),
    ("list", b"[" * 200_000),
    ("machine", b'{"target": {}}'),
]


@rows("extreme", SHORT)
@rows("reader", sorted(READERS))
def test_a_reader_bears_what_no_example_leads_to(reader, extreme):
    bears(READERS[reader], EXTREMES[extreme])
    assert not Path("/tmp/gpuenv-was-here").exists()


@rows(("reader", "data"), FOUND, ids=str)
def test_what_was_found_by_fuzzing_stays_found(reader, data):
    bears(READERS[reader], data)


@rows("reader", ["pylock.toml", "target", "RECORD", "conda-meta", "plan.json", "requirements.txt"])
def test_a_reader_bears_what_hypothesis_makes_of_an_example(reader):
    tried, fault, data = fuzz.by_hypothesis(READERS[reader], 0, random.Random(1), examples=150)
    assert fault is None, f"{fault}: {data!r}"
    assert tried >= 150


def test_an_example_is_read_by_its_reader():
    """Fuzzing starts from what is sound: an example that is refused would prove nothing."""
    for name, reader in READERS.items():
        if name != "@EXPLICIT":  # the line before it makes it two
            reader.read(reader.sound[0])


def test_a_bomb_of_aliases_and_a_tag_are_refused_by_name(tmp_path):
    for extreme, told in (("a bomb", "aliases"), ("a tag in a row", "tag"), ("deep lists", "nest")):
        (tmp_path / "jax.yaml").write_bytes(EXTREMES[extreme])
        with pytest.raises(DataError) as caught:
            load([tmp_path])
        assert told in " ".join(caught.value.problems)


def test_a_pipe_a_device_and_a_huge_file_are_no_records(tmp_path):
    folder = tmp_path / "a-1.dist-info"
    folder.mkdir()
    one = distributions.Distribution("a", "1", folder)
    os.mkfifo(folder / "RECORD")
    read = []
    thread = threading.Thread(target=lambda: read.append(one.record), daemon=True)
    thread.start()
    thread.join(60)
    assert read == [None], "a pipe held the reader"
    with pytest.raises(OSError, match="not a regular file"):
        untrusted.read_bytes(Path("/dev/zero"))
    with (folder / "METADATA").open("wb") as file:
        file.truncate(untrusted.MOST + 1)
    assert one.requires == ()
    with pytest.raises(OSError, match="larger"):
        untrusted.read_bytes(folder / "METADATA")


def test_the_fuzzer_finds_a_reader_that_crashes(tmp_path):
    """The fuzzer itself: a reader with a fault is found, and its smallest example is kept."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import readers, fuzz\n"
        "readers.READERS.clear()\n"
        "readers.READERS['bad'] = readers.Reader('bad', lambda d: 1 / (0 if b'7' in d else 1), (b'{\"a\": 7}',), 'json')\n"
        "sys.argv = ['fuzz', '--seconds', '1', '--seed', '1', '--keep', sys.argv[2]]\n"
        "sys.exit(fuzz.main())\n"
    )
    argv = [sys.executable, "-c", code, str(Path(__file__).parent), str(tmp_path)]
    done = run_program(argv)
    assert done.returncode == 1 and "ZeroDivisionError" in done.stdout, done.stdout + done.stderr
    assert b"7" in next(tmp_path.glob("bad-*")).read_bytes()
