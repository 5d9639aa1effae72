"""Links that lead out of the folder in which a command writes: nothing is written through them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from field import ASK, Field, case

Make = Callable[[Field, Path], None]


def to_file(at: Field, path: Path) -> None:
    path.symlink_to(at.outside / "precious.txt")


def to_new(at: Field, path: Path) -> None:
    path.symlink_to(at.outside / "new")


def to_folder(at: Field, path: Path) -> None:
    path.symlink_to(at.outside / "sub")


def relative(at: Field, path: Path) -> None:
    """Out and in again, then out: what looks at the text of the link alone is deceived."""
    up = "/".join([".."] * len(path.relative_to(at.folder).parts[:-1]))
    path.symlink_to(f"{up}/{at.work.name}/../outside/precious.txt")


def in_two_steps(at: Field, path: Path) -> None:
    """A link inside to a link that leads out."""
    step = path.with_name("step")
    step.symlink_to(at.outside / "precious.txt")
    path.symlink_to(step.name)


def hard(at: Field, path: Path) -> None:
    """Another name of the file outside: to write into it changes that."""
    path.hardlink_to(at.outside / "precious.txt")


LINKS: dict[str, Make] = {
    "a link to a file": to_file, "a link to nothing": to_new, "a link to a folder": to_folder, "a relative link": relative,
    "two links": in_two_steps,
}  # fmt: skip


def clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def refused(
    at: Field,
    path: Path,
    argv: tuple[object, ...],
    right: tuple[int, ...],
    why: str = "is a link to a path outside",
) -> str | None:
    """What is wrong where the command is not refused by the name of the link."""
    ran = at.gpuenv(*argv)
    problem = at.harm(ran, right=right)
    if problem:
        return problem
    if why not in ran.err or path.name not in ran.err:
        return f"the link is not named: {ran.err[-300:]!r}"
    return None if path.is_symlink() else "the link was replaced"


# --- bundle ---------------------------------------------------------------------------------------------

STICK = ("README.txt", "pylock.toml", "wheels", "gpuenv", "python", ".work",
         ".gpuenv-bundle.json.gpuenv-new", "wheels/x")  # fmt: skip


def bundled(at: Field) -> Path:
    """A copy of a sound bundle of a lock in this folder."""
    from bundle_site import add_own

    kept = at.folder / "bundled"
    at.gpuenv.env["UV_PYTHON_INSTALL_MIRROR"] = "file:///nowhere"
    if not kept.exists():
        add_own(at.index)
        for argv in (
            ("lock", *ASK, "-o", at.folder / "bundled.toml"),
            ("bundle", kept, "--lock", at.folder / "bundled.toml"),
        ):
            ran = at.gpuenv(*argv)
            assert ran.code == 0, ran.err
    shutil.copy(at.folder / "bundled.toml", at.work / "pylock.toml")
    return shutil.copytree(kept, at.work / "stick")


def into_bundle(at: Field, name: str, make: Make) -> str | None:
    path = bundled(at) / name
    clear(path)
    make(at, path)
    return refused(at, path, ("bundle", "stick", "--lock", "pylock.toml"), (7,))


for file in STICK:
    inside = LINKS["a link to a folder" if "." not in file.strip(".") else "a link to a file"]
    case(f"links: bundle: {file}")(lambda at, f=file, m=inside: into_bundle(at, f, m))
for what in ("a link to nothing", "a relative link", "two links"):
    case(f"links: bundle: README.txt: {what}")(lambda at, m=LINKS[what]: into_bundle(at, "README.txt", m))


@case("links: bundle: gpuenv-bundle.json")
def _(at: Field) -> str | None:
    """It is read first: the link leads to a sound one outside of the bundle."""
    path, elsewhere = bundled(at) / "gpuenv-bundle.json", at.work / "elsewhere.json"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    before = elsewhere.read_bytes()
    problem = refused(at, path, ("bundle", "stick", "--lock", "pylock.toml"), (7,))
    return problem or (None if elsewhere.read_bytes() == before else "the file outside changed")


@case("links: bundle: other names of files outside are not written into")
def _(at: Field) -> str | None:
    stick = bundled(at)
    for name in ("README.txt", "pylock.toml", ".gpuenv-bundle.json.gpuenv-new"):
        clear(stick / name)
        hard(at, stick / name)
    return at.harm(at.gpuenv("bundle", "stick", "--lock", "pylock.toml", "--force"), right=(0, 7))


@case("links: bundle: a link in place of the folder itself is followed")
def _(at: Field) -> str | None:
    stick = bundled(at)
    (at.work / "mounted").symlink_to(stick)
    (stick / "README.txt").unlink()
    problem = at.harm(at.gpuenv("bundle", "mounted", "--lock", "pylock.toml"), right=(0,))
    return problem or (None if (stick / "README.txt").exists() else "nothing was written")


# --- init -----------------------------------------------------------------------------------------------


def begun(at: Field, name: str, make: Make, right: tuple[int, ...] = (2,)) -> str | None:
    (at.work / "train.py").write_text("import jax\n")
    make(at, at.work / name)
    before = {p.name for p in at.work.iterdir()}
    problem = refused(at, at.work / name, ("init",), right)
    more = sorted({p.name for p in at.work.iterdir()} - before)
    return problem or (f"left: {more}" if more else None)


for file in ("Makefile", ".gitignore"):
    for what, make in LINKS.items():
        if what != "a link to a folder":
            case(f"links: init: {file}: {what}")(lambda at, f=file, m=make: begun(at, f, m))


@case("links: init: gpuenv.yaml")
def _(at: Field) -> str | None:
    (at.work / "train.py").write_text("import jax\n")
    for make in (to_file, to_new, relative, in_two_steps):
        for path in (at.work / "gpuenv.yaml", at.work / "step"):
            clear(path)
        make(at, at.work / "gpuenv.yaml")
        problem = at.harm(at.gpuenv("init", "--framework", "jax"), right=(2, 3))  # it is read first
        if problem:
            return problem
    return None


@case("links: init: other names of files outside are not written into")
def _(at: Field) -> str | None:
    (at.work / "train.py").write_text("import jax\n")
    for name in ("Makefile", ".gitignore", ".Makefile.gpuenv-new", "..gitignore.gpuenv-new"):
        hard(at, at.work / name)
    return at.harm(at.gpuenv("init"), right=(0, 2))


# --- lock and export ------------------------------------------------------------------------------------

FORMS = ("pylock", "dockerfile", "github", "cyclonedx")
EXPORT = ("export", "--lock", "held.toml", "--format", "requirements", "-o", "pylock.toml")
OUTPUTS: dict[str, tuple[object, ...]] = {
    "lock": ("lock", *ASK), "lock --force": ("lock", *ASK, "--force"), "lock --upgrade": ("lock", *ASK, "--upgrade"),
    "lock -o": ("lock", *ASK, "-o", "pylock.toml"), "export -o": EXPORT, "export --force -o": (*EXPORT, "--force"),
}  # fmt: skip


def held(at: Field) -> None:
    """A sound lock under a name of its own."""
    kept = at.folder / "held.toml"
    if not kept.exists():
        ran = at.gpuenv("lock", *ASK, "-o", kept)
        assert ran.code == 0, ran.err
    shutil.copy(kept, at.work / "held.toml")


def written(at: Field, command: str, make: Make, why: str) -> str | None:
    held(at)
    make(at, at.work / "pylock.toml")
    return refused(at, at.work / "pylock.toml", OUTPUTS[command], (2, 3, 6), why)


for verb in OUTPUTS:
    case(f"links: {verb}: a link to nothing")(
        lambda at, v=verb: written(at, v, to_new, "is a link to a path outside")
    )
for verb in ("lock -o", "lock --force", "export -o", "export --force -o"):
    for what in ("a link to a file", "two links"):
        case(f"links: {verb}: {what}")(
            lambda at, v=verb, m=LINKS[what]: written(at, v, m, "is a link to a path outside")
        )


@case("links: export -o: every format")
def _(at: Field) -> str | None:
    held(at)
    for form in FORMS:
        path = at.work / f"pylock.{form}.toml"
        to_new(at, path)
        argv = ("export", "--lock", "held.toml", "--format", form, "--force", "-o", path.name)
        problem = refused(at, path, argv, (2,))
        if problem:
            return f"{form}: {problem}"
    return None


@case("links: lock -o and export -o: the draft beside the file")
def _(at: Field) -> str | None:
    held(at)
    (at.work / ".pylock.toml.gpuenv-new").symlink_to(at.outside / "precious.txt")
    runs = [at.gpuenv("lock", *ASK), at.gpuenv(*OUTPUTS["export --force -o"])]
    return at.harm(*runs, right=(0, 2, 6))
