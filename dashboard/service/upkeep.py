"""The upkeep of a dashboard: the work that nobody asks for, once a second."""

from __future__ import annotations

from dashboard.private_files import keep_spare
from dashboard.service.parts import Parts
from db.runs import time_limits


def tick(parts: Parts) -> None:
    """Schedule, erase and end what is due, and announce nodes that fell silent or are back."""
    parts.lease.tick(parts.clock())
    parts.store.try_again()
    if parts.check_disk_space():
        keep_spare(parts.settings.data)
    if parts.store.trouble is None:
        _decide(parts)
    parts.silence.update(parts.now_for_contact(), parts.clock())
    parts.on_live_runs(parts.silence.live_runs)


def _decide(parts: Parts) -> None:
    if parts.leads():
        parts.storages.sweep()
        parts.abandoned_imports.sweep()
        parts.deletions.sweep()
        parts.retention.sweep()
        parts.compression.sweep()
        parts.guests.sweep()
    parts.registry.write_down()
    parts.access_tokens.write_down()
    parts.access_tokens.close_ended()
    parts.schedule_in_turn()
    now = parts.now_for_contact()
    _end_tasks_of_lost_nodes(parts, now)
    if parts.leads():
        parts.runs_changed(time_limits.enforce(parts.store, parts.clock()))
    parts.slow_ranks.update(parts.clock())
    for run_id in parts.preflights.tick(now):
        parts.run_changed(run_id)


def _end_tasks_of_lost_nodes(parts: Parts, now: float) -> None:
    """End the attempts that wait for a lost node; by their policies they continue elsewhere."""
    if not parts.leads():
        return
    changed = parts.lost_nodes.judge(parts.store, now, parts.settings.lost_after_s)
    parts.runs_changed(changed)
    if changed:
        parts.schedule()
