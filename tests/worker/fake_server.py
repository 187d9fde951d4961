"""A server in memory that keeps the rules of the worker's endpoints, and can be away, full or forgetful."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

from domain.checkpoint_use.tasks import PushDetails
from domain.messages import TERMINAL_STATES, PieceAnswer
from domain.points import PackedBatch
from worker.session.answers import CheckpointUpload, FileOffsets
from worker.session.bodies import BodyLimit
from worker.session.client import TaskRef
from worker.session.failures import (
    AttemptSuperseded,
    ChecksumMismatch,
    OffsetMismatch,
    RequestFailed,
    RequestRefused,
    ServerAway,
    ServerMistake,
)


class FakeServer:
    """Stands in for `worker.session.client.Client`."""

    def __init__(self) -> None:
        self.is_away = False
        self.loses_replies = False
        self.superseded: set[int] = set()
        self.given_up: set[int] = set()
        """Superseded as well, but the proof of their end is awaited."""
        self.longest_report_bytes: int | None = None
        self.url, self.body_limit = "http://server", BodyLimit()
        self.reports: list[tuple[int, object]] = []
        self.timelines: list[tuple[int, object]] = []
        """Reports that come beside those of states: the phases of a start."""
        self.files: dict[tuple[int, str, int], bytes] = {}
        self.points_offsets: dict[tuple[int, str, int], int] = {}
        self.series: dict[str, list] = {}
        self.findings_of: dict[int, list] = {}
        """Findings, by attempt."""
        self.asked: dict[int, object] = {}
        self.collected: dict[int, object] = {}
        """Stacks, by attempt."""
        self.checkpoints: list[dict] = []
        self.answered: dict[int, str | None] = {}
        """Why a checkpoint that was asked for again cannot be sent, by its id; None where it was."""
        self.checkpoint_tasks: dict[int, list] = {}
        """Reports of work on checkpoints, by its id."""
        self.push: PushDetails | None = None
        """What a push is given."""
        self.downloads: dict[int, bytes] = {}
        self.snapshots: dict[str, bytes] = {}
        self.calls = 0
        self.fails_at_points: dict[int, Exception] = {}
        """What is raised at the points of an attempt."""

    # What tests ask.

    def states(self, fence=None) -> list[str]:
        """Reported states, in order, without repetitions."""
        reported = [report.state for number, report in self.reports if fence in (None, number)]
        return list(dict.fromkeys(reported))

    def end(self, fence=None):
        """The terminal report, or None; there is never more than one kind of end."""
        ends = [r for number, r in self.reports if fence in (None, number) and r.state in TERMINAL_STATES]
        assert len({end.state for end in ends}) <= 1
        return ends[-1] if ends else None

    def text(self, path: str) -> str:
        """A mirrored file."""
        sent = [data for (_, name, _), data in self.files.items() if name == path]
        return b"".join(sent).decode()

    # What the worker calls.

    def time(self) -> float:
        return time.time()

    def report(self, task, report) -> str:
        self._arrive()
        size_bytes = len(report.model_dump_json(exclude_none=True))
        if self.longest_report_bytes is not None and size_bytes > self.longest_report_bytes:
            raise RequestRefused(f"The body must be at most {self.longest_report_bytes} bytes here.")
        is_end = report.state in TERMINAL_STATES
        is_over = task.fence in self.given_up or self.end(task.fence) is not None
        if task.fence in self.superseded or (is_over and not is_end):
            raise AttemptSuperseded(f"attempt {task.fence} was replaced")
        reports = self.reports if report.timeline is None else self.timelines
        reports.append((task.fence, report))
        self._answer()
        return report.state

    def file_offsets(self, task, path, generation) -> FileOffsets:
        self._arrive()
        key = (task.fence, path, generation)
        return FileOffsets(offset=len(self.files.get(key, b"")), points_offset=self.points_offsets.get(key, 0))

    def bundle(self, heads, contents) -> list[PieceAnswer]:
        self._arrive()
        answers = [self._answer_to(head, content) for head, content in zip(heads, contents, strict=True)]
        self._answer()
        return answers

    def _answer_to(self, head, content) -> PieceAnswer:
        task = TaskRef(head.fence, head.node_rank)
        try:
            if head.path:
                offset = self.append(task, head.path, head.generation, head.offset, content)
            else:
                offset = self.points(task, PackedBatch.of_body(content))
        except OffsetMismatch as mismatch:
            return PieceAnswer(status=416, body={"offset": mismatch.have})
        except (ServerMistake, RequestFailed) as error:
            status = 500 if isinstance(error, ServerMistake) else 503
            return PieceAnswer(status=status, body={"detail": {"field": None, "message": str(error)}})
        return PieceAnswer(status=200, body={"offset": offset})

    def append(self, task, path, generation, offset, data) -> int:
        key = (task.fence, path, generation)
        have = self.files.get(key, b"")
        if offset != len(have):
            raise OffsetMismatch(len(have))
        self.files[key] = have + data
        return offset + len(data)

    def points(self, task, batch) -> int:
        if task.fence in self.fails_at_points:
            raise self.fails_at_points[task.fence]
        key = (task.fence, batch.path, batch.generation)
        if batch.start != self.points_offsets.get(key, 0):
            raise OffsetMismatch(self.points_offsets.get(key, 0))
        self.points_offsets[key] = batch.end
        for tag, points in batch.series.items() if batch.source != "probe" else ():
            self.series.setdefault(tag, []).extend(points)
        return batch.end

    def findings(self, task, said) -> None:
        self._arrive()
        self.findings_of[task.fence] = list(said.findings)
        self._answer()

    def stacks(self, task, said) -> None:
        self._arrive()
        self.asked[task.fence] = said
        self._answer()

    def collectives(self, task, records) -> None:
        self._arrive()
        self.collected[task.fence] = records
        self._answer()

    def offer_checkpoint(self, task, offer) -> CheckpointUpload:
        self._arrive()
        fresh = {"fence": task.fence, "path": offer.path, "sha256": offer.sha256, "step": offer.step}
        fresh |= {"task_id": offer.task_id} if offer.task_id is not None else {}
        same = [n for n, known in enumerate(self.checkpoints) if fresh.items() <= known.items()]
        if not same:
            self.checkpoints.append(fresh | {"data": b"", "complete": False, "adopted": None})
        number = same[0] if same else len(self.checkpoints) - 1
        known = self.checkpoints[number]
        self._answer()
        return CheckpointUpload(checkpoint_id=number, offset=len(known["data"]), complete=known["complete"])

    def send_checkpoint(self, checkpoint_id, offset, data) -> int:
        self._arrive()
        known = self.checkpoints[checkpoint_id]
        if offset != len(known["data"]):
            raise OffsetMismatch(len(known["data"]))
        known["data"] += data if isinstance(data, bytes) else b"".join(data)
        self._answer()
        return len(known["data"])

    def complete_checkpoint(self, checkpoint_id, sha256, adopted=None, tasks=None) -> None:
        self._arrive()
        known = self.checkpoints[checkpoint_id]
        assert sha256 == known["sha256"]
        if adopted is not None:
            known["adopted"] = adopted
            known["data"] = (self.adopt_directory / adopted).read_bytes()
        if hashlib.sha256(known["data"]).hexdigest() != known["sha256"]:
            known["data"] = b""
            raise ChecksumMismatch("the SHA-256 differs")
        known["complete"] = True
        self._answer()

    def resent(self, checkpoint_id, problem) -> None:
        self._arrive()
        self.answered[checkpoint_id] = problem
        self._answer()

    def report_checkpoint_task(self, task, report) -> None:
        self._arrive()
        self.checkpoint_tasks.setdefault(task.task_id, []).append(report)
        self._answer()

    def push_details(self, task) -> PushDetails:
        self._arrive()
        if self.push is None:
            raise RequestRefused("The secret HF_TOKEN of ana was removed: set it again, then ask again.")
        return self.push

    adopt_directory = Path("/nowhere")

    def download(self, source, target, reached=lambda _: None) -> None:
        self._arrive()
        data = self.downloads.get(source.checkpoint_id)
        if data is None:
            raise RequestRefused("there is no such checkpoint")
        for done in range(len(data) + 1):
            reached(done)
        target.write_bytes(data)

    def download_snapshot(self, sha256, target) -> None:
        self._arrive()
        if sha256 not in self.snapshots:
            raise RequestRefused("there is no such snapshot")
        target.write_bytes(self.snapshots[sha256])

    def _arrive(self) -> None:
        self.calls += 1
        if self.is_away:
            raise ServerAway("connection refused")

    def _answer(self) -> None:
        """What was asked is done, but whoever asked may not hear of it."""
        if self.loses_replies and self.calls % 3 == 0:
            raise ServerAway("the connection broke before the answer came")
