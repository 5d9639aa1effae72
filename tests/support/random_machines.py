"""Requests for random machines, for property tests."""

from hypothesis import strategies as st
from resolve_rules import (
    BRANCHES,
    BUILDS,
    FLOORS,
    GPUS,
    NATIVE,
    PLATFORMS,
    numbers,
    version,
)

from provision.model import FrameworkRequest, Request, Target, TargetGpu


def one_below(driver):
    parts = list(numbers(driver))
    parts[-1] -= 1
    if parts[-1] < 0:
        parts = [parts[0] - 1, 99] if len(parts) > 1 else [parts[0] - 1]
    return ".".join(map(str, parts))


def drivers(system):
    exact = {r[system] for r in (*NATIVE.values(), *FLOORS.values()) if system in r}
    branches = {f"{b}.99" for b in BRANCHES} | {"589.10", "590.0", "494.99", "640.10.02"}
    return sorted(exact | {one_below(d) for d in exact} | branches, key=numbers)


DRIVERS = {s: drivers(s) for s in ("linux", "windows")}


VERSIONS = {f: sorted({r["version"] for r in BUILDS[f]}, key=version) for f in BUILDS}


GLIBCS = ("2.17", "2.26", "2.27", "2.28", "2.31", "2.35", "2.39")


def mostly(usual, anything):
    """Four times in five what many have, so that about half of the questions have an answer."""
    return st.integers(0, 4).flatmap(lambda n: st.sampled_from(anything if n == 0 else usual))


@st.composite
def questions(draw, gpus=(1, 3)):
    framework = draw(st.sampled_from(sorted(BUILDS)))
    platform = draw(mostly(["linux-x86_64"], PLATFORMS))
    system = "windows" if platform.startswith("windows") else draw(mostly(["linux"], ["windows"]))
    common = draw(st.sampled_from([["7.0", "7.5", "8.0", "8.9"], ["8.6", "9.0", "9.0"], ["10.0", "12.0"]]))
    cards = draw(st.lists(mostly(common, sorted(GPUS)), min_size=gpus[0], max_size=gpus[1]))
    exactly = draw(mostly([""], ["==", ">=", "<", "!="]))
    target = Target(
        platform=platform,
        glibc=None if platform.startswith("windows") else draw(mostly(["2.28", "2.35"], GLIBCS)),
        driver=draw(mostly(DRIVERS[system][-25:], [None, *DRIVERS[system]])),
        driver_os=system,
        gpus=tuple(TargetGpu(capability=c) for c in cards),
    )
    request = Request(
        frameworks=(
            FrameworkRequest(
                name=framework, specifier=exactly and exactly + draw(st.sampled_from(VERSIONS[framework]))
            ),
        ),
        index=draw(mostly(["auto"], ["pypi", "pytorch"] if framework == "torch" else ["pypi"])),
        cuda=draw(mostly([None], ["11", "12", "13", "11.8", "12.6"])),
        python=draw(mostly(["3.10", "3.11", "3.12"], [f"3.{minor}" for minor in range(7, 16)])),
        device="cuda",
        pre=draw(st.booleans()),
    )
    return request, target
