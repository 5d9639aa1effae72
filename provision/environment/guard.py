"""The guard of an environment: what later installs of other tools must keep.

A plain `pip install` may replace torch by a build for another CUDA. So pip, uv and conda get the locked versions of the
frameworks and of NVIDIA's packages as constraints. `gpuenv add` and `create` do not read them.
"""

from __future__ import annotations

from pathlib import Path

from ..index.config import GUARD_FILE
from ..model import TORCH_COMPANIONS, Lock, is_stack_package, normalize_name
from ..system import untrusted
from ..system.files import write_file, writing
from ..system.versions import public
from .place import MARK

ADDRESS = "guard"
"""The file of MARK with the address of the constraints, for the activation scripts and `gpuenv run`."""
_HEAD = (
    "# Written by gpuenv. To change a package: gpuenv add. To turn this off: guard: false in gpuenv.yaml.\n"
)


def write(env: Path, lock: Lock, *, on: bool) -> str | None:
    """Write or remove the guard of an environment in its final place, and return a note. Raises BuildError.

    Files of the same name that gpuenv did not write stay.
    """
    kept = [p for p in lock.packages if _is_kept(p.name)]
    wheels = "".join(f"{p.name}=={public(p.version)}\n" for p in kept if not p.is_conda)
    if any(normalize_name(p.name) == "onnxruntime-gpu" for p in kept):
        wheels += "onnxruntime<0\n"  # the CPU build, which would write over the files of this one
    conda = "".join(f"{p.name} =={p.version}\n" for p in kept if p.is_conda)
    # pip and uv split lists of files at blanks, and an address has none. Without the label of a build, pip can install
    # the same release into the folder in which it builds a source archive.
    constraints = env.absolute() / GUARD_FILE
    address = constraints.as_uri()
    texts = {
        constraints: wheels and _HEAD + wheels,
        env / MARK / ADDRESS: wheels and f"{address}\n",
        env / "pip.conf": wheels and f"{_HEAD}[install]\nconstraint = {address}\n",
        env / "conda-meta" / "pinned": conda and _HEAD + conda,
    }
    with writing(env):
        for path, text in texts.items():
            new = (on and text) or None
            old = untrusted.read_text(path) if path.is_file() and not path.is_symlink() else None
            foreign = path.parent.name != MARK and old is not None and not old.startswith(_HEAD)
            if foreign or path.is_symlink() or old == new:
                continue
            if new is None:
                path.unlink()
            else:
                write_file(path, new, root=env)
    planned = {name for b in lock.plan.builds for name in (b.framework, b.package_name)}
    names = ", ".join(f"{p.name} {public(p.version)}" for p in kept if normalize_name(p.name) in planned)
    return f"later installs keep {names} (by a constraints file for pip and uv)" if on and names else None


def _is_kept(name: str) -> bool:
    name = normalize_name(name)
    return is_stack_package(name) or name in TORCH_COMPANIONS or name.startswith("nvidia-")


def read_address(env: Path) -> str | None:
    """Return the address of the constraints of an environment, or None without a guard."""
    try:
        return untrusted.read_text(env / MARK / ADDRESS).strip() or None
    except OSError:
        return None
