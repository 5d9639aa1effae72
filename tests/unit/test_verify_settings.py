"""The culprit search: as a search, over suspects, and on real processes that map real libraries."""

from pathlib import Path

import pytest
from framework_envs import venv, write_jax
from hypothesis import given, strategies as st
from verified import verify

from driver_stub import build_runtime, scenario, spec
from provision.verify import Options, locate_environment
from provision.verify.settings import Suspect, list_suspects, remove_suspects, search_guilty


@given(st.integers(1, 12), st.data())
def test_search_finds_exactly_the_guilty(many, data):
    found = [Suspect(variable=f"V{i}", part=str(i)) for i in range(many)]
    guilty = data.draw(st.sets(st.sampled_from(range(many)), min_size=1))
    environ = {s.variable: s.part for s in found}
    runs = []

    def cured(left):
        runs.append(left)
        return not any(f"V{i}" in left for i in guilty)

    assert search_guilty(environ, found, cured) == tuple(found[i] for i in sorted(guilty))
    if len(guilty) == 1:
        assert len(runs) <= 2 * many.bit_length() + 1


def test_a_search_among_innocent_settings_takes_one_run():
    found = [Suspect(variable=f"V{i}", part="") for i in range(9)]
    runs = []
    assert search_guilty({}, found, lambda left: bool(runs.append(left))) == ()
    assert len(runs) == 1


def test_suspects_are_entries_with_a_library_that_the_environment_brings(tmp_path):
    for folder, names in {
        "innocent": ["libfoo.so.1"],
        "guilty": ["libcudnn.so.9"],
        "driver": ["libcudnn.so.9", "libcuda.so.1"],
        "stubs": ["libcuda.so.1"],
        "other": ["libnvrtc.so.13"],
    }.items():
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).touch()
    path = [str(tmp_path / f) for f in ("innocent", "guilty", "driver", "stubs", "other")]
    environ = {
        "LD_LIBRARY_PATH": ":".join(["", *path]),
        "LD_PRELOAD": "/a.so:/b.so",
        "PYTHONPATH": "/p",
        "PYTHONHOME": "/h",
        "TF_CPP_MIN_LOG_LEVEL": "1",
        "TF_VAR_region": "x",
        "XLA_FLAGS": "--x",
        "CUDA_HOME": "/usr/local/cuda",
        "CUDA_VERSION": "13.0.1",
        "CUDA_VISIBLE_DEVICES": "0",
    }
    found = list_suspects(environ, ["/env/libcudnn.so.9"], str(tmp_path), "jax")
    assert [(s.variable, Path(s.part).name) for s in found] == [
        ("LD_LIBRARY_PATH", "guilty"),
        ("LD_LIBRARY_PATH", "stubs"),
        ("LD_PRELOAD", "a.so"),
        ("LD_PRELOAD", "b.so"),
        ("PYTHONPATH", "p"),
        ("PYTHONHOME", "h"),
        ("user site", tmp_path.name),
        ("CUDA_VISIBLE_DEVICES", "0"),
        ("XLA_FLAGS", "--x"),
    ]
    left = remove_suspects(environ, [found[0], found[2], found[4], found[5], found[6]])
    assert left["LD_LIBRARY_PATH"].split(":") == ["", path[0], *path[2:]]
    assert left["LD_PRELOAD"] == "/b.so"
    assert "PYTHONPATH" not in left and "PYTHONHOME" not in left
    assert left["PYTHONNOUSERSITE"] == "1"
    assert [s.variable for s in list_suspects(environ, [], None, None)] == [
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "LD_PRELOAD",
        "CUDA_VISIBLE_DEVICES",
    ]


# --- on a framework whose process also opens a libcudnn, as GPU builds do -------------------

LOADER = """
import ctypes, os
own = os.path.join(os.path.dirname(__file__), "nvidia", "cudnn", "lib", "libcudnn.so.9")
{how}
"""
BY_NAME = """
try:
    ctypes.CDLL("libcudnn.so.9")
except OSError:
    ctypes.CDLL(own)
"""


@pytest.fixture
def jax_with_cudnn(tmp_path, monkeypatch):
    """JAX in an environment that brings a libcudnn; `how` is the way in which it opens it."""
    for name in ("PYTHONPATH", "LD_PRELOAD", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GPUENV_STUB", scenario(tmp_path, spec(cudnn=91400))["GPUENV_STUB"])

    def make(how):
        env, site = venv(tmp_path / "env")
        write_jax(site)
        build_runtime(site / "nvidia" / "cudnn" / "lib", "libcudnn.so.9")
        (site / "opens_cudnn.py").write_text(LOADER.format(how=how))
        (site / "opens_cudnn.pth").write_text("import opens_cudnn\n")
        return env

    return make


def judge(env):
    return verify(locate_environment(env), Options(device="cpu", timeout=120), emit=lambda _: None)


def test_the_environments_own_cudnn_passes(jax_with_cudnn):
    verdict = judge(jax_with_cudnn("ctypes.CDLL(own)"))
    assert verdict.verdict == "cpu"
    (library,) = [x for x in verdict.frameworks[0].libraries if x.soname == "libcudnn.so.9"]
    assert library.inside
    assert library.version == "9.14.0"
    assert verdict.stages[-1].status == "pass"


@pytest.mark.slow
def test_one_guilty_entry_among_five_innocent_ones_is_found(jax_with_cudnn, tmp_path, monkeypatch):
    env = jax_with_cudnn(BY_NAME)
    guilty = build_runtime(tmp_path / "guilty", "libcudnn.so.9")
    innocent = [tmp_path / f"innocent {i}" for i in range(5)]
    for folder in innocent:
        folder.mkdir()
        (folder / "libfoo.so.1").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", ":".join(map(str, [*innocent[:3], guilty.parent, *innocent[3:]])))
    verdict = judge(env)
    assert verdict.verdict == "fails"
    assert verdict.stages[-1].stage == "loaded"
    assert verdict.stages[-1].status == "fail"
    (finding,) = verdict.findings
    assert (finding.cause, finding.confidence) == ("cudnn_shadowed_by_other_copy", "certain")
    assert finding.title.startswith(f"{guilty.parent} in LD_LIBRARY_PATH loaded {guilty}. ")
    assert verdict.hint == f"Remove {guilty.parent} from LD_LIBRARY_PATH."


@pytest.mark.slow
def test_two_guilty_variables_are_both_named(jax_with_cudnn, tmp_path, monkeypatch):
    env = jax_with_cudnn(BY_NAME)
    one = build_runtime(tmp_path / "one", "libcudnn.so.9")
    two = build_runtime(tmp_path / "two", "libcudnn.so.9")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(one.parent))
    monkeypatch.setenv("LD_PRELOAD", str(two))
    verdict = judge(env)
    assert verdict.findings[0].confidence == "certain"
    assert f"{one.parent} in LD_LIBRARY_PATH and {two} in LD_PRELOAD" in verdict.findings[0].title
    assert verdict.hint == f"Remove {one.parent} from LD_LIBRARY_PATH; remove {two} from LD_PRELOAD."


def test_no_variable_is_accused_where_the_guilty_file_is_elsewhere(jax_with_cudnn, tmp_path, monkeypatch):
    """The environment itself opens a copy outside: no setting is guilty, and none is accused."""
    other = build_runtime(tmp_path / "other", "libcudnn.so.9")
    innocent = build_runtime(tmp_path / "innocent", "libcudnn.so.9").parent
    monkeypatch.setenv("LD_LIBRARY_PATH", str(innocent))
    verdict = judge(jax_with_cudnn(f"ctypes.CDLL({str(other)!r})"))
    assert verdict.stages[-1].status == "fail"
    (finding,) = verdict.findings
    assert finding.cause == "cudnn_shadowed_by_other_copy"
    assert finding.confidence == "likely"
    assert "LD_LIBRARY_PATH" not in finding.title
