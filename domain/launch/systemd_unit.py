"""The systemd unit of a worker, from its command line. Pure."""

from __future__ import annotations

from collections.abc import Sequence

NAME = "rankzero-worker.service"
ENV_FILE = "/etc/rankzero/worker.env"
"""RANKZERO_URL and, until it has joined, RANKZERO_TOKEN; for root alone, systemd reads it before it gives up root."""
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@+,[]")


def unit(command: Sequence[str], user: str) -> str:
    """The text of `rankzero-worker.service`; the token is in none of its lines."""
    return f"""\
# {NAME}: written by `rankzero worker --print-unit` for this machine.
[Unit]
Description=Rankzero worker, offers the devices of this machine
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=exec
User={user}
EnvironmentFile={ENV_FILE}
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
WantedBy=multi-user.target
"""


def _quoted(argument: str) -> str:
    """Quote an argument for ExecStart, where % and $ are special (systemd.service(5), systemd.syntax(7))."""
    escaped = argument.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return escaped if argument and set(argument) <= _PLAIN else f'"{escaped}"'
