"""`rankzero users`: list, invite and remove people, and give them roles."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlencode

import typer

from cli.durations import UNITS_S, seconds
from cli.server.options import Data, Json, server_at
from cli.terminal import CommandFailed, ask_or_tell, print_json, print_list, print_outcome, say, warn
from domain.lists import people_lists
from domain.people.removal import Fate, parse
from domain.people.roles import EVERYWHERE, Role, in_words
from domain.text import formats


def complete_user(incomplete: str) -> list[str]:
    """Return names of people that complete the word in the shell."""
    try:
        return [user["name"] for user in server_at(None).get("/api/users")]
    except CommandFailed:
        return []


User = Annotated[
    str, typer.Argument(metavar="USER", help="A person's name.", autocompletion=complete_user, show_default=False)
]
Project = Annotated[
    str | None, typer.Option(metavar="P", help="The role counts in this project alone.", show_default=False)
]
GivenRole = Literal["viewer", "member", "admin", "none"]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
users_app = typer.Typer(no_args_is_help=True)


@users_app.callback()
def users() -> None:
    """List, invite and remove people, and give them roles."""


@users_app.command("list")
def list_(data: Data = None, as_json: Json = False) -> None:
    """List everybody with an account."""
    print_list(people_lists.people(time.time()), server_at(data).get("/api/users"), as_json)


@users_app.command()
def invite(
    email: Annotated[str, typer.Argument(metavar="EMAIL", help="Their address.", show_default=False)],
    role: Annotated[GivenRole, typer.Option(help="The role they get.")] = "viewer",
    project: Project = None,
    expires: Annotated[str, typer.Option(metavar="TIME", help="The link ends after this time (8h, 30d).")] = "7d",
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Invite a person: prints a link, once, to make their account, or to set a new password if they have one. Send
    it only to them."""
    lasts_s = seconds(expires, "--expires")
    body = {"email": email, "role": role, "project": project, "days": lasts_s / UNITS_S["d"]}
    invitation = server_at(data).post("/api/invitations", body)
    if as_json:
        print_json(invitation)
        _doubt(invitation)
        return
    say(invitation["link"])
    user = invitation.get("user")
    does = f"who sets a new password as {user}" if user else f"who becomes {_has(role, project)}"
    warn(f"Valid for {formats.duration_words(lasts_s)}: {formats.SHOWN_ONCE}. Send it to {email}, {does}.")
    _doubt(invitation)


@users_app.command()
def remove(
    user: User,
    runs: Annotated[str, typer.Option(metavar="keep|stop|give:USER", help="What becomes of their live runs.")] = "keep",
    yes: Yes = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Remove a person: their sessions and tokens end at once, their runs stay. Raises CommandFailed."""
    server = server_at(data)
    if not yes:
        ending = server.get(f"{_path(user)}/removal")["sentence"]
        if not sys.stdin.isatty():
            raise CommandFailed(f"Nothing was done: {ending} Removing {user} cannot be undone; add --yes to do it.", 2)
        typer.confirm(f"{ending} {FATES[parse(runs).fate]} Remove {user}?", abort=True, err=True)
    removed = server.delete(f"{_path(user)}?{urlencode({'runs': runs})}")
    fates = ", ".join(f"{removed[name]} live {name}" for name in ("kept", "stopped", "given") if removed.get(name))
    print_outcome(removed, as_json, f"{user} is removed; their runs stay{f' ({fates})' if fates else ''}.")


FATES: dict[Fate, str] = {
    "keep": "Their live runs continue to their end (--runs stop or give:USER changes that).",
    "stop": "Their live runs are stopped.",
    "give": "Their live runs become another person's.",
}


@users_app.command("role")
def role_(
    user: User,
    role: Annotated[GivenRole, typer.Argument(metavar="ROLE", help="viewer, member, admin or none.")],
    project: Project = None,
    yes: Yes = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Give a person a role in all projects that are not private, or in one project. Raises typer.Abort."""
    server = server_at(data)
    question = {"role": role} | ({"project": project} if project else {})
    ask_or_tell(server.get(f"{_path(user)}/role-change", **question)["sentence"], yes)
    changed = server.patch(_path(user), {"role": role, "project": project})
    print_outcome(changed, as_json, f"{user} is {_has(role, project)} now.")
    _doubt(changed)


def _doubt(answer: dict[str, Any]) -> None:
    """Say where the project is perhaps mistyped."""
    if answer.get("doubt"):
        warn(answer["doubt"])


def _path(user: str) -> str:
    return f"/api/users/{quote(user, safe='')}"


def _has(role: GivenRole, project: str | None) -> str:
    if role == "none":
        return f"without a role in {f'project {project}' if project else EVERYWHERE}"
    return in_words(Role(role), project)
