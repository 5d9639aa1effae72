"""Change an environment after uv's installation: remove credentials, link libraries for TensorFlow.

uv writes the address that it was given, with the values of variables, into direct_url.json. The file gets the
references back, and RECORD gets the file's new digest.

TensorFlow opens CUDA libraries by name and finds those of the nvidia-* wheels through the RUNPATH of
libtensorflow_framework.so. Some releases leave folders out of it (2.21.0: cuSOLVER's) and then say
"Cannot dlopen some GPU libraries" though all are installed. A link beside a library that is found
makes the others found too, for every program that uses the environment; the documented remedy of
TensorFlow's install page is of the same kind. The folders are as deep as each other, so that a
library's own $ORIGIN paths hold behind the link."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
from pathlib import Path

from ..errors import BuildError
from ..index.scan_library_stream import nvidia_folders
from ..model import Lock, normalize_name
from ..system import untrusted_files, write_inside_folder
from ..system.redaction import redact_value

_NAME = "direct_url.json"


def redact_installed(lock: Lock, env: Path, target: Path | None = None) -> None:
    """Remove secrets from direct_url.json of a lock's packages, in an environment or in a `target` beside it.
    Raises BuildError."""
    wanted = {normalize_name(p.name) for p in lock.packages if p.index is None}
    root = target or env
    for path in sorted(root.glob(f"{'' if target else 'lib/python3*/site-packages/'}*.dist-info/{_NAME}")):
        if normalize_name(path.parent.name.partition("-")[0]) not in wanted:
            continue
        try:
            content = json.loads(untrusted_files.read_bytes(path))
            if (public := redact_value(content)) != content:
                _replace(path, json.dumps(public).encode(), root)
        except (OSError, ValueError) as error:
            raise BuildError(
                f"{path} may contain credentials of an address, and cannot be changed: {error}",
                hint="build it again: gpuenv create --recreate",
            ) from error


def _replace(path: Path, data: bytes, root: Path) -> None:
    """Replace a file, and its digest and size in RECORD."""
    write_inside_folder.write_file(path, data, root=root)
    record = path.with_name("RECORD")
    rows = list(csv.reader(untrusted_files.read_bytes(record).decode("utf-8").splitlines()))
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    inside = f"{path.parent.name}/{_NAME}"
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [inside, f"sha256={digest}", str(len(data))] if row[:1] == [inside] else row for row in rows
    )
    write_inside_folder.write_file(record, text.getvalue(), root=root)


_SONAME = re.compile(r"lib[A-Za-z0-9_]+\.so\.\d+")


def link_unfound(site_packages: Path) -> tuple[str, ...]:
    """Link every NVIDIA library that TensorFlow's RUNPATH leaves out into a folder that it names;
    the names that were linked. Nothing is done without TensorFlow, without NVIDIA wheels, or where
    all folders are named. Raises OSError."""
    framework = site_packages / "tensorflow" / "libtensorflow_framework.so.2"
    if not framework.exists():
        return ()
    with framework.open("rb") as stream:
        named = nvidia_folders(stream)
    wheels = sorted(p for p in (site_packages / "nvidia").glob("*/lib") if p.is_dir())
    beside = next((p for p in wheels if p.parent.name in named), None)
    if beside is None:
        return ()
    linked = []
    for folder in wheels:
        for library in sorted(folder.iterdir()) if folder.parent.name not in named else ():
            link = beside / library.name
            if _SONAME.fullmatch(library.name) and not link.exists():
                link.symlink_to(Path("../..") / folder.parent.name / "lib" / library.name)
                linked.append(library.name)
    return tuple(linked)
