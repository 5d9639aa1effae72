"""Choose the base image or CI machine for a lock from profiles/images.yaml."""

from __future__ import annotations

import re

from ..errors import UsageError
from ..model import BaseImage, Lock
from . import export_subject_and_shared_texts as s
from .export_subject_and_shared_texts import Subject

# The older names of manylinux tags (PEP 600)
_OLD_NAMES = {"manylinux2014": 17, "manylinux2010": 12, "manylinux1": 5}
# TensorFlow and JAX wheels without nvidia-* packages find CUDA on the loader path. Such wheels of torch contain CUDA.
_CARRIES_CUDA = "torch"


def image(subject: Subject, use: str = "container") -> BaseImage:
    """Return the base image: the one with the oldest glibc that supports every file of the lock.

    It has the lock's Python if such an image is known, and CUDA only if the lock has none. Raises UsageError.
    """
    lock = subject.lock
    fitting = [i for i in subject.images if i.use == use and lock.plan.platform in i.platform]
    fitting = [i for i in fitting if _minor(i.glibc or "0") >= needed_glibc(lock)]
    cuda = cuda_of_base(lock)
    fitting = [i for i in fitting if (_brings(i, lock, cuda) if cuda else not i.cuda)]
    if not fitting:
        raise _none_fits(lock, cuda)
    with_python = [i for i in fitting if i.python == lock.plan.python]
    newest = max(_numbers(i.python or "0") for i in fitting)
    chosen = with_python or [i for i in fitting if _numbers(i.python or "0") == newest]
    return min(chosen, key=lambda i: _minor(i.glibc or "0"))


def runner(subject: Subject) -> str:
    """Return the label of the CI machine. Raises UsageError."""
    lock = subject.lock
    here = [i for i in subject.images if i.use == "runner" and lock.plan.platform in i.platform]
    fitting = [i for i in here if _minor(i.glibc or "0") >= needed_glibc(lock)]
    if not fitting:
        raise _none_fits(lock, None)
    return max(fitting, key=lambda i: _minor(i.glibc or "0")).image


def action(subject: Subject, name: str) -> str:
    """Return an action with its version: "actions/checkout@v6"."""
    return next(i.image for i in subject.images if i.use == "action" and i.image.startswith(f"{name}@"))


def gpuenv_python(subject: Subject) -> str:
    """Return the Python for gpuenv in a CI: the lock's, if an image with it is known."""
    known = [i.python for i in subject.images if i.use == "container" and i.python and not i.cuda]
    python = subject.lock.plan.python
    return python if python in known and python else max(known, key=_numbers)


def cuda_of_base(lock: Lock) -> str | None:
    """Return the CUDA that the base image must have, because the lock's wheels need it and have none."""
    if lock.manager == "conda" or any(p.name.startswith("nvidia-") for p in lock.packages):
        return None
    return next((b.cuda for b in lock.plan.builds if b.cuda and b.framework != _CARRIES_CUDA), None)


def needed_glibc(lock: Lock) -> int:
    """Return the minor version of the oldest glibc 2 that supports every file of the lock.

    Wheels state it in their names, conda packages in their dependencies.
    """
    glibc_minors = [0]
    for package in lock.packages:
        name = s.file_name(package)
        if name.endswith(".whl"):
            tags = name.removesuffix(".whl").rpartition("-")[2]
            minors = [int(m) for m in re.findall(r"manylinux_2_(\d+)_", tags)]
            minors += [minor for old, minor in _OLD_NAMES.items() if f"{old}_" in tags]
            glibc_minors += [min(minors)] if minors else []  # a wheel with several tags runs on the oldest
        for need in package.depends:
            match = re.match(r"__glibc\s.*?>=\s*2\.(\d+)", need)
            glibc_minors += [int(match[1])] if match else []
    return max(glibc_minors)


def _brings(one: BaseImage, lock: Lock, cuda: str) -> bool:
    cudnn = next((b.cudnn for b in lock.plan.builds if b.cudnn), None)
    same = one.cuda is not None and _numbers(one.cuda)[:2] == _numbers(cuda)[:2]
    return same and (not cudnn or not one.cudnn or _numbers(cudnn)[:1] == _numbers(one.cudnn)[:1])


def _none_fits(lock: Lock, cuda: str | None) -> UsageError:
    if cuda:
        who = s.oneline(", ".join(f"{b.framework} {b.version}" for b in lock.plan.builds if b.cuda))
        return UsageError(
            f"{who} has no CUDA, and gpuenv knows no base image with CUDA {s.oneline(cuda)}",
            hint="lock a newer version with CUDA in its wheels, or use --manager conda",
        )
    return UsageError(
        f"gpuenv knows no base image for {s.oneline(lock.plan.platform)} with glibc 2.{needed_glibc(lock)}",
        hint="add a row to images.yaml in a folder given with --profiles",
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version))


def _minor(glibc: str) -> int:
    return (*_numbers(glibc), 0, 0)[1]
