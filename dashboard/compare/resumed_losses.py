"""Judge the losses of live runs that resumed, every few seconds: whether they jumped, and why."""

from __future__ import annotations

from dashboard.compare.resuming import plan_of_attempt
from dashboard.service.service import Service
from db.attempts import attempt_queries
from db.findings.findings import finding_judged
from db.findings.resumed_losses import Resumption, resumed_loss, resumptions
from domain.checkpoint_use.resumed_loss import BEFORE, KIND, ResumedLoss, resumed_loss_finding
from domain.messages import Finding

EVERY_S = 5.0


class ResumedLosses:
    """The losses after the resumes of one dashboard's live runs."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._judged_at = float("-inf")
        self._findings: dict[int, Finding | None] = {}
        """Fence -> its finding when it was last judged; missing before that."""
        self._settled: set[int] = set()
        """Fences of attempts without the finding after many points: they are not judged again."""

    def tick(self) -> None:
        """Judge the attempts that are not settled when it is time; called once a second."""
        now = self._service.clock()
        if now - self._judged_at < EVERY_S or not self._service.leads() or self._service.store.trouble is not None:
            return
        self._judged_at = now
        live = {one.fence for one in attempt_queries.live_attempts(self._service.store)}
        self._settled &= live
        self._findings = {fence: finding for fence, finding in self._findings.items() if fence in live}
        for resumption in resumptions(self._service.store, live - self._settled):
            self._judge(resumption, now)

    def _judge(self, resumption: Resumption, now: float) -> None:
        store, fence = self._service.store, resumption.fence
        loss = resumed_loss(store, resumption)
        finding = self._finding(fence, loss) if loss else None
        if finding != self._findings.get(fence, UNJUDGED):
            self._findings[fence] = finding
            if finding_judged(store, fence, KIND, finding, now):
                self._service.run_changed(resumption.run_id)
        if loss and finding is None and loss.count >= BEFORE:
            self._settled.add(fence)

    def _finding(self, fence: int, loss: ResumedLoss) -> Finding | None:
        plan = plan_of_attempt(self._service.store, fence)
        return resumed_loss_finding(loss, plan) if plan else None


UNJUDGED = object()
