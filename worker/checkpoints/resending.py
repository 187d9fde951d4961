"""Send a checkpoint of an ended attempt again, from its file on this node, because it never arrived whole."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from domain.spec import Assignment, Resend
from worker.checkpoints.upload import CheckpointUploader
from worker.checkpoints.watching import CheckpointWatch
from worker.node.attempt_files import EXISTING_FILE
from worker.node.run_files import existing_files
from worker.session.answers import Adoption
from worker.session.bodies import MayContinue
from worker.session.client import Client, TaskRef
from worker.session.failures import RequestRefused

log = logging.getLogger(__name__)
GONE = "It is no longer on its node, or not whole there."
CHANGED = "Its file was overwritten since; the newer version was sent instead."


def send_again(
    resend: Resend, assignment: Assignment | None, folder: Path, client: Client, adoption: Adoption | None,
    may_continue: MayContinue,
) -> None:  # fmt: skip
    """Send it, and answer the request. Raises what the client raises: it is tried again.

    `folder` is the attempt's directory and `assignment` what it was made for; None where the node has it no more."""
    problem = GONE if assignment is None else _send(resend, assignment, folder, client, adoption, may_continue)
    if not may_continue():
        return
    log.info("checkpoint %s of run %s: %s", resend.path, resend.run_id, problem or "sent again")
    try:
        client.resent(resend.checkpoint_id, problem)
    except RequestRefused as refusal:  # the run was deleted meanwhile
        log.info("checkpoint %d: %s", resend.checkpoint_id, refusal)


def _send(
    resend: Resend, assignment: Assignment, folder: Path, client: Client, adoption: Adoption | None,
    may_continue: MayContinue,
) -> str | None:  # fmt: skip
    """Return why it could not be sent; None once the server has it whole."""
    workdir = assignment.spec.workdir
    roots = [folder / "work"] + ([Path(workdir)] if workdir else [])
    watch = CheckpointWatch(roots, folder / "outbox", ignore=existing_files(folder / EXISTING_FILE))
    watch.take_again(resend.path)
    watch.step(time.monotonic(), final=True)
    copy = next((copy for copy in watch.pending() if copy.name == resend.path), None)
    if copy is None:
        return watch.notice or GONE
    task = TaskRef(resend.fence, resend.node_rank, resend.label)
    uploader = CheckpointUploader(watch, client, task, f"{resend.run_id}/{resend.attempt}")
    uploader.send(adoption, may_continue)
    if uploader.refusals:
        return uploader.refusals[-1]
    return None if copy.sha256 == resend.sha256 else CHANGED
