"""The profiles: strict reading, exact writing, overlays, the cache, and what the shipped tables hold."""
# ruff: noqa: F811  # fixtures are imported by their names

import json
import sys

import pytest
from packaging.version import Version
from profile_folders import SHIPPED, few, ours, package  # noqa: F401  # fixtures
from rows import rows

from provision import profiles
from provision.cli import exit_codes
from provision.errors import DataError
from provision.profiles.tables import FILES, Table, dump, find_difference, read_file

sys.path.insert(0, str(SHIPPED.parent / "scripts"))
from update_profiles import replace_table  # scripts/ is no package


@pytest.fixture(autouse=True)
def _shipped(few, monkeypatch):
    monkeypatch.setattr(profiles, "directory", lambda: few)


@pytest.fixture
def known():
    return profiles.load()


def overlay(tmp_path, name, text):
    place = tmp_path / "overlay"
    place.mkdir(exist_ok=True)
    (place / name).write_text(text)
    return place


def builds(*rows, framework="torch"):
    head = {"table": "builds", "framework": framework, "source": "a test", "read": "2026-11-20"}
    return dump([Table(head=head, rows=rows)])


ROW = {"version": "99.0", "cuda": "13.0", "platform": "linux-x86_64", "index": "pypi", "python": "3.12"}


def problems_of(tmp_path, name, text):
    with pytest.raises(DataError) as caught:
        profiles.load([overlay(tmp_path, name, text)])
    assert exit_codes.get_error_code(caught.value) == 3
    return caught.value.problems


@rows("name", FILES)
def test_a_shipped_file_is_what_dump_writes_of_it(name):
    tables, problems = read_file(SHIPPED / name)
    assert problems == []
    assert dump(tables) == (SHIPPED / name).read_text()


def test_dump_and_read_keep_text_that_yaml_would_take_for_something_else(tmp_path):
    odd = 'quote " backslash \\ colon: # hash é 中 no null 1e3 {brace} [bracket]'
    row = ROW | {"note": odd, "unresolvable": [odd, "no"], "requires": []}
    path = tmp_path / "torch.yaml"
    path.write_text(builds(row))
    tables, problems = read_file(path)
    assert problems == []
    assert tables[0].rows == (row,)
    assert dump(tables) == path.read_text()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("12.10", "12.1"),
        ("yes", "True"),
        ("null", "None"),
        ("~", "None"),
        ("2026-11-20", "a date"),
        ("abc", "text"),
    ],
)
def test_a_scalar_without_quotes_is_refused(tmp_path, written, meant):
    text = builds(ROW).replace('cuda: "13.0"', f"cuda: {written}")
    (problem,) = [p for p in problems_of(tmp_path, "torch.yaml", text) if "quoted" in p]
    assert problem.endswith(f"torch.yaml:6: row 1, cuda: {written!r} must be a quoted string"), meant


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("unknown key", {"kernel": "9.0"}, "row 1, kernel: unknown key"),
        ("missing", {"python": ""}, "row 1, python: missing"),
        ("list for text", {"cuda": ["13.0"]}, "row 1, cuda: expected a quoted string"),
        ("text for list", {"requires": "x"}, "row 1, requires: expected a list of quoted strings"),
        ("flag", {"yanked": "no"}, "row 1, yanked: expected \"yes\" or no such key, got 'no'"),
        ("platform", {"platform": "linux"}, "row 1, platform: 'linux' is not a platform"),
        ("capability", {"kernels": "9.0 90"}, "row 1, kernels: '90' is not a kernels"),
        ("specifier", {"cudnn": "9.1"}, "row 1, cudnn: '9.1' is not a PEP 440 specifier"),
        ("requirement", {"requires": ["a b"]}, "row 1, requires: 'a b' is not a PEP 508 requirement"),
        ("version", {"version": "two"}, "row 1, version: 'two' is not a version"),
        ("hash", {"sha256": "abc"}, "row 1, sha256: 'abc' is not a sha256"),
    ],
)
def test_a_mistake_is_named_with_file_row_and_key(tmp_path, name, change, told):
    text = builds(ROW | change)
    if name == "unknown key":  # dump leaves out what no class has
        text = builds(ROW).replace('python: "3.12"', 'python: "3.12", kernel: "9.0"')
    problems = problems_of(tmp_path, "torch.yaml", text)
    assert [p for p in problems if p.endswith(f"torch.yaml:6: {told}")], problems


def test_all_mistakes_of_all_files_are_reported_at_once(tmp_path):
    place = overlay(tmp_path, "torch.yaml", builds(ROW | {"platform": "mac"}, ROW | {"platform": "mac"}))
    overlay(tmp_path, "gpus.yaml", "- table: gpus\n")
    overlay(tmp_path, "tensorflow.yaml", "a: {")
    overlay(tmp_path, "jax.yaml", builds(ROW, framework="torchvision"))
    overlay(tmp_path, "torches.yaml", "")
    overlay(tmp_path, "drivers.yaml", '- {table: "known_bad", source: "s", read: "2026-01-01", rows: []}\n')
    with pytest.raises(DataError) as caught:
        profiles.load([place])
    text = "\n".join(caught.value.problems)
    assert f"{len(caught.value.problems)} mistakes" in caught.value.message
    for told in (
        "torch.yaml:6: row 1, platform: 'mac'",
        "torch.yaml:7: row 2, platform: 'mac'",
        "torch.yaml:7: row 2: the same framework, version, cuda, platform, index as row 1",
        "gpus.yaml:1: table: 'gpus' must be a quoted string",
        "gpus.yaml: gpus: source: missing",
        "tensorflow.yaml:2: not YAML",
        "jax.yaml: framework: 'torchvision' is not one of torch, tensorflow, jax",
        "torches.yaml: unknown file",
        "drivers.yaml: table: 'known_bad' does not belong in this file",
    ):
        assert told in text, told


def test_a_duplicate_key_in_a_row_is_reported(tmp_path):
    text = builds(ROW).replace('cuda: "13.0"', 'cuda: "13.0", cuda: "12.0"')
    assert [p for p in problems_of(tmp_path, "torch.yaml", text) if "duplicate key 'cuda'" in p]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("  rows:\n", '  rows: "none"\n', "torch.yaml:5: rows: expected a list of rows"),
        ('"a test"', '["a", "test"]', "torch.yaml:3: source: expected a quoted string"),
        ('"a test"', '"a test"\n  source: "b"', "torch.yaml:4: duplicate key 'source'"),
        ('"a test"', '"a test"\n  author: "b"', "torch.yaml: builds: unknown key 'author'"),
        ("2026-11-20", "today", "torch.yaml: builds: read: 'today' is not a date like 2026-11-20"),
        ("  - {", '  - "row"\n  - {', 'torch.yaml:6: row 1: expected {key: "value", ...}'),
    ],
)
def test_a_mistake_in_the_head_of_a_table_is_reported(tmp_path, before, after, told):
    text = builds(ROW).replace(before, after, 1)
    if "none" in after:
        text = text[: text.index("  - {")]
    assert [p for p in problems_of(tmp_path, "torch.yaml", text) if p.endswith(told)]


@pytest.mark.parametrize("text", ["", "{}", '"text"', "- 1\n", "- []\n"])
def test_a_file_that_is_no_list_of_tables_is_reported(tmp_path, text):
    assert "torch.yaml" in problems_of(tmp_path, "torch.yaml", text)[0]


def test_the_same_row_in_two_tables_of_one_folder_is_reported(ours):
    path = ours / "torch.yaml"
    tables, _ = read_file(path)
    path.write_text(dump([*tables, Table(head=tables[0].head, rows=tables[0].rows[:1])]))
    with pytest.raises(DataError) as caught:
        profiles.load()
    assert "is also in torch.yaml" in caught.value.problems[0]


def test_a_missing_shipped_file_is_reported(ours):
    (ours / "gpus.yaml").unlink()
    with pytest.raises(DataError) as caught:
        profiles.load()
    assert caught.value.problems == (f"gpus.yaml: missing in {ours}",)


def test_a_missing_folder_is_reported(tmp_path):
    with pytest.raises(DataError, match="nowhere cannot be read"):
        profiles.load([tmp_path / "nowhere"])


def test_an_overlay_adds_rows_and_replaces_rows_of_equal_key(tmp_path, known):
    old = next(b for b in known.builds if b.framework == "torch" and b.cuda and b.index == "pypi")
    mine = {
        "version": old.version,
        "cuda": old.cuda,
        "platform": old.platform,
        "index": "pypi",
        "python": "3.14",
    }
    after = profiles.load([overlay(tmp_path, "torch.yaml", builds(ROW, mine))])
    assert len(after.builds) == len(known.builds) + 1
    (replaced,) = [
        b
        for b in after.builds
        if (b.framework, b.version, b.cuda, b.platform, b.index)
        == ("torch", old.version, old.cuda, old.platform, old.index)
    ]
    assert replaced.python == ("3.14",)
    assert replaced.kernels == ()
    assert next(b for b in after.builds if b.version == "99.0").cuda == "13.0"


def test_the_last_overlay_wins(tmp_path):
    first = overlay(tmp_path, "torch.yaml", builds(ROW | {"glibc": "2.28"}))
    second = tmp_path / "second"
    second.mkdir()
    (second / "torch.yaml").write_text(builds(ROW | {"glibc": "2.31"}))
    glibc = {b.glibc for b in profiles.load([first, second]).builds if b.version == "99.0"}
    assert glibc == {"2.31"}


@pytest.fixture
def mine(tmp_path):
    """An overlay: profiles that did not come parsed with gpuenv."""
    return [overlay(tmp_path, "torch.yaml", builds(ROW))]


def test_the_cache_gives_the_same_and_is_one_file(tmp_path, mine):
    cache = tmp_path / "cache"
    known = profiles.load(mine)
    assert profiles.load(mine, cache_dir=cache) == known
    (kept,) = cache.iterdir()
    assert profiles.load(mine, cache_dir=cache) == known
    assert [p.name for p in cache.iterdir()] == [kept.name]


def _cut(cache, **counts):
    """Leave only the first rows of some tables in a file of parsed profiles."""
    kept = dict(line.split(" ", 1) for line in cache.read_text().splitlines()[1:])
    kept |= {name: json.dumps(json.loads(kept[name])[:count]) for name, count in counts.items()}
    profiles._write_cache(cache, kept)


def test_the_cache_is_what_is_read(tmp_path, mine):
    cache = tmp_path / "cache"
    profiles.load(mine, cache_dir=cache)
    (kept,) = cache.iterdir()
    _cut(kept, builds=1)
    assert len(profiles.load(mine, cache_dir=cache).builds) == 1


@pytest.mark.parametrize("spoiled", ["", "{", "[]", "builds []", "builds [[1]]", "builds", "builds null"])
def test_a_broken_cache_is_written_anew(tmp_path, mine, spoiled):
    cache = tmp_path / "cache"
    known = profiles.load(mine, cache_dir=cache)
    (kept,) = cache.iterdir()
    whole = kept.read_bytes()
    kept.write_text(spoiled)
    assert profiles.load(mine, cache_dir=cache) == known
    assert kept.read_bytes() == whole


def load_in_another_run(*args, **options):
    """One run reads the files of gpuenv once."""
    profiles._digest_own.cache_clear()
    return profiles.load(*args, **options)


def test_changed_files_are_parsed_again(tmp_path, ours):
    cache = tmp_path / "cache"
    load_in_another_run(cache_dir=cache)
    path = ours / "gpus.yaml"
    path.write_text(path.read_text().replace("Volta", "Alta"))
    assert any(g.generation == "Alta" for g in load_in_another_run(cache_dir=cache).gpus)


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, mine):
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert profiles.load(mine, cache_dir=blocked) == profiles.load(mine)


def test_tables_parsed_at_build_time_are_read_and_no_cache_is_written(tmp_path, package, known):
    stale = package / "profiles-0.rows"
    stale.write_text("{}")
    profiles.prepare()
    (made,) = package.glob("profiles-*.rows")
    assert not stale.exists() and made.stat().st_mode & 0o777 == 0o644
    assert profiles.load(cache_dir=tmp_path / "cache") == known
    assert not (tmp_path / "cache").exists()
    _cut(made, builds=1, cudnn=2)
    assert len(profiles.load().builds) == 1 and len(profiles.load().cudnn) == 2
    made.write_text("{")
    assert profiles.load() == known


def test_other_code_parses_again(package, known):
    profiles.prepare()
    (made,) = package.glob("profiles-*.rows")
    _cut(made, builds=0)
    assert load_in_another_run().builds == ()
    code = [*(package / "profiles").glob("*.py")]
    code += [package / "model" / "catalog.py"]
    for path in code:
        text = path.read_text()
        path.write_text(text + "\n")
        assert load_in_another_run() == known, path
        path.write_text(text)


def test_replaced_keeps_hand_tables_and_the_date_of_what_did_not_change():
    tables, _ = read_file(SHIPPED / "torch.yaml")
    measured = next(t for t in tables if t.head["kept"] == "measured")
    head = {k: v for k, v in measured.head.items() if k != "kept"} | {"read": "2099-01-01"}
    assert dump(replace_table(tables, measured.rows, head)) == (SHIPPED / "torch.yaml").read_text()
    fewer = replace_table(tables, measured.rows[1:], head)
    assert fewer[0].head["read"] == "2099-01-01"
    assert [t.rows for t in fewer[1:]] == [t.rows for t in tables if t is not measured]


@pytest.mark.parametrize("name", ["torch", "tensorflow", "jax"])
def test_removed_releases_come_back_through_an_overlay_equal(name, ours, tmp_path, known):
    path = ours / f"{name}.yaml"
    tables, _ = read_file(path)
    measured = next(t for t in tables if t.head["kept"] == "measured")
    newest = sorted({r["version"] for r in measured.rows}, key=Version)[-3:]
    old = [r for r in measured.rows if r["version"] not in newest]
    head = {k: v for k, v in measured.head.items() if k != "kept"}
    path.write_text(dump(replace_table(tables, old, head)))
    assert not {b.version for b in profiles.load().builds if b.framework == name and b.index == "pypi"} & set(
        newest
    )
    fresh = find_difference(read_file(path)[0], measured.rows, head)
    assert {r["version"] for r in fresh.rows} == set(newest)
    mine = overlay(tmp_path, f"{name}.yaml", dump([fresh]))
    assert set(profiles.load([mine]).builds) == set(known.builds)


def test_known_rows_show_no_difference():
    tables, _ = read_file(SHIPPED / "jax.yaml")
    assert find_difference(tables, tables[0].rows, {"table": "builds", "framework": "jax"}) is None
