"""What Slurm's commands print, as facts; pure. The formats are those that every version since 20.11 has."""

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
    """squeue's lines in JOBS_FORMAT, times in seconds since the epoch: by job id its name and its state."""
    found = {}
    for line in printed.splitlines():
        fields = line.strip().split("|", 7)
        if len(fields) == 8:
            job_id, name, state, partition, nodes, starts_at, limit, reason = fields
            found[job_id] = (
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
    return found


def exit_code(printed: str) -> str:
    """Of one line of `scontrol --oneliner show job`: 1, or 0 (signal 9)."""
    if (found := re.search(r"\bExitCode=(\d+):(\d+)", printed)) is None:
        return ""
    return found[1] if found[2] == "0" else f"{found[1]} (signal {found[2]})"


def partitions(printed: str) -> list[dict[str, Any]]:
    """sinfo's lines in PARTITIONS_FORMAT; a partition of unlike nodes has a line for each kind."""
    found: dict[str, dict[str, Any]] = {}
    for line in printed.splitlines():
        fields = line.strip().split("|")
        if len(fields) != 6:
            continue
        name, up, nodes, cpus, gres, limit = fields
        known = found.setdefault(
            name.rstrip("*"),
            {
                "name": name.rstrip("*"),
                "is_default": False,
                "nodes": 0,
                "cpus_per_node": 0,
                "gpus_per_node": 0,
            },
        )
        known["is_default"] |= name.endswith("*")
        known["is_up"], known["time_limit"] = up == "up", limit
        known["nodes"] += _number(nodes)
        known["cpus_per_node"] = max(known["cpus_per_node"], _number(cpus))
        known["gpus_per_node"] = max(known["gpus_per_node"], gpus(gres))
    return list(found.values())


def gpus(gres: str) -> int:
    """gpu:4 is four, gpu:a100:2(S:0),gpu:v100:2 too, (null) none."""
    plain = re.sub(r"\([^)]*\)", "", gres)
    return sum(
        int(fields[-1]) if fields[-1].isdigit() else 1
        for fields in (each.split(":") for each in plain.split(","))
        if fields[0] == "gpu"
    )


def refusal(printed: str) -> str:
    """sbatch's own sentence, the last of its errors."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line] or lines
    return errors[-1].partition("error:")[2].strip() or errors[-1] if errors else "sbatch gave no reason"


def is_away(printed: str) -> bool:
    """Is it the controller that does not answer, rather than the job that it does not take?"""
    return AWAY.search(printed) is not None


def _number(text: str) -> int:
    """sinfo writes 4+ where the nodes of a line differ."""
    found = re.match(r"\d+", text)
    return int(found[0]) if found else 0
