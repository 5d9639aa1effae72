"""Reports where this Python searches packages, with its user's settings.

It runs without -I, from an empty folder.
"""

import importlib.util
import site
import sysconfig


def _origin(name):
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError) as error:
        return {"error": "%s: %s" % (type(error).__name__, error)}
    if spec is None:
        return None
    return {"origin": spec.origin}


tell(
    "where",
    version="%d.%d.%d" % sys.version_info[:3],
    prefix=sys.prefix,
    include=sysconfig.get_path("include", "posix_prefix"),
    path=[p for p in sys.path if p],
    sites=sorted(
        set(site.getsitepackages() + [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    ),
    user_site=site.getusersitepackages() if site.ENABLE_USER_SITE else None,
    frameworks={name: _origin(name) for name in ASKED["frameworks"]},
)
