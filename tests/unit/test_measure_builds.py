"""Rows of profiles measured in wheels of an index on loopback, and the script that writes them."""
# ruff: noqa: F811  # fixtures are imported by their names

import hashlib
import io
import struct
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from index_server import web, wheel, zipped  # noqa: F401  # fixtures
from packaging.version import Version
from programs import run_program
from rows import rows

from provision.index.simple_api import File
from provision.profiles.measure import builds, reader
from provision.profiles.measure.builds import cudnn_rows, jax_rows, torch_rows
from provision.profiles.measure.reader import Reader
from provision.profiles.tables import Table, dump, read_file
from provision.system import kernels

ROOT = Path(__file__).resolve().parents[2]


def fatbin(*entries):
    """A fat binary of (kind, architecture) entries, each with a payload that holds no magic."""
    body = b""
    for kind, arch in entries:
        payload = bytes(40 if arch < 200 else kernels.CHUNK)  # the last one lies in two reads
        header = struct.pack("<HHIQ", kind, 0x101, 64, len(payload)) + bytes(12) + struct.pack("<I", arch)
        body += header + bytes(64 - len(header)) + payload
    return kernels.MAGIC + struct.pack("<HHQ", 1, 16, len(body)) + body


def test_kernels_are_read_from_fat_binaries():
    library = bytes(1000) + fatbin((2, 70), (2, 90), (1, 90)) + bytes(77) + fatbin((2, 120))
    found = kernels.read_fatbins(io.BytesIO(library), enough=9, budget=1 << 20)
    assert kernels.from_binaries(found) == "7.0 9.0+PTX 12.0"
    assert found.fatbins == 2
    first = kernels.read_fatbins(io.BytesIO(library), enough=1, budget=1 << 20)
    assert kernels.from_binaries(first) == "7.0 9.0+PTX"


def test_the_magic_alone_is_no_fat_binary():
    for junk in (
        kernels.MAGIC,
        kernels.MAGIC + bytes(100),
        kernels.MAGIC + struct.pack("<HHQ", 1, 16, 1000) + b"\xff" * 80,
    ):
        assert kernels.read_fatbins(io.BytesIO(junk), enough=1, budget=1 << 20).kinds == frozenset()
    half = fatbin((2, 80))[:50]
    assert kernels.read_fatbins(io.BytesIO(half), enough=1, budget=1 << 20).fatbins == 0


def test_an_entry_longer_than_a_read_is_skipped():
    library = fatbin((2, 86), (2, 210), (2, 90)) + bytes(9) + fatbin((2, 120))
    found = kernels.read_fatbins(io.BytesIO(library), enough=9, budget=1 << 20)
    assert (kernels.from_binaries(found), found.fatbins) == ("8.6 9.0 12.0 21.0", 2)
    cut = kernels.read_fatbins(io.BytesIO(library[: kernels.CHUNK // 2]), enough=9, budget=1 << 20)
    assert (kernels.from_binaries(cut), cut.fatbins) == ("8.6 21.0", 1)


def test_the_magic_across_two_reads_is_seen():
    library = bytes(kernels.CHUNK - 2) + fatbin((2, 86))
    assert kernels.from_binaries(kernels.read_fatbins(io.BytesIO(library), enough=1, budget=1 << 20)) == "8.6"


def test_reading_ends_with_the_budget():
    library = bytes(3 * kernels.CHUNK) + fatbin((2, 86))
    found = kernels.read_fatbins(io.BytesIO(library), enough=1, budget=kernels.CHUNK)
    assert (found.fatbins, found.read) == (0, kernels.CHUNK)


def test_kernels_are_read_from_architecture_names():
    assert kernels.parse_arch_list(["sm_90a", "sm_120", "sm_75", "compute_120"]) == "7.5 9.0a 12.0+PTX"


def test_the_cuda_of_a_build_is_read_from_its_machine_code():
    x86 = b"\x7fELF" + bytes(14) + b"\x3e\x00" + bytes(44)
    assert builds.cuda_in_code(x86 + b"\xbf" + struct.pack("<I", 12090) + struct.pack("<I", 12080), 12) == {
        "12.9"
    }
    assert builds.cudnn_numbers(
        x86 + b"\xb8" + struct.pack("<I", 91002) + b"\xbe" + struct.pack("<I", 7)
    ) == [91002]
    arm = b"\x7fELF" + bytes(14) + b"\xb7\x00" + bytes(44)
    assert builds.cuda_in_code(arm + struct.pack("<I", 0x52800000 | 13000 << 5), 13) == {"13.0"}
    assert builds.cuda_in_code(arm + b"\x00" + struct.pack("<I", 0x52800000 | 13000 << 5), 13) == set()


@rows(
    ("tag", "told"),
    [
        ("manylinux1_x86_64", ("linux-x86_64", "2.5")),
        ("manylinux2014_aarch64", ("linux-aarch64", "2.17")),
        ("manylinux_2_28_x86_64", ("linux-x86_64", "2.28")),
        ("linux_aarch64", ("linux-aarch64", None)),
        ("win_amd64", ("windows-x86_64", None)),
        ("any", ("any", None)),
        ("macosx_11_0_arm64", None),
        ("win_arm64", None),
    ],
)
def test_a_platform_tag_gives_platform_and_glibc(tag, told):
    assert reader.platform_of(tag) == told


def test_requirements_of_a_platform_keep_a_marker_only_for_some_pythons():
    lines = [
        'triton==3.1.0; platform_system == "Linux" and python_version < "3.13"',
        'nvidia-x (>=1,<2) ; extra == "and-cuda"',
        'nvidia-w; platform_system == "Windows"',
        'nvidia-new; python_version >= "3.12"',
        "numpy",
    ]
    minors = ("3.11", "3.12", "3.13")
    held = reader.list_required(lines, "linux-x86_64", minors, ("and-cuda",))
    assert [
        reader.format_requirement(r, w, minors) for r, w in held if reader.GPU_NAMES.fullmatch(r.name)
    ] == [
        'triton==3.1.0; python_version < "3.13"',
        "nvidia-x<2,>=1",
        'nvidia-new; python_version >= "3.12"',
    ]


def test_a_companion_that_names_no_torch_goes_with_its_own_minor_only():
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    known = [
        (Version("2.12.0rc1"), None),
        (Version("2.11.0"), None),
        (Version("2.10.0"), SpecifierSet("==2.10.0")),
    ]
    assert str(builds.companion_for(Version("2.11.1"), known)) == "2.11.0"
    assert str(builds.companion_for(Version("2.10.0"), known)) == "2.10.0"
    assert builds.companion_for(Version("2.12.0"), known) is None
    assert builds.companion_for(Version("1.12.0"), known) is None
    assert (
        builds.cudnn_numbers(b"\x7fELF" + bytes(14) + b"\xb7\x00" + b"\xb8" + struct.pack("<I", 90100)) == []
    )


@pytest.fixture
def small_index(tmp_path):
    """A file index with one torch release for three platforms, its companions and one cuDNN."""
    files = {}

    def add(project, filename, body):
        files.setdefault(project, []).append(filename)
        (tmp_path / "files").mkdir(exist_ok=True)
        (tmp_path / "files" / filename).write_bytes(body)

    arches = b"\0sm_75 compute_80\0GLIBC_2.14\0GLIBC_2.17\0"
    pins = [
        'nvidia-cudnn-cu12==9.1.0.70; platform_system == "Linux" and platform_machine == "x86_64"',
        "numpy",
    ]
    for python in ("cp311-cp311", "cp312-cp312", "cp313-cp313t"):
        inside = {
            "torch/version.py": "__version__ = '2.6.0+cu124'\ncuda = '12.4'\n",
            "torch/lib/libtorch_python.so": arches,
            "torch/lib/libtorch_cuda.so": bytes(9) + fatbin((2, 75)),
        }
        add(
            "torch",
            f"torch-2.6.0-{python}-manylinux1_x86_64.whl",
            wheel("torch", "2.6.0", pins, files=inside.items()),
        )
    inside = {"torch/version.py": "cuda: Optional[str] = None\n"}
    add("torch", "torch-2.6.0-cp312-cp312-win_amd64.whl", wheel("torch", "2.6.0", pins, files=inside.items()))
    add("torch", "torch-2.6.0-cp312-cp312-manylinux_2_28_aarch64.whl", wheel("torch", "2.6.0", pins))
    for tag, needs in (
        ("cp312-cp312-manylinux1_x86_64", "torch==2.6.0"),
        ("cp313-cp313-manylinux2014_aarch64", "torch"),
    ):
        add("torchvision", f"torchvision-0.21.0-{tag}.whl", wheel("torchvision", "0.21.0", [needs]))
    ops = {
        "nvidia/cudnn/lib/libcudnn.so.9": "",
        "nvidia/cudnn/lib/libcudnn_ops.so.9": bytes(100) + fatbin((2, 75), (1, 90)),
    }
    name = "nvidia_cudnn_cu12-9.1.0.70-py3-none-manylinux2014_x86_64.whl"
    add("nvidia-cudnn-cu12", name, wheel("nvidia_cudnn_cu12", "9.1.0.70", files=ops.items()))
    code = bytes(18) + b"\x3e\0" + b"".join(b"\xb8" + struct.pack("<I", n) for n in (12090, 90100, 90500))
    inside = {
        "plugin/_versions_cuda12.so": "",
        "plugin/cuda12/_versions.so": code,
        "plugin/_prng.so": fatbin((2, 90)),
    }
    extra = ["jax-cuda12-plugin[with-cuda]<=0.6.0,>=0.5; extra == 'cuda12'", "jaxlib<=0.6.0"]
    needs = ["nvidia-cudnn-cu12>=9.1; extra == 'with-cuda'", "nvidia-nccl-cu12; extra == 'with-cuda'"]
    add("jax", "jax-0.6.0-py3-none-any.whl", wheel("jax", "0.6.0", extra, ">=3.11"))
    for project, tag in (
        ("jaxlib", "cp312-cp312"),
        ("jax-cuda12-plugin", "cp312-cp312"),
        ("jax-cuda12-pjrt", "py3-none"),
    ):
        name = project.replace("-", "_")
        for version in ("0.5.0", "0.6.0"):
            file = f"{name}-{version}-{tag}-manylinux2014_x86_64.whl"
            add(project, file, wheel(name, version, needs, files=inside.items()))
    for project, names in files.items():
        (tmp_path / "simple" / project).mkdir(parents=True)
        hashes = {n: hashlib.sha256(n.encode()).hexdigest() for n in names}
        links = [f'<a href="../../files/{n}#sha256={digest}">{n}</a>' for n, digest in hashes.items()]
        (tmp_path / "simple" / project / "index.html").write_text("\n".join(links))
    return tmp_path


def test_rows_are_measured_and_unreadable_wheels_are_reported(small_index, web):
    made = Reader(web, (small_index / "simple").as_uri(), None)
    linux, windows = torch_rows(made, {})
    assert linux["cuda"] == "12.4"
    assert linux["kernels"] == "7.5"  # PTX without machine code of its own is not claimed
    assert linux["glibc"] == "2.17"  # the tag says 2.5, the symbols say more
    assert linux["python"] == "3.11 3.12"
    assert linux["requires"] == ["nvidia-cudnn-cu12==9.1.0.70"]
    assert linux["cudnn"] == "==9.1.0.70"
    assert linux["companions"] == ["torchvision==0.21.0"]
    assert "cuda" not in windows
    assert "requires" not in windows
    (problem,) = made.problems
    assert problem.startswith("torch-2.6.0-cp312-cp312-manylinux_2_28_aarch64.whl: ")
    (cudnn,) = cudnn_rows(made, {})
    assert (cudnn["kernels"], cudnn["libraries"]) == ("7.5", ["libcudnn.so.9", "libcudnn_ops.so.9"])


def test_a_jax_is_the_newest_of_its_parts_and_says_the_cudnn_that_its_code_was_built_with(small_index, web):
    made = Reader(web, (small_index / "simple").as_uri(), None)
    cuda, cpu = jax_rows(made, {})
    parts = ["jaxlib==0.6.0", "jax-cuda12-plugin==0.6.0", "jax-cuda12-pjrt==0.6.0"]
    assert cpu["requires"] == parts[:1]
    assert cuda["requires"] == [*parts, "nvidia-cudnn-cu12<10,>=9.1", "nvidia-nccl-cu12"]
    assert (cuda["cuda"], cuda["kernels"], cuda["python"], cuda["glibc"]) == ("12.9", "9.0", "3.12", "2.17")
    assert cuda["unresolvable"] == ["3.12: nvidia-nccl-cu12 has no wheel for it"]


def test_architectures_without_code_behind_them_are_no_row(small_index, web):
    for path in (small_index / "files").glob("torch-2.6.0-*-manylinux1_x86_64.whl"):
        with zipfile.ZipFile(path) as old:
            files = {n: old.read(n) for n in old.namelist()} | {"torch/lib/libtorch_cuda.so": fatbin((2, 80))}
        path.write_bytes(zipped(files))
    made = Reader(web, (small_index / "simple").as_uri(), None)
    assert [r["platform"] for r in torch_rows(made, {})] == ["windows-x86_64"]
    assert any(p.endswith("MiB of its CUDA library: code 75") for p in made.problems)


def test_a_second_run_reads_no_wheel_again(small_index, web):
    url, cache = (small_index / "simple").as_uri(), small_index / "cache"
    first = Reader(web, url, cache)
    rows = torch_rows(first, {})
    assert first.read_count == 3  # two of torch, one of torchvision
    next(cache.iterdir()).write_text("{")  # as a killed run leaves it
    second = Reader(web, url, cache)
    assert torch_rows(second, {}) == rows
    assert second.read_count == 1


def script(folder, *arguments):
    argv = [sys.executable, str(ROOT / "scripts/update_profiles.py"), "--profiles", str(folder / "profiles")]
    argv += ["--index", (folder / "simple").as_uri(), "--cache", str(folder / "cache"), *arguments]
    return run_program(argv, timeout=300)


def test_the_script_shows_a_difference_and_writes_only_when_asked(small_index):
    path = small_index / "profiles/torch.yaml"
    path.parent.mkdir()
    head = {
        "table": "builds",
        "framework": "torch",
        "source": "by hand",
        "read": "2026-11-20",
        "kept": "by hand",
    }
    row = {"version": "1.0", "platform": "linux-x86_64", "index": "pytorch", "python": "3.8"}
    path.write_text(dump([Table(head=head, rows=(row,))]))
    before = path.read_text()
    shown = script(small_index, "torch")
    assert shown.returncode == 0, shown.stderr
    assert '+  - {version: "2.6.0", cuda: "12.4"' in shown.stdout
    assert "left out: torch-2.6.0-cp312-cp312-manylinux_2_28_aarch64.whl" in shown.stderr
    assert path.read_text() == before
    script(small_index, "torch", "--write")
    tables, problems = read_file(path)
    assert problems == []
    assert [t.head["kept"] for t in tables] == ["measured", "by hand"]
    assert tables[1].rows == (row,)
    again = script(small_index, "torch")
    assert again.stdout == ""
    assert "0 files differ" in again.stderr


def test_the_script_reads_random_rows_again(small_index):
    path = small_index / "profiles/torch.yaml"
    path.parent.mkdir()
    script(small_index, "torch", "--write")
    assert script(small_index, "--sample", "2").returncode == 0
    path.write_text(
        path.read_text()
        .replace('kernels: "7.5"', 'kernels: "7.0"')
        .replace('python: "3.12"', 'python: "3.9"')
    )
    spoiled = script(small_index, "--sample", "2")
    assert spoiled.returncode == 1
    assert "DIFFERS: torch 2.6.0" in spoiled.stdout


def test_the_script_stops_when_the_index_does(tmp_path):
    argv = [
        sys.executable,
        str(ROOT / "scripts/update_profiles.py"),
        "cudnn",
        "--index",
        "http://127.0.0.1:9/simple",
    ]
    done = run_program([*argv, "--profiles", str(tmp_path), "--cache", str(tmp_path)], timeout=300)
    assert done.returncode == 9
    assert "refuses the connection" in done.stderr
    assert list(tmp_path.iterdir()) == []


# --- TensorFlow and the toolkit ---------------------------------------------------------------------------

BUILD_INFO = "build_info = collections.OrderedDict([('is_cuda_build', True), {}])\n"
CUDA_125 = "('cuda_version', '12.5.1'), ('cudnn_version', '9'), ('cuda_compute_capabilities', ['sm_80', 'compute_90'])"


def tensorflow_wheel(info, library=(), name="tensorflow/libtensorflow_cc.so.2"):
    files = {"tensorflow/python/platform/build_info.py": info, name: fatbin(*library)}
    return zipfile.ZipFile(io.BytesIO(zipped({k: v for k, v in files.items() if v})))


@rows(
    ("info", "library", "found"),
    [
        (BUILD_INFO.format(CUDA_125), [(2, 80), (1, 90), (2, 90)], {"cuda": "12.5", "cudnn": "9", "kernels": "8.0 9.0+PTX"}),
        (BUILD_INFO.format(CUDA_125.replace("12.5.1", "64_112")), [(2, 80), (1, 90)],
         {"cuda": "11.2", "cudnn": "9", "kernels": "8.0 9.0+PTX"}),
        (BUILD_INFO.format("").replace("True", "False"), [(2, 80)], {"cuda": None, "cudnn": None, "kernels": ""}),
        ("", [(2, 80)], {"cuda": None, "cudnn": None, "kernels": ""}),
        (BUILD_INFO.format(CUDA_125), [(2, 80)], "MiB of its CUDA library: PTX 90"),
        (BUILD_INFO.format("('cuda_version', '12.5.1')"), [(2, 80)], "does not state its CUDA version and GPUs"),
        ("build_info = 3", [(2, 80)], "has no build_info"),
    ],
)  # fmt: skip
def test_a_tensorflow_states_its_cuda_and_has_the_code_that_it_names(info, library, found):
    if isinstance(found, dict):
        assert builds.read_tensorflow(tensorflow_wheel(info, library)) == found
        return
    with pytest.raises(ValueError, match=found):
        builds.read_tensorflow(tensorflow_wheel(info, library))


def test_a_tensorflow_without_its_library_is_no_row():
    with pytest.raises(ValueError, match="its CUDA library is not at the expected path"):
        builds.read_tensorflow(tensorflow_wheel(BUILD_INFO.format(CUDA_125), name="tensorflow/other.so"))


def tensorflow_build(version):
    name = f"tensorflow-{version}-cp312-cp312-manylinux_2_17_x86_64.whl"
    file = File(name=name, url=f"https://host/{name}", sha256="a" * 64)
    made = reader.WheelFile(
        file=file,
        version=Version(version),
        platform="linux-x86_64",
        python="3.12",
        glibc="2.17",
        order=(0, ""),
    )
    return reader.ReleaseWheels(Version(version), "linux-x86_64", [made])


def test_a_tensorflow_without_pins_has_the_cudnn_of_the_document():
    made = [tensorflow_build(version) for version in ("2.13.0", "2.12.0", "2.11.0")]
    facts = [
        {"cuda": cuda, "cudnn": cudnn, "kernels": "8.0", "requires": [], "sha256": "a" * 64, "bytes": 1}
        for cuda, cudnn in (("11.8", "8"), ("11.8", "9"), (None, None))
    ]
    problems = []
    fake = SimpleNamespace(
        builds=lambda *_: made, measured=lambda *_: list(zip(made, facts, strict=True)), add_problem=problems.append,
        all_facts=lambda wheels, *_: {w: {"searched": ["cublas", "cudnn"]} for w in wheels},
    )  # fmt: skip
    documents = {"tested": [{"version": v, "cuda": "11.8", "cudnn": ">=8.6,<9"} for v in ("2.13", "2.12")]}
    stated, other, cpu = builds.tensorflow_rows(fake, documents)
    assert (stated["cudnn"], stated["cuda"], stated["searched"]) == (">=8.6,<9", "11.8", "cublas cudnn")
    assert "cudnn" not in other and "cuda" not in cpu and "searched" not in cpu
    assert [p.partition(":")[0] for p in problems] == ["tensorflow 2.12.0"] and "cuDNN" in problems[0]


def test_the_parts_of_a_toolkit_are_its_extras():
    lines = [
        'nvidia-cufft==12.0.*; sys_platform == "linux" and extra == "cufft"',
        'nvidia-nvjitlink==13.0.*; extra == "cufft"', 'nvidia-npp==13.0.*; extra == "npp" and sys_platform == "win32"',
        'nvidia-cufft==12.0.*; extra == "all"', 'other; extra == "nvtx"',
    ]  # fmt: skip
    assert builds._list_parts(lines) == ["cufft nvidia-cufft==12.0.* nvidia-nvjitlink==13.0.*"]


@rows(
    ("measure", "files", "said"),
    [
        (builds.read_torch, {"torch/version.py": "x = 1\n"}, "does not state its CUDA version"),
        (builds.read_torch, {"torch/version.py": "cuda = '12.4'\n", "torch/lib/libtorch_python.so": b"none"},
         "has 0 lists of architectures"),
        (builds.read_plugin, {"plugin/cuda12/_versions.so": b"x"}, "no _versions.so or no _prng.so"),
        (builds.read_plugin, {"plugin/cuda12/_versions.so": b"x", "plugin/_prng.so": b"x"}, "names 0 CUDA releases"),
        (builds.read_cudnn, {"a.txt": b""}, "contains no libraries"),
        (builds.read_cudnn, {"nvidia/cudnn/lib/libcudnn.so.9": b""}, "no libcudnn_ops library, only libcudnn.so.9"),
        (builds.read_cudnn, {"nvidia/cudnn/lib/libcudnn_ops.so.9": b"x"}, "has no fat binary"),
    ],
)  # fmt: skip
def test_a_wheel_that_lacks_a_fact_is_no_row(measure, files, said):
    with pytest.raises(ValueError, match=said):
        measure(zipfile.ZipFile(io.BytesIO(zipped(files))))
