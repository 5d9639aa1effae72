"""The guard of an environment: what later installs of other tools must keep.

A plain `pip install` may replace torch by a build for another CUDA. So pip, uv and conda get the locked versions of the
frameworks and of NVIDIA's packages as constraints. `gpuenv add` and `create` do not read them.
"""

from __future__ import annotations

from pathlib import Path

from ..index.config import GUARD_FILE
from ..model import TORCH_COMPANIONS, Lock, is_stack_package, normalize_name
from ..system import untrusted
from ..system.files import write_file
from .place import MARK, writing

ADDRESS = "guard"
"""The file of MARK with the address of the constraints, for the activation scripts and `gpuenv run`."""
_HEAD = (
    "# Written by gpuenv. To change a package: gpuenv add. To turn this off: guard: false in gpuenv.yaml.\n"
)


def write(env: Path, lock: Lock, *, on: bool) -> str | None:
    """Write or remove the guard of an environment in its final place, and return a note. Raises BuildError.

    Files of the same name that gpuenv did not write stay.
    """
    wheels = [
        f"{p.name}=={p.version.partition('+')[0]}\n"
        for p in lock.packages
        if _is_kept(p.name) and not p.is_conda
    ]
    if any(normalize_name(p.name) == "onnxruntime-gpu" for p in lock.packages):
        wheels.append("onnxruntime<0\n")  # the CPU build, which would write over the files of this one
    conda = [f"{p.name} =={p.version}\n" for p in lock.packages if _is_kept(p.name) and p.is_conda]
    # pip and uv split lists of files at blanks, and an address has none. Without the label of a build, pip can install
    # the same release into the folder in which it builds a source archive.
    constraints = env.absolute() / GUARD_FILE
    address = constraints.as_uri()
    files = {
        constraints: "".join(wheels),
        env / MARK / ADDRESS: f"{address}\n",
        env / "pip.conf": f"[install]\nconstraint = {address}\n",
    }
    files = {path: _HEAD * (path.name != ADDRESS) + text for path, text in files.items() if wheels}
    if conda:
        files[env / "conda-meta" / "pinned"] = _HEAD + "".join(conda)
    with writing(env):
        for path in (constraints, env / MARK / ADDRESS, env / "pip.conf", env / "conda-meta" / "pinned"):
            text = files.get(path) if on else None
            old = untrusted.read_text(path) if path.is_file() and not path.is_symlink() else None
            foreign = path.parent.name != MARK and old is not None and not old.startswith(_HEAD)
            if foreign or path.is_symlink() or old == text:
                continue
            if text is None:
                path.unlink()
            else:
                write_file(path, text, root=env)
    planned = {name for b in lock.plan.builds for name in (b.framework, b.package_name)}
    kept = [p for p in lock.packages if normalize_name(p.name) in planned]
    names = ", ".join(f"{p.name} {p.version.partition('+')[0]}" for p in kept)
    return (
        f"later installs keep {names} (by a constraints file for pip and uv)"
        if on and files and names
        else None
    )


def _is_kept(name: str) -> bool:
    name = normalize_name(name)
    return is_stack_package(name) or name in TORCH_COMPANIONS or name.startswith("nvidia-")


def read_address(env: Path) -> str | None:
    """Return the address of the constraints of an environment, or None without a guard."""
    try:
        return untrusted.read_text(env / MARK / ADDRESS).strip() or None
    except OSError:
        return None
