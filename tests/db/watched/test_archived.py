"""An archive of a watched run keeps who started it, where and by which command."""

from __future__ import annotations

from db.archives.documents import RunDocument, run_document
from db.archives.restore import ArchiveSource, restore
from db.runs import deletion
from tests.db.archives.test_staging import Archived
from tests.db.watched_hosts import watched

ORIGIN = ArchiveSource("elsewhere:/runs.zip", "0" * 64)


def test_who_started_a_run_is_in_its_archive(store):
    host = watched(store, scheduler="Slurm job 4711")
    host.report("running", ranks=[0, 1, 2, 3], world_size=4)
    host.report("succeeded")
    before, run_id = host.run.watched, host.place.run_id
    document = RunDocument.model_validate_json(run_document(store, run_id).model_dump_json())
    deletion.erase(store, run_id, 110.0)
    restore(store, run_id, document, Archived(), ORIGIN, lambda: 120.0)
    after = host.run.watched
    assert before is not None and after is not None
    assert (after.origin, after.command, host.run.world_size) == (before.origin, before.command, 4)
