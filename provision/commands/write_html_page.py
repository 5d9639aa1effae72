"""Write a page of results as HTML, without credentials, and with gpuenv's sign and version."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

from .. import __version__
from ..errors import UsageError
from ..system.files import signed, suggest_fix, write_output


def write_html_page(path: Path, option: str, make_page: Callable[[str], str]) -> None:
    """Write the page that `make_page` makes from a footer. Raises UsageError with the option that names the file."""
    footer = f"gpuenv {__version__}, {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC"
    try:
        write_output(path, signed(make_page(footer), "<!--"))
    except OSError as error:
        raise UsageError(
            f"{option} {path}: {error.strerror}", hint=suggest_fix(error, "name a file that can be written")
        ) from error
