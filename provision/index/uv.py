"""uv, the installer: where its program is and the environment it runs in.

Addresses go to uv through its environment and never through its arguments, which any user of the
machine can read in the process list and which may hold credentials.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from ..model import Sources
from ..redaction import redact_text
from . import pytorch


@cache
def program() -> str:
    """The uv that was installed along with gpuenv. Raises FileNotFoundError without it."""
    from uv import find_uv_bin

    return find_uv_bin()


def environment(
    sources: Sources, environ: Mapping[str, str], *, only_wheels: bool = False, alone: bool = False
) -> dict[str, str]:
    """The environment for uv: the user's own, the configured indexes, no surprise downloads.

    `only_wheels` leaves just the find-links, `alone` no index but the default one of `sources`. Several
    indexes are merged as pip merges them: the best version of all of them is taken, and hashes decide what
    is installed. The PyTorch index is never one of them: it is asked for what is named for it, alone.
    """
    env = dict(environ)
    env.update(UV_PYTHON_DOWNLOADS="never", NO_COLOR="1")
    if sources.cache_dir:
        env["UV_CACHE_DIR"] = str(Path(sources.cache_dir) / "uv")
    if sources.cert and "SSL_CERT_FILE" not in env:
        env["SSL_CERT_FILE"] = sources.cert
    if sources.proxy:
        env |= {"HTTP_PROXY": sources.proxy, "HTTPS_PROXY": sources.proxy}
    if sources.timeout:
        env.setdefault("UV_HTTP_TIMEOUT", f"{sources.timeout:.0f}")
    if sources.trusted:
        env["UV_INSECURE_HOST"] = " ".join([*sources.trusted, *env.get("UV_INSECURE_HOST", "").split()])
    if sources.default:
        env["UV_DEFAULT_INDEX"] = sources.default
    also = [env.pop(name, "") for name in ("UV_INDEX", "UV_EXTRA_INDEX_URL")]
    named = [*sources.extra, *" ".join(also).split()]
    indexes = [] if alone else [i for i in named if not pytorch.is_one(i.rpartition("=")[2], sources.pytorch)]
    if indexes:
        env["UV_INDEX"] = " ".join(dict.fromkeys(indexes))
    if sources.extra and not alone:
        env["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    if sources.find_links:
        given = [*sources.find_links, *filter(None, env.get("UV_FIND_LINKS", "").split(","))]
        env["UV_FIND_LINKS"] = ",".join(dict.fromkeys(given))
    if only_wheels or sources.no_index:
        env["UV_NO_INDEX"] = "1"
    if sources.offline:
        env["UV_OFFLINE"] = "1"
    return env


def redacted(log: str) -> str:
    """Return a program's output without the credentials in its addresses."""
    return redact_text(log)
