"""Check the target of a spec as far as that is cheap: nothing is cloned or packed."""

from __future__ import annotations

from pathlib import Path

from dashboard.paths import exists, is_file, is_folder
from dashboard.planning.cluster import ClusterNodes
from dashboard.snapshots.bringing import CodeRequest, check
from dashboard.snapshots.git_address import check_address, is_git_address
from dashboard.snapshots.refusal import CodeRefused
from domain.errors import InvalidRequest
from domain.launch.plan import recipe_names
from domain.spec import RunSpec


def check_target(spec: RunSpec, cluster: ClusterNodes) -> None:
    """Raise InvalidRequest where the target, its entry or its module cannot be launched."""
    if spec.target in recipe_names():
        if spec.entry or spec.module or spec.snapshot:
            raise CodeRefused("target", "a recipe takes no entry, module or snapshot; name a folder.")
    elif is_git_address(spec.target):
        _check_repository(spec)
    elif spec.snapshot is None:
        _check_path(spec, cluster)


def _check_repository(spec: RunSpec) -> None:
    """Check a git address, also of uploaded code: it is stored and shown. Raises CodeRefused."""
    if spec.snapshot:
        check_address(spec.target)
    elif spec.workdir:
        raise CodeRefused("workdir", "a git address cannot run in place; remove the workdir.")
    else:
        check(_code_request(spec))


def _check_path(spec: RunSpec, cluster: ClusterNodes) -> None:
    if not spec.target.startswith("/"):
        raise _not_absolute(spec.target)
    if spec.workdir:
        if cluster.shares_disk:
            _check_in_place(spec)
    elif not exists(spec.target):
        raise CodeRefused(
            "target",
            f"{spec.target!r} does not exist on the dashboard's machine. Launch it with `rankzero "
            "launch` where it is, or run it in place on the nodes with a workdir.",
        )
    else:
        check(_code_request(spec))


def _check_in_place(spec: RunSpec) -> None:
    if not exists(spec.target):
        raise CodeRefused("target", f"the script {spec.target!r} does not exist.")
    if is_folder(spec.target) and not (spec.entry or spec.module):
        raise CodeRefused("entry", f"{spec.target} is a folder; name the file or module to start in it.")
    if is_folder(spec.target) and spec.entry and not is_file(Path(spec.target) / spec.entry):
        raise CodeRefused("entry", f"there is no file {spec.entry!r} in {spec.target}.")


def _not_absolute(target: str) -> InvalidRequest:
    if "/" in target or target.endswith(".py"):
        return InvalidRequest("target", f"target must be an absolute path, got {target!r}.")
    recipes = ", ".join(recipe_names())
    return CodeRefused(
        "target",
        f"there is no recipe {target!r} (known: {recipes}); a script is named by its absolute path.",
    )


def _code_request(spec: RunSpec) -> CodeRequest:
    return CodeRequest(spec.target, spec.entry, spec.module, spec.ref)
