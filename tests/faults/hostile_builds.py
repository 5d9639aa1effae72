"""Build code of projects, packages, source archives and commits: what forbids it, and what is said before it runs."""

from __future__ import annotations

from pathlib import Path

from field import ASK, Field, case
from marked_builds import Marks

KINDS = ("a folder", "an editable folder", "a commit", "a commit without a name", "a source archive")
NAMES = {k: k.rpartition(" ")[2] + ("less" if "without" in k else "") for k in KINDS}


def code(at: Field) -> Marks:
    folder = at.work / "code"
    folder.mkdir()
    return Marks(folder)


def asked(at: Field, marks: Marks, kind: str) -> str:
    """A line of requirements that asks for code which leaves a mark, under the name of its kind."""
    name = NAMES[kind]
    if kind == "a folder":
        return str(marks.project(name))
    if kind == "an editable folder":
        return f"-e {marks.project(f'editable-{name}')}"
    if kind == "a source archive":
        if name not in at.index.wheels:  # the time is in it: made again it has another hash
            marks.archive(at.index, name)
        return name
    address = marks.commit(name)
    return address if "without" in kind else f"{name} @ {address}"


def ran(marks: Marks) -> str | None:
    return f"code ran: {marks.left()}" if marks.left() else None


# --- commands that solve -----------------------------------------------------------------------------------

FILE = ("-r", "requirements.txt")


@case("builds: resolve: only code says what is needed")
def _(at: Field) -> str | None:
    marks = code(at)
    (at.work / "requirements.txt").write_text(f"{marks.project('folder', requires=('jax',))}\n")
    done = at.gpuenv("resolve", *ASK[2:], *FILE)
    return at.harm(done, right=(2,)) or ran(marks) or (
        None if "--framework" in done.err else "it is not said what to name"
    )  # fmt: skip


# --- commands that may run it -------------------------------------------------------------------------------


def forbidden(at: Field, verb: tuple[str, ...], kind: str, option: tuple[str, ...]) -> str | None:
    """A command that solves, where nothing may be built: refused, by the name of what could not be read."""
    marks = code(at)
    (at.work / "requirements.txt").write_text(asked(at, marks, kind) + "\n")
    before = {p.name for p in at.work.iterdir()}
    done = at.gpuenv(*verb, *ASK, *FILE, *option)
    told = " ".join(done.err.split())
    problem = at.harm(done, right=(6,)) or ran(marks)
    if problem:
        return problem
    if "forbids" not in told or NAMES[kind].removesuffix("less") not in told:
        return f"not named: {told[-300:]!r}"
    more = sorted({p.name for p in at.work.iterdir()} - before)
    return f"left: {more}" if more else None


for kind in KINDS:
    case(f"builds: lock --no-build: {kind}")(lambda at, k=kind: forbidden(at, ("lock",), k, ("--no-build",)))
for words in (("create", "env", "--no-verify"), ("bundle", "stick")):
    for kind in ("an editable folder", "a source archive"):
        case(f"builds: {words[0]} --no-build: {kind}")(
            lambda at, w=words, k=kind: forbidden(at, w, k, ("--no-build",))
        )
case("builds: lock --only-binary: a source archive")(
    lambda at: forbidden(at, ("lock",), "a source archive", ("--only-binary", ":all:"))
)


def named_first(at: Field, kind: str) -> str | None:
    """Build code that runs is named before: it ends the build, and its words come last."""
    marks = code(at)
    folder = (
        marks.project("folder")
        if kind == "a folder"
        else marks._code(marks.folder / "commit", "commit", True, ())
    )
    with (folder / "backend.py").open("a") as file:
        file.write("raise SystemExit('the backend ran')\n")
    line = str(folder)
    if kind == "a commit":
        from project_packages import committed

        line = f"commit @ git+file://{committed(folder)}"
    (at.work / "requirements.txt").write_text(f"{line}\n")
    done = at.gpuenv("lock", *ASK, *FILE)
    if problem := at.harm(done, right=(6,)):
        return problem
    first, last = done.err.find("build code"), done.err.find("the backend ran")
    if last < 0 or marks.left() != [folder.name]:
        return f"the code did not run: {done.err[-300:]!r}"
    return None if 0 <= first < last and folder.name in done.err[:last] else "it ran before it was named"


for kind in ("a folder", "a commit"):
    case(f"builds: lock: {kind} is named before its code runs")(lambda at, k=kind: named_first(at, k))


@case("builds: lock: what files state is read without its code")
def _(at: Field) -> str | None:
    marks = code(at)
    folder: Path = marks.project("static", dynamic=False)
    (at.work / "requirements.txt").write_text(f"-e {folder}\n")
    return at.harm(at.gpuenv("lock", *ASK, *FILE), right=(0,)) or ran(marks)
