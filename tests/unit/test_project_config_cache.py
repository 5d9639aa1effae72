"""The cache of a parsed project file, and its digest."""
# ruff: noqa: F811  # fixtures are imported by their names

import re
import subprocess
import sys

import pytest
from project_config import path  # noqa: F401  # fixtures

from provision.config import recall
from provision.config.options import Choices
from provision.config.project import (
    digest_files as digest_of,
    digest_inputs,
    is_same_inputs,
    read_cached_config,
)
from provision.errors import DataError


def test_the_second_read_needs_no_yaml(path, tmp_path):
    path.write_text('frameworks: [torch]\ntargets: {a: {driver: "550", gpus: ["9.0"]}}\n')
    cache = tmp_path / "cache"
    first = read_cached_config(path, cache)
    code = (
        "import sys; from pathlib import Path; from provision.config.project import read_cached_config\n"
        f"found = read_cached_config(Path({str(path)!r}), Path({str(cache)!r}))\n"
        "print(found.targets['a'].gpus, 'yaml' in sys.modules, 'packaging' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "('9.0',) False False\n"
    assert read_cached_config(path, None) == first
    for kept in cache.iterdir():
        kept.write_text('{"frameworks": 3')
    assert read_cached_config(path, cache) == first
    path.write_text("frameworks: [jax]\n")
    assert read_cached_config(path, cache).frameworks == ("jax",)
    path.write_text("python: 3.10\n")
    with pytest.raises(DataError, match="1 mistake"):
        read_cached_config(path, cache)


def test_a_cache_that_cannot_be_written_is_no_failure(path, tmp_path):
    path.write_text("frameworks: [torch]\n")
    (tmp_path / "file").touch()
    assert read_cached_config(path, tmp_path / "file").frameworks == ("torch",)


def test_comments_and_checks_do_not_change_what_is_asked_for(path):
    """A lock stays what the project asks for."""
    files, choices = [str(path)], Choices(framework=["torch"])
    path.write_text("frameworks: [torch]\n")
    before, exact = digest_of(files), digest_of(files, exact=True)
    held = digest_inputs(choices, files)
    path.write_text("# why\nframeworks:\n  - torch\nchecks:\n  - import: cv2\n")
    assert digest_of(files) == before and digest_of(files, exact=True) != exact
    assert is_same_inputs(held, choices, files)
    path.write_text("frameworks: [torch]\npackages: [numpy]\n")
    assert digest_of(files) != before and not is_same_inputs(held, choices, files)
    path.write_text("frameworks: [torch]\nchecks: [oh]\n")
    assert digest_of(files) == digest_of(files, exact=True)  # which is invalid
    path.write_text("frameworks: [torch]\n")
    named = {"choices": {}, "lock": None, "files": {"names": files, "digest": before}}
    for digest, expected in ((before, True), (exact, False)):
        assert recall.is_same({**named, "files": {"names": files, "digest": digest}}, named) is expected


def test_the_digest_is_of_names_and_bytes_wherever_the_checkout_lies(tmp_path):
    for place in ("a", "b/c"):
        (tmp_path / place / "sub").mkdir(parents=True)
        (tmp_path / place / "r.txt").write_text("numpy\n")
        (tmp_path / place / "sub" / "s.txt").write_text("six\n")

    def digest(place, *names):
        return digest_of([str(tmp_path / place / n) for n in names])

    first = digest("a", "r.txt", "sub/s.txt")
    assert re.fullmatch("[0-9a-f]{64}", first)
    assert digest("b/c", "r.txt", "sub/s.txt") == first
    assert digest("a", "sub/s.txt", "r.txt") != first
    assert digest("a", "r.txt") != first
    missing = digest("a", "r.txt", "sub/gone.txt")
    assert missing not in (first, digest("a", "r.txt", "sub/lost.txt"))
    (tmp_path / "a" / "sub" / "s.txt").write_text("six\n\n")
    assert digest("a", "r.txt", "sub/s.txt") != first
    assert digest("a", "sub") and digest_of([])
