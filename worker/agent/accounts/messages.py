"""What the worker and an account's agent tell each other: a JSON object a line, the settings first."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

from domain.masking.masking import is_secret_variable
from domain.messages import CheckAnswer, HeldAttempt
from worker.attempt.reports import Shutdown
from worker.launch.preparation import LocalNode
from worker.session.answers import DesiredState

LONGEST_LINE_BYTES = 64 * 1024 * 1024
"""Of orders."""
LONGEST_ANSWER_BYTES = 4 * 1024 * 1024
"""Of what an agent says, which trainings can tamper with."""


class AgentSettings(BaseModel):
    """What an agent needs to know of its node; no credential is among it."""

    model_config = ConfigDict(frozen=True)

    server: str
    """The dashboard's URL."""
    node: LocalNode
    """The worker's own node: the agent keeps its data elsewhere, and has connections of its own."""
    warm_start: bool
    environment: dict[str, str]
    """The variables for trainings."""
    umask: int
    certificates: str = ""
    """The content of the file of certificates to trust; empty: the system's."""
    only_checks: bool = False
    """Answer whether trainings can run under this account, and end."""


class AgentCheck(BaseModel):
    """An agent's answer to `only_checks`."""

    problem: str = ""
    """Why trainings cannot run under this account, as a sentence."""


class Order(BaseModel):
    """The newest desired state of an account's attempts, or the end of all."""

    number: int
    desired: DesiredState | None = None
    secrets: dict[str, dict[str, str]] = {}
    """The values of the secrets of each attempt, by its label: the desired state is written without them."""
    may_start: bool = True
    shut_down_within_s: float | None = None
    cause: Shutdown = "worker"

    @classmethod
    def of(cls, desired: DesiredState, *, may_start: bool) -> Order:
        """The order to reach this state."""
        secrets = {one.label: one.secrets for one in desired.assignments if one.secrets}
        return cls(number=0, desired=desired, secrets=secrets, may_start=may_start)

    @property
    def desired_with_secrets(self) -> DesiredState | None:
        """The desired state as the server sent it."""
        if self.desired is None:
            return None
        whole = [
            one.model_copy(update={"secrets": self.secrets.get(one.label, {})}) for one in self.desired.assignments
        ]
        return self.desired.model_copy(update={"assignments": whole})


class Status(BaseModel):
    """The attempts under an account, by a process that trainings can tamper with: believed of its own only."""

    seen: int = 0
    """The number of the newest order that is in effect."""
    unsettled: list[str] = []
    """RUN/ATTEMPT of those whose end the server does not have yet."""
    training: list[str] = []
    held: list[HeldAttempt] = []
    warm_start: str = ""


class Answered(BaseModel):
    """The result of one stage of a preflight with a Python that a person named, for the worker to pass on."""

    check_id: int
    answer: CheckAnswer


class AgentLine(BaseModel):
    """A line from an agent: one of the two."""

    status: Status | None = None
    answered: Answered | None = None


_OWN = re.compile(
    r"HOME|USER|LOGNAME|MAIL|SHELL|PWD|OLDPWD|TMPDIR|TEMP|TMP|USERNAME|KRB5CCNAME|INVOCATION_ID|JOURNAL_STREAM|NOTIFY_SOCKET"
    r"|(XDG|SUDO|DBUS|SSH|GPG|SYSTEMD|CREDENTIALS|STATE|CACHE|LOGS|RUNTIME|CONFIGURATION)_\w+"
)
"""Variables about the worker's own account and session."""


def handed_on(variables: Mapping[str, str]) -> dict[str, str]:
    """The worker's variables that trainings under another account get: none of its own, none named like a secret."""
    return {
        name: value
        for name, value in variables.items()
        if not (_OWN.fullmatch(name) or is_secret_variable(name, value))
    }
