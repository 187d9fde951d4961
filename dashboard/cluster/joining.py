"""What is typed on a new machine so that it becomes a node, made of the addresses this server is known by."""

from __future__ import annotations

import ipaddress
import shlex
import socket
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from domain.launch.systemd_unit import ENV_FILE, NAME

UNIT_FOLDER = "/etc/systemd/system"


@dataclass(frozen=True)
class Listening:
    """Where the dashboard listens, and the address of this machine towards others."""

    host: str
    port: int
    outward: str


@dataclass(frozen=True)
class HowToJoin:
    """Commands for the new machine, and what stands in their way."""

    url: str
    """Where the new machine will look for this dashboard."""
    command: str
    """One line; the worker ends with its terminal."""
    service: tuple[str, ...]
    """Lines that make a systemd service of it instead, started with the machine."""
    warning: str | None
    """Why other machines cannot reach that address, and what to do."""


def how_to_join(secret: str, listening: Listening, shown_url: str | None = None) -> HowToJoin:
    """The commands with this join token; `shown_url` is where whoever asks has reached the dashboard."""
    url, warning = address_for_others(listening, shown_url)
    return HowToJoin(
        url=url,
        command=f"RANKZERO_TOKEN={secret} rankzero worker --server {shlex.quote(url)}",
        service=_service(url, secret),
        warning=warning,
    )


def address_for_others(listening: Listening, shown_url: str | None = None) -> tuple[str, str | None]:
    """The URL under which other machines reach the dashboard, and a warning where they cannot.

    Where somebody has come by a name or address that is not of this machine alone, it is good for others too."""
    if shown_url is not None and (origin := _origin(shown_url)):
        return origin, None
    if not is_of_this_machine_alone(listening.host):
        host = listening.outward if listening.host in ("", "0.0.0.0", "::") else listening.host
        return _url(host, listening.port), _nowhere(host)
    warning = (
        f"This dashboard listens on {listening.host}, so no other machine can reach it. Start it with "
        f"`--host 0.0.0.0` (or with its address in a network that only your machines share), then join."
    )
    return _url(listening.outward, listening.port), warning


def is_of_this_machine_alone(host: str) -> bool:
    """Nobody else reaches this machine by that name or address."""
    name = host.strip("[]").partition("%")[0].lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def outward_address() -> str:
    """This machine's address as others see it; nothing is sent."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
    return socket.gethostname()


def _origin(url: str) -> str | None:
    """Scheme, host and port of a URL that others can use as well."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not host or is_of_this_machine_alone(host):
        return None
    if host in ("0.0.0.0", "::") or any(not (c.isalnum() or c in "-._:%") for c in host):
        return None
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _nowhere(host: str) -> str | None:
    if not is_of_this_machine_alone(host):
        return None
    return "This machine has no address in any network, so no other machine can reach it."


def _url(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _service(url: str, secret: str) -> tuple[str, ...]:
    folder = ENV_FILE.rpartition("/")[0]
    return (
        f"sudo install -d -m 700 {folder}",
        f"printf '%s\\n' 'RANKZERO_URL={url}' 'RANKZERO_TOKEN={secret}'"
        f" | sudo install -m 600 /dev/stdin {ENV_FILE}",
        f"rankzero worker --print-unit | sudo tee {UNIT_FOLDER}/{NAME}",
        f"sudo systemctl daemon-reload && sudo systemctl enable --now {NAME}",
    )
