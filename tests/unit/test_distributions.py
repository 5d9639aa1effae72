"""One reader of installed distributions, and one loop that hashes files."""

import hashlib
from pathlib import Path

import pytest

from provision.environment.distributions import (
    CondaRecord,
    compare_file,
    find_distribution,
    list_distributions,
    read_distributions,
    read_versions,
)
from provision.system.files import hash_file, hash_readable

ROOT = Path(__file__).parents[2] / "provision"
DATA = b"cuDNN" * 1000


@pytest.fixture
def site(tmp_path):
    site = tmp_path / "lib" / "python3.12" / "site-packages"
    site.mkdir(parents=True)
    return site


def install(site, stem, *rows, metadata=""):
    folder = site / f"{stem}.dist-info"
    folder.mkdir()
    (folder / "RECORD").write_text("".join(f"{row}\n" for row in rows))
    (folder / "METADATA").write_text(f"Name: x\n{metadata}\nThe text\nRequires-Dist: not-a-header\n")
    return folder


def test_names_are_normal_and_what_pip_is_removing_is_left_out(site, tmp_path):
    install(site, "Jax_CUDA12.plugin-0.8.0")
    install(site, "~orch-2.9.0")
    (site / "noversion.dist-info").mkdir()
    (site / "x-1.egg-info").mkdir()
    assert [str(d) for d in list_distributions(site)] == ["jax-cuda12-plugin 0.8.0"]
    assert read_versions(tmp_path) == {"jax-cuda12-plugin": "0.8.0"}
    assert list(list_distributions(tmp_path / "absent")) == []


def test_two_versions_of_one_name_are_both_read(site, tmp_path):
    install(site, "torch-2.8.0")
    install(site, "torch-2.9.0")
    assert [d.version for d in read_distributions(tmp_path)["torch"]] == ["2.8.0", "2.9.0"]
    assert find_distribution([site], "torch").version == "2.8.0" and not find_distribution([site], "jax")


def test_requirements_come_from_the_header_only(site):
    install(
        site,
        "a-1",
        metadata="Requires-Dist: NumPy>=2; extra == 'all'\nRequires-Dist: nvidia_cudnn.cu12 (==9.1)\n",
    )
    (one,) = list_distributions(site)
    assert one.requires == ("numpy", "nvidia-cudnn-cu12")
    assert one.requirements == ("NumPy>=2; extra == 'all'", "nvidia_cudnn.cu12 (==9.1)")
    # A wheel from Windows, with a folded value and a key in small letters
    text = (
        "Name: x\nrequires-dist: a\nRequires-Dist: b;\n  extra == 'all'\nClassifier:\n\nRequires-Dist: evil\n"
    )
    (one.folder / "METADATA").write_bytes(text.replace("\n", "\r\n").encode())
    (one,) = list_distributions(site)
    assert one.requirements == ("a", "b; extra == 'all'") and one.requires == ("a", "b")


def test_rows_are_compared_by_presence_size_and_bytes(site):
    digest = hashlib.sha256(DATA).digest()
    import base64

    cell = "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    install(
        site, "a-1", f"a/lib.so,{cell},{len(DATA)}", f'"a/b,c.so",{cell},{len(DATA)}', "a/x.py,,", "a/x.pyc,,"
    )
    (one,) = list_distributions(site)
    (site / "a").mkdir()
    (site / "a" / "lib.so").write_bytes(DATA)
    first, second, third = one.rows
    assert (first.name, first.size, first.digest) == ("a/lib.so", len(DATA), digest.hex())
    assert compare_file(first, None, hashes=True) is None and compare_file(second, None) == "missing"
    assert second.path == str(site / "a/b,c.so") and third.size is None
    (site / "a" / "lib.so").write_bytes(b"X" + DATA[1:])
    assert compare_file(first, None) is None and compare_file(first, None, hashes=True) == "bytes"
    (site / "a" / "lib.so").write_bytes(DATA[1:])
    assert compare_file(first, None) == "size"
    assert one.find_wrong_sizes() == {
        str(site / "a/lib.so"): "size",
        str(site / "a/b,c.so"): "missing",
        str(site / "a/x.py"): "missing",
    }
    assert [row.name for row in one.select_rows(".so")] == ["a/lib.so", "a/b,c.so"]


def test_a_file_has_the_digests_that_hashlib_computes(tmp_path):
    (tmp_path / "x").write_bytes(DATA)
    expected = {"sha256": hashlib.sha256(DATA).hexdigest(), "md5": hashlib.md5(DATA).hexdigest()}
    assert {name: hash_file(tmp_path / "x", name) for name in ("sha256", "md5")} == expected
    assert hash_readable(tmp_path / "x") == expected["sha256"] and hash_readable(tmp_path / "y") is None


def files_with(text):
    found = (p for p in ROOT.rglob("*.py") if text in p.read_text(encoding="utf-8"))
    return {p.relative_to(ROOT).as_posix() for p in found}


def test_one_module_parses_the_names_of_dist_info_folders():
    readers = (
        files_with('.dist-info").partition') | files_with('*.dist-info"') | files_with("*.dist-info/RECORD")
    )
    assert readers == set()
    assert "environment/distributions.py" in files_with('_SUFFIX = ".dist-info"')


def test_one_loop_hashes_files():
    # Downloads, configuration with a bound, parsed profiles: these hash bytes that they have.
    assert files_with("state.update(") == {"system/files.py"}


def test_versions_are_those_of_python_and_of_condas_cudnn(site, tmp_path):
    install(site, "a-1.0")
    install(site, "b-git")
    meta = tmp_path / "conda-meta"
    meta.mkdir()
    for stem in ("cudnn-9.1.0-h1_0", "cudnn-jit-9.2.0-h1_0", "libcudnn-9.3.0-h1_0"):
        (meta / f"{stem}.json").write_text("{}")
    assert read_versions(tmp_path) == {"a": "1.0", "cudnn": "9.1.0"}
    (meta / "x-1-0.json").mkdir()
    assert CondaRecord(tmp_path, "x-1-0").text == ""
