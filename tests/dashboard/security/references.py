"""Every field of a request that may name something: those that are marked are tried, the others say what they hold."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, get_args, get_origin

from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.routing import BaseRoute

from dashboard.archives.manifest import Manifest
from db.archives.documents import RunDocument
from domain.imported_runs import ImportedPoints
from domain.people.references import references_in

CHANGING = {"POST", "PUT", "PATCH", "DELETE"}
BY_HAND: dict[str, tuple[type[BaseModel], ...]] = {
    "/api/archives": (Manifest, RunDocument),
    "/api/imports/{run_id}/points": (ImportedPoints,),
    "/api/snapshots/{sha256}": (),
    "/api/uploads": (),
    "/logout": (),
    "/mcp": (),
    "/login": (),
    "/invite/{secret}": (),
    "/device": (),
    "/tensorboard/{run_id}/": (),
    "/tensorboard/{run_id}/{issued}/{path:path}": (),
    "/perfetto/{run_id}/{issued}/{path:path}": (),
}
"""The models of bodies that routes read themselves: an archive is a file of these, code is bytes under their digest,
forms sign somebody in or out, tools of agents ask other routes, and what TensorBoard and
Perfetto are sent is about the run of the path."""
OF_WORKERS = "/api/worker"
"""Judged by a node's or an attempt's own token, not by the rights of people."""

UNMARKED: dict[str, str] = {
    name: how
    for how, names in {
        "What it says of itself or of others is shown, and names nothing here.": """
            AddressChange.email AddressChange.old AttemptDocument.attempt AttemptDocument.files AttemptDocument.findings
            AttemptDocument.profiled_ranks AttemptDocument.series AttemptDocument.tasks ArchivedFile.sha256
            HostStep.host HostStep.message HostStep.node HostStep.state HostStep.step ImportRequest.format
            ImportRequest.message ImportRequest.name ImportRequest.settings ImportedPoints.series InvitationRequest.role
            JoinTokenRequest.name LeftBehind.name LoginQuestion.code LoginQuestion.secret Origin.branch Origin.commit
            Origin.host Origin.notes Origin.path Origin.ref Origin.url PasswordChange.old PasswordChange.password
            RoleChange.role RunDocument.history RunDocument.imported_from RunDocument.tags RunEdit.add_tags RunEdit.name
            RunEdit.note RunEdit.printed_pattern RunEdit.remove_tags RunSpec.name RunSpec.printed_pattern
            SecretValue.value TokenRequest.name BulkRequest.tag BulkRequest.reason Device.id Device.name
            NodeFacts.address NodeFacts.hostname NodeFacts.info NodeFacts.instance_id NodeFacts.labels NodeFacts.name
            RunDocument.watched WatchRequest.name WatchRequest.python WatchRequest.tags WatchedCommand.account
            WatchedCommand.argv WatchedCommand.cwd WatchedCommand.host WatchedCommand.pid WatchedCommand.scheduler""",
        "The program gets it; nothing else reads it.": """
            RunSpec.args RunSpec.as_variables RunSpec.env SweptParameter.values""",
        "Where the node pushes to, on a server that its own environment names.": """
            PushRequest.to""",
        "Judged where the push is asked for, and again when its node begins it (db/checkpoints/push_records.py).": """
            PushRequest.secrets""",
        "Nodes are everybody's.": "RunSpec.labels RunSpec.on_nodes",
        "The Slurm gateway's account, which whoever may launch acts with.": """
            SlurmOptions.account SlurmOptions.options SlurmOptions.partition SlurmOptions.time_limit""",
        "An address outside, fetched or sent to with no right of ours.": "RunSpec.ref AlertRequest.target",
        "A rule about runs that the person may see or act on when it is met.": "AlertRequest.rule",
        "A search or a series: it finds what the person sees.": """
            BulkRequest.filter NamedView.columns NamedView.filter NamedView.project NamedView.sort
            SweepRequest.metric""",
        "The same name for everybody; its maker may change it.": "NamedView.name",
        "Ids of the person's own: those of others are ignored.": "ShownNotices.ids",
        "For admins everywhere: a new file of the folder of backups.": "BackupRequest.name",
        "The address of an account, for those alone who may list accounts.": "InvitationRequest.email",
        "Found among runs that the person sees.": "ImportRequest.digest ImportRequest.source",
        "Found among the person's own runs; those of others do not have it.": """
            WatchRequest.key WatchRequest.run_id WatchRequest.watch_id""",
        "The server sets it: a guest joins one attempt, which it reports to.": """
            HeldAttempt.devices HeldAttempt.folder HeldAttempt.run_id HeldAttempt.store HeldAttempt.uid
            NodeFacts.pool""",
        "A rule, not a name: what it names are the run's own series.": "RuleRequest.rule",
        "Stored under ids of this store; the project is resolved, the code must be the person's or in the archive.": """
            AttemptDocument.checkpoints Manifest.runs RunDocument.nodes RunDocument.run RunDocument.snapshot""",
    }.items()
    for name in names.split()
} | {
    "POST /api/archives source": "It is shown in the history.",
    "POST /api/nodes/{node}/end-unknown run": "For admins everywhere, and found on the node, never in the store.",
    "POST /api/nodes/{node}/release device": "For admins everywhere.",
    "POST /api/preflight nodes": "For admins everywhere.",
    "POST /api/runs like": "Values only of runs that are the person's own, or for the owner.",
    "POST /api/runs/seeds like": "As in a launch.",
    "POST /api/sweeps like": "As in a launch.",
    "POST /api/scaling-studies like": "As in a launch.",
    "POST /api/runs/{run_id}/resume checkpoint": "One of the run of the path, which is judged.",
    "POST /api/uploads name": "The name of a file that is sent.",
    "DELETE /api/secrets/{name} project": "Judged as in setting it.",
    "DELETE /api/tokens/{name} user": "For admins everywhere, who may list accounts.",
    "DELETE /api/users/{name} runs": "For admins everywhere, who may list accounts; the receiver needs the role there.",
    "POST /api/runs/{run_id}/stop reason": "The run's person reads it.",
    "DELETE /api/views name": "The same name for everybody; its maker may delete it.",
}  # fmt: skip
"""What unmarked fields of bodies, and of what changes something, are."""


class Field(NamedTuple):
    """A field of a body or query that may hold a name."""

    name: str
    """`RunSpec.resume`, or `POST /api/backup path` of a route without a model."""
    is_marked: bool


def fields_of(routes: list[BaseRoute]) -> Iterator[Field]:
    """Yield every field that may name something of all routes that people send requests to."""
    for route in routes:
        if isinstance(route, APIRoute) and not route.path.startswith(OF_WORKERS):
            for method in sorted(route.methods or ()):
                yield from _of_route(route, method)


def unread(routes: list[BaseRoute]) -> Iterator[str]:
    """Yield the routes that change something, and whose body nobody has described."""
    for route in routes:
        path = str(getattr(route, "path", ""))
        is_changing = bool(CHANGING & set(getattr(route, "methods", None) or ()))
        dependant = getattr(route, "dependant", None)
        takes_request = dependant is None or dependant.request_param_name is not None
        is_read = bool(dependant and dependant.body_params) or path in BY_HAND or path.startswith(OF_WORKERS)
        if is_changing and takes_request and not is_read:
            yield path


def _of_route(route: APIRoute, method: str) -> Iterator[Field]:
    for dependant in (route.dependant, *route.dependant.dependencies):
        for parameter in (*dependant.body_params, *dependant.query_params):
            annotation = parameter.field_info.annotation
            models = list(_models(annotation))
            for model in models:
                yield from _of_model(model)
            if not models and _may_name(parameter.name, annotation):
                yield Field(f"{method} {route.path} {parameter.alias}", False)
    for model in BY_HAND.get(route.path, ()) if method in CHANGING else ():
        yield from _of_model(model)


def _of_model(model: type[BaseModel]) -> Iterator[Field]:
    marks = references_in(model)
    for name, field in model.model_fields.items():
        inner = list(_models(field.annotation))
        for other in inner:
            if other is not model:
                yield from _of_model(other)
        if not inner and _may_name(name, field.annotation):
            yield Field(f"{model.__name__}.{name}", name in marks)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) is not Literal:
        for part in get_args(annotation):
            yield from _models(part)


def _may_name(name: str, annotation: Any) -> bool:
    """Whether a value of this type may be a name: text of any length, anything, or a number called an id."""
    if annotation in (str, Any, dict, list) or getattr(annotation, "__name__", "") == "SecretStr":
        return True
    if annotation is int:
        return name.endswith(("id", "ids"))
    is_nested = get_origin(annotation) is not Literal and not isinstance(annotation, types.NoneType)
    return is_nested and any(_may_name(name, part) for part in get_args(annotation))
