"""A framework is imported while the driver is asked, and touches nothing before its turn."""
# ruff: noqa: F811  # fixtures are imported by their names

import pytest
from verify_stub import env, failing, hanging, judge, pristine, stage  # noqa: F401

from provision.verify import Options

TORCH = """
import os, types
def _note(what):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(what + "\\n")
_note("imported")
__version__ = "2.9.0"
version = types.SimpleNamespace(cuda="12.8", hip=None)
def _asked():
    _note("asked for GPUs")
    raise RuntimeError("no more of torch is here")
cuda = types.SimpleNamespace(get_arch_list=_asked)
"""


@pytest.fixture
def notes(env, tmp_path, monkeypatch):
    """What a torch that notes its own doings was made to do, line by line."""
    folder = next(env.glob("lib/python*/site-packages")) / "torch"
    folder.mkdir()
    (folder / "__init__.py").write_text(TORCH)
    file = tmp_path / "notes"
    file.touch()
    monkeypatch.setenv("NOTES", str(file))
    return lambda: file.read_text().splitlines()


def test_an_import_that_ran_ahead_is_used_when_its_turn_comes(judge, notes):
    verdict = judge("580-h200", Options(timeout=300))
    assert notes() == ["imported", "asked for GPUs"]
    framework = stage(verdict, "framework")
    assert (framework.status, stage(verdict, "cudnn").status) == ("fail", "pass")
    assert "no more of torch is here" in str(framework)


def test_a_driver_that_hangs_ends_what_was_imported_meanwhile(judge, notes):
    verdict, _ = hanging("calling cuInit", lambda n: judge("cuinit-hangs", Options(timeout=n)), until=notes)
    assert failing(verdict) == "driver"
    assert notes()[:1] == ["imported"]
    assert "asked for GPUs" not in notes()


@pytest.mark.parametrize(
    ("options", "done"),
    [(Options(quick=True, timeout=300), []), (Options(device="cpu", quick=True, timeout=300), ["imported"])],
)
def test_a_quick_look_imports_nothing_where_a_gpu_has_layers_to_prove(judge, notes, options, done):
    judge("580-h200", options)
    assert notes() == done
