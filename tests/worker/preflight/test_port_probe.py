"""How nodes find the way to each other, and tell a node from whatever else answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from domain.assignments import CheckPeer
from tests.end_to_end.product import free_port, wait_for
from tests.virtual_time import VirtualTime
from worker.preflight import node_check
from worker.preflight.node_check import ProbeListener, least_free, probe_port, probe_ports
from worker.session.clock import offset
from worker.session.failures import ServerAway


def at(port: int, node_rank: int = 0) -> CheckPeer:
    return CheckPeer(node_rank=node_rank, address="127.0.0.1", port=port)


def test_who_comes_hears_the_words_and_the_port_is_free_at_once_after() -> None:
    door = ProbeListener("127.0.0.1", 0, "rankzero abc/1")
    probed = probe_ports([at(door.port, rank) for rank in range(40)], "rankzero abc/1")
    assert [each.node_rank for each in probed] == list(range(40)) and not any(each.problem for each in probed)
    door.close()
    wait_for(lambda: is_free(door.port), "the port", 50)  # whoever closed first would keep it busy for a minute


def is_free(port: int) -> bool:
    """Whether a program may listen there that is as strict as can be: without SO_REUSEADDR."""
    with socket.socket() as other, suppress(OSError):
        other.bind(("127.0.0.1", port))
        other.listen()
        return True
    return False


def test_closed_port_is_a_refusal() -> None:
    with socket.socket() as held:  # so that nobody else listens there meanwhile
        held.bind(("127.0.0.1", 0))
        probed = probe_port(at(held.getsockname()[1]), "x")
    assert (probed.trouble, probed.problem) == ("refused", "connection refused")


def test_a_door_that_opens_a_moment_later_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_check, "CONNECT_LIMIT_S", 300.0)
    port = free_port()  # nobody else gets it before the door is there
    late: list[ProbeListener] = []
    timer = threading.Timer(0.3, lambda: late.append(ProbeListener("127.0.0.1", port, "x")))
    timer.start()
    assert probe_port(at(port), "x").problem is None
    timer.join()  # it may be answered before it is listed
    late[0].close()


@pytest.mark.parametrize("words", [b"SSH-2.0-OpenSSH_9.2\r\n", b""])
def test_another_program_is_not_taken_for_a_node(words: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            guest, _ = server.accept()
            guest.sendall(words)
            guest.close()

        threading.Thread(target=answer, daemon=True).start()
        probed = probe_port(at(server.getsockname()[1]), "rankzero abc/1")
    assert (probed.trouble, probed.problem) == ("foreign", "another program answers")


def test_a_taken_port_and_a_strange_address_open_no_door() -> None:
    door = ProbeListener("127.0.0.1", 0, "x")
    for address, port in (("127.0.0.1", door.port), ("192.0.2.1", 0)):
        with pytest.raises(OSError):
            ProbeListener(address, port, "x")
    door.close()


def answering(virtual: VirtualTime, *delays_s: float, is_behind_s: float) -> Callable[[], float]:
    """A server whose clock is behind, and whose answers take so long on their way."""
    delays = iter(delays_s)

    def server_time() -> float:
        one_way_s = next(delays) / 2
        virtual.advance(one_way_s)
        server_s = virtual.wall() - is_behind_s
        virtual.advance(one_way_s)
        return server_s

    return server_time


def test_the_offset_is_that_of_the_middle_of_the_quickest_answer() -> None:
    virtual = VirtualTime()
    measured = offset(answering(virtual, 4.0, 1.0, 2.0, is_behind_s=5.0), virtual)
    assert measured == (pytest.approx(5.0, abs=1e-6), pytest.approx(0.5))
    measured = offset(answering(virtual, 0.02, is_behind_s=-10.0), virtual)
    assert measured.seconds == pytest.approx(-10.0, abs=1e-6)


class PausedOnceItIsRead(VirtualTime):
    def wall(self) -> float:
        read_at = super().wall()
        self.advance(0.2)
        return read_at


def test_a_process_that_is_not_run_for_a_while_takes_the_pause_for_no_offset() -> None:
    virtual = PausedOnceItIsRead()
    measured = offset(lambda: VirtualTime.wall(virtual), virtual)
    assert abs(measured.seconds) <= measured.error_s + 1e-6


def test_one_request_that_fails_costs_no_offset() -> None:
    answers: list[Exception | float] = [ServerAway("broken off"), 1000.0]

    def server_time() -> float:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert offset(server_time, VirtualTime(wall=1005.0)).seconds == 5.0
    answers[:] = [ServerAway("away")]
    with pytest.raises(ServerAway):
        offset(server_time, VirtualTime())


def test_the_fullest_disk_counts(tmp_path) -> None:
    path, size_bytes = least_free([tmp_path, tmp_path / "missing"])
    assert path == str(tmp_path) and size_bytes
    assert least_free([]) == ("", None)
