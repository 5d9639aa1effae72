"""Shared libraries and extension modules that a test needs, made by the C compiler."""

import subprocess
from pathlib import Path

_MADE: dict[tuple, bytes] = {}
"""The libraries of this process. The compiler takes 30 ms for each, and most tests want the same ones."""


def library(path, *, needs=(), soname=None, runpath=None, rpath=None, source="int gpuenv_test;", more=()):
    """A shared library at `path`. `needs` are libraries made before, by their paths."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    options = [f"-Wl,-soname,{soname or path.name}"]
    if runpath is not None:
        options += ["-Wl,--enable-new-dtags", f"-Wl,-rpath,{runpath}"]
    if rpath is not None:
        options += ["-Wl,--disable-new-dtags", f"-Wl,-rpath,{rpath}"]
    key = source, *options, *more, *(Path(n).read_bytes() for n in needs)
    if key in _MADE:
        path.unlink(missing_ok=True)
        path.write_bytes(_MADE[key])
        path.chmod(0o755)
        return path
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path, "-Wl,--no-as-needed",
         "-Wl,--unresolved-symbols=ignore-all", *options, *more, "-x", "none", *needs],
        input=source, text=True, check=True,
    )  # fmt: skip
    _MADE[key] = path.read_bytes()
    return path


MODULE = """
#include <stddef.h>
typedef struct {{ long a; void *b, *c, *d, *e; const char *name, *doc; long size; void *f, *g, *h, *i, *j; }} Def;
static Def def = {{1, NULL, NULL, NULL, NULL, "{name}", NULL, -1, NULL, NULL, NULL, NULL, NULL}};
extern void *PyModule_Create2(void *, int);
void *PyInit_{name}(void) {{ return PyModule_Create2(&def, 1013); }}
"""


def module(path, **how):
    """An extension module at `path`, named by the file, that Python can import."""
    name = Path(path).name.partition(".")[0]
    return library(path, source=MODULE.format(name=name), **how)


def package(site, name, version, files, *, requires=(), modules=()):
    """The dist-info of a package with these files of `site`; `modules` are Python files that are written."""
    for file, text in dict(modules).items():
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).write_text(text)
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    rows = [
        Path(f).relative_to(site).as_posix() if Path(f).is_absolute() else str(f)
        for f in (*files, *dict(modules))
    ]
    (info / "RECORD").write_text("".join(f"{r},,\n" for r in rows))
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    (info / "METADATA").write_text("\n".join([*lines, *(f"Requires-Dist: {r}" for r in requires)]) + "\n")
    (info / "INSTALLER").write_text("test\n")
