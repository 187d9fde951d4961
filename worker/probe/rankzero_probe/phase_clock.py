"""Divide the time of each step into phases: every moment of the training thread belongs to exactly one."""

from __future__ import annotations

from threading import get_ident, main_thread
from time import perf_counter


class PhaseClock:
    """The phase of the training thread, and the seconds in each since the first step."""

    def __init__(self) -> None:
        self.thread = main_thread().ident
        self.phase = OTHER
        self.since = 0.0
        self.seconds = [0.0] * COUNT
        self.ended: tuple[int, list[float]] = (0, [0.0] * COUNT)
        """The last step and the seconds in each phase at its end, as the recorder reads them."""
        self.optimizer_id = 0

    def begin(self, phase: int) -> int:
        """Begin a phase; return the one that `end` goes back to, or NOT_BEGUN."""
        current = self.phase
        if (current and current not in BEGINS_IN[phase]) or get_ident() != self.thread:
            return NOT_BEGUN
        now = perf_counter()
        # Between the batch and the backward pass lie the forward pass and the loss.
        self.seconds[FORWARD if phase == BACKWARD else current] += now - self.since
        self.since, self.phase = now, phase
        return current

    def end(self, previous: int) -> None:
        """End the current phase and go back to the previous one."""
        if previous != NOT_BEGUN:
            now = perf_counter()
            self.seconds[self.phase] += now - self.since
            self.since, self.phase = now, previous

    def end_compute(self) -> None:
        """Begin the wait for communication at the end of the backward pass, whichever thread computed it."""
        if self.phase == BACKWARD:
            self.end(COMM)

    def begin_optimizer(self, optimizer: object) -> None:
        """Begin an optimizer's step; those that it calls itself are part of it."""
        if self.phase == OTHER and get_ident() == self.thread:
            now = perf_counter()
            self.seconds[OTHER] += now - self.since
            self.since, self.phase, self.optimizer_id = now, OPTIMIZER, id(optimizer)

    def end_optimizer(self, optimizer: object) -> float:
        """End an optimizer's step, if it is one, and return the time."""
        now = perf_counter()
        if self.phase == OPTIMIZER and self.optimizer_id == id(optimizer):
            self.seconds[OPTIMIZER] += now - self.since
            self.since, self.phase = now, OTHER
        return now

    def end_step(self, step: int, at: float) -> None:
        """End a step; the time before the first one is the start and belongs to none."""
        if at != self.since:  # an optimizer's step has not just ended here
            self.seconds[self.phase] += at - self.since
            self.since, self.phase = at, OTHER
        if step > 1:
            self.ended = (step, self.seconds[:])
        else:
            self.seconds = [0.0] * COUNT

    def disown_data(self, own_s: float) -> None:
        """Keep `own_s` of this step as waiting for data: the rest was a validation's."""
        of_step = self.seconds[DATA] - self.ended[1][DATA]
        self.seconds[OTHER] += of_step - own_s
        self.seconds[DATA] += own_s - of_step


OTHER, DATA, COPY, FORWARD, BACKWARD, COMM, CALLED, OPTIMIZER, CHECKPOINT = range(9)
"""COMM: waiting inside DistributedDataParallel; CALLED: inside a collective that the script itself calls."""
COUNT = 9
NAMES = {
    "other_s": (OTHER,),
    "data_s": (DATA,),
    "copy_s": (COPY,),
    "forward_s": (FORWARD,),
    "backward_s": (BACKWARD,),
    "exposed_comm_s": (COMM, CALLED),
    "called_comm_s": (CALLED,),
    "optimizer_s": (OPTIMIZER,),
    "checkpoint_s": (CHECKPOINT,),
}
"""Phases as they are recorded; `called_comm_s` is part of `exposed_comm_s`, all others add up to the step."""
NAMES_ALONE = {
    **NAMES,
    "backward_s": (BACKWARD, COMM),
    "other_s": (OTHER, CALLED),
    "exposed_comm_s": (),
    "called_comm_s": (),
}
"""The same in a group of one process, which has nobody to communicate with: what remains is work of its own."""
_IDLE = frozenset({OTHER, OPTIMIZER})
"""An optimizer's step may call the whole training step (a closure, as LBFGS and Lightning do)."""
BEGINS_IN = {
    DATA: _IDLE,
    COPY: _IDLE,
    FORWARD: _IDLE,
    BACKWARD: _IDLE,
    COMM: _IDLE | {FORWARD, BACKWARD},
    CALLED: _IDLE | {FORWARD, BACKWARD},
    CHECKPOINT: _IDLE,
}
"""Phases that each one interrupts; begun in another phase it is part of that one."""
NOT_BEGUN = -1
