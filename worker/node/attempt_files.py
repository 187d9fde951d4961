"""Names of the files a worker keeps beside an attempt; imports nothing, the supervisor starts with it."""

from __future__ import annotations

STATE_FILE = "supervisor.json"


STOP_FILE = "stop"


LOCK_FILE = "supervisor.lock"


LAUNCH_FILE = "launch.json"


INTERPRETER_FILE = "worker/interpreter.json"
"""What the Python that trains has; there as soon as it has been asked."""


EXISTING_FILE = "worker/existing.json"

SUPERVISOR_MODULE = "worker.attempt.supervisor"
"""How a supervisor's command line names it."""
SUPERVISOR_MODULES = (SUPERVISOR_MODULE, "worker.supervisor")
"""The former name as well: supervisors outlive the upgrade of their worker."""
