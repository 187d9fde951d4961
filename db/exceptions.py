"""Exceptions of the store that the API answers as HTTP statuses."""

from __future__ import annotations


class NoSuch(LookupError):
    """The store has nothing of that name or id."""


class NoSuchRun(NoSuch):
    """There is no run of that id."""


class NoSuchProject(NoSuch):
    """No run is in a project of that name."""


class NoSuchNode(NoSuch):
    """There is no node of that name or id."""


class NoSuchStudy(NoSuch):
    """There is no study of that id, or none of that kind."""


class NoSuchAlert(NoSuch):
    """There is no alert of that id."""


class NoSuchCheck(NoSuch):
    """There is no preflight of that id."""


class NoSuchCheckpoint(NoSuch):
    """There is no checkpoint of that id."""


class NoSuchCheckpointTask(NoSuch):
    """There is no work on a checkpoint of that id."""


class NoSuchLink(NoSuch):
    """There is no link with this id or token."""


class NoSuchSnapshot(NoSuch):
    """There is no snapshot of that digest."""


class NoSuchProfile(NoSuch):
    """The run has no such profile, or no trace of the rank."""


class WrongState(Exception):
    """The run is not in a state in which this can be asked for."""


class NotOwner(PermissionError):
    """The task belongs to another node."""


class Superseded(Exception):
    """The attempt has ended or a newer one has taken its place: its worker must end what is left of it."""
