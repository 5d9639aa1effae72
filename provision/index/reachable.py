"""Whether a connection to an index can be made: asked once a run, before the solver tries it again and again."""

from __future__ import annotations

import functools
import socket
import urllib.request
from urllib.parse import urlsplit

NETWORK_HINT = "check the network, the proxy and pip's index-url, or use --offline --find-links DIR"
_SECONDS = 5.0
_PORTS = {"http": 80, "https": 443}


@functools.cache
def connection_error(url: str, proxy: str | None = None) -> str | None:
    """Return why no connection to an address can be made, as the end of a sentence, or None.

    No request is sent. Where a proxy is configured (`proxy`, else the environment), the connection is the one to
    the proxy. The answer is kept as long as this process runs. Addresses of files can always be reached.
    """
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        return None
    through = proxy or _proxy_of_environment(parts.scheme, parts.hostname)
    place = urlsplit(through if "://" in through else f"http://{through}") if through else parts
    try:
        port = place.port or _PORTS.get(place.scheme, 80)
        socket.create_connection((place.hostname or "", port), timeout=_SECONDS).close()
    except socket.gaierror:
        return "has a name that cannot be looked up"
    except TimeoutError:
        return "does not answer in time"
    except ConnectionRefusedError:
        return "refuses the connection"
    except (OSError, ValueError) as error:
        return f"cannot be reached: {getattr(error, 'strerror', None) or error}"
    return None


def _proxy_of_environment(scheme: str, host: str) -> str | None:
    if urllib.request.proxy_bypass(host):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(scheme) or proxies.get("all")
