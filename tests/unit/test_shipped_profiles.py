"""What the shipped profiles contain."""
# ruff: noqa: F811  # fixtures are imported by their names

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from profile_folders import known  # noqa: F401  # fixtures

from provision.profiles.tables import KINDS


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
    ("framework", "oldest"), [("torch", "1.6.0"), ("tensorflow", "2.4.0"), ("jax", "0.4.18")]
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
