"""Where an image, a dev container or a workflow gets gpuenv from."""

from __future__ import annotations

from dataclasses import dataclass

from ..model import Lock


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuenvSource:
    """A wheel beside the export with its sha256, or an address in its place.

    Never the bare name: an index that has a package of that name decides what it is.
    """

    wheel: str = ""
    sha256: str = ""
    address: str = ""

    @property
    def needs_git(self) -> bool:
        return self.address.startswith("git+")

    def requirement(self, lock: Lock, folder: str) -> str:
        """Return the requirement that pip installs. `folder` has the wheel when pip runs."""
        name = "gpuenv[conda]" if lock.manager == "conda" else "gpuenv"
        # pip checks this hash without --require-hashes too.
        address = self.address or f"file://{folder}/{self.wheel}#sha256={self.sha256}"
        return f"{name} @ {address}"

    def files(self, lock_file: str) -> str:
        """Return the names of the files that go with the export."""
        return f"{lock_file} and {self.wheel}" if self.wheel else lock_file
