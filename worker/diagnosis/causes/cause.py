"""A known cause of a failure: its pattern, the sentence about it, and the next step to try."""

from __future__ import annotations

import re
from dataclasses import dataclass

from domain.messages import Reason

AS_RAISED = "{text}{place}{origin}"


@dataclass(frozen=True)
class Cause:
    """A row of the table. `says` and `next_step` may use {fields}: the pattern's groups, text, place, origin, node."""

    pattern: str
    next_step: str
    says: str = AS_RAISED
    reason: Reason = Reason.SCRIPT_ERROR

    def match(self, text: str) -> re.Match[str] | None:
        """Search the text for this cause."""
        return re.search(self.pattern, text, re.MULTILINE)
