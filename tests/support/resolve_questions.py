"""Requests for named machines, over the profiles that are shipped."""

from known import KNOWN
from packaging.requirements import Requirement

from provision.model import FrameworkRequest, Request, Target
from provision.resolve import resolve
from provision.resolve.boards import find_gpu


def question(*frameworks, driver=None, gpus=(), glibc="2.35", platform="linux-x86_64", **more):
    """A request for "torch==2.6" and the like, and its target. GPUs are capabilities or board names."""
    target = Target(
        platform=platform,
        glibc=None if platform.startswith("windows") else glibc,
        driver=driver,
        driver_os=more.pop("driver_os", "windows" if platform.startswith("windows") else "linux"),
        gpus=tuple(find_gpu(g, KNOWN.gpus) for g in gpus),
        forward_compat=more.pop("forward_compat", None),
    )
    wanted = tuple(
        FrameworkRequest(name=r.name, specifier=str(r.specifier)) for r in map(Requirement, frameworks)
    )
    return Request(frameworks=wanted, **{"device": "cuda", "python": "3.12"} | more), target


def ask(*frameworks, available=None, known=KNOWN, **machine):
    """The plan for what `question` asks."""
    return resolve(*question(*frameworks, **machine), known, available)


V100, R580 = {"gpus": ["V100"], "driver": "580.95.05"}, {"driver": "580.95.05"}
