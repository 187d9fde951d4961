"""Ask for a push, and give its node what it needs: the secrets and the model card."""

from __future__ import annotations

from collections.abc import Sequence

from dashboard.pushes.model_cards import card_of
from dashboard.security.keys.secret_key import SecretsUnreadable
from dashboard.service.service import Service
from db.checkpoints import push_records
from db.exceptions import WrongState
from db.people.stored_secrets import SecretOwner
from domain.checkpoint_use.push_target import NEEDED, PushTarget, secret_names
from domain.checkpoint_use.tasks import CheckpointTaskView, PushDetails, TaskKind
from domain.requests.errors import NoSuchReference


def ask(
    service: Service,
    checkpoint_id: int,
    to: str,
    *,
    is_public: bool = False,
    secrets: Sequence[str] = (),
    as_saved: bool = False,
) -> CheckpointTaskView:
    """Have a node push a checkpoint. Raises NoSuchCheckpoint, Denied, WrongState, InvalidRequest."""
    target = PushTarget.parse(to)
    chosen = push_records.to_push(service.store, checkpoint_id, as_saved=as_saved)
    owners = _owners(service, target, secrets, chosen.project)
    visibility = "public" if is_public else "private"
    options = {"target": str(target), "visibility": visibility, "secrets": owners}
    return service.checkpoint_tasks.ask(TaskKind.PUSH, chosen.checkpoint_id, options)


def _owners(
    service: Service, target: PushTarget, given: Sequence[str], project: str
) -> dict[str, dict[str, str | None]]:
    """The stored secret of each credential that the actor may use, by its name and owner. Raises NoSuchReference."""
    names = secret_names(target.kind, given)
    usable = service.secrets.owners(names.values(), project)
    needed = {*NEEDED[target.kind], *(text.partition("=")[0] for text in given if "=" in text)}
    for credential, name in names.items():
        if credential in needed and name not in usable:
            raise NoSuchReference(
                "secrets",
                f"secrets: {target} needs {credential}, and there is no secret {name}, neither yours nor of project "
                f"{project}. Set it first: rankzero secret set {name}, or, for all in the project, with --project "
                f"{project}.",
            )
    return {
        credential: {"name": name, "user": usable[name].user, "project": usable[name].project}
        for credential, name in names.items()
        if name in usable
    }


def details(service: Service, node_id: str, fence: int, task_id: int) -> PushDetails:
    """Give a node what it needs to begin a push. Raises NotOwner; WrongState where a secret is gone."""
    push = push_records.open_push(service.store, node_id, fence, task_id)
    values = {}
    for credential, secret in push.options["secrets"].items():
        owner = SecretOwner(secret["user"], secret["project"])
        try:
            values[credential] = service.secrets.value(owner, secret["name"])
        except SecretsUnreadable as error:
            raise WrongState(str(error)) from error
    card = card_of(service, push)
    return PushDetails(secrets=values, card=card.files, message=card.title)
