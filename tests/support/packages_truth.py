"""What importing says of every package of an environment, and what the stage `packages` says: printed as JSON.

Run as a program: `packages_truth.py importing PYTHON SITE`, `packages_truth.py verify PYTHON SITE`.
"""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LATER = {"pyzbar": ["pyzbar.pyzbar"]}
"""Modules that open a package's library, where the package itself does not."""
OPTIONAL = {"numba": ["numba.np.ufunc.omppool", "numba.np.ufunc.tbbpool"]}
"""Modules that a package tries to import and does without (numba's threading layers, by its documentation)."""
CHILD = r"""
import ctypes, importlib, json, os, re, sys
own = None
said = json.loads(sys.argv[1])
refusal = re.compile("cannot open shared object file|version `[^']*' not found|file too short|library not found|[Uu]nable to find (z|lib)|failed to find libmagic|operator torchvision::\\w+ does not exist")  # its library was not loaded, which it passes over
def chain(error):
    text = []
    while error is not None and len(text) < 10:
        text.append("%s: %s" % (type(error).__name__, error))
        error = error.__cause__ or error.__context__
    return " | ".join(text)
def attempt(call, name):
    try:
        call(name)
    except BaseException as error:
        text = chain(error)
        return text if refusal.search(text) and not (own and own in text) else None
own = attempt(importlib.import_module, "_tkinter")  # Python's own, which some packages import
out = {"top": {}, "modules": {}, "libraries": {}}
for name in said["top"]:
    out["top"][name] = attempt(importlib.import_module, name)
for name in said["modules"]:
    print("IMPORTING", name, file=sys.stderr, flush=True)
    out["modules"][name] = attempt(importlib.import_module, name)
mapped = {line.split(None, 5)[5].rstrip("\n") for line in open("/proc/self/maps") if line.count(" ") > 5 and "/" in line}
for path in said["libraries"]:
    loaded = os.path.realpath(path) in mapped or path in mapped
    print("LOADING", path, file=sys.stderr, flush=True)
    out["libraries"][path] = None if loaded else attempt(ctypes.CDLL, path)
print("\n@@" + json.dumps(out), flush=True)
os._exit(0)
"""


def files_of(dist, site):
    """The extension modules of a distribution by name, and its other shared libraries."""
    modules, libraries = {}, []
    for file in dist.files or ():
        path = os.path.normpath(f"{site}/{file}")
        if not re.search(r"\.so(\.\d+)*$", path) or not Path(path).exists():
            continue
        parts = str(file).split("/")
        stem, _, suffix = parts[-1].partition(".")
        tag = "cpython-{}{}".format(*sys.version_info)
        tagged = suffix == "abi3.so" or suffix.startswith(f"{tag}-")
        if ".cpython-" in parts[-1] and not tagged:
            continue
        plain = suffix == "so" and f"PyInit_{stem}".encode() in Path(path).read_bytes()
        if (tagged or plain) and all(p.isidentifier() for p in (*parts[:-1], stem)):
            modules[".".join((*parts[:-1], stem))] = path
        else:
            libraries.append(path)
    return modules, libraries


def tops_of(dist, modules):
    """The modules that users of a distribution import: those with compiled files, and the one with its name."""
    names = {
        str(f).split("/")[0].removesuffix(".py") for f in dist.files or () if str(f).endswith((".py", ".so"))
    }
    name = dist.metadata["Name"].lower().replace("-", "_")
    named = [n for n in names if n.lower() == name]
    tops = dict.fromkeys([*named, *(m.split(".")[0] for m in modules)])
    return list(tops) or sorted(n for n in names if n.isidentifier() and (Path(n).suffix == ""))[:3]


def importing(python, site, dist):
    """fail: importing it fails for a library; warn: importing a module of it, or opening all libraries of a folder."""
    modules, libraries = files_of(dist, site)
    name = dist.metadata["Name"].lower()
    names = [*modules, *LATER.get(name, ())]
    skipped = set(OPTIONAL.get(name, ()))
    while True:
        asked = {
            "top": tops_of(dist, modules), "modules": [n for n in names if n not in skipped],
            "libraries": [x for x in libraries if x not in skipped],
        }  # fmt: skip
        done = subprocess.run(
            [python, "-c", CHILD, json.dumps(asked)],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            timeout=600,
        )
        if "\n@@" in done.stdout:
            break
        crashed = re.findall(r"^(?:IMPORTING|LOADING) (.*)$", done.stderr, re.MULTILINE)
        if not crashed:
            return "crash", [done.stderr[-300:]]
        skipped.add(crashed[-1])  # a crash says nothing of libraries
    said = json.loads(done.stdout.rpartition("\n@@")[2])
    why = [e for kind in said.values() for e in kind.values() if e]
    if any(said["top"].values()):
        return "fail", why
    groups = {}
    for path, error in said["libraries"].items():
        groups.setdefault(re.split(r"/(?:plugins|qml)(?:/|$)", str(Path(path).parent))[0], []).append(error)
    if any(said["modules"].values()) or any(all(errors) for errors in groups.values()):
        return "warn", why
    return "pass", why


def verify(python, site):
    """What the stage says of every package, and whether it says so with --quick."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from provision.model import Environment
    from provision.profiles import load
    from provision.verify.libraries import PythonPaths
    from provision.verify.packages import import_packages, read_packages

    version = "{}.{}.{}".format(*sys.version_info)
    prefix = str(Path(python).parents[1])
    env = Environment(path=prefix, manager="venv", python=python)
    found = PythonPaths(prefix=prefix, version=version, sites=(site,), roots=(site,))
    reading = read_packages(env, found, dict(os.environ), load())
    attempts = import_packages(reading, 300.0)
    said = {p.name: ("pass", []) for p in reading.packages}
    for one in attempts:
        kind = "fail" if one.refused else "pass" if one.loads else "warn"
        said[one.doubtful.package.name] = kind, sorted({p.library for p in one.doubtful.problems})
    return {"said": said, "files": reading.files, "nominated": len(reading.doubtful)}


def main():
    """Print what was asked for."""
    what, python, site = sys.argv[1:4]
    if what == "verify":
        print(json.dumps(verify(python, site)))
        return
    dists = {
        re.sub(r"[-_.]+", "-", d.metadata["Name"]).lower(): d
        for d in importlib.metadata.distributions(path=[site])
    }
    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(dists, pool.map(lambda d: importing(python, site, d), dists.values()), strict=True))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
