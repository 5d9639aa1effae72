"""What the stage `packages` says of real packages is what importing them says: in this system, and with libraries hidden."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from framework_envs import find_links, venv
from programs import run_program

pytestmark = [pytest.mark.slow, pytest.mark.network]

TRUTH = Path(__file__).parents[1] / "support" / "packages_truth.py"
PACKAGES = [
    "opencv-python",
    "soundfile",
    "sounddevice",
    "PyQt6",
    "vtk",
    "h5py",
    "pyarrow",
    "scipy",
    "decord",
    "av",
    "rdkit",
    "faiss-cpu",
    "tokenizers",
    "onnxruntime",
    "pandas",
    "scikit-learn",
    "scikit-image",
    "matplotlib",
    "lxml",
    "shapely",
    "pyproj",
    "rasterio",
    "psycopg2-binary",
    "netCDF4",
    "tables",
    "numba",
    "lightgbm",
    "grpcio",
    "pyzmq",
    "sentencepiece",
    "tiktoken",
    "safetensors",
    "cryptography",
    "python-magic",
    "pyzbar",
    "mujoco",
    "moderngl",
    "glfw",
    "pygame",
    "SimpleITK",
    "igraph",
    "PyMuPDF",
    "pycocotools",
    "polars",
    "duckdb",
    "regex",
]
ALONE = ["torchcodec", "bitsandbytes", "xformers", "open3d", "torchaudio", "PySide6-Essentials", "shiboken6"]
"""Packages that are installed without what they require, which is large or another torch."""
HIDDEN = [
    "libGL",
    "libEGL",
    "libGLX",
    "libOpenGL",
    "libX11",
    "libXext",
    "libXrender",
    "libXi",
    "libXcursor",
    "libXrandr",
    "libXinerama",
    "libXt",
    "libXfixes",
    "libSM",
    "libICE",
    "libxcb",
    "libxkbcommon",
    "libglib-2.0",
    "libgthread-2.0",
    "libgobject-2.0",
    "libgio-2.0",
    "libfontconfig",
    "libfreetype",
    "libgomp",
    "libdbus-1",
    "libwayland",
    "libasound",
    "libsndfile",
    "libavutil",
    "libgbm",
    "libdrm",
]
HIDE = """
set -e
mount -t tmpfs none "$1"; mkdir "$1/upper" "$1/work"; folder=$2
for name in $HIDDEN; do
  for file in "$folder/$name".so* "$folder/$name"-*.so*; do
    [ -e "$file" ] && mknod "$SCRATCH/upper/${file##*/}" c 0 0 || true
  done
done
mount -t overlay none -o "lowerdir=$folder,upperdir=$SCRATCH/upper,workdir=$SCRATCH/work" "$folder"
shift 2; exec "$@"
"""


def install(python, *words):
    links = [x for f in find_links() for x in ("--find-links", f)]
    command = [
        sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python, "--only-binary", ":all:", *links
    ]  # fmt: skip
    subprocess.run([*command, *words], check=True)


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """An environment with torch for the CPU and the packages."""
    env, site = venv(tmp_path_factory.mktemp("truth") / "env")
    python = env / "bin" / "python"
    wheels = [w for f in find_links() for w in Path(f).glob("torch-*+cpu*.whl")]
    if not wheels:
        pytest.skip("pip's find-links hold no CPU wheel of torch")
    install(python, str(max(wheels)), "torchvision", *PACKAGES)
    for name in ALONE:
        install(python, "--no-deps", name)
    yield python, site
    shutil.rmtree(env)


def said(packages, what, *before, **environ):
    python, site = packages
    command = [*before, sys.executable, TRUTH, what, python, site]
    done = run_program(command, check=True, env={**os.environ, **environ}, timeout=1800)
    return json.loads(done.stdout)


def assert_the_same(packages, *before, **environ):
    verify = said(packages, "verify", *before, **environ)
    importing = said(packages, "importing", *before, **environ)
    wrong = {
        name: (verify["said"].get(name), importing[name])
        for name in importing
        if verify["said"].get(name, [None])[0] != importing[name][0]
    }
    assert not wrong
    assert len([n for n in PACKAGES if n.lower().replace("_", "-") in importing]) >= 40
    return verify["said"]


def test_the_stage_agrees_with_imports_in_this_system(packages):
    found = assert_the_same(packages)
    assert found["torchaudio"][0] == "fail"  # built for CUDA, beside a torch for the CPU
    assert found["bitsandbytes"][0] == "pass"  # its library for the CPU loads, those for CUDA do not


def test_the_stage_agrees_with_imports_where_libraries_are_hidden(packages, tmp_path):
    folder = next((f for f in Path("/usr/lib").glob("*-linux-gnu") if (f / "libc.so.6").exists()), None)
    if os.geteuid() != 0 or not shutil.which("unshare") or folder is None:
        pytest.skip("hiding libraries takes root, a mount namespace and Debian's folder of libraries")
    hide = ["unshare", "--mount", "sh", "-c", HIDE, "sh", str(tmp_path), str(folder)]
    if subprocess.run(
        [*hide, "true"], env={**os.environ, "HIDDEN": "", "SCRATCH": str(tmp_path)}, check=False
    ).returncode:
        pytest.skip("this machine allows no overlay mount")
    found = assert_the_same(packages, *hide, HIDDEN=" ".join(HIDDEN), SCRATCH=str(tmp_path))
    assert found["opencv-python"][0] == "fail" and "libGL.so.1" in found["opencv-python"][1]
    assert found["lightgbm"] == ["fail", ["libgomp.so.1"]]
    assert found["scipy"][0] == "pass"
