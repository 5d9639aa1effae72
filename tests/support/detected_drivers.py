"""Machines with a stub driver."""

from pathlib import Path

from provision.detect.query import DriverAnswer

DATA = Path(__file__).parents[1] / "data" / "detect"


def cuda(code):
    return DriverAnswer(source="libcuda", code=code, error=f"libcuda: cuInit returned {code}")


def nvml(code, **more):
    return DriverAnswer(source="nvml", code=code, error=f"NVML code {code}", **more)
