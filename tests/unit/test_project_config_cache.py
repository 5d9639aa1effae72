"""The cache of a parsed project file, and its digest."""
# ruff: noqa: F811  # fixtures are imported by their names

import dataclasses
import re
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from programs import run_program
from project_config import path  # noqa: F401  # fixtures

from provision.config import grants, project, recall, target, write
from provision.config.file import parse_config
from provision.config.options import Choices
from provision.config.project import (
    digest_files as digest_of,
    digest_inputs,
    is_same_inputs,
    read_cached_config,
)
from provision.detect import detect
from provision.environment import record
from provision.errors import BuildError, DataError, ResolveError, UsageError
from provision.model import Finding, PackageSources, ProjectRequirements, Target, drop_event
from provision.profiles import load
from provision.requirements.folder import FolderFindings

PYTORCH = "https://download.pytorch.org/whl/cu126"


def test_the_second_read_needs_no_yaml(path, tmp_path):
    path.write_text('frameworks: [torch]\ntargets: {a: {driver: "550", gpus: ["9.0"]}}\n')
    cache = tmp_path / "cache"
    first = read_cached_config(path, cache)
    code = (
        "import sys; from pathlib import Path; from provision.config.project import read_cached_config\n"
        f"found = read_cached_config(Path({str(path)!r}), Path({str(cache)!r}))\n"
        "print(found.targets['a'].gpus, 'yaml' in sys.modules, 'packaging' in sys.modules)"
    )
    done = run_program([sys.executable, "-c", code], check=True)
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


def test_a_record_of_another_version_is_refused_unless_it_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    env = tmp_path / "env"
    (env / ".gpuenv").mkdir(parents=True)
    for given in ({"no_such_option": 1}, {}):
        record.write_vouched(env, "request.json", {"choices": {}, "given": given})
        for recreate in (False, True):
            with (
                pytest.raises(BuildError, match="unknown option no_such_option")
                if given and not recreate
                else nullcontext()
            ):
                found = recall.recall_for_create(
                    env, Choices(cuda="12"), drop_event, lock=False, recreate=recreate
                )
                assert found.cuda == "12"


def test_a_target_has_its_own_manager():
    config = parse_config("gpuenv.yaml", b"targets: {node: {driver: '580.95.05', manager: conda}}\n")
    assert project._merge_target(Choices(), config, "node", Path("gpuenv.yaml")).manager == "conda"


@pytest.mark.parametrize(("index", "default"), [("https://h/simple", "https://h/simple"), (PYTORCH, None)])
def test_the_index_of_pytorch_is_no_default_index(index, default):
    """The plan decides which build comes from it."""
    requirements = ProjectRequirements(index_url=index, extra_index_urls=(PYTORCH, "https://extra/simple"))
    sources = project.merge_sources(PackageSources(), Choices(), requirements)
    assert (sources.default, sources.extra) == (default, ("https://extra/simple",))


@pytest.mark.parametrize(
    "text", ["grants: [", "grants: [A]", "other: {A: https://h}", "grants: {A: [nothing]}"]
)
def test_a_mistake_in_the_grants_is_named_with_its_line(tmp_path, monkeypatch, text):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "gpuenv").mkdir()
    (tmp_path / "gpuenv" / "config.yaml").write_text(f"# mine\n{text}\n")
    with pytest.raises(UsageError, match=r"config\.yaml line [23]"):
        grants._read_config()


def test_another_system_is_refused_with_the_way_to_plan_for_linux():
    here = Target(platform="macos-aarch64")
    with pytest.raises(UsageError, match="this machine is macos-aarch64"):
        target._make_target(Choices(), load(), here)
    machine = dataclasses.replace(detect(()), target=here)
    cause = Finding(cause="no_gpu_build_for_platform", title="macOS has no builds")
    for findings, message in (((), "no framework build is known"), ((cause,), "macOS has no builds")):
        with pytest.raises(ResolveError, match=message):
            target._refuse_other_systems(dataclasses.replace(machine, findings=findings))


def test_files_of_a_project_are_read_or_left_alone(tmp_path, monkeypatch):
    (tmp_path / "more.mk").write_text("all:\n")
    text = f"include {'x' * 300} more.mk missing.mk\n"
    assert write._read_includes(tmp_path, text) == ["all:\n"]
    monkeypatch.setattr(write, "_MOST_BYTES", 4)
    with pytest.raises(UsageError, match="too large to edit"):
        write._read_bytes(tmp_path / "more.mk")
    text = write.render_config(FolderFindings(find_links=["wheels"]), [("jax", "named")])
    assert parse_config("gpuenv.yaml", text.encode()).find_links == ("wheels",)
