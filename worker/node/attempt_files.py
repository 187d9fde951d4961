"""Names of the files in an attempt's directory; imports nothing, because the supervisor imports it."""

from __future__ import annotations

ASSIGNMENT_FILE = "assignment.json"
"""The assignment for which the directory was made; its time is when the worker took it up."""
STATE_FILE = "supervisor.json"
MEMBERS_FILE = "members.json"
"""The supervisor's processes a second ago, by which they are found when it is killed."""
STOP_FILE = "stop"
"""Holds the seconds of grace; its existence asks the supervisor to stop the attempt."""
LOCK_FILE = "supervisor.lock"
LAUNCH_FILE = "launch.json"
"""The command, environment and folder that the supervisor starts."""
INTERPRETER_FILE = "worker/interpreter.json"
"""The facts of the Python that trains, written once it has been inspected."""
WARM_FILE = "worker/warm.json"
"""Says whether torchrun was forked from a process that had torch imported, or why not."""
EXISTING_FILE = "worker/existing.json"
"""The files that lay in the working directories before the attempt started."""
POINTS_FILE = "worker/points"
"""Exists once the script has reported a figure."""

SUPERVISOR_MODULE = "worker.attempt.supervisor"
"""The module name in a supervisor's command line."""
SUPERVISOR_MODULES = (SUPERVISOR_MODULE, "worker.supervisor")
"""Includes the former name: supervisors outlive the upgrade of their worker."""
