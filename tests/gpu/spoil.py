"""Breaks a machine for one process: mounts that only it sees, variables, memory taken by another program.

Everything here runs in a process that has left its parent's mount namespace (`alone`), as root; nothing
on disk is changed. What a mount shows is named by the kernel as the file that it stands for, so a library
in a replaced folder counts as the environment's own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_NAMESPACE, _BIND, _RECURSIVE, _PRIVATE = 0x20000, 4096, 16384, 1 << 18  # sched.h, sys/mount.h


class NotMadeError(Exception):
    """The fault cannot be made on this machine; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """What there is to break: the environment's Python, its site-packages and the frameworks there, its
    cuDNN's folder, another cuDNN's files on this machine, and a folder to write to."""

    python: str
    site: Path
    frameworks: tuple[str, ...]
    cudnn: Path
    other: tuple[Path, ...]
    scratch: Path


def look(python: str, scratch: Path) -> Place:
    """Where things are on this machine. Raises NotMadeError where the environment has no cuDNN of its own."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(
        subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    )
    cudnn = site / "nvidia" / "cudnn" / "lib"
    if not cudnn.is_dir():
        raise NotMadeError(f"{cudnn} is not there")
    found = tuple(f for f in ("torch", "jax", "tensorflow") if (site / f / "__init__.py").exists())
    return Place(
        python=python,
        site=site,
        frameworks=found,
        cudnn=cudnn,
        other=_other_cudnn(cudnn),
        scratch=scratch,
    )


def _other_cudnn(own: Path) -> tuple[Path, ...]:
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    for found in re.findall(r"=> (\S*/libcudnn\.so\.\d+)$", listed, re.MULTILINE):
        if not os.path.realpath(found).startswith(os.path.realpath(own)):
            return tuple(sorted(Path(found).parent.glob("libcudnn*.so.[0-9]")))
    return ()


def alone() -> None:
    """Leave the parent's mount namespace: what is mounted from now on ends with this process."""
    if _LIBC.unshare(_NEW_NAMESPACE):
        raise NotMadeError(f"unshare: {os.strerror(ctypes.get_errno())}")
    _mount("none", "/", None, _RECURSIVE | _PRIVATE)


def _mount(source: str | Path, target: str | Path, kind: str | None, flags: int) -> None:
    words = [os.fsencode(source), os.fsencode(target), kind.encode() if kind else None]
    if _LIBC.mount(*words, ctypes.c_ulong(flags), None):
        raise NotMadeError(f"mount {source} on {target}: {os.strerror(ctypes.get_errno())}")


def bind(source: str | Path, target: str | Path) -> None:
    """Show `source` where `target` is."""
    _mount(source, target, None, _BIND | _RECURSIVE)


def without(folder: Path, names: set[str], place: Place, put: Mapping[str, Path] | None = None) -> None:
    """Show `folder` without some names, and with the files of `put` in place of its own or beside them."""
    shown = place.scratch / ("shown" + str(folder).replace("/", "-"))
    shown.mkdir(parents=True)
    _mount("tmpfs", shown, "tmpfs", 0)
    for entry in sorted(folder.iterdir()):
        if entry.name in names:
            continue
        mine = shown / entry.name
        if entry.is_symlink() and entry.name not in (put or {}):
            mine.symlink_to(entry.readlink())
            continue
        mine.mkdir() if entry.is_dir() else mine.touch()
        bind((put or {}).get(entry.name, entry), mine)
    for name in sorted(set(put or {}) - {entry.name for entry in folder.iterdir()}):
        (shown / name).touch()
        bind((put or {})[name], shown / name)
    bind(shown, folder)


def prepend(variable: str, value: str | Path) -> None:
    """Put an entry in front of a variable's others."""
    old = os.environ.get(variable)
    os.environ[variable] = f"{value}:{old}" if old else str(value)


def other_folder(place: Place) -> Path:
    """A folder with another cuDNN in it, as people put on LD_LIBRARY_PATH."""
    if not place.other:
        raise NotMadeError("this machine has no second cuDNN")
    folder = place.scratch / "other-cudnn"
    folder.mkdir(parents=True, exist_ok=True)
    for path in place.other:
        (folder / path.name).symlink_to(path)
    return folder


def tmpfs(folder: str, options: str) -> None:
    """Show an empty folder in memory, with options of mount."""
    words = [b"tmpfs", os.fsencode(folder), b"tmpfs"]
    if _LIBC.mount(*words, ctypes.c_ulong(0), options.encode()):
        raise NotMadeError(f"mount {folder}: {os.strerror(ctypes.get_errno())}")


def read_only(folder: Path) -> None:
    """Let nobody write below a folder."""
    bind(folder, folder)
    _mount("none", folder, None, _BIND | 32 | 1)  # MS_REMOUNT and MS_RDONLY


def truncated(path: Path, place: Place, size: int | None = None) -> Path:
    """The first half of a file, as a broken download leaves it, or its first bytes."""
    half = place.scratch / path.name
    with path.open("rb") as stream, half.open("wb") as out:
        out.write(stream.read(path.stat().st_size // 2 if size is None else size))
    return half


def flipped(path: Path, place: Place) -> Path:
    """A file with one byte changed, as a failing disk or memory leaves it."""
    other = place.scratch / path.name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    other.write_bytes(data)
    return other


def drivers() -> list[Path]:
    """The folders in which the loader finds libcuda.so.1."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    found = [Path(p).parent for p in re.findall(r"=> (\S*/libcuda\.so\.1)$", listed, re.MULTILINE)]
    entries = [Path(e) for e in os.environ.get("LD_LIBRARY_PATH", "").split(":") if e]
    found += [e for e in entries if (e / "libcuda.so.1").exists()]
    return list(dict.fromkeys(found))


def sitecustomize(text: str, place: Place) -> None:
    """Python that runs at the start of every Python of the user, by PYTHONPATH."""
    folder = place.scratch / "on-pythonpath"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(text)
    prepend("PYTHONPATH", folder)


def linked_environment(place: Place, leave_out: str) -> Path:
    """A venv whose packages are links to the environment's, but for those whose name matches."""
    env = place.scratch / "env"
    code = "import sys; print(sys._base_executable)"
    base = subprocess.run(
        [place.python, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()
    site = env / "lib" / place.site.parent.name / "site-packages"
    site.mkdir(parents=True)
    (env / "bin").mkdir()
    (env / "bin" / "python").symlink_to(base)
    (env / "pyvenv.cfg").write_text(f"home = {Path(base).parent}\ninclude-system-site-packages = false\n")
    for entry in place.site.iterdir():
        if not re.match(leave_out, entry.name) and entry.suffix != ".pth" and entry.name != "__pycache__":
            (site / entry.name).symlink_to(entry)
    return env / "bin" / "python"


def own_file(name: str, site: Path, place: Place) -> Path:
    """Give `site` a copy of one file of a package; the folders above it become its own, and what else is
    in them stays links."""
    folder = Path()
    for part in Path(name).parent.parts:
        folder /= part
        (site / folder).unlink()
        (site / folder).mkdir()
        for entry in (place.site / folder).iterdir():
            (site / folder / entry.name).symlink_to(entry)
    text = (place.site / name).read_text()
    (site / name).unlink()
    (site / name).write_text(text)
    return site / name


# Takes the GPU's memory with plain cudaMalloc until so much is left as the device itself says.
_HOG = """
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1])
free, total, block = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_void_p()
assert cuda.cudaFree(None) == 0
leave, size = int(sys.argv[2]) << 20, 1 << 36
while size >= 1 << 20:
    assert cuda.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
    if free.value - size < leave or cuda.cudaMalloc(ctypes.byref(block), ctypes.c_size_t(size)):
        size >>= 1
assert cuda.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
print("ready", free.value >> 20, flush=True)
sys.stdin.read()
"""

# What NVML counts as free on the first GPU.
_FREE = """
import ctypes, sys
def free_mib():
    nvml, handle, memory = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()
    nvml.nvmlInit_v2()
    nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
    nvml.nvmlDeviceGetMemoryInfo(handle, memory)
    return memory[1] >> 20
"""
_READY = """
print("ready", free_mib(), flush=True)
sys.stdin.read()
"""
# Processes that say what is free once they have reserved their share.
_JAX_RESERVES = f"{_FREE}import jax; jax.numpy.ones(8).block_until_ready()\n{_READY}"
# As it comes TensorFlow leaves 1.5 GiB of a big GPU; a program that sets a limit reserves just that.
_TENSORFLOW_RESERVES = f"""{_FREE}
import tensorflow
gpu = tensorflow.config.list_physical_devices("GPU")[0]
limit = tensorflow.config.LogicalDeviceConfiguration(memory_limit=free_mib() - int(sys.argv[1]))
tensorflow.config.set_logical_device_configuration(gpu, [limit])
tensorflow.ones(8).numpy()
{_READY}"""
NEARLY_FULL_MIB = 1400


@contextlib.contextmanager
def _beside(argv: list[str], env: Mapping[str, str]) -> Iterator[str]:
    """Another program that says it is ready, and is ended afterwards."""
    program = subprocess.Popen(argv, env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout
        line = program.stdout.readline()
        if not line.startswith("ready"):
            raise NotMadeError(f"the program beside ended with {program.wait()}")
        yield line.strip()
    finally:
        program.kill()
        program.wait()


def hog(place: Place, leave_mib: int) -> contextlib.AbstractContextManager[str]:
    """Another process takes all of the first GPU's memory but so many MiB."""
    files = sorted(place.site.glob("nvidia/*/lib/libcudart.so.[0-9]*"))
    if not files:
        raise NotMadeError("the environment has no libcudart")
    return _beside([place.python, "-I", "-S", "-c", _HOG, str(files[0]), str(leave_mib)], os.environ)


@contextlib.contextmanager
def preallocation(place: Place, framework: str) -> Iterator[str]:
    """A JAX or TensorFlow process that reserves nearly the whole GPU, as it does when it is told to. Asked
    for more than there is, both take a tenth less: so several shares are tried."""
    for argv, told in _shares(framework):
        with _beside([place.python, "-c", *argv], {**os.environ, **told}) as line:
            if int(line.split()[1]) < NEARLY_FULL_MIB:
                yield line
                return
    raise NotMadeError(f"{framework} left more of the GPU free than asked")


def _shares(framework: str) -> Iterator[tuple[list[str], dict[str, str]]]:
    if framework == "jax":
        for fraction in ("0.992", "0.990", "0.988", "0.985"):
            told = {"XLA_PYTHON_CLIENT_PREALLOCATE": "true", "XLA_PYTHON_CLIENT_MEM_FRACTION": fraction}
            yield [_JAX_RESERVES], told
    else:
        for left in ("1000", "1300", "1600", "1900"):  # its context takes some of it
            yield [_TENSORFLOW_RESERVES, left], {"TF_FORCE_GPU_ALLOW_GROWTH": "false"}
