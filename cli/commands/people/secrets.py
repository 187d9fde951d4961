"""`rankzero secret`: set, list and remove the secrets that runs get as variables; nothing shows a value."""

from __future__ import annotations

import getpass
import sys
import time
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import typer

from cli.server.options import Data, Json, server_at
from cli.terminal import CommandFailed, print_json, print_list, print_outcome, warn
from domain.text import formats
from domain.text.columns import Column, Columns

PATH = "/api/secrets"
Name = Annotated[str, typer.Argument(metavar="NAME", help="The variable's name, such as HF_TOKEN.", show_default=False)]
Project = Annotated[
    str | None, typer.Option(metavar="P", help="A secret of this project instead of yours.", show_default=False)
]
secret_app = typer.Typer(no_args_is_help=True)


@secret_app.callback()
def secret() -> None:
    """Set, list and remove secrets, which runs get as variables and nothing shows."""


@secret_app.command("set")
def set_(name: Name, project: Project = None, data: Data = None, as_json: Json = False) -> None:
    """Set or replace a secret: its value is read from standard input, or asked for. Raises CommandFailed."""
    server = server_at(data)
    stored = server.put(_address(name), {"value": _value(name), "project": project})
    sentence = f"Secret {name} of {_owner(stored)} is set. `rankzero launch --secret {name}` gives it to a run."
    print_outcome({"name": stored["name"], "project": stored["project"]}, as_json, sentence)
    if stored.get("doubt"):
        warn(f"warning: {stored['doubt']}")


@secret_app.command("list")
def list_(project: Project = None, data: Data = None, as_json: Json = False) -> None:
    """List the secrets that you may launch with, by name."""
    secrets = [one for one in server_at(data).get(PATH) if project in (None, one["project"])]
    if as_json:
        print_json(sorted({one["name"] for one in secrets}))
    else:
        set_at = Column[Any]("set", lambda one: formats.ago(one.set_at, time.time()))
        columns: Columns[Any] = [Column("name"), Column("of", _owner), Column("set by", lambda one: one.by), set_at]
        print_list(columns, secrets, empty="There is no secret. `rankzero secret set NAME` sets one.")


@secret_app.command()
def remove(name: Name, project: Project = None, data: Data = None, as_json: Json = False) -> None:
    """Remove a secret; runs that are training keep it until they end."""
    query = f"?{urlencode({'project': project})}" if project is not None else ""
    removed = server_at(data).delete(f"{_address(name)}{query}")
    sentence = f"Secret {name} of {_owner(removed)} is removed. Runs that are training keep it until they end."
    print_outcome({"name": removed["name"], "project": removed["project"]}, as_json, sentence)


def _address(name: str) -> str:
    return f"{PATH}/{quote(name, safe='')}"


def _owner(one: dict[str, str | None]) -> str:
    return f"project {one['project']}" if one["project"] is not None else str(one["user"])


def _value(name: str) -> str:
    """The value, without the line break that ends it. Raises CommandFailed where it is not text."""
    if sys.stdin.isatty():
        return getpass.getpass(f"Value of {name} (not shown): ")
    try:
        value = sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise CommandFailed("value: it must be text (UTF-8).", 2) from None
    return value.removesuffix("\n").removesuffix("\r")
