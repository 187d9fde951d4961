"""Parses the output of Slurm's commands, in formats that every version since 20.11 supports; pure functions."""

from __future__ import annotations

import re
from typing import Any

from domain.messages import JobReport

JOBS_FORMAT = "%i|%j|%T|%P|%N|%S|%l|%r"
PARTITIONS_FORMAT = "%P|%a|%D|%c|%G|%l"
AWAY = re.compile(
    "unable to contact|socket timed out|standby mode|zero bytes|connection refused|connection timed out|"
    "temporarily|communication connection|munge|authentication",
    re.IGNORECASE,
)


def jobs(printed: str) -> dict[str, tuple[str, JobReport]]:
    """Parse squeue's lines in JOBS_FORMAT, with times in epoch seconds: job id -> (name, state)."""
    reports = {}
    for line in printed.splitlines():
        fields = line.strip().split("|", 7)
        if len(fields) == 8:
            job_id, name, state, partition, nodes, starts_at, limit, reason = fields
            reports[job_id] = (
                name,
                JobReport(
                    job_id=job_id,
                    state=state.strip(),
                    reason="" if state == "RUNNING" else reason.strip(),
                    partition=partition,
                    nodes=nodes,
                    starts_at=float(starts_at) if starts_at.isdigit() else None,
                    time_limit=limit,
                ),
            )
    return reports


def exit_code(printed: str) -> str:
    """The exit code in a line of `scontrol --oneliner show job`, such as `1` or `0 (signal 9)`."""
    if (match := re.search(r"\bExitCode=(\d+):(\d+)", printed)) is None:
        return ""
    return match[1] if match[2] == "0" else f"{match[1]} (signal {match[2]})"


def partitions(printed: str) -> list[dict[str, Any]]:
    """Parse sinfo's lines in PARTITIONS_FORMAT; a partition of different nodes has a line for each kind."""
    by_name: dict[str, dict[str, Any]] = {}
    for line in printed.splitlines():
        fields = line.strip().split("|")
        if len(fields) != 6:
            continue
        name, up, nodes, cpus, gres, limit = fields
        partition = by_name.setdefault(
            name.rstrip("*"),
            {
                "name": name.rstrip("*"),
                "is_default": False,
                "nodes": 0,
                "cpus_per_node": 0,
                "gpus_per_node": 0,
            },
        )
        partition["is_default"] |= name.endswith("*")
        partition["is_up"], partition["time_limit"] = up == "up", limit
        partition["nodes"] += _number(nodes)
        partition["cpus_per_node"] = max(partition["cpus_per_node"], _number(cpus))
        partition["gpus_per_node"] = max(partition["gpus_per_node"], gpus(gres))
    return list(by_name.values())


def gpus(gres: str) -> int:
    """The number of GPUs: 4 for `gpu:4` and for `gpu:a100:2(S:0),gpu:v100:2`, 0 for `(null)`."""
    plain = re.sub(r"\([^)]*\)", "", gres)
    return sum(
        int(fields[-1]) if fields[-1].isdigit() else 1
        for fields in (entry.split(":") for entry in plain.split(","))
        if fields[0] == "gpu"
    )


def refusal(printed: str) -> str:
    """The last error message of sbatch."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line] or lines
    return errors[-1].partition("error:")[2].strip() or errors[-1] if errors else "sbatch gave no reason"


def is_away(printed: str) -> bool:
    """Whether the controller does not answer, rather than rejecting the job."""
    return AWAY.search(printed) is not None


def _number(text: str) -> int:
    """The leading number of a field; sinfo writes 4+ if the nodes of a line differ."""
    match = re.match(r"\d+", text)
    return int(match[0]) if match else 0
