"""`python -P -m worker.service.program ACTION FOLDER`: what `rankzero nodes add, upgrade, doctor, remove` does here."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from domain.clock import SYSTEM_CLOCK, Clock
from domain.network.trust import CannotTrust, tls_context, why_no_tls
from worker.service.home import Home, become_worker, write
from worker.service.starters import Detached, Systemd, end_worker, keep, starter

CONNECT_LIMIT_S, REACH_LIMIT_S = 4.0, 20.0
"""An address that leads nowhere is left soon; a dashboard on a busy machine may be long in answering."""
JOIN_LIMIT_S = 60.0


class Refused(Exception):
    """The node cannot do it; the message is one sentence."""


def main(arguments: Sequence[str]) -> int:
    """Run one action; prints its answer as JSON on one line."""
    action, folder = arguments
    home = Home(Path(folder))
    home.trust()
    if action == "run":
        become_worker(home)
    if action == "keep":
        keep(home)
        return 0
    try:
        answer = ACTIONS[action](home)
    except (Refused, OSError) as error:
        answer = {"trouble": " ".join(str(error).split())}
    print(json.dumps(answer))
    return 0


def status(home: Home) -> dict[str, Any]:
    """Return what is installed here and whether it works; nothing secret."""
    identity, options = home.identity, home.options
    systemd, detached = Systemd(home), Detached(home)
    installed = systemd if systemd.is_installed() else detached if detached.is_installed() else None
    return {
        "version": home.current.resolve().name if home.current.exists() else None,
        "node_id": identity.get("node_id"),
        "name": identity.get("name"),
        "server": options.get("server"),
        "options": {name: value for name, value in options.items() if name != "server"},
        "runs": home.worker_runs(),
        "silent_s": SYSTEM_CLOCK.wall() - home.last_contact(),
        "service": installed.sentence if installed else None,
        "log": home.last_lines(5),
    }


def start(home: Home) -> dict[str, Any]:
    """Start or restart the worker as standard input asks, and wait until it has joined. Raises Refused, OSError."""
    request = json.loads(sys.stdin.read())
    home.trust(request.get("certificates"))
    server = reachable(request["urls"]) if request.get("urls") else home.options.get("server")
    options = home.options | {"server": server} | {k: v for k, v in request.get("options", {}).items() if v}
    write(home.path / "worker.json", json.dumps(options))
    if request.get("was_removed"):  # the dashboard takes neither its old name nor its token any more
        (home.data / "node/node.json").unlink(missing_ok=True)
    home.switch_to(request["version"])
    service = starter(home)
    began = SYSTEM_CLOCK.wall()
    if isinstance(service, Systemd):
        Detached(home).stop()
    try:
        if token := request.get("token"):
            write(home.join_token, token)
        service.start()
        wait_for_contact(home, began)
    except (Refused, OSError):
        if not home.identity.get("node_id"):  # it never was a node: nothing of it is to try again for ever
            service.stop()
        raise
    finally:
        home.join_token.unlink(missing_ok=True)
    home.remove_unused_versions()
    identity = home.identity
    return {"node_id": identity.get("node_id"), "name": identity.get("name"), "service": service.sentence}


def stop(home: Home) -> dict[str, Any]:
    """Stop the worker for good; its trainings are ended by the dashboard before."""
    Systemd(home).stop()
    Detached(home).stop()
    end_worker(home)
    return {"stopped": not home.worker_runs()}


def examine(home: Home) -> dict[str, Any]:
    """Return the status, and why the dashboard does not answer from here."""
    document = status(home)
    return document | {
        "silent_because": why_silent(document["server"]) if document["server"] else "no dashboard is named"
    }


ACTIONS = {"status": status, "examine": examine, "start": start, "stop": stop}


def reachable(urls: Sequence[str]) -> str:
    """Return the first of these addresses at which the dashboard answers. Raises Refused."""
    tried = list(dict.fromkeys(urls_from_here(urls)))
    with ThreadPoolExecutor(len(tried)) as threads:
        reasons = dict(zip(tried, threads.map(why_silent, tried), strict=True))
    for url, reason in reasons.items():
        if reason is None:
            return url
    listed = " or ".join(f"{url} ({reason})" for url, reason in reasons.items())
    raise Refused(
        f"it cannot reach the dashboard at {listed}: start the dashboard with --host and an address that "
        "its nodes reach, name that in RANKZERO_URL, and let its port through."
    )


def urls_from_here(urls: Sequence[str]) -> Iterator[str]:
    """Yield the addresses; in place of `ssh` that of the machine that is connected, where the dashboard runs too."""
    caller = os.environ.get("SSH_CONNECTION", "").partition(" ")[0]
    for url in urls:
        if urlsplit(url).hostname != "ssh":
            yield url
        elif caller:
            yield url.replace("//ssh:", f"//[{caller}]:" if ":" in caller else f"//{caller}:")


def why_silent(url: str) -> str | None:
    """Ask the dashboard for a sign of life; returns why there is none."""
    import httpx2

    try:
        limit = httpx2.Timeout(REACH_LIMIT_S, connect=CONNECT_LIMIT_S)
        context = tls_context(url, httpx2.create_ssl_context)
        with httpx2.Client(trust_env=False, timeout=limit, verify=context) as http:
            http.get(f"{url}/api/health").raise_for_status()
    except CannotTrust as error:
        return str(error).rstrip(".")
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        if reason := why_no_tls(error, url):
            return reason
        return " ".join(str(error).split()) or type(error).__name__
    return None


def wait_for_contact(home: Home, since: float, clock: Clock = SYSTEM_CLOCK) -> None:
    """Wait until the dashboard has answered the worker. Raises Refused with the last line of its log."""
    deadline = clock.now() + JOIN_LIMIT_S
    log_size = home.log.stat().st_size if home.log.exists() else 0
    while home.last_contact() < since:
        refusals = [line for line in new_lines(home, log_size) if line.startswith("rankzero worker: ")]
        if refusals:
            raise Refused(refusals[-1].removeprefix("rankzero worker: "))
        if clock.now() > deadline:
            log_end = " ".join(home.last_lines()) or "nothing"
            raise Refused(f"its worker has not joined within {JOIN_LIMIT_S:g} s; {home.log} ends with: {log_end}")
        clock.pause(0.1)


def new_lines(home: Home, since_bytes: int) -> list[str]:
    """Return the lines that the worker has logged since."""
    try:
        with home.log.open("rb") as log:
            log.seek(since_bytes)
            return log.read().decode(errors="replace").splitlines()
    except OSError:
        return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
