"""Build code of projects, packages, source archives and commits: commands that read run none of it."""

from __future__ import annotations

from pathlib import Path

from field import ASK, Field, case
from marked_builds import Marks

KINDS = ("a folder", "an editable folder", "a commit", "a commit without a name", "a source archive")
NAMES = {k: k.rpartition(" ")[2] + ("less" if "without" in k else "") for k in KINDS}
MARK = "open({!r}, 'w').close()\n"


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


def write_project(at: Field, marks: Marks, kinds: tuple[str, ...]) -> None:
    """A project of this folder that asks for code of these kinds and has some itself, and a log."""
    if "brings" not in at.index.wheels:
        version = at.gpuenv("resolve", "--json", *ASK).json["builds"][0]["version"]
        at.index.add("brings", "1.0", requires=(f"jax=={version}",))
    lines = ["brings", *(asked(at, marks, k) for k in kinds)]
    (at.work / "requirements.txt").write_text("\n".join(lines) + "\n")
    marks._code(at.work, "mine", True, ())
    (at.work / "setup.py").write_text(MARK.format(str(marks.folder / "mark-setup")))
    (at.work / "train.py").write_text("import jax, backend\n")
    (at.work / "log.txt").write_text("RuntimeError: Found no NVIDIA driver on your system.\n")


def write_environment(at: Field, marks: Marks) -> None:
    """An environment with code that leaves a mark when its Python starts or imports the framework."""
    env = at.made()
    for name, text in (
        ("sitecustomize.py", MARK),
        ("zzz.pth", f"import sys; {MARK}"),
        ("jax/__init__.py", MARK),
    ):
        (at.site(env) / name).write_text(text.format(str(marks.folder / f"mark-{name[:3]}")))
    at.gpuenv.env |= {"VIRTUAL_ENV": str(env), "PATH": f"{env}/bin:{at.gpuenv.env['PATH']}"}


def ran(marks: Marks) -> str | None:
    return f"code ran: {marks.left()}" if marks.left() else None


# --- commands that read -----------------------------------------------------------------------------------

FILE = ("-r", "requirements.txt")
RESOLVE: dict[str, tuple[object, ...]] = {
    "resolve": ("resolve", *ASK[2:], *FILE),
    "resolve --framework": ("resolve", *ASK, *FILE),
    "resolve --project": ("resolve", *ASK, "--project", "."),
    "create --dry-run": ("create", "env", *ASK, *FILE, "--dry-run"),
}
READING: dict[str, tuple[object, ...]] = {
    "detect": ("detect",), "init": ("init",), "init --framework": ("init", "--framework", "jax"), "list": ("list",),
    "report": ("report", ".venv"), "report of this folder": ("report",), "diagnose": ("diagnose", "log.txt"),
    "export": ("export", ".venv", "--format", "requirements"), "export --format cyclonedx": ("export", ".venv", "--format", "cyclonedx"),
    "export --format environment.yml": ("export", ".venv", "--format", "environment.yml"),
}  # fmt: skip


def read(
    at: Field, argv: tuple[object, ...], kinds: tuple[str, ...], right: tuple[int, ...] = (0,)
) -> str | None:
    marks = code(at)
    write_project(at, marks, kinds)
    write_environment(at, marks)
    done = at.gpuenv(*argv)
    return at.harm(done, right=right) or ran(marks)


for verb, argv in READING.items():
    # A venv of gpuenv's has no environment.yml: the export is refused.
    codes = (0, 2) if argv[-1] == "environment.yml" else (0,)
    case(f"builds: {verb}: all kinds")(lambda at, a=argv, c=codes: read(at, a, KINDS, c))
for verb, argv in RESOLVE.items():
    case(f"builds: {verb}: all kinds")(lambda at, a=argv: read(at, a, KINDS))
for kind in KINDS:  # beside others one could go unseen
    case(f"builds: resolve: {kind}")(lambda at, k=kind: read(at, RESOLVE["resolve"], (k,)))


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
