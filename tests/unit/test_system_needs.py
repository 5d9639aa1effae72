"""What a wheel needs of the system: read from the file, from uv's cache, and remembered by its sha256."""

import hashlib
import shutil
import zipfile
from dataclasses import replace

import pytest
from elf_files import library, module, package as installed

from provision.lock.system_needs import SystemNeeds, needs_of, needs_of_installed
from provision.model import LockedPackage, PackageSources

NAME = "drawn-1.0-cp311-cp311-manylinux_2_17_x86_64.whl"


@pytest.fixture
def wheel(tmp_path):
    """A wheel whose module needs a library of its own, which needs one of the system; a plug-in needs another."""
    tree = tmp_path / "tree"
    gone = library(tmp_path / "build" / "libgpuenv_gone.so.1")
    other = library(tmp_path / "build" / "libgpuenv_other.so.1")
    inner = library(tree / "drawn.libs" / "libinner-1a.so", needs=[gone])
    module(
        tree / "drawn" / "core.cpython-311-x86_64-linux-gnu.so",
        needs=[inner],
        runpath="$ORIGIN/../drawn.libs",
    )
    library(tree / "drawn" / "plugins" / "libplug.so", needs=[other])
    (tree / "drawn" / "broken.abi3.so").write_bytes(b"\x7fELF" + bytes(20))
    path = tmp_path / "wheels" / NAME
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as file:
        for part in sorted(p for p in tree.rglob("*") if p.is_file()):
            file.write(part, part.relative_to(tree).as_posix())
    return path


def package(path, **parts):
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    found = LockedPackage(
        name="drawn", version="1.0", url=f"https://example.invalid/{path.name}", sha256=digest
    )
    return replace(found, **parts)


def libraries(found):
    return [n for need in found.values() for n in need.libraries if n.startswith("libgpuenv")]


@pytest.mark.parametrize("way", ["address", "find-links", "folders"])
def test_a_file_is_read_wherever_it_lies(wheel, tmp_path, way):
    one = package(wheel, url=wheel.as_uri()) if way == "address" else package(wheel)
    links = (str(wheel.parent),) if way == "find-links" else ()
    sources = PackageSources(cache_dir=str(tmp_path / "cache"), find_links=links)
    found = needs_of([one], sources, [wheel.parent] if way == "folders" else [])
    assert libraries(found) == ["libgpuenv_gone.so.1"], "what a plug-in needs is no need of the package"
    assert all(need.glibc is None or need.glibc.startswith("2.") for need in found.values())


def test_another_file_of_the_same_name_is_not_read(wheel, tmp_path):
    sources = PackageSources(cache_dir=str(tmp_path / "cache"))
    assert needs_of([package(wheel, sha256="0" * 64)], sources, [wheel.parent]) == {}
    assert list((tmp_path / "cache").iterdir()) == []


def test_needs_that_were_read_are_remembered(wheel, tmp_path):
    sources = PackageSources(cache_dir=str(tmp_path / "cache"))
    one = package(wheel)
    assert needs_of([one], sources) == {}
    found = needs_of([one], sources, [wheel.parent])
    wheel.unlink()
    assert needs_of([one], sources) == found and libraries(found)
    for kept in (tmp_path / "cache" / "system-needs").iterdir():
        kept.write_text("{")
    assert needs_of([one], sources) == {}


def test_a_wheel_that_cannot_be_read_states_no_needs(wheel, tmp_path):
    sources = PackageSources(cache_dir=str(tmp_path / "cache"))
    plain = package(wheel, url="https://example.invalid/drawn-1.0-py3-none-any.whl")
    conda = package(wheel, url="https://example.invalid/drawn-1.0-0.conda")
    assert needs_of([plain, conda, package(wheel, sha256=None)], sources, [wheel.parent]) == {}
    one = package(wheel)
    wheel.write_bytes(wheel.read_bytes()[:300])
    assert needs_of([one], sources, [wheel.parent]) == {}


def test_a_cache_that_cannot_be_written_to_is_done_without(wheel, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "system-needs").write_text("a file")
    found = needs_of([package(wheel)], PackageSources(cache_dir=str(tmp_path / "cache")), [wheel.parent])
    assert libraries(found) == ["libgpuenv_gone.so.1"]
    shutil.rmtree(tmp_path / "cache")


def test_a_wheel_is_read_where_it_was_installed_and_remembered(wheel, tmp_path):
    site = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    shutil.copytree(tmp_path / "tree", site)
    outside = module(tmp_path / "env" / "out.abi3.so", needs=[library(tmp_path / "libgpuenv_outside.so")])
    files = [p for p in site.rglob("*") if p.is_file()]
    installed(site, "drawn", "1.0", [*files, "../../../out.abi3.so", str(outside)[1:], "missing.abi3.so"])
    sources = PackageSources(cache_dir=str(tmp_path / "cache"))
    one = package(wheel)
    assert needs_of([one], sources) == {}
    found = needs_of_installed([one, replace(one, name="other")], tmp_path / "env", sources)
    assert list(found) == [one] and libraries(found) == ["libgpuenv_gone.so.1"]
    assert needs_of([one], sources) == found


def test_glibc_versions_are_compared_by_number():
    needs = SystemNeeds(glibc="2.9")
    assert needs.exceeds("2.8") and not needs.exceeds("2.9") and not needs.exceeds("2.17")
    assert not SystemNeeds().exceeds("2.17")
