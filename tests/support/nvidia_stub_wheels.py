"""Wheels of NVIDIA's libraries that hold stubs, for plans whose real wheels are gigabytes."""

import base64
import hashlib
import io
import shutil
import zipfile

from loopback import version_for
from packaging.requirements import Requirement

from driver_stub import build_runtime


def wheel_of(name, version, folder):
    """A wheel of files that are there, as they are."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    files = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    digests = {
        p: base64.urlsafe_b64encode(hashlib.sha256(d).digest()).rstrip(b"=").decode()
        for p, d in files.items()
    }
    rows = [f"{p},sha256={digests[p]},{len(d)}" for p, d in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return {f"{info.removesuffix('.dist-info')}-py3-none-any.whl": data.getvalue()}


def add_nvidia_stubs(index, plan, scratch):
    """Stubs of libcudart and cuDNN in the wheels that the plan names."""
    pins = {Requirement(r).name: version_for(Requirement(r)) for r in plan["builds"][0]["requirements"]}
    build_runtime(scratch / "cudart/nvidia/cuda_runtime/lib", "libcudart.so.12")
    cudnn = build_runtime(scratch / "cudnn/nvidia/cudnn/lib", "libcudnn.so.9")
    for part in [
        "adv",
        "cnn",
        "engines_precompiled",
        "engines_runtime_compiled",
        "graph",
        "heuristic",
        "ops",
    ]:
        shutil.copy(cudnn, cudnn.with_name(f"libcudnn_{part}.so.9"))
    for name, folder in (("nvidia-cuda-runtime-cu12", "cudart"), ("nvidia-cudnn-cu12", "cudnn")):
        index.wheels[name] = wheel_of(name, pins[name], scratch / folder)
