"""Show how far the commands are that install workers over `ssh`: each host's step, seconds and trouble."""

from __future__ import annotations

import streamlit as st

from dashboard.cluster.installations import HostStep, Installation
from dashboard.service import service
from dashboard.views.layout import style
from dashboard.views.layout.tables import Markup, show_list
from domain.lists import node_lists
from domain.text.formats import as_text, clock_time, duration_words, plural, with_code

REFRESH_S = 1
UNDER_WAY = ("waiting", "working")
MOST_ROWS = 200
TITLES = {"add": "Adding", "upgrade": "Upgrading", "remove": "Removing"}
PAST = {"add": "added", "upgrade": "upgraded", "remove": "removed"}
COLOURS = {"waiting": "gray", "working": "blue", "failed": "red"}


def installations() -> None:
    """Show the newest command, and the older ones folded; nothing where there was none."""
    current = service.current()
    installations = current.installations.all()
    for installation in installations[:1]:
        if any(host.state in UNDER_WAY for host in installation.hosts):
            style.refresh_within(REFRESH_S)
        _show(installation, current.clock())
    older = installations[1:]
    if older and st.toggle(f"Show {plural(len(older), 'earlier command')}", key="installations_older"):
        for installation in older:
            _show(installation, current.clock())


def _show(installation: Installation, now: float) -> None:
    st.markdown(Markup(title(installation)))
    if installation.is_silent(now):
        st.warning(
            f"The command has reported nothing for {duration_words(now - installation.reported_at)}: it has probably "
            "ended. Run it again: it skips finished hosts and retries the others.",
            icon=":material/history:",
        )
    hosts = installation.hosts
    markup = {"state": _badge, "message": _message}
    show_list(f"installation_{installation.id}", node_lists.HOSTS, hosts[:MOST_ROWS], markup)
    if len(hosts) > MOST_ROWS:
        st.caption(f"And {plural(len(hosts) - MOST_ROWS, 'more host')}; the terminal shows all.")


def title(installation: Installation) -> str:
    """Return the command's outcome so far as Markdown: **Adding 8 hosts**: 3 added, 1 failed, 4 to go."""
    hosts = installation.hosts
    failed = sum(host.state == "failed" for host in hosts)
    left = sum(host.state in UNDER_WAY for host in hosts)
    counts = [(len(hosts) - failed - left, PAST[installation.action]), (failed, "failed"), (left, "to go")]
    counts_text = ", ".join(f"{count} {outcome}" for count, outcome in counts if count)
    began = clock_time(installation.began_at)[:-3]
    return f"**{TITLES[installation.action]} {plural(len(hosts), 'host')}**: {counts_text} · begun {as_text(began)} UTC"


def _badge(host: HostStep) -> Markup:
    return Markup(f":{COLOURS.get(host.state, 'green')}-badge[{as_text(node_lists.host_state(host))}]")


def _message(host: HostStep) -> Markup:
    return Markup(with_code(" ".join(host.message.replace("|", "/").split())))  # a cell is one line, and ends at a bar
