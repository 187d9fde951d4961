"""The commands that make a new machine a node, with an address at which it can reach this server."""

from __future__ import annotations

import ipaddress
import shlex
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from domain.launch.systemd_unit import ENV_FILE, NAME

UNIT_FOLDER = "/etc/systemd/system"


def program(prefix: Path, source: Path) -> str:
    """How a machine that is set up like this one calls the command: below its clone, or as an installed program.

    `prefix` is the environment that runs, `source` the folder that holds our packages."""
    return ".venv/bin/rankzero" if prefix == source / ".venv" else "rankzero"


PROGRAM = program(Path(sys.prefix), Path(__file__).resolve().parents[2])
WHERE = "On the new machine" + (", in a clone after `make setup EXTRAS=worker`" if "/" in PROGRAM else "")


@dataclass(frozen=True)
class Listening:
    """The host and port that the dashboard listens on, and this machine's address towards others."""

    host: str
    port: int
    outward: str
    scheme: str = "http"
    self_signed: Path | None = None
    """The file with its certificate alone, if that is self-signed: no other machine trusts it by itself."""


@dataclass(frozen=True)
class HowToJoin:
    """Commands for the new machine, and a warning when they cannot work."""

    url: str
    """The address at which the new machine reaches this dashboard."""
    where: str
    """Where to run them, as the begin of a sentence."""
    command: str
    """One line; the worker ends when its terminal is closed."""
    service: tuple[str, ...]
    """Lines that install it as a systemd service instead, started with the machine."""
    warning: str | None
    """Why other machines cannot reach this address, and what to do; None when they can."""
    trust: str | None = None
    """What to do so that the new machine trusts this dashboard's certificate; None where it does by itself."""


def how_to_join(secret: str, listening: Listening, shown_url: str | None = None) -> HowToJoin:
    """The commands with this join token; `shown_url` is the address that the user reached the dashboard at."""
    url, warning = address_for_others(listening, shown_url)
    return HowToJoin(
        url=url,
        where=WHERE,
        command=f"RANKZERO_TOKEN={secret} {PROGRAM} worker --server {shlex.quote(url)}",
        service=_service(url, secret),
        warning=warning,
        trust=_trust(listening.self_signed),
    )


def _trust(self_signed: Path | None) -> str | None:
    if self_signed is None:
        return None
    return (
        f"This dashboard's certificate is self-signed: copy `{self_signed}` to the new machine, "
        "and set `RANKZERO_CA_FILE` to its path there."
    )


def address_for_others(listening: Listening, shown_url: str | None = None) -> tuple[str, str | None]:
    """The URL at which other machines reach the dashboard, and a warning when they cannot.

    An address that the user came by is preferred, unless it is this machine's own."""
    if shown_url is not None and (origin := _origin(shown_url)):
        return origin, None
    if not is_loopback(listening.host):
        host = listening.outward if listening.host in ("", "0.0.0.0", "::") else listening.host  # nosec B104: compares, and listens to nothing
        return own_url(host, listening.port, listening.scheme), _unreachable_warning(host)
    warning = (
        f"This dashboard listens on {listening.host}, so no other machine can reach it. Start it with "
        f"`--host 0.0.0.0` (or with its address in a network that only your machines share), then join."
    )
    return own_url(listening.outward, listening.port, listening.scheme), warning


def url_for_links(listening: Listening, shown_url: str, public_url: str | None = None) -> str:
    """The address that links for others begin with: the named one, else that of the request if others can use it."""
    if public_url or is_loopback(listening.host):
        return public_url or shown_url
    return address_for_others(listening, shown_url)[0]


def is_loopback(host: str) -> bool:
    """Whether this name or address reaches only the machine itself."""
    name = host.strip("[]").partition("%")[0].lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def outward_address() -> str:
    """This machine's address as others see it; sends nothing."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
    return socket.gethostname()


def _origin(url: str) -> str | None:
    """Scheme, host and port of a URL; None when other machines cannot use it."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not host or is_loopback(host):
        return None
    if host in ("0.0.0.0", "::") or any(not (c.isalnum() or c in "-._:%") for c in host):  # nosec B104: compares, and listens to nothing
        return None
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _unreachable_warning(host: str) -> str | None:
    if not is_loopback(host):
        return None
    return "This machine has no address in any network, so no other machine can reach it."


def own_url(host: str, port: int, scheme: str = "http") -> str:
    """The URL of a dashboard that listens on this host; on this machine where it listens everywhere."""
    shown = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)  # nosec B104: compares, and listens to nothing
    return f"{scheme}://{f'[{shown}]' if ':' in shown and not shown.startswith('[') else shown}:{port}"


def _service(url: str, secret: str) -> tuple[str, ...]:
    folder = ENV_FILE.rpartition("/")[0]
    return (
        f"sudo install -d -m 700 {folder}",
        f"printf '%s\\n' 'RANKZERO_URL={url}' 'RANKZERO_TOKEN={secret}' | sudo install -m 600 /dev/stdin {ENV_FILE}",
        f"{PROGRAM} worker --print-unit | sudo tee {UNIT_FOLDER}/{NAME}",
        f"sudo systemctl daemon-reload && sudo systemctl enable --now {NAME}",
    )
