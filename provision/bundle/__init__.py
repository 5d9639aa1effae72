"""bundle: everything that a machine without a network needs, in one folder that proves itself.

Here is the folder: whose it is, its manifest, and whether its files are what the manifest says.

The manifest is there from the beginning, `complete` only at the end, so that a run killed at any time is
known as ours and gone on with. Whatever is not of the manifest is never touched.
"""

from __future__ import annotations

import errno
import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..errors import BuildError, LockError, UsageError
from ..index.download_files import digests, is_right, part
from ..model import Bundle, BundleFile, as_document, from_plain
from ..system import safe_write, untrusted_files
from ..system.path_names import UnsafeNameError, check_relative
from ..system.redaction import redact_value

MANIFEST = "gpuenv-bundle.json"
README = "README.txt"
WORK = ".work"
"""What a run needs on its way and removes at its end."""
_DRAFT = f".{MANIFEST}.gpuenv-new"
_READERS = 4


def claim(folder: Path) -> Bundle | None:
    """The bundle that a folder holds, None for one that is empty or not there. Raises UsageError for a folder
    of somebody else's."""
    if folder.is_symlink() and not folder.exists():
        raise UsageError(f"{folder} is a broken symbolic link", hint="remove the link or name another DIR")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file", hint="name a folder that is empty, or not there yet")
    names = {p.name for p in folder.iterdir()} if folder.exists() else set()
    if MANIFEST not in names:
        if names - {_DRAFT}:
            raise UsageError(
                f"{folder} holds other files ({', '.join(sorted(names)[:3])}); it is left alone",
                hint="name a folder that is empty, or not there yet",
            )
        return None
    return read(folder)


def assert_writable(folder: Path) -> None:
    """Raise BuildError where a folder cannot be made or written to, before anything else is done."""
    place = folder
    while not place.exists():
        place = place.parent
    try:
        tempfile.TemporaryFile(dir=place).close()
        if place == folder:
            safe_write.refuse_links_out(folder)  # uv and the channel's indexer write in it by path
    except OSError as error:
        raise not_writable(place, error) from error


def read(folder: Path) -> Bundle:
    """The manifest of a bundle. Raises LockError where there is none or it is damaged."""
    path = folder / MANIFEST
    try:
        found = from_plain(Bundle, json.loads(untrusted_files.read_bytes(path)))
    except OSError as error:
        raise LockError(
            f"{folder} is no bundle: {path.name}: {error.strerror}", hint="make one: gpuenv bundle DIR"
        ) from error
    except (ValueError, RecursionError) as error:
        raise LockError(
            f"{path} is damaged: {error}", hint="copy it again, or make it again: gpuenv bundle DIR"
        ) from error
    for name in [
        found.lock,
        *(f.path for f in found.files),
        *([found.archive.path] if found.archive else []),
    ]:
        try:
            check_relative(name)
        except UnsafeNameError as error:
            raise LockError(f"{path} is damaged: {error.message}", hint="make it again") from error
    return found


def settle(folder: Path, bundle: Bundle) -> None:
    """Write the manifest in one step. Raises BuildError."""
    text = json.dumps(redact_value(as_document(bundle)), indent=1) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        safe_write.write_file(folder / MANIFEST, text, durable=True)
    except OSError as error:
        raise not_writable(folder, error) from error


def not_writable(folder: Path, error: OSError) -> BuildError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return BuildError(
            f"the disk of {folder} is full", hint="free space; the same command goes on from there"
        )
    hint = safe_write.suggest_fix(error, "name another DIR")
    return BuildError(f"cannot write in {folder}: {error.strerror or error}", hint=hint)


def remove_old(folder: Path, before: Bundle | None, files: Iterable[BundleFile]) -> None:
    """Remove what an earlier bundle of this folder had and this one has not. Raises BuildError."""
    kept = {f.path for f in files}
    try:
        for path in (folder / f.path for f in (before.files if before else ()) if f.path not in kept):
            safe_write.remove_file(path, root=folder)
            safe_write.remove_file(part(path), root=folder)
    except OSError as error:
        raise not_writable(folder, error) from error


def items_of(folder: Path, paths: Sequence[str]) -> tuple[BundleFile, ...]:
    """Files that are there, measured."""
    return tuple(
        BundleFile(path=p, size=(folder / p).stat().st_size, sha256=digests(folder / p, ["sha256"])["sha256"])
        for p in paths
    )


def is_whole(folder: Path, file: BundleFile) -> bool:
    """Whether a file is there with the hash that the manifest has for it."""
    path = folder / file.path
    return bool(file.sha256) and path.is_file() and is_right(path, {"sha256": file.sha256 or ""})


def verify(folder: Path, files: Sequence[BundleFile], told: Callable[[int], None]) -> None:
    """Hold files against the manifest: sizes first, as a copy that broke off is the usual fault, then every
    byte. `told` gets the bytes read. Raises BuildError naming the files that are wrong."""
    missing = [f.path for f in files if not (folder / f.path).is_file()]
    short = [f.path for f in files
             if f.path not in missing and f.size != (folder / f.path).stat().st_size]  # fmt: skip
    if missing or short:
        said = [f"{_few(missing)} {'is' if len(missing) == 1 else 'are'} missing"] if missing else []
        said += [f"{_few(short)} {'has' if len(short) == 1 else 'have'} another size"] if short else []
        raise BuildError(f"the bundle {folder} is incomplete: {'; '.join(said)}", hint=_AGAIN)

    def right(file: BundleFile) -> bool:
        good = is_right(folder / file.path, {"sha256": file.sha256 or ""})
        told(file.size or 0)
        return good

    try:
        with ThreadPoolExecutor(_READERS) as pool:
            wrong = [f.path for f, good in zip(files, pool.map(right, files), strict=True) if not good]
    except OSError as error:
        raise BuildError(f"the bundle {folder} cannot be read: {error}", hint=_AGAIN) from error
    if wrong:
        raise BuildError(f"{_few(wrong)} of the bundle {folder} changed since it was made", hint=_AGAIN)


def refuse_edited(folder: Path, before: Bundle) -> None:
    """Raise UsageError where the user edited the lock or the README of a finished bundle. Wheels are compared
    with their hashes and fetched again."""
    for file in before.files if before.complete else ():
        changed = file.path in (README, before.lock) and (folder / file.path).is_file()
        if changed and not is_whole(folder, file):
            raise UsageError(
                f"{folder / file.path} was edited after gpuenv wrote it; it is kept",
                hint="keep it under another name outside the bundle, or replace it with --force",
            )


def refuse_unlisted(folder: Path, part: str, files: Iterable[BundleFile]) -> None:
    """Raise BuildError where a part of a bundle has a file that the manifest does not list."""
    listed = {f.path for f in files}
    found = [p.relative_to(folder).as_posix() for p in sorted((folder / part).glob("*"))]
    if added := [name for name in found if name not in listed]:
        raise BuildError(f"{_few(added)} in {folder} is not of the bundle", hint=_AGAIN)


_AGAIN = "copy the bundle again; `gpuenv bundle` on a machine with a network mends it"


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
