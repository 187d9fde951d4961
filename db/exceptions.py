"""Exceptions of the store that the API answers as HTTP statuses."""

from __future__ import annotations


class NoSuchRun(LookupError):
    """There is no run of that id."""


class NoSuchProject(LookupError):
    """No run is in a project of that name."""


class NoSuchNode(LookupError):
    """There is no node of that name or id."""


class NoSuchStudy(LookupError):
    """There is no scaling study of that id."""


class NoSuchSweep(LookupError):
    """There is no sweep of that id."""


class NoSuchAlert(LookupError):
    """There is no alert of that id."""


class NoSuchCheck(LookupError):
    """There is no preflight of that id."""


class NoSuchCheckpoint(LookupError):
    """There is no checkpoint of that id."""


class NoSuchProfile(LookupError):
    """The run has no such profile, or no trace of the rank."""


class WrongState(Exception):
    """The run is not in a state in which this can be asked for."""


class NotOwner(PermissionError):
    """The part belongs to another node."""


class Superseded(Exception):
    """The attempt has ended or a newer one has taken its place: its worker must end what is left of it."""
