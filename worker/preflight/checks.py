"""Takes part in preflights: answers each stage once, in a thread that holds up nothing else."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from domain.messages import CheckAnswer, Measured
from domain.spec import CheckWish
from worker.launch.preparation import LocalNode
from worker.preflight.bandwidth import measure
from worker.preflight.node_check import look, open_door
from worker.preflight.port_probe import Door, find_ways
from worker.session.client import Client
from worker.session.failures import RequestRefused, ServerAway

log = logging.getLogger(__name__)
REACH_STAGE = 1
Background = Callable[[Callable[[], None]], object]


class Checks:
    """The preflights of one node; `take` may be called from any thread."""

    def __init__(
        self, node: LocalNode, client: Client, background: Background, devices: Sequence[str]
    ) -> None:
        self._node, self._client, self._background = node, client, background
        self._devices = list(devices)
        self._doors: dict[int, Door] = {}
        self._taken_up: set[tuple[int, int]] = set()
        self._lock = threading.Lock()

    def take(self, wishes: Sequence[CheckWish]) -> None:
        """The newest complete list."""
        with self._lock:
            open_ids = {wish.check_id for wish in wishes if wish.stage <= REACH_STAGE}
            for check_id in self._doors.keys() - open_ids:
                self._doors.pop(check_id).close()
            self._taken_up &= {(wish.check_id, wish.stage) for wish in wishes}
            for wish in wishes:
                if (key := (wish.check_id, wish.stage)) not in self._taken_up:
                    self._taken_up.add(key)
                    self._background(lambda wish=wish: self._answer(wish))  # type: ignore[misc]

    def _answer(self, wish: CheckWish) -> None:
        answer = self._found(wish)
        if answer is None:
            return
        try:
            self._client.answer_check(wish.check_id, answer)
        except (ServerAway, RequestRefused) as error:
            log.info("preflight %d: stage %d was not taken: %s", wish.check_id, wish.stage, error)
            with self._lock:  # with the next list it is answered again
                self._taken_up.discard((wish.check_id, wish.stage))

    def _found(self, wish: CheckWish) -> CheckAnswer | None:
        if wish.stage == 0:
            found = look(self._node, self._client, wish.python, wish.devices or self._devices)
            if (door := open_door(found, words(wish.check_id))) is not None:
                self._keep(wish.check_id, door)
            return CheckAnswer(stage=wish.stage, facts=found)
        if wish.peers:
            return CheckAnswer(stage=wish.stage, reached=find_ways(wish.peers, words(wish.check_id)))
        if wish.pair is not None:
            return CheckAnswer(stage=wish.stage, measured=self._measured(wish))
        return None

    def _measured(self, wish: CheckWish) -> Measured:
        assert wish.pair is not None
        devices = (wish.devices or self._devices)[:1]
        return measure(
            wish.pair, wish.python or self._node.python, self._node.among_others().interface, devices
        )

    def _keep(self, check_id: int, door: Door) -> None:
        with self._lock:
            if (before := self._doors.pop(check_id, None)) is not None:
                before.close()
            self._doors[check_id] = door


def words(check_id: int) -> str:
    """What a node that takes part says to another."""
    return f"rankzero preflight {check_id}"
