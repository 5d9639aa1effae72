"""What channels and the solver refuse, in words: what happened, where, and what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import LockError, ResolveError
from ...system.redaction import redact, redact_text
from . import specs
from .specs import Question


def of_channel(error: Mapping[str, str], channels: Sequence[str]) -> LockError:
    """What the engine said of a channel, as one sentence."""
    text = redact_text(error["text"])
    address = re.search(r"(?:https?|file)://[^\s'\"`)]+", text)
    where = address.group(0).rstrip(":/,") if address else ", ".join(map(redact, channels))
    for pattern, told, hint in _FAULTS:
        if re.search(pattern, text, re.IGNORECASE):
            return LockError(f"{told}: {where}", hint=hint, log=text)
    return LockError(
        f"the conda channels cannot be read: {text.splitlines()[0] if text else error['kind']}: {where}",
        log=text,
        hint="the lines above are the engine's own",
    )


_STRANGE = "open the address in a browser: a login page, a proxy or a broken mirror may stand in between"
_FAULTS = (
    (r"permission denied|os error 13\b", "a file of the channel, or of the cache of conda packages, is another user's",
     "the lines above name it; another cache is named with --cache-dir DIR or RATTLER_CACHE_DIR"),
    (r"URL scheme is not allowed", "a mirror is to be an http address", "name a folder as the channel itself: --channel DIR"),
    (r"\b407\b|proxy auth", "a proxy wants a user and a password on the way to the conda channel",
     "put them into the proxy's address: HTTPS_PROXY, or proxy_servers in .condarc"),
    (r"\b429\b", "the conda channel asks us to come later", "wait some minutes, then run the command again"),
    (r"\b5\d\d [A-Z]", "the conda channel is failing", "try again later, or name a mirror"),
    (r"too many redirects|following redirect", "the conda channel redirects without an end", _STRANGE),
    (r"failed to parse|expected value at|EOF while parsing|trailing characters",
     "the conda channel answered something that is no repodata.json", _STRANGE),
    (r"nothing came for", "the conda channel does not answer in time",
     "check the network, proxies and mirrors; a slow network is given more time by UV_HTTP_TIMEOUT=SECONDS"),
    (r"\b401\b|\b403\b|Unauthorized|Forbidden", "the conda channel refuses us without the right credentials",
     "put them into the auth file that rattler and pixi read (RATTLER_AUTH_FILE), or give the channel's whole address"),
    (r"\b404\b|\b410\b|could not find subdir|no such file", "there is no such conda channel",
     "check the name given with --channel, and channel_alias in .condarc"),
    (r"certificate", "the conda channel's certificate is not trusted",
     "name the file of the authority: ssl_verify in .condarc, or SSL_CERT_FILE"),
    (r"no usable repodata cache",
     "--offline was given, and the channel was never read on this machine",
     "run once with a network, or give a local folder: --channel DIR"),
    (r"error sending request|tcp connect|dns error|timed out|connection", "the conda channel does not answer",
     "check the network, proxies and mirrors of .condarc and of rattler's config.toml, or use --offline"),
    (r"failed to (?:persist|open|create|write|rename|lock)", "the cache of conda packages cannot be used",
     "where something else removed files there, run the command again; another is named with --cache-dir DIR"),
)  # fmt: skip


def of_solver(asked: Question, answer: Mapping[str, Any]) -> ResolveError:
    """The solver's tree, with what it cannot know: this machine, and the change that would help."""
    request, label = asked.request, answer.get("label")
    frameworks = ", ".join(f"{w.name}{w.specifier}" for w in request.frameworks)
    said = [f"{b.name}{b.specifier} ({b.origin})" for b in (*request.bounds, *asked.limits)]
    said += [f"Python {request.requires_python} ({request.python_origin})"] if request.requires_python else []
    frameworks += f" with {', '.join(said)}" if said else ""
    spoken = (
        f", CUDA up to {asked.bounds.cuda}" if asked.bounds.cuda and asked.request.device == "cuda" else ""
    )
    return ResolveError(
        f"no set of conda packages is {frameworks} for {asked.request.device} "
        f"on {specs.in_words(asked.virtual)}{spoken}",
        log=str(answer.get("refusal", "")).strip() or None,
        hint=label
        or "none of the changes that were tried helps; what contradicts what, gpuenv resolve --explain tells",
    )
