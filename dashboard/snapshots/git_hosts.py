"""The hosts that git may ask: none that hands out a machine's credentials, whatever its name resolves to."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from dashboard.snapshots.refusal import CodeRefused
from domain.alerts.networks import serves_credentials

HTTPS_PORT = 443
Resolve = Callable[[str], Sequence[str]]
"""The addresses of a host name or number; empty where it has none."""


def addresses(host: str) -> list[str]:
    """Return the addresses of a host as the system's resolver does, which also reads 2852039166 and 0xa9fea9fe."""
    try:
        answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []  # git says so, or a proxy or ssh's own configuration knows it
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


def pinned(url: str, resolve: Resolve = addresses) -> list[str]:
    """Return git's options for asking only the addresses that were checked here. Raises CodeRefused.

    Names are resolved once: a name whose address changes in between leads nowhere else."""
    host = _host(url)
    resolved = resolve(host)
    if any(map(serves_credentials, resolved)):
        raise CodeRefused(
            "target",
            f"{host} is an address of a machine's own network (link-local), where clouds keep its credentials; "
            "git asks no repository there. Name the repository's real host.",
        )
    if not resolved or ":" in host or not url.startswith("https://"):
        return []
    port = urlsplit(url).port or HTTPS_PORT
    shown = ",".join(f"[{address}]" if ":" in address else address for address in resolved)
    return ["-c", f"http.curloptResolve={host}:{port}:{shown}"]


def _host(url: str) -> str:
    """Return the host of a checked address; `git@host:path` has no scheme."""
    return urlsplit(url).hostname or url.partition("@")[2].partition(":")[0]
