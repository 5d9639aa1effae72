"""The reader of ELF files: pyelftools says the same of real libraries, and no file makes it raise anything else."""

import contextlib
import io
import random
import struct
import sys
import sysconfig
from pathlib import Path

import pytest
from elf_files import library, module
from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection

from provision.system.elf import ElfError, ElfFile, Version, open_elf, read_elf


def real_libraries():
    """Libraries of this machine and of the test's own environment, some dozens."""
    folders = [Path(sysconfig.get_path("platlib")), Path("/usr/lib"), Path("/lib")]
    found = {p.resolve() for f in folders for p in f.rglob("*.so*") if p.is_file() and ".so" in p.name}
    elfs = sorted(p for p in found if head(p) == b"\x7fELF\x02")
    return elfs[:: max(1, len(elfs) // 120)]


def head(path):
    with path.open("rb") as stream:
        return stream.read(5)


def oracle(path):
    """What pyelftools says of a file."""
    with path.open("rb") as stream:
        elf = ELFFile(stream)
        said = {
            "needed": [],
            "soname": None,
            "rpath": None,
            "runpath": None,
            "requires": set(),
            "defines": set(),
        }
        for segment in elf.iter_segments():
            if isinstance(segment, DynamicSegment):
                for tag in segment.iter_tags():
                    if tag.entry.d_tag == "DT_NEEDED":
                        said["needed"].append(tag.needed)
                    elif tag.entry.d_tag in ("DT_SONAME", "DT_RPATH", "DT_RUNPATH"):
                        said[tag.entry.d_tag[3:].lower()] = getattr(tag, tag.entry.d_tag[3:].lower())
        for section in elf.iter_sections():
            if isinstance(section, GNUVerNeedSection):
                for need, auxes in section.iter_versions():
                    said["requires"] |= {Version(need.name, a.name) for a in auxes if not a["vna_flags"] & 2}
            if isinstance(section, GNUVerDefSection):
                for definition, auxes in section.iter_versions():
                    if not definition["vd_flags"] & 1:
                        said["defines"].add(next(auxes).name)
        return said


def test_pyelftools_says_the_same_of_real_libraries():
    compared = 0
    for path in real_libraries():
        try:
            said = oracle(path)
        except ELFError:
            continue
        elf = read_elf(path)
        assert list(elf.needed) == list(dict.fromkeys(said["needed"])), path
        assert (elf.soname, elf.rpath, elf.runpath) == (said["soname"], said["rpath"], said["runpath"]), path
        assert set(elf.requires) == said["requires"], path
        assert elf.defines == said["defines"], path
        compared += 1
    assert compared > 40


def test_an_exported_symbol_is_found_by_the_hash_table(tmp_path):
    path = module(tmp_path / "mine.so")
    assert read_elf(path, "PyInit_mine").exports
    assert not read_elf(path, "PyInit_other").exports
    assert not read_elf(path, "PyModule_Create2").exports  # needed, not defined


def test_a_program_names_its_loader():
    assert "ld-" in (read_elf(Path(sys.executable).resolve()).interpreter or "")


def end_of_segments(data):
    """Where the bytes end that the loader maps; what follows are section headers, which it does not read."""
    return max(s["p_offset"] + s["p_filesz"] for s in ELFFile(io.BytesIO(data)).iter_segments("PT_LOAD"))


def test_damaged_files_raise_one_error(tmp_path):
    data = library(tmp_path / "libx.so", runpath="$ORIGIN/a:/b").read_bytes()
    chance = random.Random(20)
    end = end_of_segments(data)
    for size in [*range(0, 700, 7), *(chance.randrange(end) for _ in range(300))]:
        cut = data[:size]
        with pytest.raises(ElfError):
            ElfFile(lambda start, n, cut=cut: cut[start : start + n], len(cut)).elf()
    with pytest.raises(ElfError, match="truncated"):  # it shrinks while it is read
        ElfFile(lambda start, n: data[:100][start : start + n], len(data))
    for _ in range(3000):
        changed = bytearray(data)
        for _ in range(chance.randrange(1, 6)):
            changed[chance.randrange(min(len(changed), 1 << 14))] = chance.randrange(256)
        bad = bytes(changed)
        with contextlib.suppress(ElfError):
            file = ElfFile(lambda start, n, bad=bad: bad[start : start + n], len(bad))
            file.elf("PyInit_x")
            list(file.undefined())


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda p: p.write_bytes(b""), "is empty"),
        (lambda p: p.write_text("GROUP ( libx.so.1 )"), "is not an ELF file"),
        (lambda p: p.write_bytes(b"\x7fELF\x01\x01" + bytes(64)), "not a 64-bit"),
        (lambda p: p.mkdir(), "not a regular file|directory"),
        (lambda p: None, "No such file"),
    ],
)
def test_what_is_no_library_is_refused_with_the_reason(tmp_path, make, why):
    make(tmp_path / "libx.so")
    with pytest.raises(ElfError, match=why):
        read_elf(tmp_path / "libx.so")


def test_a_disk_that_cannot_be_read_is_the_same_error():
    with pytest.raises(ElfError, match="Input/output error"), open_elf("/proc/self/mem") as (read, _):
        read(0, 64)


def test_a_name_without_an_end_and_a_file_without_symbols(tmp_path):
    data = bytearray(library(tmp_path / "libx.so", runpath="$ORIGIN/a:/b").read_bytes()) + b"x"
    table, count = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    kinds = {struct.unpack_from("<I", data, table + i * 56)[0]: table + i * 56 for i in range(count)}
    dynamic = struct.unpack_from("<Q", data, kinds[2] + 8)[0]
    at = next(p for p in range(dynamic, len(data), 16) if struct.unpack_from("<Q", data, p)[0] == 6)
    without = data[:at] + struct.pack("<Q", 0x6FFFFEFF) + data[at + 8 :]
    assert not list(ElfFile(lambda start, n: bytes(without[start : start + n]), len(without)).undefined())
    note = kinds[4]  # it becomes the path of the loader, at the last byte
    struct.pack_into("<I4xQ", data, note, 3, len(data) - 1)
    with pytest.raises(ElfError, match="unterminated"):
        ElfFile(lambda start, n: bytes(data[start : start + n]), len(data)).elf()
