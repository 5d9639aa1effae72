"""Extensions compiled against a framework: real libraries, loaded by the framework's process."""

import dataclasses
import subprocess
from pathlib import Path

import pytest
from framework_envs import venv, write_jax
from verify_stub import verification

from provision.verify import frameworks, locate_environment, proof

ENVIRON = {"PATH": "/usr/bin:/bin"}


def library(folder: Path, name: str, *needs: str) -> str:
    """A shared library that names libc10 and needs these symbols."""
    source = folder / f"{name}.c"
    calls = "".join(f"extern void {n}(void);\n" for n in needs) + 'const char *linked = "libc10.so";\n'
    source.write_text(calls + "void all(void) { " + "".join(f"{n}(); " for n in needs) + "}\n")
    made = folder / f"{name}.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", made, source], check=True)
    return str(made)


def test_extensions_are_found_by_what_their_packages_require_and_are_linked_with(tmp_path):
    _, site = venv(tmp_path / "env")
    for dist, requires, linked in (
        ("vision", "torch==2", True),
        ("other", "torchmetrics", True),
        ("pure", "torch", False),
    ):
        info = site / f"{dist}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {dist}\nVersion: 1.0\nRequires-Dist: {requires}\n\nwords")
        (info / "RECORD").write_text(f"{dist}/_C.so,,\n../../../../etc/passwd.so,,\n")
        (site / dist).mkdir()
        (site / dist / "_C.so").write_bytes(b"\0libc10.so\0" if linked else b"\0libm.so\0")
    assert frameworks.find_extensions("torch", [str(site)]) == [("vision 1.0", str(site / "vision/_C.so"))]
    assert frameworks.find_extensions("jax", [str(site)]) == []


@pytest.fixture
def run(tmp_path):
    env, site = venv(tmp_path / "env")
    write_jax(site)
    return dataclasses.replace(verification("cpu"), env=locate_environment(env))


def test_what_does_not_load_is_named_with_the_loaders_words(run, tmp_path):
    good, bad = library(tmp_path, "_C"), library(tmp_path, "_Cbad", "built_for_another_torch")

    def ask(*files):
        return frameworks.ask_framework(run, "jax", ENVIRON, extensions=[("torchvision 0.1", f) for f in files])  # fmt: skip

    (tmp_path / "gone.c").write_text("int gone;")
    for name, needs in (("libgone", ()), ("_part", ("-L.", "-lgone"))):
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-o", f"{name}.so", "gone.c", "-Wl,--no-as-needed", *needs],
            cwd=tmp_path,
            check=True,
        )
    (tmp_path / "libgone.so").unlink()
    lacking = str(tmp_path / "_part.so")
    assert proof.judge_extensions("jax", ask(good, lacking)) is None, (
        "a library that is not there is no other build"
    )
    judged = proof.judge_extensions("jax", ask(good, bad))
    assert judged.status == "fail" and "torchvision 0.1 cannot be loaded with jax" in judged.detail
    finding = judged.finding
    assert finding.cause == "extension_built_for_other_torch_or_cuda"
    assert "built_for_another_torch" in finding.evidence[0].text and finding.evidence[0].source == bad


def test_a_crash_while_loading_is_that_extensions_and_not_the_frameworks(run, tmp_path):
    source = tmp_path / "boom.c"
    source.write_text("__attribute__((constructor)) static void boom(void) { *(volatile int *)0 = 1; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "boom.so", source], check=True)
    report = frameworks.ask_framework(run, "jax", ENVIRON, extensions=[("other 2.0", str(tmp_path / "boom.so"))])  # fmt: skip
    judged = proof.judge_extensions("jax", report)
    assert judged.status == "warn" and "SIGSEGV" in judged.evidence[0].text


def test_a_numpy_that_torch_cannot_read_is_named(run):
    site = next(Path(run.env.path).glob("lib/python*/site-packages"))
    (site / "numpy.py").write_text("__version__ = '2.2.6'\ndef zeros(size): return [0.0] * size\n")
    torch = "class version: cuda = None\n__version__ = '2.0.1'\ndef from_numpy(array): {}\n"
    for body, status in (("raise RuntimeError('Numpy is not available')", "warn"), ("return array", None)):
        (site / "torch.py").write_text(torch.format(body))
        judged = proof.judge_numpy("torch", frameworks.ask_framework(run, "torch", ENVIRON))
        assert (judged and (judged.status, judged.finding.cause)) == (status and (status, "numpy_abi"))
