"""What is measured of an installed package: its own needs, not names that its code may open."""

from pathlib import Path

from elf_files import library, package

from provision.environment.distributions import find_distribution
from provision.profiles.measure.satellites import InstalledWheel

OPENS = 'const char *gpuenv_names[] = {"", "libcudart.so.12", "libcudnn.so.9", ""};'


def rows_of(site, name="video", version="2.0"):
    one = find_distribution([site], name)
    files = [(row.name, Path(row.path)) for row in one.select_rows(".so")]
    wheel = InstalledWheel(name, version, files, one.requirements, "linux-x86_64", "3.11")
    return wheel, wheel.rows()


def test_a_library_that_is_opened_by_name_is_no_need(tmp_path):
    """As pynvvideocodec, which has files for CUDA 12 and 13 and opens what is there."""
    cuda = library(tmp_path / "gone" / "libcuda.so.1")
    mine = library(tmp_path / "site" / "video" / "_core.so", needs=[cuda], source=OPENS)
    package(tmp_path / "site", "video", "2.0", [mine])
    wheel, (row,) = rows_of(tmp_path / "site")
    assert wheel.needs_measuring()
    assert (row.needs, row.cuda, row.cuda_by, row.cudnn) == (("libcuda.so.1",), None, None, None)


def test_files_for_several_cudas_leave_no_single_need(tmp_path):
    parts = []
    for major in (12, 13):
        gone = library(tmp_path / "gone" / f"libcudart.so.{major}")
        parts.append(library(tmp_path / "site" / "video" / f"core_{major}.so", needs=[gone]))
    package(tmp_path / "site", "video", "2.0", parts)
    wheel, (row,) = rows_of(tmp_path / "site")
    assert wheel.needs_measuring() and row.cuda is None and row.needs == ()


def test_a_package_without_code_for_gpus_is_left_out(tmp_path):
    plain = library(tmp_path / "site" / "plain" / "core.so")
    package(tmp_path / "site", "plain", "1.0", [plain])
    assert not rows_of(tmp_path / "site", "plain", "1.0")[0].needs_measuring()
