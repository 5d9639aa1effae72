"""Files that Python runs at each start and that hide the GPUs; values of variables; damaged libraries."""

import shutil

import pytest
from rows import rows
from verify_stub import env, fresh_state, healthy, judge, pristine, record, stage  # noqa: F401 - fixtures

from provision.system import process
from provision.verify import Options, disk, locate_environment, settings

TORCH = """
import os, types
__version__ = '2.9.0'
version = types.SimpleNamespace(cuda='12.8', hip=None)
backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(enabled=True, version=lambda: 91400))
def init():
    conf = os.environ.get('PYTORCH_CUDA_ALLOC_CONF', '')
    if conf:
        raise ValueError('CachingAllocator option ' + conf.partition(':')[0] + ' too small, must be >= 20')
    raise RuntimeError('No CUDA GPUs are available')
cuda = types.SimpleNamespace(get_arch_list=lambda: ['sm_90'], is_available=lambda: False, init=init)
"""
HIDES = "os.environ['CUDA_VISIBLE_DEVICES'] = ''"


@pytest.fixture
def site(env):  # noqa: F811 - the fixture of that name
    """The site-packages of an environment whose torch is a few lines."""
    folder = next(env.glob("lib/python*/site-packages"))
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(TORCH)
    record(folder, "torch", "2.9.0", [])
    return folder


def found(site):
    return settings.explain_startup_files(locate_environment(site.parents[2]), process.environ(), "torch")


def test_a_pth_file_that_hides_the_gpus_is_named_with_its_line(site, judge):  # noqa: F811
    (site / "zz_hide.pth").write_text(f"# a comment\n\nimport os; {HIDES}\n")
    verdict = judge(healthy(), Options(timeout=300))
    assert stage(verdict, "driver").status == "pass" and stage(verdict, "framework").status == "fail"
    assert verdict.findings, verdict
    first = verdict.findings[0]
    assert (first.cause, first.confidence) == ("visible_devices_invalid", "certain")
    assert first.title.startswith(f"{site}/zz_hide.pth, line 3, sets CUDA_VISIBLE_DEVICES='' ")
    assert verdict.hint == f"Remove line 3 of {site}/zz_hide.pth, or the file."


@pytest.mark.parametrize(
    "text", ["import os\n\nos.environ['JAX_PLATFORMS'] = 'cpu'\n", f"import os\n\n{HIDES}\n"]
)
def test_a_sitecustomize_is_named_with_its_line(site, text):
    (site / "sitecustomize.py").write_text(text)
    finding = found(site)
    assert finding.title.startswith(f"{site}/sitecustomize.py, line 3, sets ")
    assert finding.evidence[0].line == 3


def test_a_sitecustomize_that_unsets_a_variable_is_named_too(site, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    (site / "sitecustomize.py").write_text("import os\nos.environ.pop('JAX_PLATFORMS')\n")
    assert found(site).title.startswith(f"{site}/sitecustomize.py, line 2, unsets JAX_PLATFORMS")


def test_a_sitecustomize_on_pythonpath_is_named_too(site, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(f"import os\n{HIDES}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert found(site).title.startswith(f"{tmp_path}/sitecustomize.py, line 2, sets ")


def test_a_module_that_a_pth_file_imports_is_named_and_the_pth_line_too(site):
    (site / "hider.py").write_text(f"import os\n\n\n{HIDES}\n")
    (site / "start.pth").write_text("import hider\n")
    finding = found(site)
    assert finding.title.startswith(f"{site}/hider.py, line 4, sets ")
    assert (finding.evidence[1].source, finding.evidence[1].line) == (f"{site}/start.pth", 1)


def test_a_startup_file_that_changes_the_framework_is_likely_the_one(site):
    (site / "sitecustomize.py").write_text("import torch\ntorch.cuda.is_available = lambda: False\n")
    finding = found(site)
    assert finding.confidence == "likely"
    assert finding.title.startswith(f"{site}/sitecustomize.py, line 1, imports torch")


def test_startup_files_that_do_neither_are_innocent(site):
    (site / "sitecustomize.py").write_text("import os\nos.environ['TZ'] = 'UTC'\n")
    (site / "other.pth").write_text("import sys\n/nowhere\n")
    assert found(site) is None


def test_a_variable_that_the_framework_refuses_is_the_cause(site, judge, monkeypatch):  # noqa: F811
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:1")
    verdict = judge(healthy(), Options(timeout=300))
    first = verdict.findings[0]
    assert first.cause == "variable_breaks_framework"
    assert "PYTORCH_CUDA_ALLOC_CONF" in first.title


def test_a_wrong_pythonhome_is_the_cause(site, judge, monkeypatch, tmp_path):  # noqa: F811
    """The environment's Python ends before any code runs, as each of its libraries is another Python's."""
    monkeypatch.setenv("PYTHONHOME", str(tmp_path))
    verdict = judge(healthy(), Options(timeout=300))
    first = verdict.findings[0]
    assert first.cause == "variable_breaks_framework" and "PYTHONHOME" in first.title
    assert "unset PYTHONHOME" in first.fix


# --- words ---------------------------------------------------------------------------------------


@rows(
    ("text", "cause"),
    [
        ("F0000 00:00:1 42 parse_flags_from_env.cc:234] Unknown flags in XLA_FLAGS: --xla_x=1", "variable_breaks_framework"),
        ("ValueError: Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'maybe'", "variable_breaks_framework"),
        ("OSError: [Errno 24] Too many open files", "process_limit_reached"),
        ("RuntimeError: can't start new thread", "process_limit_reached"),
    ],
)  # fmt: skip
def test_a_setting_is_named_by_its_words(text, cause):
    finding = fresh_state("cpu").explain(f"a\n{text}\nb")
    assert finding.cause == cause and finding.evidence[0].text == text


@rows(
    ("variable", "said", "cause"),
    [
        ("XLA_FLAGS", None, "variable_breaks_framework"),
        ("XLA_FLAGS", "visible_devices_invalid", "variable_breaks_framework"),
        ("XLA_PYTHON_CLIENT_MEM_FRACTION", "gpu_memory_exhausted", "gpu_memory_exhausted"),
        ("JAX_PLATFORMS", None, "visible_devices_invalid"),
        ("CUDA_VISIBLE_DEVICES", None, "visible_devices_invalid"),
    ],
)
def test_a_guilty_variable_is_a_bad_value_unless_it_hides_gpus(variable, said, cause):
    assert settings.explain_settings([settings.Suspect(variable=variable, part="x")], [], said).cause == cause


# --- damaged libraries ---------------------------------------------------------------------------

CRASH = "the process was ended by SIGSEGV while importing torch\n"


@pytest.fixture
def torch_library(site):
    """A library of torch as its RECORD lists it."""
    path = site / "torch" / "lib" / "libtorch_cuda.so"
    path.parent.mkdir()
    path.write_bytes((site / "nvidia" / "cudnn" / "lib" / "libcudnn.so.9").read_bytes())
    shutil.rmtree(site / "torch-2.9.0.dist-info")
    record(site, "torch", "2.9.0", [path])
    return path


def looked_for(site, text):
    here = locate_environment(site.parents[2])
    return disk.explain_damaged("torch", text, here, _Found((str(site),)))


class _Found:
    def __init__(self, sites):
        self.sites = sites


def test_a_library_that_is_cut_short_is_named_with_its_package(torch_library, site):
    torch_library.write_bytes(torch_library.read_bytes()[:3000])
    finding = looked_for(site, f"{CRASH}{torch_library}: file too short")
    assert (finding.cause, finding.confidence) == ("package_files_damaged", "certain")
    assert finding.title == "libtorch_cuda.so of torch 2.9.0 is truncated"
    assert "torch==2.9.0" in finding.fix


def test_changed_bytes_are_looked_for_after_a_crash_only(torch_library, site):
    data = bytearray(torch_library.read_bytes())
    data[len(data) // 2] ^= 0xFF
    torch_library.write_bytes(data)
    assert looked_for(site, CRASH).title.startswith("libtorch_cuda.so of torch 2.9.0 has different ")
    assert looked_for(site, "RuntimeError: expected a tensor") is None


def test_a_crash_of_whole_files_has_another_cause(torch_library, site):
    assert looked_for(site, CRASH) is None


def test_a_file_that_no_record_lists_is_named_by_the_loader_s_words(site):
    finding = looked_for(site, "ImportError: /opt/x/libmine.so: invalid ELF header")
    assert "loader refuses libmine.so: " in finding.title


# --- crashes -------------------------------------------------------------------------------------


def test_a_crash_says_where_it_was_and_what_was_loaded(site, judge):  # noqa: F811
    (site / "torch" / "__init__.py").write_text("import ctypes\n\n\nctypes.string_at(0)\n")
    failed = stage(judge(healthy(), Options(timeout=300)), "framework")
    shown = [e.text for e in failed.evidence]
    assert failed.detail.endswith("SIGSEGV while importing torch")
    assert "Fatal Python error: Segmentation fault" in shown
    assert any('torch/__init__.py", line 4 in <module>' in line for line in shown)


def test_a_failure_without_a_cause_of_its_stage_is_diagnosed_by_its_words(gpuenv, site):
    (site / "torch" / "__init__.py").write_text("import sympy\n")
    done = gpuenv("verify", str(site.parents[2]), "--device", "cpu", "--quick", "--json")
    assert done.code == 8, done.err
    [finding] = [f for f in done.json["findings"] if f["cause"] == "python_package_missing"]
    assert "sympy" in finding["title"]
    assert "sympy" in done.json["hint"]
