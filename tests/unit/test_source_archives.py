"""Source archives, described by their files: stated requirements, compiled code, and what a hostile one can do."""

import dataclasses
import gzip
import io
import json
import tarfile
import zipfile

import export_locks as el
import project_packages
import pytest
from loopback import Index, serving
from rows import rows

from provision.errors import BuildError, LockError
from provision.index.archives import list_sdist
from provision.index.simple_api import File
from provision.model import LockedPackage, PackageSources
from provision.wheels.releases import SourceArchives, check_built, package_of
from provision.wheels.sdist import read_archive

SETUP = "from setuptools import setup, Extension\n"
ABOUT = project_packages.about("some", "1.0")


def described(folder, files, form="tar.gz"):
    name, data = project_packages.sdist("some", "1.0", files, form=form)
    (folder / name).write_bytes(data)
    return read_archive(folder / name)


# --- requirements --------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["tar.gz", "zip"])
def test_pkg_info_states_name_version_and_requirements(tmp_path, form):
    text = project_packages.about(
        "Some.Name", "1.0", "a>=1", "b; extra=='x'", since="2.4", dynamic=("requires-dist",)
    )
    found = described(tmp_path, {"PKG-INFO": text + "Requires-Python: >=3.9\nProvides-Extra: x\n"}, form)
    assert (found.name, found.version) == ("some-name", "1.0")
    assert found.requires == ("a>=1", "b; extra=='x'") and found.extras == ("x",)
    assert found.requires_python == ">=3.9" and found.stated_in == "PKG-INFO" and found.changeable


@pytest.mark.parametrize(
    ("since", "dynamic", "changeable"),
    [
        ("2.2", (), False),
        ("2.4", ("version",), False),
        ("2.4", ("Requires-Dist",), True),
        ("2.4", ("requires-dist",), True),
        ("2.4", ("provides-extra",), True),
        ("2.1", (), True),
        ("1.0", (), True),
    ],
)
def test_metadata_is_changeable_where_it_is_dynamic_or_cannot_say_so(tmp_path, since, dynamic, changeable):
    text = project_packages.about("some", "1.0", "a", since=since, dynamic=dynamic)
    found = described(tmp_path, {"PKG-INFO": text, "setup.py": ""})
    assert found.changeable is changeable and found.requires == ("a",)


def test_egg_info_states_what_pkg_info_lacks(tmp_path):
    requires = 'a>=1\n\n[:python_version < "3.5"]\nb\n\n[x]\nc\n\n[x:sys_platform == "linux"]\nd==2\n'
    for where in ("some.egg-info", "src/some.egg-info"):
        files = {"PKG-INFO": ABOUT, f"{where}/PKG-INFO": ABOUT, f"{where}/requires.txt": requires}
        found = described(tmp_path, files)
        assert found.requires == (
            "a>=1", 'b ; python_version < "3.5"', 'c ; extra == "x"',
            'd==2 ; (sys_platform == "linux") and extra == "x"',
        )  # fmt: skip
        assert found.stated_in == f"{where}/requires.txt" and found.extras == ("x",)
    assert described(tmp_path, {"PKG-INFO": ABOUT, "some.egg-info/PKG-INFO": ABOUT}).requires == ()
    nested = {"PKG-INFO": ABOUT, "setup.py": "", "tests/data/other.egg-info/requires.txt": "a"}
    assert described(tmp_path, nested).requires is None, "an egg-info of test data is not the package's"


@pytest.mark.parametrize(
    ("setup", "known"),
    [
        ("from distutils.core import setup\nsetup(name='some')\n", True),
        ("from setuptools import setup\nsetup(name='some', python_requires='>=3')\n", True),
        ("from setuptools import setup\nsetup(name='some', install_requires=['a'])\n", False),
        ("from setuptools import setup\nsetup(**options)\n", False),
        ("import build_tool\nbuild_tool.run()\n", False),
        ("print 'Python 2'\nsetup(install_requires=['a'])\n", False),
        ("print 'Python 2'\nsetup(name='some')\n", True),
        ("x" * (2 << 20) + "\nsetup(install_requires=[])", False),
    ],
)
def test_what_setup_py_could_state_is_left_to_its_code(tmp_path, setup, known):
    found = described(tmp_path, {"PKG-INFO": ABOUT, "setup.py": setup})
    assert found.requires == (() if known else None)
    cfg = "[options]\ninstall_requires = a\n"
    assert described(tmp_path, {"PKG-INFO": ABOUT, "setup.py": setup, "setup.cfg": cfg}).requires is None


def test_bounds_on_python_that_cannot_be_read_are_none(tmp_path):
    for bounds, read in ((">=3.8", ">=3.8"), ("three", None)):
        text = ABOUT.replace("\n", f"\nRequires-Python: {bounds}\n", 1)
        assert described(tmp_path, {"PKG-INFO": text, "setup.py": ""}).requires_python == read


def test_pyproject_states_what_no_build_changes(tmp_path):
    text = '[project]\nname = "some"\nversion = "1.0"\ndependencies = ["a"]\n[project.optional-dependencies]\nx = ["b"]\n'
    found = described(tmp_path, {"PKG-INFO": ABOUT, "pyproject.toml": text})
    assert found.requires == ("a", 'b ; extra == "x"') and not found.changeable
    dynamic = text.replace('dependencies = ["a"]', 'dynamic = ["dependencies"]').partition("[project.opt")[0]
    assert described(tmp_path, {"PKG-INFO": ABOUT, "pyproject.toml": dynamic}).requires is None


@pytest.mark.parametrize(
    "line", ["a >=dev", "; rm", "((" * 5000, "a @ ", "a @ ../x", "a @ file:///etc/passwd", "a ===1.0-x"]
)
def test_a_requirement_that_cannot_be_read_leaves_it_to_the_build(tmp_path, line):
    found = described(tmp_path, {"PKG-INFO": project_packages.about("some", "1.0", "b", line)})
    assert found.requires is None


# --- compilers -----------------------------------------------------------------------------------------


def pyproject(backend, *requires, more=""):
    return f'[build-system]\nrequires = {json.dumps(requires)}\nbuild-backend = "{backend}"\n{more}'


OPTIONAL_TORCH = "try:\n    import torch\nexcept ImportError:\n    torch = None\n"
PURE = {
    "no build file but setup.py": {"setup.py": SETUP + "setup(packages=['some'])\n"},
    "an empty list": {"setup.py": SETUP + "setup(ext_modules=[])\n"},
    "hatchling": {"pyproject.toml": pyproject("hatchling.build", "hatchling")},
    "an unknown backend": {"pyproject.toml": pyproject("own", more='backend-path = ["."]\n'), "own.py": ""},
    "poetry": {"pyproject.toml": pyproject("poetry.core.masonry.api", "poetry-core")},
    "torch, where it is there": {
        "setup.py": SETUP + OPTIONAL_TORCH + "modules = []\nif torch: modules.append(1)\nsetup(ext_modules=modules)\n",
        "csrc/k.cu": "", "csrc/k.cpp": "",
    },
    "an extension module without its files": {"setup.py": SETUP + "m = [Extension('a', [])]\nsetup(ext_modules=m)\n"},
    "a pyproject that cannot be read": {"setup.py": SETUP + "setup()\n", "pyproject.toml": "[["},
    "files of tests": {"setup.py": SETUP + "setup()\n", "tests/x.c": "", "examples/y.cu": "", "docs/z.rs": ""},
}  # fmt: skip
COMPILED = {
    "Extension": ({"setup.py": SETUP + "setup(ext_modules=[Extension('a', ['a.c'])])\n", "a.c": ""}, "setup.py uses Extension"),
    "a variable": ({"setup.py": SETUP + "m = f()\nsetup(ext_modules=m)\n", "a.cpp": ""}, "setup.py uses ext_modules"),
    "cythonize": ({"setup.py": SETUP + "setup(ext_modules=cythonize('a.pyx'))\n", "a.pyx": ""}, "setup.py uses cythonize"),
    "cffi": ({"setup.py": SETUP + "setup(cffi_modules=['b.py:f'])\n", "b.py": ""}, "setup.py uses cffi_modules"),
    "Python 2": ({"setup.py": "print 'x'\nsetup(ext_modules=[Extension('a', ['a.c'])])\n", "a.c": ""}, "setup.py uses Extension"),
    "CUDA": (
        {
            "setup.py": SETUP + "from torch.utils.cpp_extension import CUDAExtension\nm = []\n"
            "if True:\n    m.append(CUDAExtension('a', ['a.cu']))\nsetup(ext_modules=m)\n",
            "csrc/a.cu": "", "csrc/a.cpp": "",
        },
        "setup.py uses CUDAExtension",
    ),
    "torch as a build requirement": (
        {
            "setup.py": SETUP + OPTIONAL_TORCH + "setup(ext_modules=f())\n", "a.cpp": "",
            "pyproject.toml": pyproject("setuptools.build_meta", "setuptools", "torch"),
        },
        "setup.py uses ext_modules",
    ),
    "maturin": ({"pyproject.toml": pyproject("maturin", "maturin"), "src/lib.rs": ""}, "maturin compiles Rust"),
    "setuptools-rust": (
        {"pyproject.toml": pyproject("setuptools.build_meta", "setuptools-rust>=1"), "src/lib.rs": ""}, "setuptools compiles Rust",
    ),
    "scikit-build": (
        {"pyproject.toml": pyproject("scikit_build_core.build"), "CMakeLists.txt": "", "a.cpp": ""}, "runs CMake",
    ),
    "meson": ({"pyproject.toml": pyproject("mesonpy"), "meson.build": "", "a.f90": ""}, "compiles with Meson"),
    "a table": (
        {"pyproject.toml": pyproject("setuptools.build_meta", more="[[tool.setuptools.ext-modules]]\nname='a'\n"),
         "a.c": ""}, "pyproject.toml has setuptools.ext-modules",
    ),
    "a poetry script": (
        {"pyproject.toml": pyproject("poetry.core.masonry.api", more='[tool.poetry.build]\nscript = "b.py"\n'),
         "b.py": "from setuptools import Extension\nx = Extension('a', ['a.c'])\n", "a.c": ""}, "b.py uses Extension",
    ),
    "make": ({"setup.py": SETUP + "import subprocess\nsubprocess.run(['make'])\nsetup()\n", "a.cc": ""}, "setup.py uses make"),
    "an own backend": (
        {"pyproject.toml": pyproject("own", more='backend-path = ["."]\n'), "own.py": "", "a.cc": ""}, "the source contains C/C++",
    ),
    "a few CUDA files": (
        {"setup.py": SETUP + "setup(ext_modules=[Extension('a', ['a.cpp'])])\n", "a.cpp": "", "b.cu": ""}, "setup.py uses Extension",
    ),
    "a build requirement that compiles": (
        {"pyproject.toml": pyproject("own", "cython"), "a.pyx": ""}, "its build requires cython",
    ),
    "a hook": ({"pyproject.toml": pyproject("hatchling.build"), "hatch_build.py": "", "core/a.go": ""}, "the source contains Go"),
}  # fmt: skip


@pytest.mark.parametrize("files", PURE.values(), ids=PURE)
def test_what_compiles_nothing_needs_no_compiler(tmp_path, files):
    found = described(tmp_path, {"PKG-INFO": ABOUT, **files})
    assert found.compiles == ""


@pytest.mark.parametrize(("files", "evidence"), COMPILED.values(), ids=COMPILED)
def test_what_compiles_is_named(tmp_path, files, evidence):
    found = described(tmp_path, {"PKG-INFO": ABOUT, **files})
    assert evidence in found.compiles


def test_reading_runs_nothing(tmp_path):
    mark = f"open({str(tmp_path / 'mark')!r}, 'w').close()\n"
    described(
        tmp_path, {"PKG-INFO": ABOUT, "setup.py": mark, "own.py": mark, "pyproject.toml": pyproject("own")}
    )
    assert not (tmp_path / "mark").exists()


# --- hostile archives ----------------------------------------------------------------------------------


def packed(members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data) if data is not None else None)
    return buffer.getvalue()


def member(name, data=b"", **kinds):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in kinds.items():
        setattr(info, key, value)
    return info, data


def test_links_and_paths_that_lead_out_are_left_out(tmp_path):
    about = ABOUT.encode()
    link = member("some-1.0/setup.py", type=tarfile.SYMTYPE, linkname="/etc/passwd")
    hard = member("some-1.0/pyproject.toml", type=tarfile.LNKTYPE, linkname="some-1.0/PKG-INFO")
    outside = member("some-1.0/../../a.c"), member("/some-1.0/b.c"), member("../c.c"), member("d.c")
    path = tmp_path / "some-1.0.tar.gz"
    path.write_bytes(packed([member("some-1.0/PKG-INFO", about), link, hard, *outside]))
    assert read_archive(path).name == "some"
    assert list(list_sdist(path, lambda _: False)) == ["PKG-INFO"]


@pytest.mark.parametrize("form", ["tar.gz", "zip"])
def test_a_member_that_is_too_large_is_refused(tmp_path, form):
    with pytest.raises(LockError, match="expected at most"):
        described(tmp_path, {"PKG-INFO": ABOUT, "setup.py": b"#" * (9 << 20)}, form)
    many = {f"m{n}.py": b"#" * (3 << 20) for n in range(3)}
    with pytest.raises(LockError, match="expected at most"):
        described(tmp_path, {"PKG-INFO": ABOUT, **many}, form)


def test_an_archive_that_unpacks_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("provision.index.archives.MOST_UNPACKED", 4 << 20)
    path = tmp_path / "some-1.0.tar.gz"
    big, _ = member("some-1.0/data.bin")
    big.size = 16 << 20
    with gzip.open(path, "wb") as file:
        file.write(big.tobuf() + b"\0" * (16 << 20) + b"\0" * 1024)
    with pytest.raises(LockError, match="expected at most"):
        read_archive(path)


@pytest.mark.parametrize(
    "data",
    [b"", b"\x1f\x8b", b"PK\x03\x04", b"<html></html>", packed([member("x")])[:40]],
    ids=["empty", "gzip", "zip", "page", "half"],
)
@pytest.mark.parametrize("name", ["some-1.0.tar.gz", "some-1.0.zip"])
def test_a_damaged_archive_is_an_error_and_nothing_else(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(LockError, match="cannot be read"):
        read_archive(tmp_path / name)


def test_an_encrypted_member_is_refused(tmp_path):
    path = tmp_path / "some-1.0.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("some-1.0/PKG-INFO", ABOUT)
    data = bytearray(path.read_bytes())
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(LockError, match="encrypted"):
        read_archive(path)


# --- from an index -------------------------------------------------------------------------------------


@pytest.fixture
def index():
    with serving(Index()) as made:
        yield made


@pytest.fixture
def archives(index, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return SourceArchives(PackageSources(default=index.url, cache_dir=str(tmp_path / "cache")))


def hold(index, name="some", version="1.0", files=None):
    file, data = project_packages.sdist(
        name, version, files or {"PKG-INFO": project_packages.about(name, version)}
    )
    index.wheels.setdefault(name, {})[file] = data
    return file


def test_archives_of_an_index_are_listed_newest_first_and_read_once(index, archives):
    hold(index, version="1.9")
    hold(index, version="1.10")
    index.add("some", "2.0")
    listed = archives.list_archives("some")
    assert [p.version for p in listed] == ["1.10", "1.9"] and all(p.sha256 for p in listed)
    found = archives.describe(listed)
    assert [found[p].version for p in listed] == ["1.10", "1.9"]
    assert not any(path.endswith(".whl") for path in index.requests)
    before = index.requests.total()
    assert archives.describe(listed) == found and index.requests.total() == before


def test_a_page_is_read_once_in_a_run(index, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    index.add("some", "2.0")
    hold(index, version="1.0")
    sources = PackageSources(default=index.url, cache_dir=str(tmp_path / "cache"))
    again = dataclasses.replace(sources, trusted=("127.0.0.1",))
    names = {file.name for file in SourceArchives(sources).files("some")}
    assert names == {"some-2.0-py3-none-any.whl", "some-1.0.tar.gz"}
    assert [p.version for p in SourceArchives(again).list_archives("some")] == ["1.0"]
    assert SourceArchives(again).files("some") == SourceArchives(sources).files("some")
    assert (
        SourceArchives(sources).list_archives("absent") == SourceArchives(again).list_archives("absent") == ()
    )
    assert [n for path, n in index.requests.items() if path.endswith(("/some/", "/absent/"))] == [1, 1]


@pytest.mark.parametrize("fault", ["404", "tampered", "garbage", "truncated"])
def test_what_cannot_be_fetched_is_missing_and_not_remembered(index, archives, fault, tmp_path, monkeypatch):
    monkeypatch.setattr("provision.index.downloads.time.sleep", lambda _seconds: None)
    file = hold(index)
    listed = archives.list_archives("some")
    index.faults[file] = fault
    assert archives.describe(listed) == {}
    assert not list((tmp_path / "cache").rglob("*.json"))
    del index.faults[file]
    assert set(archives.describe(listed)) == set(listed)


def test_a_damaged_file_of_the_cache_is_written_again(index, archives, tmp_path):
    hold(index)
    index.held = "max-age=600"
    listed = archives.list_archives("some")
    found = archives.describe(listed)
    kept = list((tmp_path / "cache").rglob("*.json"))
    for path in kept:
        path.write_text('{"until": "soon"}')
    again = SourceArchives(dataclasses.replace(archives.sources, pages={}))
    assert again.list_archives("some") == listed and again.describe(listed) == found
    assert not any(path.read_text() == '{"until": "soon"}' for path in kept)


def test_the_metadata_of_a_build_that_cannot_be_read_is_an_error(tmp_path):
    (tmp_path / "some-1.0.dist-info" / "METADATA").mkdir(parents=True)
    package = LockedPackage(
        name="some", version="1.0", url="https://h/some-1.0.tar.gz", sha256="0" * 64, depends=("python", "a")
    )
    with pytest.raises(BuildError, match=r"the metadata of the built some 1\.0 cannot be read"):
        check_built(package, el.of().plan, tmp_path, PackageSources())


def test_an_archive_above_the_limit_is_not_fetched(index, archives, monkeypatch):
    monkeypatch.setattr("provision.wheels.releases.MOST_ARCHIVE", 100)
    monkeypatch.setattr("provision.index.downloads.time.sleep", lambda _seconds: None)
    hold(index, files={"PKG-INFO": ABOUT, "data": bytes(range(256)) * 40})
    (listed,) = archives.list_archives("some")
    assert archives.describe([dataclasses.replace(listed, size=None)]) == {}
    known = LockedPackage(
        name="some", version="1.0", url=f"{index.url}/absent.tar.gz", sha256="0" * 64, size=101
    )
    before = index.requests.total()
    assert archives.describe([known]) == {} and index.requests.total() == before


def test_an_archive_in_a_folder_is_read_without_a_network(index, tmp_path):
    name, data = project_packages.sdist("some", "1.0", {"PKG-INFO": ABOUT})
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / name).write_bytes(data)
    sources = PackageSources(
        default=index.url, offline=True, find_links=(str(tmp_path / "wheels"),), cache_dir=str(tmp_path)
    )
    archives = SourceArchives(sources)
    (listed,) = archives.list_archives("some")
    assert archives.describe([listed])[listed].version == "1.0" and not index.requests


@rows("name", ["some-1.0-py3-none-any.whl", "other-1.0.tar.gz", "some-1.0.exe", "some.tar.gz"])
def test_other_files_are_not_taken_for_the_source_archive(name):
    assert package_of("some", File(name=name, url=f"https://host/{name}")) is None
