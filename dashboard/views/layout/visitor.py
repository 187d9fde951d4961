"""Dialogs and clicks of an open page, done with the rights of its visitor.

Streamlit may run each of them in a new thread, as it does the page itself, for which `app.py` enters the rights."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Literal, ParamSpec, TypeVar

import streamlit as st

from dashboard.service import service

P = ParamSpec("P")
T = TypeVar("T")


def fragment(show: Callable[P, None]) -> Callable[P, None]:
    """Turn a function into a part of a page that is drawn again alone."""
    return st.fragment(acts(show))  # noqa: TID251


def dialog(
    title: str, *, icon: str | None = None, width: Literal["small", "large"] = "small"
) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Turn a function into one that opens a dialog."""

    def decorate(show: Callable[P, None]) -> Callable[P, None]:
        return st.dialog(title, icon=icon, width=width)(acts(show))  # noqa: TID251

    return decorate


def acts(act: Callable[P, T]) -> Callable[P, T]:
    """Have the callback of a widget act for the visitor; `actions.attempt` and `actions.told` do so by themselves."""

    @functools.wraps(act)
    def for_visitor(*args: P.args, **kwargs: P.kwargs) -> T:
        service.act_for_visitor()
        return act(*args, **kwargs)

    return for_visitor
