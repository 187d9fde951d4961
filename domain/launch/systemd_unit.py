"""The systemd unit of a worker, from its command line. Pure."""

from __future__ import annotations

from collections.abc import Sequence

NAME = "rankzero-worker.service"
ENV_FILE = "/etc/rankzero/worker.env"
"""RANKZERO_URL and, until it has joined, RANKZERO_TOKEN; for root alone, systemd reads it before it gives up root."""
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@+,[]")


def unit(command: Sequence[str], user: str) -> str:
    """The text of `rankzero-worker.service`; the token is in none of its lines."""
    return _unit(
        f"{NAME}: written by `rankzero worker --print-unit` for this machine.",
        "Wants=network-online.target\nAfter=network-online.target",
        f"User={user}\nEnvironmentFile={ENV_FILE}",
        command,
        "multi-user.target",
    )


def user_unit(command: Sequence[str], host: str) -> str:
    """The text of a unit of a user's own systemd, for one of the hosts that may share the user's home folder."""
    head = "written by `rankzero nodes add`."
    return _unit(head, f"ConditionHost={host}", "WorkingDirectory=~", command, "default.target")


def _unit(head: str, conditions: str, settings: str, command: Sequence[str], target: str) -> str:
    return f"""\
# {head}
[Unit]
Description=Rankzero worker, offers the devices of this machine
{conditions}
StartLimitIntervalSec=0

[Service]
Type=exec
{settings}
ExecStart={" ".join(_quoted(argument) for argument in command)}
# End the worker only: trainings continue through its restart or upgrade, and it finds them again.
KillMode=process
# A rank that the kernel kills for memory is its run's failure, not the worker's.
OOMPolicy=continue
Restart=always
RestartSec=5
TimeoutStopSec=60
# Trainings start many threads, and pin memory for the network.
TasksMax=infinity
LimitMEMLOCK=infinity

[Install]
WantedBy={target}
"""


def _quoted(argument: str) -> str:
    """Quote an argument for ExecStart, where % and $ are special (systemd.service(5), systemd.syntax(7))."""
    escaped = argument.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return escaped if argument and set(argument) <= _PLAIN else f'"{escaped}"'
