"""People with accounts, and their browsers, for tests."""

from __future__ import annotations

import httpx2

from dashboard.service.service import Service
from db.people import accounts
from db.people.accounts import NewAccount
from domain.people.roles import Role
from tests.dashboard.running import Running


def person(service: Service, name: str, role: Role | None = None, **projects: Role) -> str:
    """Make an account with a role in all projects that are not private, and roles of single projects; its name."""
    with service.store.write() as session:
        account = NewAccount(name, f"{name}@lab.example", role)
        accounts.create(session, account, service.clock())
        for project, own in projects.items():
            accounts.set_membership(session, name, project, own)
    service.identities.forget()
    return name


def cookie_for(service: Service, name: str, way: str = "password") -> str:
    """The cookie of a new session of that person."""
    return f"{service.credentials.cookie_name}={service.sessions.begin(name, way)}"


def browser_of(running: Running, name: str, way: str = "password") -> httpx2.Client:
    """A browser in which that person is signed in, with a page of ours open."""
    return running.anonymous(Cookie=cookie_for(running.service, name, way), Origin=running.url)
