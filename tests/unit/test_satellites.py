"""Rows of satellites.yaml: what the libraries of small wheels say, and which releases are read."""

import hashlib
import io
import json
import os
import re
import struct
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from elf_files import library
from programs import run_program

from provision import profiles
from provision.errors import LockError
from provision.index.config import pip_settings
from provision.index.http import Http
from provision.index.places import default_index
from provision.index.simple_api import File
from provision.profiles import measure
from provision.profiles.measure import libraries, reader as measured, satellites
from provision.profiles.measure.libraries import measure_libraries
from provision.profiles.measure.reader import Reader, representative
from provision.profiles.tables import Table, dump, read_file
from provision.system import process
from provision.system.elf import ElfError, ElfFile, list_unexported
from provision.system.kernels import MAGIC

ROOT = Path(__file__).resolve().parents[2]
STABLE = ("aoti_torch_abi_version", "torch_call_dispatcher", "_ZN5mylib3runEN5torch6stable6TensorE")
EXACT = ("_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",)


def code(calls=(), words=(), data=b""):
    """C source that calls functions, and holds words and bytes."""
    lines = [f"extern void {c}(void);" for c in calls]
    lines += [f'const char *word{i} = "{w}";' for i, w in enumerate(words)]
    lines += [f"const unsigned char data[] = {{{','.join(map(str, data))}}};"] if data else []
    return "\n".join([*lines, "void run(void) {", *(f"{c}();" for c in calls), "}"])


def fat_binary(*kinds):
    """A fat binary for (kind, architecture) pairs; kind 1 is PTX, kind 2 machine code."""
    body = b"".join(
        struct.pack("<HHIQ", kind, 0x101, 64, 40) + bytes(12) + struct.pack("<I", arch) + bytes(72)
        for kind, arch in kinds
    )
    return MAGIC + struct.pack("<HHQ", 1, 16, len(body)) + body


@pytest.fixture
def build(tmp_path):
    """A function that makes libraries, {member: {needs, calls, words, data}}, and a wheel of them."""

    def made(members, requires=(), python=">=3.10", name="demo", version="1.0"):
        content = {}
        for number, (member, how) in enumerate(members.items()):
            needs = [
                library(tmp_path / f"{number}" / soname, soname=soname) for soname in how.get("needs", ())
            ]
            source = code(how.get("calls", ()), how.get("words", ()), how.get("data", b""))
            path = library(tmp_path / f"{number}" / "made.so", soname=member, needs=needs, source=source)
            content[member] = path.read_bytes()
        head = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Python: {python}"]
        content[f"{name.replace('-', '_')}-{version}.dist-info/METADATA"] = (
            "\n".join([*head, *(f"Requires-Dist: {r}" for r in requires)]).encode() + b"\n"
        )
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, data in content.items():
                archive.writestr(member, data)
        return file.getvalue()

    return made


def rows_of(data, package="demo", optional=()):
    with zipfile.ZipFile(io.BytesIO(data)) as wheel:
        return satellites.wheel_rows(measure_libraries(wheel), package, "2.28", optional)


# --- what libraries say ------------------------------------------------------------------------


def test_a_library_says_its_needs_its_kernels_and_how_it_calls_torch(build):
    data = bytes(1000) + fat_binary((2, 75), (2, 90), (1, 90))
    needs = ["libcudart.so.13", "libcublas.so.13", "libtorch.so", "libcudnn.so.9"]
    (row,) = rows_of(build({"demo/_C.so": {"needs": needs, "calls": EXACT, "data": data}}))
    assert row == {
        "needs": ["libcublas.so.13", "libcudart.so.13", "libcudnn.so.9"],
        "cuda": "13",
        "cuda_by": "needed",
        "cudnn": "==9.*",
        "cudnn_by": "needed",
        "abi": "exact",
        "kernels": "7.5 9.0+PTX",
        "glibc": "2.28",
    }


@pytest.mark.parametrize(
    ("calls", "kind"),
    [
        (STABLE, "stable"),
        ((*STABLE, *EXACT), "exact"),
        (("THPVariable_Wrap",), "exact"),
        (("_ZN10tensorflow8OpKernelC2EPNS_20OpKernelConstructionE",), "exact"),
        (("puts",), None),
    ],
)
def test_the_abi_is_that_of_the_undefined_symbols(build, calls, kind):
    (row,) = rows_of(build({"demo/_C.so": {"calls": calls}}))
    assert row.get("abi") == kind


def test_what_is_no_row_or_no_library_is_refused_or_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(libraries, "MOST", 10)
    with pytest.raises(ValueError, match="more than 10 bytes"):
        libraries._read("a.so", lambda: io.BytesIO(bytes(30)))
    with pytest.raises(ValueError, match="expected at most"):
        satellites._read_source(None, File(name="a.tar.gz", url="https://host/a", size=satellites.MOST + 1))
    (tmp_path / "a.so").write_text("no library")
    assert not satellites._is_linked(tmp_path / "a.so")
    assert libraries.cuda_majors(["libcudart.so.13", "libcublas.so", "libother.so.12"]) == {"13"}
    variant = File(name="a-1.0-py3-none-any-cu126.whl", url="https://host/a")
    assert measured._parse_wheel_files(variant) == [] and measured.parse("a >=> 1") is None
    assert str(measured.parse("a (>=1)")) == "a>=1"


def test_a_document_has_the_cuda_of_a_wheel_that_states_another():
    documents = {
        "satellite_frameworks": [{"package": "demo", "version": "1", "built_for": "torch==2.8", "cuda": "13"}]
    }
    for version, cuda in (("1.2", "13"), ("10.0", "12")):
        row = {"package": "demo", "version": version, "platform": "linux-x86_64", "cuda": "12"}
        satellites._add_framework(row, {"requires": [], "requires_python": None}, documents)
        assert row["cuda"] == cuda


def test_an_index_that_does_not_answer_stops_the_measuring_and_another_error_is_a_problem():
    def fails(error):
        def read():
            raise error

        return read

    file = File(name="a-1.0-py3-none-any.whl", url="https://host/a")
    made = Reader(Http(), "https://host", None)
    with pytest.raises(LockError, match="no answer"):
        made.read_cached(file, "kind", fails(LockError("no answer", unreachable="https://host")))
    assert made.read_cached(file, "kind", fails(LockError("damaged"))) is None
    assert made.problems == ["a-1.0-py3-none-any.whl: damaged"]


def test_two_frameworks_are_no_row(build):
    with pytest.raises(ValueError, match="torch and tensorflow"):
        libraries.find_framework(["aoti_torch_abi_version", "TF_NewStatus"])


def test_files_for_several_cuda_releases_are_alternatives(build):
    members = {
        "demo/libdemo_cuda118.so": {"needs": ["libcudart.so.11.0"], "data": fat_binary((2, 60))},
        "demo/libdemo_cuda132.so": {"needs": ["libcudart.so.13"], "data": fat_binary((2, 120))},
        "demo/libdemo_rocm64.so": {"needs": ["libhipblas.so.2"], "words": ["libcublas.so.12"]},
        "demo/libdemo_cpu.so": {},
    }
    old, new = rows_of(build(members))
    assert (old["cuda"], old["kernels"], old["needs"]) == ("11.8", "6.0", ["libcudart.so.11.0"])
    assert (new["cuda"], new["kernels"], new["needs"]) == ("13.2", "12.0", ["libcudart.so.13"])
    wrong = {"demo/libdemo_cuda118.so": {"needs": ["libcudart.so.12"]}}
    with pytest.raises(ValueError, match=r"for CUDA 11\.8 needs CUDA 12"):
        rows_of(build(wrong))


def test_two_cuda_majors_without_alternatives_are_no_row(build):
    members = {"demo/a.so": {"needs": ["libcudart.so.12"]}, "demo/b.so": {"needs": ["libcudart.so.13"]}}
    with pytest.raises(ValueError, match="need CUDA 12 and 13"):
        rows_of(build(members))


def test_what_a_wheel_brings_is_no_need(build):
    own, copy = "libcudart.3eda8113.so.13", "libnvjpeg-1a359ba7.so.13.0.1.86"
    members = {
        "demo/_C.so": {"needs": [own, copy, "libdemo.so"]},
        "demo/libdemo.so": {"needs": ["libcublas.so.13"]},
        f"demo.libs/{own}": {"data": fat_binary((2, 50)), "words": ["libcuda.so.1"]},
        f"demo.libs/{copy}": {},
    }
    (row,) = rows_of(build(members))
    assert row["needs"] == ["libcublas.so.13"]
    assert "kernels" not in row  # the copy's kernels say nothing of the package


def test_needs_of_optional_modules_do_not_count(build):
    members = {"demo/_C.so": {"needs": ["libcudart.so.12"]}, "demo/dnn.so": {"needs": ["libcudnn.so.8"]}}
    (row,) = rows_of(build(members), optional=["cudnn"])
    assert row["needs"] == ["libcudart.so.12"]
    assert "cudnn" not in row


def test_names_in_the_code_and_of_the_package_replace_missing_needs(build):
    opens = build({"demo/_C.so": {"words": ["libcublas.so.12", "libcudnn.so.9"]}})
    (row,) = rows_of(opens)
    assert (row["cuda"], row["cuda_by"]) == ("12", "dlopen")
    assert (row["cudnn"], row["cudnn_by"]) == ("==9.*", "dlopen")
    (row,) = rows_of(opens, package="demo-cuda13x")
    assert (row["cuda"], row["cuda_by"]) == ("13", "name")
    both = build({"demo/_C.so": {"words": ["libcublas.so.12", "libcublas.so.13"]}})
    (row,) = rows_of(both)
    assert "cuda" not in row
    names = ["cudf-cu12", "nvidia-dali-cuda120", "cupy-cuda11x", "torch", "demo-cuda"]
    assert [libraries.parse_cuda_name(n) for n in names] == ["12", "12", "11", None, None]


def test_the_glibc_is_that_of_tag_or_symbols_whichever_is_newer(build, monkeypatch):
    data = build({"demo/_C.so": {"calls": ["puts"]}})
    with zipfile.ZipFile(io.BytesIO(data)) as wheel:
        fact = measure_libraries(wheel)
    fact["libraries"]["demo/_C.so"]["glibc"] = "2.34"
    for tag, expected in (("2.28", "2.34"), ("2.39", "2.39"), (None, "2.34")):
        assert satellites.wheel_rows(fact, "demo", tag)[0]["glibc"] == expected


def test_text_that_is_named_like_a_library_is_skipped_and_damage_is_reported(build):
    data = build({"demo/_C.so": {"needs": ["libcudart.so.13"]}})
    with zipfile.ZipFile(io.BytesIO(data)) as old:
        scan_library_stream = old.read("demo/_C.so")
    for content, damaged in ((b"INPUT(libdemo.so.1)\n", False), (scan_library_stream[:3000], True)):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("demo/libdemo.so", content)
        with zipfile.ZipFile(file) as wheel:
            if damaged:
                with pytest.raises(ValueError, match="is truncated: its segments are incomplete"):
                    measure_libraries(wheel)
            else:
                assert measure_libraries(wheel)["libraries"] == {}


def test_undefined_symbols_are_those_that_the_linker_lists(tmp_path):
    library(
        tmp_path / "made.so",
        source="extern void one(void); extern void two(void) __attribute__((weak)); int mine;"
        "void run(void) { one(); if (two) two(); }",
    )
    data = library(tmp_path / "exact.so", source=code(["one", *EXACT])).read_bytes()
    assert set(ElfFile(lambda at, n, d=data: d[at : at + n], len(data)).undefined()) == {"one", *EXACT}
    data = (tmp_path / "made.so").read_bytes()
    assert list(ElfFile(lambda at, n: data[at : at + n], len(data)).undefined()) == ["one"]


def test_symbols_that_no_library_exports_are_listed(tmp_path):
    calls = "".join(
        f"extern void {n}(void);\nvoid *p{i} = {n};\n" for i, n in enumerate(("ab_x", "ab_y", "other"))
    )
    user = library(tmp_path / "user.so", source=calls)
    first = library(tmp_path / "first.so", source="void ab_x(void) {}")
    second = library(tmp_path / "second.so", source="void ab_y(void) {}")
    wanted = re.compile("ab_")
    assert list_unexported(user, [], wanted) == ("ab_x", "ab_y")
    assert list_unexported(user, [first], wanted) == ("ab_y",)
    assert list_unexported(user, [first, second], wanted) == ()
    for size in (0, 100, 5000):
        second.write_bytes(second.read_bytes()[:size])
        with pytest.raises(ElfError):
            list_unexported(user, [first, second], wanted)
    with pytest.raises(ElfError):
        list_unexported(user, [tmp_path / "missing.so"], wanted)


def test_the_symbols_of_real_libraries_are_those_that_nm_lists():
    """nm of binutils is the oracle: undefined ones without weak ones, defined ones without local ones."""
    folders = [Path(sysconfig.get_path("platlib")), Path("/usr/lib/x86_64-linux-gnu")]
    paths = sorted(
        {p.resolve() for f in folders for p in f.rglob("*.so*") if ".so" in p.name and p.is_file()}
    )
    elfs = [p for p in paths if p.stat().st_size < 4 << 20 and p.read_bytes()[:5] == b"\x7fELF\x02"]
    assert len(elfs) > 20
    for path in elfs[:: len(elfs) // 20]:
        said = run_program(["nm", "-D", "--without-symbol-versions", path], check=True)
        lines = [line.split() for line in said.stdout.splitlines()]
        data = path.read_bytes()

        def read(at, size, data=data):
            return data[at : at + size]

        assert set(ElfFile(read, len(data)).undefined()) == {x[-1] for x in lines if x[-2] == "U"}, path


# --- which releases ----------------------------------------------------------------------------


class Folder:
    """A simple index in a folder, with times of upload."""

    def __init__(self, path):
        self.path, self.files = path, {}

    def add(self, project, name, data, *, uploaded="2026-01-01T00:00:00Z", yanked=False):
        (self.path / name).write_bytes(data)
        entry = {"filename": name, "url": (self.path / name).as_uri(), "size": len(data), "yanked": yanked}
        entry |= {"hashes": {"sha256": hashlib.sha256(data).hexdigest()}}
        entry |= {"upload-time": uploaded} if uploaded else {}
        self.files.setdefault(project, []).append(entry)
        page = self.path / "simple" / project / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(json.dumps({"files": self.files[project]}))

    @property
    def url(self):
        return (self.path / "simple").as_uri()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "index").mkdir()
    return Folder(tmp_path / "index")


def reader(folder, cache=None):
    return Reader(Http(), folder.url, cache)


PACKAGES = {"satellite_packages": [{"package": "demo"}]}


def wheel_name(version, tag="cp310-abi3-manylinux_2_28_x86_64", name="demo"):
    return f"{name}-{version}-{tag}.whl"


def test_the_newest_patch_of_each_recent_minor_is_read(build, folder):
    plain = build({})
    for version, uploaded in (("1.0.9", "2024-11-21"), ("1.1.0", "2024-11-22"), ("1.1.2", "2025-01-01")):
        folder.add("demo", wheel_name(version), plain, uploaded=f"{uploaded}T00:00:00Z")
    folder.add("demo", wheel_name("1.2.0"), plain)
    folder.add("demo", wheel_name("1.2.1"), plain, yanked="broken")
    folder.add("demo", wheel_name("1.3.0rc1"), plain)
    folder.add("demo", wheel_name("1.4.0", "cp312-cp312-win_amd64"), plain)
    folder.add("demo", wheel_name("1.5.0"), plain, uploaded=None)
    made = reader(folder)
    rows = satellites.satellite_rows(made, PACKAGES)
    assert [r["version"] for r in rows] == ["1.2.0", "1.1.2"]
    (problem,) = made.problems
    assert problem.startswith(wheel_name("1.5.0")) and "uploaded" in problem


def test_a_package_without_recent_releases_has_its_newest_one(build, folder):
    for version in ("1.0.0", "1.1.0"):
        folder.add("demo", wheel_name(version), build({}), uploaded="2020-01-01T00:00:00Z")
    assert [r["version"] for r in satellites.satellite_rows(reader(folder), PACKAGES)] == ["1.1.0"]


def test_a_series_can_be_three_numbers(build, folder):
    for version in ("0.0.1", "0.0.1.post1", "0.0.2"):
        folder.add("demo", wheel_name(version), build({}))
    documents = {"satellite_packages": [{"package": "demo", "parts": "3"}]}
    rows = satellites.satellite_rows(reader(folder), documents)
    assert [r["version"] for r in rows] == ["0.0.2", "0.0.1.post1"]


@pytest.mark.parametrize(
    ("tags", "python", "expected"),
    [
        (["cp310-abi3"], ">=3.9", "3.10+"),
        (["cp38-abi3"], ">=3.10,<3.15", "3.10+"),
        (["py3-none"], ">=3.9", "3.9+"),
        (["py39-none"], ">=3.9", "3.9+"),
        (["cp310-cp310", "cp311-cp311", "cp312-abi3"], ">=3.10", "3.10 3.11 3.12+"),
        (["cp39-cp39", "cp313-cp313t"], ">=3.9", "3.9"),
    ],
)
def test_the_pythons_of_a_release_are_read_from_its_tags(build, folder, tags, python, expected):
    for tag in tags:
        folder.add("demo", wheel_name("1.0", f"{tag}-manylinux_2_28_x86_64"), build({}, python=python))
    (row,) = satellites.satellite_rows(reader(folder), PACKAGES)
    assert row["pythons"] == expected


def source(setup, project="", requires=()):
    import tarfile

    lines = [
        "Metadata-Version: 2.1",
        "Name: demo",
        "Version: 1.0",
        *(f"Requires-Dist: {r}" for r in requires),
    ]
    files = {"PKG-INFO": "\n".join(lines) + "\n", "setup.py": setup, "pyproject.toml": project}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"demo-1.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return out.getvalue()


@pytest.mark.parametrize(
    ("setup", "project", "form"),
    [
        ("setup()", "", "source"),
        ("", '[build-system]\nbuild-backend = "wheel_stub.buildapi"\n', "download"),
        ("url = os.environ['NVIDIA_PIP_INDEX_URL']", "# uses wheel_stub", "download"),
    ],
)
def test_a_source_release_says_what_its_build_needs(folder, setup, project, form):
    folder.add("demo", "demo-1.0.tar.gz", source(setup, project, ["torch>=2.4"]))
    row, arm = satellites.satellite_rows(reader(folder), PACKAGES)
    assert (row["form"], row["built_for"]) == (form, "torch>=2.4")
    assert arm == row | {"platform": "linux-aarch64"}
    assert "pythons" not in row and "cuda" not in row


def test_wheels_of_a_series_come_before_its_sources(build, folder):
    folder.add("demo", "demo-1.1.tar.gz", source("setup()"))
    folder.add("demo", wheel_name("1.0"), build({}))
    folder.add("demo", "demo-1.0.5.tar.gz", source("setup()"))
    of_x86, of_arm = reader(folder), reader(folder)
    of_x86.platforms, of_arm.platforms = frozenset({"linux-x86_64"}), frozenset({"linux-aarch64"})
    rows = satellites.satellite_rows(of_x86, PACKAGES)
    assert [(r["version"], r["form"]) for r in rows] == [("1.1", "source"), ("1.0", "wheel")]
    rows = satellites.satellite_rows(of_arm, PACKAGES)
    assert [(r["version"], r["form"]) for r in rows] == [("1.1", "source"), ("1.0.5", "source")]


def test_each_platform_is_measured_from_its_own_wheels(build, folder):
    cudas = {"x86_64": "libcudart.so.12", "aarch64": "libcudart.so.13"}
    for machine, needs in cudas.items():
        tag = f"cp310-abi3-manylinux_2_28_{machine}"
        folder.add("demo", wheel_name("1.0", tag), build({"demo/_C.so": {"needs": [needs]}}))
    folder.add("demo", wheel_name("1.1", "cp310-abi3-manylinux_2_28_x86_64"), build({}))
    folder.add("demo", wheel_name("1.1", "py3-none-any"), build({}, python=">=3.9"))
    rows = satellites.satellite_rows(reader(folder), PACKAGES)
    found = [(r["version"], r["platform"].removeprefix("linux-"), r.get("cuda"), r["pythons"]) for r in rows]
    assert found == [
        ("1.1", "x86_64", None, "3.10+"), ("1.0", "x86_64", "12", "3.10+"),
        ("1.1", "aarch64", None, "3.9+"), ("1.0", "aarch64", "13", "3.10+"),
    ]  # fmt: skip


def test_documents_add_frameworks_and_extras(build, folder):
    calls = {"demo/_C.so": {"calls": EXACT}}
    folder.add("demo", wheel_name("1.10"), build(calls, ["torch==2.14.0", "tensorflow>=2"]))
    folder.add("demo", wheel_name("1.1"), build(calls, ["torch"]))
    row = {"source": "s", "read": "2026-11-22", "package": "demo"}
    documents = PACKAGES | {
        "satellite_frameworks": [row | {"version": "1.1", "built_for": "torch==2.9.*"}],
        "satellite_extras": [row | {"versions": ">=1.2", "extras": "cuda cudnn"}],
    }
    new, old = satellites.satellite_rows(reader(folder), documents)
    assert (new["built_for"], new["extras"]) == ("torch==2.14.0", "cuda cudnn")
    assert (old["built_for"], old["built_by"], old.get("extras")) == ("torch==2.9.*", "document", None)


def test_a_release_that_cannot_be_read_is_reported_and_has_no_row(build, folder):
    members = {"demo/a.so": {"needs": ["libcudart.so.12"]}, "demo/b.so": {"needs": ["libcudart.so.13"]}}
    folder.add("demo", wheel_name("1.0"), build(members))
    folder.add("demo", wheel_name("1.1"), b"no zip")
    made = reader(folder)
    assert satellites.satellite_rows(made, PACKAGES) == []
    assert len(made.problems) == 2 and "demo 1.0: its libraries need CUDA 12 and 13" in made.problems[1]


def test_a_second_run_reads_nothing_again_and_known_rows_are_per_package(build, folder, tmp_path):
    folder.add("demo", wheel_name("1.0"), build({"demo/_C.so": {"needs": ["libcudart.so.13"]}}))
    folder.add("other", wheel_name("1.0", name="other"), build({}, name="other"))
    documents = {"satellite_packages": [{"package": "demo"}, {"package": "other"}]}
    first = reader(folder, tmp_path / "cache")
    rows = satellites.satellite_rows(first, documents)
    again = reader(folder, tmp_path / "cache")
    assert satellites.satellite_rows(again, documents) == rows
    assert (first.read_count, again.read_count) == (2, 0)
    again.known = frozenset({("demo", "1.0", "linux-x86_64")})
    assert [r["package"] for r in satellites.satellite_rows(again, documents)] == ["other"]


# --- the script and the tables -----------------------------------------------------------------


def script(folder, tmp_path, *arguments):
    argv = [sys.executable, ROOT / "scripts/update_profiles.py", *arguments, "--index", folder.url]
    argv += ["--profiles", tmp_path / "profiles", "--cache", tmp_path / "cache"]
    return run_program(argv, timeout=300)


def test_the_script_writes_the_table_and_samples_it(build, folder, tmp_path):
    head = {"table": "satellite_packages", "source": "test", "read": "2026-11-22", "kept": "by hand"}
    path = tmp_path / "profiles" / "satellites.yaml"
    path.parent.mkdir()
    table = Table(head=head, rows=({"package": "demo"},))
    path.write_text(dump([table]))
    folder.add("torchvision", wheel_name("1.0", name="torchvision"), build({}, name="torchvision"))
    members = {
        f"demo/libdemo_cuda{n}.so": {"needs": [f"libcudart.so.{n[:2]}"], "data": fat_binary((2, 80))}
        for n in ("126", "130")
    }
    folder.add("demo", wheel_name("1.0"), build(members, ["torch<3"]))
    assert script(folder, tmp_path, "satellites", "--write").returncode == 0
    tables, problems = read_file(path)
    assert problems == []
    assert [r["cuda"] for r in tables[0].rows] == ["12.6", "13.0"]
    assert tables[1].rows == ({"package": "demo"},)
    assert "0 files differ" in script(folder, tmp_path, "satellites").stderr
    sampled = script(folder, tmp_path, "satellites", "--sample", "2")
    assert (sampled.returncode, sampled.stdout.count("as before: satellites demo 1.0")) == (0, 2)
    path.write_text(path.read_text().replace('kernels: "8.0"', 'kernels: "9.0"'))
    assert script(folder, tmp_path, "satellites", "--sample", "2").returncode == 1


def test_satellites_are_read_only_when_they_are_named():
    assert "satellites" in measure.MEASURED and "satellites" not in measure.DEFAULT


@pytest.fixture(scope="module")
def known():
    return profiles.load()


def test_the_shipped_rows_contradict_nothing(known):
    frameworks = {"torch", "tensorflow", "jax"}
    for row in known.satellites:
        where = f"{row.package} {row.version}"
        assert row.form != "wheel" or row.pythons, where
        assert (row.cuda is None) == (row.cuda_by is None), where
        assert (
            row.built_for is None or row.built_for.split("<")[0].split("=")[0].rstrip("!<>~") in frameworks
        ), where
        assert row.sha256 and row.bytes, where
        majors = libraries.cuda_majors(row.needs)
        assert not majors or majors == {row.cuda.split(".")[0]}, where
    traps = {t.package for t in known.traps}
    assert traps >= {"apex", "pytorch", "tensorflow-gpu", "nvidia-cublas-cu13"}
    assert not traps & {s.package for s in known.satellites}


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "version"),
    [("triton", "3.9.0"), ("torchcodec", "0.17.0"), ("torchrl", "0.14.1"), ("torchvision", "0.28.0")],
)
def test_wheels_of_one_release_for_other_pythons_have_the_same_needs(package, version):
    """The row of a release is that of one wheel, for all Pythons and for abi3."""
    environ = process.environ()
    http = Http(pip_settings(environ))
    made = Reader(http, os.environ.get("GPUENV_INDEX_PYPI") or default_index(environ), None)
    wheels = [w for w in made.wheels(package) if str(w.version) == version and w.platform == "linux-x86_64"]
    read = representative(wheels)
    other = min((w for w in wheels if w != read), key=lambda w: (w.python is not None, w.file.name))
    rows = []
    for wheel in (read, other):
        fact = made.facts(wheel, "satellite", measure_libraries, satellites.STEP)
        rows.append(satellites.wheel_rows(fact, package, wheel.glibc))
    assert rows[0] == rows[1]
