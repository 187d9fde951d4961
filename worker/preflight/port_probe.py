"""A port that is held open, so that other nodes can find out whether they reach it, and whether it is ours."""

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
"""Time for one repetition of a first packet that was lost; who has not answered by then will not."""
ANSWER_LIMIT_S = 5.0
PAUSE_S = 0.1
AT_ONCE = 32
LONGEST_WORDS = 200


class Door:
    """Listens and says the same words to everybody who comes; `close` frees the port at once."""

    def __init__(self, address: str, port: int, words: str) -> None:
        """Raises OSError when the port is taken, or the address is not of this machine."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._words = words.encode() + b"\n"
        self._listener = socket.socket(family)
        try:
            self._listener.bind((address, port))
            # Not before it is bound: a port in use stays refused. Guests inherit it, and then keep nobody from
            # listening here after us while they take their leave.
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.listen(64)
        except OSError:
            self._listener.close()
            raise
        self.address, self.port = address, int(self._listener.getsockname()[1])
        threading.Thread(target=self._answer_all, name=f"door {self.port}", daemon=True).start()

    def close(self) -> None:
        """Whoever wants to listen there now can."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for guests
        self._listener.close()

    def _answer_all(self) -> None:
        while True:
            try:
                guest, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(guest,), daemon=True).start()

    def _answer(self, guest: socket.socket) -> None:
        """The guest hangs up first: who does keeps the port busy for a minute (TIME_WAIT)."""
        with suppress(OSError), guest:
            guest.settimeout(ANSWER_LIMIT_S)
            guest.sendall(self._words)
            guest.recv(1)


def find_ways(peers: Iterable[CheckPeer], words: str) -> list[Reached]:
    """Knock at each door; takes as long as the slowest."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(lambda peer: knock(peer, words), peers))


def knock(peer: CheckPeer, words: str) -> Reached:
    """Whether the one who answers there is the one expected. A refusal may be a worker that just starts again."""
    deadline = time.monotonic() + CONNECT_LIMIT_S
    while True:
        found = _knock_once(peer, words)
        if found.trouble != "refused" or time.monotonic() >= deadline:
            return found
        time.sleep(PAUSE_S)


def _knock_once(peer: CheckPeer, words: str) -> Reached:
    began = time.monotonic()
    try:
        line = socket.create_connection((peer.address, peer.port), CONNECT_LIMIT_S)
    except TimeoutError:
        return _trouble(peer, "silent", f"no answer in {CONNECT_LIMIT_S:g} s")
    except ConnectionRefusedError:
        return _trouble(peer, "refused", "connection refused")
    except OSError as error:
        return _trouble(peer, "no route", (error.strerror or str(error)).lower())
    took_s = time.monotonic() - began
    if _said(line, words):
        return Reached(**peer.model_dump(), took_s=took_s)
    return _trouble(peer, "foreign", "another program answers")


def _said(line: socket.socket, words: str) -> bool:
    expected = words.encode() + b"\n"
    heard = b""
    with suppress(OSError), line:
        line.settimeout(ANSWER_LIMIT_S)
        while len(heard) < len(expected) and (piece := line.recv(LONGEST_WORDS)):
            heard += piece
    return heard == expected


def _trouble(peer: CheckPeer, trouble: str, problem: str) -> Reached:
    return Reached.model_validate(peer.model_dump() | {"trouble": trouble, "problem": problem})
