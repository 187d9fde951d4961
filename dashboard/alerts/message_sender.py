"""The program that sends one message: only it talks to receivers, with limits on memory, time and connections.

It reads a JSON object from its standard input and prints one: `kind` for a check of a target, else `outcome`."""

from __future__ import annotations

import base64
import json
import logging
import re
import resource
import signal
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from domain.network.ip_addresses import is_public

if TYPE_CHECKING:
    from apprise import NotifyBase
    from apprise.attachment.base import AttachBase


def main() -> None:
    """Read the request, carry it out, print the result."""
    signal.alarm(LIMIT_S + 5)  # outlives the dashboard by no more than this
    with suppress(OSError, ValueError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    request = json.load(sys.stdin)
    fence = None if request["allow_private"] else Fence()
    result = check_target(request) if request["action"] == "check" else send(request)
    if fence is not None and fence.has_refused and result.get("outcome") not in (None, "accepted"):
        result = {"outcome": "refused", "problem": PRIVATE}
    print(json.dumps(result))


LIMIT_S = 30
CONNECT_S = 10.0
READ_S = 60.0
"""Longer than LIMIT_S: a receiver without an answer is then told from one that refuses."""
MEMORY_BYTES = 2 * 1024**3
SETTING = "RANKZERO_ALERT_PRIVATE_TARGETS"
PRIVATE = f"The target is on the server's own network; {SETTING}=true on the dashboard allows that."
_STARTS = frozenset({"subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"})
_CONNECTS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})


class NotPublic(PermissionError):
    """A connection to the server's own network."""


class Fence:
    """Refuse connections to anything but the internet, whatever a name resolves to or a redirect says."""

    def __init__(self) -> None:
        self.has_refused = False
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _STARTS:
            raise PermissionError("no program may be started here")
        if event in _CONNECTS and not _is_public_endpoint(arguments[-1]):
            self.has_refused = True
            raise NotPublic(PRIVATE)


def _is_public_endpoint(endpoint: object) -> bool:
    """Whether a socket's address is one of the internet; sockets of this machine are not. None: connected before."""
    return endpoint is None or (isinstance(endpoint, tuple) and is_public(str(endpoint[0])))


def check_target(request: dict[str, Any]) -> dict[str, str]:
    """Say which kind of target an address is, or the problem with it."""
    target = request["target"]
    plugin = _plugin(target)
    if plugin is None and not target.lower().startswith(("http://", "https://")):
        return {"problem": "target is not an address of Apprise or a webhook; see docs/ALERTS.md."}
    host = urlsplit(target).hostname if plugin is None else getattr(plugin, "smtp_host", None) or plugin.host
    if not request["allow_private"] and _is_private(host, is_webhook=plugin is None):
        return {"problem": PRIVATE}
    return {"kind": "webhook" if plugin is None else "apprise"}


def send(request: dict[str, Any]) -> dict[str, str]:
    """Send the message, by a webhook or through Apprise."""
    if "headers" in request:
        return post(request["target"], request["body"].encode(), request["headers"], request["allow_private"])
    return notify(request["target"], request["title"], request["body"], request.get("picture"))


def post(url: str, body: bytes, headers: dict[str, str], allow_private: bool) -> dict[str, str]:
    """POST a webhook; only the status of the answer is read, and no redirect is followed."""
    import httpx2

    timeout = httpx2.Timeout(READ_S, connect=CONNECT_S)
    try:
        with httpx2.stream(
            "POST", url, content=body, headers=headers, timeout=timeout, trust_env=allow_private
        ) as response:
            return by_status(response.status_code)
    except (httpx2.ConnectError, httpx2.ConnectTimeout):
        return {"outcome": "unavailable", "problem": "The receiver cannot be reached."}
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        return {"outcome": "unclear", "problem": f"The connection broke ({type(error).__name__})."}


def notify(target: str, title: str, body: str, picture: str | None) -> dict[str, str]:
    """Send through Apprise, which says in its log why it failed; the picture where the service takes one."""
    import apprise

    plugin = _plugin(target)
    if plugin is None:
        return {"outcome": "refused", "problem": "Apprise no longer accepts this address."}
    plugin.socket_read_timeout = READ_S
    statuses = _Statuses()
    logging.getLogger("apprise").addHandler(statuses)
    notifier = apprise.Apprise()
    notifier.add(plugin)
    attached = _attachment(picture) if picture and plugin.attachment_support else None
    if notifier.notify(title=title, body=body, body_format=apprise.NotifyFormat.TEXT, attach=attached):
        return {"outcome": "accepted"}
    if statuses.last is not None:
        return by_status(statuses.last)
    return {"outcome": "unavailable", "problem": "The service cannot be reached or did not accept it."}


def _attachment(picture: str) -> AttachBase:
    from apprise.attachment.memory import AttachMemory

    content = base64.b64decode(picture)
    return AttachMemory(content=content, name="curve.png", mimetype="image/png")  # type: ignore[no-untyped-call]


def by_status(status: int) -> dict[str, str]:
    """The outcome that an HTTP status means."""
    if 200 <= status < 300:
        return {"outcome": "accepted"}
    may_help = status >= 500 or status in (408, 425, 429)
    outcome = "unavailable" if may_help else "refused"
    return {"outcome": outcome, "problem": f"The receiver answered {status}."}


class _Statuses(logging.Handler):
    """Remember the last HTTP status in Apprise's log, and nothing else of it: it may contain secrets."""

    last: int | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record."""
        if match := re.search(r"\berror=([3-5]\d\d)\b", record.getMessage()):
            self.last = int(match[1])


def _plugin(target: str) -> NotifyBase | None:
    import apprise

    logging.getLogger("apprise").setLevel(logging.WARNING)
    logging.getLogger("apprise").propagate = False
    asset = apprise.AppriseAsset(app_id="Rankzero", app_desc="Rankzero", storage_mode="memory")
    plugin = apprise.Apprise.instantiate(target, asset=asset, suppress_exceptions=True)
    return plugin if isinstance(plugin, apprise.NotifyBase) else None


def _is_private(host: object, *, is_webhook: bool) -> bool:
    """Whether a host is on the server's own network; names of webhooks are resolved, others may not be names."""
    if not isinstance(host, str) or not host:
        return False
    host = host.strip("[]").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    is_literal = re.fullmatch(r"[\d.]+\.[\d.]+|[0-9a-fA-F:]*:[0-9a-fA-F:.]*(%\w+)?", host) is not None
    if not (is_webhook or is_literal):
        return False
    try:
        resolved = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False  # it may resolve when the message is sent, and is checked then
    return any(not is_public(str(endpoint[0])) for *_, endpoint in resolved)


if __name__ == "__main__":
    main()
