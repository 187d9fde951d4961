"""When a GPU counts as idle: only where all of the time is known, and all of it was idle."""

from __future__ import annotations

import pytest

from domain.alerts.judgement import GpuUse, RunFacts, idle_gpu, is_idle
from domain.alerts.rules import Act, action, parse_rule
from domain.messages import State
from domain.requests.errors import InvalidRequest

NOW, LIMIT_S = 10_000.0, 600.0
RUN = RunFacts("abcdefghij", "digits", "default", 1, 7, State.RUNNING, None, 100.0, None, None)


def samples(busy: float = 0.0, at_s: float = 0.0, seconds: float = 900.0) -> list[tuple[float, float]]:
    """A sample every five seconds, with the utilisation `busy` so many seconds ago, else none."""
    return [(NOW - ago, busy if ago == at_s else 0.0) for ago in range(int(seconds), -1, -5)]


def test_a_gpu_is_idle_where_every_sample_of_the_time_says_so():
    assert is_idle(samples(), LIMIT_S, NOW) and is_idle(samples(busy=1.0, at_s=100), LIMIT_S, NOW)
    assert not is_idle(samples(busy=30.0, at_s=100), LIMIT_S, NOW)
    assert is_idle(samples(busy=30.0, at_s=700), LIMIT_S, NOW), "that was before"


@pytest.mark.parametrize(
    "known",
    [
        [],
        samples(seconds=500),
        samples()[:-30],
        [sample for sample in samples() if not 200 < NOW - sample[0] < 300],
    ],
    ids=["nothing", "too short", "not lately", "a gap"],
)
def test_time_that_is_unknown_is_not_idle(known):
    assert not is_idle(known, LIMIT_S, NOW)


def test_the_event_says_whether_a_rank_is_there_and_comes_once_for_a_gpu():
    for processes, why in ((0.0, "no process of the run is on it"), (1.0, "its ranks compute nothing there")):
        (event,) = idle_gpu(RUN, GpuUse("gpu-1", 0, 3, samples(), processes), LIMIT_S, NOW)
        assert event.sentence == f"digits: GPU 3 of the run on gpu-1 has been idle for 10 min: {why}."
        assert event.key == "abcdefghij/1/idle/0/3" and event.fence == 7
    assert list(idle_gpu(RUN, GpuUse("gpu-1", 0, 3, samples(90.0, 60)), LIMIT_S, NOW)) == []


def test_the_rule_needs_a_limit_and_may_end_the_run():
    rule = parse_rule("idle-gpu=30m")
    assert rule.limit == 1800.0 and action(rule, Act.END, None) is not None
    for text in ("idle-gpu", "idle-gpu=0m", "idle-gpu=30m:loss", "quarantine=3", "quarantine:x"):
        with pytest.raises(InvalidRequest):
            parse_rule(text)
    with pytest.raises(InvalidRequest, match="about hardware"):
        action(parse_rule("quarantine"), Act.END, None)
