"""Give processes that watch what others launch their places in runs."""

from __future__ import annotations

import logging

from dashboard.service.service import Service
from db.tasks import desired_state
from db.watched import places
from domain import protocol
from domain.watching.messages import WatchAnswer, WatchRequest

log = logging.getLogger("rankzero")


def watch(service: Service, request: WatchRequest) -> WatchAnswer:
    """Answer a process that asks for its place; asking again renews it. Raises Denied, InvalidRequest."""
    if not protocol.is_spoken(request.protocol):
        return WatchAnswer(place="refused", message=_other_protocol(request.protocol))
    service.references.check_request(request)
    place = places.take_place(service.store, request, service.clock(), service.settings.lost_after_s)
    if place.place != "joined":
        return WatchAnswer(place=place.place, message=place.message)
    service.registry.forget(place.node_id)
    service.token_ended(place.node_id)
    service.run_changed(place.run_id)
    log.info("run %s is watched on %s", place.run_id, request.command.host)
    return _joined(service, place)


def _joined(service: Service, place: places.TakenPlace) -> WatchAnswer:
    assignment = desired_state.assignment_of(service.store, place.fence, place.node_id)
    token = service.credentials.attempt_token(place.fence, place.node_id)
    return WatchAnswer(
        place="joined",
        run_id=place.run_id,
        name=place.name,
        url=f"/run?id={place.run_id}",
        node_id=place.node_id,
        node_token=place.node_token,
        assignment=assignment.model_copy(update={"token": token}),
        store=service.lineage.identity,
    )


def _other_protocol(spoken: int) -> str:
    outdated = "the rankzero that watches" if protocol.is_older(spoken) else "the dashboard"
    return f"Upgrade {outdated}: it speaks protocol {min(spoken, protocol.PROTOCOL)}, the other side a newer one."
