"""Write the README.txt of a bundle."""

from __future__ import annotations

from ..model import Bundle, BundlePlan, BundlePython, HostClass, Target

_MOST_HOSTS = 20
"""Hosts of a class that the README names."""


def text(bundle: Bundle) -> str:
    """Return README.txt with the commands and their requirements."""
    lines = [
        *(_plans(bundle) if bundle.plans else _one_plan(bundle)),
        "",
        *_commands(bundle),
        "",
        "The commands use no network, and compare every file with gpuenv-bundle.json first.",
    ]
    for python, archive in _pythons(bundle).items():
        if archive:
            said = f"Python {archive.version} is included, and is used if the machine has no Python {_minor(archive.version)}."
            lines += ["", said, *_without_python(bundle, archive)]
        else:
            lines += ["", f"Python is not included: the machine needs Python {python}."]
    return "\n".join([*lines, *(f"Note: {n}." for n in bundle.notes)]) + "\n"


def _one_plan(bundle: Bundle) -> list[str]:
    return [
        f"{', '.join(bundle.frameworks)} for {bundle.device}, for machines without a network:",
        f"{_describe(bundle.target)}, Python {bundle.python}. Created by gpuenv {bundle.gpuenv}.",
    ]


def _plans(bundle: Bundle) -> list[str]:
    """Return what `create` installs on the machines of each class."""
    count = sum(len(c.hosts) for p in bundle.plans for c in p.classes)
    lines = [
        f"For {count} machines without a network. Created by gpuenv {bundle.gpuenv}.",
        "`gpuenv create` chooses the lock of the machine's class:",
    ]
    for plan in bundle.plans:
        lines += ["", f"{plan.lock}: {', '.join(plan.frameworks)} for {plan.device}, Python {plan.python}"]
        lines += [row for one in plan.classes for row in _class_rows(one)]
    for missing in bundle.unserved:
        name = missing.host or ", ".join(missing.classes)
        lines += ["", f"Nothing for {name}: {missing.reason}"]
    return lines


def _class_rows(one: HostClass) -> list[str]:
    more = len(one.hosts) - _MOST_HOSTS
    hosts = ", ".join(one.hosts[:_MOST_HOSTS]) + (f" and {more} more" if more > 0 else "")
    return [f"  class {one.id}: {_describe(one.target)}", f"    {hosts}"]


def _describe(target: Target) -> str:
    """Return a machine in words: "linux-x86_64, driver 580.95.05, NVIDIA B200 (10.0)"."""
    gpus = ", ".join(f"{g.name or 'GPU'} ({g.capability})" for g in target.gpus)
    driver = f"driver {target.driver}" if target.driver else ""
    return ", ".join(filter(None, (target.platform, driver, gpus)))


def _pythons(bundle: Bundle) -> dict[str | None, BundlePython | None]:
    """Return the archives by the Python that a plan needs."""
    plans: tuple[Bundle | BundlePlan, ...] = bundle.plans or (bundle,)
    return {plan.python: plan.archive for plan in plans}


def _commands(bundle: Bundle) -> list[str]:
    windows = bundle.target.platform.startswith("windows")
    python, folder = ("py", r"gpuenv-tool\Scripts") if windows else ("python3", "gpuenv-tool/bin")
    slash = "\\" if windows else "/"
    wanted = "'gpuenv[conda]'" if bundle.manager == "conda" else "gpuenv"
    return [
        "In this folder, with any Python 3.10 or newer:",
        "",
        f"  {python} -m venv gpuenv-tool && {folder}{slash}pip install --no-index --find-links gpuenv {wanted}",
        f"  {folder}{slash}gpuenv create ENV --bundle .",
        "",
        "ENV is the path of the new environment.",
    ]


def _without_python(bundle: Bundle, archive: BundlePython) -> list[str]:
    major, minor = (int(n) for n in archive.version.split(".")[:2])
    if bundle.target.platform.startswith("windows") or (major, minor) < (3, 10):
        return []
    return [
        "Without any Python on the machine, unpack the archive with tar xzf, and use python/bin/python3 instead of python3."
    ]


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
