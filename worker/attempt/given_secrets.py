"""The secrets that an attempt on this node was given: held in memory alone, and masked in all that leaves the node."""

from __future__ import annotations

from collections.abc import Mapping

from domain.assignments import Assignment
from domain.masking.log_lines import hidden
from domain.masking.values import ValueMask
from domain.messages import Reason, TaskReport


class GivenSecrets:
    """The values of one attempt's secrets; after a restart of the worker they come again from the server."""

    def __init__(self, assignment: Assignment) -> None:
        self._names = frozenset(assignment.spec.secrets)
        self.values: Mapping[str, str] = {}
        self.mask = ValueMask()
        self.problem: str | None = None
        """Why the server cannot give them."""
        self.take(assignment)

    def take(self, assignment: Assignment) -> None:
        """Take the values that come with an assignment of the server; one from this node's disk has none."""
        if self.are_known:
            return
        self.problem = assignment.secrets_problem
        if self._names <= assignment.secrets.keys():
            self.values = {name: assignment.secrets[name] for name in self._names}
            self.mask.add(self.values.values())
            hidden.add(self.values.values())

    @property
    def are_known(self) -> bool:
        """Whether the attempt may start, and whatever it wrote may leave this node masked."""
        return self._names == self.values.keys()

    @property
    def are_awaited(self) -> bool:
        """Whether the server has not answered yet: until then nothing of the attempt is sent."""
        return not self.are_known and self.problem is None

    def failure(self) -> TaskReport:
        """The end of an attempt that cannot start without them."""
        return TaskReport(state="failed", reason=Reason.LAUNCH_FAILED, message=self.problem)

    def masked(self, report: TaskReport) -> TaskReport:
        """The report without any value in its texts."""
        if not self.mask:
            return report
        return TaskReport.model_validate(self.mask.document(report.model_dump(exclude_unset=True)))
