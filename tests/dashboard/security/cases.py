"""What the matrix of rights sends to each route: a request that changes nothing which later ones need."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from domain.protocol import PROTOCOL

About = Literal[
    "project", "project page", "members", "run", "view", "bulk action", "own", "token", "new token", "person", "nothing"
]


class Case(NamedTuple):
    """A request: placeholders such as `{run}` stand for the things that it is about."""

    json: Any = None
    query: str = ""
    content: bytes | None = None
    about: About = "nothing"
    """What the body or query of a route names whose rule says `Of.BODY`."""
    is_live: bool = False
    """Whether its run is the live one: what would delete an ended one is refused there."""


SPEC = {"target": "image_classifier", "gpus_per_node": 99, "project": "{project}"}
"""It never fits here: whoever may launch is told so, and nothing is launched."""
FITTING = SPEC | {"gpus_per_node": 1}
WATCH = {
    "protocol": PROTOCOL,
    "watch_id": "{watch}",
    "run_id": "{watch}",
    "project": "{project}",
    "command": {"argv": ["python", "train.py"], "cwd": "/home/mara", "host": "gpu-3", "account": "mara", "pid": 1},
    "started_at": 1.0,
    "facts": {"name": "gpu-3", "instance_id": "i", "hostname": "gpu-3", "address": "", "devices": []},
}
READ = {"GET": Case()}
BOTH = {"GET": Case(), "HEAD": Case()}
RUNS = Case(query="runs={run}")
STOP = {"POST": Case()}

CASES: dict[str, dict[str, Case]] = {
    "/api/runs": {"GET": Case(), "POST": Case(SPEC, about="project")},
    "/api/named-runs": {"GET": Case(query="name={run}")},
    "/api/runs/seeds": {"POST": Case({"spec": SPEC, "seeds": [1]}, about="project")},
    "/api/preview": {"POST": Case(FITTING, about="project")},
    "/api/runs/{run_id}": {
        "GET": Case(),
        "PATCH": Case({"note": "seen"}),
        "DELETE": Case(is_live=True),
    },
    "/api/deleted-runs": READ,
    "/api/deleted-runs/{deleted_id}": {"DELETE": Case()},
    "/api/runs/{run_id}/restore": {"POST": Case()},
    "/api/runs/{run_id}/stop": STOP,
    "/api/runs/{run_id}/resume": {"GET": Case(), "POST": Case(is_live=True)},
    "/api/runs/{run_id}/wait": {"GET": Case(query="timeout=0")},
    "/api/runs/{run_id}/history": READ,
    "/api/runs/{run_id}/findings": READ,
    "/api/runs/{run_id}/collectives": READ,
    "/api/runs/{run_id}/preflight": READ,
    "/api/runs/{run_id}/timeline": READ,
    "/api/runs/{run_id}/ranks": READ,
    "/api/runs/{run_id}/stacks": {"GET": Case(), "POST": Case()},
    "/api/runs/{run_id}/attempts": READ,
    "/api/runs/{run_id}/loggers": READ,
    "/api/runs/{run_id}/phases": READ,
    "/api/runs/{run_id}/phases/spans": READ,
    "/api/runs/{run_id}/diff": {"GET": Case(query="with={run}")},
    "/api/runs/{run_id}/metrics": READ,
    "/api/runs/{run_id}/hardware": READ,
    "/api/runs/{run_id}/usage": READ,
    "/api/runs/{run_id}/metrics.csv": READ,
    "/api/runs/{run_id}/logs": {"GET": Case(query="rank=0&stream=out")},
    "/api/runs/{run_id}/logs/search": {"GET": Case(query="rank=0&stream=out&q=says")},
    "/api/runs/{run_id}/logs/pattern": {"GET": Case(query="pattern=x")},
    "/api/runs/{run_id}/logs/merged": READ,
    "/api/runs/{run_id}/logs/merged/search": {"GET": Case(query="q=says")},
    "/api/runs/{run_id}/checkpoints": READ,
    "/api/runs/{run_id}/retention": {"GET": Case(), "PUT": Case({"rule": "keep all"})},
    "/api/runs/{run_id}/deleted-checkpoints": READ,
    "/api/runs/{run_id}/profiles": {"GET": Case(), "POST": Case({"steps": 1, "ranks": [0]})},
    "/api/runs/{run_id}/profiles/{profile_id}": READ,
    "/api/runs/{run_id}/profiles/{profile_id}/ranks/{rank}/flame": READ,
    "/api/runs/{run_id}/profiles/{profile_id}/ranks/{rank}/trace": READ,
    "/tensorboard/{run_id}": READ,
    "/tensorboard/{run_id}/": {"GET": Case(about="run"), "HEAD": Case(about="run")},
    "/perfetto/{run_id}/": BOTH,
    "/api/overview/ids": READ,
    "/api/overview": READ,
    "/api/search/completions": {"GET": Case(query="filter=project:")},
    "/api/search/columns": {"GET": Case(query="text=metric")},
    "/api/compare": {"GET": RUNS},
    "/api/compare/names": {"GET": RUNS},
    "/api/compare/joined": {"GET": RUNS},
    "/api/compare/batches": {"GET": RUNS},
    "/api/compare/curves": {"GET": Case(query="runs={run}&name={by}-metric")},
    "/api/export": {method: Case(query="runs={run}&format=csv") for method in ("GET", "HEAD")},
    "/api/logs/search": {"GET": Case(query="q=says")},
    "/api/live": {"WEBSOCKET": Case(query="run={run}", about="run")},
    "/api/archives": {"POST": Case(content=b"no archive")},
    "/api/imports": {
        "POST": Case(
            {
                "format": "tensorboard",
                "source": "{source}",
                "digest": "{digest}",
                "name": "elsewhere",
                "project": "{project}",
                "state": "stopped",
                "started_at": 1.0,
            },
            about="project",
        )
    },
    "/api/imports/{run_id}/points": {"POST": Case({"start": 0, "series": {}})},
    "/api/watch": {"POST": Case(WATCH, about="project")},
    "/api/shared-links": {"GET": Case(), "POST": Case({"runs": ["{run}"], "days": 1}, about="run")},
    "/api/shared-links/{link_id}": {"DELETE": Case()},
    "/api/snapshots/{sha256}": {"GET": Case(), "HEAD": Case(), "PUT": Case(content=b"another content")},
    "/api/snapshots/{sha256}/origin": {"PUT": Case({"kind": "upload"})},
    "/api/snapshots/{sha256}/archive": BOTH,
    "/api/uploads": {"POST": Case(query="name=train.py", content=b"print(1)")},
    "/api/script": {"GET": Case(query="target=/nowhere/train.py")},
    "/api/checkpoints/{checkpoint_id}/send-again": {"POST": Case()},
    "/api/checkpoints/{checkpoint_id}/merge": {"POST": Case({})},
    "/api/checkpoints/{checkpoint_id}/show": {"POST": Case()},
    "/api/checkpoints/{checkpoint_id}/diff": {"POST": Case({"other": "{checkpoint}"})},
    "/api/checkpoints/{checkpoint_id}/push": {"POST": Case({"to": "hf:lab/digits", "as_saved": True})},
    "/api/runs/{run_id}/checkpoint-tasks": READ,
    "/api/checkpoint-tasks/{task_id}": READ,
    "/api/checkpoint-tasks/{task_id}/cancel": {"POST": Case()},
    "/api/checkpoints/{checkpoint_id}": {"DELETE": Case()},
    "/api/checkpoints/{checkpoint_id}/pin": {"PUT": Case(), "DELETE": Case()},
    "/api/checkpoints/{checkpoint_id}/restore": {"POST": Case()},
    "/api/storage": READ,
    "/api/deleted-checkpoints": {"DELETE": Case()},
    "/api/checkpoints/{checkpoint_id}/file": BOTH,
    "/api/nodes": READ,
    "/api/nodes/{node}": {"DELETE": Case()},
    "/api/nodes/{node}/drain": {"GET": Case(), "POST": Case()},
    "/api/nodes/{node}/undrain": {"POST": Case()},
    "/api/nodes/{node}/release": {"POST": Case()},
    "/api/nodes/{node}/test": {"POST": Case()},
    "/api/nodes/{node}/incidents": READ,
    "/api/nodes/{node}/end-unknown": {"POST": Case({"run": "{run}"})},
    "/api/tests/{test_id}": READ,
    "/api/join-tokens": {"GET": Case(), "POST": Case({})},
    "/api/join-tokens/{token_id}": {"DELETE": Case()},
    "/api/node-installations": READ,
    "/api/node-installations/{key}": {"PUT": Case({"action": "add", "hosts": []})},
    "/api/preflight": {"GET": Case(), "POST": Case({"nodes": ["nowhere"]})},
    "/api/preflight/{check_id}": READ,
    "/api/cluster": READ,
    "/api/info": READ,
    "/mcp": {"POST": Case({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})},
    "/metrics": READ,
    "/api/backup": {"POST": Case({"name": "../else.db"})},
    "/api/sweeps": {
        "GET": Case(),
        "POST": Case({"spec": SPEC, "parameters": {"lr": {"values": [0.1]}}, "metric": "loss"}, about="project"),
    },
    "/api/sweeps/{study_id}": READ,
    "/api/sweeps/{study_id}/curves": READ,
    "/api/sweeps/{study_id}/stop": STOP,
    "/api/scaling-studies": {"GET": Case(), "POST": Case({"spec": SPEC, "gpus": [64]}, about="project")},
    "/api/scaling-studies/{study_id}": READ,
    "/api/scaling-studies/{study_id}/stop": STOP,
    "/api/alerts": {
        "GET": Case(),
        "POST": Case({"rule": "hung", "target": "browser", "project": "{project}"}, about="project"),
    },
    "/api/alerts/{alert_id}": {"GET": Case(), "DELETE": Case()},
    "/api/alerts/{alert_id}/test": {"POST": Case()},
    "/api/notifications": {"GET": Case(query="after=0")},
    "/api/notifications/shown": {"POST": Case({"ids": []})},
    "/api/bulk-actions": {"POST": Case({"action": "tag", "tag": "seen", "runs": ["{live}"]})},
    "/api/bulk-actions/consequence": {"POST": Case({"action": "stop", "runs": ["{live}"]})},
    "/api/bulk-actions/{action_id}": {"GET": Case(about="bulk action")},
    "/api/bulk-actions/{action_id}/cancel": {"POST": Case(about="bulk action")},
    "/api/views": {
        "GET": Case(),
        "PUT": Case({"name": "{view}"}, about="view"),
        "DELETE": Case(query="name={view}", about="view"),
    },
    "/api/project": {"GET": Case(query="name={project}", about="project page")},
    "/api/docs": READ,
    "/api/openapi.json": BOTH,
    "/api/secrets": READ,
    "/api/secrets/{name}": {"PUT": Case({"value": "hush"}, about="own"), "DELETE": Case(about="own")},
    "/api/whoami": READ,
    "/api/users": READ,
    "/api/users/{name}": {
        "GET": Case(),
        "PATCH": Case({"role": "viewer", "project": "{project}"}, about="project"),
        "DELETE": Case(),
    },
    "/api/users/{name}/role-change": {"GET": Case(query="role=none&project={project}", about="project")},
    "/api/users/{name}/removal": READ,
    "/api/invitations": {
        "GET": Case(),
        "POST": Case({"email": "new@lab.example", "project": "{project}"}, about="project"),
    },
    "/api/invitations/{invitation_id}": {"DELETE": Case()},
    "/api/projects": READ,
    "/api/projects/{project:path}/privacy": {
        "GET": Case(about="project"),
        "PUT": Case({"is_private": "{is_private}"}, about="project"),
    },
    "/api/projects/{project:path}/retention": {
        "GET": Case(),
        "PUT": Case({"rule": "keep all"}, about="project"),
    },
    "/api/projects/{project:path}/members": {"GET": Case(about="members")},
    "/api/me": {"GET": Case(), "PATCH": Case({"email": "new@lab.example"}, about="person")},
    "/api/me/password": {"POST": Case({"password": "correct horse"}, about="person")},
    "/api/me/sessions": {"GET": Case(about="person"), "DELETE": Case(about="person")},
    "/api/me/sessions/{session_id}": {"DELETE": Case(about="person")},
    "/api/tokens": {"GET": Case(), "POST": Case({"name": "of {by}", "scope": "read"}, about="new token")},
    "/api/tokens/{name}": {"DELETE": Case(about="token")},
    "/device": BOTH | {"POST": Case({})},
    "/api/audit": READ,
    "/api/audit.jsonl": READ,
    "/logout": {"POST": Case()},
}
UNJUDGED: dict[str, str] = {
    "/api/health": "allowed",
    "/api/login-requests": "allowed",
    "/api/worker/": "denied",
    "/assets/": "allowed",
    "/invite/": "allowed",
    "/login": "allowed",
    "/shared/": "allowed",
    "/tensorboard/{run_id}/{issued}/": "hidden",  # without a pass; tests of their own have some
    "/perfetto/{run_id}/{issued}/": "hidden",
}
"""What becomes of requests that the guard alone decides on, by the beginnings of their paths."""
