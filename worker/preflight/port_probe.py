"""Holds a port open and probes it from other nodes: is it reachable, and does the expected program answer?"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from domain.messages import Reached
from domain.spec import CheckPeer

CONNECT_LIMIT_S = 2.0
"""Allows for one retransmission of a lost first packet."""
ANSWER_LIMIT_S = 5.0
PAUSE_S = 0.1
MAX_PARALLEL = 32
CHUNK_BYTES = 200


class ProbeListener:
    """Listens and sends a greeting to every connection; `close` frees the port at once."""

    def __init__(self, address: str, port: int, greeting: str) -> None:
        """Raises OSError if the port is in use or the address is not this machine's."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._greeting = greeting.encode() + b"\n"
        self._listener = socket.socket(family)
        try:
            self._listener.bind((address, port))
            # Only after binding, so that a port in use stays refused. Accepted connections inherit the option,
            # and do not keep the next program from listening here while they close.
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.listen(64)
        except OSError:
            self._listener.close()
            raise
        self.address, self.port = address, int(self._listener.getsockname()[1])
        threading.Thread(target=self._answer_all, name=f"probe listener {self.port}", daemon=True).start()

    def close(self) -> None:
        """Stop listening and free the port."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept()
        self._listener.close()

    def _answer_all(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        """Let the peer close first: the side that closes first keeps the port busy for a minute (TIME_WAIT)."""
        with suppress(OSError), connection:
            connection.settimeout(ANSWER_LIMIT_S)
            connection.sendall(self._greeting)
            connection.recv(1)


def probe_ports(peers: Iterable[CheckPeer], greeting: str) -> list[Reached]:
    """Probe all peers in parallel; takes as long as the slowest."""
    with ThreadPoolExecutor(MAX_PARALLEL) as threads:
        return list(threads.map(lambda peer: probe_port(peer, greeting), peers))


def probe_port(peer: CheckPeer, greeting: str) -> Reached:
    """Check that the peer answers with the greeting. Retries refusals: the peer's worker may be restarting."""
    deadline = time.monotonic() + CONNECT_LIMIT_S
    while True:
        result = _probe_once(peer, greeting)
        if result.trouble != "refused" or time.monotonic() >= deadline:
            return result
        time.sleep(PAUSE_S)


def _probe_once(peer: CheckPeer, greeting: str) -> Reached:
    began = time.monotonic()
    try:
        connection = socket.create_connection((peer.address, peer.port), CONNECT_LIMIT_S)
    except TimeoutError:
        return _failure(peer, "silent", f"no answer in {CONNECT_LIMIT_S:g} s")
    except ConnectionRefusedError:
        return _failure(peer, "refused", "connection refused")
    except OSError as error:
        return _failure(peer, "no route", (error.strerror or str(error)).lower())
    took_s = time.monotonic() - began
    if _receives(connection, greeting):
        return Reached(**peer.model_dump(), took_s=took_s)
    return _failure(peer, "foreign", "another program answers")


def _receives(connection: socket.socket, greeting: str) -> bool:
    expected = greeting.encode() + b"\n"
    received = b""
    with suppress(OSError), connection:
        connection.settimeout(ANSWER_LIMIT_S)
        while len(received) < len(expected) and (chunk := connection.recv(CHUNK_BYTES)):
            received += chunk
    return received == expected


def _failure(peer: CheckPeer, trouble: str, problem: str) -> Reached:
    return Reached.model_validate(peer.model_dump() | {"trouble": trouble, "problem": problem})
