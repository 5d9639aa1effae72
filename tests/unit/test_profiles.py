"""The profiles: strict reading, exact writing, overlays, the cache, and what the shipped tables hold."""

import json
import shutil

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from provision import profiles
from provision.cli import exit_codes
from provision.errors import DataError
from provision.profiles.tables import FILES, KINDS, Table
from provision.profiles.yaml_files import difference, dump, read_file, replaced

SHIPPED = profiles.directory()


@pytest.fixture(scope="module")
def known():
    return profiles.load()


@pytest.fixture
def folder(tmp_path):
    """A copy of the shipped profiles that a test may spoil."""
    return shutil.copytree(SHIPPED, tmp_path / "profiles")


@pytest.fixture
def ours(folder, monkeypatch):
    """The copy, standing for the profiles that came with gpuenv."""
    monkeypatch.setattr(profiles, "directory", lambda: folder)
    return folder


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


# --- reading and writing -------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
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


# --- overlays ------------------------------------------------------------------------------


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


# --- the cache -----------------------------------------------------------------------------


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


def test_the_cache_is_what_is_read(tmp_path, mine):
    cache = tmp_path / "cache"
    profiles.load(mine, cache_dir=cache)
    (kept,) = cache.iterdir()
    plain = json.loads(kept.read_text())
    plain["builds"] = plain["builds"][:1]
    kept.write_text(json.dumps(plain))
    assert len(profiles.load(mine, cache_dir=cache).builds) == 1


@pytest.mark.parametrize("spoiled", ["", "{", "[]", '{"builds": []}', '{"builds": [[1]]}', "null"])
def test_a_broken_cache_is_written_anew(tmp_path, mine, spoiled):
    cache = tmp_path / "cache"
    known = profiles.load(mine, cache_dir=cache)
    (kept,) = cache.iterdir()
    whole = kept.read_bytes()
    kept.write_text(spoiled)
    assert profiles.load(mine, cache_dir=cache) == known
    assert kept.read_bytes() == whole


def test_changed_files_are_parsed_again(tmp_path, ours):
    cache = tmp_path / "cache"
    profiles.load(cache_dir=cache)
    path = ours / "gpus.yaml"
    path.write_text(path.read_text().replace("Volta", "Alta"))
    assert any(g.generation == "Alta" for g in profiles.load(cache_dir=cache).gpus)


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, mine):
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert profiles.load(mine, cache_dir=blocked) == profiles.load(mine)


# --- parsed when gpuenv is built -----------------------------------------------------------


@pytest.fixture
def package(tmp_path, ours, monkeypatch):
    """A copy of what a build parses with."""
    whole = tmp_path / "provision"
    for part in ("profiles", "model"):
        shutil.copytree(profiles._PACKAGE / part, whole / part)
    monkeypatch.setattr(profiles, "_PACKAGE", whole)
    return whole


def test_tables_parsed_at_build_time_are_read_and_no_cache_is_written(tmp_path, package, known):
    stale = package / "profiles-0.json"
    stale.write_text("{}")
    profiles.prepare()
    (made,) = package.glob("profiles-*.json")
    assert not stale.exists() and made.stat().st_mode & 0o777 == 0o644
    assert profiles.load(cache_dir=tmp_path / "cache") == known
    assert not (tmp_path / "cache").exists()
    plain = json.loads(made.read_text())
    made.write_text(json.dumps(plain | {"builds": plain["builds"][:1], "cudnn": plain["cudnn"][:2]}))
    assert len(profiles.load().builds) == 1 and len(profiles.load_parts(["cudnn"]).cudnn) == 2
    made.write_text("{")
    assert profiles.load() == known


@pytest.mark.parametrize("changed", [
    "profiles/yaml_files.py", "profiles/tables.py", "model/catalog.py", "model/failure_catalog.py",
    "model/package_catalog.py", "model/prebuilt_wheels.py",
])  # fmt: skip
def test_other_code_parses_again(package, known, changed):
    profiles.prepare()
    (made,) = package.glob("profiles-*.json")
    made.write_text(json.dumps(json.loads(made.read_text()) | {"builds": []}))
    assert profiles.load().builds == ()
    path = package / changed
    path.write_text(path.read_text() + "\n")
    assert profiles.load() == known


# --- bringing tables up to date ------------------------------------------------------------


def test_replaced_keeps_hand_tables_and_the_date_of_what_did_not_change():
    tables, _ = read_file(SHIPPED / "torch.yaml")
    measured = next(t for t in tables if t.head["kept"] == "measured")
    head = {k: v for k, v in measured.head.items() if k != "kept"} | {"read": "2099-01-01"}
    assert dump(replaced(tables, measured.rows, head)) == (SHIPPED / "torch.yaml").read_text()
    fewer = replaced(tables, measured.rows[1:], head)
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
    path.write_text(dump(replaced(tables, old, head)))
    assert not {b.version for b in profiles.load().builds if b.framework == name and b.index == "pypi"} & set(
        newest
    )
    fresh = difference(read_file(path)[0], measured.rows, head)
    assert {r["version"] for r in fresh.rows} == set(newest)
    mine = overlay(tmp_path, f"{name}.yaml", dump([fresh]))
    assert set(profiles.load([mine]).builds) == set(known.builds)


def test_known_rows_show_no_difference():
    tables, _ = read_file(SHIPPED / "jax.yaml")
    assert difference(tables, tables[0].rows, {"table": "builds", "framework": "jax"}) is None


# --- what the shipped tables hold ------------------------------------------------------------


def of(known, framework, **wanted):
    return [
        b
        for b in known.builds
        if b.framework == framework and all(getattr(b, k) == v for k, v in wanted.items())
    ]


def test_every_kind_of_row_is_there(known):
    for kind in KINDS.values():
        assert not kind.into or getattr(known, kind.into), kind.into


@pytest.mark.parametrize(
    ("framework", "oldest"), [("torch", "1.12.0"), ("tensorflow", "2.4.0"), ("jax", "0.4.18")]
)
def test_coverage_begins_where_it_should(known, framework, oldest):
    versions = {b.version for b in of(known, framework)}
    assert min(versions, key=Version) == oldest
    assert {b.platform for b in of(known, framework)} == {"linux-x86_64", "linux-aarch64", "windows-x86_64"}
    assert {b.platform for b in of(known, framework, cuda=None)} >= {"linux-aarch64", "windows-x86_64"}


def test_a_cuda_build_has_kernels_and_a_cpu_build_has_none(known):
    for b in known.builds:
        assert bool(b.kernels) == bool(b.cuda), b
        assert b.cuda is None or b.cudnn, b
        assert (b.glibc is None) == b.platform.startswith("windows"), b
        assert b.python, b


def test_measured_cuda_rows_say_which_wheel_was_read(known):
    for b in known.builds:
        if b.index == "pypi" and b.cuda:
            assert b.sha256, b
            assert int(b.bytes) > 65_000, b
    assert all(c.sha256 for c in known.cudnn)


def test_every_cudnn_pin_that_a_wheel_takes_from_the_index_is_in_the_cudnn_table(known):
    have = {(c.package, c.version, c.platform) for c in known.cudnn}
    for b in known.builds:
        for text in b.requires:
            r = Requirement(text)
            pin = [s.version for s in r.specifier if s.operator == "=="]
            if r.name.startswith("nvidia-cudnn-cu") and pin:
                assert (r.name, pin[0], b.platform) in have, b


def test_every_cudnn_range_has_a_release_that_fits_or_says_that_none_does(known):
    for b in known.builds:
        if b.cuda and b.index == "pypi" and not b.cuda.startswith("10"):
            fits = [
                c
                for c in known.cudnn
                if c.cuda == b.cuda.split(".")[0]
                and c.platform == b.platform
                and SpecifierSet(b.cudnn).contains(c.version)
            ]
            assert fits or b.unresolvable, b


def test_the_cudnn_of_a_build_is_that_of_its_requirement(known):
    for b in known.builds:
        pins = [Requirement(t).specifier for t in b.requires if t.startswith("nvidia-cudnn-cu")]
        assert not pins or SpecifierSet(b.cudnn) == pins[0], b


@pytest.mark.parametrize(
    ("package", "version", "lost", "kept"),
    [
        ("nvidia-cudnn-cu11", "8.8.0.121", "3.5", "5.0"),
        ("nvidia-cudnn-cu12", "9.11.0.98", "7.0", "7.5"),
        ("nvidia-cudnn-cu13", "9.12.0.46", "7.0", "7.5"),
    ],
)
def test_cudnn_releases_lack_the_gpu_generations_that_they_dropped(known, package, version, lost, kept):
    for c in known.cudnn:
        if (c.package, c.version) == (package, version):
            assert lost not in c.kernels
            assert kept in c.kernels


def test_the_known_incomplete_cudnn_wheel_is_seen_in_its_libraries(known):
    by_version = {
        c.version: c for c in known.cudnn if c.package == "nvidia-cudnn-cu13" and c.platform == "linux-x86_64"
    }
    engine = "libcudnn_engines_tensor_ir.so.9"
    assert engine not in by_version["9.20.0.48"].libraries
    assert engine in by_version["9.21.0.82"].libraries
    (bad,) = [k for k in known.known_bad if k.version == "9.20.0.48"]
    assert (bad.package, bad.effect) == ("nvidia-cudnn-cu13", "avoid")
    assert all(k.source.startswith("https://github.com/") for k in known.known_bad)


@pytest.mark.parametrize(
    ("version", "cuda", "kernels"),
    [
        ("2.7.1", "12.6", "5.0 6.0 7.0 7.5 8.0 8.6 9.0"),
        ("2.10.0", "12.8", "7.0 7.5 8.0 8.6 9.0 10.0 12.0"),
        ("2.11.0", "13.0", "7.5 8.0 8.6 9.0 10.0 12.0"),
    ],
)
def test_torch_of_the_default_index_has_its_known_cuda_and_kernels(known, version, cuda, kernels):
    (b,) = of(known, "torch", version=version, platform="linux-x86_64", index="pypi")
    assert (b.cuda, " ".join(b.kernels)) == (cuda, kernels)


def test_where_both_indexes_have_a_build_they_agree(known):
    default = {(b.version, b.cuda, b.platform): b for b in of(known, "torch", index="pypi") if b.cuda}
    both = [
        (b, default[k])
        for b in of(known, "torch", index="pytorch")
        if (k := (b.version, b.cuda, b.platform)) in default
    ]
    assert len(both) > 30
    for theirs, ours in both:
        assert theirs.kernels == ours.kernels, theirs
        assert theirs.cudnn == ours.cudnn, theirs


def test_torch_names_torchaudio_only_as_long_as_that_was_released(known):
    (b,) = of(known, "torch", version="2.10.0", platform="linux-x86_64", index="pypi")
    assert b.companions == ("torchvision==0.25.0", "torchaudio==2.10.0")
    (b,) = of(known, "torch", version="2.12.0", platform="linux-x86_64", index="pypi")
    assert b.companions == ("torchvision==0.27.0",)


def test_the_cuda_toolkit_meta_package_is_written_out(known):
    (b,) = of(known, "torch", version="2.15.0", platform="linux-x86_64", index="pypi")
    names = {Requirement(r).name for r in b.requires}
    assert {"cuda-toolkit", "nvidia-cublas", "nvidia-cuda-nvrtc", "nvidia-nccl-cu13", "triton"} <= names


def test_native_windows_gpu_ends_with_tensorflow_2_10(known):
    windows = of(known, "tensorflow", platform="windows-x86_64")
    assert max(Version(b.version) for b in windows if b.cuda).release[:2] == (2, 10)


def test_pythons_that_tensorflow_cannot_resolve_are_listed(known):
    told = {
        b.version: b.unresolvable for b in of(known, "tensorflow", platform="linux-x86_64") if b.unresolvable
    }
    assert told["2.14.1"] == ("3.11: tensorrt==8.5.3.1 has no wheel for it",)
    assert [u.split(":")[0] for u in told["2.15.0"]] == ["3.9", "3.10", "3.11"]
    assert "2.15.1" not in told


def test_jax_names_its_plugin_and_what_it_was_built_with(known):
    (b,) = of(known, "jax", version="0.6.2", platform="linux-x86_64", cuda="12.8")
    assert b.requires[:3] == ("jaxlib==0.6.2", "jax-cuda12-plugin==0.6.2", "jax-cuda12-pjrt==0.6.2")
    assert SpecifierSet(b.cudnn) == SpecifierSet(">=9.8,<10.0")
    assert "12.0+PTX" in b.kernels
    assert all(b.yanked for b in of(known, "jax", version="0.4.32"))


def test_jax_of_early_2024_is_held_to_the_cudnn_it_loads(known):
    for b in of(known, "jax", version="0.4.25"):
        assert b.cuda is None or not SpecifierSet(b.cudnn).contains("9.1.0.70")


def test_drivers_and_gpus_agree_with_each_other(known):
    releases = {c.cuda for c in known.cuda}
    branches = {int(b.branch) for b in known.branches}
    for g in known.gpus:
        assert g.last_cuda is None or g.last_cuda in releases, g
        assert g.last_driver is None or int(g.last_driver) in branches, g
    floors = {m.major: m for m in known.majors}
    assert (floors["12"].linux, floors["12"].windows) == ("525.60.13", "528.33")
    assert {g.capability for g in known.gpus if g.tegra} >= {"5.3", "6.2", "7.2", "8.7", "10.1", "11.0"}


def test_every_build_has_a_driver_floor(known):
    natives, majors = {c.cuda for c in known.cuda}, {m.major for m in known.majors}
    for b in known.builds:
        assert b.cuda is None or b.cuda in natives, b
        assert b.cuda is None or b.cuda == "10.2" or b.cuda.split(".")[0] in majors, b


def test_a_board_has_one_capability(known):
    boards = [name.lower() for g in known.gpus for name in g.boards]
    assert len(boards) == len(set(boards))
