"""Locks as values and as files, for the tests of `gpuenv export`."""

import hashlib

from known import KNOWN

from provision import export
from provision.export.subject import GpuenvSource
from provision.model import Lock, LockedPackage, Plan, PlannedBuild, Target, TargetGpu
from provision.wheels import pylock as lock

MAIN, PYTORCH = "https://index.example/simple", "https://torch.example/whl/cu126"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONDA = "https://conda.example/conda-forge"
FORMS = tuple(export.FORMATS)
VENV_FORMS = tuple(f for f in FORMS if f != "conda-lock")
CONDA_FORMS = tuple(f for f in FORMS if f not in ("requirements", "pylock", "uv"))
IMAGES = KNOWN.images


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def wheel(name, version, index=MAIN, tag="py3-none-any", host="https://files.example"):
    file = f"{name.replace('-', '_')}-{version.replace('+', '%2B')}-{tag}.whl"
    return LockedPackage(
        name=name, version=version, url=f"{host}/{file}", sha256=digest(file), index=index, size=10
    )


def conda(name, version, build, channel=CONDA, **more):
    file = f"{name}-{version}-{build}.conda"
    return LockedPackage(
        name=name, version=version, url=f"{channel}/linux-64/{file}", sha256=digest(file), md5=digest(file)[:32],
        index=channel, **more,
    )  # fmt: skip


TARGET = Target(
    platform="linux-x86_64", glibc="2.35", driver="550.54.15", driver_os="linux",
    gpus=(TargetGpu(capability="7.5", name="Tesla T4"), TargetGpu(capability="9.0")),
)  # fmt: skip
PACKAGES = (
    wheel("torch", "2.14.1+cu126", PYTORCH, "cp312-cp312-manylinux_2_28_x86_64"),
    wheel("nvidia-cudnn-cu12", "9.10.2.21", PYTORCH, "py3-none-manylinux_2_27_x86_64"),
    wheel("numpy", "2.3.0", tag="cp312-cp312-manylinux_2_27_x86_64.manylinux_2_28_x86_64"),
    wheel("filelock", "3.20.0"),
    wheel("pip", "26.0"),
)


def of(
    packages=PACKAGES, *, target=TARGET, device="cuda", manager="venv", python="3.12", builds=None, **more
):
    """A lock of torch for CUDA 12.6 on a T4 and an H200, or of what is given."""
    torch = PlannedBuild(
        framework="torch", version="2.14.1", cuda="12.6", index="pytorch",
        requirements=("torch===2.14.1+cu126", "nvidia-cudnn-cu12==9.10.2.21"), cudnn="9.10.2.21",
    )  # fmt: skip
    plan = Plan(
        builds=(torch,) if builds is None else builds, python=python, platform=target.platform, manager=manager,
        device=device, target=target, cuda_major="12" if device == "cuda" else None, cudnn="9.10.2.21", **more,
    )  # fmt: skip
    return Lock(manager=manager, target=target, plan=plan, packages=tuple(packages))


# What no hash holds, and what lies on the machine that locked.
COMMITTED = LockedPackage(
    name="thing", version="1.0", url=f"git+https://git.example/thing@{COMMIT}", unhashed=True
)
FOLDER = LockedPackage(
    name="mine", version="0.1", url="file:///home/u/my%20project", unhashed=True, editable=True
)
SOURCE = LockedPackage(
    name="old", version="0.9", url="https://files.example/old-0.9.tar.gz", sha256=digest("old"), index=MAIN
)
LOCAL = LockedPackage(
    name="local", version="1.0", url="file:///srv/wheels/local-1.0-py3-none-any.whl", sha256=digest("local")
)
MIXED = (*PACKAGES, COMMITTED, FOLDER, SOURCE, LOCAL)

CONDA_PACKAGES = (
    conda("python", "3.12.11", "h9e4cc4f_0_cpython", depends=("__glibc >=2.28,<3.0.a0", "libzlib >=1.3")),
    conda("pytorch", "2.7.1", "cuda129_py312_h1_300", depends=("__cuda >=12", "python >=3.12,<3.13.0a0")),
    conda("cuda-version", "12.9", "h4f385c5_3"),
    conda("cudnn", "9.10.1.4", "hbcb9cd8_1"),
    wheel("einops", "0.8.1"),
)


def of_conda(packages=CONDA_PACKAGES, **more):
    build = PlannedBuild(
        framework="torch", version="2.7.1", cuda="12.9", index="conda-forge",
        requirements=("pytorch 2.7.1 cuda129_py312_h1_300",), cudnn="9.10.1.4",
    )  # fmt: skip
    return of(packages, manager="conda", builds=(build,), **more)


GPUENV = GpuenvSource(wheel="gpuenv-0.1.0-py3-none-any.whl", sha256=digest("gpuenv"))
ADDRESS = GpuenvSource(address=f"git+https://git.example/gpuenv@{COMMIT}")


def subject(made, **more):
    name = "pylock.toml" if made.manager == "venv" else "conda-lock.yml"
    return export.Subject(
        lock=made, **{"lock_file": name, "images": IMAGES, "folder": "/home/u", "gpuenv": GPUENV, **more}
    )


def text(form, made=None, **more):
    return export.render(form, subject(made or of(), **more))


def written(path, made):
    """A lock file of a value."""
    lock.write(path, made)
    return path
