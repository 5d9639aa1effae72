"""`gpuenv bundle`: everything that a machine without a network needs, in one folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..model import Bundle, Emit, Plan, drop_event
from ..model.option import argument, group, option
from ..request.options import Choices


@dataclass(frozen=True, kw_only=True)
class BundleOptions:
    """The options of `bundle`."""

    folder: Path = argument(metavar="DIR", help="Where the bundle goes: a new folder, or a bundle.")
    lock: Path | None = option(None, help="The lock to bundle, in place of a fresh one.")
    force: bool = option(False, help="Replace files that gpuenv did not write, or that were edited since.")
    allow_md5: bool = option(False, help="conda: take locks that carry md5 alone.")
    choices: Choices = group(Choices)


def bundle(options: BundleOptions, emit: Emit = drop_event) -> Bundle | Plan:
    """Make a bundle, or continue one. Return the plan where no build fits."""
    from . import bundle_lock, bundle_making

    given = bundle_lock.Given(file=options.lock, allow_md5=options.allow_md5, force=options.force)
    return bundle_making.make(emit, options.folder, options.choices, given)
