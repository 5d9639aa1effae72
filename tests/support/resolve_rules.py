"""The rules of resolve, written again from the documents they come from, over the raw YAML.

Nothing of the project's own reading or judging is used here, and each rule is a function of its own, so
that a mistake must be made twice to go unseen.
"""

import re
from functools import cache
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

DATA = Path(__file__).parents[2] / "profiles"
version = cache(Version)
spec = cache(SpecifierSet)


@cache
def tables(name):
    return yaml.load((DATA / f"{name}.yaml").read_text(), Loader=yaml.CSafeLoader)


def rows(name, table):
    return [row for t in tables(name) if t["table"] == table for row in t["rows"]]


PLATFORMS = ("linux-x86_64", "linux-aarch64", "windows-x86_64")
BUILDS = {f: rows(f, "builds") for f in ("torch", "tensorflow", "jax")}
CUDNN = rows("cudnn", "cudnn")
GPUS = {row["capability"]: row for row in rows("gpus", "gpus")}
FLOORS = {row["major"]: row for row in rows("drivers", "majors")}
NATIVE = {row["cuda"]: row for row in rows("drivers", "cuda")}
BRANCHES = {row["branch"]: row["cuda"] for row in rows("drivers", "branches")}
KNOWN_BAD = {
    (row["package"], row["version"]): row["effect"]
    for row in rows("known_bad", "known_bad")
    if "gpu" not in row  # no GPU of these questions meets a condition
}


@cache
def numbers(text):
    return tuple(int(part) for part in text.split("."))


def floor_of(cuda, system):
    """Any CUDA of a major runs from the major's first driver on; 10.2 has no such promise."""
    row = FLOORS.get(cuda.split(".")[0]) or NATIVE[cuda]
    return row[system]


def speaks(driver, system, cuda):
    """Whether this driver speaks that CUDA itself: by its own floor, else by its branch."""
    floor = NATIVE.get(cuda, {}).get(system)
    if floor:
        return numbers(driver) >= numbers(floor)
    known = [b for b in BRANCHES if int(b) <= numbers(driver)[0]]
    newest = BRANCHES[max(known, key=int)] if known else "0.0"
    return numbers(newest) >= numbers(cuda)


# --- rules about one build, each giving the codes of its objections ------------------------------


def by_driver(row, target):
    if target.driver and numbers(target.driver) < numbers(floor_of(row["cuda"], target.driver_os)):
        yield "driver_too_old"


def by_driver_and_gpu(row, target):
    """Kepler ends before 495, Maxwell to Volta before 590; a GPU is not known to an older driver."""
    for gpu in target.gpus if target.driver else ():
        known, branch = GPUS[gpu.capability], numbers(target.driver)[0]
        if "last_driver" in known:
            after = min(int(b) for b in BRANCHES if int(b) > int(known["last_driver"]))
            if branch >= after:
                yield "driver_drops_gpu"
        if "first_driver" in known and branch < int(known["first_driver"]):
            yield "driver_too_old"


def one_device(capability):
    return "11.0" if capability == "10.1" else capability


@cache
def compiled_for(kernels, capability):
    """Kernels in machine code: same major, no higher minor; Tegra parts their own and no others."""
    have = [k.removesuffix("+PTX") for k in kernels.split()]
    if "tegra" in GPUS[capability]:
        return one_device(capability) in {one_device(k) for k in have}
    want = numbers(capability)
    return any(
        numbers(k)[0] == want[0] and numbers(k)[1] <= want[1] and "tegra" not in GPUS.get(k, {}) for k in have
    )


@cache
def from_ptx(kernels, capability):
    """PTX for something older, which the driver compiles."""
    ptx = [numbers(k.removesuffix("+PTX")) for k in kernels.split() if k.endswith("+PTX")]
    return any(p <= numbers(one_device(capability)) for p in ptx)


def by_kernels(row, target):
    cuda = numbers(row["cuda"])
    for gpu in (g.capability for g in target.gpus):
        known = GPUS[gpu]
        if "last_cuda" in known and cuda > numbers(known["last_cuda"]) and gpu != "10.1":
            yield "gpu_too_old"
        if compiled_for(row["kernels"], gpu):
            if gpu in {"10.3", "12.1"} and cuda < (12, 9):
                yield "gpu_too_new"
        elif from_ptx(row["kernels"], gpu) and cuda >= numbers(known["first_cuda"]):
            if target.driver and not speaks(target.driver, target.driver_os, row["cuda"]):
                yield "ptx_needs_driver"
        else:
            have = [numbers(k.removesuffix("+PTX")) for k in row["kernels"].split()]
            if numbers(gpu) < max(have):
                yield "gpu_too_old"
            if numbers(gpu) > min(have):
                yield "gpu_too_new"


def releases(row):
    """The cuDNN releases that the build's requirement allows, of its CUDA major, for its platform."""
    return _releases(row["cudnn"], row["cuda"].split(".")[0], row["platform"])


@cache
def _releases(bounds, major, platform):
    mine = [c for c in CUDNN if c["cuda"] == major and c["platform"] == platform]
    return [c for c in mine if version(c["version"]) in spec(bounds)]


def elsewhere(row):
    """A pin that only another platform has on the index: the kernels are those of the release."""
    exact = row["cudnn"].startswith("==")
    return [r for p in PLATFORMS if exact for r in _releases(row["cudnn"], row["cuda"].split(".")[0], p)]


def cudnn_serves(release, target):
    return all(
        compiled_for(release["kernels"], g.capability) or from_ptx(release["kernels"], g.capability)
        for g in target.gpus
    )


def usable(row, target):
    """Releases that may be taken: not yanked, not refused, for this glibc and every GPU."""
    pinned = row["cudnn"].startswith("==")
    return [
        c
        for c in releases(row)
        if cudnn_serves(c, target)
        and fits_glibc(c, target)
        and (pinned or "yanked" not in c)
        and KNOWN_BAD.get((c["package"], c["version"])) != "refuse"
    ]


def fits_glibc(row, target):
    return "glibc" not in row or target.glibc is None or numbers(row["glibc"]) <= numbers(target.glibc)


def wants_package(row):
    """Whether cuDNN comes as a package of its own, with a glibc of its own."""
    return any(r.startswith("nvidia-cudnn") for r in row.get("requires", ()))


def by_cudnn(row, target):
    known = releases(row) or elsewhere(row)
    if known and not any(cudnn_serves(c, target) for c in known):
        yield "cudnn_drops_gpu"
    elif releases(row) and wants_package(row) and not usable(row, target):
        yield "glibc_too_old"
        yield "cudnn_drops_gpu"


def by_glibc(row, target):
    if not fits_glibc(row, target):
        yield "glibc_too_old"


def by_request(row, request):
    wanted = request.frameworks[0].specifier
    if request.index != "auto" and row["index"] != request.index:
        yield "index_excluded"
    if request.cuda and numbers(row["cuda"])[: len(numbers(request.cuda))] != numbers(request.cuda):
        yield "not_requested"
    if not spec(wanted).contains(version(row["version"]), prereleases=True):
        yield "not_requested"
    if version(row["version"]).is_prerelease and not request.pre:
        yield "prerelease"
    if "yanked" in row and not wanted.startswith("=="):
        yield "yanked"


def by_python(row, request):
    able = set(row["python"].split()) - {u.split(":")[0] for u in row.get("unresolvable", ())}
    if request.python not in row["python"].split() or request.python not in able:
        yield "python_unsupported"


RULES = (by_driver, by_driver_and_gpu, by_kernels, by_cudnn, by_glibc)


def codes(row, request, target):
    found = {code for rule in RULES for code in rule(row, target)}
    return found | set(by_request(row, request)) | set(by_python(row, request))


def preference(row, request, target):
    """Newest version; CUDA that the driver speaks itself; highest CUDA; the default index."""
    native = not target.driver or speaks(target.driver, target.driver_os, row["cuda"])
    return version(row["version"]), native, numbers(row["cuda"]), row["index"] == "pypi"


def key(row):
    return row["version"], row.get("cuda"), row["index"]


# --- rules about two builds in one environment ----------------------------------------------------


@cache
def needs(requires):
    return {r.name: str(r.specifier) for r in map(Requirement, requires)}


@cache
def meet(one, other):
    """Whether two bounds have a version in common: if so, one that either of them names."""
    named = re.findall(r"[\d.]+\d", f"{one},{other}")
    return not named or any(v in spec(one) and v in spec(other) for v in named)


def together(one, other, target):
    """One CUDA major, a version of every package that suits both, and one cuDNN: of the wheel of
    either or of the package, and never both."""
    if one["cuda"].split(".")[0] != other["cuda"].split(".")[0]:
        return False
    a, b = (needs(tuple(r.get("requires", ()))) for r in (one, other))
    if not all(meet(a[name], b[name]) for name in a.keys() & b.keys()):
        return False
    if wants_package(one) and wants_package(other):
        mine, theirs = ({c["version"] for c in usable(r, target)} for r in (one, other))
        return bool(mine & theirs)
    carries = [r for r in (one, other) if "local" in r and not wants_package(r)]
    return not (carries and (wants_package(one) or wants_package(other)))
