"""Announce stored points to the pages that show them."""

from __future__ import annotations

from dashboard.live.hub import series_message
from dashboard.service.service import Service
from db.models import Series
from db.tasks.task_reports import Arrival


def announce(service: Service, arrival: Arrival, source: str, node_rank: int) -> None:
    """Send new points to the pages that are open on their run, at every dashboard."""
    if arrival.stored and service.peers is not None:
        service.peers.points_arrived(arrival.run_id)
    elif arrival.stored and service.hub.watched(arrival.run_id):
        rows = {tag: Series(tag=tag, source=source, node_rank=node_rank) for tag in arrival.series}
        changes = [(rows[tag], points) for tag, points in arrival.series.items()]
        service.hub.publish(arrival.run_id, series_message(arrival.attempt, changes))
