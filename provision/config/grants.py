"""The grants of the user: which variable may be sent to which server."""

from __future__ import annotations

from pathlib import Path

from ..errors import UsageError
from ..index.config import pip_settings, strip_name, uv_default, uv_extra, uv_variables
from ..requirements.nodes import MAX_BYTES, NotReadError, decode_yaml, parse_yaml
from ..system import grants, process, trust
from .options import Choices

_HINT = "write it as in docs/how-to/mirrors.md: grants: {TOKEN: [https://host]}"


def read_user_grants(c: Choices) -> None:
    """Grant variables as the user's configuration, environment and command line say. Raises LockError, UsageError.

    Options count only if this command line has them: others come from a project or from a record.
    """
    environ = process.environ()
    # The pip.conf of an active environment can be a project's.
    pip = pip_settings({name: value for name, value in environ.items() if name != "VIRTUAL_ENV"})
    settings = uv_variables(environ)
    listed = (*uv_extra(settings), *settings.get("UV_FIND_LINKS", "").split(","))
    default = uv_default(settings) or ""
    places = [
        pip.index_url or "",
        default,
        *pip.extra_index_urls,
        *pip.find_links,
        *map(strip_name, listed),
    ]
    places += [environ.get(f"GPUENV_INDEX_{name}", "") for name in ("PYPI", "PYTORCH")]
    if c.config is None:  # otherwise the options hold those of the project too
        typed = {
            "index": [c.index], "find_links": c.find_links, "channel": c.channel,
            "with_": [text.partition("@")[2].partition(";")[0].strip() for text in c.with_],
        }  # fmt: skip
        places += [place for name in c.named & set(typed) for place in typed[name]]
    grants.allow_origins(places)
    _read_config()


def _read_config() -> None:
    """Read the user's config.yaml. Raises UsageError."""
    import platformdirs

    path = Path(platformdirs.user_config_dir("gpuenv")) / "config.yaml"
    try:
        data = trust.read_configuration(path)
        root = parse_yaml(decode_yaml(data[: MAX_BYTES + 1])) if data is not None else None
    except NotReadError as error:
        raise UsageError(f"{path} line {error.line}: {error.text}", hint=_HINT) from error
    for key, value in root.pairs if root else []:
        if key.text != "grants" or value.kind != "table":
            raise UsageError(f"{path} line {key.line}: expected the table `grants`", hint=_HINT)
        for name, servers in value.pairs:
            for server in servers.items or [servers]:
                grants.allow(name.text, server.text, f"{path} line {server.line}")
